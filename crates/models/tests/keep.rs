//! Huge pages that a region drops with what is in them and takes again, while other threads fault in the same places.

use std::sync::Arc;

use faultless_base::sys::mmu::{Mmu, Rights};
use faultless_base::{PAGE, SLOT, Span};
use faultless_fake::Fake;
use faultless_fake::mmu::FakeMmu;
use faultless_mm::frame::store::Store;
use faultless_mm::predict::window::Orders;
use faultless_mm::region::area::Attributes;
use faultless_mm::region::change::Advice;
use faultless_mm::region::{Plan, Region};
use faultless_mm::{Need, Space};
use faultless_models::{accessed, check_runs};
use faultless_page::knobs::{Knob, Values};
use faultless_page::listing::{Counted, Line, Place};
use faultless_page::stats::{Block, Counter};
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

const BASE: usize = 1 << 40;
const SLOTS: usize = 2;
const EACH: usize = SLOT / PAGE;
/// Fewer than there are slots and those that are taken meanwhile.
const FRAMES: usize = 3;
const ATTRIBUTES: Attributes =
    Attributes { rights: Rights::Write, backed: false, huge: true, random: false, kernel: false };

static PLACE: Place = Place::new();
static LINES: [Line; 1] = [Line::new()];

type Memory = Region<FakeMmu>;

fn chance(n: usize) -> usize {
    thread_rng().gen_range(0..n)
}

fn slot(i: usize) -> Span {
    Span::new(BASE + i * SLOT, SLOT)
}

fn access(region: &Memory, page: usize, write: Option<u8>) -> Option<u8> {
    accessed(region, BASE + page * PAGE, write, page)
}

/// One thread drops slots again and again, or unmaps them, and another one uses pages in both: nothing is there twice, counted twice, or
/// from anywhere else.
#[test]
fn what_is_dropped_is_in_one_place() {
    check_runs(
        || {
            let knobs = Box::leak(Box::<Values>::default());
            let plan = Plan { areas: 20, orders: Orders { first: 9, most: 10 } };
            let span = Span::new(BASE, SLOTS * SLOT);
            let counted = Counted::new(&PLACE, &LINES);
            knobs.set(Knob::Budget, (FRAMES * SLOT) as u64);
            let memory = Fake::default();
            let mmu = FakeMmu::new(thread::yield_now).with_frames(memory.clone());
            let space = Space::without_arena(memory.clone(), Box::leak(Box::new(Block::new())), knobs);
            let space: &Space<Fake> = Box::leak(Box::new(space.unwrap().with_pool(FRAMES * SLOT).unwrap()));
            let region = Region::new(mmu, span, plan, counted, knobs).unwrap();
            let region = Arc::new(region.with_frames(space, 0).with_old_bytes());
            region.map(span, ATTRIBUTES, 0).unwrap();
            region.populate(span).unwrap();
            (0..SLOTS).for_each(|i| assert_eq!(access(&region, i * EACH + 5, Some(7)), Some(0)));
            let user = {
                let region = region.clone();
                thread::spawn(move || {
                    for _ in 0..4 {
                        if chance(2) == 0 {
                            // Whole slots, which take what waits; unless the other one has unmapped it.
                            let _ = region.populate(slot(chance(SLOTS)));
                        }
                        let page = chance(SLOTS) * EACH + [0, 5, EACH - 1][chance(3)];
                        let found = access(&region, page, [None, Some(8)][chance(2)]);
                        assert!(found.is_none_or(|byte| [0, 7, 8].contains(&byte)), "{found:?}");
                    }
                })
            };
            for _ in 0..3 {
                let slot = slot(chance(SLOTS));
                if chance(2) == 0 {
                    region.advise(slot, Advice::DontNeed).unwrap();
                } else {
                    region.unmap(slot).unwrap();
                    region.map(slot, ATTRIBUTES, 0).unwrap();
                }
            }
            user.join().unwrap();
            region.areas().check();
            assert_eq!(region.present_pages(), region.present(span), "pages");
            let kept: Vec<_> = std::iter::from_fn(|| space.take(Need::Any)).collect();
            assert!(
                kept.iter().all(|frame| region.drop_unless_whole(frame.at)),
                "a frame that is not there waits"
            );
            assert_eq!(memory.resident(), kept.len() * EACH, "a frame is lost");
            kept.into_iter().for_each(|frame| space.give(frame.at, frame.kind));
        },
        500,
    );
    assert!(Counted::new(&PLACE, &LINES).get(Counter::RegionUnzeroed) > Some(0), "in no run");
}
