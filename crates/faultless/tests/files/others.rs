//! Files that others change while they are open here: by other descriptors, of this process or of another one.

use std::fs;
use std::os::unix::fs::FileExt;

use faultless::file::File;

use crate::lazy::{can_be_lazy, opened_writable};
use crate::{PAGE, SLOT, budget, bytes, filled, mapped, named, read_all};

/// Whether each change of a file that was looked at has another time (Linux 6.13). Else a change of this library's may hide
/// another's, and what is in memory goes.
pub fn tells_changes_apart() -> bool {
    let named = named(b"0");
    let changed = || fs::metadata(named.path()).unwrap().modified().unwrap();
    let others = fs::File::options().write(true).open(named.path()).unwrap();
    (0..50).all(|_| {
        let before = changed();
        others.write_all_at(b"1", 0).unwrap();
        changed() > before
    })
}

/// What others have written is seen by who opens the file then, where no mapping is.
#[test]
fn what_others_write_is_seen_when_the_file_is_opened_again() {
    let _alone = budget(64 << 20);
    let mut all = bytes(4 * SLOT, 5);
    let named = named(&all);
    let first = File::open_writable(named.path()).unwrap();
    assert!(read_all(&first) == all);
    let mapping = first.map(0, PAGE).unwrap();
    first.write_at(b"dirty", 3 * SLOT as u64).unwrap();
    all[3 * SLOT..][..5].copy_from_slice(b"dirty");
    let others = fs::File::options().write(true).open(named.path()).unwrap();
    let changed = || fs::metadata(named.path()).unwrap().modified().unwrap();
    let before = changed();
    // The clock of a file system may stand still for some ms.
    while changed() == before {
        for at in [5, SLOT, 3 * SLOT + PAGE] {
            others.write_all_at(b"by others", at as u64).unwrap();
        }
    }
    [SLOT, 3 * SLOT + PAGE].iter().for_each(|at| all[*at..][..9].copy_from_slice(b"by others"));
    let second = File::open(named.path()).unwrap();
    assert!(read_all(&second) == all, "what is mapped stays, and the rest is new");
    drop(mapping);
    all[5..14].copy_from_slice(b"by others");
    assert!(read_all(&File::open(named.path()).unwrap()) == all, "it is mapped no more");
    // Its own changes drop nothing.
    first.sync().unwrap();
    first.punch_hole(2 * SLOT as u64..2 * SLOT as u64 + 5).unwrap();
    first.grow(4 * SLOT as u64 + 5).unwrap();
    first.set_len(4 * SLOT as u64).unwrap();
    let present = first.present();
    drop(File::open(named.path()).unwrap());
    assert!(first.present() == present || !tells_changes_apart());
}

/// Another descriptor's write right after one of the library's, within one tick of the kernel's clock: the next handle has
/// its bytes.
#[test]
fn what_others_write_right_after_a_sync_is_seen_where_the_file_is_opened_again() {
    let _alone = budget(4 << 20);
    let (mut all, named) = filled(2 * SLOT, 3);
    let file = File::open_writable(named.path()).unwrap();
    let others = fs::File::options().write(true).open(named.path()).unwrap();
    for round in 0..200_usize {
        let ours = [round as u8; 7];
        file.write_at(&ours, 5).unwrap();
        all[5..12].copy_from_slice(&ours);
        assert!(read_all(&file) == all, "round {round}");
        file.sync().unwrap();
        let place = SLOT + round * 100;
        others.write_all_at(&[!all[place]], place as u64).unwrap();
        all[place] = !all[place];
        assert!(read_all(&File::open(named.path()).unwrap()) == all, "round {round}");
    }
}

/// A place of each slot, and of a page that has nothing else.
const PLACES: [usize; 3] = [100, SLOT - 1, SLOT + 5 * PAGE];

/// Others write there, and have written when this returns.
fn others_write(named: &tempfile::NamedTempFile, all: &mut [u8]) {
    let others = fs::File::options().write(true).open(named.path()).unwrap();
    for place in PLACES {
        all[place] = !all[place];
        others.write_all_at(&all[place..=place], place as u64).unwrap();
    }
}

