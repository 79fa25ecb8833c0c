//! The peak rule, for a program that maps, touches densely or sparsely, and gives back, in any order. The memory
//! added to its own never exceeds the budget and what the program once had and gave back.

mod calls;

use std::collections::{BTreeMap, BTreeSet};

use faultless_base::{PAGE, SLOT, SLOT_PAGES, Span, UNIT};
use faultless_fake::Fake;
use faultless_mm::mapping::Change;
use faultless_mm::space::progress::Progress;
use faultless_mm::{Need, Space};
use faultless_page::knobs::{Knob, Values};
use faultless_page::stats::Block as Counters;
use proptest::prelude::*;

/// Units of a slot, from which small blocks are made.
const UNITS: usize = SLOT / UNIT;

/// How much a program touches of what it has.
#[derive(Clone, Copy, Debug)]
enum Touch {
    Nothing,
    /// A page of each slot.
    Sparse,
    Dense,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Map(usize, Touch),
    /// Zeroed memory from malloc.
    Zeroed(usize, Touch),
    /// Memory from malloc that is not zeroed.
    Block(usize, Touch),
    Free(usize),
    /// A block of this number of units, all of it touched.
    Small(usize),
    FreeSmall(usize),
    /// Half of each slot of a mapping, without the page that it touches if it touches one.
    Cut(usize),
    /// Drops the content of something it has, and uses it again.
    Drop(usize, Touch),
    Steps(usize),
    Wait(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let touch = || prop::sample::select(vec![Touch::Nothing, Touch::Sparse, Touch::Dense]);
    let slots = || prop::sample::select(vec![2usize, 3, 5, 8, 13]);
    let op = prop_oneof![
        4 => (slots(), touch()).prop_map(|(n, t)| Op::Map(n, t)),
        2 => (slots(), touch()).prop_map(|(n, t)| Op::Zeroed(n, t)),
        2 => (slots(), touch()).prop_map(|(n, t)| Op::Block(n, t)),
        5 => any::<u8>().prop_map(|i| Op::Free(i as usize)),
        4 => (1usize..=UNITS).prop_map(Op::Small),
        4 => any::<u8>().prop_map(|i| Op::FreeSmall(i as usize)),
        2 => any::<u8>().prop_map(|i| Op::Cut(i as usize)),
        4 => (any::<u8>(), touch()).prop_map(|(i, t)| Op::Drop(i as usize, t)),
        2 => (1usize..40).prop_map(Op::Steps),
        1 => prop::sample::select(vec![1u64, 6, 600, 11_000]).prop_map(Op::Wait),
    ];
    prop::collection::vec(op, 1..120)
}

struct Program {
    space: Space<Fake>,
    fake: Fake,
    /// Address: slots, pages touched, whether it is a block.
    has: BTreeMap<usize, (usize, usize, bool)>,
    /// Small blocks: address, and pages.
    small: BTreeMap<usize, usize>,
    /// Mappings of which a part is unmapped.
    cut: BTreeSet<usize>,
    peak: usize,
    limit: usize,
}

impl Program {
    fn new(budget_slots: usize, mapped: bool) -> Self {
        let fake = Fake::default();
        let counters: &'static [Counters] = Box::leak(Box::new([Counters::new()]));
        let knobs: &'static Values = Box::leak(Box::default());
        knobs.set(Knob::Budget, (budget_slots * SLOT) as u64);
        knobs.set(Knob::Mapped, mapped as u64);
        let space = Space::new(fake.clone(), 512 * SLOT, 1, counters, knobs).unwrap();
        Self {
            space,
            fake,
            has: BTreeMap::new(),
            small: BTreeMap::new(),
            cut: BTreeSet::new(),
            peak: 0,
            limit: budget_slots * SLOT_PAGES,
        }
    }

    fn allocate(&self, n: usize, need: Need) -> Option<usize> {
        self.space.allocate(0, n * SLOT, PAGE, need).map(|got| got.addr)
    }

    fn got(&mut self, at: Option<usize>, n: usize, touch: Touch, block: bool) {
        let Some(at) = at else { return };
        let touched = match touch {
            Touch::Nothing => 0,
            Touch::Sparse => {
                (0..n).for_each(|i| self.fake.write(Span::new(at + i * SLOT + 7 * PAGE, PAGE), 1));
                n
            }
            Touch::Dense => {
                self.fake.write(Span::new(at, n * SLOT), 1);
                n * SLOT_PAGES
            }
        };
        self.has.insert(at, (n, touched, block));
        self.peak = self.peak.max(self.now());
    }

