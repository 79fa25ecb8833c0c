//! No thread waits for ever: cases in which a thread waits in a region for another one that cannot do its work.

mod told;

use std::ptr::null_mut;
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use faultless::region::{Backing, Delivery, Error, Region};
use faultless_testkit::limit::limit;
use told::{Allocating, BYTES, MIB, PAGE, ROUNDS, beside, build, each, forked, mremap, munmap, read, write};

/// A child that lives until it is dropped, and has all descriptors that the program has.
struct Lives(i32);

impl Lives {
    fn new() -> Self {
        // SAFETY: the child makes system calls alone, and ends with the thread that has it.
        unsafe {
            let pid = libc::fork();
            assert!(pid >= 0);
            if pid == 0 {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                loop {
                    libc::pause();
                }
            }
            Self(pid)
        }
    }
}

impl Drop for Lives {
    fn drop(&mut self) {
        // SAFETY: a child that was not waited for yet.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, &mut 0, 0);
        }
    }
}

/// A backing that has nothing from 4 MiB on, and says so in the worst way.
struct Broken;

impl Backing for Broken {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), i32> {
        assert!(offset < 4 * MIB as u64, "the backing is broken");
        Allocating.read(offset, buffer)
    }
}

/// The handler of half of the region ends. No other thread serves its children, nor moved memory.
#[test]
fn who_misses_something_that_no_handler_serves_does_not_wait() {
    limit();
    for is_moved in [false, true] {
        let Some(region) = build(Region::builder(BYTES).backing(Broken)) else { return };
        let moved = mremap(region.as_ptr().wrapping_add(5 * MIB), MIB);
        let broken = if is_moved { moved } else { region.as_ptr().wrapping_add(6 * MIB) };
        assert_eq!(libc::WTERMSIG(forked(|| read(broken) == 0)), libc::SIGBUS);
        assert_eq!(libc::WTERMSIG(forked(|| read(moved.wrapping_add(MIB / 2)) == 0)), libc::SIGBUS);
        assert_eq!(libc::WTERMSIG(forked(|| read(region.as_ptr()) == 0)), libc::SIGSEGV);
        drop(region);
        munmap(moved, MIB);
    }
}

/// Of a part with holes in it, each page that is there is passed over once.
#[test]
fn the_end_of_a_region_with_many_holes_comes() {
    limit();
    const LARGE: usize = 256 * MIB;
    let Some(region) = build(Region::builder(LARGE).backing(Allocating).windows(PAGE, PAGE)) else { return };
    for at in (0..LARGE).step_by(2 * PAGE) {
        write(region.as_ptr().wrapping_add(at), 1);
    }
    let _lives = Lives::new();
    drop(region);
}

/// What a forked child finds at an address: a zero, or the error of a page that a backing had.
fn is_missing(at: *const u8, fresh: u8) {
    let status = forked(|| read(at) == 0);
    assert!(if fresh == 0 { status == 0 } else { libc::WTERMSIG(status) == libc::SIGBUS }, "{status:#x}");
}

/// A child has the region's descriptors, so that they stay open when it ends.
#[test]
fn what_was_moved_away_in_many_parts_is_waited_for_by_nobody() {
    each(|region, fresh| {
        let mut parts = Vec::new();
        beside(&region, fresh, || {
            let part = |i: usize| mremap(region.as_ptr().wrapping_add(i * 2 * PAGE), PAGE);
            parts.extend((0..17 * ROUNDS).map(part));
        });
        let _lives = Lives::new();
        drop(region);
        parts.iter().step_by(10).for_each(|part| is_missing(*part, fresh(0)));
        parts.into_iter().for_each(|part| munmap(part, PAGE));
    });
}

/// `MREMAP_DONTUNMAP` leaves something where memory was.
#[test]
fn what_was_left_behind_is_waited_for_by_nobody() {
    each(|region, fresh| {
        let at = region.as_ptr().wrapping_add(MIB);
        write(at, 7);
        // SAFETY: memory of the region that is moved to where there is room.
        let moved = unsafe {
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP;
            libc::mremap(at.cast(), MIB, MIB, flags, null_mut::<libc::c_void>()).cast::<u8>()
        };
        assert_ne!(moved.cast(), libc::MAP_FAILED);
        assert_eq!((read(moved), read(moved.wrapping_add(PAGE))), (7, fresh(MIB + PAGE)));
        assert_eq!(region.populate(MIB..MIB + PAGE), Err(Error::Lost));
        assert_eq!(read(at.wrapping_add(PAGE)), fresh(MIB + PAGE));
        let _lives = Lives::new();
        drop(region);
        is_missing(at.wrapping_add(MIB / 2), fresh(0));
        munmap(at, MIB);
        munmap(moved, MIB);
    });
}

