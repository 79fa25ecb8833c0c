//! Events: what the program does to a region's memory by calls of its own, with a region that is told of it.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use faultless::region::{Advice, Backing, Builder, Delivery, Error, Region, Rights};
use faultless_testkit::limit::limit;

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;
const BYTES: usize = 8 * MIB;
const ROUNDS: usize = 40;

/// What the backing has at an offset.
fn backed(at: usize) -> u8 {
    (at / PAGE % 250) as u8 + 1
}

/// A backing that allocates, as any may.
struct Allocating;

impl Backing for Allocating {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), i32> {
        for (i, page) in buffer.chunks_mut(PAGE).enumerate() {
            page.copy_from_slice(&vec![backed(offset as usize + i * PAGE); page.len()]);
        }
        Ok(())
    }
}

fn build(builder: Builder) -> Option<Region> {
    match builder.events(true).delivery(Delivery::Thread).handlers(2).build() {
        Ok(region) => Some(region),
        Err(error @ (Error::NoUserfaultfd(_) | Error::NoEvents(_))) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A region of zeroes and one with a backing, with what a page of it has at first.
fn each(test: impl Fn(Region, &(dyn Fn(usize) -> u8 + Sync))) {
    limit();
    if let Some(region) = build(Region::builder(BYTES)) {
        test(region, &|_| 0);
    }
    if let Some(region) = build(Region::builder(BYTES).backing(Allocating)) {
        test(region, &backed);
    }
}

fn read(at: *const u8) -> u8 {
    // SAFETY: the tests read what is mapped.
    unsafe { at.read_volatile() }
}

fn write(at: *mut u8, byte: u8) {
    // SAFETY: the tests write to what is mapped, and nobody else does.
    unsafe { at.write_volatile(byte) }
}

fn munmap(at: *mut u8, bytes: usize) {
    // SAFETY: memory that nobody uses any more, which is what is tested.
    assert_eq!(unsafe { libc::munmap(at.cast(), bytes) }, 0);
}

/// Moves memory to where there is room; where it was is nothing then.
fn mremap(at: *mut u8, bytes: usize) -> *mut u8 {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: moved to addresses that were reserved for it.
    unsafe {
        let to = libc::mmap(null_mut(), bytes, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
        let moved = libc::mremap(at.cast(), bytes, bytes, flags, to);
        assert_ne!(moved, libc::MAP_FAILED);
        moved.cast()
    }
}

/// How a child ends that does this: its status.
fn forked(child: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child only reads and writes memory, makes system calls, and ends.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0);
        if pid == 0 {
            libc::_exit(!child() as i32);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
        status
    }
}

/// Tells other threads to end, also when its own fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Faults in the last quarter of the region, by two threads, while `change` works on the rest.
fn beside(region: &Region, fresh: &(dyn Fn(usize) -> u8 + Sync), change: impl FnOnce()) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let faulting: Vec<_> = (0..2)
            .map(|id| {
                let done = &done;
                scope.spawn(move || {
                    let part = 6 * MIB + id * MIB..7 * MIB + id * MIB;
                    while !done.load(Ordering::Relaxed) {
                        for at in part.clone().step_by(PAGE) {
                            let page = region.as_ptr().wrapping_add(at);
                            assert_eq!(read(page), fresh(at), "at {at:#x}");
                            write(page, 251);
                        }
                        for at in part.clone().step_by(PAGE) {
                            assert_eq!(read(region.as_ptr().wrapping_add(at)), 251, "at {at:#x}");
                        }
                        region.advise(part.clone(), Advice::DontNeed).unwrap();
                    }
                })
            })
            .collect();
        let ends = Ends(&done);
        change();
        drop(ends);
        faulting.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn what_is_unmapped_is_known_at_once() {
    each(|region, fresh| {
        beside(&region, fresh, || {
            for round in 0..ROUNDS {
                let part = round * 17 * PAGE..(round * 17 + 5) * PAGE;
                let at = region.as_ptr().wrapping_add(part.start);
                write(at, 1);
                munmap(at, part.len());
                assert_eq!(region.protect(part.clone(), Rights::Read), Err(Error::Lost));
                assert_eq!(region.advise(part.end - PAGE..part.end + PAGE, Advice::DontNeed), Err(Error::Lost));
                assert_eq!(region.remap(part.end..part.end + PAGE, part.start), Err(Error::Lost));
                region.advise(part.end..part.end + PAGE, Advice::DontNeed).unwrap();
                assert_eq!(read(at.wrapping_add(part.len())), fresh(part.end));
            }
        });
        // SAFETY: no slice is to be had.
        assert_eq!(unsafe { region.as_slice() }.err(), Some(Error::Lost));
        // What somebody else has there now stays when the region ends.
        // SAFETY: nothing is mapped there.
        let other = unsafe {
            let (prot, flags) =
                (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE);
            libc::mmap(region.as_ptr().cast(), PAGE, prot, flags, -1, 0).cast::<u8>()
        };
        assert_eq!(other, region.as_ptr());
        drop(region);
        assert_eq!(read(other), 0);
        munmap(other, PAGE);
    });
}

#[test]
fn what_is_dropped_is_not_counted_and_comes_again() {
    each(|region, fresh| {
        beside(&region, fresh, || {
            for round in 0..ROUNDS {
                let at = region.as_ptr().wrapping_add(MIB);
                (0..MIB).step_by(PAGE).for_each(|page| write(at.wrapping_add(page), 7));
                // SAFETY: nobody has a reference to it.
                assert_eq!(unsafe { libc::madvise(at.cast(), MIB, libc::MADV_DONTNEED) }, 0);
                let page = round % 256 * PAGE;
                assert_eq!(read(at.wrapping_add(page)), fresh(MIB + page));
            }
        });
        region.advise(0..BYTES, Advice::DontNeed).unwrap();
        assert_eq!(region.present(), 0);
        (0..MIB).step_by(PAGE).for_each(|page| write(region.as_ptr().wrapping_add(page), 7));
        let before = region.present();
        assert!(before >= MIB);
        // SAFETY: as above.
        assert_eq!(unsafe { libc::madvise(region.as_ptr().cast(), MIB / 2, libc::MADV_DONTNEED) }, 0);
        assert_eq!(region.present(), before - MIB / 2);
    });
}

#[test]
fn what_is_moved_away_is_served_where_it_is() {
    each(|region, fresh| {
        beside(&region, fresh, || {
            let mut places = Vec::new();
            for round in 0..ROUNDS {
                let from = round * 32 * PAGE;
                write(region.as_ptr().wrapping_add(from + 3 * PAGE), 252);
                let mut at = mremap(region.as_ptr().wrapping_add(from), 16 * PAGE);
                assert_eq!(region.populate(from..from + PAGE), Err(Error::Lost));
                if round % 3 == 0 {
                    // A part of it, once more.
                    at = mremap(at.wrapping_add(2 * PAGE), 14 * PAGE).wrapping_sub(2 * PAGE);
                }
                places.push((from, at));
            }
            for (from, at) in places {
                for page in 2..16 {
                    let expected = if page == 3 { 252 } else { fresh(from + page * PAGE) };
                    assert_eq!(read(at.wrapping_add(page * PAGE)), expected, "page {page} of {from:#x}");
                    write(at.wrapping_add(page * PAGE), 253);
                }
                munmap(at.wrapping_add(2 * PAGE), 14 * PAGE);
            }
        });
        // What is left behind when the region ends is never zero that is none.
        let left = mremap(region.as_ptr().wrapping_add(5 * MIB), MIB);
        write(left, 9);
        drop(region);
        assert_eq!(read(left), 9);
        let status = forked(|| read(left.wrapping_add(MIB - PAGE)) == 0);
        assert!(if fresh(0) == 0 { status == 0 } else { libc::WTERMSIG(status) == libc::SIGBUS }, "{status}");
        munmap(left, MIB);
    });
}

/// The region's own changes make the same messages.
#[test]
fn own_changes_lose_nothing() {
    each(|region, fresh| {
        beside(&region, fresh, || {
            for round in 0..ROUNDS {
                let (one, other) = (0..MIB, 2 * MIB..3 * MIB);
                let byte = round as u8 | 1;
                write(region.as_ptr().wrapping_add(one.start + round * PAGE), byte);
                region.unmap(other.clone()).unwrap();
                region.remap(one.clone(), other.start).unwrap();
                assert_eq!(read(region.as_ptr().wrapping_add(other.start + round * PAGE)), byte);
                assert_eq!(read(region.as_ptr().wrapping_add(other.start + 255 * PAGE)), fresh(255 * PAGE));
                region.map(one, Rights::Write).unwrap();
            }
        });
        assert_eq!(region.advise(0..BYTES, Advice::DontNeed), Ok(()));
    });
}

/// Children of several generations find what was written, and elsewhere what was there at first; what their parent does later is not
/// theirs.
#[test]
fn children_are_served() {
    each(|region, fresh| {
        let fresh = |at: usize| fresh(at);
        let at = |at: usize| region.as_ptr().wrapping_add(at);
        region.unmap(MIB..2 * MIB).unwrap();
        region.remap(0..MIB, MIB).unwrap();
        region.map(0..MIB, Rights::Write).unwrap();
        (2 * MIB..3 * MIB).step_by(PAGE).for_each(|page| write(at(page), 254));
        let expected = |page: usize| match page / MIB {
            1 => fresh(page - MIB),
            2 => 254,
            _ => fresh(page),
        };
        let whole = || (0..6 * MIB).step_by(PAGE).all(|page| read(at(page)) == expected(page));
        beside(&region, &|at| fresh(at), || {
            for round in 0..ROUNDS / 4 {
                let status = forked(|| {
                    let grandchild = || {
                        let moved = mremap(at(4 * MIB), 5 * PAGE);
                        (0..5 * PAGE)
                            .step_by(PAGE)
                            .all(|page| read(moved.wrapping_add(page)) == fresh(4 * MIB + page))
                            && forked(|| read(moved.wrapping_add(PAGE)) == fresh(4 * MIB + PAGE)) == 0
                    };
                    write(at(5 * MIB), 1);
                    munmap(at(7 * MIB), PAGE);
                    let mine = read(at(5 * MIB)) == 1 && region.unmap(0..PAGE) == Err(Error::Forked);
                    write(at(5 * MIB), expected(5 * MIB));
                    mine && forked(grandchild) == 0 && whole() && forked(whole) == 0
                });
                assert_eq!(status, 0, "in round {round}");
            }
        });
    });
}

/// A child that is there for longer than the region: what it misses of a backing is an error, and not zero.
#[test]
fn what_a_child_misses_after_the_end_is_no_zero() {
    each(|region, fresh| {
        let (mut ends, mut ended) = ([0; 2], [0u8]);
        let at = region.as_ptr();
        write(at, 5);
        // SAFETY: a pipe by which the parent says that the region is gone; the child makes system calls and reads memory.
        unsafe {
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            let pid = libc::fork();
            if pid == 0 {
                libc::read(ends[0], ended.as_mut_ptr().cast(), 1);
                let there = read(at) == 5;
                libc::_exit((read(at.wrapping_add(MIB)) != 0 || !there) as i32);
            }
            region.unmap(0..MIB).unwrap();
            drop(region);
            assert_eq!(libc::write(ends[1], ended.as_ptr().cast(), 1), 1);
            let mut status = 0;
            assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
            assert!(if fresh(0) == 0 { status == 0 } else { libc::WTERMSIG(status) == libc::SIGBUS }, "{status}");
            ends.iter().for_each(|end| _ = libc::close(*end));
        }
    });
}

/// Who forks holds the allocator's locks; handlers, backings and other threads wait for those.
#[test]
fn forks_beside_allocation_and_faults_do_not_hang() {
    each(|region, fresh| {
        let done = AtomicBool::new(false);
        beside(&region, fresh, || {
            thread::scope(|scope| {
                let allocating: Vec<_> = (0..2)
                    .map(|id| {
                        let done = &done;
                        scope.spawn(move || {
                            let mut kept = Vec::new();
                            for n in (0..).take_while(|_| !done.load(Ordering::Relaxed)) {
                                kept.push(vec![id as u8; 1 + n * 7919 % (300 << 10)]);
                                if kept.len() > 20 {
                                    kept.drain(..15);
                                }
                            }
                        })
                    })
                    .collect();
                let ends = Ends(&done);
                for _ in 0..4 * ROUNDS {
                    let child = || read(region.as_ptr().wrapping_add(3 * MIB)) == fresh(3 * MIB);
                    assert_eq!(forked(child), 0);
                }
                drop(ends);
                allocating.into_iter().for_each(|thread| thread.join().unwrap());
            });
        });
    });
}

/// Who forks tells each part of the region of it, one after the other, also while the region ends.
#[test]
fn forks_beside_the_end_do_not_hang() {
    limit();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                assert_eq!(forked(|| true), 0);
            }
        });
        let _ends = Ends(&done);
        for _ in 0..4 * ROUNDS {
            let Some(region) = build(Region::builder(BYTES).backing(Allocating)) else { return };
            // The higher part first, so that it comes to lie where forks are told of earlier or later.
            let moved: Vec<_> = [7, 5, 3, 1].map(|at| mremap(region.as_ptr().wrapping_add(at * MIB), MIB)).into();
            drop(region);
            moved.into_iter().for_each(|at| munmap(at, MIB));
        }
    });
}

