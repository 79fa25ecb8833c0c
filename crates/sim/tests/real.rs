//! What the simulation counts is what a region of this process counts over the kernel, at one and two threads.

use std::sync::Barrier;
use std::thread;

use faultless::region::{Delivery, Error, Region};
use faultless_base::PAGE;
use faultless_page::stats::Counter;
use faultless_sim::pattern::Pattern;
use faultless_sim::seed::MACHINE;
use faultless_sim::work::{APART, Frames, Setup, run};

/// Pages of each thread: whole entries, so that threads do not meet.
const PAGES: usize = 1024;
const COUNTED: [Counter; 7] = [
    Counter::RegionPgfault,
    Counter::RegionPages,
    Counter::SpeculativePgfault,
    Counter::SpfVmaChanged,
    Counter::SpfVmaNoanon,
    Counter::SpfVmaAccess,
    Counter::SpfPmdChanged,
];

/// Touches a region of this process, and says what was counted.
fn real(setup: &Setup) -> Result<[u64; 7], Error> {
    let (threads, part) = (setup.threads, (setup.pages * PAGE).max(APART));
    let mut region =
        Region::builder(threads * part).delivery(Delivery::Signal).windows(PAGE, PAGE << setup.order).build()?;
    let before = COUNTED.map(Region::counted);
    let start = Barrier::new(threads);
    thread::scope(|scope| {
        for (i, bytes) in region.as_mut_slice()?.chunks_mut(part).enumerate() {
            let start = &start;
            scope.spawn(move || {
                start.wait();
                setup.pattern.touches(setup.pages, i as u64 + 1).for_each(|page| bytes[page * PAGE] = 1);
            });
        }
        Ok::<(), Error>(())
    })?;
    let after = COUNTED.map(Region::counted);
    Ok(std::array::from_fn(|i| after[i] - before[i]))
}

#[test]
fn a_real_run_counts_the_same() {
    let [forward, backward, strided, random, zipfian] = Pattern::ALL;
    // Where chance decides, a region with windows would leave the area to the kernel.
    let patterns = [
        (forward, 0),
        (forward, 3),
        (forward, 5),
        (forward, 9),
        (backward, 3),
        (strided, 3),
        (random, 0),
        (zipfian, 0),
    ];
    let setup = |threads: usize, (pattern, order): (Pattern, u32)| Setup {
        threads,
        pages: PAGES,
        bytes: 1.0,
        pattern,
        order,
        speculative: true,
        frames: Frames::Cleared,
        huge: false,
    };
    let setups: Vec<_> =
        [1, 2].into_iter().flat_map(|threads| patterns.map(|which| setup(threads, which))).collect();
    // All of these first: the simulation's coroutines have a handler for SIGBUS of their own.
    let counted: Vec<_> = match setups.iter().map(real).collect() {
        Ok(counted) => counted,
        Err(error) => return faultless_testkit::skip(error),
    };
    for (setup, counted) in setups.iter().zip(counted) {
        let figures = run(setup, &MACHINE);
        let simulated = [figures.faults, figures.installed, figures.speculative, 0, 0, 0, 0];
        assert_eq!(counted, simulated, "{} threads, {:?}, order {}", setup.threads, setup.pattern, setup.order);
        assert_eq!(figures.made.faults, figures.faults);
    }
}
