//! A storm of snapshots: moments are kept and let go without a pause, of memory of many areas, while pages are written
//! and areas come and go.

use std::io;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use faultless::region::{Delivery, Region, Rights};

use super::chains::{Chains, Counts};
use super::{PAGE, Way, wait};

/// Pages that are written while a moment is kept.
const WRITES: usize = 16;

/// Options of the program.
#[derive(clap::Args, Clone)]
pub struct Storm {
    #[arg(long)]
    way: Way,
    /// Areas, with a page between them that is not mapped.
    #[arg(long)]
    areas: usize,
    /// Bytes of all areas together.
    #[arg(long)]
    size: usize,
    /// For how long.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
}

/// What came of it.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Stormed {
    /// Moments a second.
    pub rate: f64,
    /// How many there were.
    pub rounds: u64,
    /// What was done to lists of owners.
    pub chains: Counts,
}

/// Who has the memory.
enum Memory {
    Region(Box<Region>),
    Plain(*mut u8),
}

/// Areas of equal size.
struct Areas {
    memory: Memory,
    count: usize,
    /// Pages of one.
    pages: usize,
}

impl Areas {
    fn new(what: &Storm) -> io::Result<Self> {
        let pages = (what.size / what.areas.max(1) / PAGE).max(1);
        let all = what.areas * (pages + 1) * PAGE;
        let memory = match what.way {
            Way::Lazy | Way::Eager | Way::Kept => {
                let builder = Region::builder(all).delivery(Delivery::Thread).huge_pages(false).mapped(false);
                Memory::Region(Box::new(builder.build()?))
            }
            Way::Fork | Way::Alone => {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
                // SAFETY: a new mapping wherever there is room.
                let at = unsafe { libc::mmap(null_mut(), all, libc::PROT_NONE, flags, -1, 0) };
                if at == libc::MAP_FAILED {
                    return Err(io::Error::last_os_error());
                }
                Memory::Plain(at.cast())
            }
        };
        let areas = Self { memory, count: what.areas, pages };
        (0..areas.count).try_for_each(|area| areas.map(area))?;
        Ok(areas)
    }

    fn range(&self, area: usize) -> Range<usize> {
        let start = area * (self.pages + 1) * PAGE;
        start..start + self.pages * PAGE
    }

    fn word(&self, area: usize, page: usize) -> &AtomicU64 {
        let at = match &self.memory {
            Memory::Region(region) => region.as_ptr(),
            Memory::Plain(at) => *at,
        };
        // SAFETY: aligned, mapped, and used as an atomic word by all.
        unsafe { AtomicU64::from_ptr(at.add(self.range(area).start + page * PAGE).cast()) }
    }

    /// An area comes, and all of it is written.
    fn map(&self, area: usize) -> io::Result<()> {
        let range = self.range(area);
        match &self.memory {
            Memory::Region(region) => region.map(range, Rights::Write)?,
            Memory::Plain(at) => {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
                let prot = libc::PROT_READ | libc::PROT_WRITE;
                // SAFETY: over a part of the reservation, which nobody uses.
                let mapped = unsafe { libc::mmap(at.add(range.start).cast(), range.len(), prot, flags, -1, 0) };
                if mapped == libc::MAP_FAILED {
                    return Err(io::Error::last_os_error());
                }
                // SAFETY: what was mapped.
                unsafe { libc::madvise(mapped, range.len(), libc::MADV_NOHUGEPAGE) };
            }
        }
        for page in 0..self.pages {
            let word = self.word(area, page);
            if word.swap(page as u64 | 1, Ordering::Relaxed) != 0 {
                return Err(io::Error::other("fresh memory is not zero"));
            }
        }
        Ok(())
    }

    fn unmap(&self, area: usize) -> io::Result<()> {
        let range = self.range(area);
        match &self.memory {
            Memory::Region(region) => Ok(region.unmap(range)?),
            Memory::Plain(at) => {
                // SAFETY: an area that nobody uses any more; its addresses stay this thread's.
                match unsafe { libc::munmap(at.add(range.start).cast(), range.len()) } {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                }
            }
        }
    }

