//! Background steps on memory that is not handed out yet: while small extents are asked for, a few zeroed slots are
//! kept ready for the next ones.

use faultless_base::sys::{Huge, Sys, Usage};
use faultless_base::{PAGE, SLOT};

use crate::frame::buddy::Kind;
use crate::frame::extent::Extent;
use crate::frame::slot::flag;
use crate::predict::huge_cost::PROBES;
use crate::space::progress::Progress;
use crate::space::{Shard, Space};
use crate::state::growths::STOCK_MAX;
use faultless_page::stats::Counter;

/// Time between looks at the demand.
const LOOK_US: u64 = 400;

impl<S: Sys> Space<S> {
    /// Keeps a few zeroed slots ready while small extents are asked for.
    pub(crate) fn stock_step(&self) -> Progress {
        let demand = self.ahead.take_demand();
        let Some(mut growths) = self.ahead.growths() else { return Progress::Wait(LOOK_US) };
        let Some(want) = growths.stock_for(demand) else { return Progress::Idle };
        drop(growths);
        let zeroed = self.zeroed();
        // The host takes its time for a cold one, and this processor with it, however idle the thread is.
        let cold = self.huge_cost.is_cold(self.now_ms()) == Some(true);
        let full = zeroed >= want || self.budget.idle() >= want || self.budget.room() == 0;
        if full || cold || !self.ahead.prefault_budget.take() {
            return Progress::Wait(LOOK_US);
        }
        let shard = self.shard(0);
        let hole = shard.lock_soon().and_then(|mut arena| arena.take_holes(1, 1, &self.sys));
        match hole {
            Some(e) => {
                self.fill(shard, e);
                Progress::Worked
            }
            None => {
                self.ahead.prefault_budget.give_back();
                Progress::Wait(LOOK_US)
            }
        }
    }

    /// Whether huge pages are cold; if neither touches nor the program's own faults tell, touches up to three and keeps
    /// them in stock. In any thread.
    pub(crate) fn finds_cold(&self) -> bool {
        for _ in 0..PROBES {
            if !self.goes_ahead() {
                break;
            }
            if let Some(cold) = self.huge_cost.is_cold(self.now_ms()) {
                return self.note_cold(cold);
            }
            if self.is_still_warm() {
                return false;
            }
            let shard = self.shard(0);
            let full = self.budget.room() == 0 || self.budget.idle() >= STOCK_MAX;
            let arena = if full { None } else { shard.lock_soon() };
            let hole = arena.and_then(|mut arena| arena.take_holes(1, 1, &self.sys));
            let Some(e) = hole else { return false };
            self.fill(shard, e);
        }
        self.note_cold(self.huge_cost.is_cold(self.now_ms()) == Some(true))
    }

    /// A touch has told whether huge pages are cold: from here on the program's own faults tell.
    pub(crate) fn note_cold(&self, cold: bool) -> bool {
        match self.own_use().filter(|_| !cold) {
            Some((usage, resident)) => self.own_cost.begin(usage, resident, self.now_ms()),
            None => self.own_cost.end(),
        }
        cold
    }

    /// Whether huge pages were warm, and the program's own faults say that they still are.
    pub(crate) fn is_still_warm(&self) -> bool {
        self.own_cost.has_begun()
            && self
                .own_use()
                .is_some_and(|(usage, resident)| self.own_cost.is_warm(usage, resident, self.now_ms()))
    }

    fn own_use(&self) -> Option<(Usage, usize)> {
        Some((self.sys.usage()?, self.sys.resident_bytes()?))
    }

    /// Makes a hole in transit zeroed memory, which is free then.
    pub(crate) fn fill(&self, shard: &Shard, e: Extent) {
        self.make(shard, e, Huge::Advised);
        // Whether the program will use it densely is as unknown as for any other memory it never had.
        shard.slots.mark(e.first, flag::FRESH);
        self.put_back(shard, e, Kind::Zeroed, self.now_ms());
    }

    /// The same for memory that stays in transit: a huge page, or small ones.
    pub(crate) fn make(&self, shard: &Shard, e: Extent, huge: Huge) {
        let span = shard.span(e);
        let slots = shard.slots;
        match huge {
            Huge::Advised if slots.mark(e.first, flag::ADVISED) & flag::ADVISED != 0 => {}
            Huge::Advised => self.sys.huge(span, huge),
            Huge::Refused => {
                slots.clear(e.first, flag::ADVISED);
                self.sys.huge(span, huge);
            }
        }
        self.budget.keep(1);
        self.touch_new(shard, span.start, huge);
        slots.mark(e.first, flag::AHEAD);
    }

    /// The same for a place that has this advice, wherever it is.
    pub(crate) fn touch_new(&self, counting: &Shard, at: usize, huge: Huge) {
        self.touch_slot(counting, at, huge, |at| {
            self.sys.touch(at);
            true
        });
        counting.count(Counter::BytesTouchedAhead, SLOT);
    }

    /// Has a slot's memory come by `touch`: by one touch where it is a huge page, else by one of each page. False: it
    /// cannot be touched.
    pub(crate) fn touch_slot(
        &self,
        counting: &Shard,
        at: usize,
        huge: Huge,
        touch: impl Fn(usize) -> bool,
    ) -> bool {
        let (start, cpu) = (self.sys.now_ns(), self.sys.thread_ns());
        let is_done = match huge {
            Huge::Advised => touch(at),
            Huge::Refused => (at..at + SLOT).step_by(PAGE).all(touch),
        };
        if is_done {
            counting.count(Counter::TouchNs, (self.sys.now_ns() - start) as usize);
            let (ns, now) = (self.sys.thread_ns() - cpu, self.now_ms());
            match huge {
                Huge::Advised => self.huge_cost.note_huge(ns, now),
                Huge::Refused => self.huge_cost.note_small(ns, now),
            }
        }
        is_done
    }
}
