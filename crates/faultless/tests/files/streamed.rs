//! Files that are read in order, whose next bytes are read while the program uses others.

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use faultless::file::{Advice, File};

use crate::chance::Chance;
use crate::lazy::resident;
use crate::{PAGE, SLOT, budget, filled, named, read_all};

/// As much as it takes for that.
const LENGTH: usize = 160 << 20;
const BUDGET: usize = 48 << 20;

/// Whether the kernel has reads under way for this process, or had them a moment ago: they end in the background.
fn goes_on() -> bool {
    fs::read_to_string("/proc/self/maps").unwrap().contains("[aio]")
}

/// Reads on; whether the bytes are those.
fn reads_on(file: &File, at: &mut usize, bytes: usize, all: &[u8]) -> bool {
    let mut buffer = vec![0xEE; bytes];
    let n = file.read_at(&mut buffer, *at as u64).unwrap();
    assert!(n > 0 || *at >= all.len());
    let is_right = buffer[..n] == all[*at..*at + n];
    *at += n;
    is_right
}

#[test]
fn what_comes_next_is_read_while_the_program_goes_on_and_keeps_the_budget() {
    let _alone = budget(BUDGET as u64);
    let (all, named) = filled(LENGTH + 5000, 3);
    // Records of a page, larger ones that cross each border, and all at once.
    for record in [PAGE, (3 << 20) + 17, LENGTH + 5000] {
        let before = resident();
        let file = File::open(named.path()).unwrap();
        if !file.is_direct() {
            return faultless_testkit::skip("the file system has no O_DIRECT");
        }
        let mut buffer = vec![0xEE; record];
        let (mut at, mut most, mut went_on) = (0, 0, false);
        while at < all.len() {
            let n = file.read_at(&mut buffer, at as u64).unwrap();
            assert!(n > 0 && buffer[..n] == all[at..at + n], "{record} at {at}");
            at += n;
            if at % SLOT == 0 || record > SLOT {
                went_on |= goes_on();
                most = most.max(resident());
            }
        }
        assert!(went_on || record > LENGTH, "nothing was under way");
        // A page table for each 2 MiB, and what the test itself has.
        assert!(most < before + record + BUDGET + 2 * SLOT, "{most} of {before} and {record}");
        assert_eq!(file.present() % PAGE, 0);
    }
}

/// All that may happen to a file while what comes next is under way: a read has the bytes of that moment.
#[test]
fn reads_in_order_have_the_bytes_of_the_file_whatever_happens_to_it() {
    let _alone = budget(BUDGET as u64);
    for seed in 1..=2 {
        let mut chance = Chance(seed);
        let (mut all, named) = filled(LENGTH, seed);
        let file = File::open_writable(named.path()).unwrap();
        let other = File::open_writable(named.path()).unwrap();
        let mut at = 0;
        for step in 0..400 {
            let bytes = [PAGE, 1 + chance.below(3 * SLOT), SLOT][chance.below(3)];
            assert!(reads_on(&file, &mut at, bytes, &all), "seed {seed}, step {step}");
            if at >= all.len() || all.len() < LENGTH - 16 * SLOT {
                file.set_len(LENGTH as u64).unwrap();
                all.resize(LENGTH, 0);
                at = 0;
            }
            // Near what is read next.
            let place = (at + chance.below(20 * SLOT)).min(all.len() - 1);
            let some = chance.below(2 * SLOT).min(all.len() - place);
            // Whole pages of a slot that has nothing bring nothing.
            let is_whole = chance.below(2) == 0;
            let (place, some) = if is_whole { (place / PAGE * PAGE, some / PAGE * PAGE) } else { (place, some) };
            let part = place as u64..(place + some) as u64;
            match chance.below(12) {
                0 | 1 => {
                    let new = crate::bytes(some, step as u64 + 7);
                    other.write_at(&new, place as u64).unwrap();
                    all[place..place + some].copy_from_slice(&new);
                }
                2 => {
                    // What is written goes, because others need the room.
                    let new = crate::bytes(some, step as u64 + 9);
                    other.write_at(&new, place as u64).unwrap();
                    all[place..place + some].copy_from_slice(&new);
                    other.sync().unwrap();
                    let far = if place < all.len() / 2 { all.len() - 2 * BUDGET / 3 } else { 0 };
                    let mut buffer = vec![0; SLOT];
                    for at in (far..far + 2 * BUDGET / 3).step_by(2 * SLOT) {
                        for _ in 0..2 {
                            other.read_at(&mut buffer, at as u64).unwrap();
                        }
                    }
                }
                3 => _ = other.drop_cache(),
                4 => _ = other.drop_range(part),
                5 => {
                    other.punch_hole(part).unwrap();
                    all[place..place + some].fill(0);
                }
                6 => {
                    file.set_len(place as u64).unwrap();
                    let length = if is_whole { all.len() } else { place };
                    all.truncate(place);
                    if length > place {
                        file.set_len(length as u64).unwrap();
                        all.resize(length, 0);
                    }
                    at = if at > length { 0 } else { at };
                }
                7 => {
                    let mapping = other.map_mut(part.start, some.max(1)).unwrap();
                    mapping.write(0, &[step as u8]).unwrap();
                    all[place] = step as u8;
                }
                8 => {
                    let (file, mut alone) = (File::open(named.path()).unwrap(), place);
                    assert!(reads_on(&file, &mut alone, 2 * SLOT, &all), "seed {seed}, step {step}");
                }
                9 => {
                    // By others: seen where the file is opened again, but for what is not yet written.
                    other.sync().unwrap();
                    let new = crate::bytes(some, step as u64);
                    fs::File::options()
                        .write(true)
                        .open(named.path())
                        .unwrap()
                        .write_all_at(&new, place as u64)
                        .unwrap();
                    all[place..place + some].copy_from_slice(&new);
                    drop(File::open(named.path()).unwrap());
                }
                10 => file.advise(0..all.len() as u64, [Advice::Random, Advice::Sequential][step % 2]).unwrap(),
                _ => {}
            }
        }
        assert!(read_all(&file) == all, "seed {seed}");
        file.sync().unwrap();
        drop((file, other));
        assert!(fs::read(named.path()).unwrap() == all, "seed {seed}");
    }
}

