//! Owners of pages of snapshots: those that are found, beside those that a list of all snapshots gives. Each random step
//! is followed by all questions.

use faultless_base::{SLOT, SLOT_PAGES, Span};
use faultless_mm::owner::Walks;
use faultless_mm::owner::chain::{Chain, Need};
use faultless_mm::owner::pages::PageSet;
use proptest::prelude::*;

const SLOTS: usize = 6;
const BASE: usize = 64 * SLOT;
/// Apart by more than any span.
const COPIES: usize = 1 << 30;

#[derive(Clone, Debug)]
enum Op {
    /// A snapshot of some slots.
    Take(usize, usize),
    /// Pages of a slot are written to: the newest snapshot that needs them gets copies.
    Write(usize, usize, usize),
    /// One is about to be dropped: it still has what it has.
    Begin(usize),
    /// All that is about to be dropped goes.
    Drop,
}

fn ops() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..SLOTS, 1..=SLOTS).prop_map(|(first, n)| Op::Take(first, n)),
        6 => (0..SLOTS, 0..SLOT_PAGES, 1..SLOT_PAGES).prop_map(|(slot, page, n)| Op::Write(slot, page, n)),
        2 => any::<usize>().prop_map(Op::Begin),
        1 => Just(Op::Drop),
    ]
}

/// One snapshot, as the test knows it: a table of all its pages.
struct Taken {
    id: usize,
    span: Span,
    at: usize,
    is_living: bool,
    has: [PageSet; SLOTS],
}

struct World {
    chain: Chain,
    /// What questions took.
    walks: Walks,
    /// By age, the oldest first.
    all: Vec<Taken>,
    taken: usize,
}

fn slot_at(slot: usize) -> usize {
    BASE + slot * SLOT
}

impl World {
    fn new() -> Self {
        let chain = Chain::new(Span::new(BASE, SLOTS * SLOT)).unwrap();
        Self { chain, walks: Walks::default(), all: Vec::new(), taken: 0 }
    }

    fn ask(&mut self, slot: usize) -> Option<Need> {
        self.chain.need(slot_at(slot), &mut self.walks)
    }

    fn covering(&self, slot: usize) -> impl DoubleEndedIterator<Item = &Taken> {
        self.all.iter().filter(move |taken| taken.span.contains(slot_at(slot)))
    }

    /// The snapshot that gets the copies of a write, and of which pages none is needed.
    fn need(&self, slot: usize) -> Option<(usize, PageSet)> {
        let needs = self.covering(slot).rev().find(|taken| taken.is_living)?;
        let newer = self.covering(slot).rev().take_while(|other| other.id != needs.id);
        Some((needs.id, newer.fold(needs.has[slot], |settled, other| settled | other.has[slot])))
    }

    fn step(&mut self, op: &Op) {
        match *op {
            Op::Take(first, n) => {
                let n = n.min(SLOTS - first);
                let Some(id) = self.chain.number() else { return };
                self.taken += 1;
                let (span, at) = (Span::new(slot_at(first), n * SLOT), self.taken * COPIES);
                self.chain.push(id, span, at);
                self.all.push(Taken { id, span, at, is_living: true, has: [PageSet::default(); SLOTS] });
            }
            Op::Write(slot, page, n) => {
                let Some(need) = self.ask(slot) else { return };
                let pages = page..(page + n).min(SLOT_PAGES);
                let new = PageSet::of(pages) - need.settled;
                self.chain.take(need.id, slot_at(slot), new);
                let taken = self.all.iter_mut().find(|taken| taken.id == need.id).unwrap();
                taken.has[slot] = taken.has[slot] | new;
            }
            Op::Begin(i) => {
                if !self.all.is_empty() {
                    let i = i % self.all.len();
                    self.chain.begin_to_drop(self.all[i].id);
                    self.all[i].is_living = false;
                }
            }
            Op::Drop => {
                while let Some(i) = self.all.iter().position(|taken| !taken.is_living) {
                    self.drop(i);
                }
            }
        }
    }

    fn drop(&mut self, i: usize) {
        let Taken { id, span, .. } = self.all[i];
        for slot in (0..SLOTS).filter(|slot| span.contains(slot_at(*slot))) {
            if let Some((heir, pages)) = self.chain.heir(id, slot_at(slot), &mut self.walks) {
                self.chain.take(heir, slot_at(slot), pages);
                let heir = self.all.iter_mut().find(|taken| taken.id == heir).unwrap();
                heir.has[slot] = heir.has[slot] | pages;
            }
            self.chain.leave(id, slot_at(slot));
        }
        self.chain.remove(id);
        self.all.remove(i);
    }

    /// Asks for everything.
    fn check(&self) {
        let walks = &mut Walks::default();
        for slot in 0..SLOTS {
            let found = self.chain.need(slot_at(slot), walks).map(|need| (need.id, need.settled));
            assert_eq!(found, self.need(slot), "needs of slot {slot}");
            for taken in self.covering(slot) {
                // Who has its pages: itself, or the next newer one that has some.
                let wanted = PageSet::of(0..SLOT_PAGES / 2);
                let owner = self.covering(slot).skip_while(|other| other.id != taken.id).find_map(|other| {
                    let has = other.has[slot] & wanted;
                    (!has.is_empty()).then(|| (other.at + slot_at(slot) - other.span.start, has))
                });
                let found = self.chain.owner(taken.id, slot_at(slot), wanted, walks);
                assert_eq!(found, owner, "{} of {slot}", taken.id);
                // Who gets its pages when it goes.
                let mut others = PageSet::default();
                let older = self.covering(slot).rev().skip_while(|other| other.id != taken.id).skip(1);
                let heir = older.into_iter().find_map(|older| {
                    others = others | older.has[slot];
                    older.is_living.then(|| (older.id, taken.has[slot] - others))
                });
                assert_eq!(
                    self.chain.heir(taken.id, slot_at(slot), walks),
                    heir,
                    "heir of {} in {slot}",
                    taken.id
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Both ways are met: few snapshots of a slot, and more than are put in order one by one.
    #[test]
    fn owners_found_are_owners_that_exist(
        before in 0..30usize,
        ops in proptest::collection::vec(ops(), 1..90),
    ) {
        let mut world = World::new();
        (0..before).for_each(|_| world.step(&Op::Take(0, SLOTS)));
        for op in &ops {
            world.step(op);
            world.check();
        }
    }
}

#[test]
fn a_question_looks_at_no_snapshot_of_another_part() {
    let mut world = World::new();
    (0..200).for_each(|i| world.step(&Op::Take(i % (SLOTS - 1), 1)));
    let before = world.walks;
    assert!(world.ask(SLOTS - 1).is_none());
    let after = world.walks;
    assert_eq!((after.computed - before.computed, after.walked - before.walked), (1, 0));
    // One of its own, beside 200 of others: one is looked at.
    world.step(&Op::Take(SLOTS - 1, 1));
    assert!(world.ask(SLOTS - 1).is_some());
    let walks = world.walks;
    assert_eq!((walks.walked - after.walked, walks.stale), (1, 0));
    // It covers its pages, and has none: stale.
    let id = world.all.last().unwrap().id;
    assert_eq!(world.chain.owner(id, slot_at(SLOTS - 1), PageSet::of(0..SLOT_PAGES), &mut world.walks), None);
    assert_eq!(world.walks.stale, 1);
}