const SCENARIO: &str = "FAULTLESS_TEST_SCENARIO";

/// Runs a test as a process of its own; what it wrote.
fn run(name: &str) -> Output {
    limit();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]).env(SCENARIO, name).output().unwrap()
}

/// Does nothing when it runs as one of the tests: it ends its process.
#[test]
fn a_parent_that_is_killed() {
    if std::env::var(SCENARIO).is_err() {
        return;
    }
    let Some(region) = build(Region::builder(BYTES).backing(Allocating)) else { return };
    let (mut ends, mut ended) = ([0; 2], [0u8]);
    // SAFETY: a pipe that ends with the parent; the children make system calls and read memory.
    unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        for _ in 0..2 {
            if libc::fork() == 0 {
                libc::close(ends[1]);
                libc::read(ends[0], ended.as_mut_ptr().cast(), 1);
                let found = if read(region.as_ptr().add(MIB)) == 0 { "zero\n" } else { "other\n" };
                libc::write(1, found.as_ptr().cast(), found.len());
                libc::_exit(0);
            }
        }
        libc::kill(libc::getpid(), libc::SIGKILL);
    }
}

/// Each child goes on, as docs/regions.md says, and does not wait for the other one to end.
#[test]
fn children_of_a_parent_that_is_killed_do_not_wait() {
    let out = run("a_parent_that_is_killed");
    if out.status.signal() == Some(libc::SIGKILL) {
        assert_eq!(String::from_utf8_lossy(&out.stdout).matches("zero\n").count(), 2);
    } else {
        assert!(out.status.success() && String::from_utf8_lossy(&out.stdout).contains("skipped"));
    }
}

