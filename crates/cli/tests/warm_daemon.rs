//! The daemon as a process: what it has of who starts it, how it begins and ends, and who may disturb it.

mod common;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use common::warm::{MIB, Warm, growth, sender};
use common::{faultless, run, text, within};

/// `inner`, started by a Python program that does `words` first. `env` does not put its signals right.
fn after(words: &str, inner: &Command) -> Command {
    let mut python = Command::new("python3");
    let program = "os.execvp(sys.argv[3], sys.argv[3:])";
    python.args(["-c", &format!("import os, signal, sys\n{words}\n{program}")]);
    within(python, inner)
}

fn files(pid: u64) -> Vec<PathBuf> {
    let all = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    all.filter_map(|file| fs::read_link(file.ok()?.path()).ok()).collect()
}

fn wait_for_end(pid: u64) {
    let is_there = || match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => !stat.rsplit_once(") ").unwrap().1.starts_with('Z'),
        Err(_) => false,
    };
    while is_there() {
        thread::sleep(Duration::from_millis(5));
    }
}

fn is_well(out: &Output) {
    assert!(out.status.success() && out.stderr.is_empty(), "{out:?}");
}

#[test]
fn it_has_nothing_of_who_starts_it() {
    let warm = Warm::new("apart");
    let file = warm.0.0.join("held");
    let words = format!(
        "os.dup2(os.open({file:?}, os.O_RDWR | os.O_CREAT, 0o600), 200)\n\
         os.set_inheritable(200, True)\n\
         signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\n\
         for s in (signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD): signal.signal(s, signal.SIG_IGN)\n\
         os.chdir({:?})",
        warm.0.0
    );
    is_well(&after(&words, &warm.command(&["start", "--force", "--size", "8M"])).output().unwrap());
    let pid = warm.number("pid");
    let held = files(pid);
    assert!(!held.contains(&file), "{held:?}");
    assert_eq!(held.iter().filter(|file| *file == Path::new("/dev/null")).count(), 3, "{held:?}");
    assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), Path::new("/"));
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let signals = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    assert_eq!(signals("SigBlk:"), 0);
    // The runtime ignores SIGPIPE; signals 32 and 33 are the C library's own.
    assert_eq!(signals("SigIgn:") & !(3 << 31), 1 << 12);
    assert!(Command::new("kill").arg(pid.to_string()).status().unwrap().success());
    wait_for_end(pid);
    assert_eq!(warm.status(), None);
}

/// The program has this process's place, and with it its children.
#[test]
fn a_program_that_starts_it_has_no_child_and_no_signal_of_it() {
    let warm = Warm::new("child");
    let look = "import os, signal\n\
                try: print(os.waitpid(-1, os.WNOHANG))\n\
                except ChildProcessError: print('no child')\n\
                print(signal.SIGCHLD in signal.sigpending())";
    let mut quiet = run(["--warm", "--quiet", "--", "python3", "-c", look]);
    quiet.env("FAULTLESS_WARM", warm.socket());
    let block = "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())";
    let out = after(block, &quiet).output().unwrap();
    assert_eq!(text(&out.stdout), "no child\nFalse\n", "{out:?}");
    if warm.status().is_none() {
        return faultless_testkit::skip_optional("no reserve is needed on this machine, so none was started");
    }
    // One that takes in orphans would get it as a child.
    assert!(text(&warm.say(&["stop"]).stdout).starts_with("ended: process"));
    let out = after("import ctypes\nctypes.CDLL(None).prctl(36, 1, 0, 0, 0)", &quiet).output().unwrap();
    assert_eq!(text(&out.stdout), "no child\nFalse\n", "{out:?}");
    assert!(text(&out.stderr).contains("no reserve"), "{out:?}");
    assert_eq!(warm.status(), None);
}

#[test]
fn whatever_is_started_and_stopped_at_once_ends_well() {
    let warm = Warm::new("at-once");
    for _ in 0..6 {
        thread::scope(|scope| {
            for words in [&["start", "--force", "--size", "4M"][..], &["stop"]].repeat(3) {
                let warm = &warm;
                scope.spawn(move || is_well(&warm.say(words)));
            }
        });
    }
    warm.say(&["stop"]);
    assert_eq!(warm.status(), None);
    assert!(!warm.socket().exists());
}

/// One that ends has the lock for a moment longer than its name.
#[test]
fn one_that_begins_waits_for_one_that_ends() {
    let warm = Warm::new("waits");
    warm.start(&["--size", "4M"]);
    warm.say(&["stop"]);
    let lock = fs::File::open(warm.socket().with_extension("lock")).unwrap();
    lock.lock().unwrap();
    let start = thread::scope(|scope| {
        let start = scope.spawn(|| warm.say(&["start", "--force", "--size", "4M"]));
        thread::sleep(Duration::from_millis(200));
        lock.unlock().unwrap();
        start.join().unwrap()
    });
    is_well(&start);
    assert!(warm.status().is_some(), "{start:?}");
}