/// A backing that lends its lock to others.
struct Guarded(&'static Mutex<()>);

impl Backing for Guarded {
    fn read(&self, _offset: u64, buffer: &mut [u8]) -> Result<(), i32> {
        let _guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        buffer.fill(3);
        Ok(())
    }
}

/// Faults of one region have nothing to do with the end of another one.
#[test]
fn a_region_by_signal_ends_while_another_one_s_backing_waits() {
    limit();
    static LOCK: Mutex<()> = Mutex::new(());
    let one = || Region::builder(BYTES).delivery(Delivery::Signal);
    let (ending, other) = match (one().build(), one().backing(Guarded(&LOCK)).build()) {
        (Ok(ending), Ok(other)) => (ending, other),
        (Err(Error::NoUserfaultfd(error)), _) => return faultless_testkit::skip(format_args!("error {error}")),
        (ending, other) => panic!("{:?} {:?}", ending.err(), other.err()),
    };
    assert_eq!(read(ending.as_ptr()), 0);
    let guard = LOCK.lock().unwrap();
    thread::scope(|scope| {
        let (begins, begun) = channel();
        let at = other.as_ptr() as usize;
        let reading = scope.spawn(move || {
            begins.send(()).unwrap();
            read(at as *const u8)
        });
        begun.recv().unwrap();
        // So that it waits for the lock; if it does not yet, nothing is shown.
        thread::sleep(Duration::from_millis(50));
        drop(ending);
        drop(guard);
        assert_eq!(reading.join().unwrap(), 3);
    });
}

/// A segment in the place of memory is nothing that there are messages about.
#[test]
fn a_region_ends_in_which_something_is_that_it_was_not_told_of() {
    limit();
    let Some(region) = build(Region::builder(BYTES).backing(Allocating)) else { return };
    // SAFETY: a new segment, in the place of memory without a reference to it.
    unsafe {
        let id = libc::shmget(libc::IPC_PRIVATE, PAGE, libc::IPC_CREAT | 0o600);
        let at = libc::shmat(id, region.as_ptr().wrapping_add(MIB).cast(), libc::SHM_REMAP);
        libc::shmctl(id, libc::IPC_RMID, null_mut());
        assert_eq!(at.cast(), region.as_ptr().wrapping_add(MIB));
        write(at.cast(), 5);
    }
    drop(region);
}

struct Unreadable;

impl Backing for Unreadable {
    fn read(&self, _offset: u64, _buffer: &mut [u8]) -> Result<(), i32> {
        Err(libc::EIO)
    }
}

/// What a region has to say there is no room for.
#[test]
fn a_message_that_nobody_reads_is_waited_for_by_nobody() {
    for delivery in [Delivery::Thread, Delivery::Signal] {
        let status = forked(|| {
            // SAFETY: the child's own stderr, a pipe that is full.
            unsafe {
                libc::alarm(60);
                let mut ends = [0; 2];
                assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK), 0);
                while libc::write(ends[1], [0u8; PAGE].as_ptr().cast(), PAGE) > 0 {}
                libc::fcntl(ends[1], libc::F_SETFL, 0);
                libc::dup2(ends[1], libc::STDERR_FILENO);
            }
            let built = Region::builder(BYTES).delivery(delivery).backing(Unreadable).build();
            built.is_err() || read(built.unwrap().as_ptr()) == 0
        });
        assert!(status == 0 || libc::WTERMSIG(status) == libc::SIGBUS, "{delivery:?}: {status:#x}");
    }
}

/// A signal handler of the program's that touches the region would wait for itself in one of the threads that serve it.
#[test]
fn no_signal_is_handled_in_a_thread_that_serves() {
    let is_masked = |thread: std::fs::DirEntry| {
        // One that has ended serves no fault.
        let Ok(status) = std::fs::read_to_string(thread.path().join("status")) else { return true };
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap().trim().to_owned();
        u64::from_str_radix(&blocked, 16).unwrap() >> (libc::SIGUSR1 - 1) & 1 == 1
    };
    let status = forked(|| {
        let main = std::process::id().to_string();
        (0..ROUNDS).all(|_| {
            let region = Region::builder(BYTES).delivery(Delivery::Thread).handlers(4).build();
            let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
            let masked = threads.filter(|thread| thread.file_name() != *main).all(is_masked);
            drop(region);
            masked
        })
    });
    assert_eq!(status, 0);
}
