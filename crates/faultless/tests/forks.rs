//! Forks of a program that has a region with events: its children miss nothing, and no process waits for ever.

mod told;

use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use faultless::region::{Error, Region, Rights};
use faultless_testkit::limit::limit;
use told::{
    Allocating, BYTES, Ends, MIB, PAGE, ROUNDS, backed, beside, build, each, forked, mremap, munmap, read, write,
};

/// Children of several generations find what was written, and elsewhere what was there at first; what their parent
/// does later is not theirs.
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

/// A child that is there for longer than the region: what it misses of a backing is an error instead of zero.
#[test]
fn what_a_child_misses_after_the_end_is_no_zero() {
    each(|region, fresh| {
        let (mut ends, mut ended) = ([0; 2], [0u8]);
        let at = region.as_ptr();
        write(at, 5);
        // SAFETY: a pipe by which the parent says that the region is gone; the child makes system calls and reads
        // memory.
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

/// A forking thread holds the allocator's locks; handlers, backings and other threads wait for those.
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

/// A forking thread tells each part of the region of it, one after the other, also while the region ends.
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

/// Does nothing when it runs as one of the tests: the limit is the process's.
#[test]
fn more_children_than_descriptors() {
    if std::env::var(SCENARIO).is_err() {
        return;
    }
    const CHILDREN: usize = 40;
    let limit = libc::rlimit { rlim_cur: 32, rlim_max: 32 };
    // SAFETY: a limit. The process that reads messages has it if that is so before.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    let Some(region) = build(Region::builder(BYTES).backing(Allocating)) else { return };
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
