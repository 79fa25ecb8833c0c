//! A program whose working set is larger than its memory: in a region with a budget of its own, or in memory that the
//! kernel swaps.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Instant;

use clap::ValueEnum;
use faultless::region::{Region, Swap as Budget};
use faultless_page::stats::Counter;

use super::{Memory, PAGE, Pages, SEED, next};
use crate::loops::cached::{draws, resident};

/// Who lets pages go, and brings them back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Swapper {
    /// A region with a budget.
    Library,
    /// The kernel, for memory as a program gets it.
    Kernel,
    /// The kernel, for memory in 4 KiB pages.
    KernelSmall,
}

impl Swapper {
    /// As it stands in the tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Library => "region with a budget",
            Self::Kernel => "the kernel's swap",
            Self::KernelSmall => "the kernel's swap, 4 KiB pages",
        }
    }
}

/// Which pages are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Uses {
    /// One after the other, twice.
    Sequential,
    /// Any, as many as twice that.
    Random,
    /// As many; a few of them often.
    Zipfian,
}

impl Uses {
    /// As it stands in the tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sequential => "in order",
            Self::Random => "in random order",
            Self::Zipfian => "a few of them often (Zipf, 0.99)",
        }
    }

    fn order(self, pages: usize) -> Vec<u32> {
        match self {
            Self::Sequential => (0..2 * pages).map(|i| (i % pages) as u32).collect(),
            Self::Random => {
                let mut random = SEED;
                (0..2 * pages).map(|_| (next(&mut random) % pages) as u32).collect()
            }
            Self::Zipfian => draws(pages, 2 * pages, 1),
        }
    }
}

/// Options of the program.
#[derive(clap::Args, Clone)]
pub struct Swap {
    #[arg(long)]
    by: Swapper,
    #[arg(long)]
    uses: Uses,
    /// Bytes that may be in memory.
    #[arg(long)]
    budget: usize,
    /// Bytes that are used.
    #[arg(long)]
    size: usize,
    /// Where a region has its file.
    #[arg(long)]
    dir: PathBuf,
}

/// What came of it.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Swapped {
    /// Seconds of the uses.
    pub seconds: f64,
    /// Bytes in memory at most, beyond what the program had before.
    pub resident: usize,
    /// Bytes that went to the device during the uses, and that came from there; the kernel counts those of all programs.
    pub written: u64,
    /// See there.
    pub read: u64,
}

/// Has the kernel count the most memory of this process anew.
fn forget_peak() -> io::Result<()> {
    fs::write("/proc/self/clear_refs", "5")
}

/// Bytes that were swapped out and in, on the whole machine.
fn swapped_by_kernel() -> io::Result<[u64; 2]> {
    let text = fs::read_to_string("/proc/vmstat")?;
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|pages| pages.parse::<u64>().ok()).map_or(0, |pages| pages * PAGE as u64)
    };
    Ok(["pswpout", "pswpin"].map(of))
}

impl Swap {
    fn memory(&self) -> io::Result<Memory> {
        match self.by {
            Swapper::Library => {
                let swap = Budget::new(self.budget).directory(&self.dir);
                Ok(Memory::Region(Box::new(Region::builder(self.size).swap(swap).build()?)))
            }
            Swapper::Kernel => Memory::plain(self.size, None),
            Swapper::KernelSmall => Memory::plain(self.size, Some(Pages::Small)),
        }
    }

    fn swapped(&self) -> io::Result<[u64; 2]> {
        match self.by {
            Swapper::Library => Ok([Counter::SwapOut, Counter::SwapIn].map(Region::counted)),
            Swapper::Kernel | Swapper::KernelSmall => swapped_by_kernel(),
        }
    }
}

fn first(page: usize) -> u64 {
    (page as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Runs it: all pages are written, and then used. Every second use writes. Each finds what was there.
pub fn run(what: &Swap) -> io::Result<Swapped> {
    let pages = what.size / PAGE;
    let order = what.uses.order(pages);
    let mut writes = vec![0_u64; pages];
    writes.fill(1);
    forget_peak()?;
    let before = resident()?.now;
    let memory = what.memory()?;
    for page in 0..pages {
        let words = memory.words(page);
        words.iter().for_each(|word| word.store(first(page), Ordering::Relaxed));
        words[0].store(first(page).wrapping_add(1), Ordering::Relaxed);
    }
    let swapped = what.swapped()?;
    let begun = Instant::now();
    for (i, page) in order.iter().map(|page| *page as usize).enumerate() {
        let words = memory.words(page);
        let changed = first(page).wrapping_add(writes[page]);
        let other = 1 + i % (words.len() - 1);
        let found = [&words[0], &words[other]].map(|word| word.load(Ordering::Relaxed));
        if found != [changed, first(page)] {
            return Err(io::Error::other(format!("page {page} has not what was written to it")));
        }
        if i % 2 == 0 {
            writes[page] += 1;
            words[0].store(changed.wrapping_add(1), Ordering::Relaxed);
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    let now = what.swapped()?;
    let [written, read] = [0, 1].map(|i| now[i] - swapped[i]);
    let resident = resident()?.peak.saturating_sub(before);
    Ok(Swapped { seconds, resident, written, read })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_finds_what_it_wrote() {
        let dir = tempfile::tempdir().unwrap();
        for by in [Swapper::Library, Swapper::Kernel, Swapper::KernelSmall] {
            for uses in [Uses::Sequential, Uses::Random, Uses::Zipfian] {
                let (budget, size, dir) = (4 << 20, 6 << 20, dir.path().to_owned());
                match run(&Swap { by, uses, budget, size, dir }) {
                    Ok(swapped) if by == Swapper::Library => {
                        assert!(swapped.written > 0 && swapped.read > 0, "{uses:?}: {swapped:?}");
                    }
                    // Its memory is not asserted: it is the process's, where other tests come and go.
                    Ok(swapped) => assert!(swapped.seconds > 0.0, "{uses:?}: {swapped:?}"),
                    Err(error) if by == Swapper::Library => {
                        faultless_testkit::skip(format_args!("no region with a budget: {error}"));
                    }
                    Err(error) => panic!("{by:?}, {uses:?}: {error}"),
                }
            }
        }
    }
}
