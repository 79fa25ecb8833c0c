//! Files become longer and shorter, and get holes.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;

use faultless::file::File;

use crate::chance::Chance;
use crate::lazy::opened_writable;
use crate::plain::Plain;
use crate::{PAGE, SLOT, budget, bytes, hole, mapped, named, read_all};

/// What was behind the end does not come back when the file grows again: not from memory, nor from the file.
#[test]
fn bytes_behind_the_end_are_gone() {
    let _alone = budget(64 << 20);
    let named = tempfile::NamedTempFile::new().unwrap();
    for small in [false, true] {
        for in_memory in [false, true] {
            for cut in [0, 1, PAGE - 1, PAGE, SLOT - 1, SLOT, SLOT + PAGE + 3, 3 * SLOT] {
                let mut all = bytes(3 * SLOT + 77, 3);
                fs::write(named.path(), &all).unwrap();
                let file = opened_writable(&named, small);
                if in_memory {
                    assert!(read_all(&file) == all);
                    file.write_at(&[7; 100], (cut.max(50) - 50) as u64).unwrap();
                    all[cut.max(50) - 50..cut.max(50) + 50].fill(7);
                }
                file.set_len(cut as u64).unwrap();
                assert_eq!(fs::metadata(named.path()).unwrap().len(), cut as u64);
                all.truncate(cut);
                assert!(read_all(&file) == all, "{cut}");
                file.set_len(3 * SLOT as u64 + 5).unwrap();
                all.resize(3 * SLOT + 5, 0);
                assert!(read_all(&file) == all, "{cut}");
                file.sync().unwrap();
                assert!(fs::read(named.path()).unwrap() == all, "{cut}");
                assert!(mapped(&file.map(0, all.len()).unwrap()) == all, "{cut}");
            }
        }
    }
}

