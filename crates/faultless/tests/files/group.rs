//! Groups of files: their pages are together never more than the budget, and every byte is the file's.

use std::fs;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use faultless::file::{CacheGroup, Delivery, File, MappingMut};
use faultless_page::stats::Counter;
use proptest::prelude::*;
use tempfile::NamedTempFile;

use crate::chance::Chance;
use crate::lazy::{can_be_lazy, count};
use crate::{PAGE, SLOT, budget, bytes, filled, hole, mapped, named, read_all};

const THREADS: usize = 4;
const STEPS: usize = 120;

/// A file, and what a thread has of it: no other one touches these bytes.
struct Part<'a> {
    file: &'a File,
    mapping: Option<MappingMut>,
    start: usize,
    plain: Vec<u8>,
}

impl Part<'_> {
    fn some(&self, chance: &mut Chance) -> Range<usize> {
        let most = [1, 100, 3 * PAGE, SLOT + 5 * PAGE][chance.below(4)];
        let at = chance.below(self.plain.len());
        at..at + 1 + chance.below(most.min(self.plain.len() - at))
    }

    fn inside(&self, part: &Range<usize>) -> Range<u64> {
        (self.start + part.start) as u64..(self.start + part.end) as u64
    }
}

/// One thing that a thread does with two of its parts.
fn step(parts: &mut [Part<'_>], chance: &mut Chance) {
    let (which, other) = (chance.below(parts.len()), chance.below(parts.len()));
    let seed = chance.0;
    let range = parts[which].some(chance);
    // Of a mapping that comes when it is touched no more than a few faults.
    let few = range.start..range.end.min(range.start + 2 * PAGE);
    let how = chance.below(12);
    let into = parts[other].some(chance);
    if how == 0 && which != other {
        // A buffer of which pages come while it is read into.
        let part = &parts[which];
        let n = into.len().min(range.len()).min(2 * PAGE);
        let (from, to) = (range.start..range.start + n, into.start..into.start + n);
        let (at, new) = (part.inside(&from).start, part.plain[from].to_vec());
        let (file, start) = (part.file, parts[other].start);
        let Part { mapping: Some(mapping), plain, .. } = &mut parts[other] else { return };
        // SAFETY: no other thread uses these bytes.
        let bytes = unsafe { &mut mapping.as_mut_slice()[start..][to.clone()] };
        assert_eq!(file.read_at(bytes, at).unwrap(), n);
        plain[to].copy_from_slice(&new);
        return;
    }
    let part = &mut parts[which];
    let inside = part.inside(&range);
    let at = part.start + few.start;
    match (how, &mut part.mapping) {
        (0..=2, _) => {
            let mut got = vec![0xEE; range.len()];
            whole(got.len(), |done| part.file.read_at(&mut got[done..], inside.start + done as u64));
            assert!(got == part.plain[range], "a read at {}", inside.start);
        }
        (3..=4, _) => {
            let new = bytes(range.len(), seed);
            whole(new.len(), |done| part.file.write_at(&new[done..], inside.start + done as u64));
            part.plain[range].copy_from_slice(&new);
        }
        (5, Some(mapping)) => {
            // SAFETY: as above.
            let got = unsafe { &mapping.as_slice()[at..at + few.len()] };
            assert!(*got == part.plain[few], "a mapping at {at}");
        }
        (6, Some(mapping)) => {
            let new = bytes(few.len(), seed);
            // SAFETY: as above.
            unsafe { mapping.as_mut_slice()[at..at + few.len()].copy_from_slice(&new) };
            part.plain[few].copy_from_slice(&new);
        }
        (7, Some(mapping)) => {
            let new = bytes(range.len(), seed);
            mapping.write(inside.start as usize, &new).unwrap();
            part.plain[range].copy_from_slice(&new);
        }
        // A fault has no room for some time where mappings have all.
        (8, None) => match part.file.map(inside.start, range.len()) {
            Ok(mapping) => assert!(mapped(&mapping) == part.plain[range], "mapped at {}", inside.start),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOMEM)),
        },
        (9, _) => {
            whole(1, |_| part.file.punch_hole(inside.clone()).map(|()| 1));
            part.plain[range].fill(0);
        }
        (8 | 10, _) => _ = part.file.prefetch(&[inside.clone(), inside]).map_err(no_room),
        _ => {
            part.file.drop_range(inside.clone());
            part.file.sync_range(inside).unwrap();
        }
    }
}

