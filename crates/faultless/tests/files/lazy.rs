//! Mappings whose pages come when they are touched.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicUsize, Ordering};

use faultless::file::{Delivery, File};
use faultless_page::stats::Counter;
use tempfile::NamedTempFile;

use crate::chance::Chance;
use crate::plain::Plain;
use crate::{PAGE, SLOT, budget, bytes, filled, hole, named, opened, read_all};

pub const BOTH: [Delivery; 2] = [Delivery::Thread, Delivery::Signal];

/// Whether this machine allows it.
pub fn can_be_lazy() -> bool {
    let file = File::with_backing(Plain::of(vec![1])).unwrap();
    let is_possible = file.map_lazy(0, 1).is_ok();
    if !is_possible {
        faultless_testkit::skip("no userfaultfd that notes writes");
    }
    is_possible
}

/// A file to be written to.
pub fn opened_writable(named: &NamedTempFile, small: bool) -> File {
    opened(&fs::File::options().read(true).write(true).open(named.path()).unwrap(), small)
}

/// [`budget`], where this machine allows it.
pub fn budget_if_lazy(bytes: u64) -> Option<MutexGuard<'static, ()>> {
    let alone = budget(bytes);
    can_be_lazy().then_some(alone)
}

/// What this process has counted.
pub fn count(counter: Counter) -> u64 {
    faultless::region::Region::counted(counter)
}

