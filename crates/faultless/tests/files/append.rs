//! Files that grow by calls, while other processes read, extend or shorten them.

use std::fs;
use std::os::unix::fs::FileExt;

use faultless::file::File;

use crate::chance::Chance;
use crate::lazy::{can_be_lazy, opened_writable};
use crate::{PAGE, SLOT, budget, bytes, named, read_all};

/// Records of any length, one behind the other. By other means the file is as long as what was written, at each moment.
#[test]
fn a_file_is_as_long_as_its_records() {
    for (room, small) in [(64 << 20, false), (64 << 20, true), (0, false), (0, true)] {
        let _alone = budget(room);
        let named = named(&[]);
        let file = opened_writable(&named, small);
        let mut chance = Chance(5);
        let mut all = Vec::new();
        while all.len() < 2 * SLOT + 5 * PAGE {
            let most = [PAGE, PAGE + 1, 3 * PAGE, 100, SLOT / 3][chance.below(5)];
            let n = if chance.below(3) == 0 { most } else { 1 + chance.below(most) };
            // Sometimes a gap, which is zero.
            let gap = if chance.below(8) == 0 { chance.below(3 * PAGE) } else { 0 };
            let record = bytes(n, all.len() as u64 + 1);
            assert_eq!(file.write_at(&record, (all.len() + gap) as u64).unwrap(), n);
            all.resize(all.len() + gap, 0);
            all.extend(record);
            assert_eq!(
                (file.len(), fs::metadata(named.path()).unwrap().len()),
                (all.len() as u64, all.len() as u64)
            );
            if chance.below(100) == 0 {
                file.sync().unwrap();
                assert!(fs::read(named.path()).unwrap() == all);
            }
        }
        assert!(read_all(&file) == all);
        drop(file);
        assert!(fs::read(named.path()).unwrap() == all);
    }
}

/// Records of 4 KiB: for counting system calls (`strace -f -c`).
#[test]
fn records_that_follow_each_other() {
    let _alone = budget(64 << 20);
    let named = named(&[]);
    let file = opened_writable(&named, false);
    let all = bytes(1000 * PAGE, 9);
    for (i, record) in all.chunks(PAGE).enumerate() {
        file.write_at(record, (i * PAGE) as u64).unwrap();
    }
    file.sync().unwrap();
    assert!(fs::read(named.path()).unwrap() == all);
}

/// What another process appends is not cut off by a record that ends before it.
#[test]
fn bytes_that_others_append_stay() {
    let _alone = budget(64 << 20);
    for small in [false, true] {
        let named = named(&bytes(PAGE, 1));
        let file = opened_writable(&named, small);
        let theirs = bytes(5 * PAGE, 2);
        named.as_file().write_all_at(&theirs, 3 * PAGE as u64).unwrap();
        let ours = bytes(2 * PAGE, 3);
        file.write_at(&ours, PAGE as u64).unwrap();
        assert_eq!(fs::metadata(named.path()).unwrap().len(), 8 * PAGE as u64);
        // Behind what they wrote.
        let last = bytes(100, 4);
        file.write_at(&last, 8 * PAGE as u64).unwrap();
        let all = [bytes(PAGE, 1), ours, theirs, last].concat();
        assert!(read_all(&file) == all, "{small}");
        file.sync().unwrap();
        assert!(fs::read(named.path()).unwrap() == all, "{small}");
    }
}

/// A change of another process between records is noticed when the file is opened once more, though this one has
/// changed the file since.
#[test]
fn changes_of_others_between_records_are_noticed() {
    let _alone = budget(64 << 20);
    for small in [false, true] {
        for by_sync in [false, true] {
            let mut all = bytes(3 * SLOT, 5);
            let named = named(&all);
            let file = opened_writable(&named, small);
            assert!(read_all(&file) == all);
            file.write_at(&[1; PAGE], all.len() as u64).unwrap();
            all.extend([1; PAGE]);
            // A moment that any file system can tell from the last one.
            std::thread::sleep(std::time::Duration::from_millis(20));
            named.as_file().write_all_at(b"theirs", 100).unwrap();
            all[100..106].copy_from_slice(b"theirs");
            std::thread::sleep(std::time::Duration::from_millis(20));
            file.write_at(&[2; PAGE], all.len() as u64).unwrap();
            all.extend([2; PAGE]);
            if by_sync {
                file.sync().unwrap();
            }
            let again = File::open(named.path()).unwrap();
            assert!(read_all(&again) == all, "{small} {by_sync}");
        }
    }
}

/// Nothing that this process does looks like a change of another one: what is in memory stays there.
#[test]
fn records_are_no_changes_of_others() {
    let _alone = budget(64 << 20);
    let all = bytes(3 * SLOT, 6);
    let named = named(&all);
    let file = opened_writable(&named, false);
    assert!(read_all(&file) == all);
    for i in 0..40 {
        file.write_at(&[3; PAGE], (all.len() + i * PAGE) as u64).unwrap();
        match i % 8 {
            3 => file.sync().unwrap(),
            5 => file.punch_hole(0..PAGE as u64).unwrap(),
            7 => file.set_len((all.len() + (i + 1) * PAGE) as u64).unwrap(),
            _ => {}
        }
        let again = File::open(named.path()).unwrap();
        assert!(again.present() >= 3 * SLOT, "{i}: dropped at {}", again.present());
    }
}

/// Another process makes the file shorter between records: the next one is where it was written, and what is no longer
/// in the file nor in memory is an error.
#[test]
fn a_file_that_others_cut_grows_to_its_next_record() {
    let _alone = budget(64 << 20);
    let all = bytes(4 * SLOT, 7);
    let named = named(&all);
    let file = opened_writable(&named, false);
    named.as_file().set_len(PAGE as u64).unwrap();
    file.write_at(&[4; PAGE], all.len() as u64).unwrap();
    assert_eq!(fs::metadata(named.path()).unwrap().len(), (all.len() + PAGE) as u64);
    file.sync().unwrap();
    let on_disk = fs::read(named.path()).unwrap();
    assert!(on_disk[..PAGE] == all[..PAGE] && on_disk[all.len()..] == [4; PAGE]);
    assert!(on_disk[PAGE..all.len()].iter().all(|byte| *byte == 0));
}

/// Memory that comes ahead of small records is no page of the file: a lazy mapping finds none there, and what is written
/// there later is noted.
#[test]
fn memory_ahead_of_records_is_no_page_yet() {
    let _alone = budget(64 << 20);
    if !can_be_lazy() {
        return;
    }
    let named = named(&[]);
    let file = opened_writable(&named, true);
    let mut all = bytes(20 * PAGE, 10);
    for (i, record) in all.chunks(PAGE).enumerate() {
        file.write_at(record, (i * PAGE) as u64).unwrap();
    }
    assert_eq!(file.present(), 20 * PAGE);
    file.sync().unwrap();
    file.set_len(40 * PAGE as u64).unwrap();
    all.resize(40 * PAGE, 0);
    let mapping = file.map_lazy_mut(0, 40 * PAGE).unwrap();
    mapping.write(25 * PAGE, b"later").unwrap();
    file.sync().unwrap();
    // SAFETY: no other thread uses the file.
    unsafe { (mapping.as_ptr().cast_mut()).add(27 * PAGE).write(9) };
    all[25 * PAGE..][..5].copy_from_slice(b"later");
    all[27 * PAGE] = 9;
    file.sync().unwrap();
    assert!(fs::read(named.path()).unwrap() == all);
    assert_eq!(file.present(), 22 * PAGE);
}
