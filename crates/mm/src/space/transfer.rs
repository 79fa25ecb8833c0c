//! Frames move: free ones into mappings of the program, and those of a mapping that ends into the free lists.
//!
//! A frame moves as a whole huge page where both sides have one there; its address changes, nothing is copied. A slot
//! that it leaves is a hole. The kernel refuses pages that are shared, pinned or locked, and never replaces a page.

use faultless_base::sys::{Huge, Sys};
use faultless_base::{SLOT, Slot, Span};

use crate::frame::buddy::Kind;
use crate::frame::extent::Extent;
use crate::frame::purpose::Purpose;
use crate::frame::slot::{State, flag};
use crate::space::{Shard, Space};
use faultless_page::stats::Counter;

/// How many slots were handed out, or have moved.
#[derive(Clone, Copy, Default)]
pub(crate) struct HandedOut {
    /// Those that were zero.
    pub(crate) ready: usize,
    /// Those of them that were zeroed ahead.
    pub(crate) ahead: usize,
    /// Those that were dirty.
    pub(crate) dirty: usize,
}

impl HandedOut {
    /// All that had memory.
    pub(crate) fn slots(self) -> usize {
        self.ready + self.dirty
    }
}

/// An extent of which memory has moved away, from the front on.
pub(crate) struct Split {
    /// Slots that have moved as a whole: their old place is empty.
    pub(crate) whole: Extent,
    /// One of which a part has moved, if there is such.
    pub(crate) part: Extent,
    /// Slots that are as they were.
    pub(crate) rest: Extent,
}

impl Split {
    pub(crate) fn at(e: Extent, bytes: usize) -> Self {
        let (whole, begun) = (bytes / SLOT, bytes.div_ceil(SLOT));
        Self { whole: e.front(whole), part: e.front(begun).behind(whole), rest: e.behind(begun) }
    }

    /// Slots of which memory has moved.
    pub(crate) fn begun(&self) -> usize {
        self.whole.n + self.part.n
    }
}

/// What became of frames that were to move.
pub(crate) struct Sent {
    /// How many have moved as a whole.
    pub(crate) n: usize,
    /// Those that stay, in transit.
    pub(crate) rest: Extent,
}

impl<S: Sys> Space<S> {
    /// Whether this process can move frames at all.
    pub(crate) fn can_move(&self) -> bool {
        !self.moves.refused.is_set()
    }

    /// Whether idle frames may move into the program's memory now, if there are any.
    fn has_frames_to_move(&self) -> bool {
        self.can_move() && !self.is_looked_at() && self.budget.idle() > 0
    }

