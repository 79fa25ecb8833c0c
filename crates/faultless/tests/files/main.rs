//! Files: every byte that is read is the file's, or what was written; errors come where they belong, and never zeroes
//! or old bytes in their place.

// A list of one part is one.
#![allow(clippy::single_range_in_vec_init)]

mod advise;
mod announced;
mod append;
mod borders;
#[path = "../chance/mod.rs"]
mod chance;
mod counted;
mod devices;
mod failing;
mod flush;
mod group;
mod lazy;
mod nested;
mod on_the_way;
mod others;
mod pipes;
mod plain;
mod power;
mod prefetch;
mod private;
mod random;
mod resize;
mod snapshot_races;
mod snapshots;
mod streamed;
mod system;
mod together;

use std::fs;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use chance::Chance;
use faultless::file::{File, Mapping};
use faultless_page::knobs::Knob;
use faultless_testkit::limit::limit;

use plain::Plain;
use tempfile::NamedTempFile;

const PAGE: usize = 4096;
const SLOT: usize = 2 << 20;

static BUDGET: Mutex<()> = Mutex::new(());

/// No other test changes the budget, which is that many bytes.
fn budget(bytes: u64) -> MutexGuard<'static, ()> {
    let alone = BUDGET.lock().unwrap_or_else(PoisonError::into_inner);
    limit();
    faultless::region::set(Knob::Budget, bytes);
    // Nothing is written back but by calls.
    faultless::region::set(Knob::DirtyBackground, 0);
    faultless::region::set(Knob::DirtyExpire, 0);
    alone
}

/// Bytes of which no two pages are the same.
fn bytes(n: usize, seed: u64) -> Vec<u8> {
    let mut chance = Chance(seed | 1);
    (0..n).map(|i| if i % 64 == 0 { chance.below(256) as u8 } else { (i * 7 + i / PAGE) as u8 }).collect()
}

fn named(bytes: &[u8]) -> NamedTempFile {
    let named = NamedTempFile::new().unwrap();
    fs::write(named.path(), bytes).unwrap();
    named
}

/// A file of this many bytes, of which none is written.
fn hole(length: u64) -> NamedTempFile {
    let named = NamedTempFile::new().unwrap();
    named.as_file().set_len(length).unwrap();
    named
}

/// An open file, by small pages or as it is.
fn opened(open: &fs::File, small: bool) -> File {
    if small { File::with_small_pages(open) } else { File::new(open) }.unwrap()
}

/// A file of this many bytes, and which they are.
fn filled(n: usize, seed: u64) -> (Vec<u8>, NamedTempFile) {
    let all = bytes(n, seed);
    let named = named(&all);
    (all, named)
}

fn read_all(file: &File) -> Vec<u8> {
    let mut all = vec![0xEE; file.len() as usize];
    let mut at = 0;
    while at < all.len() {
        let n = file.read_at(&mut all[at..], at as u64).unwrap();
        assert!(n > 0, "nothing at {at} of {}", file.len());
        at += n;
    }
    all
}

fn mapped(mapping: &Mapping) -> Vec<u8> {
    let mut all = vec![0xEE; mapping.len()];
    mapping.read(0, &mut all).unwrap();
    all
}

#[test]
fn files_of_any_length_are_read_to_their_end() {
    let _alone = budget(64 << 20);
    let dir = tempfile::tempdir().unwrap();
    for n in [0, 1, PAGE - 1, PAGE, PAGE + 1, SLOT - 1, SLOT, SLOT + 1, SLOT + 3 * PAGE + 7, 3 * SLOT] {
        for small in [false, true] {
            let path = dir.path().join(format!("{n} {small}"));
            let all = bytes(n, n as u64);
            fs::write(&path, &all).unwrap();
            let open = fs::File::open(&path).unwrap();
            let file = opened(&open, small);
            assert_eq!(file.len(), n as u64);
            assert!(read_all(&file) == all, "{n}");
            let mapping = file.map(0, n).unwrap();
            assert!(mapped(&mapping) == all, "{n}");
            // What lies behind the end in the last page is zero.
            let tail = n.next_multiple_of(PAGE) - n;
            // SAFETY: the rest of the last page of the mapping.
            let tail = unsafe { std::slice::from_raw_parts(mapping.as_ptr().add(n), tail) };
            assert!(tail.iter().all(|byte| *byte == 0), "{n}: old bytes behind the end");
            let mut more = [1; 10];
            assert_eq!(file.read_at(&mut more, n as u64).unwrap(), 0);
            assert_eq!(file.read_at(&mut more, u64::MAX).unwrap(), 0);
            assert_eq!(file.map(0, n + 1).err().unwrap().kind(), io::ErrorKind::InvalidInput);
            assert!(file.map(u64::MAX, 2).is_err());
            assert!(file.write_at(b"x", 0).is_err() && file.map_mut(0, n).is_err(), "it is open for reading");
        }
    }
}

