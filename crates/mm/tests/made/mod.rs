//! Regions over a simulated memory.

use faultless_base::{SLOT, Span};
use faultless_fake::mmu::FakeMmu;
use faultless_mm::region::{Plan, Region};
use faultless_page::knobs::Values;
use faultless_page::listing::{Counted, Line};

/// Where they begin.
pub const BASE: usize = 1 << 40;

/// One of this many slots, with nothing mapped.
pub fn region(mmu: FakeMmu, slots: usize, plan: Plan, knobs: &'static Values) -> Region<FakeMmu> {
    let counted = Counted::new(Box::leak(Box::default()), Box::leak(Box::new([const { Line::new() }; 4])));
    Region::new(mmu, Span::new(BASE, slots * SLOT), plan, counted, knobs).unwrap()
}
