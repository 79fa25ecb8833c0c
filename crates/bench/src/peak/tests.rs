//! The test program starts itself as the program that is watched: [`program`] does what the variable says.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::*;
use crate::process;

const WHAT: &str = "WATCHED_PROGRAM";
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
        // SAFETY: the child only waits and ends.
        "forks" => match unsafe { libc::fork() } {
            0 => end_with_input(),
            _ => {}
        },
        "forks with its memory" => {
            let stack = vec![0u128; 4096];
            let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
            // SAFETY: the child has a stack of its own, and this thread waits until it ends.
            unsafe {
                libc::clone(tell_and_end, stack.as_ptr().add(4096) as *mut _, flags, std::ptr::null_mut());
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
    print!("ready\n");
    std::io::stdout().flush().unwrap();
    end_with_input();
}

fn end_with_input() -> ! {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    // SAFETY: ends the process.
    unsafe { libc::_exit(0) }
}

/// No allocation, no lock: its parent's memory is its own.
extern "C" fn tell_and_end(_: *mut libc::c_void) -> i32 {
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
    own: u64,
}

impl Running {
    /// Starts what `script` does with the program (`"$@"`), and waits until that is ready.
    fn start(what: &str, script: &str) -> Running {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(std::env::current_exe().unwrap());
        command.args(["--exact", "peak::tests::program", "--nocapture"]).env(WHAT, what);
        process::tie(&mut command);
        let own = own_resident().unwrap();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        assert!(output.by_ref().lines().any(|line| line.unwrap().ends_with("ready")), "{what}: ended");
        Running { input: child.stdin.take(), child, _output: output, own }
    }

    fn watch(&self) -> Watch {
        Watch::new(self.child.id(), self.own).unwrap()
    }

    /// Lets it end; its largest resident memory.
    fn end(&mut self) -> u64 {
        self.input = None;
        process::wait(self.child.id()).unwrap().resident
    }
}

/// The peak after so many samples.
fn after(watch: &mut Watch, samples: u32) -> Peak {
    (0..samples).for_each(|_| watch.sample().unwrap());
    watch.peak
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
    assert_eq!(watch.end(0), Some(peak));
}

/// Its parent has ended before anyone looked.
#[test]
fn an_orphan_counts() {
    let mut run = Running::start("has memory", r#"exec 3<&0; ("$@" <&3 &); read end"#);
    let peak = after(&mut run.watch(), 1);
    assert!(ONCE.contains(&peak.bytes) && peak.processes == 2, "{peak:?}");
    run.end();
}

/// One that comes while it is watched, and leaves the group: its parent tells.
#[test]
fn a_process_of_another_group_counts() {
    let mut run = Running::start("has memory", r#"exec 3<&0; setsid "$@" <&3 & wait"#);
    let peak = after(&mut run.watch(), 1);
    assert!(ONCE.contains(&peak.bytes), "{peak:?}");
    run.end();
}

#[test]
fn memory_of_two_processes_counts_once_while_one_only_borrows_it() {
    let mut run = Running::start("forks with its memory", r#"exec "$@""#);
    let peak = after(&mut run.watch(), 4 * SHARED);
    assert!(ONCE.contains(&peak.bytes) && peak.processes == 1, "{peak:?}");
    run.end();
}

#[test]
fn a_fork_counts_when_it_lasts() {
    let mut run = Running::start("forks", r#"exec "$@""#);
    let mut watch = run.watch();
    let peak = after(&mut watch, 2);
    assert!(ONCE.contains(&peak.bytes) && peak.processes == 1, "{peak:?}");
    let peak = after(&mut watch, 1);
    assert!(peak.bytes >= 2 * SIZE && peak.processes == 2, "{peak:?}");
    run.end();
}

#[test]
fn a_process_without_its_first_thread_counts() {
    let mut run = Running::start("loses its first thread", r#"exec "$@""#);
    let peak = after(&mut run.watch(), 2);
    assert!(ONCE.contains(&peak.bytes), "{peak:?}");
    run.end();
}

#[test]
fn a_spike_between_samples_of_one_process_is_the_kernels_to_tell() {
    let mut run = Running::start("had memory", r#"exec "$@""#);
    let mut watch = run.watch();
    let seen = after(&mut watch, 1);
    assert!(seen.bytes < SIZE / 2, "{seen:?}");
    let resident = run.end();
    let peak = watch.end(resident).unwrap();
    assert!(peak.bytes >= SIZE.saturating_sub(uncertainty() + MIB).max(seen.bytes), "{peak:?}, {resident}");
}

/// A figure that may be this process's own before the program began says nothing.
#[test]
fn a_resident_size_that_may_be_our_own_does_not_count() {
    let mut run = Running::start("had memory", r#"exec "$@""#);
    let mut watch = Watch { own: 2 * SIZE, ..run.watch() };
    let seen = after(&mut watch, 1);
    let resident = run.end();
    assert_eq!(watch.end(resident), Some(seen));
}