#[test]
fn handles_and_mappings_of_a_file_see_the_same_bytes() {
    let _alone = budget(64 << 20);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    fs::write(&path, bytes(3 * SLOT, 1)).unwrap();
    let reader = File::open(&path).unwrap();
    let first = reader.map(0, 3 * SLOT).unwrap();
    let writer = File::open_writable(&path).unwrap();
    let second = writer.map_mut(SLOT as u64, SLOT).unwrap();
    writer.write_at(b"by a call", 5 * PAGE as u64).unwrap();
    second.write(10, b"by a mapping").unwrap();
    let mut got = [0; 9];
    first.read(5 * PAGE, &mut got).unwrap();
    assert_eq!(&got, b"by a call");
    let mut got = [0; 12];
    assert_eq!(reader.read_at(&mut got, SLOT as u64 + 10).unwrap(), 12);
    assert_eq!(&got, b"by a mapping");
    assert_ne!(&fs::read(&path).unwrap()[SLOT + 10..][..12], b"by a mapping");
    writer.sync().unwrap();
    assert!(fs::read(&path).unwrap() == mapped(&first));
    // What a mapping writes after a sync is written by the next one, and by the end of the last handle.
    second.write(10, b"again").unwrap();
    second.sync().unwrap();
    assert_eq!(&fs::read(&path).unwrap()[SLOT + 10..][..5], b"again");
    second.write(10, b"at the end").unwrap();
    drop((second, writer));
    drop((reader, first));
    assert_eq!(&fs::read(&path).unwrap()[SLOT + 10..][..10], b"at the end");
}

/// Whatever a descriptor was opened for: calls have offsets of their own, and leave its position.
#[test]
fn descriptors_that_append_or_only_write_are_files_as_others() {
    let _alone = budget(64 << 20);
    let named = named(b"0123456789");
    let reader = File::open(named.path()).unwrap();
    let append = fs::File::options().read(true).append(true).open(named.path()).unwrap();
    let write = fs::File::options().write(true).open(named.path()).unwrap();
    for (i, open) in [append, write].iter().enumerate() {
        let file = File::new(open).unwrap();
        assert_eq!(file.write_at(&[b'a' + i as u8], 3 + i as u64).unwrap(), 1);
        file.sync().unwrap();
        assert_eq!(std::io::Seek::stream_position(&mut &*open).unwrap(), 0);
    }
    assert_eq!(fs::read(named.path()).unwrap(), b"012ab56789");
    let writer = File::open_writable(named.path()).unwrap();
    writer.grow(512 << 20).unwrap();
    assert_eq!(reader.len(), 512 << 20, "a file that was opened for reading grows");
}

#[test]
fn a_sparse_file_of_a_tebibyte_is_read_and_mapped_in_parts() {
    let _alone = budget(64 << 20);
    let file = tempfile::tempfile().unwrap();
    file.set_len(1 << 40).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"far", 700 << 30).unwrap();
    let file = File::new(&file).unwrap();
    let mut got = [9; 6];
    assert_eq!(file.read_at(&mut got, (700 << 30) - 3).unwrap(), 6);
    assert_eq!(&got, b"\0\0\0far");
    let mapping = file.map(900 << 30, 3 * SLOT).unwrap();
    assert!(mapped(&mapping).iter().all(|byte| *byte == 0));
    file.write_at(b"end", (1 << 40) - 3).unwrap();
    file.sync().unwrap();
    assert!(file.present() <= 16 * SLOT);
}

fn passes_in_child(test: impl FnOnce()) -> bool {
    // SAFETY: the child uses no lock of another thread of this test, and ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(60);
            let passed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(test)).is_ok();
            libc::_exit(!passed as i32);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        status == 0
    }
}

/// A forked child has its own files, and none of its parent's.
#[test]
fn a_forked_child_opens_files_anew() {
    let _alone = budget(64 << 20);
    let named = named(b"bytes of a file");
    let file = File::open_writable(named.path()).unwrap();
    let mapping = file.map(0, 15).unwrap();
    file.write_at(b"BYTES", 0).unwrap();
    let in_child = || {
        let mut got = [0; 5];
        assert!(file.read_at(&mut got, 0).is_err() && file.write_at(b"x", 0).is_err() && file.sync().is_err());
        assert!(mapping.read(0, &mut got).is_err());
        let own = File::open(named.path()).unwrap();
        assert_eq!(own.read_at(&mut got, 0).unwrap(), 5);
        assert_eq!(&got, b"bytes", "what the parent has not written is the parent's");
        drop(own);
    };
    assert!(passes_in_child(in_child));
    drop((mapping, file));
    assert_eq!(fs::read(named.path()).unwrap(), b"BYTES of a file");
}

