//! Where the program has changed attributes of memory beside the arena: a map of addresses, kept without a lock and
//! without a system call. It says yes of a place that was noted, and sometimes of one that was not: addresses that are
//! 16 GiB apart share their bits.
//!
//! A program that makes code changes the rights of memory all the time, but not of blocks of malloc. So a note is of a
//! place, and not of the whole process.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use faultless_base::Span;

/// Bytes of a bit.
const GRAIN: usize = 64 << 10;
const BITS: usize = 1 << 18;
const WORDS: usize = BITS / 64;
/// Ranges of more bytes have no bits: what lies between the first and the last of them counts as noted.
const MOST: usize = 1 << 30;

/// The map.
pub struct Beside {
    words: [AtomicU64; WORDS],
    /// From the lowest to the highest address of the large ranges.
    start: AtomicUsize,
    end: AtomicUsize,
    is_any: AtomicBool,
}

impl Beside {
    /// Nothing is noted.
    pub const fn new() -> Self {
        Self {
            words: [const { AtomicU64::new(0) }; WORDS],
            start: AtomicUsize::new(usize::MAX),
            end: AtomicUsize::new(0),
            is_any: AtomicBool::new(false),
        }
    }

    /// The words that have bits of `span`, with these bits.
    fn each_word(&self, span: Span) -> impl Iterator<Item = (&AtomicU64, u64)> {
        let (first, end) = (span.start / GRAIN, span.end.div_ceil(GRAIN));
        (first / 64..end.div_ceil(64)).map(move |number| {
            let from = first.saturating_sub(number * 64);
            let n = (end - number * 64).min(64) - from;
            (&self.words[number % WORDS], u64::MAX >> (64 - n) << from)
        })
    }

    /// Attributes of `span` change.
    pub fn note(&self, span: Span) {
        if span.start >= span.end {
            return;
        }
        if span.bytes() > MOST {
            self.start.fetch_min(span.start, Relaxed);
            self.end.fetch_max(span.end, Relaxed);
        } else {
            for (word, bits) in self.each_word(span).filter(|(word, bits)| word.load(Relaxed) & bits != *bits) {
                word.fetch_or(bits, Relaxed);
            }
        }
        self.is_any.store(true, Relaxed);
    }

    /// Whether some were changed anywhere.
    #[inline]
    pub fn has_any(&self) -> bool {
        self.is_any.load(Relaxed)
    }

    /// Whether attributes may have been changed in `span`.
    pub fn holds(&self, span: Span) -> bool {
        span.start < self.end.load(Relaxed) && span.end > self.start.load(Relaxed)
            || span.bytes() > MOST
            || self.each_word(span).any(|(word, bits)| word.load(Relaxed) & bits != 0)
    }
}
