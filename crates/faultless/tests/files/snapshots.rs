//! Snapshots of files have what was there at their moment, whatever comes after it.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use faultless::file::{Delivery, File, MappingMut, Snapshot};
use faultless::region::{Error, Save};
use faultless_page::stats::Counter;

use crate::chance::Chance;
use crate::lazy::{can_be_lazy, count, opened_writable};
use crate::plain::Plain;
use crate::{PAGE, SLOT, budget, bytes, filled, hole, named, passes_in_child, read_all};

fn all_of(snapshot: &Snapshot) -> Vec<u8> {
    let mut bytes = vec![0; snapshot.len()];
    snapshot.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Whether writes to lazy mappings can be told here.
fn allows(file: &File) -> bool {
    let allowed = file.allow_snapshots();
    if let Err(error) = &allowed {
        faultless_testkit::skip(format!("no snapshots of lazy mappings: {error}"));
    }
    allowed.is_ok()
}

/// A file, its bytes as they should be, and its snapshots.
struct World {
    file: File,
    mapping: Option<MappingMut>,
    now: Vec<u8>,
    taken: Vec<(Snapshot, Vec<u8>)>,
    chance: Chance,
}

impl World {
    fn part(&mut self) -> (usize, usize) {
        let at = self.chance.below(self.now.len());
        let most = if self.chance.below(8) == 0 { SLOT } else { 3 * PAGE };
        (at, 1 + self.chance.below(most).min(self.now.len() - at - 1))
    }

    /// Bytes are written by a call, or through the mapping.
    fn write(&mut self) {
        let ((at, n), byte) = (self.part(), self.chance.below(255) as u8 + 1);
        self.now[at..at + n].fill(byte);
        match &mut self.mapping {
            Some(mapping) if self.chance.below(2) == 0 => {
                // SAFETY: no other thread uses the file.
                unsafe { mapping.as_mut_slice()[at..at + n].fill(byte) };
            }
            _ => assert_eq!(self.file.write_at(&vec![byte; n], at as u64).unwrap(), n),
        }
    }

    fn step(&mut self) {
        match self.chance.below(24) {
            0..=9 => self.write(),
            10 | 11 if self.taken.len() < 6 => {
                self.taken.push((self.file.snapshot().unwrap(), self.now.clone()));
            }
            12 | 13 if !self.taken.is_empty() => {
                let i = self.chance.below(self.taken.len());
                self.taken.swap_remove(i);
            }
            14 => self.file.sync().unwrap(),
            15 => {
                let (at, n) = self.part();
                self.now[at..at + n].fill(0);
                self.file.punch_hole(at as u64..(at + n) as u64).unwrap();
            }
            16 if self.mapping.is_none() => {
                let n = 1 + self.chance.below(4 * SLOT);
                self.now.resize(n, 0);
                self.file.set_len(n as u64).unwrap();
            }
            17 if self.mapping.is_none() => {
                // One that holds its pages copies what it may write to.
                let ((at, n), byte) = (self.part(), self.chance.below(255) as u8 + 1);
                let mut mapping = self.file.map_mut(at as u64, n).unwrap();
                // SAFETY: no other thread uses the file.
                unsafe { mapping.as_mut_slice().fill(byte) };
                self.now[at..at + n].fill(byte);
            }
            18..=21 if !self.taken.is_empty() => {
                let i = self.chance.below(self.taken.len());
                let (snapshot, was) = &self.taken[i];
                let at = self.chance.below(was.len());
                let mut part = vec![0; (was.len() - at).min(5 * PAGE)];
                snapshot.read_at(at, &mut part).unwrap();
                assert!(part == was[at..at + part.len()], "snapshot {i} from {at:#x} on");
            }
            _ => {
                let (at, n) = self.part();
                let mut part = vec![0; n];
                assert_eq!(self.file.read_at(&mut part, at as u64).unwrap(), n);
                assert!(part == self.now[at..at + n], "the file from {at:#x} on");
            }
        }
    }

    fn check(&self) {
        for (i, (snapshot, was)) in self.taken.iter().enumerate() {
            assert!(all_of(snapshot) == *was, "snapshot {i}");
        }
    }
}

/// Trees of snapshots, in any order with all that changes a file, while pages come, go and are written back.
#[test]
fn snapshots_keep_their_moment_whatever_happens() {
    let _alone = budget(4 << 20);
    for (seed, is_lazy, small) in [
        (1, false, false),
        (2, false, true),
        (3, true, false),
        (4, true, true),
        (5, true, false),
        (6, false, false),
    ] {
        let (now, named) = filled(4 * SLOT - 1234, seed);
        let file = opened_writable(&named, small);
        if is_lazy && !(can_be_lazy() && allows(&file)) {
            continue;
        }
        let mapping = is_lazy.then(|| file.map_lazy_mut(0, now.len()).unwrap());
        let mut world = World { file, mapping, now, taken: Vec::new(), chance: Chance(seed * 77 + 1) };
        for step in 0..300 {
            world.step();
            if step % 150 == 149 {
                world.check();
            }
        }
        world.check();
        let World { file, mapping, now, taken, .. } = world;
        file.sync().unwrap();
        assert!(fs::read(named.path()).unwrap() == now, "what was written back");
        drop((mapping, file));
        // They keep the file open.
        for (snapshot, was) in &taken {
            assert!(all_of(snapshot) == *was);
        }
        drop(taken);
        assert!(fs::read(named.path()).unwrap() == now);
    }
}

#[test]
fn only_what_is_written_is_copied_and_dropped_copies_are_handed_on() {
    let _alone = budget(64 << 20);
    let file = File::with_backing(Plain::of(bytes(3 * SLOT, 5))).unwrap();
    let counted =
        [Counter::SnapshotTaken, Counter::SnapshotCopied, Counter::SnapshotPassed, Counter::OwnerComputed];
    let before = counted.map(count);
    let first = file.snapshot().unwrap();
    assert_eq!((file.present(), first.held()), (0, 0));
    let was = all_of(&first);
    assert!(was == bytes(3 * SLOT, 5));
    file.write_at(&[1; 2 * PAGE], 100).unwrap();
    assert_eq!(first.held(), 3 * PAGE);
    let second = file.snapshot().unwrap();
    file.write_at(&[2; PAGE], 0).unwrap();
    file.write_at(&[2; 1], 2 * SLOT as u64).unwrap();
    assert_eq!((first.held(), second.held()), (3 * PAGE, 2 * PAGE));
    drop(second);
    // What the second had of pages that the first had already is gone.
    assert_eq!(first.held(), 4 * PAGE);
    assert!(all_of(&first) == was);
    let after = counted.map(count);
    assert_eq!((after[0] - before[0], after[1] - before[1]), (2, 5 * PAGE as u64));
    assert_eq!(after[2] - before[2], PAGE as u64);
    assert!(after[3] > before[3]);
    // A write after the last snapshot copies nothing.
    drop(first);
    file.write_at(&[3; PAGE], 0).unwrap();
    assert_eq!(count(Counter::SnapshotCopied), after[1]);
}

/// A thread writes a number to one page after the other, so a later page never has a higher one at any moment.
#[test]
fn a_snapshot_is_one_moment_of_all_mapped_pages() {
    if !can_be_lazy() {
        return;
    }
    let _alone = budget(64 << 20);
    const PAGES: usize = 4 * SLOT / PAGE;
    let file = opened_writable(&hole(4 * SLOT as u64), false);
    if !allows(&file) {
        return;
    }
    let mapping = file.map_lazy_mut(0, PAGES * PAGE).unwrap();
    let (base, ends) = (mapping.as_ptr() as usize, AtomicBool::new(false));
    // SAFETY: memory of the mapping, aligned, used by these alone.
    let word = |page: usize| unsafe { &*((base + page * PAGE) as *const AtomicU64) };
    let written = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0;
            while !ends.load(Ordering::Relaxed) {
                n += 1;
                // Over all slots, and their pages by turns.
                (0..64).for_each(|i| word(i * PAGES / 64 + n as usize % 8).store(n, Ordering::Release));
                written.store(n, Ordering::Release);
            }
        });
        for round in 0..6 {
            let since = written.load(Ordering::Acquire);
            let snapshot = file.snapshot().unwrap();
            while written.load(Ordering::Acquire) < since + 3 {
                std::thread::yield_now();
            }
            if round % 3 == 0 {
                file.sync().unwrap();
            }
            let bytes = all_of(&snapshot);
            let at = |page: usize| u64::from_ne_bytes(bytes[page * PAGE..page * PAGE + 8].try_into().unwrap());
            let turn = |t: usize| (0..64).map(move |i| i * PAGES / 64 + t);
            let newest = (0..8).flat_map(turn).map(at).max().unwrap();
            assert!(newest >= since, "a write from before the snapshot is missing");
            for t in 0..8 {
                let numbers: Vec<u64> = turn(t).map(at).collect();
                assert!(numbers.is_sorted_by(|a, b| a >= b), "{numbers:?}");
                // Only the newest round may be half done.
                let of_round = (numbers[0], numbers[63]);
                assert!(of_round.0 == of_round.1 || of_round.0 == newest, "{of_round:?} of {newest}");
            }
            assert!(bytes == all_of(&snapshot), "it changes");
        }
        ends.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_private_mapping_has_snapshots_of_its_own() {
    if !can_be_lazy() {
        return;
    }
    let _alone = budget(64 << 20);
    let (was, named) = filled(SLOT + 5000, 9);
    let file = opened_writable(&named, false);
    if !allows(&file) {
        return;
    }
    let mapping = file.map_private(100, SLOT).unwrap();
    mapping.write(7, b"mine").unwrap();
    let snapshot = mapping.snapshot().unwrap();
    mapping.write(8, b"more").unwrap();
    mapping.write(SLOT - 4, b"more").unwrap();
    let mut expected = was[100..100 + SLOT].to_vec();
    expected[7..11].copy_from_slice(b"mine");
    assert!(all_of(&snapshot) == expected);
    drop((mapping, file));
    assert!(all_of(&snapshot) == expected);
    drop(snapshot);
    assert!(fs::read(named.path()).unwrap() == was);
}

