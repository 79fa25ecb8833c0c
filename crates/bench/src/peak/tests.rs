//! The test program starts itself as the program that is watched: [`program`] does what the variable says.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::*;
use crate::process;

const WHAT: &str = "WATCHED_PROGRAM";
const MIB: u64 = 1 << 20;
const SIZE: u64 = 64 * MIB;
/// More than once [`SIZE`] with all that a program has else, less than twice.
const ONCE: std::ops::Range<u64> = SIZE..SIZE * 3 / 2;

/// What is started: says that it is ready, and ends when its standard input does.
#[test]
fn program() {
    let Ok(what) = std::env::var(WHAT) else { return };
    let memory = vec![1u8; SIZE as usize];
    match what.as_str() {
        "has memory" => {}
        "had memory" => drop(std::hint::black_box(memory)),
        "forks" | "forks and writes" | "forks and takes more" | "forks and ends" => {
            // SAFETY: the child is a copy of a process in which no other thread does anything.
            if unsafe { libc::fork() } == 0 {
                in_child(&what, memory);
            }
            if what == "forks and ends" {
                return;
            }
            // The child says when it is ready.
            end_with_input();
        }
        "forks with its memory" => {
            let stack = vec![0u128; 4096];
            let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
            // SAFETY: the child has a stack of its own, and this thread waits until it ends.
            unsafe {
                libc::clone(tell, stack.as_ptr().add(4096) as *mut _, flags, std::ptr::null_mut());
            }
        }
        "loses its first thread" => {
            // SAFETY: the handler ends the thread, and touches nothing.
            unsafe {
                libc::signal(libc::SIGUSR1, end_thread as extern "C" fn(i32) as usize);
                let first = std::process::id();
                libc::syscall(libc::SYS_tgkill, first, first, libc::SIGUSR1);
                // A thread that has ended has no memory.
                let path = format!("/proc/{first}/task/{first}/statm");
                while !std::fs::read_to_string(&path).is_ok_and(|text| text.starts_with("0 0 0")) {
                    std::thread::yield_now();
                }
            }
        }
        other => panic!("{other}"),
    }
    println!("ready");
    end_with_input();
}

/// In the forked child: what it does with its copy of the memory.
fn in_child(what: &str, mut memory: Vec<u8>) -> ! {
    let mut more = Vec::new();
    match what {
        "forks and writes" => memory.iter_mut().step_by(4096).for_each(|byte| *byte = 2),
        "forks and takes more" => more = vec![1u8; SIZE as usize],
        // SAFETY: no pointers.
        "forks and ends" => while unsafe { libc::getppid() } != 1 {},
        _ => {}
    }
    tell(std::ptr::null_mut());
    std::hint::black_box((memory, more));
    end_with_input()
}

fn end_with_input() -> ! {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    // SAFETY: ends the process.
    unsafe { libc::_exit(0) }
}

/// Says that it is ready, and waits for the end of the input. No allocation, no lock: memory may be another process's.
extern "C" fn tell(_: *mut libc::c_void) -> i32 {
    let mut byte = 0u8;
    // SAFETY: both places are readable and writable.
    unsafe {
        libc::write(1, c"ready\n".as_ptr().cast(), 6);
        while libc::read(0, (&raw mut byte).cast(), 1) > 0 {}
    }
    0
}

extern "C" fn end_thread(_: i32) {
    // SAFETY: ends this thread alone.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}

struct Running {
    child: Child,
    input: Option<ChildStdin>,
    /// Open for what it still prints.
    _output: BufReader<ChildStdout>,
}

impl Running {
    /// Starts what `script` does with the program (`"$@"`), and waits until that is ready.
    fn start(what: &str, script: &str) -> Running {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(std::env::current_exe().unwrap());
        command.args(["--exact", "peak::tests::program", "--nocapture"]).env(WHAT, what);
        process::tie(&mut command);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        assert!(output.by_ref().lines().any(|line| line.unwrap().ends_with("ready")), "{what}: ended");
        Running { input: child.stdin.take(), child, _output: output }
    }

    fn watch(&self) -> Watch {
        Watch::new(self.child.id()).unwrap()
    }

    /// Lets it end.
    fn end(&mut self) {
        self.input = None;
        self.child.wait().unwrap();
    }
}

/// The peak after this number of samples.
fn after(watch: &mut Watch, samples: u32) -> Peak {
    (0..samples).for_each(|_| watch.sample().unwrap());
    watch.peak().unwrap()
}

#[test]
fn a_grandchild_counts_and_so_do_those_above_it() {
    let mut run = Running::start("has memory", r#"sh -c '"$@"; true' sh "$@"; true"#);
    let mut watch = run.watch();
    let peak = after(&mut watch, 1);
    assert!(ONCE.contains(&peak.bytes) && peak.processes == 3, "{peak:?}");
    run.end();
    // What was seen stays.
    watch.sample().unwrap();
    assert_eq!(watch.peak(), Some(peak));
}

/// After this number of samples the memory of what is started counts, and once.
fn counts_once(what: &str, script: &str, samples: u32) -> Peak {
    let mut run = Running::start(what, script);
    let peak = after(&mut run.watch(), samples);
    assert!(ONCE.contains(&peak.bytes), "{peak:?}");
    run.end();
    peak
}

/// Its parent has ended before anyone looked.
#[test]
fn an_orphan_counts() {
    let peak = counts_once("has memory", r#"exec 3<&0; ("$@" <&3 &); read end"#, 1);
    assert_eq!(peak.processes, 2, "{peak:?}");
}

/// One that comes while it is watched, and leaves the group: its parent tells.
#[test]
fn a_process_of_another_group_counts() {
    counts_once("has memory", r#"exec 3<&0; setsid "$@" <&3 & wait"#, 1);
}

#[test]
fn memory_that_a_process_only_borrows_counts_once() {
    counts_once("forks with its memory", r#"exec "$@""#, 4 * SHARED);
}

#[test]
fn what_a_forked_process_shares_with_its_parent_counts_once() {
    for (what, times) in
        [("forks", 1), ("forks and writes", 2), ("forks and takes more", 2), ("forks and ends", 1)]
    {
        let mut run = Running::start(what, r#""$@"; read end"#);
        let peak = after(&mut run.watch(), 4);
        let (least, most) = (times * SIZE - MIB, times * SIZE + SIZE / 2);
        assert!((least..most).contains(&peak.bytes), "{what}: {peak:?}");
        run.end();
    }
}

#[test]
fn a_process_without_its_first_thread_counts() {
    counts_once("loses its first thread", r#"exec "$@""#, 2);
}

/// What was there between samples: the kernel tells. Its figure has pages of files, which do not count.
#[test]
fn a_spike_between_samples_counts() {
    let mut run = Running::start("had memory", r#"exec "$@""#);
    let peak = after(&mut run.watch(), 1);
    // It has used more of its files since.
    let least = SIZE.saturating_sub(tree::uncertainty() + MIB);
    assert!((least..SIZE + 2 * MIB).contains(&peak.bytes), "{peak:?}");
    run.end();
}
