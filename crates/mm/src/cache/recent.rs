//! The pages that a thread has asked for last, and what stays for a moment because of them.
//!
//! One instruction may touch several pages before it is done with any: two for a word across a border, four for a copy
//! from such a place to another. Where there is no room these would displace each other, and the thread would try for
//! ever. So a page that a thread asks for again shortly afterwards displaces nothing, and its slot stays for
//! [`STAYS_MS`], long enough for the thread to go on. That is beyond the budget until then.
//!
//! What other threads ask for is noted elsewhere, mostly. So even many threads that take turns find their own pages
//! again.

use core::sync::atomic::Ordering::Relaxed;

use faultless_base::sync::Words;

/// Where threads note their pages, more than processors; by chance two have the same.
const ROWS: usize = 64;
/// Words of a row: the next one, and the pages. More than an instruction touches.
const WORDS: usize = 8;
/// A thread that waits may get a processor late.
const STAYS_MS: u32 = 100;

pub(super) struct Recent {
    rows: Words,
    /// By slot: until when it stays. 0: no such time.
    needed: Words,
}

impl Recent {
    /// For a file of this many slots.
    pub(super) fn new(slots: usize) -> Option<Self> {
        Some(Self { rows: Words::new(ROWS * WORDS)?, needed: Words::new(slots)? })
    }

    /// Whether a thread has asked for a page shortly before; it is noted if not. `hint` tells threads apart.
    pub(super) fn is_again(&self, page: usize, hint: usize) -> bool {
        // Threads one after the other have different ones.
        let words = &self.rows[hint % ROWS * WORDS..][..WORDS];
        let (next, pages) = (&words[0], &words[1..]);
        // A word of zero is no page.
        let named = page + 1;
        if pages.iter().any(|page| page.load(Relaxed) == named) {
            return true;
        }
        let at = next.fetch_add(1, Relaxed) % pages.len();
        pages[at].store(named, Relaxed);
        false
    }

    /// A slot is to stay for a moment.
    pub(super) fn note_needed(&self, slot: usize, now_ms: u32) {
        // Never 0.
        self.needed[slot].store(now_ms.wrapping_add(STAYS_MS).max(1) as usize, Relaxed);
    }

    /// Whether it is to stay.
    pub(super) fn is_needed(&self, slot: usize, now_ms: impl FnOnce() -> u32) -> bool {
        let until = self.needed[slot].load(Relaxed) as u32;
        until != 0 && until.wrapping_sub(now_ms()) as i32 > 0
    }
}
