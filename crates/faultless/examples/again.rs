//! What it takes to drop memory and touch it again, in a region of zeroes and in one whose missing pages may have old
//! bytes.
//!
//! `again [MIB [ROUNDS]]`; nanoseconds a page, medians.

use std::time::Instant;

use faultless::region::{Advice, Delivery, Error, Region, set_as};

const PAGE: usize = 4096;

/// Drops and touches it, so often in turns; nanoseconds a page of each round.
fn rounds(
    rounds: usize,
    bytes: usize,
    mut drop: impl FnMut() -> Result<(), Error>,
    at: *mut u8,
) -> Result<f64, Error> {
    let mut times = Vec::new();
    for round in 0..=rounds {
        let start = Instant::now();
        drop()?;
        for page in (0..bytes).step_by(PAGE) {
            // SAFETY: memory of the caller's, mapped for writing.
            unsafe { at.add(page).write_volatile(round as u8) };
        }
        times.push(start.elapsed().as_nanos() as f64 / (bytes / PAGE) as f64);
    }
    // The first one has nothing to drop.
    times.remove(0);
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

fn main() -> Result<(), Error> {
    let args: Vec<usize> = std::env::args().skip(1).map(|arg| arg.parse().expect("a number")).collect();
    let bytes = args.first().copied().unwrap_or(256).next_multiple_of(2) << 20;
    let n = args.get(1).copied().unwrap_or(9);
    // All of it may be kept.
    assert!(set_as(b"budget", 2 * bytes as u64));
    println!("{} MiB dropped and touched again, medians of {n}", bytes >> 20);
    for delivery in [Delivery::Thread, Delivery::Signal] {
        for zeroed in [true, false] {
            let region = Region::builder(bytes).delivery(delivery).zeroed(zeroed).build()?;
            let drop = || region.advise(0..bytes, Advice::DontNeed);
            let ns = rounds(n, bytes, drop, region.as_ptr())?;
            let name = if zeroed { "zeroes" } else { "old bytes" };
            println!("{delivery:?}, {name}: {ns:.1} ns a page, {:.1} ms", ns * (bytes / PAGE) as f64 / 1e6);
        }
    }
    Ok(())
}
