//! `faultless run` from outside: status, signals, stops, and what it prints.

mod common;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, waitpid};

use common::{Scratch, library, run, text};
use faultless_testkit::copy_program;

fn output<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Output {
    run(args).output().unwrap()
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id() as i32).unwrap()
}

/// Waits until `child` stops, and gives the signal that stopped it.
fn stopped_by(child: &Child) -> i32 {
    let (_, status) = waitpid(Some(pid(child)), WaitOptions::UNTRACED).unwrap().unwrap();
    status.stopping_signal().unwrap_or_else(|| panic!("did not stop: {status:?}"))
}

/// Starts it in a process group of its own and reads the first line of its output.
fn started(command: &mut Command) -> (Child, String) {
    let mut child = command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, line.trim().to_owned())
}

#[test]
fn output_and_status_are_the_programs() {
    let out = output(["--", "sh", "-c", "cat </dev/null; echo out; exit 7"]);
    assert_eq!(out.status.code(), Some(7));
    assert_eq!(text(&out.stdout), "out\n");
    assert!(text(&out.stderr).starts_with("faultless: nothing covered;"), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("no large request"), "{}", text(&out.stderr));
    let quiet = output(["--quiet", "--", "sh", "-c", "echo out; exit 7"]);
    assert_eq!((quiet.status.code(), text(&quiet.stdout), text(&quiet.stderr)), (Some(7), "out\n", ""));
}

#[test]
fn death_by_a_signal_is_copied() {
    for signal in [libc::SIGKILL, libc::SIGTERM, libc::SIGSEGV, libc::SIGINT, libc::SIGRTMIN()] {
        let out = output(["--", "sh", "-c", &format!("kill -{signal} $$")]);
        assert_eq!(out.status.signal(), Some(signal));
        assert!(!out.status.core_dumped());
    }
}

#[test]
fn a_stop_is_copied_and_undone() {
    // By the program alone, and by a key of the terminal, which reaches the whole group.
    for (script, signal) in [("kill -STOP $$; exit 5", libc::SIGSTOP), ("kill -TSTP 0; exit 5", libc::SIGTSTP)] {
        for whole_group in [false, true] {
            let mut child =
                run(["--", "sh", "-c", script]).process_group(0).stderr(Stdio::null()).spawn().unwrap();
            assert_eq!(stopped_by(&child), signal, "{script}");
            let to = if whole_group { kill_process_group } else { kill_process };
            to(pid(&child), Signal::CONT).unwrap();
            assert_eq!(child.wait().unwrap().code(), Some(5), "{script}");
        }
    }
}

/// By another process that knows the program's number alone: `cpulimit`, a supervisor, the kernel when memory is short.
#[test]
fn a_stopped_program_that_goes_on_or_ends_by_anothers_doing_is_not_waited_for() {
    for (signal, status) in [("CONT", Some(5)), ("KILL", None)] {
        // The helper acts when both are stopped.
        let script = format!(
            "(until grep -q '^State:.T' /proc/$PPID/status; do sleep 0.02; done; kill -{signal} $$) & kill -STOP $$; exit 5"
        );
        let out = output(["--", "sh", "-c", &script]);
        assert_eq!(out.status.code(), status, "{signal}: {}", text(&out.stderr));
    }
}

