//! A region of each delivery mode: what a fault costs, and what was counted.

use std::time::Instant;

use faultless::region::{Advice, Delivery, Error, Region};
use faultless_page::stats::Counter;

const BYTES: usize = 256 << 20;
const PAGE: usize = 4096;
const ROUNDS: u64 = 4;

fn main() -> Result<(), Error> {
    for delivery in [Delivery::Direct, Delivery::Thread, Delivery::Signal] {
        for (name, first, most) in
            [("one page", PAGE, PAGE), ("64 pages", 64 * PAGE, 64 * PAGE), ("growing", PAGE, 8 << 20)]
        {
            let bytes = if most == PAGE { BYTES / 16 } else { BYTES };
            let huge = most > 64 * PAGE;
            let mut region =
                Region::builder(bytes).delivery(delivery).windows(first, most).huge_pages(huge).build()?;
            let faults = Region::counted(Counter::RegionPgfault);
            let mut best = f64::INFINITY;
            for _ in 0..ROUNDS {
                let start = Instant::now();
                for page in region.as_mut_slice()?.chunks_mut(PAGE) {
                    page[0] = 1;
                }
                best = best.min(start.elapsed().as_secs_f64() * 1e6 / (bytes / PAGE) as f64);
                region.advise(0..bytes, Advice::DontNeed)?;
            }
            let faults = (Region::counted(Counter::RegionPgfault) - faults) / ROUNDS;
            let pages = bytes / PAGE;
            println!("{delivery:?}, windows of {name}: {best:.3} µs a page, {faults} faults for {pages} pages");
        }
    }
    Ok(())
}
