//! Following a program by moves: zeroed frames of the supply move to a window ahead of it, at its own addresses.
//!
//! A window is a row of slots. Its first one, the marker, is left to the program: a fault there says that the program
//! has arrived, and the next window begins behind. A huge page moves in a hundredth of the time that it takes to zero
//! it, so the thread is ahead of any program as long as there are frames. When there are none, nothing waits: growth
//! is touched ahead as always (`ahead.rs`), or left to the kernel.
//!
//! Windows double while the program follows; one that has followed often gets the first window of the next extent at
//! once.

use faultless_base::sys::Sys;
use faultless_base::{PAGE, SLOT};

use crate::space::{Shard, Space};
use crate::state::growths::{Growth, Window};
use faultless_page::stats::Counter;

/// The first window of an extent, in slots, and that of a program that is known to follow. A program crosses a small
/// one before the thread looks again.
const FIRST_WINDOW: usize = 16;
const TRUSTED_WINDOW: usize = 64;

/// What became of a window that was to move.
#[derive(Default)]
struct MovedWindow {
    /// Slots looked at, from the first on.
    passed: usize,
    /// How many of them moved.
    moved: usize,
}

impl<S: Sys> Space<S> {
    /// Whether the program has followed so often that windows begin before it comes.
    pub(crate) fn is_trusted(&self) -> bool {
        self.ahead.supply.is_trusted()
    }

    /// The size of the first window of an extent.
    pub(crate) fn first_window(&self, usual: usize) -> usize {
        match self.moves() {
            true if self.is_trusted() => TRUSTED_WINDOW,
            true => FIRST_WINDOW,
            false => usual,
        }
    }

    /// Begins the next window, if the program has come to the last one and there are frames. Whether there is one now.
    /// The program was at `old` before.
    pub(crate) fn next_window(&self, shard: &Shard, g: &mut Growth, old: usize) -> bool {
        if let Some(window) = g.moved {
            if g.reached <= window.marker {
                return true;
            }
            self.ahead.supply.note_followed();
        }
        let marker = g.touched.max(g.reached + 1);
        let end = (marker + 1 + g.window).min(g.advised);
        if marker + 1 >= end {
            return false;
        }
        if self.frames() == 0 {
            shard.count(Counter::MoveMisses, (old < g.reached) as usize);
            return false;
        }
        let e = g.extent().front(end).behind(marker + 1);
        let window = self.enter(shard, e, |span| self.move_window(span.start, e.n)).unwrap_or_default();
        shard.count(Counter::MoveWindows, (window.moved > 0) as usize);
        shard.count(Counter::BytesMovedAhead, window.moved * SLOT);
        if window.moved > 0 {
            g.touched = marker + 1 + window.passed;
            g.moved = Some(Window { marker, end: g.touched, moved: window.moved });
        }
        window.moved > 0
    }

    /// Moves frames to slots of the program's, except where the program was already.
    fn move_window(&self, start: usize, n: usize) -> MovedWindow {
        let missing = |i: usize| {
            let at = start + i * SLOT;
            self.sys.missing(at) && self.sys.missing(at + SLOT - PAGE)
        };
        let (mut at, mut all) = (0, 0);
        while at < n {
            let run = (at..n).take_while(|&i| missing(i)).count();
            let moved = self.move_frames(0, start + at * SLOT, run).slots();
            all += moved;
            at += moved;
            if moved < run && self.frames() == 0 {
                break;
            }
            // A page of the program's.
            at += 1;
        }
        MovedWindow { passed: at.min(n), moved: all }
    }

    /// An extent is not followed any more: what the program did not come to was moved for nothing.
    pub(crate) fn note_end(&self, shard: &Shard, g: &Growth) {
        if let Some(window) = g.moved.filter(|window| g.reached <= window.marker) {
            shard.count(Counter::BytesMovedUnused, window.moved * SLOT);
        }
    }
}
