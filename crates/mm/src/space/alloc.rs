//! The way of memory to its user: finding slots and making them ready.
//!
//! Slots are found under a shard's lock and are then in transit. Opening, zeroing and advising them happens without
//! any lock.

use faultless_base::sys::{Huge, Sys};
use faultless_base::{Pages, SLOT, Slot, Span, probe};

use crate::frame::extent::Extent;
use crate::frame::purpose::{Need, Purpose};
use crate::frame::slot::{State, flag};
use crate::predict::huge_cost::{LARGE, PROBES};
use crate::space::transfer::HandedOut;
use crate::space::{Shard, Space};
use crate::state::ahead::SMALL_DEMAND;
use crate::state::announced::expected;
use faultless_page::stats::Counter;

/// How long a request waits for memory that the scrubber has just now.
const SCRUBBER_WAIT_NS: u64 = 500_000;

impl<S: Sys> Space<S> {
    /// Slots in transit: with memory behind them if there are, else holes. Memory of another shard is better than
    /// none. Another shard is also tried where a lock is taken.
    pub(crate) fn take<'a>(
        &'a self,
        shard: &'a Shard,
        n: usize,
        align: usize,
        purpose: Purpose,
    ) -> Option<(&'a Shard, Extent)> {
        let need = purpose.need();
        self.ahead.note_request(n);
        let sparse =
            need == Need::Zero && shard.sparse.is_granted() || !self.is_trusted_with(n) || !self.may_use(shard);
        let resident = |s: &'a Shard| Some((s, s.lock_soon()?.take_resident(n, align, need)?));
        if !sparse {
            if let Some(found) = resident(shard) {
                return Some(found);
            }
            self.wait_for_scrubber(n);
            if self.budget.idle() >= n
                && let Some(found) = self.shards_near(shard).find_map(resident)
            {
                return Some(found);
            }
        }
        let holes = self.shards_from(shard).find_map(|s| {
            let mut arena = s.lock_soon()?;
            Some((s, arena.take_holes(n, align, &self.sys)?))
        });
        match holes {
            // What is idle lies in pieces.
            Some((shard, e)) if !sparse => self.gather(shard, e),
            Some(_) => {}
            None => shard.count(Counter::KernelNoSpace, 1),
        }
        holes
    }

    /// Whether the program may get `n` slots of idle memory at once.
    pub(crate) fn is_trusted_with(&self, n: usize) -> bool {
        if self.budget.idle() > 0 && self.budget.trust() < n {
            self.make_room(n);
        }
        self.budget.trust() >= n
    }

    /// When enough memory is idle for `n` slots but some of it is with the scrubber, calls it back and waits a
    /// fraction of a millisecond.
    fn wait_for_scrubber(&self, n: usize) {
        if !self.scrubber.has_slots() || self.budget.idle() < n {
            return;
        }
        self.scrubber.recall();
        let end = self.sys.now_ns() + SCRUBBER_WAIT_NS;
        while self.scrubber.has_slots() && self.sys.now_ns() < end {
            self.sys.relax(0);
        }
    }

    /// Makes an extent in transit ready for its user and hands it out as `state`.
    pub(crate) fn prepare(&self, shard: &Shard, e: Extent, purpose: Purpose, state: State) {
        let slots = shard.slots;
        let mut out = HandedOut::default();
        e.groups(
            |i| slots.was(i),
            |g, was| match was {
                State::Dirty => {
                    self.hand_out_dirty(shard, g, purpose.need());
                    out.dirty += g.n;
                }
                State::Zeroed => {
                    self.hand_out_zeroed(shard, g, purpose.need());
                    out.ready += g.n;
                    out.ahead += self.zeroed_ahead(shard, g);
                }
                _ => self.hand_out_hole(shard, g, shard.span(g)),
            },
        );
        self.mark_brought(shard, e);
        e.slots().for_each(|i| slots.set(i, state));
        self.count_zeroes(shard, shard.span(e), purpose, out);
    }

    /// Slots in transit that were zeroed ahead. Those of the stock are zero because the kernel had to fill them.
    pub(crate) fn zeroed_ahead(&self, shard: &Shard, e: Extent) -> usize {
        let slots = shard.slots;
        e.slots().filter(|&i| slots.was(i) == State::Zeroed && !slots.has(i, flag::FRESH)).count()
    }

    /// Memory at `span` was handed out, some of it there already.
    pub(crate) fn count_zeroes(&self, shard: &Shard, span: Span, purpose: Purpose, out: HandedOut) {
        let n = span.bytes() / SLOT;
        let hot = if purpose.need() == Need::Zero { out.dirty } else { 0 };
        if out.ahead + hot > 0 {
            let counter = match purpose {
                Purpose::Map => Counter::ZeroedForMap,
                Purpose::Calloc => Counter::ZeroedForCalloc,
                // Dirty memory is looked for first.
                Purpose::Malloc if hot == 0 => Counter::ZeroedInstead,
                Purpose::Malloc => Counter::ZeroedForMalloc,
                Purpose::Copy => Counter::ZeroedForCopy,
                Purpose::File => Counter::ZeroedForFile,
            };
            shard.count(counter, (out.ahead + hot) * SLOT);
        }
        if purpose.need() == Need::Any {
            return self.note_unused(shard, out.ahead);
        }
        self.scrubber.pace.note_asked(n, || self.now_ms());
        let (at, bytes) = (span.start, span.bytes());
        if out.ready + hot < n {
            shard.count(Counter::ZeroMisses, 1);
            probe::zero_miss(at, bytes);
        } else if hot > 0 {
            shard.count(Counter::ZeroHot, 1);
            probe::zero_hot(at, bytes);
        } else if out.ready > 0 {
            shard.count(Counter::ZeroHits, 1);
            probe::zero_hit(at, bytes);
        }
    }

    fn hand_out_dirty(&self, shard: &Shard, e: Extent, need: Need) {
        let span = shard.span(e);
        // In this order: at no time does it look like the program's own.
        self.charge(shard, e);
        self.budget.unkeep(e.n);
        match need {
            Need::Zero => {
                let start = self.sys.now_ns();
                self.sys.zero_hot(span);
                shard.count(Counter::HotZeroNs, (self.sys.now_ns() - start) as usize);
                shard.count(Counter::BytesHotZeroed, span.bytes());
                self.verify(shard.span(e));
            }
            Need::Any => {
                shard.count(Counter::BytesUnzeroed, span.bytes());
                if self.check {
                    self.sys.poison(span);
                }
                for i in e.slots() {
                    self.sys.sign(shard.slot(i));
                    shard.slots.mark(i, flag::SIGNED);
                }
            }
        }
    }

    /// Memory goes to the program, which may use little of it.
    fn charge(&self, shard: &Shard, e: Extent) {
        self.budget.charge(e.n);
        e.slots().for_each(|i| {
            shard.slots.mark(i, flag::CHARGED);
        });
    }

    fn hand_out_zeroed(&self, shard: &Shard, e: Extent, need: Need) {
        self.charge(shard, e);
        self.budget.unkeep(e.n);
        // Of the supply, or of the stock.
        let stocked = e.slots().filter(|&i| shard.slots.has(i, flag::FRESH)).count();
        self.ahead.prefault_budget.note_used(stocked);
        self.note_demand(stocked);
        shard.count(Counter::BytesZeroed, e.bytes());
        self.verify(shard.span(e));
        if need == Need::Any && self.check {
            self.sys.poison(shard.span(e));
        }
    }

    /// Memory that the kernel will fill at the first touch: with huge pages as far as the budget goes. Where that is
    /// all of it, the advice is for `whole`, which contains it.
    pub(crate) fn hand_out_hole(&self, shard: &Shard, e: Extent, whole: Span) {
        self.make_room(e.n);
        // Idle memory that does not fit would have to go while these fill. It goes now, so that there is room for
        // advice.
        self.make_way(Pages::of_slots(e.n));
        self.huge_cost.note_growth(e.n);
        if e.n <= SMALL_DEMAND {
            self.note_demand(e.n);
        }
        if !shard.untouched.is_long() {
            self.announce(expected(e.n, 0));
        }
        let mut small = shard.skips_advice();
        let mut probed = 0;
        if !small {
            if e.n >= LARGE && self.goes_ahead() && !shard.untouched.is_long() {
                probed = self.probe(shard, e);
            }
            small = self.huge_cost.is_too_cold(|| self.now_ms());
        }
        let behind = e.behind(probed);
        if !small && self.is_program(shard) && self.budget.room().min(self.budget.trust()) < behind.n {
            self.keep_whole(shard.span(e).start);
        }
        let advised = probed + if small { 0 } else { self.advise(shard, behind, whole) };
        let rest = e.behind(advised);
        if rest.slots().any(|i| shard.slots.has(i, flag::ADVISED)) {
            self.sys.huge(shard.span(rest), Huge::Refused);
        }
        for i in rest.slots() {
            shard.slots.clear(i, flag::ADVISED);
            shard.slots.mark(i, flag::FRESH);
        }
        self.promise(Pages::of_slots(rest.n));
        shard.count(Counter::BytesFreshHuge, advised * SLOT);
        shard.count(Counter::BytesFreshSmall, rest.n * SLOT);
    }

    /// The program takes `n` slots of new memory: the warm reserve gives as much back to the kernel.
    pub(crate) fn announce(&self, n: usize) {
        if n > 0
            && let Some(all) = self.ahead.announced.take(n)
        {
            self.sys.announce(all.saturating_mul(SLOT));
        }
    }

    /// The program is about to get `n` slots. Where there is no room for them, the account may be out of date.
    pub(crate) fn make_room(&self, n: usize) {
        if self.budget.room().min(self.budget.trust()) < n {
            self.confirm_some();
            self.look_around();
        }
    }

    /// Touches up to three of the first slots of an extent that is about to be handed out, until it is known whether
    /// huge pages are cold. The program will touch these slots first, so no touch is wasted. How many.
    fn probe(&self, shard: &Shard, e: Extent) -> usize {
        let mut probed = 0;
        while probed < PROBES && self.huge_cost.is_cold(self.now_ms()).is_none() {
            let one = Extent::one(e.first + probed);
            // A frame that moves into a mapping needs no advice there.
            let granted = match self.is_program(shard) {
                true => self.charge_some(one),
                false => self.advise(shard, one, shard.span(one)),
            };
            if granted == 0 {
                break;
            }
            let touch = |at| {
                self.sys.touch(at);
                true
            };
            let is_there = self.touch_for_program(shard, one.first, Huge::Advised, touch);
            probed += 1;
            if !is_there {
                break;
            }
        }
        probed
    }

    /// Charges the first slots of `e`, new to a mapping of the program's, as many as the budget allows.
    fn charge_some(&self, e: Extent) -> usize {
        let granted = self.budget.charge_up_to(e.n);
        let new = e.front(granted);
        new.slots().for_each(|i| _ = self.program().slots.mark(i, flag::ADVISED | flag::FRESH | flag::CHARGED));
        granted
    }

    /// Makes slot `i`, which the program has or is about to get, present by `touch`: by a huge page, or by small ones.
    /// False: that cost nothing.
    pub(crate) fn touch_for_program(
        &self,
        shard: &Shard,
        i: Slot,
        huge: Huge,
        touch: impl Fn(usize) -> bool,
    ) -> bool {
        if self.is_program(shard) {
            // It may be gone by now: a touch would fault, a move does not.
            return self.bring_new(0, i, huge);
        }
        let is_done = self.touch_slot(shard, shard.slot(i).start, huge, touch);
        if is_done {
            shard.slots.mark(i, flag::AHEAD);
            shard.count(Counter::BytesTouchedLent, SLOT);
        }
        is_done
    }

    /// Advises huge pages for the first slots of `e`, as many as the budget allows, and charges them; for all of
    /// `whole` where these are all.
    fn advise(&self, shard: &Shard, e: Extent, whole: Span) -> usize {
        self.advise_if(shard, e, whole, |i| {
            shard.slots.mark(i, flag::ADVISED | flag::FRESH | flag::CHARGED);
            true
        })
    }

    /// The same for slots that the program has, and may give up meanwhile.
    pub(crate) fn advise_in_use(&self, shard: &Shard, e: Extent, whole: Span) -> usize {
        self.advise_if(shard, e, whole, |i| shard.slots.charge(i, flag::ADVISED))
    }

    fn advise_if(&self, shard: &Shard, e: Extent, whole: Span, is_charged: impl Fn(Slot) -> bool) -> usize {
        let granted = e.front(self.budget.charge_up_to(e.n));
        let range = granted.slots();
        if range.clone().any(|i| !shard.slots.has(i, flag::ADVISED)) {
            let at = if granted.n == e.n { whole } else { shard.span(granted) };
            self.sys.huge(at, Huge::Advised);
            if self.is_program(shard) {
                // Frames that moved in before the extent have advice now, too: it outlives them.
                let moved = Extent::inside(at).slots().filter(|i| !granted.has(*i));
                moved.for_each(|i| _ = shard.slots.mark(i, flag::ADVISED));
            }
        }
        self.budget.discharge(range.filter(|&i| !is_charged(i)).count());
        granted.n
    }

    pub(crate) fn verify(&self, span: Span) {
        if self.check {
            let bad = self.sys.first_nonzero(span);
            assert!(bad.is_none(), "memory promised as zero is not, at {bad:x?}");
        }
    }
}
