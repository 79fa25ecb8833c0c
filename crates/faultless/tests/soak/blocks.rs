//! Blocks of an arena and of a heap: zero when they come, and no other user's while they are there.

use std::ops::{Deref, DerefMut};

use faultless::Arena;
use faultless::region::{Block, Heap};

use crate::pace::Pace;

const MOST: usize = 8 << 20;
/// Blocks that are held at a time.
const HELD: usize = 5;

/// A block of either.
type Held<'a> = Box<dyn DerefMut<Target = [u8]> + 'a>;

/// A block of a heap as bytes.
struct Bytes(Block);

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: this value's own block, which no other thread uses.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), self.0.len()) }
    }
}

impl DerefMut for Bytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr(), self.0.len()) }
    }
}

/// Allocates, fills, compares, and drops.
pub fn work(pace: &Pace) -> usize {
    let arena = Arena::new(1 << 30).expect("an arena");
    let heap = Heap::new(|builder| builder);
    let mut held: Vec<(Held<'_>, u8)> = Vec::new();
    pace.run(|rng| {
        for _ in 0..8 {
            if held.len() == HELD || (!held.is_empty() && rng.one_in(3)) {
                let (block, byte) = held.swap_remove(rng.below(held.len()));
                assert!(block.iter().all(|other| *other == byte), "a block of {byte}");
            }
            let bytes = rng.within(1, MOST);
            let mut block: Held<'_> = match rng.one_in(2) {
                true => Box::new(arena.zeroed(bytes).expect("a block")),
                false => Box::new(Bytes(heap.allocate(bytes).expect("a block"))),
            };
            assert!(block.iter().all(|byte| *byte == 0), "a new block");
            let byte = rng.word() as u8;
            block.fill(byte);
            held.push((block, byte));
        }
        arena.work();
    })
}
