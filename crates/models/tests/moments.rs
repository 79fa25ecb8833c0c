//! Snapshots of a file beside a lazy mapping that is written to, calls, write-back and eviction, over a simulated
//! memory: each is one moment, and stays.
//!
//! A page of the memory is one byte, and whether it is protected. A thread of the library that writes to a protected
//! page of the file with the lock of its slot would wait for itself: here it panics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex};

use faultless_base::sys::file_memory::FileMemory;
use faultless_base::sys::uffd::Stopped;
use faultless_base::sys::watch::Writes;
use faultless_base::{Errno, PAGE, SLOT, Span};
use faultless_mm::cache::backing::Backing;
use faultless_mm::cache::evict::To;
use faultless_mm::cache::{Cache, Process, Use};
use faultless_mm::frame::buddy::Kind;
use faultless_mm::frame::purpose::Need;
use faultless_mm::frame::store::{Frame, Store};
use faultless_models::check_runs;
use faultless_page::gauges::Gauges;
use faultless_page::knobs::Values;
use faultless_page::stats::{Block, Counter};
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::RwLock;
use shuttle::thread;

/// Where the memory lies: far from the process's own.
const BASE: usize = 1 << 40;
const END: usize = 2 << 40;
/// Pages of the file that are used: as many of each 2 MiB.
const PAGES: usize = 8;
const EACH: usize = 4;
const LENGTH: usize = SLOT + EACH * PAGE;

static COUNTERS: Block = Block::new();
static GAUGES: Gauges = Gauges::new();
static KNOBS: LazyLock<Values> = LazyLock::new(Values::default);

fn chance(n: usize) -> bool {
    thread_rng().gen_range(0..n) == 0
}

#[derive(Clone, Copy)]
struct Page {
    byte: u8,
    is_protected: bool,
}

/// Memory, of which the file's is what was watched.
struct Memory {
    pages: Mutex<BTreeMap<usize, Page>>,
    next: AtomicUsize,
    watched: Mutex<Vec<Span>>,
    /// How seldom the kernel has no memory.
    seldom: usize,
}

fn pages(span: Span) -> impl Iterator<Item = usize> {
    (span.start / PAGE * PAGE..span.end).step_by(PAGE)
}

impl Memory {
    fn get(&self, at: usize) -> Option<Page> {
        thread::yield_now();
        self.pages.lock().unwrap().get(&(at / PAGE * PAGE)).copied()
    }

    fn is_watched(&self, at: usize) -> bool {
        self.watched.lock().unwrap().iter().any(|span| span.contains(at))
    }

    /// What a thread of the library reads.
    fn read(&self, at: usize) -> u8 {
        let page = self.get(at);
        assert!(page.is_some() || !self.is_watched(at), "a page that is not there is read");
        page.map_or(0, |page| page.byte)
    }

    /// What it writes.
    fn write(&self, at: usize, byte: u8) {
        thread::yield_now();
        let mut pages = self.pages.lock().unwrap();
        let before = pages.get(&at);
        assert!(before.is_some() || !self.is_watched(at), "a page that is not there is written to");
        assert!(before.is_none_or(|page| !page.is_protected), "a thread waits for itself");
        pages.insert(at, Page { byte, is_protected: false });
    }

    /// Has pages come, each at one moment.
    fn come(&self, to: Span, page: impl Fn(usize) -> Page) -> Result<(), Stopped> {
        for (done, at) in pages(to).enumerate() {
            let page = page(at);
            thread::yield_now();
            let stop = |error| Err(Stopped { done: done * PAGE, error });
            if chance(self.seldom) {
                return stop(Errno::ENOMEM);
            }
            let mut all = self.pages.lock().unwrap();
            if all.contains_key(&at) {
                return stop(Errno::EEXIST);
            }
            all.insert(at, page);
        }
        Ok(())
    }
}

#[derive(Clone)]
struct Fake(Arc<Memory>);

