//! A file that is read in order, whose next slots are under way between calls (`mm/src/cache/stream.rs`), while other
//! threads write it, write it back, punch holes, and have slots go.
//!
//! All memory of 2 MiB is one byte. Calls change whole slots.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex};

use faultless_base::sys::file_memory::FileMemory;
use faultless_base::sys::uffd::Stopped;
use faultless_base::sys::watch::Writes;
use faultless_base::{Errno, SLOT, Span};
use faultless_mm::cache::backing::{BEGUN, Backing, Request};
use faultless_mm::cache::evict::To;
use faultless_mm::cache::{Cache, Process, Use};
use faultless_mm::frame::buddy::Kind;
use faultless_mm::frame::purpose::Need;
use faultless_mm::frame::store::{Frame, Store};
use faultless_models::check_runs;
use faultless_page::gauges::Gauges;
use faultless_page::knobs::Values;
use faultless_page::stats::Block;
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::RwLock;
use shuttle::thread;

/// Where the memory lies: far from the process's own.
const BASE: usize = 1 << 40;
/// Slots of the file.
const SLOTS: usize = 4;
const LENGTH: usize = SLOTS * SLOT;
const READER: usize = 7;

static COUNTERS: Block = Block::new();
static GAUGES: Gauges = Gauges::new();
static KNOBS: LazyLock<Values> = LazyLock::new(Values::default);
/// Frames that came out of what was under way.
static MOVED: AtomicUsize = AtomicUsize::new(0);
/// Reads that were under way and did not count.
static VOID: AtomicUsize = AtomicUsize::new(0);

fn chance(n: usize) -> bool {
    thread_rng().gen_range(0..n) == 0
}

/// The byte of each 2 MiB that is there.
#[derive(Clone, Default)]
struct Fake(Arc<Mutex<BTreeMap<usize, u8>>>, Arc<AtomicUsize>);

fn slots(span: Span) -> impl Iterator<Item = usize> {
    (span.start / SLOT * SLOT..span.end).step_by(SLOT)
}

impl Fake {
    fn get(&self, at: usize) -> Option<u8> {
        thread::yield_now();
        self.0.lock().unwrap().get(&(at / SLOT * SLOT)).copied()
    }
    fn set(&self, at: usize, byte: u8) {
        thread::yield_now();
        self.0.lock().unwrap().insert(at / SLOT * SLOT, byte);
    }
    fn drop(&self, at: usize) {
        thread::yield_now();
        self.0.lock().unwrap().remove(&(at / SLOT * SLOT));
    }
    fn reserve(&self, bytes: usize) -> usize {
        BASE + self.1.fetch_add(bytes.next_multiple_of(SLOT), Relaxed)
    }
    fn move_to(&self, from: usize, to: usize) -> bool {
        thread::yield_now();
        let mut all = self.0.lock().unwrap();
        assert!(!all.contains_key(&to), "something is there");
        // A device has it for a moment more.
        if chance(20) {
            return false;
        }
        let byte = all.remove(&from).expect("a frame has memory");
        all.insert(to, byte);
        true
    }
}

impl FileMemory for Fake {
    fn reserve(&self, bytes: usize) -> Option<Span> {
        Some(Span::new(Self::reserve(self, bytes), bytes))
    }
    fn open(&self, _: Span) -> bool {
        true
    }
    fn release(&self, span: Span) {
        self.discard(span);
    }
    fn make_huge(&self, frame: usize) -> bool {
        self.set(frame, 0);
        true
    }
    fn move_in(&self, frame: usize, to: usize) -> bool {
        self.move_to(frame, to)
    }
    fn move_out(&self, slot: usize, frame: usize) -> bool {
        let moved = self.move_to(slot, frame);
        if !moved {
            Self::drop(self, slot);
        }
        moved
    }
    fn drop_unless_whole(&self, frame: usize) -> bool {
        self.get(frame).is_some()
    }
    fn drop_frame(&self, frame: usize) {
        Self::drop(self, frame);
    }
    fn discard(&self, span: Span) -> bool {
        slots(span).for_each(|at| Self::drop(self, at));
        true
    }
    fn frees_tables(&self) -> bool {
        true
    }
    fn zero(&self, bytes: Span) {
        slots(bytes).for_each(|at| self.set(at, 0));
    }
    fn is_zero(&self, span: Span) -> bool {
        slots(span).all(|at| self.get(at).is_none_or(|byte| byte == 0))
    }
    fn copy(&self, from: Span, to: usize) {
        self.set(to, self.get(from.start).expect("what is copied is there"));
    }
    fn watch(&self, _: Span) -> bool {
        false
    }
    fn watch_aside(&self, _: Span) -> bool {
        false
    }
    fn populate(&self, _: Span) -> bool {
        true
    }
    fn populate_to_write(&self, _: Span) {}
    fn install(&self, _: usize, _: Span, _: Writes) -> Result<(), Stopped> {
        unreachable!("nothing is watched here")
    }
    fn install_zeroes(&self, _: Span) -> Result<(), Stopped> {
        unreachable!("nothing is watched here")
    }
    fn move_in_watched(&self, _: usize, _: usize) -> bool {
        false
    }
    fn move_pages(&self, _: Span, _: usize) -> Result<(), Stopped> {
        unreachable!("nothing is watched here")
    }
    fn take_changes(&self, _: Span, _: &mut dyn FnMut(Span)) -> bool {
        false
    }
    fn tells_writes(&self) -> bool {
        false
    }
    fn note_again(&self, _: Span) -> bool {
        false
    }
    fn is_there(&self, page: usize) -> bool {
        self.get(page).is_some()
    }
    fn poison(&self, _: usize) -> Result<(), Errno> {
        Ok(())
    }
    fn is_same(&self, a: Span, b: usize) -> bool {
        self.get(a.start) == self.get(b)
    }
    fn relax(&self, _: u32) {
        thread::yield_now();
    }
}