/// Does nothing when it runs as one of the tests: the limit is the process's.
#[test]
fn more_children_than_descriptors() {
    if std::env::var(SCENARIO).is_err() {
        return;
    }
    let Some(region) = build(Region::builder(BYTES).backing(Allocating)) else { return };
    const CHILDREN: usize = 40;
    let limit = libc::rlimit { rlim_cur: 32, rlim_max: 32 };
    // SAFETY: a limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    // How many of them were served. SAFETY: a pipe whose end they wait for; they make system calls and read memory.
    let served = || unsafe {
        let (mut ends, mut ended) = ([0; 2], [0u8]);
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        let child = |_| match libc::fork() {
            0 => {
                libc::close(ends[1]);
                libc::read(ends[0], ended.as_mut_ptr().cast(), 1);
                libc::_exit((read(region.as_ptr().add(MIB)) != backed(MIB)) as i32);
            }
            pid => pid,
        };
        let children: Vec<_> = (0..CHILDREN).map(child).collect();
        ends.iter().for_each(|end| _ = libc::close(*end));
        let mut served = 0;
        for pid in children {
            let mut status = 0;
            assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
            assert!(status == 0 || libc::WTERMSIG(status) == libc::SIGBUS, "{status}");
            served += (status == 0) as usize;
        }
        assert!(served < CHILDREN);
        served
    };
    assert!(served() > 0);
    // The descriptors of those are closed when a thread has had a processor.
    while served() == 0 {}
}

#[test]
fn children_of_whom_there_are_too_many_miss_what_they_miss() {
    let out = run("more_children_than_descriptors");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

/// The other modes have none, and neither has who may not.
#[test]
fn events_that_cannot_be_had_are_refused() {
    for delivery in [Delivery::Direct, Delivery::Signal] {
        let error = Region::builder(MIB).events(true).delivery(delivery).build().err();
        assert_eq!(error, Some(Error::NoEvents(libc::EOPNOTSUPP)));
    }
    let unprivileged = || {
        const NOBODY: usize = 65534;
        // SAFETY: by the system call itself, of this thread alone.
        let done = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
        (done == 0).then(|| Region::builder(MIB).events(true).build().err())
    };
    match thread::spawn(unprivileged).join().unwrap() {
        None => println!("skipped: this user cannot become another one"),
        Some(Some(Error::NoUserfaultfd(error))) => println!("skipped: no userfaultfd, error {error}"),
        Some(error) => {
            assert_eq!(error, Some(Error::NoEvents(libc::EPERM)));
            assert!(error.unwrap().to_string().contains("CAP_SYS_PTRACE"));
        }
    }
}
