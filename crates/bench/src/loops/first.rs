//! The program of the prefaulting tables: memory is touched for the first time, in some order, by threads that have a part each.

use std::hint::black_box;
use std::io;
use std::ops::AddAssign;
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use faultless::region::{Delivery, Region};
use faultless_page::stats::Counter;
use faultless_sim::pattern::Pattern;

use super::areas::{self, By};
use super::faults::Taken;
use super::memory::{Mapping, PAGE, populate};
use crate::process;

/// What memory it is, and how its pages come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Memory {
    /// Of the kernel, at each touch.
    Plain,
    /// The same with huge pages advised, as NumPy does for its arrays.
    Advised,
    /// Of the kernel, which each thread asks for its part at once.
    Populate,
    /// A region with delivery by signal.
    Signal,
    /// A region with a handler thread.
    Thread,
}

/// What is done.
#[derive(clap::Args, Clone, Copy)]
pub struct First {
    /// What memory it is.
    #[arg(long)]
    pub memory: Memory,
    /// Bytes of it.
    #[arg(long)]
    pub size: usize,
    /// Threads, each with a part of it.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// How often, with fresh memory each time.
    #[arg(long, default_value_t = 1)]
    reps: usize,
    /// Order of pages.
    #[arg(long, value_parser = pattern, default_value = "sequential")]
    pattern: Pattern,
    /// Order of a region's largest window; its own choice by default.
    #[arg(long)]
    order: Option<u32>,
    /// Arrays of which it consists, touched in turns by one thread.
    #[arg(long, default_value_t = 1, value_parser = arrays, conflicts_with_all = ["threads", "pattern", "reserve"])]
    pub arrays: usize,
    /// Whose faults follow each other in a region.
    #[arg(long)]
    pub by: Option<By>,
    /// Frames for a region are made ready before.
    #[arg(long)]
    reserve: bool,
    /// How often each page is gone over as a whole when it has been touched.
    #[arg(long, default_value_t = 0)]
    passes: u8,
}

fn arrays(number: &str) -> Result<usize, String> {
    number.parse().ok().filter(|n| *n > 0).ok_or_else(|| format!("{number} arrays"))
}

fn pattern(name: &str) -> Result<Pattern, String> {
    Pattern::ALL.into_iter().find(|pattern| pattern.name() == name).ok_or_else(|| format!("no pattern {name}"))
}

/// What it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Touched {
    /// Times, touches and their sum.
    #[serde(flatten)]
    pub taken: Taken,
    /// Faults that the kernel or the region resolved.
    pub resolved: u64,
}

impl AddAssign for Touched {
    fn add_assign(&mut self, other: Self) {
        let (own, taken) = (&mut self.taken, other.taken);
        own.user += taken.user;
        own.system += taken.system;
        own.wall += taken.wall;
        own.faults += taken.faults;
        own.checksum = own.checksum.wrapping_mul(31).wrapping_add(taken.checksum);
        self.resolved += other.resolved;
    }
}

/// Runs it.
pub fn run(what: First) -> io::Result<Touched> {
    let mut all = Touched::default();
    for _ in 0..what.reps {
        all += match what.memory {
            _ if what.arrays > 1 || what.by.is_some() => areas::once(what)?,
            Memory::Plain | Memory::Populate => once(what, Mapping::new(what.size)?.as_mut_slice())?,
            Memory::Advised => {
                let mut mapping = Mapping::new(what.size)?;
                mapping.advise_huge();
                once(what, mapping.as_mut_slice())?
            }
            Memory::Signal | Memory::Thread => {
                if what.reserve {
                    faultless::reserve(what.size)
                        .and_then(|reserved| reserved.wait())
                        .map_err(io::Error::other)?;
                }
                let mut region = region(what, what.size).map_err(io::Error::other)?;
                let touched = once(what, region.as_mut_slice().map_err(io::Error::other)?)?;
                let resolved = region.own_count(Counter::RegionPgfault);
                Touched {
                    resolved: resolved.ok_or_else(|| io::Error::other("faults are not counted"))?,
                    ..touched
                }
            }
        };
    }
    Ok(all)
}

/// A region of `bytes` bytes.
pub fn region(what: First, bytes: usize) -> Result<Region, faultless::region::Error> {
    let delivery = if what.memory == Memory::Signal { Delivery::Signal } else { Delivery::Thread };
    let builder = Region::builder(bytes).delivery(delivery);
    match what.order {
        Some(order) => builder.windows(PAGE, PAGE << order),
        None => builder,
    }
    .build()
}