/// In the 2 MiB of a page that is dirty, too, and of a lazy mapping.
#[test]
fn what_others_write_beside_dirty_pages_is_seen() {
    let _alone = budget(64 << 20);
    for (small, lazily) in [(false, false), (true, false), (false, true), (true, true)] {
        if lazily && !can_be_lazy() {
            continue;
        }
        let (mut all, named) = filled(4 * SLOT, 6);
        let file = opened_writable(&named, small);
        let mapping = lazily.then(|| file.map_lazy_mut(0, 3 * SLOT).unwrap());
        assert!(read_all(&file) == all);
        match &mapping {
            Some(mapping) => {
                mapping.write(0, &all[..3 * SLOT]).unwrap();
                file.sync().unwrap();
                mapping.write(9 * PAGE, b"ours").unwrap();
            }
            None => assert_eq!(file.write_at(b"ours", 9 * PAGE as u64).unwrap(), 4),
        }
        all[9 * PAGE..][..4].copy_from_slice(b"ours");
        others_write(&named, &mut all);
        assert!(read_all(&File::open(named.path()).unwrap()) == all, "{small} {lazily}");
        assert!(mapping.as_ref().is_none_or(|mapping| self::mapped(mapping) == all[..3 * SLOT]));
        drop((mapping, file));
        assert!(fs::read(named.path()).unwrap() == all, "{small} {lazily}");
    }
}

/// Others make the file shorter and write to its last page, of which a lazy mapping for writing has told. What is behind the
/// end there is zeroed, which is no change of the program's.
#[test]
fn the_last_page_of_a_file_that_others_cut_is_theirs() {
    const END: usize = 510_694;
    let _alone = budget(64 << 20);
    if !can_be_lazy() {
        return;
    }
    for small in [false, true] {
        let (mut all, named) = filled(3 * SLOT / 2, 9);
        let file = opened_writable(&named, small);
        let mapping = file.map_lazy_mut(0, all.len()).unwrap();
        assert!(mapped(&mapping) == all);
        drop(mapping);
        file.sync().unwrap();
        let others = fs::File::options().write(true).open(named.path()).unwrap();
        others.set_len(END as u64).unwrap();
        all.truncate(END);
        for place in [100, END - 4] {
            all[place] = !all[place];
            others.write_all_at(&all[place..=place], place as u64).unwrap();
        }
        let again = File::open(named.path()).unwrap();
        assert!(read_all(&again) == all, "{small}");
        file.sync().unwrap();
        assert!(fs::read(named.path()).unwrap() == all, "{small}");
        file.set_len(END as u64 + 100).unwrap();
        all.resize(END + 100, 0);
        drop((file, again));
        assert!(fs::read(named.path()).unwrap() == all, "{small}");
    }
}

/// A program that copies times, too (`cp -p`, `rsync -t`).
#[test]
fn a_change_is_seen_whose_time_of_modification_is_set_back() {
    let _alone = budget(4 << 20);
    let (mut all, named) = filled(2 * SLOT, 7);
    let file = File::open(named.path()).unwrap();
    assert!(read_all(&file) == all);
    let modified = fs::metadata(named.path()).unwrap().modified().unwrap();
    others_write(&named, &mut all);
    fs::File::options().write(true).open(named.path()).unwrap().set_modified(modified).unwrap();
    assert!(read_all(&File::open(named.path()).unwrap()) == all);
}

/// Pages came by many reads at a time, which leaves bytes beside the file.
#[test]
fn pages_that_came_lazily_go_all_of_them() {
    let _alone = budget(64 << 20);
    if !can_be_lazy() {
        return;
    }
    let (mut all, named) = filled(4 * SLOT, 8);
    let file = opened_writable(&named, true);
    let mapping = file.map_lazy_mut(0, all.len()).unwrap();
    file.prefetch(&[0..all.len() as u64]).unwrap();
    drop(mapping);
    file.sync().unwrap();
    others_write(&named, &mut all);
    let again = File::open(named.path()).unwrap();
    assert_eq!(again.present(), 0);
    assert!(read_all(&again) == all);
    assert_eq!((again.drop_cache(), again.present()), (all.len(), 0));
}
