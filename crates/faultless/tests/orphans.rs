//! Children of a program that ends without ending its region: what they miss of a backing is an error, and never zero.
//!
//! Each test runs itself again as a process of its own, whose children write what they find.

use std::ffi::c_void;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use faultless::region::{Backing, Delivery, Error, Region, Rights};
use faultless_testkit::limit::limit;

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;
const BYTES: usize = 8 * MIB;

/// A backing that has no zero, unless it has nothing at all.
struct Ones;

impl Backing for Ones {
    fn read(&self, _: u64, buffer: &mut [u8]) -> Result<(), i32> {
        buffer.fill(1);
        Ok(())
    }
}

fn build(backing: impl Backing + 'static) -> Region {
    Region::builder(BYTES).backing(backing).events(true).delivery(Delivery::Thread).handlers(2).build().unwrap()
}

/// Whether the kernel tells of forks, and of the end of a thread.
fn can_be() -> bool {
    // SAFETY: a descriptor of our own, or none.
    let tells = unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, libc::gettid(), libc::O_EXCL) as i32;
        libc::close(fd) == 0
    };
    let error = Region::builder(PAGE).events(true).delivery(Delivery::Thread).build().err();
    if !tells || error.is_some() {
        faultless_testkit::skip(format_args!("no events, or a kernel before 6.9: {error:?}"));
    }
    tells && error.is_none()
}

const SCENARIO: &str = "FAULTLESS_TEST_SCENARIO";

/// Runs `program` as a process of its own, in a group of its own, as the test `name`; what it and its children wrote
/// when all have ended.
fn run(name: &str, program: impl FnOnce()) -> Option<String> {
    if std::env::var(SCENARIO).is_ok() {
        limit();
        program();
        say("\nend\n");
        // SAFETY: ends the process, without what the tests around it would write.
        unsafe { libc::_exit(0) };
    }
    can_be().then(|| {
        limit();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", name, "--nocapture"]).env(SCENARIO, name);
        let output = command.process_group(0).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    })
}

/// How many children found what.
fn count(output: &str, word: &str) -> usize {
    output.lines().filter(|line| line.ends_with(word)).count()
}

fn say(word: &str) {
    // SAFETY: a system call with bytes that are there.
    unsafe { libc::write(1, word.as_ptr().cast(), word.len()) };
}

extern "C" fn fails(_: i32) {
    say("\nerror\n");
    // SAFETY: ends the process.
    unsafe { libc::_exit(0) };
}

/// Reads a byte, and says what it was.
fn look(at: *const u8) {
    // SAFETY: memory that the region's process had; the handler ends this process.
    let byte = unsafe {
        for signal in [libc::SIGBUS, libc::SIGSEGV] {
            libc::signal(signal, fails as extern "C" fn(i32) as libc::sighandler_t);
        }
        at.read_volatile()
    };
    say(if byte == 0 { "\nzero\n" } else { "\nbacking\n" });
}

/// A pipe, by whose end children know that their parent is no more.
struct Pipe([i32; 2]);

impl Pipe {
    fn new() -> Self {
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors.
        assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
        Self(ends)
    }

    fn fork(&self, child: impl FnOnce(&Self)) -> i32 {
        // SAFETY: the child makes system calls, accesses memory and ends.
        unsafe {
            let pid = libc::fork();
            if pid == 0 {
                libc::close(self.0[1]);
                child(self);
                libc::_exit(0);
            }
            pid
        }
    }

    /// Says that something is so.
    fn tell(&self) {
        // SAFETY: a byte that is there.
        unsafe { libc::write(self.0[1], c"".as_ptr().cast(), 1) };
    }

    /// Waits until another process tells, or, in a child, for the end of the first process.
    fn wait(&self) {
        let mut byte = 0u8;
        // SAFETY: room for a byte.
        unsafe { libc::read(self.0[0], (&raw mut byte).cast(), 1) };
    }
}

