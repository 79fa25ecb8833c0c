//! What mmap, munmap, mremap, mprotect and madvise mean for memory of the arena.

use core::sync::atomic::Ordering::Relaxed;

use faultless_base::sync::Guard;
use faultless_base::sys::Sys;
use faultless_base::{PAGE, SLOT, SLOT_PAGES, Span};

use crate::arena::{Arena, Extent, Live, any_live, set_live};
use crate::buddy::Kind;
use crate::purpose::Purpose;
use crate::slot::{State, flag};
use crate::space::{Shard, Space, Unmap};
use crate::stats::Counter;

/// What a call of the program does to the pages of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Their attributes change: protection, locking, policy, inheritance…
    Attributes,
    /// Their content goes; they read as zero.
    Dropped,
    /// The program itself asks for huge pages.
    HugeAdvised,
}

impl<S: Sys> Space<S> {
    /// Zeroed memory of `bytes` bytes (a multiple of the page size, at least a slot) at a multiple of `align`
    /// slots, as a fresh private anonymous mapping would give it. `None`: ask the kernel.
    pub fn map(&self, cpu: usize, bytes: usize, align: usize) -> Option<usize> {
        let shard = self.shard(cpu);
        self.program_cpu.store(cpu + 1, Relaxed);
        let n = bytes.div_ceil(SLOT);
        let rest = bytes % SLOT;
        let (shard, e) = self.take(shard, n, align, Purpose::Map)?;
        if rest != 0 && !self.shorten(shard, e, rest) {
            return None;
        }
        let whole = Extent { first: e.first, n: bytes / SLOT };
        if !self.prepare(shard, whole, Purpose::Map, State::Lent) {
            self.unmap(Span { start: shard.span(whole).end, end: shard.span(e).end });
            return None;
        }
        self.note_growth(shard, whole);
        shard.count(Counter::MmapServed, 1);
        shard.count(Counter::MmapBytes, bytes);
        Some(shard.base + e.first * SLOT)
    }

    /// The last slot of `e` is wanted for its first `rest` bytes only: they become ordinary small pages, the
    /// others stay closed.
    fn shorten(&self, shard: &Shard, e: Extent, rest: usize) -> bool {
        let last = e.first + e.n - 1;
        let one = Extent { first: last, n: 1 };
        let span = shard.span(one);
        if shard.slots.was(last) != State::Hole {
            self.budget.unkeep(1);
        }
        let closed = self.sys.reset(span) && self.sys.open(Span::new(span.start, rest));
        shard.slots.clear(last, flag::OPEN);
        shard.slots.clear(last, flag::ADVISED);
        if !closed {
            shard.count(Counter::KernelRefused, 1);
            shard.lock().give(one, Kind::Hole, 0);
            let others = Extent { first: e.first, n: e.n - 1 };
            let slots = shard.slots;
            shard.groups(
                others,
                |i| slots.was(i),
                |g, was| {
                    shard.lock().give(g, Kind::of(was).unwrap_or(Kind::Hole), 0);
                },
            );
            return false;
        }
        let mut arena = shard.lock();
        *arena.live(last) = Live::default();
        set_live(arena.live(last), Span::new(0, rest), true);
        shard.slots.mark(last, flag::TAINTED | flag::FRESH);
        shard.slots.set(last, State::Partial);
        drop(arena);
        shard.count(Counter::BytesFreshSmall, rest);
        true
    }

    /// The part of `span` inside the arena is unmapped.
    pub fn unmap(&self, span: Span) {
        self.each_part(span, |shard, part, e| {
            let mut whole = Extent { first: e.first, n: 0 };
            for i in e.slots() {
                let slot = shard.span(Extent { first: i, n: 1 });
                if self.detach(shard, i, slot.clip(part)) {
                    if whole.n == 0 {
                        whole.first = i;
                    }
                    whole.n += 1;
                } else if whole.n > 0 {
                    self.take_back(shard, whole, self.unmap_mode());
                    whole.n = 0;
                }
            }
            if whole.n > 0 {
                self.take_back(shard, whole, self.unmap_mode());
            }
        });
    }