#[test]
fn what_cannot_be_noticed_is_refused() {
    let _alone = budget(64 << 20);
    let (was, named) = filled(2 * SLOT, 11);
    let file = opened_writable(&named, false);
    assert!(File::with_backing(Plain::of(Vec::new())).unwrap().snapshot().is_err(), "of nothing");
    {
        let mut mapping = file.map_mut(0, PAGE).unwrap();
        let error = file.snapshot().unwrap_err().to_string();
        assert!(error.contains("map lazily"), "{error}");
        // SAFETY: no other thread uses the file.
        unsafe { mapping.as_mut_slice().copy_from_slice(&was[..PAGE]) };
    }
    let snapshot = file.snapshot().unwrap();
    assert!(snapshot.read_at(2 * SLOT - 1, &mut [0; 2]).is_err() && snapshot.read_at(2 * SLOT, &mut []).is_ok());
    if !can_be_lazy() {
        return;
    }
    let error = file.map_lazy_mut(0, PAGE).err().expect("its writes would not be told").to_string();
    assert!(error.contains("allow snapshots"), "{error}");
    drop(snapshot);
    let mapping = file.map_lazy_mut(0, PAGE).unwrap();
    assert!(file.snapshot().unwrap_err().to_string().contains("allow snapshots"));
    assert!(file.allow_snapshots().is_err());
    drop(mapping);
    assert!(all_of(&file.snapshot().unwrap()) == was);
    // By signal a system call would fail.
    let other = File::with_backing(Plain::of(bytes(SLOT, 1))).unwrap();
    other.deliver(Delivery::Signal).unwrap();
    assert!(other.allow_snapshots().is_err());
}