/// A thread writes, syncs and drops what another one is about to read: what a read finds is no older than what was
/// written when it began.
#[test]
fn a_read_in_order_finds_no_bytes_from_before_a_write() {
    const ROUNDS: usize = 3;
    let _alone = budget(BUDGET as u64);
    let named = named(&vec![0; LENGTH]);
    let file = File::open_writable(named.path()).unwrap();
    let written: Vec<AtomicU32> = (0..LENGTH / PAGE).map(|_| AtomicU32::new(0)).collect();
    let is_over = AtomicU32::new(0);
    let reading_at = AtomicU32::new(0);
    thread::scope(|s| {
        for seed in [5, 11] {
            let (written, is_over, reading_at, named) = (&written, &is_over, &reading_at, &named);
            s.spawn(move || {
                let file = File::open_writable(named.path()).unwrap();
                let mut chance = Chance(seed);
                for round in 1.. {
                    // Pages of two threads are different ones.
                    let page = reading_at.load(Ordering::Relaxed) as usize + chance.below(10 * SLOT / PAGE);
                    let page = (page / 2 * 2 + usize::from(seed == 5)) % written.len();
                    file.write_at(&u32::to_ne_bytes(round).repeat(PAGE / 4), (page * PAGE) as u64).unwrap();
                    written[page].store(round, Ordering::Release);
                    match chance.below(6) {
                        0 => file.sync().unwrap(),
                        1 => {
                            file.sync().unwrap();
                            file.drop_cache();
                        }
                        _ => {}
                    }
                    if is_over.load(Ordering::Relaxed) > 0 {
                        break;
                    }
                }
            });
        }
        let mut buffer = vec![0; 64 * PAGE];
        for _ in 0..ROUNDS {
            for at in (0..LENGTH).step_by(buffer.len()) {
                let first = at / PAGE;
                reading_at.store(first as u32, Ordering::Relaxed);
                let before: Vec<u32> =
                    written[first..first + 64].iter().map(|page| page.load(Ordering::Acquire)).collect();
                assert_eq!(file.read_at(&mut buffer, at as u64).unwrap(), buffer.len());
                for (page, before) in buffer.chunks(PAGE).zip(before) {
                    let found = u32::from_ne_bytes(page[..4].try_into().unwrap());
                    assert!(found >= before, "{found} where {before} was written");
                }
            }
        }
        is_over.store(1, Ordering::Relaxed);
    });
}

/// A process that ends while reads are under way ends; a forked child has its own.
#[test]
fn a_forked_child_reads_the_file_anew() {
    let _alone = budget(BUDGET as u64);
    let (all, named) = filled(LENGTH, 9);
    let file = File::open(named.path()).unwrap();
    let mut at = 0;
    while at < 12 * SLOT {
        assert!(reads_on(&file, &mut at, SLOT / 2, &all));
    }
    let test = || {
        assert!(file.read_at(&mut [0; 10], 0).is_err(), "it is the parent's");
        let (file, mut at) = (File::open(named.path()).unwrap(), 0);
        while at < 12 * SLOT {
            assert!(reads_on(&file, &mut at, SLOT / 2, &all));
        }
    };
    assert!(crate::passes_in_child(test));
    while at < all.len() {
        assert!(reads_on(&file, &mut at, SLOT / 2, &all));
    }
}
