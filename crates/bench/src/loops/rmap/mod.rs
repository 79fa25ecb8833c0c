//! The programs of `faultless bench rmap`: snapshots of memory that is there, and a writer beside a save.

mod chains;
pub mod reclaim;
pub mod storm;
pub mod swap;
mod times;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use faultless::region::{Delivery, Region, Save};
use faultless_page::stats::Counter;

use chains::Counts;
pub use reclaim::{Known, Reclaimed};
pub use storm::Stormed;
pub use swap::{Swapped, Swapper, Uses};
pub use times::Times;

const PAGE: usize = 4096;
const SLOT: usize = 2 << 20;
/// The first random number.
const SEED: u64 = 0x9E37_79B9_7F4A_7C15;

/// How a moment of the memory is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// By a snapshot of a region: owners are computed.
    Lazy,
    /// The same, with a list of owners for each page, which is kept up.
    Eager,
    /// The same for pages whose owners were asked for, from then on.
    Kept,
    /// By a forked child.
    Fork,
    /// Not at all.
    Alone,
}

impl Way {
    /// As it stands in the tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lazy => "snapshot",
            Self::Eager => "snapshot and lists of owners",
            Self::Kept => "snapshot and lists once asked for",
            Self::Fork => "fork",
            Self::Alone => "writer alone",
        }
    }
}

/// Of what the memory consists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pages {
    /// Huge pages.
    Huge,
    /// Pages of 4 KiB.
    Small,
}

/// Options of the program.
#[derive(clap::Args, Clone)]
pub struct Rmap {
    #[arg(long)]
    way: Way,
    #[arg(long)]
    pages: Pages,
    /// Bytes of the memory.
    #[arg(long)]
    size: usize,
    /// Saves to this file, beside a writer.
    #[arg(long)]
    save: Option<PathBuf>,
}

/// What came of it.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Kept {
    /// Seconds of the call that keeps the moment after a write to each page, and of the call that lets it go.
    pub taken: f64,
    /// Seconds of the next such call: no page was written to meanwhile.
    pub again: f64,
    /// See there.
    pub dropped: f64,
    /// Seconds of the save.
    pub saved: f64,
    /// Times of single writes meanwhile, in seconds: the median, one in 100, one in 1000, the longest.
    pub writes: [f64; 4],
    /// How many writes there were.
    pub count: u64,
    /// Bytes that were copied because of a write.
    pub copied: u64,
    /// Writes that waited for a copy.
    pub faults: u64,
    /// What was done to lists of owners.
    pub chains: Counts,
}

/// Memory of either kind, all of it there.
enum Memory {
    Region(Box<Region>),
    Plain(*mut u8, usize),
}

// SAFETY: threads write to different words, or to the same by atomic stores.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(what: &Rmap) -> io::Result<Self> {
        let memory = match what.way {
            Way::Lazy | Way::Eager | Way::Kept => {
                let huge = what.pages == Pages::Huge;
                let region = Region::builder(what.size).delivery(Delivery::Thread).huge_pages(huge).build()?;
                region.populate(0..what.size)?;
                Self::Region(Box::new(region))
            }
            Way::Fork | Way::Alone => Self::plain(what.size, Some(what.pages))?,
        };
        (0..what.size / PAGE).for_each(|page| memory.word(page).store(page as u64 | 1, Ordering::Relaxed));
        Ok(memory)
    }

    /// A fresh mapping; of pages of that kind if it is said.
    fn plain(size: usize, pages: Option<Pages>) -> io::Result<Self> {
        // SAFETY: a fresh mapping of this size and more.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let at = libc::mmap(std::ptr::null_mut(), size + SLOT, prot, flags, -1, 0);
            if at == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let at = (at as usize).next_multiple_of(SLOT) as *mut libc::c_void;
            let advice = pages.map(|pages| match pages {
                Pages::Huge => libc::MADV_HUGEPAGE,
                Pages::Small => libc::MADV_NOHUGEPAGE,
            });
            advice.into_iter().for_each(|advice| _ = libc::madvise(at, size, advice));
            Ok(Self::Plain(at.cast(), size))
        }
    }

    fn words(&self, page: usize) -> &[AtomicU64; PAGE / 8] {
        let at = match self {
            Self::Region(region) => region.as_ptr(),
            Self::Plain(at, _) => *at,
        };
        // SAFETY: aligned, mapped, and used as atomic words by all.
        unsafe { &*at.add(page * PAGE).cast() }
    }

    fn word(&self, page: usize) -> &AtomicU64 {
        &self.words(page)[0]
    }
}

/// Runs it.
pub fn run(what: &Rmap) -> io::Result<Kept> {
    let memory = Memory::new(what)?;
    match &what.save {
        None => keep(what, &memory),
        Some(path) => save(what, &memory, path),
    }
}