/// Makes a call until all bytes are done: mappings of other threads may leave no room for a moment.
fn whole(bytes: usize, mut call: impl FnMut(usize) -> io::Result<usize>) {
    let mut done = 0;
    while done < bytes {
        match call(done) {
            Ok(more) => done += more,
            Err(error) => no_room(error),
        }
    }
}

/// Mappings may take all there is.
fn no_room(error: io::Error) {
    assert_eq!(error.raw_os_error(), Some(libc::ENOMEM), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn a_group_never_has_more_than_its_budget(
        seed: u64, most in prop_oneof![Just(2), Just(3), 4..64usize], small: bool, delivery in 0..3usize,
    ) {
        let _alone = budget(64 << 20);
        let most = most << 20;
        let group = CacheGroup::new(most).unwrap();
        let delivery = [None, Some(Delivery::Thread), Some(Delivery::Signal)][delivery];
        let delivery = delivery.filter(|_| can_be_lazy());
        let names: Vec<(Vec<u8>, NamedTempFile)> =
            [2 * SLOT + 5 * PAGE + 7, 3 * SLOT, SLOT / 2 + 1].map(|n| filled(n, seed)).into();
        let open = |name: &NamedTempFile| {
            let open = fs::File::options().read(true).write(true).open(name.path()).unwrap();
            if small { group.file_with_small_pages(&open) } else { group.file(&open) }.unwrap()
        };
        let files: Vec<File> = names.iter().map(|(_, name)| open(name)).collect();
        let is_over = AtomicBool::new(false);
        let written: Vec<Vec<(usize, Vec<u8>)>> = thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    assert!(group.used() <= most, "{} of {most}", group.used());
                    thread::yield_now();
                }
            });
            let work = |i: usize| {
                let part = |(file, (all, _)): (&'_ File, &'_ (Vec<u8>, NamedTempFile))| {
                    let share = all.len() / THREADS;
                    let end = if i + 1 == THREADS { all.len() } else { (i + 1) * share };
                    let delivered = delivery.map(|delivery| file.deliver(delivery).unwrap());
                    let mapping = delivered.map(|()| file.map_lazy_mut(0, all.len()).unwrap());
                    (mapping, i * share, all[i * share..end].to_vec())
                };
                let mut parts: Vec<_> = files
                    .iter()
                    .zip(&names)
                    .map(|of| {
                        let (mapping, start, plain) = part(of);
                        Part { file: of.0, mapping, start, plain }
                    })
                    .collect();
                let mut chance = Chance((seed ^ (i as u64 * 77)) | 1);
                (0..STEPS).for_each(|_| step(&mut parts, &mut chance));
                parts.into_iter().map(|part| (part.start, part.plain)).collect()
            };
            let workers: Vec<_> = (0..THREADS).map(|i| scope.spawn(move || work(i))).collect();
            let written = workers.into_iter().map(thread::ScopedJoinHandle::join).collect::<Vec<_>>();
            is_over.store(true, Relaxed);
            written.into_iter().map(Result::unwrap).collect()
        });
        // In this order: the background may let pages go meanwhile, and brings none.
        let used = group.used();
        let present: usize = files.iter().map(File::present).sum();
        prop_assert!(present <= used && used <= most, "{} of {}, {} present", used, most, present);
        prop_assert_eq!(group.mapped(), 0);
        for (i, file) in files.iter().enumerate() {
            file.sync().unwrap();
            let on_disk = fs::read(names[i].1.path()).unwrap();
            for parts in &written {
                let (start, plain) = &parts[i];
                prop_assert!(on_disk[*start..][..plain.len()] == plain[..], "file {} from {}", i, start);
            }
        }
        drop(files);
        prop_assert_eq!(group.used(), 0);
    }
}

