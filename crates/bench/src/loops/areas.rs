//! Several arrays that are touched in turns, page by page: the first page of each, then the second of each, and so on.
//!
//! In a region each is an area of its own, with something unmapped behind it.

use std::io;
use std::time::Instant;

use faultless::region::set;
use faultless_page::knobs::Knob;
use faultless_page::stats::Counter;

use super::faults::Taken;
use super::first::{First, Memory, Touched, region};
use super::memory::{Mapping, PAGE};
use crate::process;

/// A huge page: where arrays begin.
const SLOT: usize = 2 << 20;

/// Whose faults follow each other, as the values of the knob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// Those of a thread in one area.
    Area,
    /// Those of a thread.
    Thread,
    /// Those of a thread, which has one stream alone.
    One,
}

/// Runs it once.
pub fn once(what: First) -> io::Result<Touched> {
    let pages = (what.size / PAGE).div_ceil(what.arrays);
    // From one array to the next, with room for a page that is not mapped.
    let apart = ((pages + 1) * PAGE).next_multiple_of(SLOT);
    let all = apart * what.arrays;
    match what.memory {
        Memory::Plain => touch(Mapping::new(all)?.as_mut_slice(), what, apart, pages),
        Memory::Populate | Memory::Advised => Err(io::Error::other("it is the order of faults that matters here")),
        Memory::Signal | Memory::Thread => {
            let by = what.by.unwrap_or(By::Area);
            set(Knob::PrefaultBy, by as u64);
            let region = region(what, all).map_err(io::Error::other)?;
            for array in 0..what.arrays {
                let end = array * apart + pages * PAGE;
                region.unmap(end..(array + 1) * apart).map_err(io::Error::other)?;
            }
            region.check_thread().map_err(io::Error::other)?;
            // SAFETY: this function's own until the region ends, and only what is mapped is accessed.
            let bytes = unsafe { std::slice::from_raw_parts_mut(region.as_ptr(), all) };
            let touched = touch(bytes, what, apart, pages)?;
            Ok(Touched { resolved: region.own_count(Counter::RegionPgfault).unwrap_or(0), ..touched })
        }
    }
}

/// Writes a byte of each page, and adds up these and others that were not written.
fn touch(bytes: &mut [u8], what: First, apart: usize, pages: usize) -> io::Result<Touched> {
    let (before, faults) = (process::own_times()?, process::own_faults()?);
    let start = Instant::now();
    let mut checksum = 0u64;
    for page in 0..pages {
        for array in 0..what.arrays {
            let at = array * apart + page * PAGE;
            let value = (page + array) as u8 | 1;
            bytes[at] = value;
            checksum = checksum.wrapping_add(value as u64 + bytes[at + 8] as u64);
        }
    }
    let wall = start.elapsed().as_secs_f64();
    let (after, resolved) = (process::own_times()?, process::own_faults()? - faults);
    let (user, system) = (after.user - before.user, after.system - before.system);
    let faults = (pages * what.arrays) as u64;
    Ok(Touched { taken: Taken { user, system, wall, faults, checksum }, resolved })
}
