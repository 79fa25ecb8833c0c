//! Counters of what pages a file's memory has.

use std::fs;
use std::os::fd::FromRawFd;

use faultless::file::{self, CacheGroup, File};
use faultless_base::sys::file_memory::{FileMemory, UserMemory};
use faultless_page::gauges::Gauge;
use faultless_page::knobs::Knob;
use faultless_page::stats::Counter;

use crate::lazy::{can_be_lazy, count};
use crate::{PAGE, SLOT, budget, bytes, hole, mapped, named, read_all};

/// The first write to 2 MiB counts once, by what pages came for it. A huge page that is in memory is divided when a
/// mapping has to tell its pages apart.
#[test]
fn writes_are_counted_by_the_pages_they_get() {
    let _alone = budget(64 << 20);
    let named = hole(4 * SLOT as u64);
    let file = File::open_writable(named.path()).unwrap();
    let written = || count(Counter::FileWriteAlloc) + count(Counter::FileWriteFailed);
    let (before, failed) = (written(), count(Counter::FileFallback));
    for _ in 0..3 {
        file.write_at(&[1; 10], 3 * SLOT as u64).unwrap();
    }
    assert_eq!(written() - before, 1);
    if !can_be_lazy() {
        return;
    }
    let split = count(Counter::FileSplit);
    let mapping = file.map_lazy_mut(0, 4 * SLOT).unwrap();
    mapping.write(3 * SLOT + 5, &[2]).unwrap();
    file.sync().unwrap();
    file.drop_cache();
    assert!(count(Counter::FileSplit) > split || count(Counter::FileFallback) > failed);
}

#[test]
fn what_files_do_is_counted() {
    let _alone = budget(64 << 20);
    let counted = || {
        use Counter::*;
        [FileAlloc, FileFilled, FileWritten, FileEvicted].map(faultless::region::Region::counted)
    };
    let named = named(&bytes(2 * SLOT, 1));
    let file = File::open_writable(named.path()).unwrap();
    let before = counted();
    file.write_at(b"new", 10).unwrap();
    file.sync().unwrap();
    let is_huge = counted()[0] > before[0];
    let least = if file.is_direct() && is_huge { SLOT } else { PAGE };
    assert!(counted()[1] >= before[1] + least as u64);
    assert_eq!(counted()[2], before[2] + PAGE as u64, "one page is written, and not 2 MiB");
    assert_eq!(file.drop_cache(), SLOT);
    assert_eq!(counted()[3], before[3] + SLOT as u64);
    if !is_huge {
        assert!(faultless::region::Region::counted(Counter::FileFallback) > 0);
    }
    // A file system whose writes go by its page cache, and a file without a name.
    // SAFETY: a new descriptor.
    let memory = unsafe { fs::File::from_raw_fd(libc::memfd_create(c"file".as_ptr(), 0)) };
    memory.set_len(3 * PAGE as u64).unwrap();
    let in_memory = File::new(&memory).unwrap();
    let before = faultless::region::Region::counted(Counter::FileBuffered);
    in_memory.write_at(&bytes(2 * PAGE, 2), 5).unwrap();
    in_memory.sync().unwrap();
    assert!(read_all(&in_memory)[5..][..2 * PAGE] == bytes(2 * PAGE, 2));
    let mut got = vec![0; 2 * PAGE];
    std::os::unix::fs::FileExt::read_exact_at(&memory, &mut got, 5).unwrap();
    assert!(got == bytes(2 * PAGE, 2));
    assert!(faultless::region::Region::counted(Counter::FileBuffered) > before);
}

