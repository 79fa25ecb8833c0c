//! What a program says beforehand: what comes for it, and that no byte changes.

use faultless::file::{Advice, File};
use faultless_page::stats::Counter;

use crate::lazy::{can_be_lazy, count};
use crate::{PAGE, SLOT, budget, filled, mapped, read_all};

/// Bytes in memory after two reads that follow each other.
fn after_two_reads(file: &File) -> usize {
    file.drop_cache();
    let mut got = [0; PAGE];
    file.read_at(&mut got, SLOT as u64).unwrap();
    file.read_at(&mut got, (SLOT + PAGE) as u64).unwrap();
    file.present()
}

#[test]
fn reads_bring_what_comes_next_as_advised() {
    let _alone = budget(64 << 20);
    let (all, name) = filled(8 * SLOT, 3);
    let open = std::fs::File::open(name.path()).unwrap();
    let file = File::with_small_pages(&open).unwrap();
    let all_of_it = 0..file.len();
    // Two pages, and those of the first window.
    let by_reads = after_two_reads(&file);
    file.advise(all_of_it.clone(), Advice::Random).unwrap();
    assert_eq!(after_two_reads(&file), 2 * PAGE);
    file.advise(all_of_it.clone(), Advice::Sequential).unwrap();
    let in_turn = after_two_reads(&file);
    if file.is_direct() {
        assert!(2 * PAGE < by_reads && by_reads < SLOT && in_turn == 7 * SLOT, "{by_reads} {in_turn}");
    }
    file.advise(all_of_it, Advice::Normal).unwrap();
    assert_eq!(after_two_reads(&file), by_reads);
    assert!(read_all(&file) == all);
}

#[test]
fn parts_come_and_go_as_advised() {
    let _alone = budget(64 << 20);
    let (all, name) = filled(4 * SLOT, 4);
    let file = File::open_writable(name.path()).unwrap();
    file.advise(0..2 * SLOT as u64, Advice::WillNeed).unwrap();
    assert_eq!(file.present(), 2 * SLOT);
    let filled = count(Counter::FileFilled);
    assert!(mapped(&file.map(0, 2 * SLOT).unwrap()) == all[..2 * SLOT]);
    assert_eq!(count(Counter::FileFilled), filled, "nothing is read that was brought");
    file.write_at(b"new", 5).unwrap();
    let mapping = file.map(3 * SLOT as u64, SLOT).unwrap();
    file.advise(0..file.len(), Advice::DontNeed).unwrap();
    assert_eq!(file.present(), 2 * SLOT, "what is mapped or changed stays");
    mapping.advise(0..SLOT, Advice::DontNeed).unwrap();
    assert!(mapped(&mapping) == all[3 * SLOT..]);
    for (start, end) in [(0, file.len() + 1), (5, u64::MAX)] {
        assert!(file.advise(start..end, Advice::Normal).is_err());
    }
    assert!(mapping.advise(1..SLOT + 1, Advice::Normal).is_err());
    let mut got = [0; 3];
    file.read_at(&mut got, 5).unwrap();
    assert_eq!(&got, b"new");
}

/// Pages of a part come as advised there, whatever the file was opened for.
#[test]
fn pages_are_huge_and_small_as_advised() {
    let _alone = budget(64 << 20);
    let (all, name) = filled(4 * SLOT, 5);
    let open = std::fs::File::open(name.path()).unwrap();
    let huge = || count(Counter::FileAlloc) + count(Counter::FileFallback);
    let mut got = [0];
    {
        let file = File::new(&open).unwrap();
        file.advise(5..6, Advice::NoHuge).unwrap();
        let before = huge();
        file.read_at(&mut got, 0).unwrap();
        assert_eq!((file.present(), huge()), (PAGE, before));
        file.read_at(&mut got, SLOT as u64).unwrap();
        assert_eq!(huge(), before + 1, "only those 2 MiB are by small pages");
        assert!(read_all(&file) == all);
    }
    let file = File::with_small_pages(&open).unwrap();
    file.advise(SLOT as u64..SLOT as u64 + 1, Advice::Huge).unwrap();
    let before = huge();
    file.read_at(&mut got, 0).unwrap();
    assert_eq!(huge(), before);
    file.read_at(&mut got, SLOT as u64).unwrap();
    assert_eq!(huge(), before + 1);
    assert!(read_all(&file) == all);
}

#[test]
fn faults_bring_what_comes_next_as_advised() {
    let _alone = budget(64 << 20);
    if !can_be_lazy() {
        return;
    }
    let (all, name) = filled(4 * SLOT + 5, 6);
    let open = std::fs::File::open(name.path()).unwrap();
    let faults = |advice: Advice| {
        let file = File::with_small_pages(&open).unwrap();
        let mapping = file.map_lazy(0, all.len()).unwrap();
        mapping.advise(0..all.len(), advice).unwrap();
        let before = count(Counter::FileFault);
        // SAFETY: no other thread uses the file.
        assert!(unsafe { mapping.as_slice() } == all);
        count(Counter::FileFault) - before
    };
    let pages = all.len().div_ceil(PAGE) as u64;
    assert_eq!([Advice::Normal, Advice::Random].map(faults), [pages; 2]);
    let in_turn = faults(Advice::Sequential);
    assert!(in_turn < pages / 8, "{in_turn} faults");
}
