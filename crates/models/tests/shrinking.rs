//! A file becomes shorter and longer while threads bring, write, write back, drop and collapse pages of the same slot:
//! as `truncate` in `mm/src/cache/resize.rs`, over the real index. Some of them read a page without the lock of its slot,
//! as `mm/src/cache/apart.rs` does.
//!
//! The slot has two pages, of a word each; 0 is a page of zeroes. The second one is behind the new end. A mapping of the
//! first one stays, so threads go on using that; the second one is the caller's of `truncate` alone.

use std::sync::Arc;

use faultless_base::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use faultless_mm::cache::index::{Change, Entry, Index, Part, flag};
use faultless_models::check_runs;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

const PAGES: [Part; 2] = [Part { first: 3, count: 1 }, Part { first: 300, count: 1 }];

struct World {
    index: Index,
    /// In pages.
    length: AtomicUsize,
    memory: [AtomicUsize; 2],
    /// Threads that read the page without the lock.
    readers: [AtomicUsize; 2],
    file: [AtomicUsize; 2],
    syncing: shuttle::sync::Mutex<()>,
}

impl World {
    fn change(&self) -> Change<'_> {
        self.index.change(0, |_| thread::yield_now())
    }

    /// A slot that is empty gets all of its pages that are in the file by a huge page; one that is not, the page alone.
    fn bring(&self, page: usize) {
        if self.index.has(Entry::Present, 0, PAGES[page]) {
            return;
        }
        let change = loop {
            let change = self.change();
            if !self.index.has(Entry::Coming, 0, PAGES[page]) {
                break change;
            }
            // Another thread reads it.
            drop(change);
            thread::yield_now();
        };
        let is_new = !change.is(flag::FILLED | flag::HUGE);
        let inside = self.length.load(Relaxed);
        let coming = if is_new { 0..inside } else { page..page + 1 };
        if is_new {
            change.set(flag::HUGE);
        }
        for page in coming.filter(|page| !self.index.has(Entry::Present, 0, PAGES[*page])) {
            let bytes = self.file[page].load(Relaxed);
            thread::yield_now();
            self.memory[page].store(bytes, Relaxed);
            change.add(PAGES[page]);
        }
    }

    /// The same of a page of a slot that is not empty: others have the lock while it is read.
    fn bring_apart(&self, page: usize) {
        let _pin = self.index.pin(0, |_| thread::yield_now());
        let change = self.change();
        let is_there = |entry| self.index.has(entry, 0, PAGES[page]);
        if !change.is(flag::FILLED) || page >= self.length.load(Relaxed) {
            return;
        }
        if is_there(Entry::Present) || is_there(Entry::Coming) {
            return;
        }
        change.begin_read(PAGES[page]);
        drop(change);
        assert_eq!(self.readers[page].fetch_add(1, Relaxed), 0, "it is read twice");
        let bytes = self.file[page].load(Relaxed);
        thread::yield_now();
        self.readers[page].fetch_sub(1, Relaxed);
        if let Some(change) = self.index.try_change(0)
            && is_there(Entry::Valid)
        {
            assert!(!is_there(Entry::Present), "it has come by another thread");
            self.memory[page].store(bytes, Relaxed);
            change.add(PAGES[page]);
        }
        self.index.unset(Entry::Coming, 0, PAGES[page]);
    }

    fn with<T>(&self, page: usize, f: impl FnOnce(&AtomicUsize) -> T) -> T {
        let _pin = self.index.pin(0, |_| thread::yield_now());
        self.bring(page);
        assert!(self.index.has(Entry::Present, 0, PAGES[page]), "gone while it is pinned");
        f(&self.memory[page])
    }

    fn write(&self, page: usize, change: impl FnOnce(&AtomicUsize)) {
        self.with(page, |memory| {
            change(memory);
            self.index.set(Entry::Dirty, 0, PAGES[page]);
        });
    }

    fn empty(&self, change: Change<'_>) {
        self.memory.iter().for_each(|page| page.store(0, Relaxed));
        change.gone(0);
    }

    fn evict(&self) {
        let Some(change) = self.index.try_change(0) else { return };
        if !change.leave() {
            return;
        }
        match self.index.is_clean(0) {
            true => self.empty(change),
            false => change.stay(),
        }
    }

    fn collapse(&self) {
        let Some(change) = self.index.try_change(0) else { return };
        if !change.leave() {
            return;
        }
        if self.index.is_clean(0) && PAGES.iter().all(|page| self.index.has(Entry::Present, 0, *page)) {
            let bytes = [0, 1].map(|page| self.memory[page].swap(0, Relaxed));
            thread::yield_now();
            for (page, bytes) in bytes.into_iter().enumerate() {
                assert_eq!(self.memory[page].swap(bytes, Relaxed), 0, "it was written to meanwhile");
            }
            change.set(flag::HUGE);
        }
        change.stay();
    }

    fn write_back(&self) {
        let _syncing = self.syncing.lock().unwrap();
        let change = self.change();
        self.index.turn(Entry::Dirty, Entry::Writeback, 0);
        drop(change);
        for page in [0, 1].into_iter().filter(|page| self.index.has(Entry::Writeback, 0, PAGES[*page])) {
            let bytes = self.memory[page].load(Relaxed);
            let is_inside = page < self.length.load(Relaxed);
            thread::yield_now();
            if is_inside {
                self.file[page].store(bytes, Relaxed);
            }
        }
        self.index.clear(Entry::Writeback, 0);
    }

    /// The second page is not the file's any more.
    fn truncate(&self) {
        let _syncing = self.syncing.lock().unwrap();
        self.file[1].store(0, Relaxed);
        self.length.store(1, Relaxed);
        // Also where nothing is present: a fault may be bringing bytes from before.
        let change = self.change();
        change.void_reads(PAGES[1]);
        if !change.is(flag::FILLED) {
            return;
        }
        self.index.unset(Entry::Dirty, 0, PAGES[1]);
        if !self.index.has(Entry::Present, 0, PAGES[0]) && change.leave() {
            return self.empty(change);
        }
        self.index.unset(Entry::Present, 0, PAGES[1]);
        // A huge page keeps its memory, with what is in it.
        if !change.is(flag::HUGE) {
            self.memory[1].store(0, Relaxed);
        }
        change.stay();
    }

    /// As often as it is asked: other threads use the first page, one shortens and lengthens the file.
    fn change_lengths(&self) {
        for round in 1..4 {
            self.write(1, |memory| memory.store(round, Relaxed));
            if thread_rng().gen_range(0..2) == 0 {
                self.write_back();
            }
            self.truncate();
            for _ in 0..thread_rng().gen_range(0..4) {
                thread::yield_now();
                assert_eq!(self.index.missing(0, PAGES[1]), PAGES[1].count, "a page behind the end is there");
            }
            self.length.store(2, Relaxed);
            let bytes = self.with(1, |memory| memory.load(Relaxed));
            assert_eq!(bytes, 0, "bytes from before are in the file again");
        }
    }
}