/// Children of several generations, one of which has moved a part: two look while the parent is there, seven when it
/// is no more.
fn family(region: &Region) {
    let (parent, ready) = (Pipe::new(), Pipe::new());
    let at = region.as_ptr();
    for _ in 0..2 {
        parent.fork(|parent| {
            parent.fork(|parent| {
                parent.wait();
                look(at.wrapping_add(MIB));
            });
            parent.wait();
            parent.fork(|_| look(at.wrapping_add(2 * MIB)));
            look(at.wrapping_add(BYTES - PAGE));
        });
    }
    parent.fork(|parent| {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: to addresses that were reserved for it.
        let moved = unsafe {
            let to = libc::mmap(null_mut(), MIB, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
            libc::mremap(at.wrapping_add(3 * MIB).cast(), MIB, MIB, flags, to).cast::<u8>()
        };
        look(moved);
        ready.tell();
        parent.wait();
        look(moved.wrapping_add(MIB - PAGE));
    });
    let looks = parent.fork(|_| look(at.wrapping_add(4 * MIB)));
    // SAFETY: the status is not asked for.
    unsafe { libc::waitpid(looks, null_mut(), 0) };
    ready.wait();
}

/// `ends` programs came to their end. Of those that looked, `errors` found an error, and `served` found what the
/// backing has.
fn check(output: Option<String>, ends: usize, errors: usize, served: usize) {
    let Some(output) = output else { return };
    let found = ["end", "error", "backing", "zero"].map(|word| count(&output, word));
    assert_eq!(found, [ends, errors, served, 0], "{output}");
}

fn kill_myself() {
    // SAFETY: that is what is tested.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

/// A parent with a region and a family comes to its end by `end`, as the test `name`.
fn run_family(name: &str, end: fn(Region)) -> Option<String> {
    run(name, || {
        let region = build(Ones);
        family(&region);
        end(region);
    })
}

#[test]
fn of_a_parent_that_is_killed() {
    check(run_family("of_a_parent_that_is_killed", |_region| kill_myself()), 0, 7, 2);
}

#[test]
fn of_a_parent_that_becomes_another_program() {
    let output = run_family("of_a_parent_that_becomes_another_program", |_region| {
        let error = Command::new("/bin/sh").args(["-c", "exit"]).exec();
        say(&format!("\n{error}\n"));
    });
    check(output, 0, 7, 2);
}

#[test]
fn of_a_parent_that_leaves_its_region() {
    check(run_family("of_a_parent_that_leaves_its_region", std::mem::forget), 1, 7, 2);
}

/// A signal to a group of processes does not kill children in other ones.
#[test]
fn of_a_parent_that_is_killed_with_its_group() {
    let output = run("of_a_parent_that_is_killed_with_its_group", || {
        let (region, parent, ready) = (build(Ones), Pipe::new(), Pipe::new());
        parent.fork(|parent| {
            // SAFETY: a session of its own.
            unsafe { libc::setsid() };
            ready.tell();
            parent.wait();
            look(region.as_ptr());
        });
        ready.wait();
        // SAFETY: the group of this process, which is its own.
        unsafe { libc::kill(0, libc::SIGKILL) };
    });
    check(output, 0, 1, 0);
}

#[test]
fn that_are_many() {
    const CHILDREN: usize = 300;
    let output = run("that_are_many", || {
        let (region, parent) = (build(Ones), Pipe::new());
        for i in 0..CHILDREN {
            parent.fork(|parent| {
                parent.wait();
                look(region.as_ptr().wrapping_add(i * PAGE));
            });
        }
        kill_myself();
    });
    check(output, 0, CHILDREN, 0);
}

/// A child that has the memory of its parent, as after vfork, finds an error at once or when it waits.
#[test]
fn that_have_the_memory_of_their_parent() {
    static AT: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn child(parent: *mut c_void) -> i32 {
        // SAFETY: the pipe of the parent, whose memory this is; the descriptors are this process's own.
        let parent = unsafe { &*parent.cast::<Pipe>() };
        // SAFETY: as above.
        unsafe { libc::close(parent.0[1]) };
        parent.wait();
        look(AT.load(Ordering::Relaxed) as *const u8);
        0
    }

    let output = run("that_have_the_memory_of_their_parent", || {
        let (region, parent) = (build(Ones), Pipe::new());
        AT.store(region.as_ptr() as usize, Ordering::Relaxed);
        let stack = vec![0u128; 4096].leak().as_mut_ptr_range().end;
        // SAFETY: a stack and a pipe that stay; the child does nothing but wait until no process uses what is this
        // thread's.
        let pid =
            unsafe { libc::clone(child, stack.cast(), libc::CLONE_VM, (&raw const parent).cast_mut().cast()) };
        assert!(pid > 0);
        kill_myself();
    });
    check(output, 0, 1, 0);
}

/// Whether the backing of `that_wait_for_a_page` was asked for something.
static ASKED: AtomicBool = AtomicBool::new(false);

#[test]
fn that_wait_for_a_page() {
    /// A backing that takes for ever.
    struct Silent;

    impl Backing for Silent {
        fn read(&self, _: u64, _: &mut [u8]) -> Result<(), i32> {
            ASKED.store(true, Ordering::Release);
            loop {
                thread::park();
            }
        }
    }

    let output = run("that_wait_for_a_page", || {
        let (region, parent) = (build(Silent), Pipe::new());
        parent.fork(|_| look(region.as_ptr()));
        while !ASKED.load(Ordering::Acquire) {
            thread::yield_now();
        }
        kill_myself();
    });
    check(output, 0, 1, 0);
}

/// The parent is killed at any time, while it forks, moves and changes parts, and its children fork.
#[test]
fn of_a_parent_that_is_killed_at_any_time() {
    for round in 0..10 {
        let output = run("of_a_parent_that_is_killed_at_any_time", || {
            let (region, parent) = (build(Ones), Pipe::new());
            let at = region.as_ptr();
            thread::scope(|scope| {
                scope.spawn(|| {
                    for i in 0.. {
                        region.unmap(i % 64 * PAGE..(i % 64 + 2) * PAGE).unwrap();
                        region.map(i % 64 * PAGE..(i % 64 + 2) * PAGE, Rights::Write).unwrap();
                    }
                });
                let random = std::collections::hash_map::RandomState::new();
                let pause = std::hash::BuildHasher::hash_one(&random, 0) % 50_000;
                scope.spawn(move || {
                    thread::sleep(Duration::from_micros(pause));
                    kill_myself();
                });
                loop {
                    parent.fork(|parent| {
                        parent.fork(|_| look(at.wrapping_add(MIB)));
                        parent.wait();
                        look(at.wrapping_add(2 * MIB));
                    });
                }
            });
        });
        let Some(output) = output else { return };
        assert_eq!(count(&output, "zero"), 0, "in round {round}: {output}");
    }
}

/// The processes that this one is the parent of, those that are still to be waited for among them.
fn processes() -> Vec<i32> {
    let ours = |entry: std::fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse::<u32>().ok()?;
        (parent == std::process::id()).then_some(pid)
    };
    std::fs::read_dir("/proc").unwrap().flatten().filter_map(ours).collect()
}

fn of(pid: i32, file: &str) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap()
}

