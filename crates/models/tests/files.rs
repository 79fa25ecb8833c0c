//! The index of a file: pages come and go while threads look for them without a lock, write to them and write back.
//!
//! The memory of a slot is a word, which is 0 while it is not there. The file is another one.

use std::sync::Arc;

use faultless_base::SLOT_PAGES;
use faultless_base::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use faultless_mm::cache::index::{Entry, Index, Part};
use faultless_models::check_runs;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

const ALL: Part = Part { first: 0, count: SLOT_PAGES };
const PARTS: [Part; 3] = [ALL, Part { first: 60, count: 10 }, Part { first: 511, count: 1 }];

struct World {
    index: Index,
    memory: AtomicUsize,
    file: AtomicUsize,
    /// What was written by calls that have returned.
    written: AtomicUsize,
}

impl World {
    /// A lookup, and a fill if nothing is there; the bytes, as a thread with a pin finds them.
    fn with(&self, part: Part, f: impl FnOnce(&AtomicUsize)) {
        let pin = self.index.pin(0, |_| thread::yield_now());
        if !self.index.has(Entry::Present, 0, part) {
            let change = self.index.change(0, |_| thread::yield_now());
            if !self.index.has(Entry::Present, 0, part) {
                if self.index.count(Entry::Present, 0) == 0 {
                    self.memory.store(self.file.load(Relaxed), Relaxed);
                }
                // All entries of a huge page in one batch.
                change.add(ALL);
            }
        }
        assert_ne!(self.memory.load(Relaxed), 0, "gone while it is pinned");
        f(&self.memory);
        drop(pin);
    }

    fn evict(&self) {
        let Some(change) = self.index.try_change(0) else { return };
        if !change.leave() {
            return;
        }
        if !self.index.is_clean(0) {
            change.stay();
            return;
        }
        self.memory.store(0, Relaxed);
        change.gone(0);
    }

    /// One thread at a time.
    fn write_back(&self, fails: bool) {
        if !self.index.has_any(Entry::Dirty, 0) {
            return;
        }
        let change = self.index.change(0, |_| thread::yield_now());
        self.index.turn(Entry::Dirty, Entry::Writeback, 0);
        drop(change);
        let bytes = self.memory.load(Relaxed);
        assert_ne!(bytes, 0, "gone while it is written");
        thread::yield_now();
        match fails {
            true => self.index.turn(Entry::Writeback, Entry::Dirty, 0),
            false => {
                self.file.store(bytes, Relaxed);
                self.index.clear(Entry::Writeback, 0);
            }
        }
    }
}

#[test]
fn no_byte_is_lost_and_none_is_old() {
    check_runs(
        || {
            let world = Arc::new(World {
                index: Index::new(1).unwrap(),
                memory: AtomicUsize::new(0),
                file: AtomicUsize::new(1),
                written: AtomicUsize::new(1),
            });
            let worker = |world: Arc<World>| {
                for _ in 0..4 {
                    let part = PARTS[thread_rng().gen_range(0..3)];
                    match thread_rng().gen_range(0..3) {
                        0 => {
                            let least = world.written.load(Relaxed);
                            world.with(part, |memory| assert!(memory.load(Relaxed) >= least, "old bytes"));
                        }
                        1 => {
                            let mut new = 0;
                            world.with(part, |memory| {
                                new = memory.fetch_add(1, Relaxed) + 1;
                                world.index.set(Entry::Dirty, 0, part);
                            });
                            world.written.fetch_max(new, Relaxed);
                        }
                        _ => world.evict(),
                    }
                }
            };
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    let world = world.clone();
                    thread::spawn(move || worker(world))
                })
                .collect();
            for _ in 0..4 {
                world.write_back(thread_rng().gen_range(0..2) == 0);
                thread::yield_now();
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            world.write_back(false);
            assert_eq!(world.file.load(Relaxed), world.written.load(Relaxed), "lost");
            world.evict();
            assert_eq!((world.memory.load(Relaxed), world.index.state(0)), (0, 0));
        },
        20_000,
    );
}

/// A thread that has reads under way for several slots has all of their locks, and waits for none.
#[test]
fn many_slots_are_filled_at_a_time_and_no_thread_waits_for_ever() {
    check_runs(
        || {
            const SLOTS: usize = 3;
            let index = Arc::new(Index::new(SLOTS).unwrap());
            let memory: Arc<[AtomicUsize; SLOTS]> = Arc::new(std::array::from_fn(|_| AtomicUsize::new(0)));
            let worker = |index: Arc<Index>, memory: Arc<[AtomicUsize; SLOTS]>| {
                for _ in 0..3 {
                    let slot = thread_rng().gen_range(0..SLOTS);
                    match thread_rng().gen_range(0..3) {
                        0 => {
                            let mut changes = Vec::new();
                            for slot in 0..SLOTS {
                                let Some(change) = index.try_change(slot) else { continue };
                                let pin = index.pin(slot, |_| thread::yield_now());
                                if !index.has(Entry::Present, slot, ALL) {
                                    changes.push((slot, change, pin));
                                }
                            }
                            thread::yield_now();
                            for (slot, change, _pin) in changes {
                                memory[slot].store(1, Relaxed);
                                change.add(ALL);
                            }
                        }
                        1 => {
                            let _pin = index.pin(slot, |_| thread::yield_now());
                            if !index.has(Entry::Present, slot, ALL) {
                                let change = index.change(slot, |_| thread::yield_now());
                                if !index.has(Entry::Present, slot, ALL) {
                                    assert_eq!(memory[slot].swap(1, Relaxed), 0, "filled twice");
                                    change.add(ALL);
                                }
                            }
                            assert_eq!(memory[slot].load(Relaxed), 1, "gone while it is pinned");
                        }
                        _ => {
                            let Some(change) = index.try_change(slot) else { continue };
                            if change.leave() {
                                memory[slot].store(0, Relaxed);
                                change.gone(0);
                            }
                        }
                    }
                }
            };
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    let (index, memory) = (index.clone(), memory.clone());
                    thread::spawn(move || worker(index, memory))
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            for slot in 0..SLOTS {
                assert_eq!(memory[slot].load(Relaxed) == 1, index.has(Entry::Present, slot, ALL));
                assert!(index.change(slot, |_| thread::yield_now()).leave(), "a pin or a lock is left");
            }
        },
        10_000,
    );
}