/// A child whose fork was announced reads what is mapped, as it was, and a write there is a SIGSEGV.
#[test]
fn a_child_of_an_announced_fork_reads_what_is_mapped() {
    let _alone = budget(64 << 20);
    let (all, named) = filled(3 * SLOT, 3);
    let file = File::open_writable(named.path()).unwrap();
    let mapping = file.map_mut(PAGE as u64, 2 * SLOT).unwrap();
    mapping.write(5, b"not synced").unwrap();
    for writes in [false, true] {
        let fork = faultless::file::before_fork();
        // SAFETY: as in `passes_in_child`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: this child's.
            unsafe { libc::alarm(60) };
            fork.in_child();
            // SAFETY: memory of the mapping.
            let bytes = unsafe { std::slice::from_raw_parts_mut(mapping.as_ptr().cast_mut(), 2 * SLOT) };
            let same = bytes[..5] == all[PAGE..PAGE + 5]
                && bytes[5..15] == *b"not synced"
                && bytes[15..] == all[PAGE + 15..PAGE + 2 * SLOT];
            if writes {
                bytes[0] = 1;
            }
            // SAFETY: ends this child.
            unsafe { libc::_exit(!same as i32) };
        }
        drop(fork);
        mapping.write(5, b"NOT SYNCED").unwrap();
        let mut status = 0;
        // SAFETY: a place for the status.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        match writes {
            true => assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV),
            false => assert_eq!(status, 0),
        }
        mapping.write(5, b"not synced").unwrap();
    }
    drop(mapping);
    file.sync().unwrap();
    // Shared pages go as all others do.
    assert!(file.drop_cache() > 0);
    let mut all = all;
    all[PAGE + 5..PAGE + 15].copy_from_slice(b"not synced");
    assert!(read_all(&file) == all && fs::read(named.path()).unwrap() == all);
}

/// What a sync has written stays, and what came after it is lost.
#[test]
fn a_killed_process_loses_what_it_has_not_synced() {
    let _alone = budget(64 << 20);
    let named = named(&bytes(SLOT + 5, 9));
    // SAFETY: as in `passes_in_child`; the child kills itself.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(60);
            let file = File::open_writable(named.path()).unwrap();
            let mapping = file.map_mut(0, SLOT).unwrap();
            mapping.write(0, b"synced").unwrap();
            file.write_at(b"synced", SLOT as u64 - 3).unwrap();
            file.sync().unwrap();
            mapping.write(PAGE, b"lost").unwrap();
            file.write_at(b"lost", SLOT as u64 - 3).unwrap();
            libc::kill(libc::getpid(), libc::SIGKILL);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL);
    }
    let mut all = bytes(SLOT + 5, 9);
    all[..6].copy_from_slice(b"synced");
    all[SLOT - 3..SLOT + 3].copy_from_slice(b"synced");
    assert!(fs::read(named.path()).unwrap() == all);
}

/// Addresses that a file may grow into take no memory, also where all is locked.
#[test]
fn a_program_that_locks_its_memory_locks_no_more_than_the_file() {
    let _alone = budget(64 << 20);
    let resident = || {
        let text = fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * PAGE
    };
    for before in [false, true] {
        let named = named(&bytes(SLOT + 5, 8));
        let in_child = || {
            let lock = || {
                // SAFETY: memory of this process alone.
                assert_eq!(unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) }, 0);
            };
            if before {
                lock();
            }
            let file = File::open_writable(named.path()).unwrap();
            if !before {
                lock();
            }
            file.write_at(b"more", 2 * SLOT as u64).unwrap();
            assert!(read_all(&file)[..SLOT + 5] == bytes(SLOT + 5, 8));
            assert!(resident() < 1 << 30, "{} bytes", resident());
        };
        assert!(passes_in_child(in_child), "locked before: {before}");
    }
}

/// Only the clean memory of files that no mapping holds goes when the budget is lowered, or more is read than it
/// allows.
#[test]
fn memory_stays_within_the_budget() {
    let _alone = budget(8 << 20);
    let all = bytes(16 * SLOT, 6);
    let file = File::with_backing(Plain::of(all.clone())).unwrap();
    assert!(read_all(&file) == all);
    assert!(file.present() <= 5 * SLOT, "{} bytes", file.present());
    let mapping = file.map(0, 6 * SLOT).unwrap();
    assert!(read_all(&file) == all);
    assert!(file.present() >= 6 * SLOT && mapped(&mapping) == all[..6 * SLOT]);
    // Dirty memory is written back where nothing else can go.
    let plain = Plain::of(all.clone());
    let dirty = File::with_backing(plain.clone()).unwrap();
    let new = bytes(16 * SLOT, 7);
    for (i, part) in new.chunks(SLOT).enumerate() {
        dirty.write_at(part, (i * SLOT) as u64).unwrap();
    }
    assert!(dirty.present() <= 6 * SLOT, "{} bytes", dirty.present());
    assert!(read_all(&dirty) == new);
    drop(mapping);
    // The background thread has idle priority: it comes when it comes.
    faultless::region::set(Knob::Budget, 0);
    while file.present() > 0 {
        std::thread::yield_now();
    }
    assert!(read_all(&file) == all);
}

