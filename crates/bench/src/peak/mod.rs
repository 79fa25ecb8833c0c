//! The peak of a run: the most memory that its processes have together.
//!
//! A [`Watch`] adds up the anonymous memory of the run's processes every [`EVERY`], and their shared memory every
//! [`SHARED`] samples. The largest sum is the peak. Pages of files do not count, nor do page tables. A page that a
//! forked process shares with its parent counts in both, under each contender.
//!
//! A sum that lasts shorter than that may be missed. If the run is of one process, the kernel's own peak helps
//! ([`Watch::end`]).
//!
//! What it costs: COST

mod shared;
mod tree;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::time::Duration;

use tree::{Memory, Tree};

/// How often memory is looked at.
pub const EVERY: Duration = Duration::from_millis(5);
/// How many samples lie between looks at shared memory, which hardly changes.
const SHARED: u32 = 16;

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;

/// The most memory that a run's processes had together.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Peak {
    /// Bytes.
    pub bytes: u64,
    /// How many processes there were at that moment.
    pub processes: u64,
}

/// A run that is watched.
pub struct Watch {
    tree: Tree,
    peak: Peak,
    samples: u32,
    /// Shared memory at the last look.
    shared: u64,
    /// The most that a sample had in pages of files and shared memory.
    most_of_files: u64,
    /// The most processes that a sample had.
    most_processes: usize,
    /// Resident memory of this process when the run began.
    own: u64,
}

/// Resident memory of this process, which a child has until it starts its program.
pub fn own_resident() -> io::Result<u64> {
    let Memory { anonymous, shared } = tree::memory(&File::open("/proc/self/statm")?)
        .ok_or_else(|| io::Error::other("statm is not understood"))?;
    Ok(anonymous + shared)
}

impl Watch {
    /// Begins to watch the processes of `root`, which has just been started; `own` is [`own_resident`] of before.
    pub fn new(root: u32, own: u64) -> io::Result<Watch> {
        Ok(Watch {
            tree: Tree::new(root)?,
            peak: Peak::default(),
            samples: 0,
            shared: 0,
            most_of_files: 0,
            most_processes: 0,
            own,
        })
    }

    /// One look.
    pub fn sample(&mut self) -> io::Result<()> {
        let all = self.tree.sample()?;
        if self.samples.is_multiple_of(SHARED) {
            self.shared = shared::shared(|pid| self.tree.has(pid));
        }
        self.samples += 1;
        let sum = |part: fn(&Memory) -> u64| all.iter().map(part).sum::<u64>();
        let bytes = sum(|memory| memory.anonymous) + self.shared;
        self.most_of_files = self.most_of_files.max(sum(|memory| memory.shared));
        self.most_processes = self.most_processes.max(all.len());
        if bytes > self.peak.bytes {
            self.peak = Peak { bytes, processes: all.len() as u64 };
        }
        Ok(())
    }

    /// The peak, when the run has ended; `None` if it had before anyone looked. `resident` is the largest resident memory of any of its processes, as the
    /// kernel has it.
    ///
    /// That has pages of files, too. For a run of one process the most of them that was seen is taken off, and the
    /// rest it had for certain, though perhaps not in a sample. The kernel's figure may be wrong by some pages, and is
    /// no less than what this process had when it forked: up to there it says nothing.
    pub fn end(mut self, resident: u64) -> Option<Peak> {
        if self.most_processes == 1 && resident > self.own + MIB {
            let least = resident.saturating_sub(self.most_of_files + uncertainty());
            self.peak.bytes = self.peak.bytes.max(least);
        }
        (self.most_processes > 0).then_some(self.peak)
    }
}

/// By how much a resident size may be wrong that the kernel adds up roughly: three sums (anonymous, files, shared), of
/// which each CPU keeps a part to itself.
fn uncertainty() -> u64 {
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    3 * cpus * (2 * cpus).max(32) * PAGE
}