/// Keeps one moment, and lets it go.
fn keep(what: &Rmap, memory: &Memory) -> io::Result<Kept> {
    let mut kept = Kept::default();
    let mut chains = (what.way == Way::Eager).then(|| chains::Chains::new(what.size / PAGE));
    // The first time, tables are made.
    for turn in 0..3 {
        let begun = Instant::now();
        let taken = match memory {
            Memory::Region(region) => {
                let snapshot = region.snapshot()?;
                chains.iter_mut().for_each(|chains| chains.map(1));
                let taken = begun.elapsed();
                let begun = Instant::now();
                drop(snapshot);
                chains.iter_mut().for_each(|chains| chains.unmap(1));
                kept.dropped = begun.elapsed().as_secs_f64();
                taken
            }
            Memory::Plain(..) => {
                // SAFETY: the child ends at once.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    // SAFETY: as above.
                    unsafe { libc::_exit(0) };
                }
                let taken = begun.elapsed();
                let begun = Instant::now();
                wait(child)?;
                kept.dropped = begun.elapsed().as_secs_f64();
                taken
            }
        };
        (kept.taken, kept.again) = (kept.again, taken.as_secs_f64());
        if turn == 0 {
            (0..what.size / PAGE).for_each(|page| _ = memory.word(page).fetch_add(2, Ordering::Relaxed));
        }
    }
    kept.chains = chains.map_or(Counts::default(), |chains| chains.counts);
    Ok(kept)
}

fn wait(child: i32) -> io::Result<()> {
    let mut status = 0;
    // SAFETY: a child of this process.
    match unsafe { libc::waitpid(child, &mut status, 0) } {
        -1 => Err(io::Error::last_os_error()),
        _ if status == 0 => Ok(()),
        _ => Err(io::Error::other("the child failed")),
    }
}

/// Faults of this process that took no device.
fn faults() -> u64 {
    // SAFETY: zero bytes are a value, and the call fills it in.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage.ru_minflt as u64
    }
}

/// Saves the memory while another thread writes to it.
fn save(what: &Rmap, memory: &Memory, path: &Path) -> io::Result<Kept> {
    let (measures, ends) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let writer = scope.spawn(|| write(memory, what.size / PAGE, &measures, &ends));
        thread::sleep(Duration::from_millis(200));
        measures.store(true, Ordering::Relaxed);
        let kept = match memory {
            Memory::Region(region) => save_snapshot(region, path),
            Memory::Plain(at, size) if what.way == Way::Fork => save_fork(*at, *size, path),
            Memory::Plain(..) => {
                thread::sleep(Duration::from_millis(1000));
                Ok(Kept::default())
            }
        };
        measures.store(false, Ordering::Relaxed);
        ends.store(true, Ordering::Relaxed);
        let times = writer.join().expect("panics abort");
        let _ = std::fs::remove_file(path);
        Ok(Kept { writes: times.percentiles(), count: times.count(), ..kept? })
    })
}

fn save_snapshot(region: &Region, path: &Path) -> io::Result<Kept> {
    let begun = Instant::now();
    let snapshot = region.snapshot()?;
    let taken = begun.elapsed().as_secs_f64();
    Save::new().start(&snapshot, path)?.wait()?;
    let saved = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    drop(snapshot);
    let dropped = begun.elapsed().as_secs_f64();
    let [copied, faults] = [Counter::SnapshotCopied, Counter::SnapshotFault].map(Region::counted);
    Ok(Kept { taken, saved, dropped, copied, faults, ..Kept::default() })
}

fn save_fork(at: *mut u8, size: usize, path: &Path) -> io::Result<Kept> {
    let file = File::create(path)?;
    let before = faults();
    let begun = Instant::now();
    // SAFETY: the child only makes system calls, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut done = 0;
        while done < size {
            // SAFETY: memory that is mapped.
            let n = unsafe { libc::write(file.as_raw_fd(), at.add(done).cast(), (size - done).min(SLOT)) };
            if n <= 0 {
                // SAFETY: as above.
                unsafe { libc::_exit(1) };
            }
            done += n as usize;
        }
        // SAFETY: as above.
        unsafe { libc::_exit(libc::fsync(file.as_raw_fd())) };
    }
    let taken = begun.elapsed().as_secs_f64();
    wait(child)?;
    let saved = begun.elapsed().as_secs_f64();
    let faults = faults() - before;
    Ok(Kept { taken, saved, copied: faults * PAGE as u64, faults, ..Kept::default() })
}

/// The next of random numbers, which depend on the first alone.
fn next(random: &mut u64) -> usize {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    (*random >> 11) as usize
}

/// Writes to pages in a random order without a pause; how long each write took.
fn write(memory: &Memory, pages: usize, measures: &AtomicBool, ends: &AtomicBool) -> Times {
    let mut times = Times::new();
    let mut random = SEED;
    while !ends.load(Ordering::Relaxed) {
        let word = memory.word(next(&mut random) % pages);
        let begun = Instant::now();
        word.store(random, Ordering::Relaxed);
        let took = begun.elapsed();
        if measures.load(Ordering::Relaxed) {
            times.add(took.as_nanos() as u64);
        }
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_keeps_and_saves() {
        let dir = tempfile::tempdir().unwrap();
        for way in [Way::Lazy, Way::Eager, Way::Fork, Way::Alone] {
            for save in [None, Some(dir.path().join("state"))] {
                if way == Way::Alone && save.is_none() {
                    continue;
                }
                let what = Rmap { way, pages: Pages::Small, size: 4 * SLOT, save };
                match run(&what) {
                    Ok(kept) => {
                        assert_eq!(kept.count > 0, what.save.is_some(), "{way:?}");
                        assert_eq!(
                            kept.chains.added[1],
                            if way == Way::Eager && what.save.is_none() { 6144 } else { 0 }
                        );
                    }
                    Err(error) if matches!(way, Way::Lazy | Way::Eager) => {
                        faultless_testkit::skip(format_args!("no snapshots: {error}"));
                    }
                    Err(error) => panic!("{way:?}: {error}"),
                }
            }
        }
    }
}
