//! `faultless top` in a real terminal: tmux draws it, sends keys to it and changes its size.

mod common;

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Scratch, faultless, library, text};
use faultless_testkit::Killed;
use faultless_testkit::limit::limit;

/// How long something on the screen is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A terminal with a shell of its own, in a server of its own.
struct Terminal {
    scratch: Scratch,
    size: (u32, u32),
}

impl Terminal {
    /// One of this size that runs `script`.
    fn new(name: &str, size: (u32, u32), script: &str) -> Self {
        library();
        let terminal = Self { scratch: Scratch::new(name), size };
        let file = terminal.scratch.0.join("tmux.conf");
        std::fs::write(&file, "set -g status off\nset -g default-terminal screen\n").unwrap();
        let (columns, lines) = (size.0.to_string(), size.1.to_string());
        let program = env!("CARGO_BIN_EXE_faultless");
        let library = library().display();
        // The terminal stays when the script has ended: what is on it is still to be read.
        let set = format!(
            "FAULTLESS_LIBRARY='{library}'; export FAULTLESS_LIBRARY; top='{program} top'; {script}; exec sleep 300"
        );
        let made =
            terminal.tmux(["new-session", "-d", "-s", "top", "-x", &columns, "-y", &lines, "sh", "-c", &set]);
        assert!(made.is_some(), "tmux does not start");
        terminal
    }

    fn command(&self) -> Command {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.scratch.0.join("socket")).arg("-f").arg(self.scratch.0.join("tmux.conf"));
        command.env_remove("TMUX").env("LC_ALL", "C.UTF-8").env_remove("NO_COLOR");
        command
    }

    /// What tmux prints.
    fn tmux<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Option<String> {
        let out = self.command().args(args).output().expect("tmux");
        out.status.success().then(|| text(&out.stdout).to_owned())
    }

    fn keys<'a>(&self, keys: impl IntoIterator<Item = &'a str>) {
        for key in keys {
            self.tmux(["send-keys", "-t", "top", key]).expect("keys reach the terminal");
        }
    }

    fn screen(&self) -> String {
        self.tmux(["capture-pane", "-p", "-t", "top"]).unwrap_or_default()
    }

    /// Waits until the screen is so.
    fn wait(&self, what: &str, is: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let screen = self.screen();
            if is(&screen) {
                return screen;
            }
            assert!(start.elapsed() < PATIENCE, "{what}:\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn resize(&mut self, columns: u32, lines: u32) {
        self.size = (columns, lines);
        self.tmux(["resize-window", "-t", "top", "-x", &columns.to_string(), "-y", &lines.to_string()]).unwrap();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(["kill-server"]);
    }
}

/// Whether there is a tmux. Otherwise the test says that it is skipped.
fn has_tmux() -> bool {
    let has = Command::new("tmux").arg("-V").output().is_ok_and(|out| out.status.success());
    if !has {
        faultless_testkit::skip("tmux is not installed");
    }
    has
}

/// A covered program that has a block and waits, and its number.
fn covered() -> (Killed, String) {
    let library = library();
    limit();
    let mut command = Command::new("dd");
    command.args(["if=/dev/zero", "bs=8M", "count=2"]).env("LD_PRELOAD", library).env("FAULTLESS_BUDGET", "64M");
    command.env_remove("FAULTLESS_STATS").stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = Killed(command.spawn().unwrap());
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let pid = child.id().to_string();
    (child, pid)
}

