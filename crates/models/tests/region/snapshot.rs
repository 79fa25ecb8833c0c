//! Snapshots beside threads that write, fault and change the region.

use std::sync::atomic::{AtomicUsize, Ordering};

use faultless_base::sys::mmu::Rights;
use faultless_base::{PAGE, SLOT, Span};
use faultless_mm::region::change::Advice;
use faultless_page::stats::Counter;
use shuttle::thread;

use super::{ATTRIBUTES, BASE, Memory, access, assert_counted, chance, check, memory, page, region};

/// Pages of a snapshot, from the first one on.
fn read(region: &Memory, id: usize, pages: usize) -> Vec<u8> {
    let mut bytes = vec![0xEE; pages * PAGE];
    assert!(region.read_snapshot(id, BASE, &mut bytes).is_ok());
    bytes.chunks(PAGE).map(|page| page[0]).collect()
}

fn all() -> Span {
    Span::new(BASE, SLOT)
}

/// Each thread counts in two pages, first in the one, then in the other: of one moment, the second is never ahead, and
/// never behind by more than one.
#[test]
fn a_snapshot_is_of_one_moment_and_stays() {
    check(|| {
        let region = region(100, memory());
        region.map(region.span(), ATTRIBUTES, 0).unwrap();
        let write = |id: usize| {
            let region = region.clone();
            // Pages that come one after the other, and in one window.
            let (first, second) = [(id, 20 + id), (20 + id, id)][id];
            thread::spawn(move || {
                for round in 1..=3 {
                    assert_eq!(access(&region, first, Some(round)), Some(round - 1));
                    assert_eq!(access(&region, second, Some(round)), Some(round - 1));
                }
            })
        };
        let threads = [write(0), write(1)];
        let mut taken = Vec::new();
        for _ in 0..2 {
            let id = region.snapshot(all()).unwrap();
            let words = read(&region, id, 22);
            for (first, second) in [(0, 20), (21, 1)] {
                let (first, second) = (words[first], words[second]);
                assert!(first == second || first == second + 1, "{first} and then {second}");
            }
            taken.push((id, words));
        }
        for (id, words) in &taken {
            assert_eq!(read(&region, *id, 22), *words, "it has changed");
        }
        let (id, words) = taken.swap_remove(chance(2));
        region.drop_snapshot(id);
        let (kept, kept_words) = &taken[0];
        assert_eq!(read(&region, *kept, 22), *kept_words, "{words:?} was dropped");
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(read(&region, *kept, 22), *kept_words);
        assert!([0, 1, 20, 21].iter().all(|at| access(&region, *at, None) == Some(3)));
        region.drop_snapshot(*kept);
        assert_eq!(access(&region, 0, Some(9)), Some(3));
    });
    for counter in [Counter::SnapshotFault, Counter::SnapshotCopied, Counter::SnapshotPassed] {
        assert_counted(counter);
    }
}

/// A thread that drops, closes, moves and populates its part; another one takes and drops snapshots meanwhile.
#[test]
fn snapshots_keep_what_goes() {
    check(|| {
        let region = region(100, memory());
        region.map(page(0, 40), ATTRIBUTES, 0).unwrap();
        (0..6).for_each(|at| assert_eq!(access(&region, at, Some(at as u8 + 1)), Some(0)));
        let id = region.snapshot(all()).unwrap();
        let change = {
            let region = region.clone();
            thread::spawn(move || {
                match chance(4) {
                    0 => region.unmap(page(1, 3)).unwrap(),
                    1 => region.advise(page(0, 5), Advice::DontNeed).unwrap(),
                    2 => region.remap(page(2, 2), page(50, 1).start).unwrap(),
                    _ => region.protect(page(2, 2), Rights::None).unwrap(),
                }
                region.populate(page(10, 3)).unwrap();
                assert_eq!(access(&region, 5, Some(77)), Some(6));
            })
        };
        let others = {
            let region = region.clone();
            thread::spawn(move || {
                // While a part is closed, it is refused.
                if let Ok(id) = region.snapshot(all()) {
                    let words = read(&region, id, 60);
                    assert_eq!(read(&region, id, 60), words, "it has changed");
                    region.drop_snapshot(id);
                }
            })
        };
        let expected: Vec<u8> = (0..60).map(|at| if at < 6 { at + 1 } else { 0 }).collect();
        assert_eq!(read(&region, id, 60), expected);
        change.join().unwrap();
        others.join().unwrap();
        assert_eq!(read(&region, id, 60), expected);
        region.drop_snapshot(id);
        region.areas().check();
    });
}

/// A handler copies what no write waited for, while threads write there, and another snapshot comes and goes.
#[test]
fn the_rest_of_a_slot_is_copied_beside_writes() {
    const WRITTEN: [usize; 4] = [0, 70, 71, 300];
    check(|| {
        let region = region(100, memory());
        region.map(region.span(), ATTRIBUTES, 0).unwrap();
        WRITTEN.iter().for_each(|at| assert_eq!(access(&region, *at, Some(1)), Some(0)));
        let id = region.snapshot(all()).unwrap();
        // The snapshot needs nothing more of these, and so more than a quarter is settled.
        region.populate(page(80, 150)).unwrap();
        let write = |first: usize| {
            let region = region.clone();
            thread::spawn(move || {
                WRITTEN[first..].iter().step_by(2).for_each(|at| {
                    assert_eq!(access(&region, *at, Some(2)), Some(1));
                });
            })
        };
        let threads = [write(0), write(1)];
        let handler = {
            let region = region.clone();
            thread::spawn(move || {
                for _ in 0..12 {
                    WENT_ON.fetch_add(region.copy_rest() as usize, Ordering::Relaxed);
                    thread::yield_now();
                }
            })
        };
        let later = region.snapshot(all()).unwrap();
        let words = read(&region, later, 301);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        handler.join().unwrap();
        assert_eq!(read(&region, later, 301), words, "it has changed");
        let expected: Vec<u8> = (0..301).map(|at| WRITTEN.contains(&at) as u8).collect();
        assert_eq!(read(&region, id, 301), expected);
        [later, id].into_iter().for_each(|id| region.drop_snapshot(id));
        assert!(WRITTEN.iter().all(|at| access(&region, *at, None) == Some(2)));
    });
    assert!(WENT_ON.load(Ordering::Relaxed) > 0, "in no run");
}

/// Steps that were not the last one, of all runs.
static WENT_ON: AtomicUsize = AtomicUsize::new(0);
