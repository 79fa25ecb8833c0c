//! Areas whose faults follow nothing: the kernel serves them, which it does faster. No fault waits for that.

use faultless_base::sync::Access;
use faultless_base::sys::mmu::Mmu;
use faultless_base::{PAGE, Span};

use super::Outcome;
use crate::region::Region;
use crate::region::area::{AreaRef, Attributes};
use crate::region::entry::Kind;
use faultless_page::stats::Counter;

impl<M: Mmu> Region<M> {
    /// Has the kernel serve the area around `addr`, of which faults follow nothing: it does that faster.
    pub(super) fn give_up(&self, addr: usize) {
        let seen = |area: AreaRef<'_>| Some((area.read()?.0.span, area.id()));
        // A thread that holds an area must not wait for a change.
        let Some((span, id)) = self.areas.find_locked(addr).and_then(seen) else { return };
        // Nor for a thread that populates: a later fault tries again.
        let Some(_range) = self.ranges.try_lock(span, Access::Exclusive) else { return };
        // It may have changed before the lock was taken.
        let same = self.areas.find_locked(addr).and_then(|area| area.read()).filter(|(view, _)| view.span == span);
        let Some((view, _)) = same.filter(|(view, _)| !view.attributes.backed && !view.attributes.kernel) else {
            return;
        };
        if self.chain().is_some() {
            // The kernel would not tell which pages come.
            self.streams.forgive(id);
            return;
        }
        let kernel = || {
            self.entries.put(span, Kind::Pages, |turn| self.mmu.relax(turn));
            self.leave_to_kernel(span)
        };
        let given = self.change(span, kernel, |_| Some(Attributes { kernel: true, ..view.attributes }));
        self.streams.forgive(id);
        self.count(Counter::RegionGivenUp, given.is_ok() as usize, 0);
    }

    /// Has the kernel serve a page that is its own already.
    pub(super) fn leave_again(&self, addr: usize, area: Span) -> Outcome {
        let page = Span::new(addr & !(PAGE - 1), PAGE);
        if !self.mmu.serves(page.start) {
            return Outcome::Forbidden;
        }
        // Of all of it, unless there is memory of another kind in it.
        match self.mmu.leave_to_kernel(area).or_else(|_| self.mmu.leave_to_kernel(page)) {
            Ok(()) => Outcome::Installed(page),
            Err(error) => Outcome::Failed(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Fault;
    use crate::predict::window::Orders;
    use crate::region::Plan;
    use faultless_base::SLOT;
    use faultless_base::sys::mmu::Rights;
    use faultless_fake::mmu::FakeMmu;
    use faultless_page::knobs::Values;
    use faultless_page::listing::{Counted, Line};
    use std::boxed::Box;

    /// Another thread populates, or changes another part of the area, and takes long: no fault waits for that.
    #[test]
    fn an_area_that_somebody_uses_is_left_to_the_kernel_later() {
        faultless_testkit::limit::limit();
        let counted = Counted::new(Box::leak(Box::default()), Box::leak(Box::new([const { Line::new() }; 4])));
        let plan = Plan { areas: 10, orders: Orders { first: 0, most: 4 } };
        let span = Span::new(1 << 40, 4 * SLOT);
        let knobs = Box::leak(Box::<Values>::default());
        let region = Region::new(FakeMmu::new(|| {}), span, plan, counted, knobs).unwrap().with_patience(3);
        let attributes =
            Attributes { rights: Rights::Write, backed: false, huge: false, random: false, kernel: false };
        region.map(span, attributes, 0).unwrap();
        let fault = |i: usize| {
            let addr = span.start + i * i * i * 7919 % 1021 * PAGE;
            region.fault(Fault { addr, wants: Rights::Write, hint: 0, cpu: 0 })
        };
        for access in [Access::Shared, Access::Exclusive] {
            let _range = region.ranges.lock(Span::new(span.start + 2 * SLOT, PAGE), access);
            assert!((0..40).all(|i| matches!(fault(i), Outcome::Installed(_))));
            assert_eq!(region.counted(Counter::RegionGivenUp), 0);
        }
        (40..80).for_each(|i| assert!(matches!(fault(i), Outcome::Installed(_))));
        assert_eq!(region.counted(Counter::RegionGivenUp), 1);
    }
}
