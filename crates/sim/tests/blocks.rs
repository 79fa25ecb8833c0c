//! What the simulation counts of threads that map, touch and unmap blocks is what a region of this process counts.

use std::sync::Barrier;
use std::thread;

use faultless::region::{Delivery, Error, Region, Rights};
use faultless_base::{PAGE, SLOT};
use faultless_page::stats::Counter;
use faultless_sim::blocks::{DISCARD, Lie, Reached, Setup, TODAY, run};

/// Faults; speculative ones; tries given up as an area changed; and for another reason.
type Counts = [u64; 4];

fn counts() -> Counts {
    let of = Region::counted;
    let otherwise =
        [Counter::SpfVmaNoanon, Counter::SpfVmaNotsup, Counter::SpfVmaAccess, Counter::SpfPmdChanged].map(of);
    let [faults, speculative, changed] =
        [Counter::RegionPgfault, Counter::SpeculativePgfault, Counter::SpfVmaChanged].map(of);
    [faults, speculative, changed, otherwise.iter().sum()]
}

fn real(setup: &Setup) -> Result<Counts, Error> {
    let (block, step) = (setup.pages * PAGE, if setup.lie == Lie::Apart { SLOT } else { setup.pages * PAGE });
    let region = Region::builder(setup.threads * step)
        .delivery(Delivery::Signal)
        .handlers(setup.threads)
        .mapped(false)
        .windows(PAGE, PAGE)
        .build()?;
    region.unmap(0..setup.threads * step)?;
    let before = counts();
    let start = Barrier::new(setup.threads);
    thread::scope(|scope| {
        let all = Vec::from_iter((0..setup.threads).map(|i| {
            let (region, start) = (&region, &start);
            scope.spawn(move || {
                start.wait();
                for _ in 0..setup.blocks {
                    region.map(i * step..i * step + block, Rights::Write)?;
                    for page in 0..setup.pages {
                        let at = region.as_ptr() as usize + i * step + page * PAGE;
                        assert!(faultless_testkit::probe::store(at, 1));
                    }
                    region.unmap(i * step..i * step + block)?;
                }
                Ok::<(), Error>(())
            })
        }));
        all.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
    })?;
    let after = counts();
    Ok(std::array::from_fn(|i| after[i] - before[i]))
}

#[test]
fn a_real_region_counts_the_same() {
    let setup = |lie, threads, speculative| {
        let pages = if lie == Lie::Apart { 128 } else { SLOT / PAGE };
        Setup { lie, threads, blocks: 6, pages, speculative, discard: DISCARD }
    };
    let setups = [
        setup(Lie::Apart, 1, true),
        setup(Lie::Apart, 2, true),
        setup(Lie::Adjoining, 1, true),
        setup(Lie::Adjoining, 2, true),
    ];
    // All of these first: the simulation's coroutines have a handler for SIGBUS of their own.
    let counted: Vec<Counts> = match setups.iter().map(real).collect() {
        Ok(counted) => counted,
        Err(error) => return faultless_testkit::skip(error),
    };
    for (setup, [faults, speculative, changed, otherwise]) in setups.into_iter().zip(counted) {
        let says: Reached = run(&setup, &TODAY);
        assert_eq!((faults, otherwise), (says.faults, says.otherwise), "{setup:?}");
        // How often a change hits a fault is a matter of time. All tries end in one way or the other.
        assert_eq!((speculative + changed, says.speculative + says.given_up), (faults, faults), "{setup:?}");
        if setup.lie == Lie::Apart || setup.threads == 1 {
            assert_eq!((changed, says.given_up), (0, 0), "{setup:?}");
        }
    }
}