impl FileMemory for Fake {
    fn reserve(&self, bytes: usize) -> Option<Span> {
        Some(Span::new(self.0.next.fetch_add(bytes.next_multiple_of(SLOT), Relaxed), bytes))
    }
    fn open(&self, _: Span) -> bool {
        true
    }
    fn release(&self, span: Span) {
        self.discard(span);
    }
    fn make_huge(&self, _: usize) -> bool {
        false
    }
    fn move_in(&self, _: usize, _: usize) -> bool {
        false
    }
    fn move_out(&self, _: usize, _: usize) -> bool {
        false
    }
    fn drop_unless_whole(&self, _: usize) -> bool {
        false
    }
    fn drop_frame(&self, _: usize) {}
    fn discard(&self, span: Span) -> bool {
        self.0.pages.lock().unwrap().retain(|at, _| !span.contains(*at));
        true
    }
    fn frees_tables(&self) -> bool {
        true
    }
    fn zero(&self, bytes: Span) {
        pages(bytes).for_each(|at| self.0.write(at, 0));
    }
    fn is_zero(&self, span: Span) -> bool {
        pages(span).all(|at| self.0.get(at).is_none_or(|page| page.byte == 0))
    }
    fn copy(&self, from: Span, to: usize) {
        for at in pages(from) {
            let (byte, to) = (self.0.read(at), to + (at - from.start));
            if (BASE..END).contains(&to) {
                self.0.write(to, byte);
            } else {
                // SAFETY: a buffer of the caller's: it lies elsewhere.
                unsafe { std::ptr::write_bytes(to as *mut u8, byte, PAGE) };
            }
        }
    }
    fn watch(&self, span: Span) -> bool {
        self.0.watched.lock().unwrap().push(span);
        true
    }
    fn watch_aside(&self, _: Span) -> bool {
        true
    }
    fn populate(&self, _: Span) -> bool {
        true
    }
    fn populate_to_write(&self, _: Span) {}
    fn install(&self, from: usize, to: Span, writes: Writes) -> Result<(), Stopped> {
        let is_protected = writes == Writes::Noted;
        self.0.come(to, |at| Page { byte: self.0.read(from + (at - to.start)), is_protected })
    }
    fn install_zeroes(&self, to: Span) -> Result<(), Stopped> {
        self.0.come(to, |_| Page { byte: 0, is_protected: false })
    }
    fn move_in_watched(&self, _: usize, _: usize) -> bool {
        false
    }
    fn move_pages(&self, from: Span, to: usize) -> Result<(), Stopped> {
        for (done, at) in pages(from).enumerate() {
            thread::yield_now();
            // A device has it.
            if chance(30) {
                return Err(Stopped { done: done * PAGE, error: Errno::EBUSY });
            }
            let (mut all, to) = (self.0.pages.lock().unwrap(), to + done * PAGE);
            let stop = |error| Err(Stopped { done: done * PAGE, error });
            // Bytes that were read there for others.
            if all.contains_key(&to) {
                return stop(Errno::EEXIST);
            }
            let Some(page) = all.remove(&at) else { return stop(Errno::ENOENT) };
            all.insert(to, Page { is_protected: false, ..page });
        }
        Ok(())
    }
    fn take_changes(&self, span: Span, f: &mut dyn FnMut(Span)) -> bool {
        thread::yield_now();
        let written: Vec<usize> = {
            let all = self.0.pages.lock().unwrap();
            all.range(span.start..span.end).filter(|(_, page)| !page.is_protected).map(|(at, _)| *at).collect()
        };
        thread::yield_now();
        if !written.is_empty() {
            let mut all = self.0.pages.lock().unwrap();
            all.range_mut(span.start..span.end).for_each(|(_, page)| page.is_protected = true);
        }
        written.into_iter().for_each(|at| f(Span::new(at, PAGE)));
        true
    }
    fn tells_writes(&self) -> bool {
        true
    }
    fn note_again(&self, span: Span) -> bool {
        thread::yield_now();
        let mut all = self.0.pages.lock().unwrap();
        all.range_mut(span.start..span.end).for_each(|(_, page)| page.is_protected = false);
        true
    }
    fn is_there(&self, page: usize) -> bool {
        self.0.get(page).is_some()
    }
    fn poison(&self, _: usize) -> Result<(), Errno> {
        Ok(())
    }
    fn is_same(&self, a: Span, b: usize) -> bool {
        pages(a).all(|at| self.0.read(at) == self.0.read(b + (at - a.start)))
    }
    fn relax(&self, _: u32) {
        thread::yield_now();
    }
}