#[test]
fn no_byte_behind_the_end_comes_back_and_none_before_it_is_lost() {
    check_runs(
        || {
            let word = |_| AtomicUsize::new(0);
            let world = Arc::new(World {
                index: Index::new(1).unwrap(),
                length: AtomicUsize::new(2),
                memory: std::array::from_fn(word),
                readers: std::array::from_fn(word),
                file: std::array::from_fn(word),
                syncing: shuttle::sync::Mutex::new(()),
            });
            let start = |work: fn(&World) -> usize| {
                let world = world.clone();
                thread::spawn(move || work(&world))
            };
            let work = |world: &World| {
                let mut written = 0;
                for _ in 0..5 {
                    match thread_rng().gen_range(0..7) {
                        page @ 5..7 => world.bring_apart(page - 5),
                        0 => world.write_back(),
                        1 => world.evict(),
                        2 => world.collapse(),
                        3 => world.with(0, |_| ()),
                        _ => {
                            world.write(0, |memory| _ = memory.fetch_add(1, Relaxed));
                            written += 1;
                        }
                    }
                    thread::yield_now();
                }
                written
            };
            let lengths = |world: &World| {
                world.change_lengths();
                0
            };
            let threads = [start(work), start(work), start(lengths)];
            let written: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
            world.write_back();
            assert_eq!(world.file[0].load(Relaxed), written, "lost");
            assert_eq!(world.file[1].load(Relaxed), 0);
            world.evict();
            assert_eq!(world.index.state(0), 0);
        },
        10_000,
    );
}
