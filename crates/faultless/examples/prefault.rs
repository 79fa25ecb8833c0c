//! First touch: what a page costs by the kernel's faults, small and huge, populated at once, and in a region of each
//! delivery mode, fresh and after `reserve`. `prefault [MIB [ROUNDS [ORDER]]]`, where ORDER is `forward`, `backward`,
//! `strided` (each eighth page), `random` (a tenth of the pages) or `compute` (forward, with some work on each page).

use std::collections::BTreeMap;
use std::ptr::null_mut;
use std::time::Instant;

use chance::Chance;
use faultless::region::{Delivery, Error, Region};
use faultless_page::stats::Counter;

#[path = "../tests/chance/mod.rs"]
mod chance;

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

/// In which order pages are touched.
fn order(name: &str, pages: usize) -> Vec<usize> {
    match name {
        "backward" => (0..pages).rev().collect(),
        "strided" => (0..pages).step_by(8).collect(),
        "random" => {
            let mut chance = Chance(0x9E37_79B9_7F4A_7C15);
            (0..pages / 10).map(|_| chance.below(pages)).collect()
        }
        _ => (0..pages).collect(),
    }
}

/// Writes to pages; nanoseconds a page.
fn touch(at: *mut u8, pages: &[usize], computes: bool) -> f64 {
    let start = Instant::now();
    for page in pages {
        // SAFETY: the callers' memory.
        unsafe {
            let page = at.add(page * PAGE);
            page.write_volatile(1);
            if computes {
                for round in 0..6u8 {
                    let bytes = std::slice::from_raw_parts_mut(page, PAGE);
                    bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_mul(31).wrapping_add(round));
                    std::hint::black_box(bytes);
                }
            }
        }
    }
    start.elapsed().as_nanos() as f64 / pages.len() as f64
}

struct Pass {
    bytes: usize,
    pages: Vec<usize>,
    computes: bool,
}

/// Pages of this process in memory.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0)
}

/// What a pass took.
#[derive(Clone, Copy)]
struct Took {
    ns: f64,
    faults: u64,
    resident: u64,
}

/// The kernel's faults, after advice, or all at once.
fn kernel(pass: &Pass, advice: i32) -> Took {
    let bytes = pass.bytes;
    let before = resident();
    // SAFETY: a mapping of this function's own.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let at = libc::mmap(null_mut(), bytes + HUGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED, "no memory");
        let aligned = (at as usize).next_multiple_of(HUGE) as *mut u8;
        let start = Instant::now();
        libc::madvise(aligned.cast(), bytes, advice);
        let advising = start.elapsed().as_nanos() as f64 / pass.pages.len() as f64;
        let ns = advising + touch(aligned, &pass.pages, pass.computes);
        let resident = resident() - before;
        libc::munmap(at, bytes + HUGE);
        Took { ns, faults: 0, resident }
    }
}

fn region(pass: &Pass, delivery: Delivery, reserved: bool) -> Result<Took, Error> {
    let region = Region::builder(pass.bytes).delivery(delivery).build()?;
    let before = resident();
    if reserved {
        let ready = faultless::reserve(pass.bytes)?.wait()?;
        assert_eq!(ready, pass.bytes, "not all of it was to be had in huge pages");
    }
    let faults = Region::counted(Counter::RegionPgfault);
    let ns = touch(region.as_ptr(), &pass.pages, pass.computes);
    let resident = resident() - before;
    faultless::release_reserved();
    Ok(Took { ns, faults: Region::counted(Counter::RegionPgfault) - faults, resident })
}

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default: usize| args.get(i).map_or(default, |text| text.parse().expect("a number"));
    let bytes = number(0, 2048).next_multiple_of(2) << 20;
    let rounds = number(1, 3);
    let name = args.get(2).map_or("forward", String::as_str);
    let pass = Pass { bytes, pages: order(name, bytes / PAGE), computes: name == "compute" };
    let mut times: BTreeMap<Way, Vec<Took>> = BTreeMap::new();
    for round in 0..rounds {
        for i in 0..WAYS.len() {
            // In turns, none always behind the same one.
            let way = WAYS[(i + round) % WAYS.len()];
            let took = match way {
                Way::Plain => kernel(&pass, libc::MADV_NOHUGEPAGE),
                Way::HugeAlways => kernel(&pass, libc::MADV_HUGEPAGE),
                Way::PopulateWrite => kernel(&pass, libc::MADV_POPULATE_WRITE),
                Way::Thread => region(&pass, Delivery::Thread, false)?,
                Way::Signal => region(&pass, Delivery::Signal, false)?,
                Way::ThreadReserved => region(&pass, Delivery::Thread, true)?,
                Way::SignalReserved => region(&pass, Delivery::Signal, true)?,
            };
            times.entry(way).or_default().push(took);
        }
    }
    for times in times.values_mut() {
        times.sort_by(|a, b| a.ns.total_cmp(&b.ns));
    }
    let median = |way| times[&way][rounds / 2];
    let (plain, huge) = (median(Way::Plain).ns, median(Way::HugeAlways).ns);
    println!("{} MiB, {name}, {} pages written; medians of {rounds}", bytes >> 20, pass.pages.len());
    for way in WAYS {
        let Took { ns, faults, resident } = median(way);
        let (name, plain, huge) = (format!("{way:?}"), plain / ns, huge / ns);
        println!(
            "{name:15} {ns:8.1} ns a page, {faults:6} faults of regions, {:5} MiB resident: {plain:6.2} x plain, \
             {huge:6.2} x huge pages",
            resident >> 8
        );
    }
    Ok(())
}
