//! A region of each delivery mode: what a fault costs, and what was counted.

use std::time::Instant;

use faultless::region::{Delivery, Error, Region};
use faultless_mm::stats::Counter;

const BYTES: usize = 256 << 20;
const PAGE: usize = 4096;

fn main() -> Result<(), Error> {
    for delivery in [Delivery::Direct, Delivery::Thread, Delivery::Signal] {
        for (name, first, most) in
            [("one page", PAGE, PAGE), ("64 pages", 64 * PAGE, 64 * PAGE), ("growing", PAGE, 8 << 20)]
        {
            let faults = Region::counted(Counter::RegionPgfault);
            let start = Instant::now();
            let mut region =
                Region::builder(BYTES).delivery(delivery).windows(first, most).huge_pages(true).build()?;
            let bytes = if most == PAGE { BYTES / 16 } else { BYTES };
            let slice = &mut region.as_mut_slice()?[..bytes];
            for page in slice.chunks_mut(PAGE) {
                page[0] = 1;
            }
            let us = start.elapsed().as_secs_f64() * 1e6 / (bytes / PAGE) as f64;
            let faults = Region::counted(Counter::RegionPgfault) - faults;
            println!(
                "{delivery:?}, windows of {name}: {us:.2} µs a page, {faults} faults of {} pages",
                bytes / PAGE
            );
        }
    }
    Ok(())
}