/// Memory of this process, but for the pages of its own program.
pub fn resident() -> usize {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

#[test]
fn a_file_four_times_the_budget_keeps_the_budget() {
    const BUDGET: usize = 16 << 20;
    let Some(_alone) = budget_if_lazy(BUDGET as u64) else { return };
    let all = bytes(4 * BUDGET, 7);
    for (small, delivery) in [(false, BOTH[0]), (false, BOTH[1]), (true, BOTH[1])] {
        let named = named(&all);
        let file = opened_writable(&named, small);
        file.deliver(delivery).unwrap();
        let mut changed = all.clone();
        let before = resident();
        let mut most = 0;
        let mut look = |i: usize| {
            if i % 64 == 0 {
                most = most.max(resident().saturating_sub(before));
            }
        };
        let mut mapping = file.map_lazy_mut(0, all.len()).unwrap();
        assert!(mapping.is_lazy() && file.present() == 0);
        // SAFETY: no other thread uses the file.
        let memory = unsafe { mapping.as_mut_slice() };
        let mut chance = Chance(77);
        for i in 0..if small { 12_000 } else { 300 } {
            let page = chance.below(all.len() / PAGE) * PAGE;
            assert!(memory[page..page + 64] == all[page..page + 64], "page {page:#x}");
            look(i);
        }
        for i in 0..1_000 {
            let at = chance.below(all.len());
            memory[at] = i as u8;
            changed[at] = i as u8;
            look(i);
        }
        for (i, page) in (0..all.len()).step_by(PAGE).enumerate() {
            assert!(memory[page..page + PAGE] == changed[page..page + PAGE], "page {page:#x}");
            look(i);
        }
        // One slot that comes, one that goes, and what is beside them.
        assert!(most <= BUDGET + 4 * SLOT, "{} MiB beyond {} MiB", most >> 20, BUDGET >> 20);
        assert!(file.present() <= BUDGET + SLOT);
        file.sync().unwrap();
        assert!(fs::read(named.path()).unwrap() == changed);
    }
}

#[test]
fn a_sync_writes_the_pages_that_have_changed() {
    let Some(_alone) = budget_if_lazy(64 << 20) else { return };
    for (small, delivery) in [(false, BOTH[0]), (true, BOTH[1])] {
        let (all, named) = filled(4 * SLOT, 5);
        let file = opened_writable(&named, small);
        file.deliver(delivery).unwrap();
        let mut mapping = file.map_lazy_mut(0, all.len()).unwrap();
        // SAFETY: no other thread uses the file.
        let memory = unsafe { mapping.as_mut_slice() };
        assert!(memory == all);
        let written = |what: &str, pages: usize| {
            let before = count(Counter::FileWritten);
            file.sync().unwrap();
            assert_eq!(count(Counter::FileWritten) - before, (pages * PAGE) as u64, "{what}");
        };
        written("only read", 0);
        memory[5] = 1;
        memory[SLOT + 3 * PAGE] ^= 1;
        memory[SLOT + 4 * PAGE] ^= 1;
        written("three pages", 3);
        written("no more", 0);
        memory[5] = 2;
        written("one page again", 1);
        // Another mapping for reading, and what goes and comes again, changes nothing.
        let other = file.map_lazy(0, all.len()).unwrap();
        assert!(file.drop_cache() > 0);
        assert_eq!((file.present(), memory[5]), (0, 2));
        // SAFETY: the same.
        assert!(unsafe { other.as_slice() } == &*memory);
        written("read again", 0);
        memory[7 * PAGE] ^= 7;
        drop(other);
        let expected = memory.to_vec();
        drop(mapping);
        written("after the mapping", 1);
        assert!(fs::read(named.path()).unwrap() == expected);
    }
}

/// Of holes, what is not zero any more is written, and comes by huge pages.
#[test]
fn a_new_file_is_written_where_it_was_touched() {
    let Some(_alone) = budget_if_lazy(64 << 20) else { return };
    let named = hole(4 * SLOT as u64 + 5);
    let file = File::open_writable(named.path()).unwrap();
    let mut mapping = file.map_lazy_mut(0, 4 * SLOT + 5).unwrap();
    // SAFETY: no other thread uses the file.
    let memory = unsafe { mapping.as_mut_slice() };
    memory[SLOT + 9 * PAGE + 1] = 1;
    memory[4 * SLOT + 4] = 2;
    assert_eq!(memory[3 * SLOT], 0);
    let before = count(Counter::FileWritten);
    file.sync().unwrap();
    assert_eq!(count(Counter::FileWritten) - before, PAGE as u64 + 5);
    file.drop_cache();
    assert_eq!([SLOT + 9 * PAGE + 1, 4 * SLOT + 4, 3 * SLOT].map(|at| memory[at]), [1, 2, 0]);
    drop(mapping);
    let mut expected = vec![0; 4 * SLOT + 5];
    (expected[SLOT + 9 * PAGE + 1], expected[4 * SLOT + 4]) = (1, 2);
    assert!(read_all(&file) == expected && fs::read(named.path()).unwrap() == expected);
}

/// All kinds of mappings and calls are the same bytes, while pages come and go.
#[test]
fn threads_touch_map_sync_and_drop_at_a_time() {
    const PART: usize = 3 * SLOT / 2 + PAGE;
    const THREADS: usize = 3;
    let Some(_alone) = budget_if_lazy(4 << 20) else { return };
    for (small, delivery) in [(false, BOTH[0]), (true, BOTH[0]), (false, BOTH[1]), (true, BOTH[1])] {
        let named = hole((THREADS * PART) as u64);
        let file = opened_writable(&named, small);
        file.deliver(delivery).unwrap();
        let file = &file;
        let work = |part: usize| {
            let mut chance = Chance(part as u64 + 7);
            let mut oracle = vec![0; PART];
            let mut mapping = file.map_lazy_mut((part * PART) as u64, PART).unwrap();
            // SAFETY: other threads use other parts.
            let memory = unsafe { mapping.as_mut_slice() };
            for round in 0..400 {
                let at = chance.below(PART);
                let n = chance.below((PART - at).min(3 * PAGE) + 1);
                let offset = (part * PART + at) as u64;
                match chance.below(10) {
                    0..=2 => {
                        let new = bytes(n, round);
                        memory[at..at + n].copy_from_slice(&new);
                        oracle[at..at + n].copy_from_slice(&new);
                    }
                    3 => {
                        let new = bytes(n, round);
                        assert_eq!(file.write_at(&new, offset).unwrap(), n);
                        oracle[at..at + n].copy_from_slice(&new);
                    }
                    4 => _ = file.drop_cache(),
                    5 if round % 4 == 0 => file.sync().unwrap(),
                    6 => {
                        file.punch_hole(offset..offset + n as u64).unwrap();
                        oracle[at..at + n].fill(0);
                    }
                    7 => {
                        let mut got = vec![0xEE; n];
                        assert_eq!(file.read_at(&mut got, offset).unwrap(), n);
                        assert!(got == oracle[at..at + n], "a call in part {part}, round {round}");
                    }
                    8 => {
                        let end = file.len();
                        assert!(file.prefetch(&[offset..offset + n as u64, end / 2..end]).is_ok());
                    }
                    _ => assert!(memory[at..at + n] == oracle[at..at + n], "part {part}, round {round}"),
                }
            }
            assert!(memory == oracle);
            oracle
        };
        let all: Vec<u8> = std::thread::scope(|s| {
            let threads: Vec<_> = (0..THREADS).map(|part| s.spawn(move || work(part))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        file.sync().unwrap();
        assert!(fs::read(named.path()).unwrap() == all);
    }
}

/// A page that is written to while it goes is not lost: threads write to the same slots that others drop.
#[test]
fn what_is_written_while_pages_go_is_there() {
    const COUNTERS: usize = 4;
    let Some(_alone) = budget_if_lazy(64 << 20) else { return };
    for delivery in BOTH {
        let named = named(&bytes(2 * SLOT, 1));
        let file = File::open_writable(named.path()).unwrap();
        file.deliver(delivery).unwrap();
        let mut mapping = file.map_lazy_mut(0, 2 * SLOT).unwrap();
        let start = mapping.as_mut_ptr() as usize;
        // A counter in each of some pages, far apart.
        let counter = |i: usize| {
            // SAFETY: aligned memory of the mapping, of which no slice is used.
            unsafe { &*((start + i * 100 * PAGE) as *const AtomicUsize) }
        };
        (0..COUNTERS).for_each(|i| counter(i).store(0, Ordering::Relaxed));
        let running = AtomicUsize::new(COUNTERS);
        std::thread::scope(|s| {
            for i in 0..COUNTERS {
                let running = &running;
                s.spawn(move || {
                    for n in 0..3_000 {
                        assert_eq!(counter(i).fetch_add(1, Ordering::Relaxed), n, "a write was lost");
                        if n % 16 == 0 {
                            std::thread::yield_now();
                        }
                    }
                    running.fetch_sub(1, Ordering::Relaxed);
                });
            }
            let file = &file;
            let running = &running;
            s.spawn(move || {
                while running.load(Ordering::Relaxed) > 0 {
                    file.sync().unwrap();
                    file.drop_cache();
                }
            });
        });
        file.sync().unwrap();
        let written = fs::read(named.path()).unwrap();
        for i in 0..COUNTERS {
            let at = i * 100 * PAGE;
            assert_eq!(written[at..at + 8], 3_000_usize.to_ne_bytes());
        }
    }
}

/// A page that cannot be read is a SIGBUS for the access, an error for a call, and comes when it can be read.
#[test]
fn a_page_that_cannot_be_read_is_a_sigbus() {
    const SELF: &str = "FAULTLESS_TEST_LAZY";
    if let Ok(which) = std::env::var(SELF) {
        let delivery = BOTH[which.parse::<usize>().unwrap()];
        let all = bytes(2 * SLOT, 4);
        let plain = Plain::of(all.clone());
        *plain.0.unreadable.lock().unwrap() = vec![7, 9];
        let file = File::with_backing(plain.clone()).unwrap();
        file.deliver(delivery).unwrap();
        let mapping = file.map_lazy(0, all.len()).unwrap();
        // SAFETY: no thread writes.
        let memory = unsafe { mapping.as_slice() };
        assert!(memory[8 * PAGE..9 * PAGE] == all[8 * PAGE..9 * PAGE] && memory[SLOT + 5] == all[SLOT + 5]);
        let mut got = [0; 10];
        assert_eq!(mapping.read(7 * PAGE, &mut got).unwrap_err().raw_os_error(), Some(5));
        plain.0.unreadable.lock().unwrap().retain(|page| *page == 9);
        mapping.read(7 * PAGE, &mut got).unwrap();
        assert!(got == all[7 * PAGE..7 * PAGE + 10] && memory[7 * PAGE] == all[7 * PAGE]);
        eprintln!("so far");
        std::hint::black_box(memory[9 * PAGE]);
        eprintln!("it was read");
        std::process::exit(0);
    }
    if !can_be_lazy() {
        return;
    }
    for which in ["0", "1"] {
        let test = std::env::current_exe().unwrap();
        let name = "lazy::a_page_that_cannot_be_read_is_a_sigbus";
        let run = Command::new(test).args([name, "--exact", "--nocapture"]).env(SELF, which).output().unwrap();
        let said = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.signal(), Some(7), "{said}");
        assert!(said.contains("so far") && said.contains("(error 5)") && !said.contains("it was read"), "{said}");
    }
}

/// The test again in a process of its own, which a signal may end; what it said, and the signal.
fn again(name: &str, which: &str) -> (String, Option<i32>) {
    let test = std::env::current_exe().unwrap();
    let mut run = Command::new(test);
    let run = run.args([&format!("lazy::{name}"), "--exact", "--nocapture"]).env(AGAIN, which).output().unwrap();
    (String::from_utf8_lossy(&run.stderr).into_owned(), run.status.signal())
}

const AGAIN: &str = "FAULTLESS_TEST_LAZY_AGAIN";

/// A program that closes what it does not know has no zeroes in the place of pages.
#[test]
fn without_descriptors_an_access_is_an_error() {
    if let Ok(which) = std::env::var(AGAIN) {
        let named = named(&bytes(4 * SLOT, 4));
        let file = File::open_writable(named.path()).unwrap();
        file.deliver(BOTH[which.parse::<usize>().unwrap()]).unwrap();
        let mapping = file.map_lazy(0, 4 * SLOT).unwrap();
        // SAFETY: no thread writes.
        let memory = unsafe { mapping.as_slice() };
        let all = bytes(4 * SLOT, 4);
        assert_eq!(memory[5], all[5]);
        // SAFETY: this process uses no other descriptor but stderr.
        unsafe { libc::close_range(3, u32::MAX, 0) };
        eprintln!("so far");
        for at in (0..4 * SLOT).step_by(PAGE / 2) {
            assert_eq!(memory[at], all[at], "not what the file has");
        }
        eprintln!("it was read");
        return;
    }
    if !can_be_lazy() {
        return;
    }
    for which in ["0", "1"] {
        let (said, signal) = again("without_descriptors_an_access_is_an_error", which);
        assert!(said.contains("so far") && !said.contains("not what"), "{said}");
        assert!(matches!(signal, Some(libc::SIGBUS | libc::SIGSEGV)), "{signal:?} {said}");
    }
}

/// A child has no lazy mapping, also where its fork was announced: missing pages would be zeroes.
#[test]
fn a_forked_child_does_not_have_it() {
    let Some(_alone) = budget_if_lazy(64 << 20) else { return };
    let named = named(&bytes(2 * SLOT, 4));
    let file = File::open(named.path()).unwrap();
    let lazy = file.map_lazy(0, SLOT).unwrap();
    let mapping = file.map(SLOT as u64, SLOT).unwrap();
    let mut got = [0];
    lazy.read(5, &mut got).unwrap();
    for (at, is_there) in [(lazy.as_ptr(), false), (mapping.as_ptr(), true)] {
        let fork = faultless::file::before_fork();
        // SAFETY: the child reads a byte, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            fork.in_child();
            // SAFETY: an access that may end this child.
            unsafe {
                libc::alarm(60);
                std::hint::black_box(at.add(5).read_volatile());
                libc::_exit(0);
            }
        }
        drop(fork);
        let mut status = 0;
        // SAFETY: a place for the status.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        match is_there {
            true => assert_eq!(status, 0),
            false => assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV, "{status}"),
        }
    }
    lazy.read(5, &mut got).unwrap();
    assert_eq!(got[0], bytes(6, 4)[5]);
}

