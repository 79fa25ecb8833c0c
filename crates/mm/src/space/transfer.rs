//! Frames move: free ones into mappings of the program, and those of a mapping that ends into the free lists.
//!
//! A frame moves as a whole huge page where both sides have one there; its address changes, nothing is copied. A slot
//! that it leaves is a hole. The kernel refuses pages that are shared, pinned or locked, and never replaces a page.

use faultless_base::sys::Sys;
use faultless_base::{SLOT, Span};

use crate::frame::buddy::Kind;
use crate::frame::extent::Extent;
use crate::frame::purpose::Purpose;
use crate::frame::slot::{State, flag};
use crate::space::{Shard, Space};
use faultless_page::stats::Counter;

/// Slots that have moved: those that were zero, those of them that were zeroed ahead, and those that were dirty.
#[derive(Clone, Copy, Default)]
pub(crate) struct Moved {
    ready: usize,
    ahead: usize,
    hot: usize,
}

impl Moved {
    pub(crate) fn slots(self) -> usize {
        self.ready + self.hot
    }
}

impl<S: Sys> Space<S> {
    /// Whether this process can move frames at all.
    pub(crate) fn can_move(&self) -> bool {
        !self.moves.are_refused()
    }

    /// Moves free frames, zeroed, to `n` slots of the program's at `to`: how many slots from the first on. Less than
    /// `n` if there are no more frames, or a page is there already.
    pub(crate) fn move_frames(&self, cpu: usize, to: usize, n: usize) -> Moved {
        let mut moved = Moved::default();
        for kind in [Kind::Zeroed, Kind::Dirty] {
            while moved.slots() < n
                && let Some((shard, e)) = self.take_frame(self.shard(cpu), n - moved.slots(), kind)
            {
                let ahead = self.zeroed_ahead(shard, e);
                if kind == Kind::Dirty {
                    self.zero_now(shard, shard.span(e));
                }
                let (sent, rest) = self.send(shard, e, to + moved.slots() * SLOT);
                self.put_back(shard, rest, Kind::Zeroed, self.now_ms());
                match kind {
                    Kind::Dirty => moved.hot += sent,
                    _ => moved.ready += sent,
                }
                moved.ahead += ahead.min(sent);
                if sent < e.n {
                    break;
                }
            }
            while moved.slots() < n && self.move_from_pool(kind, to + moved.slots() * SLOT) {
                match kind {
                    Kind::Dirty => moved.hot += 1,
                    _ => moved.ready += 1,
                }
            }
        }
        moved
    }

    /// Moves a frame of the pool, zeroed, to where nothing is; whether one has moved.
    fn move_from_pool(&self, kind: Kind, to: usize) -> bool {
        let Some(at) = self.take_idle_from_pool(kind) else { return false };
        let frame = Span::new(at, SLOT);
        if kind == Kind::Dirty {
            self.zero_now(self.program(), frame);
        }
        self.verify(frame);
        let bytes = self.send_from_pool(at, Kind::Zeroed, to);
        if bytes > 0 {
            self.budget.unkeep(1);
        }
        bytes == SLOT
    }

    /// A frame of the pool in transit that may move into the program's memory.
    fn take_idle_from_pool(&self, kind: Kind) -> Option<usize> {
        let may = self.can_move() && !self.is_looked_at() && self.budget.idle() > 0;
        may.then(|| self.take_from_pool(kind)).flatten()
    }

    /// Moves such a frame, which is of this kind; how many bytes have moved. The rest goes.
    fn send_from_pool(&self, at: usize, kind: Kind, to: usize) -> usize {
        let bytes = self.move_bytes(self.program(), Span::new(at, SLOT), to);
        self.program().count(Counter::BytesMoved, bytes);
        match bytes {
            0 => self.give_to_pool(at, kind),
            SLOT => self.give_to_pool(at, Kind::Unbacked),
            _ => self.empty_in_pool(at),
        }
        bytes
    }

    /// The program asked for the slots `e`, which read as zero, and some of them have moved there.
    pub(crate) fn count_moved(&self, e: Extent, moved: Moved) {
        self.program().count(Counter::BytesZeroed, moved.ready * SLOT);
        self.count_zeroes(
            self.program(),
            self.program().span(e),
            Purpose::Map,
            (moved.ready, moved.ahead, moved.hot),
        );
    }

