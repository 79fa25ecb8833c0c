//! Errors come where they belong.

use std::sync::atomic::Ordering;

use faultless::file::{Backing, File};

use crate::plain::Plain;
use crate::{PAGE, SLOT, budget, bytes, filled, mapped, read_all};

#[test]
fn a_page_that_cannot_be_read_is_an_error_and_the_others_are_not() {
    let _alone = budget(64 << 20);
    let all = bytes(3 * SLOT, 3);
    let plain = Plain::of(all.clone());
    *plain.0.unreadable.lock().unwrap() = vec![SLOT / PAGE + 7];
    let bad = SLOT + 7 * PAGE;
    let file = File::with_backing(plain.clone()).unwrap();
    let mut page = vec![0; PAGE];
    for _ in 0..2 {
        let error = file.read_at(&mut page, bad as u64 + 5).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(5));
        assert_eq!(file.map(0, 3 * SLOT).err().unwrap().raw_os_error(), Some(5));
        assert_eq!(file.write_at(b"x", bad as u64).unwrap_err().raw_os_error(), Some(5));
    }
    for at in [0, SLOT, bad - PAGE, bad + PAGE, 2 * SLOT] {
        assert_eq!(file.read_at(&mut page, at as u64).unwrap(), PAGE);
        assert!(page == all[at..at + PAGE], "{at}");
    }
    // A read ends before what cannot be had, or fails; never zeroes.
    let mut some = vec![0; 2 * SLOT];
    let n = file.read_at(&mut some, 0).unwrap();
    assert!(n > 0 && n <= bad && some[..n] == all[..n]);
    // It is tried again, and succeeds once it can be read.
    plain.0.unreadable.lock().unwrap().clear();
    assert!(read_all(&file) == all && mapped(&file.map(0, 3 * SLOT).unwrap()) == all);
}

#[test]
fn what_cannot_be_written_stays_and_each_handle_is_told_once() {
    let _alone = budget(64 << 20);
    let plain = Plain::of(bytes(2 * SLOT, 4));
    let file = File::with_backing(plain.clone()).unwrap();
    for flag in [&plain.0.unwritable, &plain.0.unsyncable] {
        file.write_at(b"new", 100).unwrap();
        let mapping = file.map_mut(SLOT as u64, PAGE).unwrap();
        mapping.write(0, b"mapped").unwrap();
        flag.store(true, Ordering::Relaxed);
        assert_eq!(file.sync().unwrap_err().raw_os_error(), Some(5));
        assert_eq!(mapping.sync().unwrap_err().raw_os_error(), Some(5));
        drop(mapping);
        assert_eq!(file.drop_cache(), 0, "what is not written does not go");
        flag.store(false, Ordering::Relaxed);
        let mut got = [0; 3];
        file.read_at(&mut got, 100).unwrap();
        assert_eq!(&got, b"new");
        // The error of the mapping's sync was not told to this handle.
        assert_eq!(file.sync().unwrap_err().raw_os_error(), Some(5));
        file.sync().unwrap();
        assert_eq!(&plain.0.bytes.lock().unwrap()[100..103], b"new");
        assert_eq!(&plain.0.bytes.lock().unwrap()[SLOT..SLOT + 6], b"mapped");
        assert!(file.drop_cache() > 0);
    }
}

/// A full disk: told once, by the call that wrote or by the next sync. The bytes stay until there is room.
#[test]
fn a_full_disk_is_told_of_once_and_nothing_is_lost() {
    let _alone = budget(0);
    let all = bytes(8 * SLOT, 4);
    let plain = Plain::of(vec![0; all.len()]);
    let file = File::with_backing(plain.clone()).unwrap();
    let other = file.map(0, 0).unwrap();
    plain.0.errno.store(28, Ordering::Relaxed);
    plain.0.unwritable.store(true, Ordering::Relaxed);
    for (i, part) in all.chunks(SLOT).enumerate() {
        // Beyond the budget it is tried to write back, in vain.
        assert_eq!(file.write_at(part, (i * SLOT) as u64).unwrap(), SLOT);
    }
    assert_eq!(file.sync().unwrap_err().raw_os_error(), Some(28));
    assert_eq!(file.sync_range(0..SLOT as u64).unwrap_err().raw_os_error(), Some(28));
    plain.0.unwritable.store(false, Ordering::Relaxed);
    file.sync().unwrap();
    assert!(*plain.0.bytes.lock().unwrap() == all);
    // One that only a call met that needed room.
    file.drop_cache();
    plain.0.unwritable.store(true, Ordering::Relaxed);
    for (i, part) in all.chunks(SLOT).enumerate() {
        file.write_at(part, (i * SLOT) as u64).unwrap();
    }
    plain.0.unwritable.store(false, Ordering::Relaxed);
    assert_eq!(file.sync().unwrap_err().raw_os_error(), Some(28), "it was kept");
    file.sync().unwrap();
    drop(other);
    assert!(read_all(&file) == all);
}

/// Another process makes the file shorter: an error, and not zeroes.
#[test]
fn a_file_that_became_shorter_is_an_error() {
    let _alone = budget(64 << 20);
    let (all, named) = filled(3 * SLOT, 5);
    let file = File::open(named.path()).unwrap();
    named.as_file().set_len((SLOT + PAGE) as u64).unwrap();
    let mut page = vec![0; PAGE];
    assert_eq!(file.read_at(&mut page, 2 * SLOT as u64).unwrap_err().raw_os_error(), Some(5));
    assert!(file.map(0, 3 * SLOT).is_err());
    assert_eq!(file.read_at(&mut page, SLOT as u64).unwrap(), PAGE);
    assert!(page == all[SLOT..SLOT + PAGE]);
}

/// A backing that panics while it is told to.
struct Panics(Plain, std::sync::Arc<std::sync::atomic::AtomicBool>);

impl Backing for Panics {
    fn length(&self) -> std::io::Result<u64> {
        self.0.length()
    }
    fn read(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        assert!(!self.1.load(Ordering::Relaxed), "as a test");
        self.0.read(offset, buffer)
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
        assert!(!self.1.load(Ordering::Relaxed), "as a test");
        self.0.write(offset, bytes)
    }
    fn sync(&self) -> std::io::Result<()> {
        self.0.sync()
    }
}

/// A backing that panics has failed, and the cache goes on.
#[test]
fn a_backing_that_panics_has_failed() {
    let _alone = budget(64 << 20);
    let panics = std::sync::Arc::new(true.into());
    let all = bytes(3 * SLOT, 6);
    let file = File::with_backing(Panics(Plain::of(all.clone()), std::sync::Arc::clone(&panics))).unwrap();
    let mut page = vec![0; PAGE];
    assert!(file.read_at(&mut page, 0).is_err() && file.prefetch(&[0..SLOT as u64 + 1]).is_err());
    assert!(file.map(0, 3 * SLOT).is_err());
    panics.store(false, Ordering::Relaxed);
    assert!(read_all(&file) == all);
    file.write_at(b"new", 7).unwrap();
    panics.store(true, Ordering::Relaxed);
    assert!(file.sync().is_err());
    panics.store(false, Ordering::Relaxed);
    file.sync().unwrap();
    assert!(file.drop_cache() > 0);
    assert_eq!(file.read_at(&mut page, 7).unwrap(), PAGE);
    assert_eq!(&page[..3], b"new");
}