/// The file: a byte a slot. A read that was begun has its bytes from any moment until it is waited for.
struct Plain {
    memory: Fake,
    bytes: Mutex<[u8; SLOTS]>,
    begun: Mutex<[Option<(Request, bool)>; BEGUN]>,
}

impl Plain {
    fn byte(&self, offset: u64) -> u8 {
        thread::yield_now();
        self.bytes.lock().unwrap()[offset as usize / SLOT]
    }
    fn fetch(&self, request: Request) {
        self.memory.set(request.to.start, self.byte(request.offset));
    }
}

impl Backing for Plain {
    fn read(&self, offset: u64, to: Span) -> Result<usize, Errno> {
        self.memory.set(to.start, self.byte(offset));
        Ok(to.bytes())
    }
    fn can_begin(&self) -> bool {
        true
    }
    fn begin_read(&self, request: Request) -> bool {
        let is_early = chance(2);
        if is_early {
            self.fetch(request);
        }
        let before = self.begun.lock().unwrap()[request.tag].replace((request, is_early));
        assert!(before.is_none(), "two reads have a tag");
        true
    }
    fn has_ended(&self, _: usize) -> bool {
        chance(2)
    }
    fn end_begun(&self) {
        // It may take long.
        (0..50).for_each(|_| thread::yield_now());
        assert!(self.begun.lock().unwrap().iter().all(Option::is_none), "reads are under way");
    }
    fn end_read(&self, request: Request) -> Result<usize, Errno> {
        let (begun, is_early) = self.begun.lock().unwrap()[request.tag].take().expect("it was begun");
        assert_eq!(begun.to, request.to);
        if !is_early {
            self.fetch(request);
        }
        if chance(20) { Err(Errno::EIO) } else { Ok(request.to.bytes()) }
    }
    fn write(&self, offset: u64, from: Span) -> Result<(), Errno> {
        for at in slots(from) {
            let byte = self.memory.get(at).expect("what is written is there");
            self.bytes.lock().unwrap()[(offset as usize + at - from.start) / SLOT] = byte;
            thread::yield_now();
        }
        Ok(())
    }
    fn sync(&self) -> Result<(), Errno> {
        Ok(())
    }
    fn grow(&self, length: u64) -> Result<u64, Errno> {
        Ok(length)
    }
    fn truncate(&self, length: u64) -> Result<(), Errno> {
        self.bytes.lock().unwrap()[length as usize / SLOT..].fill(0);
        Ok(())
    }
    fn punch(&self, offset: u64, bytes: usize) -> Result<bool, Errno> {
        self.bytes.lock().unwrap()[offset as usize / SLOT..][..bytes / SLOT].fill(0);
        Ok(true)
    }
}

/// Frames that the file makes, and keeps while it has more than two.
struct Frames(LazyLock<Fake>);

impl Store for Frames {
    fn take(&self, _: Need) -> Option<Frame> {
        None
    }
    fn place(&self) -> Option<usize> {
        Some(Fake::reserve(&self.0, SLOT))
    }
    fn place_to_keep(&self) -> Option<usize> {
        None
    }
    fn give(&self, at: usize, kind: Kind) {
        match kind {
            Kind::Unbacked => MOVED.fetch_add(1, Relaxed),
            _ => {
                self.0.drop_frame(at);
                VOID.fetch_add(1, Relaxed)
            }
        };
    }
    fn ready(&self, _: Need) -> usize {
        0
    }
    fn ask(&self, _: usize) {}
    fn room(&self) -> usize {
        thread_rng().gen_range(0..3)
    }
    fn idle(&self) -> usize {
        0
    }
    fn drop_idle(&self) -> bool {
        false
    }
    fn cached(&self, _: usize, _: usize) {}
    fn now_ms(&self) -> u32 {
        1
    }
}

static FRAMES: Frames = Frames(LazyLock::new(Fake::default));

struct World {
    cache: Cache<Fake, Plain>,
    users: RwLock<()>,
    /// What was written to each slot by calls that have returned.
    written: [AtomicUsize; SLOTS],
}

