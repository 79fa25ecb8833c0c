//! Who gets zeroes: only callers that need them.

mod calls;
mod made;
mod owner;

use faultless_base::sys::mmu::Rights;
use faultless_base::{PAGE, SLOT, Span};
use faultless_fake::Fake;
use faultless_fake::mmu::FakeMmu;
use faultless_mm::fault::{Fault, Outcome};
use faultless_mm::predict::window::Orders;
use faultless_mm::region::area::Attributes;
use faultless_mm::region::{Plan, Region};
use faultless_mm::{Need, Progress, Space};
use faultless_page::knobs::{Knob, Values};
use faultless_page::stats::{Block, Counter};

const SLOTS: usize = 4;

fn region() -> Region<FakeMmu> {
    let knobs = Box::leak(Box::<Values>::default());
    let plan = Plan { areas: 10, orders: Orders { first: 0, most: 11 } };
    let frames = Fake::default();
    let mmu = FakeMmu::new(|| {}).with_frames(frames.clone());
    let region = made::region(mmu, SLOTS, plan, knobs);
    region.with_frames(owner::owner(&frames, 8, knobs), 0)
}

/// Maps all of the region, and reads it from its start to its end.
fn walk(region: &Region<FakeMmu>, backed: bool) {
    let attributes = Attributes { rights: Rights::Write, backed, huge: true, random: false, kernel: false };
    region.map(region.span(), attributes, 0).unwrap();
    let mut at = region.span().start;
    while at < region.span().end {
        match region.fault(Fault { addr: at, wants: Rights::Read, hint: 1, cpu: 1 }) {
            Outcome::Installed(window) => at = window.end,
            other => panic!("{other:?}"),
        }
    }
    region.unmap(region.span()).unwrap();
}

/// Also where zeroed frames are there for the taking, because an area without a file has used some.
#[test]
fn the_bytes_of_a_file_neither_get_nor_cause_zeroes() {
    let region = region();
    walk(&region, true);
    assert_eq!(region.zeroed(), (0, 0));
    assert_eq!(region.counted(Counter::RegionFilled), (SLOTS * SLOT) as u64);
    walk(&region, false);
    while region.prepare_huge(4) {}
    let (_, frames) = region.zeroed();
    assert!(frames > 0, "an area without a file gets some");
    walk(&region, true);
    assert_eq!(region.zeroed(), (0, frames));
    assert_eq!(region.counted(Counter::RegionFilled), 2 * (SLOTS * SLOT) as u64);
    assert_eq!(region.counted(Counter::ZeroedForFile), 0);
}

/// Blocks get memory with old bytes while there is some; what was zeroed for others is the last they get.
#[test]
fn blocks_get_zeroed_memory_only_when_no_other_is_free() {
    let fake = Fake::default();
    let counters: &'static [Block] = Box::leak(Box::new([Block::new()]));
    let knobs: &'static Values = Box::leak(Box::default());
    knobs.set(Knob::Budget, 1 << 30);
    knobs.set(Knob::Ahead, 0);
    let space = Space::new(fake.clone(), 64 * SLOT, 1, counters, knobs).unwrap();
    let count = |counter: Counter| counters[0].get(counter as usize);
    let use_up = |span: Span| fake.write(span, 7);
    let [first, second] = [0, 1].map(|_| calls::map(&space, &fake, 0, 4 * SLOT));
    [first, second].into_iter().for_each(use_up);
    calls::unmap(&space, &fake, 0, first);
    fake.advance_ms(6);
    while space.step() == Progress::Worked {}
    assert_eq!(count(Counter::BytesScrubbed), 4 * SLOT as u64);
    calls::unmap(&space, &fake, 0, second);
    // One extent is zero now, the other is not.
    let block = || {
        let addr = space.allocate(0, 4 * SLOT, PAGE, Need::Any).unwrap().addr;
        (fake.read(addr), count(Counter::ZeroedInstead))
    };
    assert_eq!(block(), (Some(7), 0));
    assert_eq!(block(), (Some(0), 4 * SLOT as u64));
    assert_eq!((count(Counter::ZeroedForMalloc), count(Counter::BytesHotZeroed)), (0, 0));
}