#[test]
fn it_ends_once_its_socket_is_removed() {
    let warm = Warm::new("removed");
    for args in [&["--size", "8M"][..], &["--size", "8M", "--keep", "0"]] {
        warm.start(args);
        let pid = warm.number("pid");
        match args.len() {
            2 => warm.until("held_bytes", 8 * MIB),
            _ => warm.until("kept_out", 1),
        }
        fs::remove_file(warm.socket()).unwrap();
        assert_eq!(text(&warm.say(&["stop"]).stdout), "no daemon runs\n");
        // The next one does not wait in vain for what it held.
        warm.start(&["--size", "4M"]);
        wait_for_end(pid);
        assert_ne!(warm.number("pid"), pid);
        warm.say(&["stop"]);
    }
}

#[test]
fn one_that_cannot_start_says_why() {
    let warm = Warm::new("why");
    is_well(&warm.say(&["stop"]));
    warm.start(&["--size", "4M"]);
    warm.say(&["stop"]);
    let lock = warm.socket().with_extension("lock");
    let makes: [&dyn Fn(); 4] = [
        &|| std::os::unix::fs::symlink("/dev/null", &lock).unwrap(),
        &|| fs::create_dir(&lock).unwrap(),
        &|| drop(std::os::unix::net::UnixListener::bind(&lock).unwrap()),
        &|| assert!(Command::new("mkfifo").arg(&lock).status().unwrap().success()),
    ];
    fs::remove_file(&lock).unwrap();
    for make in makes {
        make();
        let is_refused = || {
            let out = warm.say(&["start", "--force"]);
            let words = text(&out.stderr);
            let is_said = words.contains("socket.lock") && words.contains("no regular file");
            assert!(out.status.code() == Some(125) && is_said, "{out:?}");
        };
        is_refused();
        if fs::symlink_metadata(&lock).unwrap().file_type().is_fifo() {
            // A process that reads it makes it possible to open it.
            let _reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&lock).unwrap();
            is_refused();
        }
        let _ = fs::remove_dir(&lock).or_else(|_| fs::remove_file(&lock));
    }
    warm.start(&["--size", "4M"]);
}

/// Each answer goes where it was asked for, and what is not read there is in no other one's way.
#[test]
fn those_who_do_not_read_their_answers_disturb_nobody() {
    let warm = Warm::new("unread");
    warm.start(&["--size", "4M"]);
    let words = "import socket, sys, time\nkept = []\n\
                 ask = b'fltwarm1' + (2).to_bytes(8, 'little') + bytes(8)\n\
                 while len(kept) < 200:\n \
                 s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n s.bind('')\n \
                 s.connect(sys.argv[1])\n pair = socket.socketpair()\n \
                 kept += [s, pair[0]]\n \
                 for i in range(10): socket.send_fds(s, [ask], [pair[1].fileno()])\n\
                 print(flush=True)\nsys.stdin.read()";
    let mut asks = Command::new("python3");
    asks.args(["-c", words]).arg(warm.socket());
    asks.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut asks = asks.spawn().unwrap();
    std::io::Read::read_exact(asks.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    let pid = warm.number("pid");
    assert!(files(pid).len() < 20, "it keeps no descriptor of them");
    assert!(text(&warm.say(&["stop"]).stdout).starts_with("ended: process"));
    drop(asks.stdin.take());
    asks.wait().unwrap();
}

/// A process that runs on keeps the reserve only as long as it says something.
#[test]
fn a_process_that_says_nothing_keeps_nothing() {
    let warm = Warm::new("silent");
    warm.start(&["--size", "8M", "--keep", "1"]);
    let mut client = sender(&warm.socket(), growth(2 * MIB), &["sleep", "1000"]).spawn().unwrap();
    warm.until("clients", 1);
    while warm.number("kept_out") == 0 {
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!((warm.number("held_bytes"), warm.number("clients")), (0, 1));
    client.kill().unwrap();
    client.wait().unwrap();
}

/// The hidden option is for the command itself.
#[test]
fn nobody_sees_how_it_starts_itself() {
    let out = faultless(["warm", "start", "--help"]).output().unwrap();
    assert!(out.status.success() && !text(&out.stdout).contains("apart"), "{out:?}");
    let out = faultless(["warm", "start", "--apart"]).output().unwrap();
    assert_eq!(out.status.code(), Some(125), "{out:?}");
}
