//! A region of 256 MiB that has 64 MiB of memory: written in order, then read and written in random order.
//!
//! `cargo run --release -p faultless --example swap -- DIRECTORY`

use std::time::Instant;

use faultless::region::{Region, Swap};
use faultless_page::stats::Counter;

const PAGE: usize = 4096;
const LENGTH: usize = 256 << 20;
const BUDGET: usize = 64 << 20;

/// Resident memory of this process, in MiB.
fn resident() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: f64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0.0);
    pages * PAGE as f64 / (1 << 20) as f64
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).map_or_else(std::env::temp_dir, Into::into);
    let before = resident();
    let mut region = Region::builder(LENGTH).swap(Swap::new(BUDGET).directory(&directory)).build()?;
    let pages = LENGTH / PAGE;
    let bytes = region.as_mut_slice()?;
    let mut most = 0.0_f64;
    let value = |page: usize| (page as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut run = |name: &str, step: usize, write: bool| {
        let start = Instant::now();
        for i in 0..pages {
            let page = i * step % pages;
            let at = page * PAGE + page % 500 * 8;
            if write {
                bytes[at..at + 8].copy_from_slice(&value(page).to_ne_bytes());
            } else {
                assert_eq!(bytes[at..at + 8], value(page).to_ne_bytes(), "page {page}");
            }
            if i % 1000 == 0 {
                most = most.max(resident());
            }
        }
        println!("{name}: {:.2} s", start.elapsed().as_secs_f64());
    };
    run("written in order", 1, true);
    run("read in order", 1, false);
    run("read in random order", 40_503, false);
    run("written in random order", 25_717, true);
    run("read in order", 1, false);
    println!("resident at most: {:.1} MiB, {before:.1} MiB before; the budget is {} MiB", most, BUDGET >> 20);
    for counter in [
        Counter::RegionPgfault,
        Counter::SwapAside,
        Counter::SwapBack,
        Counter::SwapOut,
        Counter::SwapClean,
        Counter::SwapIn,
        Counter::SwapDirect,
        Counter::SwapRefaults,
        Counter::SwapErrors,
    ] {
        println!("{} {}", counter.declared().name, region.own_count(counter).unwrap_or(0));
    }
    println!("working set {} MiB", region.working_set() >> 20);
    Ok(())
}
