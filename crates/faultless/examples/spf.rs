//! Faults beside changes: how many of them threads resolve while another one maps and unmaps without a pause, with
//! speculative faults and without. `spf [SECONDS]`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use faultless::region::{Advice, Delivery, Error, Region, Rights, set_speculative};
use faultless_mm::stats::Counter;

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;
/// What a thread faults in again and again, and what the one that maps has.
const PART: usize = 16 * MIB;

/// Why speculative faults are given up.
const ABORTS: [Counter; 5] = [
    Counter::SpfVmaChanged,
    Counter::SpfVmaNoanon,
    Counter::SpfVmaNotsup,
    Counter::SpfVmaAccess,
    Counter::SpfPmdChanged,
];

/// What another thread does meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mapping {
    None,
    /// Maps and unmaps.
    Empty,
    /// Maps, uses all of it, and unmaps.
    Used,
}

/// Faults a second of all threads together.
fn rate(region: &Region, threads: usize, mapping: Mapping, time: Duration) -> f64 {
    let (done, faults) = (AtomicBool::new(false), AtomicU64::new(0));
    let start = Instant::now();
    thread::scope(|scope| {
        for id in 0..threads {
            let (done, faults) = (&done, &faults);
            scope.spawn(move || {
                let part = id * PART..(id + 1) * PART;
                while !done.load(Ordering::Relaxed) {
                    for at in part.clone().step_by(PAGE) {
                        // SAFETY: mapped for writing throughout.
                        unsafe { region.as_ptr().add(at).write_volatile(1) };
                        if done.load(Ordering::Relaxed) {
                            break;
                        }
                        faults.fetch_add(1, Ordering::Relaxed);
                    }
                    region.advise(part.clone(), Advice::DontNeed).expect("advice");
                }
            });
        }
        if mapping != Mapping::None {
            let uses = mapping == Mapping::Used;
            let done = &done;
            scope.spawn(move || {
                let part = 8 * PART..9 * PART;
                while !done.load(Ordering::Relaxed) {
                    region.map(part.clone(), Rights::Write).expect("map");
                    if uses {
                        region.populate(part.clone()).expect("populate");
                    }
                    region.unmap(part.clone()).expect("unmap");
                }
            });
        }
        thread::sleep(time);
        done.store(true, Ordering::Relaxed);
    });
    faults.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64()
}

fn main() -> Result<(), Error> {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0.5);
    let time = Duration::from_secs_f64(seconds);
    for delivery in [Delivery::Signal, Delivery::Thread] {
        let builder = Region::builder(10 * PART).delivery(delivery).windows(PAGE, PAGE).handlers(2);
        let region = builder.mapped(false).build()?;
        // Apart from what is mapped and unmapped: the kernel's areas, too, are others then.
        region.map(0..2 * PART, Rights::Write)?;
        let both = [1, 2].into_iter();
        let cases = both.flat_map(|n| [Mapping::None, Mapping::Empty, Mapping::Used].map(|m| (n, m)));
        for (threads, mapping) in cases {
            let mut rates = [Vec::new(), Vec::new()];
            let before = ABORTS.map(Region::counted);
            let all = Region::counted(Counter::RegionPgfault);
            for turn in 0..6 {
                set_speculative(turn % 2 == 1);
                rates[turn % 2].push(rate(&region, threads, mapping, time));
            }
            let [classic, speculative] = rates.map(|mut rates| {
                rates.sort_by(f64::total_cmp);
                rates[rates.len() / 2]
            });
            let aborts: Vec<_> = ABORTS.iter().zip(before).map(|(c, b)| Region::counted(*c) - b).collect();
            let all = Region::counted(Counter::RegionPgfault) - all;
            println!(
                "{delivery:?}, {threads} faulting, mapping {mapping:?}: classic {:.0} a ms, speculative {:.0}: {:.2} x; \
                 {all} faults, aborts {aborts:?}",
                classic / 1e3,
                speculative / 1e3,
                speculative / classic,
            );
        }
    }
    Ok(())
}