#[test]
fn a_process_is_listed_looked_at_and_its_knobs_are_changed() {
    if !has_tmux() {
        return;
    }
    let (mut program, pid) = covered();
    let mut terminal = Terminal::new("top-list", (80, 24), "$top -i 0.2; echo status $?");
    // Others may be covered, too: the filter finds it.
    terminal.wait("the list comes", |screen| screen.contains("FAULTS/s") && screen.contains("covered"));
    terminal.keys(["/", &pid, "Enter"]);
    let is_listed = |screen: &str| screen.lines().any(|line| line.starts_with('>') && line.contains(&pid));
    let screen = terminal.wait("it is found", is_listed);
    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    assert_eq!(screen.lines().count(), 24, "{screen}");
    terminal.resize(40, 10);
    terminal.wait("a small screen", |screen| is_listed(screen) && !screen.contains("RESIDENT"));
    terminal.resize(130, 40);
    terminal.wait("a large screen", |screen| is_listed(screen) && screen.contains("LEFT/s"));
    terminal.resize(80, 24);
    terminal.keys(["Enter"]);
    // A rate is there from the second look on.
    let has_graph = |screen: &str| screen.contains("[1 overview]") && screen.contains("page faults a second");
    let screen = terminal.wait("its details", has_graph);
    assert!(screen.contains(&format!("{pid} dd: covered")) && screen.contains("budget 64 MiB"), "{screen}");
    assert!(screen.contains("handed out"), "{screen}");
    terminal.keys(["2"]);
    terminal.wait("its counters", |screen| screen.contains("malloc_served"));
    terminal.keys(["Tab"]);
    terminal.wait("its regions", |screen| screen.contains("It has no regions."));
    terminal.keys(["4", "Enter"]);
    terminal.wait("a value is asked for", |screen| screen.contains("budget (0 to "));
    terminal.keys(["1", "2", "x", "Enter"]);
    terminal.wait("a wrong one is refused", |screen| screen.contains("not a size"));
    terminal.keys(["Enter", "1", "2", "8", "M", "Enter"]);
    terminal.wait("it is changed", |screen| screen.contains("budget = 128M"));
    let out = faultless(["sysctl", "-p", &pid, "budget"]).output().unwrap();
    assert_eq!(text(&out.stdout), "budget = 128M\n");
    // Its last figures stay when it ends.
    std::io::copy(&mut program.stdout.take().unwrap(), &mut std::io::sink()).unwrap();
    program.wait().unwrap();
    terminal.wait("its end is said", |screen| screen.contains("HAS ENDED"));
    terminal.keys(["Escape"]);
    terminal.wait("it leaves the list", |screen| screen.contains("No process has"));
    terminal.keys(["q"]);
    terminal.wait("it ends", |screen| screen.contains("status 0\n"));
}

#[test]
fn a_terminal_may_say_that_it_has_no_end() {
    if !has_tmux() {
        return;
    }
    let script = "stty rows 65535 columns 65535; $top; echo status $?";
    let terminal = Terminal::new("top-endless", (80, 24), script);
    terminal.keys(["q"]);
    terminal.wait("it ends", |screen| screen.contains("status 0"));
}

/// What was on the terminal is there again, whatever ends it, and keys are those of the shell.
#[test]
fn the_terminal_is_as_it_was_when_it_ends() {
    if !has_tmux() {
        return;
    }
    for (name, key) in [("top-quit", "q"), ("top-interrupt", "C-c")] {
        let script = "echo before; before=$(stty -g); $top; echo status $?; [ \"$before\" = \"$(stty -g)\" ] && echo same || echo not the same";
        let terminal = Terminal::new(name, (80, 24), script);
        terminal.wait("the list comes", |screen| screen.contains("FAULTS/s"));
        terminal.keys([key]);
        let screen = terminal.wait("it ends", |screen| screen.contains("same\n"));
        assert!(screen.starts_with("before\nstatus 0\nsame\n"), "{screen}");
    }
    let script = "echo before; before=$(stty -g); sh -c 'echo $$ > \"$0/pid\"; exec $1' \"$dir\" \"$top\"; \
                  echo status $?; [ \"$before\" = \"$(stty -g)\" ] && echo same || echo not the same";
    for (signal, status) in [("TERM", 143), ("QUIT", 131)] {
        let dir = Scratch::new(&format!("top-signal-{signal}"));
        let script = format!("ulimit -c 0; dir='{}'; {script}", dir.0.display());
        let terminal = Terminal::new(&format!("top-{signal}"), (80, 24), &script);
        terminal.wait("the list comes", |screen| screen.contains("FAULTS/s"));
        let pid = std::fs::read_to_string(dir.0.join("pid")).unwrap();
        assert!(Command::new("kill").args([&format!("-{signal}"), pid.trim()]).status().unwrap().success());
        let screen = terminal.wait("the signal ends it", |screen| screen.contains("same\n"));
        let end = format!("status {status}\nsame\n");
        assert!(screen.starts_with("before\n") && screen.contains(&end), "{screen}");
    }
}

