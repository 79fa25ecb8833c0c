//! The index of a file: pages come and go while threads look for them without a lock, write to them and write back.
//!
//! The memory of a slot is a word, which is 0 while it is not there. The file is another one.

use std::sync::Arc;

use faultless_base::SLOT_PAGES;
use faultless_base::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use faultless_mm::cache::index::{Entry, Index, Part};
use faultless_models::{check_runs, run_threads};
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

    /// Small pages become a huge page: for a moment nothing is there.
    fn collapse(&self) {
        let Some(change) = self.index.try_change(0) else { return };
        if !change.leave() {
            return;
        }
        if self.index.is_clean(0) && self.index.has(Entry::Present, 0, ALL) {
            let bytes = self.memory.swap(0, Relaxed);
            thread::yield_now();
            assert_eq!(self.memory.swap(bytes, Relaxed), 0, "it was written to meanwhile");
        }
        change.stay();
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
                    match thread_rng().gen_range(0..4) {
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
                        2 => world.collapse(),
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
            run_threads(3, (index.clone(), memory.clone()), |(index, memory)| {
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
            });
            for slot in 0..SLOTS {
                assert_eq!(memory[slot].load(Relaxed) == 1, index.has(Entry::Present, slot, ALL));
                assert!(index.change(slot, |_| thread::yield_now()).leave(), "a pin or a lock is left");
            }
        },
        10_000,
    );
}

/// The page of a lazy mapping, as the kernel has it: one word, because an access meets one state of it.
struct Page(AtomicUsize);

const PRESENT: usize = 1;
const WRITTEN: usize = 2;
const VALUE: usize = 4;

impl Page {
    fn change<T>(&self, mut f: impl FnMut(usize) -> (usize, T)) -> T {
        loop {
            let old = self.0.load(Relaxed);
            let (new, result) = f(old);
            if self.0.compare_exchange(old, new, Relaxed, Relaxed).is_ok() {
                return result;
            }
        }
    }

    /// An access by the program that adds to it; `None`: a fault.
    fn add(&self) -> Option<usize> {
        self.change(|old| match old & PRESENT {
            0 => (old, None),
            _ => ((old + VALUE) | WRITTEN, Some(old / VALUE + 1)),
        })
    }

    /// Whether it was written to, and from now on that is noted anew.
    fn take_change(&self) -> bool {
        self.change(|old| (old & !WRITTEN, old & (PRESENT | WRITTEN) == PRESENT | WRITTEN))
    }
}

/// Pages of a lazy mapping go while the program writes to them: as `take_out` in `mm/src/cache/watch.rs`.
#[test]
fn no_write_to_a_page_that_goes_is_lost() {
    struct Lazy {
        index: Index,
        page: Page,
        file: AtomicUsize,
        syncing: shuttle::sync::Mutex<()>,
    }

    const PART: Part = Part { first: 3, count: 1 };

    impl Lazy {
        fn find_changes(&self) -> bool {
            let is_changed = self.page.take_change();
            if is_changed {
                self.index.set(Entry::Dirty, 0, PART);
            }
            is_changed
        }

        fn write(&self) -> usize {
            loop {
                if let Some(value) = self.page.add() {
                    return value;
                }
                let _pin = self.index.pin(0, |_| thread::yield_now());
                let change = self.index.change(0, |_| thread::yield_now());
                if !self.index.has(Entry::Present, 0, PART) {
                    let bytes = self.file.load(Relaxed);
                    thread::yield_now();
                    assert_eq!(self.page.0.swap((bytes * VALUE) | PRESENT, Relaxed), 0, "it is there already");
                    change.add(PART);
                }
            }
        }

        fn evict(&self) {
            let Some(change) = self.index.try_change(0) else { return };
            if self.find_changes() || !change.leave() {
                return;
            }
            if !self.index.is_clean(0) || !self.index.has(Entry::Present, 0, PART) {
                return change.stay();
            }
            let copy = self.page.0.load(Relaxed) / VALUE;
            thread::yield_now();
            if self.find_changes() {
                return change.stay();
            }
            // Here the program may write.
            thread::yield_now();
            let moved = self.page.0.swap(0, Relaxed) / VALUE;
            if moved != copy {
                thread::yield_now();
                assert_eq!(self.page.0.swap((moved * VALUE) | PRESENT | WRITTEN, Relaxed), 0);
                self.index.set(Entry::Dirty, 0, PART);
                return change.stay();
            }
            assert_eq!(moved, self.file.load(Relaxed), "what goes is not what the file has");
            change.gone(0);
        }

        fn sync(&self, fails: bool) {
            let _syncing = self.syncing.lock().unwrap();
            let change = self.index.change(0, |_| thread::yield_now());
            self.find_changes();
            self.index.turn(Entry::Dirty, Entry::Writeback, 0);
            drop(change);
            if !self.index.has_any(Entry::Writeback, 0) {
                return;
            }
            let word = self.page.0.load(Relaxed);
            assert_ne!(word & PRESENT, 0, "gone while it is written");
            thread::yield_now();
            match fails {
                true => self.index.turn(Entry::Writeback, Entry::Dirty, 0),
                false => {
                    self.file.store(word / VALUE, Relaxed);
                    self.index.clear(Entry::Writeback, 0);
                }
            }
        }
    }

    check_runs(
        || {
            let lazy = Arc::new(Lazy {
                index: Index::new(1).unwrap(),
                page: Page(AtomicUsize::new(0)),
                file: AtomicUsize::new(0),
                syncing: shuttle::sync::Mutex::new(()),
            });
            // One thread writes back and lets pages go; the others write, and now and then do the same.
            let threads: Vec<_> = (0..3)
                .map(|i| {
                    let lazy = lazy.clone();
                    thread::spawn(move || {
                        let mut written = 0;
                        for _ in 0..6 {
                            match thread_rng().gen_range(0..if i == 0 { 4 } else { 12 }) {
                                0 => lazy.sync(thread_rng().gen_range(0..3) == 0),
                                1 => lazy.evict(),
                                2..4 => {
                                    lazy.sync(false);
                                    lazy.evict();
                                }
                                _ => {
                                    lazy.write();
                                    written += 1;
                                }
                            }
                            thread::yield_now();
                        }
                        written
                    })
                })
                .collect();
            let written: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
            lazy.sync(false);
            assert_eq!(lazy.file.load(Relaxed), written, "lost");
            lazy.evict();
            assert_eq!((lazy.page.0.load(Relaxed), lazy.index.state(0)), (0, 0));
        },
        20_000,
    );
}