    /// Pages that it would have by itself.
    fn now(&self) -> usize {
        self.has.values().map(|(_, touched, _)| touched).chain(self.small.values()).sum()
    }

    fn free(&mut self, i: usize) {
        let Some((&at, &(n, _, block))) = self.has.iter().nth(i % self.has.len().max(1)) else { return };
        self.has.remove(&at);
        self.cut.remove(&at);
        match block {
            true => assert!(self.space.free(at)),
            false => calls::unmap(&self.space, &self.fake, 0, Span::new(at, n * SLOT)),
        }
    }

    fn allocate_small(&mut self, units: usize) {
        let Some(got) = self.space.allocate(0, units * UNIT, PAGE, Need::Any) else { return };
        self.fake.write(Span::new(got.addr, units * UNIT), 1);
        self.small.insert(got.addr, units * UNIT / PAGE);
        self.peak = self.peak.max(self.now());
    }

    fn cut(&mut self, i: usize) {
        let whole: Vec<_> =
            self.has.keys().copied().filter(|at| !self.has[at].2 && !self.cut.contains(at)).collect();
        let Some(&at) = whole.get(i % whole.len().max(1)) else { return };
        let (n, touched, _) = self.has.get_mut(&at).expect("one of these");
        if *touched == *n * SLOT_PAGES {
            *touched /= 2;
        }
        let n = *n;
        self.cut.insert(at);
        for slot in (at..at + n * SLOT).step_by(SLOT) {
            calls::unmap(&self.space, &self.fake, 0, Span::new(slot + SLOT / 4, SLOT / 2));
        }
    }

    /// As the library has it: what a mapping drops may come back as zeroes at once.
    fn drop_content(&self, span: Span, block: bool) {
        let give = |part| {
            self.fake.empty(part);
            true
        };
        match block {
            true => {
                self.space.change_blocks(span, Change::Dropped);
                give(span);
            }
            false => self.space.recycle(0, span, give),
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Map(n, touch) => {
                let span = calls::map(&self.space, &self.fake, 0, n * SLOT);
                self.got(Some(span.start), n, touch, false);
            }
            Op::Zeroed(n, touch) => {
                self.got(self.allocate(n, Need::Zero), n, touch, true);
            }
            Op::Block(n, touch) => self.got(self.allocate(n, Need::Any), n, touch, true),
            Op::Free(i) => self.free(i),
            Op::Small(units) => self.allocate_small(units),
            Op::FreeSmall(i) => {
                if let Some((&at, _)) = self.small.iter().nth(i % self.small.len().max(1)) {
                    self.small.remove(&at);
                    assert!(self.space.free(at));
                }
            }
            Op::Cut(i) => self.cut(i),
            Op::Drop(i, touch) => {
                let Some((&at, &(n, _, block))) = self.has.iter().nth(i % self.has.len().max(1)) else { return };
                if self.cut.contains(&at) {
                    return;
                }
                let span = Span::new(at, n * SLOT);
                self.drop_content(span, block);
                assert!((span.start..span.end).step_by(PAGE).all(|page| self.fake.read(page) == Some(0)));
                self.got(Some(at), n, touch, block);
            }
            Op::Steps(n) => {
                for _ in 0..n {
                    if self.space.step() == Progress::Idle {
                        break;
                    }
                }
            }
            Op::Wait(ms) => self.fake.advance_ms(ms),
        }
        let (resident, now) = (self.fake.resident(), self.now());
        // Samples of what is used may be wrong by a slot (docs/guide.md).
        assert!(
            resident <= now + self.peak + self.limit + SLOT_PAGES,
            "{resident} pages after {op:?}: {now} of the program's own, {} at its peak, {} of budget",
            self.peak,
            self.limit
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn memory_stays_within_the_peak_and_the_budget(
        budget in prop::sample::select(vec![0usize, 1, 4, 16, 64]),
        mapped in any::<bool>(),
        ops in ops(),
    ) {
        let mut program = Program::new(budget, mapped);
        for op in ops {
            program.apply(op);
        }
    }
}
