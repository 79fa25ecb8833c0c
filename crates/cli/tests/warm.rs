//! The warm reserve: its life, who may talk to it, and what it gives back.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use common::warm::{MIB, Warm, growth, send, sender};
use common::{is_root, run, text};

#[test]
fn it_starts_once_says_what_it_holds_and_stops() {
    let warm = Warm::new("life");
    let out = warm.say(&["stop"]);
    assert!(out.status.success() && text(&out.stdout) == "no daemon runs\n", "{out:?}");
    assert_eq!(warm.status(), None);
    warm.start(&["--size", "32M"]);
    let pid = warm.number("pid");
    warm.until("held_bytes", 32 * MIB);
    assert_eq!(fs::metadata(warm.socket()).unwrap().permissions().mode() & 0o777, 0o600);
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let resident = smaps.lines().find_map(|line| line.strip_prefix("Anonymous:")).unwrap();
    let resident: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    assert!((32 << 10..34 << 10).contains(&resident), "{resident}");
    // A second one is not started, whatever it is asked for.
    let again = warm.say(&["start", "--force", "--size", "64M"]);
    assert!(text(&again.stdout).contains(&format!("is there already: process {pid}")), "{again:?}");
    let again = warm.say(&["start", "--force", "--foreground"]);
    assert!(again.status.success(), "{again:?}");
    assert_eq!(warm.number("size_bytes"), 32 * MIB);
    // On a busy machine it may give some back at any time.
    assert!(text(&warm.say(&["status"]).stdout).contains("of 32 MiB"));
    assert!(text(&warm.say(&["stop"]).stdout).starts_with("ended: process"));
    assert!(!warm.socket().exists() && warm.status().is_none());
}

/// One that does not answer is not none.
#[test]
fn a_daemon_that_does_not_answer_is_told() {
    let warm = Warm::new("deaf");
    warm.start(&["--size", "32M"]);
    let pid = warm.number("pid").to_string();
    let signal = |name: &str| assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    signal("-STOP");
    let said = ["stop", "status"].map(|word| warm.say(&[word]));
    signal("-CONT");
    for out in said {
        assert_eq!(out.status.code(), Some(1), "{out:?}");
        let words = text(&out.stderr);
        assert!(words.contains("does not answer") && words.contains("kill -CONT"), "{out:?}");
        assert_eq!(text(&out.stdout), "");
    }
    assert!(text(&warm.say(&["stop"]).stdout).starts_with("ended: process"));
}

