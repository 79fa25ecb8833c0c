//! The upper table: a word for each 2 MiB of a region, with a lock.
//!
//! A fault installs pages with the lock of their entry, after a look at the area's sequence count. A change makes
//! that count odd, and then takes each entry's lock once ([`Entries::settle`]). So a fault either has installed
//! before, or sees the odd count.

use faultless_base::sync::Words;
use faultless_base::sync::atomic::{AtomicUsize, Ordering};
use faultless_base::{SLOT, Span};

const LOCKED: usize = 1;
const KIND_SHIFT: usize = 1;
const KIND_MASK: usize = 0b110;
const GENERATION: usize = 1 << 3;
/// How often a lock that is tried is looked at again.
const TRIES: u32 = if cfg!(debug_assertions) { 4 } else { 100 };

/// What is below an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing was installed yet.
    Empty,
    /// Pages, or a table of them.
    Pages,
    /// A huge page.
    Huge,
}

impl Kind {
    const fn of(word: usize) -> Self {
        match (word & KIND_MASK) >> KIND_SHIFT {
            0 => Self::Empty,
            1 => Self::Pages,
            _ => Self::Huge,
        }
    }
}

/// An entry as it was at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen(usize);

impl Seen {
    /// What was below it.
    pub fn kind(self) -> Kind {
        Kind::of(self.0)
    }
}

/// The entries of one region.
pub struct Entries {
    words: Words,
    base: usize,
}

/// A locked entry, until it is dropped.
pub struct Entry<'a> {
    word: &'a AtomicUsize,
    value: usize,
}

impl Entries {
    /// Entries for a region at a multiple of 2 MiB. `None` when there is no memory for them.
    pub fn new(region: Span) -> Option<Self> {
        Some(Self { words: Words::new(region.bytes().div_ceil(SLOT))?, base: region.start })
    }

    fn word(&self, addr: usize) -> &AtomicUsize {
        &self.words[(addr - self.base) / SLOT]
    }

    /// The entry around `addr`, locked or not.
    pub fn read(&self, addr: usize) -> Seen {
        Seen(self.word(addr).load(Ordering::Acquire) & !LOCKED)
    }

    /// Locks it if it is as it was `seen` and no thread holds it for long.
    pub fn try_lock(&self, addr: usize, seen: Seen, mut relax: impl FnMut()) -> Option<Entry<'_>> {
        let word = self.word(addr);
        for _ in 0..TRIES {
            match word.compare_exchange(seen.0, seen.0 | LOCKED, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(Entry { word, value: seen.0 }),
                Err(now) if now & !LOCKED != seen.0 => return None,
                Err(_) => relax(),
            }
        }
        None
    }

    /// Waits for it and locks it.
    pub fn lock(&self, addr: usize, mut relax: impl FnMut(u32)) -> Entry<'_> {
        let word = self.word(addr);
        let mut turn = 0;
        loop {
            let value = word.load(Ordering::Relaxed) & !LOCKED;
            if word.compare_exchange(value, value | LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return Entry { word, value };
            }
            relax(turn);
            turn += 1;
        }
    }

    /// Waits until all threads that came before have installed in `span`. A `seen` entry there does not hold any
    /// more.
    pub fn settle(&self, span: Span, mut relax: impl FnMut(u32)) {
        let mut at = span.start;
        while at < span.end {
            self.lock(at, &mut relax).renew();
            at = (at - self.base) / SLOT * SLOT + SLOT + self.base;
        }
    }

    /// Pages were brought to `span` without faults, or it was emptied: sets what is below its entries now. Of an
    /// entry that the span covers in part, only one thing is known: there may be pages.
    pub fn put(&self, span: Span, kind: Kind, mut relax: impl FnMut(u32)) {
        let whole = span.aligned_inside(SLOT);
        for slot in (span.start & !(SLOT - 1)..span.end).step_by(SLOT) {
            let mut entry = self.lock(slot, &mut relax);
            match whole.contains(slot) {
                true => entry.set(kind),
                false if kind != Kind::Empty && entry.kind() == Kind::Empty => entry.set(Kind::Pages),
                false => {}
            }
        }
    }
}

impl Entry<'_> {
    /// What is below it.
    pub fn kind(&self) -> Kind {
        Kind::of(self.value)
    }

    /// Something was installed.
    pub fn set(&mut self, kind: Kind) {
        if kind != self.kind() {
            self.value = (self.value & !KIND_MASK) | (kind as usize) << KIND_SHIFT;
        }
    }

    fn renew(&mut self) {
        self.value = self.value.wrapping_add(GENERATION);
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.word.store(self.value, Ordering::Release);
    }
}