    /// Ends the program's use of `part` of slot `i`: true when nothing of the slot is left to it; then the slot
    /// is in passage.
    fn detach(&self, shard: &Shard, i: usize, part: Span) -> bool {
        let slot = shard.span(Extent { first: i, n: 1 });
        if part == slot && shard.slots.detach(i, State::Lent) {
            return true;
        }
        let mut arena = shard.lock();
        match shard.slots.state(i) {
            State::Lent => {
                *arena.live(i) = [u64::MAX; SLOT_PAGES / 64];
                self.make_partial(shard, i);
            }
            State::Partial => {}
            _ => return false,
        }
        // The pages stay noted as live until they are gone: whoever else gives the last ones back must not hand on
        // a slot in which this thread is still at work.
        let pages = Span { start: part.start - slot.start, end: part.end - slot.start };
        let mut left = *arena.live(i);
        set_live(&mut left, pages, false);
        if left != Live::default() {
            drop(arena);
            self.wait_while_busy(slot);
            let gone = if self.is_retired() { self.sys.release(part) } else { self.sys.reset(part) };
            if !gone {
                self.sys.discard(part);
            }
            arena = shard.lock();
        }
        set_live(arena.live(i), pages, false);
        let empty = *arena.live(i) == Live::default();
        if empty {
            shard.slots.set(i, State::Passage);
        }
        empty
    }

    /// A wholly lent slot is about to be lent in part. Such slots go back to the kernel when they are free.
    fn make_partial(&self, shard: &Shard, i: usize) {
        let before = shard.slots.mark(i, flag::TAINTED | flag::FRESH);
        if before & (flag::FRESH | flag::CHARGED) == 0 {
            self.budget.unuse(1);
        }
        if shard.slots.clear(i, flag::CHARGED) {
            self.budget.discharge(1);
        }
        shard.slots.set(i, State::Partial);
    }

    /// The program is about to put a mapping of its own over `span` (`MAP_FIXED`). Slots in free lists leave
    /// them; all are marked so that they go back to the kernel in the end.
    pub fn claim(&self, span: Span) {
        self.each_part(span, |shard, part, e| {
            for i in e.slots() {
                let one = Extent { first: i, n: 1 };
                let slot = shard.span(one);
                let pages = slot.clip(part);
                let inner = Span { start: pages.start - slot.start, end: pages.end - slot.start };
                let mut arena = self.lock_settled(shard, i);
                arena.reach(i + 1, &self.sys);
                if arena.take_at(one) {
                    let kept = shard.slots.was(i) != State::Hole;
                    self.budget.unkeep(kept as usize);
                    self.reset(shard, one);
                    *arena.live(i) = Live::default();
                    set_live(arena.live(i), inner, true);
                    shard.slots.mark(i, flag::TAINTED | flag::FRESH);
                    shard.slots.set(i, State::Partial);
                } else if shard.slots.state(i) == State::Partial {
                    set_live(arena.live(i), inner, true);
                }
                drop(arena);
                self.change(pages, Change::Attributes);
            }
        });
    }

