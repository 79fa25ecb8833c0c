//! Loops over mappings.

use std::fs::File;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::memory::{Mapping, PAGE};
use super::{Outcome, Pace, repeat, storms};

/// Map, touch each page, unmap.
pub fn rounds(size: usize, pace: Pace) -> io::Result<Outcome> {
    repeat(pace, 1, |_| Ok(Mapping::new(size)?.touch(PAGE)))
}

/// Map and unmap. A round is short: it is measured by the hundred.
pub fn untouched(size: usize, pace: Pace) -> io::Result<Outcome> {
    among_areas(pace, |pace| repeat(pace, 100, |_| Mapping::new(size).map(|_| size as u64)))
}

/// The kernel keeps areas in a tree, up to 16 to a node. To map and unmap a range at the border of two nodes costs a
/// third more, and one library more or less decides where it lies. So a loop that does nothing else runs with one area
/// more after the other, for a part of its time each; the cost is their mean.
fn among_areas(pace: Pace, run: impl Fn(Pace) -> io::Result<Outcome>) -> io::Result<Outcome> {
    const COUNTS: u32 = 16;
    let part = Pace { seconds: pace.seconds / f64::from(COUNTS), ..pace };
    // Areas that map the same page of a file do not become one.
    let file = tempfile::tempfile()?;
    let mut areas = Vec::new();
    let mut mean = 0.0;
    let mut checksum = 0;
    for _ in 0..COUNTS {
        areas.push(Mapping::of_file(&file, PAGE, false)?);
        let outcome = run(part)?;
        mean += outcome.cost / f64::from(COUNTS);
        checksum = outcome.checksum;
    }
    Ok(Outcome { cost: mean, checksum })
}

/// The same of a file of its own for each thread, which has no name any more: mapped, touched if `touched`, unmapped.
/// Changes go to the file if `shared`.
pub fn of_file(size: usize, touched: bool, shared: bool, pace: Pace) -> io::Result<Outcome> {
    let file = |_| {
        let file = tempfile::tempfile()?;
        file.set_len(size as u64).map(|()| file)
    };
    let files: Vec<File> = (0..pace.threads).map(file).collect::<io::Result<_>>()?;
    let round = |index: usize| {
        let mut mapping = Mapping::of_file(&files[index], size, shared)?;
        // A shared file keeps what was written.
        let sum = if touched { mapping.touch(PAGE) } else { 0 };
        Ok(if shared { 0 } else { sum })
    };
    if touched { repeat(pace, 1, round) } else { among_areas(pace, |pace| repeat(pace, 100, round)) }
}

/// The first touch of one mapping, once.
pub fn first(size: usize, busy: usize) -> io::Result<Outcome> {
    let _neighbours = storms::Neighbours::start(busy)?;
    let start = Instant::now();
    let mut mapping = Mapping::new(size)?;
    let checksum = mapping.touch(PAGE);
    Ok(Outcome { cost: start.elapsed().as_secs_f64(), checksum })
}

/// One byte of each piece, held for half a second so that the memory in use can be seen.
pub fn sparse(size: usize, step: usize) -> io::Result<Outcome> {
    let mut mapping = Mapping::new(size)?;
    let start = Instant::now();
    let checksum = mapping.touch(step);
    let cost = start.elapsed().as_secs_f64();
    thread::sleep(Duration::from_millis(500));
    Ok(Outcome { cost, checksum })
}

/// Makes the hypervisor below give the machine its memory back, if it took it.
pub fn warm(size: usize) -> io::Result<Outcome> {
    let mut mapping = Mapping::new(size)?;
    mapping.advise_huge();
    Ok(Outcome { cost: 0.0, checksum: mapping.touch(PAGE) })
}