#[test]
fn a_sparse_file_of_a_tebibyte_is_mapped_whole() {
    let Some(_alone) = budget_if_lazy(16 << 20) else { return };
    let file = tempfile::tempfile().unwrap();
    file.set_len(1 << 40).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"far", 700 << 30).unwrap();
    let file = File::new(&file).unwrap();
    let mut mapping = file.map_lazy_mut(0, 1 << 40).unwrap();
    // SAFETY: no other thread uses the file.
    let memory = unsafe { mapping.as_mut_slice() };
    assert_eq!(&memory[(700 << 30) - 1..(700 << 30) + 4], b"\0far\0");
    memory[(1 << 40) - 1] = 7;
    assert_eq!(memory[3 << 38], 0);
    drop(mapping);
    file.sync().unwrap();
    let mut got = [0; 2];
    file.read_at(&mut got, (1 << 40) - 2).unwrap();
    assert_eq!(got, [0, 7]);
}

/// What the knob says counts for what comes from then on, and what came is counted.
#[test]
fn the_knob_says_what_pages_come() {
    let Some(_alone) = budget_if_lazy(64 << 20) else { return };
    let knob = |word: u64| faultless::region::set(faultless_page::knobs::Knob::ThpPagecache, word);
    let all = bytes(4 * SLOT, 6);
    for (word, small, is_huge) in [(0, true, true), (1, true, false), (1, false, true), (2, false, false)] {
        let named = named(&all);
        let open = fs::File::open(named.path()).unwrap();
        knob(word);
        let file = opened(&open, small);
        let before = [Counter::FileFault, Counter::FileMapped, Counter::FileFallback].map(count);
        let mapping = file.map_lazy(0, all.len()).unwrap();
        // SAFETY: no thread writes.
        assert!(unsafe { mapping.as_slice() } == all);
        knob(1);
        let [faults, mapped, failed] = [Counter::FileFault, Counter::FileMapped, Counter::FileFallback].map(count);
        let (faults, mapped, failed) = (faults - before[0], mapped - before[1], failed - before[2]);
        match is_huge {
            // Where tables stay, huge pages are copied.
            true => assert!(faults < 64 && mapped < 64 || failed > 0, "{faults} faults, {mapped} moved"),
            false => {
                assert!(faults >= (all.len() / PAGE) as u64 && mapped == 0, "{faults} faults, {mapped} moved")
            }
        }
    }
}