    /// What goes on while a moment is kept: pages are written, and an area goes and comes again.
    fn change(&self, random: &mut u64, chains: &mut Option<Chains>) -> io::Result<()> {
        for _ in 0..WRITES {
            let (area, page) = (next(random) % self.count, next(random) % self.pages);
            self.word(area, page).store(*random | 1, Ordering::Relaxed);
            let page = area * self.pages + page;
            if let Some(chains) = chains.as_mut().filter(|chains| !chains.has_list(page)) {
                // The owners of this page are asked for: the memory itself, and the moment.
                chains.begin(page, [0, 1]);
            }
        }
        let area = next(random) % self.count;
        self.unmap(area)?;
        let pages = area * self.pages..(area + 1) * self.pages;
        if let Some(chains) = chains {
            pages.clone().for_each(|page| chains.remove(page, 0));
        }
        self.map(area)?;
        if let Some(chains) = chains {
            pages.for_each(|page| chains.add(page, 0));
        }
        Ok(())
    }
}

fn next(random: &mut u64) -> usize {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    (*random >> 20) as usize
}

/// Runs it.
pub fn run(what: &Storm) -> io::Result<Stormed> {
    let areas = Areas::new(what)?;
    let mut chains = match what.way {
        Way::Eager => Some(Chains::new(areas.count * areas.pages)),
        Way::Kept => Some(Chains::without_lists(areas.count * areas.pages)),
        Way::Lazy | Way::Fork | Way::Alone => None,
    };
    let before = chains.as_ref().map_or(Counts::default(), |chains| chains.counts);
    let (mut random, mut rounds) = (0x9E37_79B9_7F4A_7C15_u64, 0);
    let begun = Instant::now();
    let time = Duration::from_secs_f64(what.seconds);
    while rounds == 0 || begun.elapsed() < time {
        match &areas.memory {
            Memory::Region(region) => {
                let snapshot = region.snapshot()?;
                chains.iter_mut().for_each(|chains| chains.map(1));
                areas.change(&mut random, &mut chains)?;
                drop(snapshot);
                chains.iter_mut().for_each(|chains| chains.unmap(1));
            }
            Memory::Plain(_) => {
                // SAFETY: the child ends at once.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    // SAFETY: as above.
                    unsafe { libc::_exit(0) };
                }
                areas.change(&mut random, &mut chains)?;
                wait(child)?;
            }
        }
        rounds += 1;
    }
    let rate = rounds as f64 / begun.elapsed().as_secs_f64();
    let chains = chains.map_or(Counts::default(), |chains| chains.counts.since(&before));
    Ok(Stormed { rate, rounds, chains })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_goes_through_a_storm() {
        for (way, areas) in [(Way::Lazy, 1), (Way::Lazy, 5), (Way::Eager, 5), (Way::Kept, 5), (Way::Fork, 5)] {
            match run(&Storm { way, areas, size: 20 * PAGE, seconds: 0.0 }) {
                Ok(done) => {
                    assert_eq!(done.rounds, 1);
                    // Each of 20 pages for the snapshot, and the 4 of an area that went and came.
                    let expected = if matches!(way, Way::Eager | Way::Kept) { [24, 24] } else { [0; 2] };
                    let [added, removed] =
                        [done.chains.added.iter().sum::<u64>(), done.chains.removed.iter().sum()];
                    let [came, went] = done.chains.nope;
                    match way {
                        // Pages that were asked for came with two owners, at once.
                        Way::Kept => {
                            assert!(came >= 20 && went > 0 && removed + went == 24 && added > removed);
                        }
                        _ => assert_eq!([added, removed, came, went], [expected[0], expected[1], 0, 0], "{way:?}"),
                    }
                }
                Err(error) if way != Way::Fork => faultless_testkit::skip(format_args!("no snapshots: {error}")),
                Err(error) => panic!("{error}"),
            }
        }
    }
}
