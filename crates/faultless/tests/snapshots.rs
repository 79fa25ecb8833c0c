//! Snapshots on the kernel's memory: what they hold while any thread writes, by any call.

mod chance;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use chance::Chance;
use faultless::region::{Advice, Delivery, Error, Region, Rights, Save, Snapshot};
use faultless_testkit::limit::limit;

const PAGE: usize = 4096;
const SLOT: usize = 2 << 20;

/// A region of which snapshots can be had here.
fn region(length: usize) -> Option<Region> {
    match Region::builder(length).delivery(Delivery::Thread).build() {
        Ok(region) if region.serves_system_calls() => Some(region),
        Ok(_) => {
            faultless_testkit::skip("the kernel does not deliver its own faults");
            None
        }
        Err(error) => {
            faultless_testkit::skip(format_args!("no region by thread: {error}"));
            None
        }
    }
}

fn all(snapshot: &Snapshot) -> Vec<u8> {
    let mut bytes = vec![0xEE; snapshot.len()];
    snapshot.read_at(0, &mut bytes).unwrap();
    bytes
}

/// A part of the region as a slice that others may write to.
#[expect(clippy::mut_from_ref, reason = "the memory is not the value's")]
fn part(region: &Region, at: usize, bytes: usize) -> &mut [u8] {
    // SAFETY: mapped, and each test keeps its threads apart.
    unsafe { std::slice::from_raw_parts_mut(region.as_ptr().add(at), bytes) }
}

#[test]
fn a_snapshot_holds_what_was_there() {
    limit();
    let Some(region) = region(16 << 20) else { return };
    let bytes = part(&region, 0, 16 << 20);
    // Pages that were read, that were written to, huge pages, and none.
    assert_eq!(bytes[3 * SLOT], 0);
    (0..2 * SLOT).step_by(PAGE).for_each(|at| bytes[at + at / PAGE % 7] = (at / PAGE) as u8 | 1);
    region.populate(4 * SLOT..6 * SLOT).unwrap();
    bytes[4 * SLOT + 77] = 9;
    let before = bytes.to_vec();
    let snapshot = region.snapshot().unwrap();
    assert_eq!(snapshot.held(), 0);
    for at in [0, PAGE, SLOT - 1, SLOT, 3 * SLOT, 3 * SLOT + PAGE, 4 * SLOT + 77, 5 * SLOT + 3, 7 * SLOT + 1] {
        bytes[at] = 0xAA;
    }
    assert!(all(&snapshot) == before);
    bytes.fill(0x55);
    assert!(all(&snapshot) == before);
    let mut few = [0; 3];
    snapshot.read_at(4 * SLOT + 76, &mut few).unwrap();
    assert_eq!(few, [0, 9, 0]);
    assert_eq!(snapshot.read_at(snapshot.len() - 1, &mut few), Err(Error::Outside));
    let second = region.snapshot().unwrap();
    bytes.fill(0x66);
    drop(snapshot);
    assert!(all(&second).iter().all(|byte| *byte == 0x55));
    drop(second);
    bytes.fill(0x77);
    drop(region);
}

