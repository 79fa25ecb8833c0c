//! The synchronization between the reader of messages and the calls of a region.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use faultless_base::Span;

/// How often a call looks before it sleeps.
const LOOKS: usize = 100;

/// A turn of reading, which ends also where that fails: others wait for it.
struct Turn<'a>(&'a AtomicUsize);

impl<'a> Turn<'a> {
    fn begin(turn: &'a AtomicUsize) -> Self {
        turn.fetch_add(1, Ordering::SeqCst);
        Self(turn)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Whether messages are being read, and what the region does itself that there will be messages about.
#[derive(Default)]
pub struct Behind {
    /// Odd while messages are read and noted.
    turn: AtomicUsize,
    /// Held while a part of the region moves.
    moving: Mutex<()>,
    /// Where that is from and where it goes to: start and end of each.
    own: [AtomicUsize; 4],
}

impl Behind {
    /// Reads messages and notes what they say, with `read`. The thread that caused such a message goes on in the
    /// middle of it.
    pub fn reading<R>(&self, read: impl FnOnce() -> R) -> R {
        let _turn = Turn::begin(&self.turn);
        read()
    }

    /// Messages are not read any more, though they may have been half read.
    pub fn end(&self) {
        self.turn.fetch_or(1, Ordering::SeqCst);
        self.turn.fetch_add(1, Ordering::SeqCst);
    }

    /// Waits until all is noted that calls have done which have returned.
    pub fn settle(&self) {
        let turn = self.turn.load(Ordering::SeqCst);
        for look in 0.. {
            if turn % 2 == 0 || self.turn.load(Ordering::SeqCst) != turn {
                return;
            }
            if look < LOOKS { thread::yield_now() } else { thread::sleep(Duration::from_micros(50)) }
        }
    }

    /// Moves a part of the region, by `move_it`: the kernel's messages about these two parts meanwhile come from this
    /// move alone.
    pub fn moving<R>(&self, from: Span, to: Span, move_it: impl FnOnce() -> R) -> R {
        let _moving = self.moving.lock().unwrap_or_else(PoisonError::into_inner);
        self.note([from.start, from.end, to.start, to.end]);
        let done = move_it();
        self.settle();
        self.note([0; 4]);
        done
    }

    fn note(&self, own: [usize; 4]) {
        self.own.iter().zip(own).for_each(|(word, value)| word.store(value, Ordering::SeqCst));
    }

    /// Whether the region itself is moving all of a part.
    pub fn is_own(&self, part: Span) -> bool {
        let [from, from_end, to, to_end] = [0, 1, 2, 3].map(|word: usize| self.own[word].load(Ordering::SeqCst));
        let inside = |start, end| part.start >= start && part.end <= end;
        inside(from, from_end) || inside(to, to_end)
    }
}