/// While it is stopped the terminal is the shell's, and afterwards all is drawn again.
#[test]
fn it_is_stopped_and_goes_on() {
    if !has_tmux() {
        return;
    }
    // With jobs, as an interactive shell has them.
    let script = "set -m; echo before; before=$(stty -g); $top -i 1000; echo stopped $?; \
                  [ \"$before\" = \"$(stty -g)\" ] && echo same || echo not the same; read line; fg; echo status $?";
    let terminal = Terminal::new("top-stop", (80, 24), script);
    terminal.wait("the list comes", |screen| screen.contains("FAULTS/s"));
    terminal.keys(["C-z"]);
    let screen = terminal.wait("it stops", |screen| screen.contains("same\n"));
    assert!(screen.starts_with("before\n") && screen.contains("stopped 148\nsame\n"), "{screen}");
    terminal.keys(["Enter"]);
    terminal.wait("it goes on", |screen| screen.contains("FAULTS/s") && !screen.contains("stopped"));
    terminal.keys(["q"]);
    terminal.wait("it ends", |screen| screen.contains("status 0\n"));
}

/// `timeout` gives what it starts a group of its own, which is not the terminal's.
#[test]
fn a_background_job_is_ended_before_it_has_the_terminal() {
    if !has_tmux() {
        return;
    }
    for signal in ["TERM", "HUP", "INT"] {
        let script = format!("timeout -s {signal} 0.5 $top; echo status $?");
        let terminal = Terminal::new(&format!("top-timeout-{signal}"), (80, 24), &script);
        terminal.wait("it ends", |screen| screen.contains("status 124\n"));
    }
}

/// A job that was put into the background stops again until it has the terminal, and ends where it is stopped.
#[test]
fn a_stopped_background_job_goes_on_in_front_or_is_ended() {
    if !has_tmux() {
        return;
    }
    // Stopped by the key, and then as it goes on behind the shell.
    let dir = Scratch::new("top-behind");
    let file = dir.0.join("pid");
    let file = file.display();
    let stopped = format!(
        "is_stopped() {{ case $(sed 's/.*) //' /proc/$1/stat) in T*) ;; *) false; esac; }}; set -m; $top -i 1000; \
         jobs -p >'{file}'; read pid <'{file}'; bg; until is_stopped $pid; do sleep 0.02; done; "
    );
    for (signal, status) in [("TERM", 143), ("HUP", 129), ("INT", 130)] {
        // The shell may tell first that it was stopped, by SIGTTOU.
        let wait = "while wait $pid; status=$?; [ $status = 150 ]; do sleep 0.02; done; echo status $status";
        let end = format!("kill -{signal} $pid; kill -CONT $pid; {wait}");
        let terminal = Terminal::new(&format!("top-behind-{signal}"), (80, 24), &format!("{stopped}{end}"));
        terminal.wait("the list comes", |screen| screen.contains("FAULTS/s"));
        terminal.keys(["C-z"]);
        terminal.wait("the signal ends it", |screen| screen.contains(&format!("status {status}\n")));
    }
    let terminal = Terminal::new("top-front", (80, 24), &format!("{stopped} read line; fg; echo status $?"));
    terminal.wait("the list comes", |screen| screen.contains("FAULTS/s"));
    terminal.keys(["C-z"]);
    terminal.wait("it stops", |screen| !screen.contains("FAULTS/s"));
    terminal.keys(["Enter"]);
    terminal.wait("it goes on", |screen| screen.contains("FAULTS/s"));
    terminal.keys(["q"]);
    terminal.wait("it ends", |screen| screen.contains("status 0\n"));
}