/// What mappings keep is the group's, too: one that would be more is refused whole, and so is a miss without room.
#[test]
fn mappings_beyond_the_budget_are_refused() {
    let _alone = budget(64 << 20);
    assert!(CacheGroup::new(SLOT - 1).is_err());
    let group = CacheGroup::new(2 * SLOT).unwrap();
    let (all, name) = filled(3 * SLOT, 5);
    let file = group.open_writable(name.path()).unwrap();
    let no_room = |error: Option<io::Error>| assert_eq!(error.unwrap().raw_os_error(), Some(libc::ENOMEM));
    no_room(file.map(0, 3 * SLOT).err());
    assert_eq!(group.mapped(), 0, "a mapping that was refused keeps nothing");
    let first = file.map_mut(0, 2 * SLOT).unwrap();
    assert!(mapped(&first) == all[..2 * SLOT]);
    // No more memory for the same bytes.
    let again = file.map(PAGE as u64, SLOT - PAGE).unwrap();
    assert_eq!((group.mapped(), group.used()), (2 * SLOT, 2 * SLOT));
    let mut got = [0; 10];
    no_room(file.read_at(&mut got, 2 * SLOT as u64).err());
    assert_eq!(file.read_at(&mut got, 9).unwrap(), 10);
    first.write(4, b"new").unwrap();
    drop(first);
    // A page of 4 KiB has room, where a huge one has not.
    assert!(read_all(&file)[7..] == all[7..]);
    drop(again);
    assert_eq!(group.mapped(), 0);
    drop(file);
    assert_eq!(group.used(), 0);
    assert_eq!(&fs::read(name.path()).unwrap()[4..7], b"new");
}

/// A miss of one file lets pages of another go, and writes them first where they have changed.
#[test]
fn files_of_a_group_make_room_for_each_other() {
    let _alone = budget(64 << 20);
    let group = CacheGroup::new(2 * SLOT).unwrap();
    let (first, second) = (hole(2 * SLOT as u64), named(&bytes(2 * SLOT, 3)));
    let dirty = group.open_writable(first.path()).unwrap();
    let all = bytes(2 * SLOT, 4);
    dirty.write_at(&all, 0).unwrap();
    assert!(dirty.present() > 0);
    let clean = group.open(second.path()).unwrap();
    assert!(read_all(&clean) == bytes(2 * SLOT, 3));
    assert!(dirty.present() < 2 * SLOT && group.used() <= 2 * SLOT);
    assert!(read_all(&dirty) == all);
    // What cannot be written cannot go: the miss has the error, and nothing is lost.
    assert!(File::open(first.path()).is_ok(), "it is the same cache");
    let other = CacheGroup::new(2 * SLOT).unwrap();
    assert_eq!(other.open(first.path()).err().unwrap().kind(), io::ErrorKind::ResourceBusy);
}

/// A mapping has promised room for its own pages, and for no others of their 2 MiB.
#[test]
fn what_was_not_promised_does_not_wait_for_room_that_never_comes() {
    let _alone = budget(64 << 20);
    let group = CacheGroup::new(SLOT).unwrap();
    let (first, second) = (named(&bytes(PAGE, 1)), named(&bytes(400 * PAGE, 2)));
    let file = group.open_writable(first.path()).unwrap();
    let page = file.map(0, PAGE).unwrap();
    file.grow(200 * PAGE as u64).unwrap();
    let other = group.file_with_small_pages(&fs::File::open(second.path()).unwrap()).unwrap();
    let held = other.map(0, 400 * PAGE).unwrap();
    let waits = Counter::FileThrottled;
    let before = count(waits);
    let new = bytes(150 * PAGE, 3);
    let written = file.write_at(&new, PAGE as u64).unwrap_or_default();
    assert!(written < new.len() && group.used() <= SLOT, "{written} bytes, {} of the group", group.used());
    assert_eq!(count(waits), before, "it has waited");
    drop(held);
    file.write_at(&new, PAGE as u64).unwrap();
    assert!(mapped(&page) == bytes(PAGE, 1) && read_all(&file)[PAGE..][..new.len()] == new);
}

/// Lazy mappings have their pages by memory beside the file, which takes room, too.
#[test]
fn a_group_that_is_as_large_as_what_is_mapped_lazily_has_as_much_as_fits() {
    if !can_be_lazy() {
        return;
    }
    let _alone = budget(64 << 20);
    let group = CacheGroup::new(SLOT).unwrap();
    let (all, name) = filled(2 * SLOT, 6);
    let file = group.open_writable(name.path()).unwrap();
    let lazy = file.map_lazy(0, 2 * SLOT).unwrap();
    let came = file.prefetch(&[0..SLOT as u64]).unwrap();
    assert!(came <= file.present() && group.used() <= SLOT, "{came} came, {} there", file.present());
    let before = count(Counter::FileThrottled);
    if let Err(error) = file.map(0, SLOT) {
        assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
    }
    assert_eq!(count(Counter::FileThrottled), before, "it has waited");
    assert!(mapped(&lazy) == all);
}