/// What goes to make room and comes back counts, with what went meanwhile. What goes by advice does not.
#[test]
fn pages_that_come_back_are_counted() {
    let _alone = budget(64 << 20);
    let all = bytes(4 * SLOT, 3);
    let named = named(&all);
    let group = CacheGroup::new(2 * SLOT).unwrap();
    let file = group.open(named.path()).unwrap();
    // What a round adds to each counter.
    let round = || {
        let counted = || [Counter::FileGone, Counter::FileRefaults, Counter::FileRefaultDistance].map(count);
        let before = counted();
        assert!(read_all(&file) == all);
        [0, 1, 2].map(|i| (counted()[i] - before[i]) as usize)
    };
    let [gone, refaults, _] = round();
    assert!((2 * SLOT..=4 * SLOT).contains(&gone) && refaults == 0, "{gone} bytes, {refaults} pages");
    assert!(file.working_set() <= group.budget());
    let [gone, refaults, distance] = round();
    assert!((SLOT..=4 * SLOT).contains(&(refaults * PAGE)) && gone >= SLOT, "{refaults} pages");
    // In a circle, a page comes back after most others have gone.
    assert!((SLOT..=4 * SLOT).contains(&(distance / refaults)), "{distance} bytes for {refaults} pages");
    assert!((group.budget()..=4 * SLOT).contains(&file.working_set()), "{} bytes", file.working_set());
    drop((file, group));
    let file = File::open(named.path()).unwrap();
    let read = || {
        let before = count(Counter::FileRefaults);
        assert!(read_all(&file) == all);
        count(Counter::FileRefaults) - before
    };
    assert_eq!(read(), 0);
    assert_eq!(file.drop_cache(), 4 * SLOT);
    assert_eq!(read(), 0);
}

/// Whether small pages can become a huge page here, as far as one is to be had.
fn can_collapse() -> bool {
    let before = count(Counter::FileAlloc);
    let named = named(&bytes(SLOT, 9));
    read_all(&File::open(named.path()).unwrap());
    let can = count(Counter::FileAlloc) > before && UserMemory::new().frees_tables();
    if !can {
        faultless_testkit::skip("no huge page can be had, or page tables stay (Linux 6.14)");
    }
    can
}

/// Small pages become a huge page once all of their 2 MiB are in memory, and in the file.
#[test]
fn small_pages_become_a_huge_page() {
    let _alone = budget(64 << 20);
    if !can_collapse() {
        return;
    }
    let counted = || [count(Counter::FileCollapsed), file::memory(Gauge::FileHugePages)];
    let named = named(&[]);
    let file = File::open_writable(named.path()).unwrap();
    let mut all = bytes(2 * SLOT + 3 * PAGE, 7);
    let before = counted();
    // A file this small has small pages, and they stay when it grows.
    for (i, record) in all.chunks(PAGE).enumerate() {
        file.write_at(record, (i * PAGE) as u64).unwrap();
    }
    let dirty = counted();
    assert_eq!(dirty[0], before[0], "the file does not have these pages yet");
    file.sync().unwrap();
    assert_eq!([0, 1].map(|i| counted()[i] - dirty[i]), [1, SLOT as u64]);
    assert!(read_all(&file) == all);
    file.write_at(b"new", 5).unwrap();
    all[5..8].copy_from_slice(b"new");
    let mapping = file.map_mut(0, SLOT).unwrap();
    mapping.write(9000, b"mapped").unwrap();
    all[9000..9006].copy_from_slice(b"mapped");
    file.sync().unwrap();
    assert!(fs::read(named.path()).unwrap() == all);
    drop(mapping);
    file.drop_cache();
    assert!(read_all(&file) == all);
}

/// A mapping of small pages gets huge ones where it can, but for those that a mapping has or had.
#[test]
fn a_mapping_has_huge_pages_where_small_ones_were() {
    let _alone = budget(64 << 20);
    if !can_collapse() {
        return;
    }
    let knob = |word: u64| faultless::region::set(Knob::ThpPagecache, word);
    let all = bytes(3 * SLOT, 8);
    let named = named(&all);
    let file = File::open(named.path()).unwrap();
    // `never`, and then `advise` as by default.
    knob(2);
    let small = file.map(0, PAGE).unwrap();
    let read = read_all(&file);
    knob(1);
    assert!(read == all);
    let before = count(Counter::FileCollapsed);
    let mapping = file.map(0, all.len()).unwrap();
    assert!(mapped(&mapping) == all && mapped(&small) == all[..PAGE]);
    assert_eq!(count(Counter::FileCollapsed) - before, 2);
}