impl World {
    fn new() -> Self {
        let memory = FRAMES.0.clone();
        let (bytes, begun) = (Mutex::new([0; SLOTS]), Mutex::new([None; BEGUN]));
        let backing = Plain { memory: memory.clone(), bytes, begun };
        let process = Process { store: &FRAMES, counters: &COUNTERS, knobs: &KNOBS, gauges: &GAUGES };
        let cache = Cache::new(memory, backing, LENGTH, LENGTH, process).unwrap();
        Self { cache, users: RwLock::new(()), written: [const { AtomicUsize::new(0) }; SLOTS] }
    }

    fn write(&self, slot: usize, byte: u8) {
        let _users = self.users.read().unwrap();
        let set = |span: Span| self.cache.memory().set(span.start, byte);
        assert_eq!(self.cache.with(slot * SLOT, SLOT, Use::Write, set), Ok(SLOT));
        self.written[slot].store(byte as usize, Relaxed);
    }

    /// In order, as a handle does.
    fn read(&self, slot: usize, reader: usize) -> u8 {
        let _users = self.users.read().unwrap();
        let before = self.written[slot].load(Relaxed);
        if chance(4) {
            // It comes by other means.
        } else {
            self.cache.stream(reader, slot * SLOT, SLOT, 2);
        }
        let mut found = 0;
        let look = |span: Span| found = self.cache.memory().get(span.start).expect("it is there");
        assert_eq!(self.cache.with(slot * SLOT, SLOT, Use::Read, look), Ok(SLOT));
        assert!(usize::from(found) >= before, "{found} where {before} was written");
        found
    }
}

#[test]
fn what_is_under_way_is_what_the_file_has_or_does_not_count() {
    const LAST: u8 = 3;
    check_runs(
        || {
            let world = Arc::new(World::new());
            let start = |work: fn(&World)| {
                let world = world.clone();
                thread::spawn(move || work(&world))
            };
            let threads = [
                start(|world| (1..=LAST).for_each(|round| (1..SLOTS).for_each(|slot| world.write(slot, round)))),
                start(|world| (0..SLOTS).for_each(|slot| _ = world.read(slot, READER + 1))),
                start(|world| {
                    for _ in 0..6 {
                        {
                            let _users = world.users.read().unwrap();
                            world.cache.sync(0, LENGTH).unwrap();
                        }
                        match thread_rng().gen_range(0..4) {
                            0 => _ = world.cache.evict_range(SLOT, 2 * SLOT, To::Store),
                            1 => world.cache.end_stream(),
                            to => _ = world.cache.evict(2, [To::Store, To::Kernel][to % 2]),
                        }
                    }
                }),
                // The first slot is never written to but by this.
                start(|world| {
                    let _alone = world.users.write().unwrap();
                    world.cache.punch(0, SLOT).unwrap();
                }),
            ];
            for _ in 0..2 {
                (0..SLOTS).for_each(|slot| _ = world.read(slot, READER));
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            let found: Vec<u8> = (0..SLOTS).map(|slot| world.read(slot, READER)).collect();
            assert_eq!(found, [0, LAST, LAST, LAST]);
            // What is cut off does not come again.
            {
                let _alone = world.users.write().unwrap();
                world.cache.sync(0, LENGTH).unwrap();
                world.cache.evict(SLOTS, To::Kernel);
            }
            assert_eq!([0, 1].map(|slot| world.read(slot, READER)), [0, LAST]);
            {
                let _alone = world.users.write().unwrap();
                world.cache.truncate(2 * SLOT).unwrap();
                world.cache.grow(LENGTH).unwrap();
                world.written[2..].iter().for_each(|written| written.store(0, Relaxed));
            }
            assert_eq!([2, 3].map(|slot| world.read(slot, READER)), [0, 0]);
            world.cache.end_stream();
            assert!(world.cache.backing().begun.lock().unwrap().iter().all(Option::is_none));
        },
        500,
    );
    assert!(MOVED.load(Relaxed) > 0 && VOID.load(Relaxed) > 0);
}

/// Another thread has the lock of each slot for a moment.
#[test]
fn nothing_stays_of_a_file_that_others_have_changed() {
    check_runs(
        || {
            let world = Arc::new(World::new());
            let looks = {
                let world = world.clone();
                thread::spawn(move || (0..20).for_each(|i| world.cache.advise_ahead(0, LENGTH, i % 2 == 0)))
            };
            let read_all = || (0..SLOTS).map(|slot| world.read(slot, READER)).collect::<Vec<_>>();
            for theirs in 1..4 {
                {
                    let _alone = world.users.write().unwrap();
                    world.cache.backing().bytes.lock().unwrap().fill(theirs);
                    world.cache.end_stream();
                    assert!(!world.cache.evict_stale(LENGTH, true));
                }
                assert_eq!(read_all(), [theirs; SLOTS]);
            }
            looks.join().unwrap();
            world.cache.end_stream();
        },
        1000,
    );
}