#[test]
fn a_mapping_keeps_its_part_of_the_file() {
    let _alone = budget(64 << 20);
    let file = File::with_backing(Plain::of(bytes(2 * SLOT, 2))).unwrap();
    let first = file.map(0, 10).unwrap();
    let second = file.map_mut(PAGE as u64, PAGE).unwrap();
    assert_eq!(file.set_len(2 * PAGE as u64 - 1).unwrap_err().kind(), ErrorKind::ResourceBusy);
    assert_eq!(file.len(), 2 * SLOT as u64);
    second.write(PAGE - 1, b"x").unwrap();
    file.set_len(2 * PAGE as u64).unwrap();
    let mut end = [0; 1];
    second.read(PAGE - 1, &mut end).unwrap();
    assert_eq!(&end, b"x");
    // The end of its page, which no other page of the huge page follows.
    drop(second);
    file.set_len(PAGE as u64 + 5).unwrap();
    file.grow(SLOT as u64).unwrap();
    let mut got = vec![9; PAGE];
    assert_eq!(file.read_at(&mut got, PAGE as u64 + 5).unwrap(), PAGE);
    assert!(got.iter().all(|byte| *byte == 0));
    // A hole is seen by mappings.
    file.punch_hole(3..8).unwrap();
    let mut got = [9; 10];
    first.read(0, &mut got).unwrap();
    assert_eq!(got[3..8], [0; 5]);
    assert_eq!(got[..3], bytes(3, 2)[..]);
    assert_eq!(file.punch_hole(0..SLOT as u64 + 1).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_hole_takes_no_room_and_reads_as_zero() {
    let _alone = budget(64 << 20);
    let named = tempfile::NamedTempFile::new().unwrap();
    let n = 4 * SLOT + 100;
    for (start, end) in [(0, n), (5, 3 * SLOT + 9), (SLOT, 2 * SLOT), (SLOT + 1, SLOT + 7), (n - 50, n)] {
        for in_memory in [false, true] {
            let mut all = bytes(n, 4);
            fs::write(named.path(), &all).unwrap();
            let file = File::open_writable(named.path()).unwrap();
            if in_memory {
                assert!(read_all(&file) == all);
                file.write_at(&[1; PAGE], start as u64).unwrap();
                all.resize(n.max(start + PAGE), 0);
                all[start..start + PAGE].fill(1);
            }
            fs::File::open(named.path()).unwrap().sync_all().unwrap();
            let before = fs::metadata(named.path()).unwrap().blocks();
            file.punch_hole(start as u64..end as u64).unwrap();
            all[start..end].fill(0);
            assert!(read_all(&file) == all, "{start} to {end}");
            file.sync().unwrap();
            assert!(fs::read(named.path()).unwrap() == all, "{start} to {end}");
            let after = fs::metadata(named.path()).unwrap().blocks();
            assert!(end - start < SLOT || after + (SLOT / 512) as u64 <= before, "{before} blocks, then {after}");
        }
    }
}

/// What is dirty there is not written to the hole, also where room has to be made while it is punched.
#[test]
fn nothing_dirty_comes_back_to_a_hole() {
    let _alone = budget(0);
    let mut all = bytes(4 * SLOT, 4);
    let named = named(&all);
    let file = File::open_writable(named.path()).unwrap();
    for slot in 1..4 {
        file.write_at(b"dirty", (slot * SLOT) as u64).unwrap();
        file.punch_hole(7..(4 * SLOT - 9) as u64).unwrap();
        all[7..4 * SLOT - 9].fill(0);
        file.sync().unwrap();
        assert!(fs::read(named.path()).unwrap() == all, "slot {slot}");
        file.drop_cache();
    }
    assert!(read_all(&file) == all);
}

/// Each page is as it was, or of zeroes, while threads make the file shorter and longer.
#[test]
fn reads_beside_a_file_that_changes_its_length_have_whole_pages() {
    let _alone = budget(6 << 20);
    let named = tempfile::NamedTempFile::new().unwrap();
    let pages = 3 * SLOT / PAGE;
    let page = |i: usize| [1 + (i % 251) as u8; PAGE];
    fs::write(named.path(), (0..pages).flat_map(page).collect::<Vec<_>>()).unwrap();
    let file = File::open_writable(named.path()).unwrap();
    let file = &file;
    std::thread::scope(|s| {
        for seed in 0..2 {
            s.spawn(move || {
                let mut chance = Chance(seed + 3);
                for _ in 0..600 {
                    let i = chance.below(pages);
                    let mut got = [0xEE; PAGE];
                    let n = file.read_at(&mut got, (i * PAGE) as u64).unwrap();
                    assert!(n == 0 || n == PAGE, "{n} bytes");
                    assert!(n == 0 || got == page(i) || got == [0; PAGE], "page {i}");
                    if chance.below(3) == 0 {
                        assert_eq!(file.write_at(&page(i), (i * PAGE) as u64).unwrap(), PAGE);
                    }
                    if chance.below(20) == 0 {
                        file.drop_range((i * PAGE) as u64..u64::MAX);
                    }
                    if chance.below(100) == 0 {
                        file.sync_range(0..(i * PAGE) as u64).unwrap();
                    }
                }
            });
        }
        s.spawn(|| {
            let mut chance = Chance(99);
            for _ in 0..150 {
                file.set_len((chance.below(pages + 1) * PAGE) as u64).unwrap();
                let at = (chance.below(pages) * PAGE) as u64;
                let _ = file.punch_hole(at..at + 3 * PAGE as u64);
            }
        });
    });
    file.sync().unwrap();
    assert!(fs::read(named.path()).unwrap() == read_all(file));
}

/// A file that other calls of this process make longer or shorter is so for who opens it then.
#[test]
fn a_length_that_others_change_is_seen_when_the_file_is_opened_again() {
    use std::io::Write;
    let _alone = budget(64 << 20);
    let mut all = bytes(SLOT + PAGE + 7, 5);
    let named = named(&all);
    let first = File::open(named.path()).unwrap();
    assert!(read_all(&first) == all);
    let more = bytes(2 * SLOT, 6);
    fs::File::options().append(true).open(named.path()).unwrap().write_all(&more).unwrap();
    all.extend(&more);
    let second = File::open_writable(named.path()).unwrap();
    assert!(read_all(&second) == all && read_all(&first) == all);
    named.as_file().set_len(PAGE as u64 + 9).unwrap();
    all.truncate(PAGE + 9);
    let third = File::open(named.path()).unwrap();
    assert!(read_all(&third) == all && read_all(&second) == all);
    second.grow(3 * SLOT as u64).unwrap();
    all.resize(3 * SLOT, 0);
    assert!(read_all(&third) == all);
    // All that is dirty in the process.
    second.write_at(b"end", 5).unwrap();
    all[5..8].copy_from_slice(b"end");
    faultless::file::sync_all().unwrap();
    assert!(fs::read(named.path()).unwrap() == all);
}

/// A writable mapping of a sparse file writes what is not zero, and leaves the holes.
#[test]
fn holes_that_nothing_was_written_to_stay_holes() {
    let _alone = budget(64 << 20);
    for small in [false, true] {
        let named = hole(6 * SLOT as u64 + 7);
        let file = opened_writable(&named, small);
        let mut all = vec![0; 6 * SLOT + 7];
        let mapping = file.map_mut(0, all.len()).unwrap();
        for (at, new) in [(5, &b"first"[..]), (3 * SLOT - 2, b"over a border"), (6 * SLOT + 3, b"last")] {
            mapping.write(at, new).unwrap();
            all[at..at + new.len()].copy_from_slice(new);
            file.sync().unwrap();
            assert!(fs::read(named.path()).unwrap() == all);
        }
        assert!(fs::metadata(named.path()).unwrap().blocks() * 512 <= 8 * PAGE as u64, "holes are filled");
        // What was written and is zero again is written.
        mapping.write(5, &[0; 5]).unwrap();
        all[5..10].fill(0);
        drop(mapping);
        file.sync().unwrap();
        assert!(fs::read(named.path()).unwrap() == all);
        file.drop_cache();
        assert!(read_all(&file) == all);
    }
}
