//! Snapshots over a simulated memory: random operations in any order, against copies of all bytes.

mod access;
mod changes;
mod made;
mod owner;

use access::span;
use changes::{Change, Oracle};
use faultless_base::sys::mmu::Rights;
use faultless_base::{Errno, PAGE, SLOT, SLOT_PAGES, Span};
use faultless_fake::Fake;
use faultless_fake::mmu::{FakeMmu, Found, WORKS};
use faultless_mm::owner::chain::MOST;
use faultless_mm::predict::window::Orders;
use faultless_mm::region::area::Attributes;
use faultless_mm::region::change::{Advice, Refused};
use faultless_mm::region::{Plan, Region};
use faultless_page::stats::Counter;
use made::BASE;
use proptest::prelude::*;

const SLOTS: usize = 4;
const PAGES: usize = SLOTS * SLOT_PAGES;
const ANONYMOUS: Attributes =
    Attributes { rights: Rights::Write, backed: false, huge: true, random: false, kernel: false };

fn region_of(mmu: FakeMmu, orders: Orders) -> Region<FakeMmu> {
    made::region(mmu, SLOTS, Plan { areas: 200, orders }, Box::leak(Box::default()))
}

fn region() -> Region<FakeMmu> {
    let region = region_of(FakeMmu::new(|| {}), Orders { first: 0, most: 0 });
    region.map(region.span(), ANONYMOUS, 0).unwrap();
    region
}

fn slots(first: usize, slots: usize) -> Span {
    span(first * SLOT_PAGES, slots * SLOT_PAGES)
}

fn access(region: &Region<FakeMmu>, page: usize, write: Option<u8>) -> Option<u8> {
    access::access(region, page, write).ok().map(|(byte, _)| byte)
}

fn try_to_read(region: &Region<FakeMmu>, id: usize, first: usize, pages: usize) -> Result<Vec<u8>, Refused> {
    let mut bytes = vec![0xEE; pages * PAGE];
    region.read_snapshot(id, span(first, 1).start, &mut bytes)?;
    let pages = bytes.chunks(PAGE).inspect(|page| assert!(page.iter().all(|byte| *byte == page[0])));
    Ok(pages.map(|page| page[0]).collect())
}

fn read(region: &Region<FakeMmu>, id: usize, first: usize, pages: usize) -> Vec<u8> {
    try_to_read(region, id, first, pages).unwrap()
}

#[derive(Clone, Debug)]
enum Op {
    One(Change),
    WriteAll(usize, usize, u8),
    Take(usize, usize),
    Drop(usize),
    Look(usize, usize, usize),
    /// There is no memory for the next copies.
    Short(usize),
    /// A handler that has nothing else to do copies what no write waited for, so many times.
    Rest(usize),
}

fn ops() -> impl Strategy<Value = Op> {
    let part = (0..PAGES, prop_oneof![1..20usize, 400..1200usize]);
    let rights = prop_oneof![Just(Rights::None), Just(Rights::Read), Just(Rights::Write)];
    let advice = prop_oneof![Just(Advice::DontNeed), Just(Advice::Random), Just(Advice::Normal)];
    prop_oneof![
        2 => part.clone().prop_map(|(a, n)| Op::One(Change::Map(a, n, None))),
        1 => part.clone().prop_map(|(a, n)| Op::One(Change::Unmap(a, n))),
        1 => (part.clone(), rights).prop_map(|((a, n), r)| Op::One(Change::Protect(a, n, r))),
        1 => (part.clone(), 0..PAGES).prop_map(|((a, n), to)| Op::One(Change::Remap(a, n, to))),
        1 => (part.clone(), advice).prop_map(|((a, n), x)| Op::One(Change::Advise(a, n, x))),
        1 => part.clone().prop_map(|(a, n)| Op::One(Change::Populate(a, n))),
        4 => (0..PAGES).prop_map(|a| Op::One(Change::Read(a))),
        10 => (0..PAGES, 1..=255u8).prop_map(|(a, b)| Op::One(Change::Write(a, b))),
        2 => (part.clone(), 1..=255u8).prop_map(|((a, n), b)| Op::WriteAll(a, n, b)),
        4 => (0..SLOTS, 1..=SLOTS).prop_map(|(a, n)| Op::Take(a, n)),
        3 => (0..100usize).prop_map(Op::Drop),
        8 => ((0..100usize), part).prop_map(|(i, (a, n))| Op::Look(i, a, n)),
        1 => (0..8usize).prop_map(Op::Short),
        3 => (1..9usize).prop_map(Op::Rest),
    ]
}

