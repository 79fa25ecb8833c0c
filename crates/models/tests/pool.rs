//! A pool that grows: threads take places and leave them, so that its chunks come and go.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use faultless_base::{SLOT, Span};
use faultless_mm::region::pool::{Pool, Source};
use faultless_models::check_runs;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

const CHUNK: usize = 16;

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

fn is_there(frame: usize) -> bool {
    let addresses = ADDRESSES.lock().unwrap();
    addresses.chunks.range(..=frame).next_back().is_some_and(|at| frame < at + CHUNK * SLOT)
}

#[test]
fn who_has_a_place_has_it_alone_and_it_stays() {
    check_runs(
        || {
            *ADDRESSES.lock().unwrap() = Addresses { next: SLOT, chunks: BTreeSet::new() };
            let pool = Arc::new(Pool::growing(3 * CHUNK * SLOT, Source { reserve, release }).unwrap());
            // The first one is full and stays.
            let first: Vec<_> = (0..CHUNK).map(|_| pool.begin().unwrap()).collect();
            let all = Arc::new(Mutex::new(BTreeSet::from_iter(first)));
            let worker = |pool: Arc<Pool>, all: Arc<Mutex<BTreeSet<usize>>>| {
                for _ in 0..3 {
                    let places: Vec<_> =
                        (0..1 + thread_rng().gen_range(0..2)).filter_map(|_| pool.begin()).collect();
                    for frame in &places {
                        assert!(is_there(*frame), "nothing is there");
                        assert!(all.lock().unwrap().insert(*frame), "two have it");
                    }
                    thread::yield_now();
                    for frame in places {
                        assert!(is_there(frame), "it is gone");
                        assert!(all.lock().unwrap().remove(&frame));
                        match thread_rng().gen_range(0..2) {
                            0 => pool.leave(frame),
                            _ => {
                                pool.put_back(frame);
                                // That one or another one's.
                                if let Some(frame) = pool.take() {
                                    assert!(is_there(frame), "what waits is gone");
                                    pool.leave(frame);
                                }
                            }
                        }
                    }
                }
            };
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    let (pool, all) = (pool.clone(), all.clone());
                    thread::spawn(move || worker(pool, all))
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            while let Some(frame) = pool.take() {
                pool.leave(frame);
            }
            assert_eq!(ADDRESSES.lock().unwrap().chunks.len(), 1, "what is empty goes");
        },
        2000,
    );
}