/// A process that continues this one means the program, also where neither is stopped.
#[test]
fn a_continue_reaches_a_program_that_is_not_stopped() {
    let script = format!("trap 'exit 9' {}; echo ready; while :; do sleep 0.02; done", libc::SIGCONT);
    let (mut child, line) = started(&mut run(["--", "sh", "-c", &script]));
    assert_eq!(line, "ready");
    kill_process(pid(&child), Signal::CONT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

#[test]
fn a_program_that_stops_twice_stops_twice() {
    let mut child = run(["--", "sh", "-c", "kill -STOP $$; kill -STOP $$; exit 6"])
        .process_group(0)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    for _ in 0..2 {
        assert_eq!(stopped_by(&child), libc::SIGSTOP);
        kill_process(pid(&child), Signal::CONT).unwrap();
    }
    assert_eq!(child.wait().unwrap().code(), Some(6));
}

#[test]
fn signals_reach_the_program() {
    for signal in [Signal::TERM, Signal::HUP, Signal::INT, Signal::USR1, Signal::USR2, Signal::WINCH] {
        let script = format!("trap 'exit 9' {}; echo ready; while :; do sleep 0.02; done", signal.as_raw());
        let (mut child, line) = started(&mut run(["--", "sh", "-c", &script]));
        assert_eq!(line, "ready");
        kill_process(pid(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(9), "{signal:?}");
    }
}

/// One that the kernel sends when a child of this command's changes is for the command alone, one from elsewhere is not.
/// A signal that a program's child sends to their group reaches the program once, as without the command.
#[test]
fn a_signal_to_the_group_from_within_comes_once() {
    let scratch = Scratch::new("group");
    let (source, program) = (scratch.0.join("main.c"), scratch.0.join("main"));
    let code = r#"
        #include <signal.h>
        #include <sys/wait.h>
        #include <time.h>
        #include <unistd.h>
        static void on(int signal) { write(1, "T", 1); }
        int main(void) {
            struct timespec second = {1, 0};
            signal(SIGTERM, on);
            int child = fork();
            if (child == 0) {
                signal(SIGTERM, SIG_IGN);
                kill(0, SIGTERM);
                while (nanosleep(&second, &second)) ;
                _exit(0);
            }
            while (waitpid(child, 0, 0) < 0) ;
            return 0;
        }"#;
    std::fs::write(&source, code).unwrap();
    let built = std::process::Command::new("cc").arg(&source).arg("-o").arg(&program).status();
    if !built.is_ok_and(|status| status.success()) {
        faultless_testkit::skip("no C compiler");
        return;
    }
    let out = run(["--".as_ref(), program.as_os_str()]).process_group(0).output().unwrap();
    assert_eq!((out.status.code(), text(&out.stdout)), (Some(0), "T"), "{}", text(&out.stderr));
}

#[test]
fn signals_about_children_reach_the_program() {
    let script = format!("trap 'exit 9' {}; echo ready; while :; do :; done", libc::SIGCHLD);
    let (mut child, line) = started(&mut run(["--", "sh", "-c", &script]));
    assert_eq!(line, "ready");
    kill_process(pid(&child), Signal::CHILD).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

#[test]
fn killed_it_leaves_the_program_running() {
    let scratch = Scratch::new("killed");
    let mut command = run(["--", "sh", "-c", "echo $$; exec sleep 60"]);
    let (mut child, line) = started(command.env("XDG_RUNTIME_DIR", &scratch.0));
    let program: i32 = line.parse().unwrap();
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    let stat = std::fs::read_to_string(format!("/proc/{program}/stat")).unwrap();
    let state = stat.rsplit(") ").next().unwrap().chars().next().unwrap();
    assert!(matches!(state, 'S' | 'R' | 'D'), "{stat}");
    kill_process(Pid::from_raw(program).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn what_cannot_run_is_said_in_one_line() {
    let no_file = Scratch::new("missing").0.join("program");
    let table: [(&[&OsStr], i32, &str); 7] = [
        (&["--".as_ref(), no_file.as_ref()], 127, "No such file"),
        (&["--".as_ref(), "faultless-no-such-command".as_ref()], 127, "No such file"),
        (&["--".as_ref(), concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml").as_ref()], 126, "Permission denied"),
        (&["--no-such-option".as_ref(), "--".as_ref(), "true".as_ref()], 125, "--no-such-option"),
        (&["--budget".as_ref(), "much".as_ref(), "true".as_ref()], 125, "not a size"),
        (&["--json".as_ref(), "/nonexistent/file".as_ref(), "true".as_ref()], 125, "cannot write"),
        (&[], 125, "<PROGRAM>"),
    ];
    for (args, status, reason) in table {
        let out = output(args);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(status), "{said}");
        assert!(said.starts_with("faultless: ") && said.contains(reason) && said.lines().count() == 1, "{said}");
    }
    let quiet = output(["--quiet", "--", "faultless-no-such-command"]);
    assert_eq!(quiet.status.code(), Some(127));
}

#[test]
fn without_the_library_nothing_runs() {
    let scratch = Scratch::new("library");
    let named = run(["--", "echo", "ran"]).env("FAULTLESS_LIBRARY", scratch.0.join("none.so")).output().unwrap();
    let alone = scratch.0.join("faultless");
    copy_program(env!("CARGO_BIN_EXE_faultless"), &alone);
    let beside =
        Command::new(&alone).args(["run", "echo", "ran"]).env_remove("FAULTLESS_LIBRARY").output().unwrap();
    for out in [named, beside] {
        let said = text(&out.stderr);
        assert_eq!((out.status.code(), text(&out.stdout)), (Some(125), ""), "{said}");
        assert!(said.contains("FAULTLESS_LIBRARY") && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn the_program_inherits_what_this_process_did() {
    let status = ["grep", "-E", "^(Sig(Blk|Ign|Pnd)|ShdPnd)", "/proc/self/status"];
    let with_state = |command: &[&str]| {
        let mut env = Command::new("env");
        env.args(["--ignore-signal=PIPE,CHLD,HUP", "--block-signal=USR2"]).env("FAULTLESS_LIBRARY", library());
        let out = env.args(command).args(status).output().unwrap();
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        text(&out.stdout).to_owned()
    };
    let plain = with_state(&[]);
    assert!(plain.contains("SigBlk:\t0000000000000800"), "{plain}");
    let faultless = env!("CARGO_BIN_EXE_faultless");
    assert_eq!(with_state(&[faultless, "run", "--"]), plain);
    assert_eq!(with_state(&[faultless, "run", "--quiet", "--"]), plain);
}

#[test]
fn missing_standard_files_stay_missing() {
    let list = "ls -l /proc/self/fd | grep -c ' 0 -> '";
    let faultless = env!("CARGO_BIN_EXE_faultless");
    for options in ["", "--quiet"] {
        let script = format!("{faultless} run {options} -- sh -c \"{list}\" <&-");
        let out = Command::new("sh").args(["-c", &script]).env("FAULTLESS_LIBRARY", library()).output().unwrap();
        let plain = Command::new("sh").args(["-c", &format!("sh -c \"{list}\" <&-")]).output().unwrap();
        assert_eq!(text(&out.stdout), text(&plain.stdout), "{options}");
    }
}

#[test]
fn the_environment_carries_the_settings() {
    let print = "echo $LD_PRELOAD; echo $FAULTLESS_BUDGET $FAULTLESS_SKIP $FAULTLESS_PREFAULT_BY";
    let args = ["--budget", "96M", "--skip", "a,b", "-s", "prefault_by=thread", "sh", "-c", print];
    let out = run(args).env("LD_PRELOAD", "libc.so.6").output().unwrap();
    assert_eq!(text(&out.stdout), format!("{}:libc.so.6\n96M a,b thread\n", library().display()));
}

#[test]
fn children_can_be_left_alone() {
    let dd = "dd if=/dev/zero of=/dev/null bs=8M count=2 2>/dev/null";
    let covered = |options: &[&str]| {
        let out = output(options.iter().copied().chain(["sh", "-c", &format!("{dd}; true")]));
        text(&out.stderr).lines().next().unwrap().to_owned()
    };
    assert!(covered(&[]).starts_with("faultless: 1 process covered;"));
    assert!(covered(&["--no-children"]).starts_with("faultless: nothing covered;"));
    // Other libraries stay, however many there are.
    let others = vec!["libc.so.6"; 1000].join(":");
    let mut inherited = run(["--no-children", "--quiet", "sh", "-c", "echo $LD_PRELOAD"]);
    let out = inherited.env("LD_PRELOAD", &others).output().unwrap();
    assert_eq!(text(&out.stdout).trim_end(), others);
}

#[test]
fn the_json_file_holds_counters_of_each_process() {
    let scratch = Scratch::new("json");
    let file = scratch.0.join("out.json");
    // dd asks for one buffer of its block size.
    let dd = "dd if=/dev/zero of=/dev/null bs=8M count=2 2>/dev/null";
    let args = ["--json", file.to_str().unwrap(), "--", "sh", "-c", &format!("{dd}; {dd}; exit 3")];
    let runtime = Scratch::new("runtime");
    let out = run(args).env("XDG_RUNTIME_DIR", &runtime.0).output().unwrap();
    assert_eq!(out.status.code(), Some(3));
    assert_eq!(runtime.entries(), 0, "the directory of counters is left behind");
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!((&json["version"], &json["exit_status"], &json["signal"]), (&3.into(), &3.into(), &().into()));
    assert_eq!(json["unreadable"], serde_json::json!([]));
    let processes = json["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 2);
    for counter in ["malloc_served", "malloc_bytes"] {
        let each = processes.iter().map(|process| process["counters"][counter].as_u64().unwrap());
        let each: Vec<u64> = each.inspect(|n| assert!(*n > 0)).collect();
        assert_eq!(json["totals"][counter], each.iter().sum::<u64>());
    }
    assert!(json["totals"]["malloc_bytes"].as_u64().unwrap() >= 16 << 20);
    assert!(json["minor_faults"].as_u64().unwrap() > 0 && json["max_rss_bytes"].as_u64().unwrap() > 0);
    let said = text(&out.stderr);
    assert!(said.starts_with("faultless: 2 processes covered;"), "{said}");
    assert!(said.contains("Of the program itself, nothing was covered"), "{said}");
    assert_eq!((&json["covered"], &json["lost"]), (&false.into(), &false.into()));
    assert!(processes.iter().all(|process| process["name"] == "dd"), "{json:#}");
    let programs = json["programs"].as_array().unwrap();
    assert_eq!(
        (programs.len(), &programs[0]["name"], &programs[0]["served_processes"]),
        (1, &"dd".into(), &2.into())
    );
    assert!(said.lines().all(|line| line.chars().count() <= 80), "{said}");
}

/// How many faults were spared is for `--compare` to count.
#[test]
fn a_summary_says_what_was_counted_and_nothing_else() {
    let scratch = Scratch::new("counted");
    let file = scratch.0.join("out.json");
    let out = output([
        "--json",
        file.to_str().unwrap(),
        "--",
        "dd",
        "if=/dev/zero",
        "of=/dev/null",
        "bs=64M",
        "count=1",
    ]);
    let (json, said): (serde_json::Value, _) =
        (serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap(), text(&out.stderr));
    assert!(
        said.contains("memory handed out")
            && !["avoided", "estimate", "spared"].iter().any(|word| said.contains(word)),
        "{said}"
    );
    assert!(json["ahead"].is_null() || json["ahead"]["used_bytes"] == 0, "a buffer of zeroes: {json:#}");
    let documented = include_str!("../src/run/summary.rs");
    for field in json.as_object().unwrap().keys() {
        assert!(documented.contains(&format!("`{field}`")), "{field} is not documented");
    }
}

#[test]
fn programs_of_a_tree_are_named_and_with_tree_each_process() {
    let script = "dd if=/dev/zero of=/dev/null bs=8M count=1; dd if=/dev/zero of=/dev/null bs=8M count=1; head -c 9000000 /dev/zero | sort -z -o /dev/null";
    let named = output(["--", "sh", "-c", script]);
    let said = text(&named.stderr);
    assert!(said.contains("programs, by what they were served:") && said.contains("dd x 2"), "{said}");
    let each = output(["--tree", "--", "sh", "-c", script]);
    let said = text(&each.stderr);
    let processes = said.lines().skip_while(|line| !line.contains("processes that made large requests:")).skip(1);
    assert_eq!(processes.filter(|line| line.split_whitespace().nth(1) == Some("dd")).count(), 2, "{said}");
}

/// A forked child counts for itself, under the name of its program.
#[test]
fn children_have_the_name_of_their_program() {
    let scratch = Scratch::new("forked");
    let file = scratch.0.join("out.json");
    let script = "$x = 'x' x 8000000; if (!fork) { $y = 'y' x 9000000; exit } wait";
    let out = output(["--json", file.to_str().unwrap(), "--", "perl", "-e", script]);
    if out.status.code() == Some(127) {
        faultless_testkit::skip("there is no perl");
        return;
    }
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let names: Vec<_> = json["processes"].as_array().unwrap().iter().map(|process| &process["name"]).collect();
    assert_eq!(names, ["perl", "perl"], "{json:#}");
}

#[test]
fn a_static_program_runs_plain_and_is_told() {
    let scratch = Scratch::new("static");
    let (source, program) = (scratch.0.join("main.c"), scratch.0.join("main"));
    std::fs::write(&source, "int main(void) { return 4; }\n").unwrap();
    let built = Command::new("cc").arg("-static").arg(&source).arg("-o").arg(&program).output();
    if !built.is_ok_and(|out| out.status.success()) {
        faultless_testkit::skip("no C compiler or no static C library");
        return;
    }
    let out = output([OsStr::new("--"), program.as_ref()]);
    assert_eq!(out.status.code(), Some(4));
    let said = text(&out.stderr);
    assert!(said.split_whitespace().any(|word| word == "statically"), "{said}");
}

/// What the library finds to rule it out is what is said, not that there was nothing to serve.
#[test]
fn limits_that_rule_a_program_out_are_named() {
    for (limit, why) in [("-v 4000000", "ulimit -v"), ("-d 4000000", "ulimit -d")] {
        let script = format!("ulimit -S {limit}; exec \"$@\"");
        let inner = run(["--", "dd", "if=/dev/zero", "of=/dev/null", "bs=8M", "count=1"]);
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh"]).arg(inner.get_program()).args(inner.get_args());
        command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let out = command.output().unwrap();
        let said = text(&out.stderr);
        assert!(out.status.success() && said.contains("nothing covered") && said.contains(why), "{said}");
    }
}