/// The touches alone are measured: neither the making of the memory nor its end.
fn once(what: First, bytes: &mut [u8]) -> io::Result<Touched> {
    let part = (bytes.len() / PAGE).div_ceil(what.threads) * PAGE;
    let line_up = Barrier::new(bytes.chunks(part).len() + 1);
    let parts = Mutex::new(Vec::new());
    let (start, before, faults) = thread::scope(|scope| -> io::Result<_> {
        for (i, bytes) in bytes.chunks_mut(part).enumerate() {
            let (line_up, parts) = (&line_up, &parts);
            scope.spawn(move || {
                line_up.wait();
                let sum = match what.memory {
                    Memory::Populate => populate(bytes).map(|()| touch(bytes, what, i)),
                    _ => Ok(touch(bytes, what, i)),
                };
                parts.lock().expect("nobody panics").push((i, sum, Instant::now()));
            });
        }
        let (before, faults) = (process::own_times()?, process::own_faults()?);
        let start = Instant::now();
        line_up.wait();
        Ok((start, before, faults))
    })?;
    let (after, resolved) = (process::own_times()?, process::own_faults()? - faults);
    let mut parts = parts.into_inner().expect("nobody panics");
    parts.sort_by_key(|(i, ..)| *i);
    let (mut touches, mut checksum, mut wall) = (0, 0u64, Duration::ZERO);
    for (_, sum, end) in parts {
        let (count, sum) = sum?;
        touches += count;
        checksum = checksum.wrapping_mul(31).wrapping_add(sum);
        wall = wall.max(end - start);
    }
    let taken = Taken {
        user: after.user - before.user,
        system: after.system - before.system,
        wall: wall.as_secs_f64(),
        faults: touches,
        checksum,
    };
    Ok(Touched { taken, resolved })
}

/// Writes a byte of each page of the pattern, and adds up these and others that were not written.
fn touch(bytes: &mut [u8], what: First, seed: usize) -> (u64, u64) {
    let (mut count, mut sum) = (0, 0u64);
    for page in what.pattern.touches(bytes.len() / PAGE, seed as u64 + 1) {
        let value = page as u8 | 1;
        let bytes = &mut bytes[page * PAGE..][..PAGE];
        bytes[0] = value;
        sum += value as u64 + bytes[8] as u64;
        for pass in 0..what.passes {
            bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_mul(31).wrapping_add(pass));
            black_box(&mut *bytes);
            sum += bytes[PAGE - 1] as u64;
        }
        count += 1;
    }
    (count, sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_memory_gives_the_same_sum_and_fewer_faults_the_larger_the_windows() {
        for pattern in Pattern::ALL {
            let of = |memory, order, threads| {
                let reserve = order == Some(5);
                let passes = u8::from(pattern == Pattern::Backward);
                let (arrays, by, size) = (1, None, 4 << 20);
                run(First { memory, size, threads, reps: 2, pattern, order, arrays, by, reserve, passes })
                    .inspect(|touched| assert!(touched.taken.wall > 0.0 && touched.resolved > 0))
            };
            let plain = of(Memory::Plain, None, 2).unwrap();
            let same = |other: &Touched| {
                (other.taken.faults, other.taken.checksum) == (plain.taken.faults, plain.taken.checksum)
            };
            assert!(same(&of(Memory::Populate, None, 2).unwrap()));
            assert!(same(&of(Memory::Advised, None, 2).unwrap()));
            for memory in [Memory::Signal, Memory::Thread] {
                match (of(memory, Some(0), 2), of(memory, Some(5), 2)) {
                    (Ok(small), Ok(large)) => {
                        assert!(same(&small) && same(&large), "{pattern:?}");
                        assert!(large.resolved < small.resolved || pattern != Pattern::Sequential);
                    }
                    _ => faultless_testkit::skip("no userfaultfd"),
                }
            }
        }
    }

    /// With more arrays than a thread has streams, those of a thread alone break each other.
    #[test]
    fn many_arrays_in_turns_take_few_faults_if_areas_are_told_apart() {
        let of = |memory, arrays, by| {
            let (pattern, size) = (Pattern::Sequential, 24 << 20);
            run(First {
                memory,
                size,
                threads: 1,
                reps: 1,
                pattern,
                order: Some(5),
                arrays,
                by,
                reserve: false,
                passes: 0,
            })
        };
        for arrays in [3, 20] {
            let plain = of(Memory::Plain, arrays, None).unwrap();
            let (area, thread) = match [By::Area, By::Thread].map(|by| of(Memory::Signal, arrays, Some(by))) {
                [Ok(area), Ok(thread)] => (area, thread),
                _ => return faultless_testkit::skip("no userfaultfd"),
            };
            for touched in [area, thread] {
                assert_eq!(
                    (touched.taken.faults, touched.taken.checksum),
                    (plain.taken.faults, plain.taken.checksum)
                );
            }
            let pages = (24 << 20) / PAGE as u64;
            match arrays > 16 {
                // Until the areas are left to the kernel.
                true => assert!(area.resolved < thread.resolved, "{} faults", area.resolved),
                false => assert!(area.resolved.max(thread.resolved) < pages / 10, "{arrays} arrays"),
            }
        }
        set_back();
    }

    /// Other tests of this process have regions, too.
    fn set_back() {
        faultless::region::set(faultless_page::knobs::Knob::PrefaultBy, 0);
    }
}
