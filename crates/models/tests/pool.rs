//! A pool that grows: threads take places and leave them, so that its chunks come and go.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use faultless_base::{SLOT, Span};
use faultless_mm::frame::buddy::Kind;
use faultless_mm::frame::pool::{CHUNK, Pool};
use faultless_models::{check_runs, run_threads};
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

/// Where chunks are: never twice in one place.
struct Addresses {
    next: usize,
    chunks: BTreeSet<usize>,
}

static ADDRESSES: Mutex<Addresses> = Mutex::new(Addresses { next: SLOT, chunks: BTreeSet::new() });

fn reserve(bytes: usize) -> Option<usize> {
    thread::yield_now();
    let mut addresses = ADDRESSES.lock().unwrap();
    let at = addresses.next;
    addresses.next += bytes;
    assert!(addresses.chunks.insert(at));
    Some(at)
}

fn release(span: Span) {
    assert!(ADDRESSES.lock().unwrap().chunks.remove(&span.start), "given back twice");
    thread::yield_now();
}

fn give(pool: &Pool, frame: usize, kind: Kind) {
    pool.give(pool.place(frame).unwrap(), kind, 0, release);
}

fn is_there(frame: usize) -> bool {
    let addresses = ADDRESSES.lock().unwrap();
    addresses.chunks.range(..=frame).next_back().is_some_and(|at| frame < at + CHUNK * SLOT)
}

#[test]
fn who_has_a_place_has_it_alone_and_it_stays() {
    check_runs(
        || {
            *ADDRESSES.lock().unwrap() = Addresses { next: SLOT, chunks: BTreeSet::new() };
            let pool = Arc::new(Pool::new(3 * CHUNK * SLOT).unwrap());
            // The first one is full and stays.
            let first: Vec<_> = (0..CHUNK).map(|_| pool.hole(reserve).unwrap()).collect();
            let all = Arc::new(Mutex::new(BTreeSet::from_iter(first)));
            run_threads(3, (pool.clone(), all), |(pool, all)| {
                for _ in 0..3 {
                    let places: Vec<_> =
                        (0..1 + thread_rng().gen_range(0..2)).filter_map(|_| pool.hole(reserve)).collect();
                    for frame in &places {
                        assert!(is_there(*frame), "nothing is there");
                        assert!(all.lock().unwrap().insert(*frame), "two have it");
                    }
                    thread::yield_now();
                    for frame in places {
                        assert!(is_there(frame), "it is gone");
                        assert!(all.lock().unwrap().remove(&frame));
                        match thread_rng().gen_range(0..2) {
                            0 => give(&pool, frame, Kind::Unbacked),
                            _ => {
                                let kind = [Kind::Dirty, Kind::Zeroed][thread_rng().gen_range(0..2)];
                                give(&pool, frame, kind);
                                // That one or another one's.
                                if let Some(frame) = pool.take_if(kind, 1, |_| true) {
                                    assert!(is_there(frame), "what waits is gone");
                                    give(&pool, frame, Kind::Unbacked);
                                }
                            }
                        }
                    }
                }
            });
            let left = || [Kind::Dirty, Kind::Zeroed].into_iter().find_map(|kind| pool.take_if(kind, 1, |_| true));
            while let Some(frame) = left() {
                give(&pool, frame, Kind::Unbacked);
            }
            assert_eq!(ADDRESSES.lock().unwrap().chunks.len(), 1, "what is empty goes");
        },
        2000,
    );
}