/// System calls that write to pages of a mapping wait for the copies, too.
#[test]
fn system_calls_write_behind_a_snapshot() {
    use std::io::Read;
    if !can_be_lazy() {
        return;
    }
    let _alone = budget(64 << 20);
    let (was, named) = filled(SLOT, 13);
    let file = opened_writable(&named, true);
    if !allows(&file) {
        return;
    }
    let mut mapping = file.map_lazy_mut(0, SLOT).unwrap();
    // SAFETY: no other thread uses the file.
    let memory = unsafe { mapping.as_mut_slice() };
    assert!(memory[PAGE..2 * PAGE] == was[PAGE..2 * PAGE]);
    let snapshot = file.snapshot().unwrap();
    // One page is there, the next one is missing.
    fs::File::open("/dev/zero").unwrap().read_exact(&mut memory[PAGE + 5..3 * PAGE]).unwrap();
    assert!(
        memory[PAGE + 5..3 * PAGE].iter().all(|byte| *byte == 0) && memory[PAGE..PAGE + 5] == was[PAGE..PAGE + 5]
    );
    assert!(all_of(&snapshot) == was && snapshot.held() == 2 * PAGE, "{}", snapshot.held());
    file.sync().unwrap();
    let on_disk = fs::read(named.path()).unwrap();
    assert!(on_disk[..] == *memory && on_disk != was && all_of(&snapshot) == was);
}

