//! Faults of several threads against changes by others, on the kernel: written bytes stay, fresh pages are zero.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use faultless::region::{Advice, Delivery, Error, FileBacking, Region, Rights};
use faultless_page::stats::Counter;
use faultless_testkit::limit::limit;

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;
const ROUNDS: usize = 60;

/// A region of each mode that raises faults.
fn each(length: usize, test: impl Fn(Region)) {
    for delivery in [Delivery::Thread, Delivery::Signal] {
        limit();
        let builder = Region::builder(length).delivery(delivery).huge_pages(true).handlers(2);
        match builder.build() {
            Ok(region) => test(region),
            Err(Error::NoUserfaultfd(error)) => {
                faultless_testkit::skip(format_args!("{delivery:?}, error {error}"))
            }
            Err(error) => panic!("{delivery:?}: {error}"),
        }
    }
}

fn read(region: &Region, at: usize) -> u8 {
    // SAFETY: the tests read what is mapped for their thread.
    unsafe { region.as_ptr().add(at).read_volatile() }
}

fn write(region: &Region, at: usize, byte: u8) {
    // SAFETY: as above.
    unsafe { region.as_ptr().add(at).write_volatile(byte) }
}

/// Touches each page of a part: zero before, a byte of its own after.
fn fill(region: &Region, from: usize, to: usize, byte: u8) {
    for at in (from..to).step_by(PAGE) {
        assert_eq!(read(region, at), 0, "fresh memory at {at:#x}");
        write(region, at, byte);
    }
}

fn check(region: &Region, from: usize, to: usize, byte: u8) {
    for at in (from..to).step_by(PAGE) {
        assert_eq!(read(region, at), byte, "at {at:#x}");
    }
}

/// Does `change` again and again while two threads fault in areas beside it; `change` has 8 MiB from 16 MiB on, in the
/// same area at first.
fn beside(change: impl Fn(&Region, usize) + Sync) {
    each(24 * MIB, |region| {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let changing = scope.spawn(|| {
                (0..).take_while(|_| !done.load(Ordering::Relaxed)).for_each(|round| change(&region, round));
            });
            let faulting: Vec<_> = (0..2)
                .map(|id| {
                    let region = &region;
                    scope.spawn(move || {
                        let part = (id * 8 * MIB, (id + 1) * 8 * MIB);
                        for round in 0..ROUNDS / 4 {
                            let byte = (1 + id * 100 + round) as u8;
                            fill(region, part.0, part.1, byte);
                            check(region, part.0, part.1, byte);
                            region.advise(part.0..part.1, Advice::DontNeed).unwrap();
                        }
                    })
                })
                .collect();
            faulting.into_iter().for_each(|thread| thread.join().unwrap());
            done.store(true, Ordering::Relaxed);
            changing.join().unwrap();
        });
    });
}

#[test]
fn faults_beside_unmap_and_map() {
    beside(|region, round| {
        let (at, to) = (16 * MIB + round % 3 * PAGE, 23 * MIB);
        region.unmap(at..to).unwrap();
        region.map(at..to, Rights::Write).unwrap();
        fill(region, at, at + 20 * PAGE, 9);
    });
}

#[test]
fn faults_beside_protect() {
    beside(|region, _| {
        region.protect(16 * MIB..20 * MIB, Rights::Read).unwrap();
        assert_eq!(read(region, 17 * MIB), 0);
        region.protect(16 * MIB..20 * MIB, Rights::None).unwrap();
        region.protect(16 * MIB..20 * MIB, Rights::Write).unwrap();
    });
}

#[test]
fn faults_beside_remap() {
    beside(|region, round| {
        let byte = round as u8 | 1;
        region.unmap(20 * MIB..24 * MIB).unwrap();
        region.advise(16 * MIB..20 * MIB, Advice::DontNeed).unwrap();
        fill(region, 18 * MIB, 18 * MIB + 30 * PAGE, byte);
        region.remap(17 * MIB..20 * MIB, 21 * MIB).unwrap();
        check(region, 22 * MIB, 22 * MIB + 30 * PAGE, byte);
        region.map(17 * MIB..20 * MIB, Rights::Write).unwrap();
        region.map(20 * MIB..21 * MIB, Rights::Write).unwrap();
        assert_eq!(read(region, 18 * MIB), 0);
    });
}

/// The same pages: changes of what faults are about. Bytes may be lost to the change, never replaced by others.
#[test]
fn faults_against_discards_of_the_same_pages() {
    each(8 * MIB, |region| {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    region.advise(0..8 * MIB, Advice::DontNeed).unwrap();
                }
            });
            let faulting: Vec<_> = (1..=2)
                .map(|byte| {
                    let region = &region;
                    scope.spawn(move || {
                        for at in (0..ROUNDS).flat_map(|_| (0..8 * MIB).step_by(5 * PAGE)) {
                            write(region, at + byte, byte as u8);
                            let found = read(region, at + byte);
                            assert!(found == 0 || found == byte as u8, "{found} at {at:#x}");
                        }
                    })
                })
                .collect();
            faulting.into_iter().for_each(|thread| thread.join().unwrap());
            done.store(true, Ordering::Relaxed);
        });
    });
}

