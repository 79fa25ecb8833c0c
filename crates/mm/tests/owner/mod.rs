//! The owner of all frames, over simulated memory.

use faultless_base::SLOT;
use faultless_fake::Fake;
use faultless_mm::Space;
use faultless_page::knobs::Values;
use faultless_page::stats::{BLOCKS, Block};

/// One with a shard for blocks and one for frames, of `slots` slots each.
pub fn owner(memory: &Fake, slots: usize, knobs: &'static Values) -> &'static Space<Fake> {
    let counters: &'static [Block] = Vec::leak((0..BLOCKS).map(|_| Block::new()).collect());
    let space = Space::new(memory.clone(), slots * SLOT, 1, counters, knobs).unwrap();
    Box::leak(Box::new(space.with_pool(slots * SLOT).unwrap()))
}