    /// The shard's lock at a moment when slot `i` is not on its way: some thread may be about to zero it, or to
    /// give its memory back, and would do so to what is put there now.
    fn lock_settled<'a>(&self, shard: &'a Shard, i: usize) -> Guard<'a, Arena> {
        let mut turn = 0;
        loop {
            let arena = shard.lock();
            if shard.slots.state(i) != State::Passage {
                return arena;
            }
            drop(arena);
            self.sys.relax(turn);
            turn += 1;
        }
    }

    /// Whether no page of `span` inside the arena belongs to the program.
    pub fn is_unmapped(&self, span: Span) -> bool {
        let mut free = true;
        self.each_part(span, |shard, part, e| {
            for i in e.slots() {
                let slot = shard.span(Extent { first: i, n: 1 });
                let pages = slot.clip(part);
                let inner = Span { start: pages.start - slot.start, end: pages.end - slot.start };
                let mut arena = self.lock_settled(shard, i);
                free &= match shard.slots.state(i) {
                    State::Partial => !any_live(arena.live(i), inner),
                    state => state.is_free(),
                };
            }
        });
        free
    }

    /// The first pages of `span` inside the arena, as far as the end of a slot, that belong to nobody.
    pub fn first_gap(&self, span: Span) -> Option<Span> {
        let mut found = None;
        self.each_part(span, |shard, part, e| {
            for i in e.slots() {
                if found.is_some() {
                    return;
                }
                let slot = shard.span(Extent { first: i, n: 1 });
                let pages = slot.clip(part);
                found = match shard.slots.state(i) {
                    State::Lent | State::Block | State::Runs => None,
                    State::Partial => {
                        let mut arena = shard.lock();
                        let live = arena.live(i);
                        let is_live = |at: &usize| any_live(live, Span::new(at - slot.start, PAGE));
                        let mut pages = (pages.start..pages.end).step_by(PAGE).skip_while(is_live).peekable();
                        let start = pages.peek().copied();
                        start.map(|start| Span::new(start, pages.take_while(|at| !is_live(at)).count() * PAGE))
                    }
                    _ => Some(pages),
                };
            }
        });
        found
    }

    /// A call of the program changes the pages of `span`. The background thread is out of them when this
    /// returns, and attributes make the memory go back to the kernel in the end. Takes no lock.
    pub fn change(&self, span: Span, change: Change) {
        self.each_part(span, |shard, part, e| {
            for i in e.slots() {
                match (change, shard.slots.state(i)) {
                    (_, State::Hole | State::Dirty | State::Zeroed | State::Passage) => {}
                    (Change::Attributes, _) => {
                        shard.slots.share(i, flag::TAINTED);
                    }
                    (Change::Dropped, State::Lent | State::Block) => {
                        let slot = shard.span(Extent { first: i, n: 1 });
                        if slot.clip(part) == slot {
                            shard.slots.clear(i, flag::SIGNED);
                        }
                        // How much is left of it is not known: it is no longer use, but a charge.
                        let before = shard.slots.share(i, flag::FRESH);
                        if before & (flag::FRESH | flag::CHARGED) == 0 {
                            self.budget.unuse(1);
                            if before & flag::ADVISED != 0 {
                                self.budget.charge(1);
                                shard.slots.share(i, flag::CHARGED);
                            }
                        }
                    }
                    (Change::HugeAdvised, State::Lent | State::Block) => {
                        let slot = shard.span(Extent { first: i, n: 1 });
                        if slot.clip(part) == slot {
                            // What it never had it now has asked for itself.
                            let fresh = shard.slots.share(i, flag::ADVISED) & flag::FRESH != 0;
                            self.budget.discharge((fresh && shard.slots.clear(i, flag::CHARGED)) as usize);
                        }
                    }
                    _ => {}
                }
            }
        });
        self.wait_while_busy(Span { start: span.start & !(SLOT - 1), end: span.end });
    }

    /// Moves the pages of the mapping `from` to a new place of `bytes` bytes in the arena, by page tables, as
    /// mremap does when it may move: the new address. `None`: ask the kernel. Only for whole slots that are lent
    /// and whose attributes are those of a fresh mapping.
    pub fn move_mapping(&self, cpu: usize, from: Span, bytes: usize) -> Option<usize> {
        let aligned = from.bytes() % SLOT == 0 && from.start % SLOT == 0 && bytes % SLOT == 0;
        let (n, old) = (bytes / SLOT, from.bytes() / SLOT);
        if !aligned || old == 0 || n < old || from.clip(self.span()) != from {
            return None;
        }
        let (shard, first) = self.locate(from.start);
        let old = Extent { first, n: old };
        let whole = shard.span(old) == from && first + old.n <= shard.slots.len();
        if !whole || !self.is_plain(shard, old, State::Lent) {
            return None;
        }
        let to = self.shard(cpu);
        let e = self.relocate(shard, old, to, n, State::Lent, self.unmap_mode())?;
        Some(to.span(e).start)
    }

    /// Makes the mapping `from` `bytes` bytes long where it stands, if the slots behind it are free. Both sizes
    /// are multiples of the slot size, else nothing happens.
    pub fn extend(&self, from: Span, bytes: usize) -> bool {
        if from.clip(self.span()) != from || (from.start | from.bytes() | bytes) % SLOT != 0 || from.is_empty() {
            return false;
        }
        let (shard, first) = self.locate(from.start);
        let old = Extent { first, n: from.bytes() / SLOT };
        let more = Extent { first: first + old.n, n: bytes / SLOT - old.n };
        let whole = more.first + more.n <= shard.slots.len() && self.is_plain(shard, old, State::Lent);
        if !whole || !shard.lock().take_at(more) || !self.prepare(shard, more, Purpose::Map, State::Lent) {
            return false;
        }
        self.note_growth(shard, more);
        shard.count(Counter::ReallocInPlace, 1);
        true
    }

    /// Whether all slots of `e` are in `state` and have the attributes of a fresh mapping.
    pub(crate) fn is_plain(&self, shard: &Shard, e: Extent, state: State) -> bool {
        e.slots().all(|i| shard.slots.state(i) == state && !shard.slots.has(i, flag::TAINTED | flag::FORKED))
    }

    /// Moves the pages of `old` by page tables into the first of `n` fresh slots, handed out as `state`, and
    /// takes the old place back. `None`: nothing changed.
    pub(crate) fn relocate(
        &self,
        shard: &Shard,
        old: Extent,
        to: &Shard,
        n: usize,
        state: State,
        unmap: Unmap,
    ) -> Option<Extent> {
        let e = to.lock().take_holes(n, 1, &self.sys)?;
        if !self.prepare(to, e, Purpose::Copy, State::Passage) {
            return None;
        }
        for i in old.slots() {
            shard.slots.set(i, State::Passage);
        }
        self.wait_while_busy(shard.span(old));
        if !self.sys.migrate(shard.span(old), to.span(e).start) {
            shard.count(Counter::KernelRefused, 1);
            old.slots().for_each(|i| shard.slots.set(i, state));
            self.take_back(to, e, self.unmap_mode());
            return None;
        }
        for k in 0..old.n {
            self.inherit(shard, old.first + k, to, e.first + k);
        }
        for i in e.first..e.first + n {
            to.slots.set(i, state);
        }
        // The old place is mapped, open and empty now.
        if unmap == Unmap::Strict && self.sys.close(shard.span(old)) {
            for i in old.slots() {
                shard.slots.clear(i, flag::OPEN);
            }
        }
        shard.lock().give(old, Kind::Hole, 0);
        shard.count(Counter::ReallocMoved, 1);
        Some(e)
    }

    /// What is known of the memory of slot `i` holds for slot `j` now; the memory itself has moved there.
    fn inherit(&self, shard: &Shard, i: usize, to: &Shard, j: usize) {
        if to.slots.clear(j, flag::CHARGED) {
            self.budget.discharge(1);
        }
        for known in [flag::ADVISED, flag::FRESH, flag::CHARGED, flag::AHEAD] {
            if shard.slots.has(i, known) {
                to.slots.mark(j, known);
            } else {
                to.slots.clear(j, known);
            }
        }
        shard.slots.clear(i, flag::FRESH | flag::CHARGED | flag::SIGNED | flag::AHEAD);
    }

    /// The kernel moved or replaced the pages of `from` and left nothing there: reserves the addresses again, and
    /// takes the slots out of use. Where somebody else was put there in the meantime, the place is theirs now.
    pub fn vacated(&self, from: Span) {
        self.each_part(from, |shard, _, e| {
            for i in e.slots() {
                let slot = shard.span(Extent { first: i, n: 1 }).clip(from);
                self.change(slot, Change::Attributes);
                if self.sys.reclaim(slot) {
                    self.unmap(slot);
                }
            }
        });
    }
}
