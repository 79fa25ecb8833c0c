//! Files that grow by calls, while other processes read, extend or shorten them.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};
use std::thread;

use faultless::file::{Backing, CacheGroup, File};

use crate::chance::Chance;
use crate::lazy::{can_be_lazy, opened_writable};
use crate::plain::Plain;
use crate::{PAGE, SLOT, budget, bytes, hole, named, read_all};

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
    if !crate::others::tells_changes_apart() {
        return;
    }
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

type Meanwhile = Box<dyn FnOnce() + Send>;

/// A file by small pages, of which it is noted how it grows. While it is read once, another thread does something.
struct Watched {
    plain: Plain,
    meanwhile: Arc<Mutex<Option<Meanwhile>>>,
    grown: Arc<Mutex<Vec<u64>>>,
}

impl Watched {
    fn of(bytes: Vec<u8>) -> Self {
        Self { plain: Plain::of(bytes), meanwhile: Arc::default(), grown: Arc::default() }
    }
}

impl Backing for Watched {
    fn length(&self) -> io::Result<u64> {
        self.plain.length()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.plain.read(offset, buffer)?;
        let meanwhile = self.meanwhile.lock().unwrap().take();
        if let Some(meanwhile) = meanwhile {
            thread::spawn(meanwhile).join().unwrap();
        }
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.plain.write(offset, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.plain.sync()
    }

    fn grow(&self, length: u64) -> io::Result<()> {
        self.grown.lock().unwrap().push(length);
        self.plain.grow(length)
    }

    fn is_huge(&self) -> bool {
        false
    }
}

/// Two threads append, and the bytes of the second one go from memory before the first has come to their page: they were
/// no zeroes then any more.
#[test]
fn bytes_that_another_thread_appends_to_the_same_page_stay() {
    let _alone = budget(64 << 20);
    let (at, end) = (3 * PAGE + 5, SLOT + PAGE + 100);
    let watched = Watched::of(bytes(at, 1));
    let meanwhile = Arc::clone(&watched.meanwhile);
    let file = Arc::new(File::with_backing(watched).unwrap());
    let other = Arc::clone(&file);
    *meanwhile.lock().unwrap() = Some(Box::new(move || {
        other.write_at(b"theirs", end as u64).unwrap();
        other.sync_range(SLOT as u64..u64::MAX).unwrap();
        assert!(other.drop_range(SLOT as u64..u64::MAX) > 0);
        // Another page, so that there are small ones.
        other.read_at(&mut [0], SLOT as u64).unwrap();
    }));
    let ours = bytes(end - at, 2);
    assert_eq!(file.write_at(&ours, at as u64).unwrap(), ours.len());
    assert!(meanwhile.lock().unwrap().is_none());
    assert!(read_all(&file) == [&bytes(at, 1)[..], &ours, b"theirs"].concat());
}

/// A write makes the file as long as it takes in one step, also in a group whose faults may need the room of its pages.
#[test]
fn a_write_makes_a_file_of_a_group_longer_once() {
    let _alone = budget(64 << 20);
    let group = CacheGroup::new(4 * SLOT).unwrap();
    let lazy = hole(SLOT as u64);
    let lazy = group.open(lazy.path()).unwrap();
    let _lazy = lazy.map_lazy(0, SLOT);
    let watched = Watched::of(bytes(PAGE, 1));
    let grown = Arc::clone(&watched.grown);
    let file = group.file_with_backing(watched).unwrap();
    let ours = bytes(300_000, 2);
    for end in [PAGE + 7, PAGE + 7 + ours.len()] {
        assert_eq!(file.write_at(&ours, end as u64).unwrap(), ours.len());
        assert_eq!(*grown.lock().unwrap().last().unwrap(), (end + ours.len()) as u64);
    }
    assert_eq!(grown.lock().unwrap().len(), 2);
    assert!(read_all(&file) == [&bytes(PAGE, 1)[..], &[0; 7], &ours, &ours].concat());
}
