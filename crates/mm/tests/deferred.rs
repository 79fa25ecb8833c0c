//! Blocks that come back while the background thread is in them, and has no processor: they are taken in later, and
//! count until then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use faultless_base::{PAGE, SLOT, Span};
use faultless_fake::Fake;
use faultless_mm::{Need, Progress, Space};
use faultless_page::knobs::{Knob, Values};
use faultless_page::stats::Block as Counters;

const BUDGET: usize = 16;
const BLOCK: usize = 64;

fn allocate(space: &Space<Fake>) -> Span {
    Span::new(space.allocate(0, BLOCK * SLOT, PAGE, Need::Any).unwrap().addr, BLOCK * SLOT)
}

/// Without room for it, its memory goes at once; what the program uses meanwhile is as large as it is by itself.
#[test]
fn a_block_in_which_a_thread_of_ours_is_keeps_no_memory_beyond_the_budget() {
    let fake = Fake::default();
    let counters: &'static [Counters] = Box::leak(Box::new([Counters::new()]));
    let knobs: &'static Values = Box::leak(Box::default());
    knobs.set(Knob::Budget, (BUDGET * SLOT) as u64);
    let space = Arc::new(Space::new(fake.clone(), 512 * SLOT, 1, counters, knobs).unwrap());
    let block = allocate(&space);
    let was_there = Arc::new(AtomicBool::new(false));
    let program = {
        let (fake, space, was_there) = (fake.clone(), space.clone(), was_there.clone());
        move || {
            fake.write(block, 7);
            assert!(space.free(block.start));
            let next = allocate(&space);
            fake.write(next, 7);
            let resident = fake.resident() * PAGE;
            assert!(resident <= (BLOCK + BUDGET + 1) * SLOT, "{} slots", resident / SLOT);
            was_there.store(true, Ordering::Relaxed);
            assert!(space.free(next.start));
        }
    };
    fake.at_next_touch(program);
    for slot in 0..BLOCK {
        fake.write(Span::new(block.start + slot * SLOT, SLOT), 7);
        while space.step() == Progress::Worked {}
        if was_there.load(Ordering::Relaxed) {
            break;
        }
    }
    assert!(was_there.load(Ordering::Relaxed), "nothing was touched ahead");
    let again = allocate(&space);
    assert_eq!(again.bytes(), BLOCK * SLOT);
}