/// Where they are in the file.
fn offset(page: usize) -> usize {
    page / EACH * SLOT + page % EACH * PAGE
}

/// Which one is there.
fn page_at(offset: usize) -> usize {
    offset / SLOT * EACH + offset % SLOT / PAGE
}

/// The file: a byte a page.
struct Plain {
    memory: Fake,
    bytes: Mutex<[u8; PAGES]>,
}

impl Backing for Plain {
    fn read(&self, offset: u64, to: Span) -> Result<usize, Errno> {
        for (i, at) in pages(to).enumerate() {
            let byte = self.bytes.lock().unwrap()[page_at(offset as usize) + i];
            self.memory.0.write(at, byte);
        }
        Ok(to.bytes())
    }
    fn write(&self, offset: u64, from: Span) -> Result<(), Errno> {
        if chance(10) {
            return Err(Errno::EIO);
        }
        for (i, at) in pages(from).enumerate() {
            let byte = self.memory.0.read(at);
            self.bytes.lock().unwrap()[page_at(offset as usize) + i] = byte;
        }
        Ok(())
    }
    fn sync(&self) -> Result<(), Errno> {
        Ok(())
    }
    fn grow(&self, _: u64) -> Result<u64, Errno> {
        Err(Errno::EFBIG)
    }
    fn truncate(&self, _: u64) -> Result<(), Errno> {
        Err(Errno::EIO)
    }
    fn is_huge(&self) -> bool {
        false
    }
}

/// No frames, and no room: pages go when others come.
struct Nothing;