    /// Moves free frames, zeroed, to `n` slots of the program's at `to`: how many slots from the first on. Less than
    /// `n` if there are no more frames, or a page is there already.
    pub(crate) fn move_frames(&self, cpu: usize, to: usize, n: usize) -> HandedOut {
        let mut moved = HandedOut::default();
        if !self.may_use(self.shard(cpu)) {
            return moved;
        }
        for kind in [Kind::Zeroed, Kind::Dirty] {
            while moved.slots() < n
                && let Some((shard, e)) = self.take_frame(self.shard(cpu), n - moved.slots(), kind)
            {
                let ahead = self.zeroed_ahead(shard, e);
                if kind == Kind::Dirty {
                    self.zero_now(shard, shard.span(e));
                }
                let sent = self.send(shard, e, to + moved.slots() * SLOT);
                self.put_back(shard, sent.rest, Kind::Zeroed, self.now_ms());
                match kind {
                    Kind::Dirty => moved.dirty += sent.n,
                    _ => moved.ready += sent.n,
                }
                moved.ahead += ahead.min(sent.n);
                if sent.n < e.n {
                    break;
                }
            }
            while moved.slots() < n && self.move_from_pool(kind, to + moved.slots() * SLOT) {
                match kind {
                    Kind::Dirty => moved.dirty += 1,
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
        self.has_frames_to_move().then(|| self.take_near_from_pool(kind)).flatten()
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
    pub(crate) fn count_moved(&self, e: Extent, moved: HandedOut) {
        self.program().count(Counter::BytesZeroed, moved.ready * SLOT);
        self.count_zeroes(self.program(), self.program().span(e), Purpose::Map, moved);
    }

    /// Free frames in transit, up to `n` in one piece, of the shard at hand or else of another one.
    fn take_frame<'a>(&'a self, own: &'a Shard, n: usize, kind: Kind) -> Option<(&'a Shard, Extent)> {
        if !self.has_frames_to_move() {
            return None;
        }
        let take = |shard: &Shard| shard.lock_soon()?.take_some(n, kind);
        self.shards_near(own).find_map(|shard| Some((shard, take(shard)?)))
    }

    /// Brings idle frames with old bytes to the holes of `e`, in transit: as many as the program may get at once.
    pub(crate) fn gather(&self, shard: &Shard, e: Extent) {
        if !self.may_use(shard) {
            return;
        }
        let is_hole = |i: &Slot| shard.slots.was(*i) == State::Unbacked;
        let mut most = self.budget.trust();
        let end = e.end();
        let mut at = e.first;
        while let Some(first) = Extent::between(at, end).slots().find(is_hole) {
            let holes = Extent::between(first, end);
            let n = holes.slots().take_while(is_hole).count().min(most);
            let Some((from, frames)) = (n > 0).then(|| self.take_frame(shard, n, Kind::Dirty)).flatten() else {
                if n == 0 || !self.gather_from_pool(shard, first) {
                    return;
                }
                (at, most) = (first + 1, most - 1);
                continue;
            };
            let bytes = self.move_bytes(from, from.span(frames), shard.slot(first).start);
            let moved = Split::at(frames, bytes);
            // A frame of which a part has moved is old bytes on this side, and empty on the other.
            holes.front(moved.begun()).slots().for_each(|i| shard.slots.fill(i));
            shard.count(Counter::BytesMoved, bytes);
            self.put_back(from, moved.whole, Kind::Unbacked, 0);
            self.put_back_empty(from, moved.part, 0);
            self.put_back(from, moved.rest, Kind::Dirty, self.now_ms());
            if moved.whole.n < frames.n {
                return;
            }
            at = first + moved.whole.n;
            most -= moved.whole.n;
        }
    }

    /// Brings one of the pool to the hole `i`; whether it did.
    fn gather_from_pool(&self, shard: &Shard, i: Slot) -> bool {
        let Some(at) = self.take_idle_from_pool(Kind::Dirty) else { return false };
        let bytes = self.send_from_pool(at, Kind::Dirty, shard.slot(i).start);
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
            self.moves.refused.set();
            shard.count(Counter::MovesRefused, 1);
        }
        bytes.unwrap_or(0)
    }

    /// Moves zeroed frames in transit.
    fn send(&self, shard: &Shard, e: Extent, to: usize) -> Sent {
        let slots = shard.slots;
        self.verify(shard.span(e));
        let bytes = self.move_bytes(shard, shard.span(e), to);
        let moved = Split::at(e, bytes);
        self.budget.unkeep(moved.begun());
        shard.count(Counter::BytesMoved, bytes);
        let gone = e.front(moved.begun());
        let stocked = gone.slots().filter(|&i| slots.has(i, flag::FRESH)).count();
        self.ahead.prefault_budget.note_used(stocked);
        let (target, first) = self.place(to);
        for (i, source) in moved.whole.slots().enumerate() {
            if slots.has(source, flag::AHEAD) {
                target.slots.mark(first + i, flag::AHEAD);
            }
        }
        gone.slots().for_each(|i| _ = slots.clear(i, flag::IN_USE));
        let now = self.now_ms();
        self.put_back(shard, moved.whole, Kind::Unbacked, now);
        self.put_back_empty(shard, moved.part, now);
        Sent { n: moved.whole.n, rest: moved.rest }
    }

    /// Moves frames from `from`, whole slots of memory that the program has given up, into free slots: how many bytes
    /// from the first on are gone from there, of which whole slots are kept. `None`: there is no room for them.
    pub(crate) fn take_frames(&self, cpu: usize, from: Span) -> Option<usize> {
        let (keeper, n) = self.keeper(cpu, from);
        let Some(shard) = keeper else { return Some(0) };
        let from = Span::new(from.start, n * SLOT);
        let e = shard.lock_soon()?.take_holes(n, 1, &self.sys)?;
        let bytes = self.move_bytes(shard, from, shard.span(e).start);
        let moved = Split::at(e, bytes);
        let whole = moved.whole.n;
        self.budget.keep(whole);
        shard.count(Counter::BytesKept, whole * SLOT);
        let stamp = self.now_ms();
        self.put_back(shard, moved.whole, Kind::Dirty, stamp);
        self.put_back_empty(shard, moved.part, stamp);
        self.put_back(shard, moved.rest, Kind::Unbacked, stamp);
        match whole {
            0 => {}
            _ if self.is_due(shard, stamp) => self.want_worker_now(),
            _ => self.want_worker(),
        }
        Some(bytes)
    }

    /// Brings a new frame of the kernel's to slot `i` of the program's: made in the arena, zeroed by the kernel, and
    /// moved. One that cannot move goes back, so that no more are idle than the budget says. Whether one was made.
    pub(crate) fn bring_new(&self, cpu: usize, i: Slot, huge: Huge) -> bool {
        // On its way it is there beside what it is for, which the program may touch meanwhile.
        if !self.can_move() || self.is_looked_at() || self.budget.room() == 0 || !self.sys.may_move() {
            return false;
        }
        let shard = self.shard(cpu);
        let hole = shard.lock_soon().and_then(|mut arena| arena.take_holes(1, 1, &self.sys));
        let Some(e) = hole else { return false };
        self.make(shard, e, huge);
        let sent = self.send(shard, e, self.program().slot(i).start);
        shard.count(Counter::BytesMovedAhead, sent.n * SLOT);
        if !sent.rest.is_empty() {
            self.return_to_kernel(shard, sent.rest, self.now_ms());
        }
        true
    }
}