/// Two threads that fault on the same page, again and again: the bytes of both are there.
#[test]
fn two_faults_on_one_page() {
    let pages = || (0..4 * MIB).step_by(3 * PAGE);
    each(4 * MIB, |region| {
        let turn = AtomicUsize::new(0);
        thread::scope(|scope| {
            for byte in 0..2 {
                let (region, turn, pages) = (&region, &turn, pages());
                scope.spawn(move || {
                    for (i, at) in pages.enumerate() {
                        turn.fetch_add(1, Ordering::SeqCst);
                        for look in 0.. {
                            if turn.load(Ordering::SeqCst) >= 2 * (i + 1) {
                                break;
                            }
                            // There may be one processor for both.
                            if look < 1000 { std::hint::spin_loop() } else { thread::yield_now() }
                        }
                        write(region, at + byte, 1);
                    }
                });
            }
        });
        for at in pages() {
            assert_eq!((read(&region, at), read(&region, at + 1)), (1, 1), "at {at:#x}");
        }
    });
}

/// Children see what was there, and zeroes elsewhere; the parent goes on, also with huge pages made beforehand.
#[test]
fn faults_beside_fork() {
    each(16 * MIB, |region| {
        fill(&region, 0, MIB, 5);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..ROUNDS / 3 {
                    fill(&region, 4 * MIB, 16 * MIB, round as u8 + 1);
                    region.advise(4 * MIB..16 * MIB, Advice::DontNeed).unwrap();
                }
                done.store(true, Ordering::Relaxed);
            });
            while !done.load(Ordering::Relaxed) {
                // SAFETY: the child only reads and writes memory, and ends.
                unsafe {
                    let child = libc::fork();
                    assert!(child >= 0);
                    if child == 0 {
                        let fine = (0..MIB).step_by(PAGE).all(|at| read(&region, at) == 5)
                            && (2 * MIB..3 * MIB).step_by(PAGE).all(|at| read(&region, at) == 0)
                            && region.unmap(0..PAGE) == Err(Error::Forked);
                        libc::_exit(!fine as i32);
                    }
                    let mut status = 0;
                    assert_eq!(libc::waitpid(child, &mut status, 0), child);
                    assert_eq!(status, 0, "the child found something else");
                }
            }
        });
        check(&region, 0, MIB, 5);
    });
}

/// A file that gets shorter and longer while it is read. A page is one that the file had, or zero behind its end.
/// Pages that were dropped after that do not come back.
#[test]
fn faults_beside_truncate() {
    limit();
    let file = tempfile::tempfile().unwrap();
    let full = vec![7; 8 * MIB];
    for delivery in [Delivery::Thread, Delivery::Signal] {
        file.write_all_at(&full, 0).unwrap();
        let backing = FileBacking::new(file.try_clone().unwrap());
        let region = match Region::builder(8 * MIB).delivery(delivery).backing(backing).build() {
            Ok(region) => region,
            Err(Error::NoUserfaultfd(error)) => {
                return faultless_testkit::skip(format_args!("{delivery:?}, error {error}"));
            }
            Err(error) => panic!("{delivery:?}: {error}"),
        };
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for at in (0..8 * MIB).step_by(PAGE).cycle().take_while(|_| !done.load(Ordering::Relaxed)) {
                        let found = read(&region, at);
                        assert!(found == 0 || found == 7, "{found} at {at:#x}");
                        assert!(at >= MIB || found == 7, "the file always had this");
                    }
                });
            }
            for round in 0..ROUNDS {
                file.set_len((MIB + round * PAGE) as u64).unwrap();
                region.advise(MIB..8 * MIB, Advice::DontNeed).unwrap();
                check(&region, MIB + round * PAGE, 8 * MIB, 0);
                file.write_all_at(&full[MIB..], MIB as u64).unwrap();
                region.advise(0..8 * MIB, Advice::DontNeed).unwrap();
                check(&region, 0, 8 * MIB, 7);
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}

/// The engine's counters agree with each other.
#[test]
fn every_fault_is_counted() {
    each(8 * MIB, |region| {
        // In this order: other tests fault meanwhile.
        let counted = || [Counter::SpeculativePgfault, Counter::RegionPgfault].map(Region::counted);
        let before = counted();
        fill(&region, 0, 8 * MIB, 1);
        let after = counted();
        assert!(after[0] > before[0] && after[1] > before[1]);
        assert!(after[0] <= after[1]);
    });
}