/// Also where it writes to a terminal that has gone, it ends in order.
#[test]
fn a_hangup_does_not_abort_it() {
    if !has_tmux() {
        return;
    }
    for turn in 0..4 {
        let dir = Scratch::new("top-hangup-status");
        let file = dir.0.join("status");
        // The shell outlives the terminal.
        let script = format!("trap '' HUP; ulimit -c 0; $top; echo $? > '{}'; exit", file.display());
        let terminal = Terminal::new(&format!("top-gone-{turn}"), (80, 24), &script);
        terminal.wait("the list comes", |screen| screen.contains("FAULTS/s"));
        drop(terminal);
        let start = Instant::now();
        let status = loop {
            match std::fs::read_to_string(&file) {
                Ok(status) if status.ends_with('\n') => break status,
                _ => assert!(start.elapsed() < PATIENCE, "it goes on"),
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        // By the signal, or because there is no terminal any more: whatever comes first.
        assert!(["129", "1"].contains(&status.trim()), "{status}");
    }
}

/// It ends when its terminal goes, and does not spin.
#[test]
fn it_ends_with_its_terminal() {
    if !has_tmux() {
        return;
    }
    let dir = Scratch::new("top-hangup-pid");
    let script = format!("echo $$ > '{}/pid'; exec $top", dir.0.display());
    let terminal = Terminal::new("top-hangup", (80, 24), &script);
    terminal.wait("the list comes", |screen| screen.contains("FAULTS/s"));
    let pid = std::fs::read_to_string(dir.0.join("pid")).unwrap();
    drop(terminal);
    let start = Instant::now();
    // The number goes when tmux, or who inherits it, has taken its status.
    let runs = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
    };
    while runs() {
        assert!(start.elapsed() < PATIENCE, "it goes on");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Whether the screen was written with colours.
fn has_colours(terminal: &Terminal) -> bool {
    terminal.wait("the list comes", |screen| screen.contains("FAULTS/s"));
    let screen = terminal.tmux(["capture-pane", "-p", "-e", "-t", "top"]).unwrap();
    let codes = screen.split("\x1b[").skip(1).filter_map(|part| part.split('m').next());
    codes
        .flat_map(|codes| codes.split(';'))
        .any(|code| code.len() == 2 && code.starts_with(['3', '4']) && code != "39" && code != "49")
}

#[test]
fn it_does_without_colours_and_without_letters_beyond_ascii() {
    if !has_tmux() {
        return;
    }
    assert!(has_colours(&Terminal::new("top-colours", (80, 24), "exec $top")));
    let plain = Terminal::new("top-plain", (80, 24), "NO_COLOR=1 LC_ALL=C exec $top");
    assert!(!has_colours(&plain));
    plain.keys(["Enter"]);
    let screen =
        plain.wait("details, or none", |screen| screen.contains("overview") || screen.contains("No process"));
    assert!(screen.is_ascii(), "{screen}");
}

#[test]
fn where_there_is_no_terminal_it_says_so() {
    let out = faultless(["top"]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).contains("needs a terminal") && text(&out.stderr).contains("stat -i 1"));
    let out = faultless(["top", "-i", "nothing"]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(out.status.code(), Some(125));
    if !has_tmux() {
        return;
    }
    for (name, term, says) in [("top-dumb", "dumb", "dumb"), ("top-unset", "", "TERM is not set")] {
        let terminal = Terminal::new(name, (80, 24), &format!("TERM={term} $top; echo status $?"));
        let screen = terminal.wait("it ends", |screen| screen.contains("status "));
        // The lines are as wide as the terminal.
        let words = screen.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(says) && words.ends_with("status 1"), "{screen}");
    }
}
