//! Pages that go to a store and come back, beside threads that fault and change the region.

use std::sync::Arc;

use faultless_base::{Errno, PAGE};
use faultless_page::knobs::Knob;
use faultless_page::stats::Counter;
use shuttle::thread;

use faultless_models::check_runs;

use super::{ATTRIBUTES, Memory, access, assert_counted, chance, memory, page, part, region_of};

/// Runs of each model.
const RUNS: usize = 50;
/// Pages in memory.
const BUDGET: usize = 6;
/// Pages that two threads write to.
const WRITTEN: usize = 12;

/// Of the parts of two threads, less than a half is in memory.
fn region() -> Arc<Memory> {
    let region = region_of(100, memory()).with_swap(BUDGET * PAGE).unwrap();
    region.map(region.span(), ATTRIBUTES, 0).unwrap();
    Arc::new(region)
}

fn check(model: fn()) {
    check_runs(model, RUNS);
}

/// The background lets pages go, whatever the marks say, while the store fails now and then.
fn reclaims(region: &Arc<Memory>, rounds: usize) -> thread::JoinHandle<()> {
    let region = region.clone();
    thread::spawn(move || {
        for _ in 0..rounds {
            if chance(4) == 0 {
                region.fail_writes(&[Errno::EIO]);
            }
            while region.keep_room() {}
            region.heal_store();
            thread::yield_now();
        }
    })
}

/// Each thread changes its part, unmaps, closes, drops and populates, while its pages go and come.
#[test]
fn pages_go_and_come_beside_changes() {
    check(|| {
        let region = region();
        let background = reclaims(&region, 2);
        part::work(&region, 2, 5);
        background.join().unwrap();
        part::check(&region);
        assert_eq!(region.pages_in_memory(), region.present_pages() + region.aside());
    });
    for counter in [Counter::SwapAside, Counter::SwapBack, Counter::SwapOut, Counter::SwapIn] {
        assert_counted(counter);
    }
}

/// Threads that write to the same pages, one byte higher each time: no write is lost on the way out or back.
#[test]
fn no_write_is_lost_on_the_way() {
    check(|| {
        let region = region();
        let write = |first: usize| {
            let region = region.clone();
            thread::spawn(move || {
                for round in 0..2 {
                    for at in (first..WRITTEN).step_by(2) {
                        assert_eq!(access(&region, at, Some(round + 1)), Some(round));
                    }
                }
            })
        };
        let threads = [write(0), write(1), reclaims(&region, 2)];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        (0..WRITTEN).for_each(|at| assert_eq!(access(&region, at, None), Some(2)));
        assert_eq!(region.pages_in_memory(), region.present_pages() + region.aside());
    });
}

/// The same for pages that are read before: they came clean, and may be about to go that way.
#[test]
fn no_write_to_a_clean_page_is_lost() {
    const PAGES: usize = 4;
    check_runs(
        || {
            // The background lets pages go as soon as three are there.
            let region = region_of(100, memory()).with_swap(PAGES * PAGE).unwrap();
            region.set(Knob::SwapHigh, 50);
            region.map(page(0, PAGES), ATTRIBUTES, 0).unwrap();
            let region = Arc::new(region);
            (0..PAGES).for_each(|at| assert_eq!(access(&region, at, Some(1)), Some(0)));
            let write = |first: usize| {
                let region = region.clone();
                thread::spawn(move || {
                    for round in 1..4 {
                        for at in (first..PAGES).step_by(2) {
                            assert_eq!(access(&region, at, None), Some(round));
                            // While its page is on the way out.
                            (0..chance(30)).for_each(|_| thread::yield_now());
                            assert_eq!(access(&region, at, Some(round + 1)), Some(round));
                        }
                    }
                })
            };
            let threads = [write(0), write(1)];
            while Arc::strong_count(&region) > 1 {
                region.keep_room();
                thread::yield_now();
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            (0..PAGES).for_each(|at| assert_eq!(access(&region, at, None), Some(4)));
            assert_eq!(region.pages_in_memory(), region.present_pages() + region.aside());
        },
        4 * RUNS,
    );
    assert_counted(Counter::SwapClean);
}
