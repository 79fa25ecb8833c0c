//! Dirty pages are written in the background: none is lost, and who writes never waits for it.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use faultless::file::{Backing, File};
use faultless_page::gauges::Gauge;
use faultless_page::knobs::Knob;
use faultless_page::stats::Counter;
use proptest::prelude::*;

use crate::chance::Chance;
use crate::lazy::{can_be_lazy, count};
use crate::plain::Plain;
use crate::{PAGE, SLOT, budget, bytes, opened, read_all};

/// The background writes back as these say, until this is dropped.
struct Background {
    _alone: MutexGuard<'static, ()>,
}

/// With a budget of 64 MiB: writes back from `percent` of it on, and after `expire_ms`.
fn background(percent: u64, expire_ms: u64) -> Background {
    let alone = budget(64 << 20);
    faultless::region::set(Knob::DirtyBackground, percent);
    faultless::region::set(Knob::DirtyExpire, expire_ms);
    Background { _alone: alone }
}

impl Drop for Background {
    fn drop(&mut self) {
        faultless::region::set(Knob::DirtyBackground, 0);
        faultless::region::set(Knob::DirtyExpire, 0);
    }
}

/// Waits for what another thread does; it is an error if it never does.
fn until(what: &str, is: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is() {
        assert!(begin.elapsed() < Duration::from_secs(120), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A backing whose writes wait while it is closed.
#[derive(Clone, Default)]
struct Gate {
    plain: Plain,
    closed: Arc<(Mutex<bool>, Condvar)>,
    waits: Arc<AtomicBool>,
    tries: Arc<AtomicUsize>,
}

impl Gate {
    fn close(&self, closed: bool) {
        *self.closed.0.lock().unwrap() = closed;
        self.closed.1.notify_all();
    }
}

impl Backing for Gate {
    fn length(&self) -> std::io::Result<u64> {
        self.plain.length()
    }
    fn read(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        self.plain.read(offset, buffer)
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
        self.tries.fetch_add(1, Ordering::AcqRel);
        let mut closed = self.closed.0.lock().unwrap();
        while *closed {
            self.waits.store(true, Ordering::Release);
            closed = self.closed.1.wait(closed).unwrap();
        }
        drop(closed);
        self.plain.write(offset, bytes)
    }
    fn sync(&self) -> std::io::Result<()> {
        self.plain.sync()
    }
    fn grow(&self, length: u64) -> std::io::Result<()> {
        self.plain.grow(length)
    }
    fn truncate(&self, length: u64) -> std::io::Result<()> {
        self.plain.truncate(length)
    }
    fn punch(&self, offset: u64, bytes: usize) -> std::io::Result<bool> {
        self.plain.0.bytes.lock().unwrap()[offset as usize..][..bytes].fill(0);
        Ok(true)
    }
}

/// A few bytes are in the file after a while, by calls and by a lazy mapping, without a sync.
#[test]
fn pages_that_are_old_are_written() {
    let _background = background(0, 50);
    let plain = Plain::of(vec![0; 3 * SLOT]);
    let file = File::with_backing(plain.clone()).unwrap();
    let flushed = count(Counter::FileFlushed);
    file.write_at(b"by a call", 100).unwrap();
    let has = |at: usize, what: &[u8]| plain.0.bytes.lock().unwrap()[at..at + what.len()] == *what;
    until("by a call", || has(100, b"by a call"));
    assert!(count(Counter::FileFlushed) >= flushed + PAGE as u64);
    if can_be_lazy() {
        let mut mapping = file.map_lazy_mut(0, 3 * SLOT).unwrap();
        // SAFETY: no other thread uses these bytes.
        let mut write = |at: usize, what: &[u8]| unsafe {
            mapping.as_mut_slice()[at..at + what.len()].copy_from_slice(what);
        };
        write(SLOT, b"by a mapping");
        until("by a mapping", || has(SLOT, b"by a mapping"));
        // Once more: the page is protected again.
        write(SLOT + 4, b"again");
        until("once more", || has(SLOT + 4, b"again"));
    }
    file.sync().unwrap();
    // Clean pages may go.
    drop(file);
}

/// Nothing is written while there is little, and time does not count.
#[test]
fn a_share_of_the_budget_may_be_dirty() {
    let _background = background(25, 0);
    let plain = Plain::of(vec![0; 32 << 20]);
    let file = File::with_backing(plain.clone()).unwrap();
    let (flushed, waited) = (count(Counter::FileFlushed), count(Counter::FileThrottled));
    for slot in 0..7 {
        file.write_at(&[1; SLOT], slot * SLOT as u64).unwrap();
    }
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(count(Counter::FileFlushed), flushed, "14 MiB of 64 are no reason");
    for slot in 7..10 {
        file.write_at(&[1; SLOT], slot * SLOT as u64).unwrap();
    }
    until("20 MiB of 64", || count(Counter::FileFlushed) >= flushed + 16 * (1 << 20));
    assert_eq!(count(Counter::FileThrottled), waited);
    file.sync().unwrap();
    assert!(plain.0.bytes.lock().unwrap()[..10 * SLOT].iter().all(|byte| *byte == 1));
}

/// The background waits for its device. Reads, writes to the same pages and to others, and growing go on meanwhile, and
/// what they wrote is there afterwards.
#[test]
fn who_writes_does_not_wait_for_the_background() {
    let _background = background(0, 20);
    let gate = Gate { plain: Plain::of(vec![0; 4 * SLOT]), ..Gate::default() };
    let file = File::with_backing(gate.clone()).unwrap();
    gate.close(true);
    file.write_at(&[1; 2 * PAGE], 0).unwrap();
    until("a write of the background", || gate.waits.load(Ordering::Acquire));
    // Each of these would wait for ever.
    file.write_at(&[2; PAGE], 0).unwrap();
    file.write_at(&[3; 3 * SLOT], PAGE as u64 * 3).unwrap();
    file.write_at(&[4; PAGE], 4 * SLOT as u64).unwrap();
    let before = read_all(&file);
    gate.close(false);
    file.sync().unwrap();
    assert!(*gate.plain.0.bytes.lock().unwrap() == before && read_all(&file) == before);
    assert!(before[..PAGE] == [2; PAGE] && before[PAGE..2 * PAGE] == [1; PAGE]);
}

/// The last handle ends while the background is at its file: all is in the file when that returns.
#[test]
fn the_last_handle_writes_back_beside_the_background() {
    let _background = background(0, 1);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let mut chance = Chance(3);
    for turn in 0..60 {
        fs::write(&path, vec![0; SLOT]).unwrap();
        let file = File::open_writable(&path).unwrap();
        let all = bytes(SLOT + PAGE * 3, turn + 1);
        file.write_at(&all, 0).unwrap();
        std::thread::sleep(Duration::from_millis(chance.below(60) as u64));
        file.write_at(b"last", 77).unwrap();
        drop(file);
        let on_disk = fs::read(&path).unwrap();
        assert!(on_disk[77..81] == *b"last" && on_disk[100..] == all[100..], "{turn}");
    }
}

/// An error of the background is told by the next sync, once by each handle. The bytes stay, and are written later.
#[test]
fn an_error_of_the_background_is_told_once() {
    let background = background(0, 20);
    let gate = Gate { plain: Plain::of(vec![0; 2 * SLOT]), ..Gate::default() };
    let file = File::with_backing(gate.clone()).unwrap();
    gate.plain.0.errno.store(28, Ordering::Relaxed);
    gate.plain.0.unwritable.store(true, Ordering::Relaxed);
    let flushed = count(Counter::FileFlushed);
    file.write_at(b"kept", 5).unwrap();
    until("two tries", || gate.tries.load(Ordering::Acquire) >= 2);
    assert_eq!(count(Counter::FileFlushed), flushed);
    assert_eq!(file.drop_cache(), 0, "what is not written does not go");
    // No more tries from now on, but for one that has begun.
    faultless::region::set(Knob::DirtyExpire, 0);
    gate.plain.0.unwritable.store(false, Ordering::Relaxed);
    assert_eq!(file.sync().unwrap_err().raw_os_error(), Some(28), "it was kept");
    file.sync().unwrap();
    assert_eq!(&gate.plain.0.bytes.lock().unwrap()[5..9], b"kept");
    drop(background);
}

/// Faults need room, so dirty pages are written back. Another thread turns one of them into a hole: its old bytes do not
/// come to the file afterwards, and nothing waits for ever.
#[test]
fn no_page_is_taken_away_while_it_is_written() {
    // More than the frames that other tests may have left.
    const SLOTS: usize = 80;
    if !can_be_lazy() {
        return;
    }
    let _alone = budget(0);
    let gate = Gate { plain: Plain::of(vec![0; SLOTS * SLOT]), ..Gate::default() };
    let file = File::with_backing(gate.clone()).unwrap();
    let mut mapping = file.map_lazy_mut(SLOT as u64, (SLOTS - 1) * SLOT).unwrap();
    file.write_at(&[7; PAGE], 5 * PAGE as u64).unwrap();
    gate.close(true);
    let mut touched = 0;
    std::thread::scope(|scope| {
        let (gate, touched) = (&gate, &mut touched);
        // SAFETY: no other thread uses these bytes.
        let memory = unsafe { mapping.as_mut_slice() };
        scope.spawn(move || {
            for slot in memory.chunks_mut(SLOT).take_while(|_| !gate.waits.load(Ordering::Acquire)) {
                slot[0] = 1;
                *touched += 1;
            }
        });
        until("a write for a fault", || gate.waits.load(Ordering::Acquire));
        let punched = scope.spawn(|| file.punch_hole(0..SLOT as u64).unwrap());
        // Long enough for one that does not wait.
        (0..40).take_while(|_| !punched.is_finished()).for_each(|_| std::thread::sleep(Duration::from_millis(5)));
        gate.close(false);
    });
    file.sync().unwrap();
    let bytes = gate.plain.0.bytes.lock().unwrap().clone();
    assert!(bytes[..SLOT].iter().all(|byte| *byte == 0));
    let ones = bytes.iter().filter(|byte| **byte != 0).count();
    assert!(ones == touched && ones > 0 && read_all(&file) == bytes, "{ones} of {touched}");
}

/// The totals say what is dirty and what is held, and nothing is left of it when the files are closed. Other tests wait
/// for the lock that this one has.
#[test]
fn totals_are_those_of_all_files() {
    let _background = background(0, 0);
    let gauge = |gauge| faultless::file::memory(gauge);
    let all = || Gauge::ALL.iter().map(|of| gauge(*of)).collect::<Vec<_>>();
    let before = all();
    let more = |of: Gauge| gauge(of) - before[of as usize];
    let plain = Plain::of(vec![0; 6 * SLOT]);
    let file = File::with_backing(plain.clone()).unwrap();
    file.write_at(&[1; 3 * PAGE], 100).unwrap();
    assert_eq!(more(Gauge::Dirty), 4 * PAGE as u64);
    assert!(more(Gauge::Cached) >= 4 * PAGE as u64 && more(Gauge::Cached) <= SLOT as u64);
    file.sync().unwrap();
    assert_eq!((more(Gauge::Dirty), more(Gauge::Writeback)), (0, 0));
    let mapping = file.map_mut(SLOT as u64, 2 * SLOT).unwrap();
    assert_eq!(more(Gauge::Unevictable), 2 * SLOT as u64);
    let huge = more(Gauge::FileHugePages);
    assert!(more(Gauge::FilePmdMapped) <= huge && huge <= 3 * SLOT as u64 && huge.is_multiple_of(SLOT as u64));
    plain.0.unsyncable.store(true, Ordering::Relaxed);
    assert!(mapping.sync().is_err());
    assert_eq!((more(Gauge::Dirty), more(Gauge::Writeback)), (2 * SLOT as u64, 0), "it is dirty as before");
    plain.0.unsyncable.store(false, Ordering::Relaxed);
    drop(mapping);
    assert_eq!((more(Gauge::Unevictable), more(Gauge::FilePmdMapped)), (0, 0));
    file.set_len(SLOT as u64 + 1).unwrap();
    assert_eq!(more(Gauge::Dirty), PAGE as u64);
    drop(file);
    assert_eq!(all(), before);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Two threads write, cut, punch, drop and sync while the background writes all the time. Each has half of the pages,
    /// and knows what they have; only one changes the length.
    #[test]
    fn nothing_is_lost_beside_the_background(seed: u64, small: bool, room in 0..2usize, lazy: bool) {
        let _background = background(1, 1);
        faultless::region::set(Knob::Budget, [64 << 20, 4 << 20][room]);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        const ALL: usize = 5 * SLOT;
        fs::write(&path, vec![0; ALL]).unwrap();
        let open = fs::File::options().read(true).write(true).open(&path).unwrap();
        let file = opened(&open, small);
        let mapping = (lazy && can_be_lazy()).then(|| file.map_lazy_mut(0, 2 * SLOT).unwrap());
        let halves: Vec<Vec<u8>> = std::thread::scope(|scope| {
            let threads = [0, 1].map(|half| {
                let (file, mapping) = (&file, &mapping);
                scope.spawn(move || {
                    let mut chance = Chance(seed | 1);
                    (0..half).for_each(|_| _ = chance.below(2));
                    chance.0 = chance.0.wrapping_add(half as u64 * 2);
                    let mut mine = vec![0; ALL];
                    let mut length = ALL;
                    for turn in 0..120 {
                        // A page of this half, and not one that may be cut off.
                        let pages = 2 * SLOT / PAGE / 2;
                        let page = (chance.below(pages) * 2 + half) * PAGE;
                        let (first, n) = (chance.below(PAGE), 1 + chance.below(PAGE));
                        let n = n.min(PAGE - first);
                        let at = page + first;
                        match chance.below(12) {
                            0..=4 => {
                                let new = bytes(n, seed.wrapping_add(turn));
                                match mapping.as_ref().filter(|_| turn % 2 == 0) {
                                    Some(mapping) => mapping.write(at, &new).unwrap(),
                                    None => assert_eq!(file.write_at(&new, at as u64).unwrap(), n),
                                }
                                mine[at..at + n].copy_from_slice(&new);
                            }
                            5..=6 => {
                                let mut got = vec![0xEE; n];
                                assert_eq!(file.read_at(&mut got, at as u64).unwrap(), n);
                                assert!(got == mine[at..at + n], "{n} at {at}, half {half}");
                            }
                            7 => {
                                file.punch_hole(at as u64..(at + n) as u64).unwrap();
                                mine[at..at + n].fill(0);
                            }
                            8 => _ = file.drop_cache(),
                            9 => file.sync_range(at as u64..(at + n) as u64).unwrap(),
                            10 if half == 0 => {
                                length = 2 * SLOT + chance.below(ALL - 2 * SLOT);
                                file.set_len(length as u64).unwrap();
                                mine.truncate(length);
                                mine.resize(ALL, 0);
                            }
                            11 if half == 0 => {
                                let new = bytes(n, seed.wrapping_add(turn));
                                file.write_at(&new, length as u64).unwrap();
                                if length + n <= ALL {
                                    mine[length..length + n].copy_from_slice(&new);
                                    length += n;
                                } else {
                                    file.set_len(length as u64).unwrap();
                                }
                            }
                            _ => std::thread::yield_now(),
                        }
                    }
                    if half == 0 {
                        mine.truncate(length);
                    }
                    mine
                })
            });
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let mut all = halves[0].clone();
        for page in (PAGE..2 * SLOT).step_by(2 * PAGE) {
            all[page..page + PAGE].copy_from_slice(&halves[1][page..page + PAGE]);
        }
        prop_assert!(read_all(&file) == all, "in memory");
        drop(mapping);
        drop(file);
        prop_assert!(fs::read(&path).unwrap() == all, "in the file");
    }
}