#[test]
fn what_cannot_be_is_refused_in_words() {
    let warm = Warm::new("refused");
    for (args, said) in [
        (&["start", "--size", "1"][..], "less than 2M"),
        (&["start", "--size", "900G"], "more than half of this machine's memory"),
        (&["start", "--keep", "1x"], "not a time"),
    ] {
        let out = warm.say(args);
        assert!(out.status.code() == Some(125) && text(&out.stderr).contains(said), "{out:?}");
    }
    let mut command = warm.command(&["start", "--force"]);
    let out = command.env("FAULTLESS_WARM", "/dev/null/socket").output().unwrap();
    assert_eq!(out.status.code(), Some(125), "{out:?}");
    // A file that is no socket stays as it is.
    fs::create_dir(warm.0.0.join("own")).unwrap();
    fs::set_permissions(warm.0.0.join("own"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(warm.socket(), "mine").unwrap();
    assert_eq!(warm.say(&["start", "--force"]).status.code(), Some(125));
    assert_eq!(fs::read_to_string(warm.socket()).unwrap(), "mine");
}

#[test]
fn killed_at_each_step_it_leaves_nothing_that_disturbs() {
    let warm = Warm::new("killed");
    let program = || {
        let out = run(["--quiet", "--", "dd", "if=/dev/zero", "of=/dev/null", "bs=64M", "count=1", "status=none"])
            .env("FAULTLESS_WARM", warm.socket())
            .output()
            .unwrap();
        assert!(out.status.success() && out.stderr.is_empty(), "{out:?}");
    };
    program();
    // While it fills.
    warm.start(&["--size", "256M"]);
    warm.kill();
    program();
    // When it is full, while a program grows that found it, and while a process has some of it.
    warm.start(&["--size", "32M"]);
    warm.until("held_bytes", 32 * MIB);
    let words = "import mmap\ndef grow():\n m = mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE)\n \
                 for i in range(0, len(m), 4096): m[i] = 1\n return m\na = grow()\nprint(flush=True)\ninput()\nb = grow()\n";
    let mut grows = run(["--quiet", "--", "python3", "-c", words]);
    grows.env("FAULTLESS_WARM", warm.socket()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut grows = grows.spawn().unwrap();
    grows.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    assert_eq!(warm.number("clients"), 1);
    warm.kill();
    grows.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    let out = grows.wait_with_output().unwrap();
    assert!(out.status.success() && out.stderr.is_empty(), "{out:?}");
    warm.start(&["--size", "32M"]);
    warm.until("held_bytes", 32 * MIB);
    let mut other = sender(&warm.socket(), growth(16 * MIB), &["sleep", "1000"]).spawn().unwrap();
    warm.until("clients", 1);
    warm.kill();
    program();
    // After it gave everything back.
    warm.start(&["--size", "32M", "--keep", "0"]);
    warm.until("kept_out", 1);
    warm.kill();
    program();
    warm.start(&["--size", "32M"]);
    warm.until("held_bytes", 32 * MIB);
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn a_program_gets_what_it_says_and_its_end_gives_it_back() {
    let warm = Warm::new("gives");
    warm.start(&["--size", "64M"]);
    warm.until("held_bytes", 64 * MIB);
    let mut first = sender(&warm.socket(), growth(40 * MIB), &["sleep", "1000"]).spawn().unwrap();
    warm.until("held_bytes", 24 * MIB);
    // More than there is.
    let mut second = sender(&warm.socket(), growth(u64::MAX), &["sleep", "1000"]).spawn().unwrap();
    warm.until("clients", 2);
    warm.until("held_bytes", 0);
    assert_eq!((warm.number("given_bytes"), warm.number("clients_bytes")), (64 * MIB, 64 * MIB));
    for child in [&mut first, &mut second] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    warm.until("held_bytes", 64 * MIB);
    assert_eq!((warm.number("clients"), warm.number("clients_bytes")), (0, 0));
}

#[test]
fn a_covered_program_asks_for_what_it_takes() {
    let warm = Warm::new("covered");
    warm.start(&["--size", "64M"]);
    warm.until("held_bytes", 64 * MIB);
    let before = warm.number("requests");
    let words = "import mmap, time\nm = mmap.mmap(-1, 256 << 20, mmap.MAP_PRIVATE)\nfor i in range(0, len(m), 4096): m[i] = 1\n";
    let out = run(["--", "python3", "-c", words]).env("FAULTLESS_WARM", warm.socket()).output().unwrap();
    assert!(out.status.success(), "{out:?}");
    // One of the command, one of the library at least.
    assert!(warm.number("requests") >= before + 2, "{}", warm.number("requests"));
    assert_eq!(warm.number("given_bytes"), 64 * MIB);
    // With an empty variable none is told.
    let (before, mut command) = (warm.number("requests"), run(["--quiet", "--", "python3", "-c", words]));
    assert!(command.env("FAULTLESS_WARM", "").status().unwrap().success());
    assert_eq!(warm.number("requests"), before);
}

#[test]
fn a_thousand_short_processes_leave_no_trace() {
    let warm = Warm::new("thousand");
    warm.start(&["--size", "16M"]);
    warm.until("held_bytes", 16 * MIB);
    let pid = warm.number("pid");
    let files = || fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let heap = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let data = status.lines().find_map(|line| line.strip_prefix("VmData:")).unwrap();
        data.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    let before = (files(), heap());
    (0..1000).for_each(|_| send(&warm.socket(), growth(4 * MIB)).unwrap());
    // Those that the daemon did not see before their end are refused: they need nothing any more.
    while warm.number("requests") != 1000 || warm.number("clients") != 0 {
        std::thread::yield_now();
    }
    // Other programs may press the machine meanwhile: then it holds nothing.
    while warm.number("held_bytes") != 16 * MIB && warm.number("pressed") == 0 {
        std::thread::yield_now();
    }
    // The heap grows by steps of 132 KiB: two of them would be 256 bytes for each process.
    assert!(files() == before.0 && heap() < before.1 + 250, "{:?} instead of {before:?}", (files(), heap()));
}

#[test]
fn what_is_no_message_changes_nothing() {
    let warm = Warm::new("garbled");
    warm.start(&["--size", "16M"]);
    warm.until("held_bytes", 16 * MIB);
    let mut long = growth(MIB);
    long.push(0);
    let wrong = [Vec::new(), vec![0; 24], vec![0xff; 24], long, growth(MIB)[..23].to_vec(), vec![7; 60_000]];
    for message in &wrong {
        send(&warm.socket(), message.clone()).unwrap();
    }
    warm.until("malformed", wrong.len() as u64);
    let status = warm.status().unwrap();
    assert!(status["requests"] == 0 && (status["held_bytes"] == 16 * MIB || status["pressed"] != 0), "{status}");
}

#[test]
fn another_user_is_refused() {
    if !is_root() {
        return;
    }
    let warm = Warm::new("foreign");
    warm.start(&["--size", "16M"]);
    warm.until("held_bytes", 16 * MIB);
    let foreign = |message: Vec<u8>| sender(&warm.socket(), message, &["true"]).uid(65_534).status();
    assert!(foreign(growth(16 * MIB)).is_err(), "the socket is this user's alone");
    // Even where files would let it.
    fs::set_permissions(&warm.0.0, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(warm.0.0.join("own"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(warm.socket(), fs::Permissions::from_mode(0o777)).unwrap();
    let stop: Vec<u8> =
        [u64::from_le_bytes(*b"fltwarm1"), 3, 0].iter().flat_map(|n: &u64| n.to_le_bytes()).collect();
    for message in [growth(16 * MIB), stop] {
        assert!(foreign(message).unwrap().success());
    }
    warm.until("refused", 2);
    assert_eq!((warm.number("held_bytes"), warm.number("given_bytes")), (16 * MIB, 0));
}

#[test]
fn all_goes_back_when_its_control_group_is_full() {
    let group = PathBuf::from(format!("/sys/fs/cgroup/memory/faultless-warm-{}", std::process::id()));
    if fs::create_dir(&group).is_err() || !group.join("memory.limit_in_bytes").exists() {
        return faultless_testkit::skip("no control group of version 1 can be made");
    }
    let inside = |command: &Command| {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo $$ >\"$1/cgroup.procs\" || exit 9; shift; exec \"$@\"", "sh"]).arg(&group);
        shell.arg(command.get_program()).args(command.get_args());
        shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        shell
    };
    {
        let warm = Warm::new("pressed");
        let small = |mib: u64| fs::write(group.join("memory.limit_in_bytes"), (mib * MIB).to_string()).unwrap();
        small(512);
        let out = inside(&warm.command(&["start", "--force", "--size", "100M"])).output().unwrap();
        assert!(text(&out.stderr).contains("a control group below 1 GiB"), "{out:?}");
        small(1024);
        let out = inside(&warm.command(&["start", "--force", "--size", "100M"])).output().unwrap();
        assert!(out.status.success(), "{out:?}");
        warm.until("held_bytes", 100 * MIB);
        let mut fill = Command::new("python3");
        fill.args(["-c", "import time\nb = bytearray(880 << 20)\ntime.sleep(1000)"]);
        let mut fill = inside(&fill).spawn().unwrap();
        warm.until("pressed", 1);
        assert_eq!(warm.number("held_bytes"), 0);
        fill.kill().unwrap();
        fill.wait().unwrap();
    }
    let _ = fs::remove_dir(&group);
}