/// Memory that a lazy mapping has may be what a call is given, of the same file as well.
#[test]
fn calls_may_be_given_memory_that_was_not_touched() {
    let Some(_alone) = budget_if_lazy(16 << 20) else { return };
    for delivery in BOTH {
        let (all, named) = filled(4 * SLOT, 8);
        let file = File::open_writable(named.path()).unwrap();
        file.deliver(delivery).unwrap();
        let mut mapping = file.map_lazy_mut(0, 2 * SLOT).unwrap();
        // SAFETY: no other thread uses the file; the call writes to this half, and reads from the other one.
        let memory = unsafe { mapping.as_mut_slice() };
        for (at, n) in [(5, 3 * PAGE), (SLOT - 7, 100), (0, 2 * SLOT)] {
            file.sync().unwrap();
            file.drop_cache();
            let read = file.read_at(&mut memory[at..at + n], (2 * SLOT + at) as u64).unwrap();
            assert!(read == n && memory[at..at + n] == all[2 * SLOT + at..][..n], "{n} at {at}");
        }
        file.sync().unwrap();
        assert!(fs::read(named.path()).unwrap()[..2 * SLOT] == all[2 * SLOT..]);
    }
}

/// Pages of parts that are in memory count, too, before the background thread looks.
#[test]
fn single_pages_that_calls_bring_keep_the_budget() {
    const BUDGET: usize = 8 << 20;
    let _alone = budget(BUDGET as u64);
    let all = bytes(4 * BUDGET, 6);
    let named = tempfile::NamedTempFile::new().unwrap();
    fs::write(named.path(), &all).unwrap();
    let file = File::with_small_pages(&fs::File::open(named.path()).unwrap()).unwrap();
    let mut chance = Chance(8);
    let mut most = 0;
    for _ in 0..6_000 {
        let page = chance.below(all.len() / PAGE) * PAGE;
        let mut got = [0; 64];
        assert_eq!(file.read_at(&mut got, page as u64).unwrap(), 64);
        assert!(got == all[page..page + 64], "page {page:#x}");
        most = most.max(file.present());
    }
    assert!(most <= BUDGET + 2 * SLOT, "{} MiB beyond {} MiB", most >> 20, BUDGET >> 20);
}