/// A snapshot, and what it must hold: page by page from its first.
struct Taken {
    id: usize,
    first: usize,
    bytes: Vec<u8>,
}

struct World {
    region: Region<FakeMmu>,
    oracle: Oracle,
    taken: Vec<Taken>,
    was_short: bool,
}

impl World {
    fn step(&mut self, op: Op) {
        match op {
            Op::One(change) => self.oracle.step(&self.region, change),
            Op::WriteAll(at, n, byte) => {
                (at..(at + n).min(PAGES)).for_each(|at| self.oracle.step(&self.region, Change::Write(at, byte)));
            }
            Op::Take(first, n) => {
                let n = n.min(SLOTS - first);
                let (first, pages) = (first * SLOT_PAGES, n * SLOT_PAGES);
                let part = &self.oracle.pages[first..first + pages];
                let suits = part.iter().flatten().all(|page| page.rights > Rights::None);
                match self.region.snapshot(span(first, pages)) {
                    Ok(id) => {
                        assert!(suits);
                        let bytes = part.iter().map(|page| page.map_or(0, |page| page.byte)).collect();
                        self.taken.push(Taken { id, first, bytes });
                    }
                    Err(refused) => assert_eq!((suits, refused), (false, Refused::Rights)),
                }
            }
            Op::Drop(i) => {
                if !self.taken.is_empty() {
                    let taken = self.taken.swap_remove(i % self.taken.len());
                    self.region.drop_snapshot(taken.id);
                }
            }
            Op::Look(i, at, n) => {
                if !self.taken.is_empty() {
                    self.look(i % self.taken.len(), at, n);
                }
            }
            Op::Short(copies) => {
                self.region.refuse_copies(copies);
                self.was_short |= copies > 0;
            }
            Op::Rest(times) => (0..times).for_each(|_| _ = self.region.copy_rest()),
        }
    }