/// The program does not find a child that it has not made, and none stays when the region ends.
#[test]
fn are_all_that_the_program_sees() {
    let output = run("are_all_that_the_program_sees", || {
        // SAFETY: calls that read no memory but a status.
        let wait = || unsafe { (libc::waitpid(-1, null_mut(), 0), *libc::__errno_location()) };
        for _ in 0..3 {
            let region = build(Ones);
            while processes().is_empty() {
                thread::yield_now();
            }
            let [process] = processes()[..] else { panic!("several") };
            // What it may do cannot be more than what the program may that gives up rights.
            while !of(process, "status").contains("Seccomp:\t2") {
                thread::yield_now();
            }
            assert!(of(process, "status").contains("NoNewPrivs:\t1"));
            assert_eq!(wait(), (-1, libc::ECHILD));
            // The C library has all threads do it, and waits for that.
            // SAFETY: it is so already.
            assert_eq!(unsafe { libc::setgid(libc::getgid()) }, 0);
            let child = Pipe::new().fork(|_| look(region.as_ptr()));
            assert_eq!(wait().0, child);
            drop(region);
            assert_eq!(processes(), []);
        }
    });
    check(output, 1, 0, 3);
}

/// To kill the process that cares for children ends the region, and no process reads zero.
#[test]
fn of_whom_nobody_takes_care() {
    let output = run("of_whom_nobody_takes_care", || {
        let (region, parent) = (build(Ones), Pipe::new());
        parent.fork(|parent| {
            parent.wait();
            look(region.as_ptr());
        });
        let pid = processes().into_iter().find(|pid| of(*pid, "comm").starts_with("faultless-"));
        // Nothing is half done while it sleeps.
        while !of(pid.unwrap(), "stat").contains(") S ") {
            thread::yield_now();
        }
        // SAFETY: a process of this one's region.
        unsafe { libc::kill(pid.unwrap(), libc::SIGKILL) };
        while region.populate(0..PAGE) != Err(Error::Closed) {
            thread::yield_now();
        }
        drop(region);
    });
    check(output, 1, 1, 0);
}