#[test]
fn a_snapshot_is_saved_while_the_file_changes() {
    let _alone = budget(64 << 20);
    let (was, from) = filled(2 * SLOT + 77, 15);
    let file = opened_writable(&from, false);
    let to = named(b"old");
    let snapshot = file.snapshot().unwrap();
    let saving = Save::new().header(*b"head").rate(64 << 20).start(&snapshot, to.path()).unwrap();
    drop(snapshot);
    for at in (0..was.len()).step_by(PAGE / 2) {
        file.write_at(&[9; 100], at as u64).unwrap();
    }
    file.set_len(5).unwrap();
    saving.wait().unwrap();
    let saved = fs::read(to.path()).unwrap();
    assert!(saved[..4] == *b"head" && saved[4..] == was[..]);
}

/// Where a call would take bytes away that a snapshot needs and cannot have, it fails before.
#[test]
fn errors_lose_nothing_of_a_snapshot() {
    let _alone = budget(64 << 20);
    let was = bytes(2 * SLOT, 17);
    let plain = Plain::of(was.clone());
    let file = File::with_backing(plain.clone()).unwrap();
    let snapshot = file.snapshot().unwrap();
    *plain.0.unreadable.lock().unwrap() = vec![SLOT / PAGE + 3];
    assert_eq!(file.set_len(PAGE as u64).unwrap_err().raw_os_error(), Some(libc::EIO));
    let hole = SLOT as u64..2 * SLOT as u64;
    assert_eq!(file.punch_hole(hole.clone()).unwrap_err().raw_os_error(), Some(libc::EIO));
    assert_eq!(file.len(), 2 * SLOT as u64);
    let error = snapshot.read_at(SLOT + 3 * PAGE, &mut [0]).unwrap_err();
    assert!(error.to_string().contains("error 5"), "{error}");
    plain.0.unreadable.lock().unwrap().clear();
    assert!(all_of(&snapshot) == was && read_all(&file) == was);
    // A full disk: what was written stays in memory, and the snapshot has what was before.
    plain.0.errno.store(libc::ENOSPC, Ordering::Relaxed);
    plain.0.unwritable.store(true, Ordering::Relaxed);
    file.write_at(&[1; 3 * PAGE], 5).unwrap();
    let second = file.snapshot().unwrap();
    let between = read_all(&file);
    assert_eq!(file.sync().unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    file.write_at(&[2; PAGE], 5).unwrap();
    assert!(all_of(&snapshot) == was && all_of(&second) == between);
    plain.0.unwritable.store(false, Ordering::Relaxed);
    file.punch_hole(hole).unwrap();
    file.set_len(PAGE as u64).unwrap();
    file.sync().unwrap();
    assert!(all_of(&second) == between && all_of(&snapshot) == was);
    drop(snapshot);
    assert!(all_of(&second) == between);
}

#[test]
fn a_forked_child_has_no_snapshot_of_a_file() {
    let _alone = budget(64 << 20);
    let (was, named) = filled(SLOT, 19);
    let file = opened_writable(&named, false);
    let snapshot = file.snapshot().unwrap();
    file.write_at(&[1; PAGE], 0).unwrap();
    let in_child = || {
        assert!(snapshot.read_at(0, &mut [0]).is_err() && file.snapshot().is_err());
        drop(snapshot.clone());
    };
    assert!(passes_in_child(in_child));
    assert!(all_of(&snapshot) == was && snapshot.held() == PAGE);
}

/// Another process makes the file shorter: who opens it then sees its length. The snapshot keeps what was in memory.
#[test]
fn a_file_that_others_made_shorter_is_opened_so_beside_a_snapshot() {
    let _alone = budget(64 << 20);
    let (all, named) = filled(3 * SLOT, 5);
    let file = File::open(named.path()).unwrap();
    let mut page = vec![0; PAGE];
    assert_eq!(file.read_at(&mut page, 2 * SLOT as u64).unwrap(), PAGE);
    let snapshot = file.snapshot().unwrap();
    let end = SLOT + PAGE + 7;
    named.as_file().set_len(end as u64).unwrap();
    let again = File::open(named.path()).unwrap();
    assert_eq!((again.len(), file.len(), snapshot.len()), (end as u64, end as u64, all.len()));
    assert!(read_all(&again) == all[..end]);
    assert!(again.map(0, end + 1).is_err());
    // What was in memory, and what the file has still.
    for (at, n) in [(2 * SLOT, PAGE), (0, end)] {
        let mut part = vec![0; n];
        snapshot.read_at(at, &mut part).unwrap();
        assert!(part == all[at..at + n]);
    }
    // The rest is nowhere: an error, and not zeroes.
    assert_eq!(snapshot.read_at(2 * SLOT - PAGE, &mut page).unwrap_err(), Error::Kernel(libc::EIO));
    // Longer again, by this process: its bytes are zeroes there, and the snapshot has what it had.
    let writer = opened_writable(&named, false);
    writer.set_len(3 * SLOT as u64).unwrap();
    assert_eq!(
        (writer.read_at(&mut page, 2 * SLOT as u64).unwrap(), page.iter().all(|byte| *byte == 0)),
        (PAGE, true)
    );
    let later = writer.snapshot().unwrap();
    let filled = vec![7; 3 * SLOT];
    assert_eq!(writer.write_at(&filled, 0).unwrap(), filled.len());
    snapshot.read_at(2 * SLOT, &mut page).unwrap();
    assert!(page == all[2 * SLOT..2 * SLOT + PAGE]);
    let mut part = vec![0; end];
    snapshot.read_at(0, &mut part).unwrap();
    assert!(part == all[..end]);
    for at in [end, SLOT + 2 * PAGE, 2 * SLOT - PAGE] {
        assert_eq!(snapshot.read_at(at, &mut page[..1]).unwrap_err(), Error::Kernel(libc::EIO), "{at}");
    }
    // Nor from one that came later, when that goes.
    drop(later);
    assert_eq!(snapshot.read_at(2 * SLOT - PAGE, &mut page).unwrap_err(), Error::Kernel(libc::EIO));
}

/// Others have made it shorter than it is to be: it is so long then, for them too, and has zeroes there.
#[test]
fn a_new_length_is_one_for_others_too() {
    let _alone = budget(64 << 20);
    let (all, named) = filled(3 * SLOT, 6);
    let file = opened_writable(&named, false);
    assert!(read_all(&file) == all);
    named.as_file().set_len(PAGE as u64 + 1).unwrap();
    file.set_len(2 * SLOT as u64).unwrap();
    assert_eq!((file.len(), named.as_file().metadata().unwrap().len()), (2 * SLOT as u64, 2 * SLOT as u64));
    let mut expected = all[..PAGE + 1].to_vec();
    expected.resize(2 * SLOT, 0);
    assert!(read_all(&file) == expected);
    file.sync().unwrap();
    assert!(std::fs::read(named.path()).unwrap() == expected);
}