    fn look(&self, i: usize, at: usize, n: usize) {
        let Taken { id, first, bytes } = &self.taken[i];
        let at = at % bytes.len();
        let n = n.min(bytes.len() - at);
        match try_to_read(&self.region, *id, first + at, n) {
            Ok(read) => assert_eq!(read, bytes[at..at + n], "snapshot {id}, from page {at}"),
            Err(refused) => assert_eq!((refused, self.was_short), (Refused::Incomplete, true)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Each snapshot holds what all bytes were when it was taken, whatever is done since, and whichever others go.
    #[test]
    fn snapshots_hold_what_was_there(ops in prop::collection::vec(ops(), 1..120), most in 0..12u32, old in any::<bool>()) {
        let frames = Fake::default();
        let region = region_of(FakeMmu::new(|| {}).with_frames(frames.clone()), Orders { first: 0, most });
        // So little patience that areas would be left to the kernel in many cases.
        let region = region.with_patience(5).with_frames(owner::owner(&frames, 8, Box::leak(Box::default())), 0);
        let region = if old { region.with_old_bytes() } else { region };
        let mut world = World { region, oracle: Oracle::new(PAGES, ANONYMOUS), taken: Vec::new(), was_short: false };
        if !old {
            world.step(Op::One(Change::Map(0, PAGES, None)));
        }
        for op in ops {
            // Where pages may come with old bytes, only written bytes are known.
            let looks = matches!(op, Op::One(Change::Read(_) | Change::Write(..)) | Op::WriteAll(..) | Op::Look(..));
            if !old || !looks {
                world.step(op);
            }
            world.region.areas().check();
        }
        for i in 0..world.taken.len() {
            world.look(i, 0, PAGES);
        }
        while !world.taken.is_empty() {
            world.step(Op::Drop(0));
            if !old {
                (0..world.taken.len()).for_each(|i| world.look(i, 0, PAGES));
            }
        }
        for at in (0..PAGES).step_by(7) {
            if !old {
                world.step(Op::One(Change::Read(at)));
            }
        }
    }
}

#[test]
fn a_write_copies_once_and_more_the_more_is_written() {
    let region = region();
    (0..PAGES).for_each(|page| assert_eq!(access(&region, page, Some(1)), Some(0)));
    let id = region.snapshot(region.span()).unwrap();
    assert_eq!(region.snapshot_held(id), 0);
    let mut faults = 0;
    let mut write = |page: usize, byte: u8| {
        while region.write(span(page, 1).start, byte) == Found::Missing {
            faults += 1;
            access(&region, page, Some(byte)).unwrap();
        }
        faults
    };
    assert_eq!(write(5, 2), 1);
    // Four around it.
    assert_eq!((region.snapshot_held(id), write(6, 2), write(7, 2)), (4 * PAGE, 1, 1));
    // Far from it as many, beside it as many again as lie there in a row.
    assert_eq!((write(400, 2), region.snapshot_held(id)), (2, 8 * PAGE));
    assert_eq!((write(8, 2), region.snapshot_held(id)), (3, 12 * PAGE));
    assert_eq!((write(3, 2), region.snapshot_held(id)), (4, 16 * PAGE));
    assert_eq!((write(12, 2), region.snapshot_held(id)), (5, 20 * PAGE));
    assert_eq!((write(16, 2), region.snapshot_held(id)), (6, 36 * PAGE));
    // Once a quarter is there, a write waits for 64 pages, and not for the rest.
    assert!(!region.copy_rest());
    let held = (0..).map(|i| 64 + 12 * i).find_map(|page| {
        write(page, 2);
        let held = region.snapshot_held(id) / PAGE;
        (held > 128 + 4).then_some(held)
    });
    assert!(held.is_some_and(|held| (128..128 + 4 + 64 + 1).contains(&held)), "{held:?}");
    let before = write(0, 3);
    while region.copy_rest() {}
    (0..SLOT_PAGES).for_each(|page| _ = write(page, 3));
    assert_eq!((write(0, 3), region.snapshot_held(id)), (before, SLOT_PAGES * PAGE));
    // The slot behind it takes one fault, the others one for each 64 pages where no thread copies the rest.
    write(SLOT_PAGES, 3);
    assert_eq!(region.snapshot_held(id), (SLOT_PAGES + 64) * PAGE);
    while region.copy_rest() {}
    (SLOT_PAGES..2 * SLOT_PAGES).for_each(|page| _ = write(page, 3));
    assert_eq!((write(0, 3), region.snapshot_held(id)), (before + 1, 2 * SLOT_PAGES * PAGE));
    (2 * SLOT_PAGES..PAGES).for_each(|page| _ = write(page, 3));
    assert_eq!(write(0, 3), before + 1 + (SLOTS - 2) * SLOT_PAGES / 64);
    assert_eq!(region.snapshot_held(id), region.span().bytes());
    assert!(!(0..SLOT_PAGES / 64).any(|_| region.copy_rest()) || !region.copy_rest());
    assert_eq!(read(&region, id, 0, PAGES), vec![1; PAGES]);
    assert_eq!([Counter::SnapshotTaken, Counter::SnapshotAreas].map(|counter| region.counted(counter)), [1, 1]);
    // By parts: no write waits for 2 MiB.
    let by_size = [Counter::SnapshotCopiesPage, Counter::SnapshotCopiesPart, Counter::SnapshotCopiesSlot];
    let by_size = by_size.map(|counter| region.counted(counter));
    assert!(by_size[0] == 0 && by_size[1] > 0 && by_size[2] == 0, "{by_size:?}");
    assert_eq!(by_size.iter().sum::<u64>(), region.counted(Counter::SnapshotFault));
    // One question or more for each fault; the one snapshot was the answer each time.
    let asked = [Counter::OwnerComputed, Counter::OwnerWalked, Counter::OwnerStale];
    let [computed, walked, stale] = asked.map(|counter| region.counted(counter));
    assert!(computed >= region.counted(Counter::SnapshotFault) && walked > 0, "{computed} {walked}");
    assert_eq!(stale, 0);
    assert_eq!(region.counted(Counter::SnapshotFault), write(0, 3) as u64);
    assert_eq!(region.counted(Counter::SnapshotCopied), region.span().bytes() as u64);
}

#[test]
fn a_copy_goes_to_the_newest_and_is_handed_on() {
    let region = region();
    assert_eq!(access(&region, 0, Some(1)), Some(0));
    let first = region.snapshot(slots(0, 2)).unwrap();
    let second = region.snapshot(slots(0, 1)).unwrap();
    assert_eq!(access(&region, 0, Some(2)), Some(1));
    assert_eq!((region.snapshot_held(first), region.snapshot_held(second)), (0, PAGE));
    assert_eq!((read(&region, first, 0, 2), read(&region, second, 0, 2)), (vec![1, 0], vec![1, 0]));
    // Missing pages that come are zero in the newest alone.
    assert_eq!(access(&region, 1, Some(7)), Some(0));
    assert_eq!(read(&region, first, 0, 2), [1, 0]);
    region.drop_snapshot(second);
    assert_eq!(
        (region.snapshot_held(first), region.counted(Counter::SnapshotPassed)),
        (2 * PAGE, PAGE as u64),
        "a page of zeroes is passed on without a copy"
    );
    assert_eq!(read(&region, first, 0, 2), [1, 0]);
    // What only the first had goes with it, and writes go through.
    let third = region.snapshot(slots(0, 2)).unwrap();
    region.drop_snapshot(first);
    assert_eq!((region.snapshot_held(third), read(&region, third, 0, 2)), (0, vec![2, 7]));
    region.drop_snapshot(third);
    assert_eq!(access(&region, 0, Some(3)), Some(2));
    assert_eq!(access(&region, SLOT_PAGES, Some(3)), Some(0));
}

/// The write goes on. The snapshot that lacks the copy cannot be read any more, nor can the older ones of this memory;
/// all others are as they were.
#[test]
fn a_snapshot_that_lacks_a_copy_is_not_read() {
    let region = region();
    for page in [1, SLOT_PAGES + 1] {
        assert_eq!(access(&region, page, Some(1)), Some(0));
    }
    let [older, newest, elsewhere] =
        [slots(0, 2), slots(0, 1), slots(1, 1)].map(|part| region.snapshot(part).unwrap());
    region.refuse_copies(usize::MAX);
    assert_eq!(access(&region, 1, Some(2)), Some(1));
    for id in [older, newest] {
        assert_eq!(try_to_read(&region, id, 0, 1), Err(Refused::Incomplete));
    }
    region.refuse_copies(0);
    let later = region.snapshot(slots(0, 2)).unwrap();
    assert_eq!(access(&region, 1, Some(3)), Some(2));
    assert_eq!(access(&region, SLOT_PAGES + 1, Some(3)), Some(1));
    assert_eq!(read(&region, later, 1, 1), [2]);
    assert_eq!(read(&region, elsewhere, SLOT_PAGES + 1, 1), [1]);
    // The copies that go to the older one from here on have room, and do not make it whole.
    [newest, later].into_iter().for_each(|id| region.drop_snapshot(id));
    assert_eq!(try_to_read(&region, older, SLOT_PAGES, 1), Err(Refused::Incomplete));
    [older, elsewhere].into_iter().for_each(|id| region.drop_snapshot(id));
    // The number is used again.
    let again = region.snapshot(slots(0, 2)).unwrap();
    assert_eq!(read(&region, again, 1, 1), [3]);
}

#[test]
fn copies_that_find_no_memory_when_a_snapshot_goes_are_missed() {
    let region = region();
    assert_eq!(access(&region, 1, Some(1)), Some(0));
    let [older, newer] = [0, 1].map(|_| region.snapshot(slots(0, 1)).unwrap());
    assert_eq!(access(&region, 1, Some(2)), Some(1));
    region.refuse_copies(usize::MAX);
    region.drop_snapshot(newer);
    assert_eq!(try_to_read(&region, older, 1, 1), Err(Refused::Incomplete));
}

/// Pages of a region that are dropped are the snapshot's from then on. None is copied.
#[test]
fn what_is_dropped_moves_to_the_snapshot() {
    let region = region();
    let number = |page: usize| (page % 250) as u8 + 1;
    (0..2 * SLOT_PAGES).for_each(|page| assert_eq!(access(&region, page, Some(number(page))), Some(0)));
    let older = region.snapshot(slots(0, 2)).unwrap();
    let newer = region.snapshot(slots(0, 1)).unwrap();
    access(&region, 20, Some(99)).unwrap();
    let copied = region.counted(Counter::SnapshotCopied);
    // A device uses one of them, which so is copied.
    region.pin(span(40, 1));
    region.unmap(span(10, 90)).unwrap();
    region.advise(span(SLOT_PAGES - 5, 10), Advice::DontNeed).unwrap();
    let counted =
        [Counter::SnapshotMoved, Counter::SnapshotCopied].map(|counter| region.counted(counter) as usize);
    let settled = copied as usize / PAGE;
    assert_eq!(counted, [(100 - settled - 1) * PAGE, copied as usize + PAGE]);
    assert_eq!(region.present_pages(), 2 * SLOT_PAGES - 100);
    let expected: Vec<_> = (0..2 * SLOT_PAGES).map(number).collect();
    assert!(read(&region, older, 0, 2 * SLOT_PAGES) == expected);
    assert!(read(&region, newer, 0, SLOT_PAGES) == expected[..SLOT_PAGES]);
    region.map(span(10, 90), ANONYMOUS, 0).unwrap();
    assert_eq!([access(&region, 10, None), access(&region, SLOT_PAGES, Some(3))], [Some(0); 2]);
    region.drop_snapshot(newer);
    assert!(read(&region, older, 0, 2 * SLOT_PAGES) == expected);
    region.drop_snapshot(older);
    assert_eq!([access(&region, 10, None), access(&region, SLOT_PAGES, None)], [Some(0), Some(3)]);
}

/// The region has its pages again when they cannot be dropped after all, and the snapshot has them, too.
#[test]
fn what_is_not_dropped_after_all_is_there_as_before() {
    type Change = fn(&Region<FakeMmu>) -> Result<(), Refused>;
    let unmap: Change = |region| region.unmap(span(4, 8));
    let drop: Change = |region| region.advise(span(4, 8), Advice::DontNeed);
    // Which of the steps behind the move fails; the copies need a second try.
    for (change, errors) in [
        (unmap, &[WORKS, Errno::ENOMEM, WORKS, WORKS, Errno::EAGAIN][..]),
        (unmap, &[WORKS, WORKS, Errno::ENOMEM, WORKS, WORKS, Errno::ENOMEM]),
        (drop, &[WORKS, Errno::EAGAIN, WORKS, Errno::EAGAIN]),
    ] {
        let region = region();
        (0..20).for_each(|page| assert_eq!(access(&region, page, Some(page as u8)), Some(0)));
        let id = region.snapshot(slots(0, 1)).unwrap();
        region.fail(errors);
        assert!(matches!(change(&region), Err(Refused::Kernel(_))));
        assert_eq!((region.counted(Counter::SnapshotMoved), region.present_pages()), (8 * PAGE as u64, 20));
        (0..20).for_each(|page| assert_eq!(access(&region, page, Some(77)), Some(page as u8)));
        assert_eq!(read(&region, id, 0, 20), (0..20).collect::<Vec<_>>());
        change(&region).unwrap();
        assert_eq!(read(&region, id, 0, 20), (0..20).collect::<Vec<_>>());
        region.areas().check();
    }
}

#[test]
fn what_cannot_be_a_snapshot_is_refused() {
    let region = region();
    for part in [span(0, 0), span(0, 1), span(1, SLOT_PAGES), Span::new(BASE - SLOT, SLOT), slots(3, 2)] {
        assert_eq!(region.snapshot(part), Err(Refused::Outside), "{part:x?}");
    }
    region.protect(span(5, 1), Rights::None).unwrap();
    assert_eq!(region.snapshot(slots(0, 1)), Err(Refused::Rights));
    let mut all: Vec<_> = (0..MOST).map(|_| region.snapshot(slots(1, 1)).unwrap()).collect();
    assert_eq!(region.snapshot(slots(1, 1)), Err(Refused::TooManySnapshots));
    assert_eq!(access(&region, SLOT_PAGES, Some(1)), Some(0));
    region.drop_snapshot(all.pop().unwrap());
    all.push(region.snapshot(slots(1, 1)).unwrap());
    assert_eq!(read(&region, all[MOST - 1], SLOT_PAGES, 1), [1]);
    for (i, id) in all.iter().enumerate().step_by(2) {
        assert_eq!(read(&region, all[i + 1], SLOT_PAGES, 1), [(i + 1 == MOST - 1) as u8]);
        region.drop_snapshot(*id);
    }
}