impl Store for Nothing {
    fn take(&self, _: Need) -> Option<Frame> {
        None
    }
    fn place(&self) -> Option<usize> {
        None
    }
    fn place_to_keep(&self) -> Option<usize> {
        None
    }
    fn give(&self, _: usize, _: Kind) {}
    fn ready(&self, _: Need) -> usize {
        0
    }
    fn ask(&self, _: usize) {}
    fn room(&self) -> usize {
        1
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

/// A file, of which all is mapped, and those who use it by calls.
struct World {
    cache: Cache<Fake, Plain>,
    users: RwLock<()>,
}

impl World {
    fn new() -> Self {
        let (next, seldom) = (AtomicUsize::new(BASE), [2, 20][thread_rng().gen_range(0..2)]);
        let memory = Fake(Arc::new(Memory { pages: Mutex::default(), next, watched: Mutex::default(), seldom }));
        let backing = Plain { memory: memory.clone(), bytes: Mutex::new([0; PAGES]) };
        let process = Process { store: &Nothing, counters: &COUNTERS, knobs: &KNOBS, gauges: &GAUGES };
        let cache = Cache::new(memory, backing, LENGTH, LENGTH, process).unwrap();
        cache.watch(0, LENGTH, Use::Write).unwrap();
        Self { cache, users: RwLock::new(()) }
    }

    /// An access of the program's.
    fn access(&self, at: usize, write: Option<u8>) -> u8 {
        let memory = &self.cache.memory().0;
        loop {
            thread::yield_now();
            if let Some(page) = memory.pages.lock().unwrap().get_mut(&at)
                && !(write.is_some() && page.is_protected)
            {
                page.byte = write.unwrap_or(page.byte);
                return page.byte;
            }
            match self.cache.fault(at, if write.is_some() { Use::Write } else { Use::Read }, 0) {
                Ok(()) | Err(Errno::ENOMEM) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
    }

    fn store(&self, page: usize, byte: u8) {
        self.access(self.cache.address(offset(page)), Some(byte));
    }

    /// By a call.
    fn write(&self, page: usize, pages_of: usize, byte: u8) {
        loop {
            let _users = self.users.read().unwrap();
            let write = |to| pages(to).for_each(|at| _ = self.access(at, Some(byte)));
            match self.cache.with(offset(page), pages_of * PAGE, Use::Write, write) {
                Ok(done) => return assert_eq!(done, pages_of * PAGE),
                Err(error) => assert_eq!(error, Errno::ENOMEM),
            }
        }
    }

    fn snapshot(&self) -> usize {
        let _alone = self.users.write().unwrap();
        self.cache.snapshot(0, LENGTH).expect("there is room for it")
    }

    fn read(&self, id: usize) -> [u8; PAGES] {
        let mut bytes = vec![0xEE; PAGES * PAGE];
        for (i, bytes) in bytes.chunks_mut(EACH * PAGE).enumerate() {
            loop {
                let _users = self.users.read().unwrap();
                match self.cache.read_snapshot(id, i * SLOT, bytes) {
                    Ok(()) => break,
                    Err(error) => assert_eq!(error, Errno::ENOMEM),
                }
            }
        }
        std::array::from_fn(|page| bytes[page * PAGE])
    }
}

#[test]
fn a_snapshot_of_a_file_is_one_moment_and_stays() {
    const LAST: u8 = 3;
    check_runs(
        || {
            let world = Arc::new(World::new());
            let start = |work: fn(&World)| {
                let world = world.clone();
                thread::spawn(move || work(&world))
            };
            let threads = [
                // Of one moment, the second is never ahead, and never behind by more than one.
                start(|world| {
                    for round in 1..=LAST {
                        world.store(1, round);
                        world.store(5, round);
                    }
                }),
                start(|world| (1..=LAST).for_each(|round| world.write(2, 2, round))),
                // As for others that need room: these are no users.
                start(|world| {
                    for _ in 0..4 {
                        let _ = world.cache.sync(0, LENGTH);
                        world.cache.evict(1, To::Kernel);
                    }
                }),
            ];
            let mut taken = Vec::new();
            for _ in 0..2 {
                let id = world.snapshot();
                let bytes = world.read(id);
                let [_, first, one, other, _, second, ..] = bytes;
                assert!(first == second || first == second + 1, "{first} and then {second}");
                assert_eq!(one, other, "half of a call");
                taken.push((id, bytes));
            }
            let (earlier, later) = (taken[0].1, taken[1].1);
            assert!((0..PAGES).all(|page| earlier[page] <= later[page]), "{earlier:?} {later:?}");
            // The later one has this, and the earlier one needs it, too.
            world.store(6, 9);
            taken.iter().for_each(|(id, bytes)| assert_eq!(world.read(*id), *bytes, "it has changed"));
            let (id, _) = taken.swap_remove(thread_rng().gen_range(0..2));
            world.cache.drop_snapshot(id);
            let (kept, bytes) = taken[0];
            assert_eq!(world.read(kept), bytes, "another one was dropped");
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(world.read(kept), bytes);
            world.cache.drop_snapshot(kept);
            let now = [0, LAST, LAST, LAST, 0, LAST, 9, 0];
            while world.cache.is_dirty() || world.cache.sync(0, LENGTH).is_err() {
                world.cache.note_changes(0, LENGTH);
                let _ = world.cache.sync(0, LENGTH);
            }
            assert_eq!(*world.cache.backing().bytes.lock().unwrap(), now, "what was written");
            for (page, byte) in now.into_iter().enumerate() {
                assert_eq!(world.access(world.cache.address(offset(page)), None), byte);
            }
        },
        500,
    );
    for counter in [Counter::SnapshotFault, Counter::SnapshotCopied, Counter::SnapshotPassed, Counter::FileEvicted]
    {
        assert!(COUNTERS.get(counter as usize) > 0, "{counter:?}");
    }
}