    /// Free frames in transit, up to `n` in one piece, of the shard at hand or else of another one.
    fn take_frame<'a>(&'a self, own: &'a Shard, n: usize, kind: Kind) -> Option<(&'a Shard, Extent)> {
        if !self.can_move() || self.is_looked_at() || self.budget.idle() == 0 {
            return None;
        }
        let take = |shard: &Shard| shard.lock_soon()?.take_some(n, kind);
        self.shards_from(own).find_map(|shard| Some((shard, take(shard)?)))
    }

    /// Brings idle frames with old bytes to the holes of `e`, in transit: as many as the program may get at once.
    pub(crate) fn gather(&self, shard: &Shard, e: Extent) {
        let is_hole = |i: &usize| shard.slots.was(*i) == State::Unbacked;
        let mut most = self.budget.trust();
        let mut at = e.first;
        while let Some(first) = (at..e.first + e.n).find(is_hole) {
            let n = (first..e.first + e.n).take_while(is_hole).count().min(most);
            let Some((from, frames)) = (n > 0).then(|| self.take_frame(shard, n, Kind::Dirty)).flatten() else {
                if n == 0 || !self.gather_from_pool(shard, first) {
                    return;
                }
                (at, most) = (first + 1, most - 1);
                continue;
            };
            let to = shard.span(Extent { first, n: frames.n });
            let bytes = self.move_bytes(from, from.span(frames), to.start);
            let (whole, begun) = (bytes / SLOT, bytes.div_ceil(SLOT));
            // A frame of which a part has moved is old bytes on this side, and empty on the other.
            (first..first + begun).for_each(|i| shard.slots.fill(i));
            shard.count(Counter::BytesMoved, bytes);
            self.put_back(from, Extent { n: whole, ..frames }, Kind::Unbacked, 0);
            self.put_back_empty(from, Extent { first: frames.first + whole, n: begun - whole }, 0);
            self.put_back(
                from,
                Extent { first: frames.first + begun, n: frames.n - begun },
                Kind::Dirty,
                self.now_ms(),
            );
            if whole < frames.n {
                return;
            }
            at = first + whole;
            most -= whole;
        }
    }

    /// Brings one of the pool to the hole `i`; whether it did.
    fn gather_from_pool(&self, shard: &Shard, i: usize) -> bool {
        let Some(at) = self.take_idle_from_pool(Kind::Dirty) else { return false };
        let bytes = self.send_from_pool(at, Kind::Dirty, shard.span(Extent { first: i, n: 1 }).start);
        if bytes > 0 {
            shard.slots.fill(i);
        }
        bytes == SLOT
    }

    pub(crate) fn zero_now(&self, shard: &Shard, span: Span) {
        let start = self.sys.now_ns();
        self.sys.zero_hot(span);
        shard.count(Counter::HotZeroNs, (self.sys.now_ns() - start) as usize);
        shard.count(Counter::BytesHotZeroed, span.bytes());
    }

    /// Moves what the kernel lets go: how many bytes.
    pub(crate) fn move_bytes(&self, shard: &Shard, from: Span, to: usize) -> usize {
        let bytes = self.sys.move_pages(from, to);
        if bytes.is_none() {
            self.moves.refuse();
            shard.count(Counter::MovesRefused, 1);
        }
        bytes.unwrap_or(0)
    }

    /// Moves zeroed frames in transit: how many slots have moved as a whole, and those that stay, in transit.
    fn send(&self, shard: &Shard, e: Extent, to: usize) -> (usize, Extent) {
        let slots = shard.slots;
        self.verify(shard.span(e));
        let bytes = self.move_bytes(shard, shard.span(e), to);
        let (whole, begun) = (bytes / SLOT, bytes.div_ceil(SLOT));
        self.budget.unkeep(begun);
        shard.count(Counter::BytesMoved, bytes);
        let (gone, rest) = (Extent { n: begun, ..e }, Extent { first: e.first + begun, n: e.n - begun });
        let stocked = gone.slots().filter(|&i| slots.has(i, flag::FRESH)).count();
        self.ahead.prefault_budget.note_used(stocked);
        let (target, first) = self.place(to);
        for (i, source) in gone.slots().enumerate().take(whole) {
            if slots.has(source, flag::AHEAD) {
                target.slots.share(first + i, flag::AHEAD);
            }
        }
        gone.slots().for_each(|i| _ = slots.clear(i, flag::IN_USE));
        let now = self.now_ms();
        self.put_back(shard, Extent { n: whole, ..e }, Kind::Unbacked, now);
        self.put_back_empty(shard, Extent { first: e.first + whole, n: begun - whole }, now);
        (whole, rest)
    }

    /// Moves frames from `from`, whole slots of memory that the program has given up, into free slots: how many slots
    /// from the first on. `None`: there is no room for them.
    pub(crate) fn take_frames(&self, cpu: usize, from: Span) -> Option<usize> {
        let shard = self.shard(cpu);
        let e = shard.lock_soon()?.take_holes(from.bytes() / SLOT, 1, &self.sys)?;
        let bytes = self.move_bytes(shard, from, shard.span(e).start);
        let whole = bytes / SLOT;
        let begun = bytes.div_ceil(SLOT);
        let kept = Extent { n: whole, ..e };
        let in_part = Extent { first: e.first + whole, n: begun - whole };
        let rest = Extent { first: e.first + begun, n: e.n - begun };
        self.budget.keep(whole);
        shard.count(Counter::BytesKept, whole * SLOT);
        let stamp = self.now_ms();
        self.put_back(shard, kept, Kind::Dirty, stamp);
        self.put_back_empty(shard, in_part, stamp);
        self.put_back(shard, rest, Kind::Unbacked, stamp);
        match whole {
            0 => {}
            _ if self.is_due(shard, stamp) => self.want_worker_now(),
            _ => self.want_worker(),
        }
        Some(whole)
    }

    /// Brings a new frame of the kernel's to slot `i` of the program's: made in the arena, zeroed by the kernel, and
    /// moved. One that cannot move goes back, so that no more are idle than the budget says. Whether one was made.
    pub(crate) fn bring_new(&self, cpu: usize, i: usize) -> bool {
        // On its way it is there beside what it is for, which the program may touch meanwhile.
        if !self.can_move() || self.is_looked_at() || self.budget.room() == 0 {
            return false;
        }
        let shard = self.shard(cpu);
        let hole = shard.lock_soon().and_then(|mut arena| arena.take_holes(1, 1, &self.sys));
        let Some(e) = hole else { return false };
        self.make(shard, e);
        let (sent, rest) = self.send(shard, e, i * SLOT);
        shard.count(Counter::BytesMovedAhead, sent * SLOT);
        if rest.n > 0 {
            self.return_to_kernel(shard, rest, self.now_ms());
        }
        true
    }
}