/// Idle frames that fill the budget serve a file, and do not keep it out.
#[test]
fn a_file_takes_the_place_of_idle_frames() {
    let _alone = budget(32 << 20);
    for small in [false, true] {
        let first = File::with_backing(Plain::of(bytes(16 * SLOT, 1))).unwrap();
        read_all(&first);
        // They are the owner's now, and idle.
        first.drop_cache();
        let (all, named) = filled(12 * SLOT, 2);
        let open = fs::File::open(named.path()).unwrap();
        let second = opened(&open, small);
        for page in (0..all.len()).step_by(64 * PAGE) {
            let mut got = [0; 64];
            assert_eq!(second.read_at(&mut got, page as u64).unwrap(), 64);
            assert!(got == all[page..page + 64]);
        }
        let least = if small { 12 * SLOT / 64 } else { 10 * SLOT };
        assert!(second.present() >= least, "{} bytes", second.present());
    }
}

/// A small file takes no huge page: programs open many of them.
#[test]
fn small_files_take_little_memory() {
    let _alone = budget(64 << 20);
    let dir = tempfile::tempdir().unwrap();
    let resident = || {
        let text = fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * PAGE
    };
    let before = resident();
    let open = |i: usize| {
        let path = dir.path().join(i.to_string());
        fs::write(&path, bytes(5 * PAGE, i as u64)).unwrap();
        let mapping = File::open(path).unwrap().map(0, 5 * PAGE).unwrap();
        assert!(mapped(&mapping) == bytes(5 * PAGE, i as u64));
        mapping
    };
    let mappings: Vec<_> = (0..200).map(open).collect();
    let grown = resident().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes for {} files", mappings.len());
}

#[test]
fn threads_read_write_map_and_evict_at_a_time() {
    let _alone = budget(4 << 20);
    let named = NamedTempFile::new().unwrap();
    const PART: usize = 3 * SLOT / 2 + PAGE;
    named.as_file().set_len(3 * PART as u64).unwrap();
    let file = File::open_writable(named.path()).unwrap();
    let file = &file;
    let work = |part: usize| {
        let mut chance = Chance(part as u64 + 77);
        let mut oracle = vec![0; PART];
        for round in 0..150 {
            let at = chance.below(PART);
            let n = chance.below((PART - at).min(5 * PAGE) + 1);
            let offset = (part * PART + at) as u64;
            match chance.below(8) {
                7 => {
                    file.punch_hole(offset..offset + n as u64).unwrap();
                    oracle[at..at + n].fill(0);
                }
                6 => {
                    let n = file.len() / 4;
                    let at = chance.below(n as usize) as u64;
                    assert!(file.prefetch(&[at..at + n, 3 * n..4 * n, at..at + 1]).is_ok());
                }
                0 => {
                    let new = bytes(n, round);
                    assert_eq!(file.write_at(&new, offset).unwrap(), n);
                    oracle[at..at + n].copy_from_slice(&new);
                }
                1 => {
                    let new = bytes(n, round);
                    file.map_mut(offset, n).unwrap().write(0, &new).unwrap();
                    oracle[at..at + n].copy_from_slice(&new);
                }
                2 => assert!(mapped(&file.map(offset, n).unwrap()) == oracle[at..at + n]),
                3 => _ = file.drop_cache(),
                4 if round % 8 == 0 => file.sync().unwrap(),
                _ => {
                    let mut got = vec![0xEE; n];
                    assert_eq!(file.read_at(&mut got, offset).unwrap(), n);
                    assert!(got == oracle[at..at + n], "part {part}, round {round}");
                }
            }
        }
        oracle
    };
    let all: Vec<u8> = std::thread::scope(|s| {
        let threads: Vec<_> = (0..3).map(|part| s.spawn(move || work(part))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    file.sync().unwrap();
    assert!(fs::read(named.path()).unwrap() == all);
}

/// What bpftrace and perf look for in the program's file.
#[test]
fn probes_are_noted_in_the_program() {
    let program = fs::read(std::env::current_exe().unwrap()).unwrap();
    for probe in ["file_add", "file_delete"] {
        let note = format!("faultless\0{probe}\0");
        assert!(program.windows(note.len()).any(|part| part == note.as_bytes()), "{probe}");
    }
}