/// Random writes, changes and snapshots, dropped in any order, beside plain copies.
#[test]
fn snapshots_are_as_copies() {
    limit();
    const LENGTH: usize = 3 * SLOT;
    for seed in 1..=4 {
        let Some(region) = region(LENGTH) else { return };
        let mut chance = Chance(seed);
        let mut plain = vec![0_u8; LENGTH];
        let mut taken: Vec<(Snapshot, Vec<u8>)> = Vec::new();
        for _ in 0..400 {
            let at = chance.below(LENGTH);
            let n = 1 + chance.below((LENGTH - at).min([1, 100, 3 * PAGE, SLOT][at % 4]));
            let first = at / PAGE * PAGE;
            let range = first..(at + n).next_multiple_of(PAGE);
            let byte = chance.below(256) as u8;
            match chance.below(14) {
                0 if taken.len() < 6 => taken.push((region.snapshot().unwrap(), plain.clone())),
                1 if !taken.is_empty() => drop(taken.swap_remove(at % taken.len())),
                2 | 3 if !taken.is_empty() => {
                    let (snapshot, held) = &taken[at % taken.len()];
                    let mut bytes = vec![0; n];
                    snapshot.read_at(at, &mut bytes).unwrap();
                    assert!(bytes == held[at..at + n], "seed {seed}: {at:#x} and {n} bytes");
                }
                4 => {
                    region.advise(range.clone(), Advice::DontNeed).unwrap();
                    plain[range].fill(0);
                }
                5 => {
                    region.unmap(range.clone()).unwrap();
                    region.map(range.clone(), Rights::Write).unwrap();
                    plain[range].fill(0);
                }
                6 => {
                    for rights in [Rights::None, Rights::Read, Rights::Write] {
                        region.protect(range.clone(), rights).unwrap();
                    }
                }
                7 => {
                    // A move there and back, by way of a hole.
                    let to = chance.below(LENGTH / PAGE - range.len() / PAGE + 1) * PAGE;
                    let target = to..to + range.len();
                    if target.end <= range.start || range.end <= target.start {
                        region.unmap(target.clone()).unwrap();
                        match region.remap(range.clone(), to) {
                            Ok(()) => {
                                plain.copy_within(range.clone(), to);
                                region.map(range.clone(), Rights::Write).unwrap();
                                plain[range].fill(0);
                            }
                            Err(Error::NotMapped) => {
                                region.map(target.clone(), Rights::Write).unwrap();
                                plain[target].fill(0);
                            }
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
                8 => region.populate(range).unwrap(),
                _ => {
                    part(&region, at, n).fill(byte);
                    plain[at..at + n].fill(byte);
                }
            }
        }
        assert!(part(&region, 0, LENGTH) == plain, "seed {seed}: the region itself");
        while let Some((snapshot, held)) = taken.pop() {
            assert!(all(&snapshot) == held, "seed {seed}");
        }
    }
}

/// Threads that write in an order: a later number is never in a snapshot without the earlier one.
#[test]
fn a_snapshot_is_of_one_moment() {
    limit();
    const PAGES: usize = 4 * SLOT / PAGE;
    let Some(region) = region(PAGES * PAGE) else { return };
    part(&region, 0, PAGES * PAGE).fill(0);
    let ends = AtomicBool::new(false);
    let word = |page: usize| {
        // SAFETY: aligned and mapped; all threads use it as an atomic word.
        unsafe { AtomicU64::from_ptr(region.as_ptr().add(page * PAGE).cast()) }
    };
    thread::scope(|scope| {
        for id in 0..2 {
            let (word, ends) = (&word, &ends);
            scope.spawn(move || {
                let mut chance = Chance(id + 7);
                let mut round = 0;
                while !ends.load(Ordering::Relaxed) {
                    // First the one, then the other: pairs far apart.
                    round += 1;
                    let pair = chance.below(PAGES / 4) * 2 + id as usize;
                    let (first, second) =
                        if round % 2 == 0 { (pair, PAGES - 1 - pair) } else { (PAGES - 1 - pair, pair) };
                    let next =
                        word(pair).load(Ordering::Relaxed).max(word(PAGES - 1 - pair).load(Ordering::Relaxed)) + 1;
                    word(first).store(next, Ordering::SeqCst);
                    word(second).store(next, Ordering::SeqCst);
                }
            });
        }
        for _ in 0..30 {
            let snapshot = region.snapshot().unwrap();
            let now = || {
                all(&snapshot)
                    .chunks(PAGE)
                    .map(|page| u64::from_le_bytes(page[..8].try_into().unwrap()))
                    .collect::<Vec<_>>()
            };
            let words = now();
            let differ = (0..PAGES / 2).filter(|page| words[*page] != words[PAGES - 1 - page]).count();
            assert!(differ <= 2, "{differ} pairs are half written by two threads");
            assert!(now() == words, "it has changed");
        }
        ends.store(true, Ordering::Relaxed);
    });
}

/// Writes by the kernel on behalf of the program.
/// The kernel joins like areas. A part that moves must not take the notice of writes from its neighbours.
#[test]
fn writes_beside_a_part_that_moved_are_noticed() {
    limit();
    let Some(region) = region(8 * SLOT) else { return };
    // SAFETY: all of the region, of which the content stays.
    assert_eq!(unsafe { libc::madvise(region.as_ptr().cast(), 8 * SLOT, libc::MADV_SEQUENTIAL) }, 0);
    region.unmap(4 * SLOT..6 * SLOT).unwrap();
    let snapshot = region.snapshot().unwrap();
    region.remap(0..PAGE, 5 * SLOT).unwrap();
    region.map(4 * SLOT..5 * SLOT, Rights::Write).unwrap();
    region.map(5 * SLOT + PAGE..6 * SLOT, Rights::Write).unwrap();
    let bytes = part(&region, 0, 8 * SLOT);
    (4 * SLOT..8 * SLOT).step_by(PAGE).for_each(|at| bytes[at] = 3);
    assert!(all(&snapshot).iter().all(|byte| *byte == 0));
}

/// The program must not do that; what the library cannot read then is an error, and nothing else.
#[test]
fn what_the_program_closes_itself_is_an_error() {
    limit();
    let Some(region) = region(2 * SLOT) else { return };
    let bytes = part(&region, 0, 2 * SLOT);
    bytes.fill(7);
    let snapshot = region.snapshot().unwrap();
    let closed = |prot: i32| {
        // SAFETY: a part of the region that is not accessed meanwhile.
        let done = unsafe { libc::mprotect(region.as_ptr().add(8 * PAGE).cast(), PAGE, prot) };
        assert_eq!(done, 0);
    };
    closed(libc::PROT_NONE);
    let mut read = [0; 4];
    assert_eq!(snapshot.read_at(8 * PAGE, &mut read), Err(Error::Rights));
    assert_eq!(snapshot.read_at(0, &mut vec![0; SLOT]), Err(Error::Rights));
    snapshot.read_at(9 * PAGE, &mut read).unwrap();
    assert_eq!(read, [7; 4]);
    // Its neighbours are copied with a page that is written to.
    bytes[7 * PAGE] = 8;
    snapshot.read_at(7 * PAGE, &mut read).unwrap();
    assert_eq!((read, snapshot.read_at(8 * PAGE, &mut read)), ([7; 4], Err(Error::Rights)));
    closed(libc::PROT_READ | libc::PROT_WRITE);
    assert!(all(&snapshot).iter().all(|byte| *byte == 7));
}

#[test]
fn system_calls_write_beside_a_snapshot() {
    limit();
    let Some(region) = region(4 * SLOT) else { return };
    part(&region, 0, 4 * SLOT).fill(1);
    let path = std::env::temp_dir().join(format!("faultless-snapshots-{}", std::process::id()));
    let mut file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.write_all(&vec![7; 3 * SLOT]).unwrap();
    for _ in 0..2 {
        let snapshot = region.snapshot().unwrap();
        let before = part(&region, 0, 4 * SLOT).to_vec();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_exact(part(&region, 100, 3 * SLOT)).unwrap();
        assert!(all(&snapshot) == before);
        assert!(part(&region, 100, 3 * SLOT).iter().all(|byte| *byte == 7));
        // A snapshot read into the region itself.
        let into = part(&region, SLOT + 5, SLOT);
        snapshot.read_at(0, into).unwrap();
        assert!(into == &before[..SLOT] && all(&snapshot) == before);
    }
}

#[test]
fn what_cannot_be_exact_is_refused() {
    limit();
    for delivery in [Delivery::Direct, Delivery::Kernel, Delivery::Signal] {
        let Ok(region) = Region::builder(SLOT).delivery(delivery).build() else { continue };
        assert!(matches!(region.snapshot(), Err(Error::NoSnapshots(_))), "{delivery:?}");
    }
    let Some(whole) = region(3 * SLOT) else { return };
    assert_eq!(whole.snapshot_of(PAGE..SLOT).err(), Some(Error::Outside));
    whole.protect(0..PAGE, Rights::None).unwrap();
    assert_eq!(whole.snapshot().err(), Some(Error::Rights));
    let rest = whole.snapshot_of(SLOT..3 * SLOT).unwrap();
    part(&whole, SLOT, PAGE).fill(3);
    assert!(all(&rest).iter().all(|byte| *byte == 0));
    drop(whole);
    assert_eq!(rest.read_at(0, &mut [0]), Err(Error::Ended));
    let backed = Region::builder(SLOT).delivery(Delivery::Thread).backing(()).build().unwrap();
    assert!(matches!(backed.snapshot(), Err(Error::NoSnapshots(_))));
}

/// A forked child has the memory as it was, and no snapshots; the parent's hold what they held.
#[test]
fn a_fork_leaves_snapshots_to_the_parent() {
    limit();
    let Some(region) = region(2 * SLOT) else { return };
    part(&region, 0, 2 * SLOT).fill(5);
    let snapshot = region.snapshot().unwrap();
    part(&region, 0, PAGE).fill(6);
    // SAFETY: the child looks at memory, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let bytes = part(&region, 0, 2 * SLOT);
        let holds = bytes[0] == 6 && bytes[SLOT] == 5 && snapshot.read_at(0, &mut [0]) == Err(Error::Forked);
        bytes.fill(8);
        // SAFETY: as above.
        unsafe { libc::_exit((holds && bytes[SLOT] == 8) as i32) };
    }
    part(&region, PAGE, SLOT).fill(9);
    let mut status = 0;
    // SAFETY: the child made above.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(libc::WEXITSTATUS(status), 1, "{status:#x}");
    assert!(all(&snapshot).iter().all(|byte| *byte == 5));
}

/// Saved while it is overwritten, at a rate, and opened again.
#[test]
fn a_snapshot_is_saved_while_the_region_changes() {
    limit();
    let Some(region) = region(6 * SLOT + 300) else { return };
    let bytes = part(&region, 0, region.len());
    (0..region.len()).for_each(|at| bytes[at] = (at / 997) as u8);
    bytes[2 * SLOT..4 * SLOT].fill(0);
    let before = bytes.to_vec();
    let directory = std::env::temp_dir().join(format!("faultless-saves-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let path = directory.join("state");
    std::fs::write(&path, "old").unwrap();
    let snapshot = region.snapshot().unwrap();
    let saving = Save::new().header(*b"head").rate(200 << 20).start(&snapshot, &path).unwrap();
    drop(snapshot);
    assert_eq!(saving.bytes(), 7 * SLOT);
    bytes.fill(0xFF);
    assert_eq!(saving.wait(), Ok(7 * SLOT));
    let saved = std::fs::read(&path).unwrap();
    assert!(&saved[..4] == b"head" && saved[4..] == before);
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1, "something was left behind");
    // Once more: nothing but zeroes, and with an error.
    bytes.fill(0);
    Save::new().start(&region.snapshot().unwrap(), &path).unwrap().wait().unwrap();
    assert!(std::fs::read(&path).unwrap() == vec![0; region.len()]);
    let nowhere = Save::new().start(&region.snapshot().unwrap(), &directory.join("no/state"));
    assert_eq!(nowhere.err(), Some(Error::Kernel(libc::ENOENT)));
    // What ends too early leaves nothing, and what was there.
    let snapshot = region.snapshot().unwrap();
    let saving = Save::new().rate(1 << 20).start(&snapshot, &path).unwrap();
    drop(region);
    assert_eq!(saving.wait(), Err(Error::Ended));
    drop(saving);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 6 * SLOT as u64 + 300);
    let left = || std::fs::read_dir(&directory).unwrap().count();
    while left() > 1 {
        // The thread that wrote is about to end.
        thread::yield_now();
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

/// Each thread that waits for a page has a message of its own. It is read when the page is there already, and nothing is
/// protected where no snapshot was taken.
/// What is protected already is not protected again, and nothing else is left out: few pages of many, in more runs than
/// the kernel tells of at a time.
#[test]
fn a_later_snapshot_protects_what_was_written_since() {
    limit();
    const LENGTH: usize = 40 * SLOT;
    let Some(region) = region(LENGTH) else { return };
    region.advise(0..20 * SLOT, Advice::NoHuge).unwrap();
    let bytes = part(&region, 0, LENGTH);
    bytes.fill(1);
    region.advise(39 * SLOT..LENGTH, Advice::DontNeed).unwrap();
    let places = || (0..LENGTH).step_by(61 * PAGE);
    let mut expected = bytes.to_vec();
    let mut taken = Vec::new();
    for turn in 2..6 {
        taken.push((region.snapshot().unwrap(), expected.clone()));
        for at in places().skip(turn).step_by(turn) {
            bytes[at] = turn as u8;
            expected[at] = turn as u8;
        }
    }
    // All that is left is written to: each snapshot has to have noticed it.
    bytes.fill(9);
    assert!(taken.iter().all(|(snapshot, expected)| all(snapshot) == *expected));
}

#[test]
fn memory_without_a_snapshot_is_brought_as_before() {
    const THREADS: usize = 4;
    limit();
    let Some(region) = region(64 << 20) else { return };
    part(&region, 0, SLOT).fill(1);
    drop(region.snapshot_of(0..SLOT).unwrap());
    let add = || {
        for at in (SLOT..region.len()).step_by(PAGE) {
            // SAFETY: mapped and aligned; all threads use it by such operations alone.
            unsafe { AtomicU64::from_ptr(region.as_ptr().add(at).cast()) }.fetch_add(1, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| (0..THREADS).for_each(|_| _ = scope.spawn(add)));
    let counts = part(&region, SLOT, region.len() - SLOT);
    assert!(counts.iter().step_by(PAGE).all(|count| *count == THREADS as u8));
}
