//! Sequential first touch: what a page costs by the kernel's faults, small and huge, populated at once, and in a region of each
//! delivery mode, fresh and after `reserve`. `prefault [MIB [ROUNDS]]`.

use std::collections::BTreeMap;
use std::ptr::null_mut;
use std::time::Instant;

use faultless::region::{Delivery, Error, Region};
use faultless_mm::stats::Counter;

const PAGE: usize = 4096;
const HUGE: usize = 2 << 20;

/// A way to have memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Plain,
    HugeAlways,
    PopulateWrite,
    Thread,
    Signal,
    ThreadReserved,
    SignalReserved,
}

const WAYS: [Way; 7] = [
    Way::Plain,
    Way::HugeAlways,
    Way::PopulateWrite,
    Way::Thread,
    Way::Signal,
    Way::ThreadReserved,
    Way::SignalReserved,
];

/// Writes to each page; nanoseconds a page.
fn touch(at: *mut u8, bytes: usize) -> f64 {
    let start = Instant::now();
    for offset in (0..bytes).step_by(PAGE) {
        // SAFETY: the callers' memory.
        unsafe { at.add(offset).write_volatile(1) };
    }
    start.elapsed().as_nanos() as f64 / (bytes / PAGE) as f64
}

/// The kernel's faults, after advice, or all at once.
fn kernel(bytes: usize, advice: i32) -> f64 {
    // SAFETY: a mapping of this function's own.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let at = libc::mmap(null_mut(), bytes + HUGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED, "no memory");
        let aligned = (at as usize).next_multiple_of(HUGE) as *mut u8;
        let start = Instant::now();
        libc::madvise(aligned.cast(), bytes, advice);
        let advising = start.elapsed().as_nanos() as f64 / (bytes / PAGE) as f64;
        let time = advising + touch(aligned, bytes);
        libc::munmap(at, bytes + HUGE);
        time
    }
}

fn region(bytes: usize, delivery: Delivery, reserved: bool) -> Result<(f64, u64), Error> {
    let region = Region::builder(bytes).delivery(delivery).build()?;
    if reserved {
        let ready = faultless::reserve(bytes)?.wait()?;
        assert_eq!(ready, bytes, "not all of it was to be had in huge pages");
    }
    let faults = Region::counted(Counter::RegionPgfault);
    let time = touch(region.as_ptr(), bytes);
    Ok((time, Region::counted(Counter::RegionPgfault) - faults))
}

fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let bytes = args.next().unwrap_or(2048usize).next_multiple_of(2) << 20;
    let rounds = args.next().unwrap_or(3);
    let mut times: BTreeMap<Way, Vec<(f64, u64)>> = BTreeMap::new();
    for round in 0..rounds {
        for i in 0..WAYS.len() {
            // In turns, none always behind the same one.
            let way = WAYS[(i + round) % WAYS.len()];
            let time = match way {
                Way::Plain => (kernel(bytes, libc::MADV_NOHUGEPAGE), (bytes / PAGE) as u64),
                Way::HugeAlways => (kernel(bytes, libc::MADV_HUGEPAGE), (bytes / HUGE) as u64),
                Way::PopulateWrite => (kernel(bytes, libc::MADV_POPULATE_WRITE), 0),
                Way::Thread => region(bytes, Delivery::Thread, false)?,
                Way::Signal => region(bytes, Delivery::Signal, false)?,
                Way::ThreadReserved => region(bytes, Delivery::Thread, true)?,
                Way::SignalReserved => region(bytes, Delivery::Signal, true)?,
            };
            times.entry(way).or_default().push(time);
        }
    }
    for times in times.values_mut() {
        times.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let median = |way| times[&way][rounds / 2];
    let (plain, huge) = (median(Way::Plain).0, median(Way::HugeAlways).0);
    println!("{} MiB, each page written once; medians of {rounds}", bytes >> 20);
    for way in WAYS {
        let (time, faults) = median(way);
        let (name, plain, huge) = (format!("{way:?}"), plain / time, huge / time);
        println!(
            "{name:15} {time:7.1} ns a page, {faults:6} faults: {plain:5.1} x plain, {huge:5.1} x huge pages"
        );
    }
    Ok(())
}
