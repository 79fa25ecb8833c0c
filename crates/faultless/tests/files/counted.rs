//! Counters of what pages a file's memory has.

use faultless::file::File;
use faultless_page::stats::Counter;

use crate::lazy::{can_be_lazy, count};
use crate::{SLOT, budget, hole};

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
