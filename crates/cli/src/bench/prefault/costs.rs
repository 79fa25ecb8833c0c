//! What operations cost on this machine, measured one by one; none of the runs that the simulation is compared with is used.

use std::hint;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use faultless::region::{Delivery, Region};
use faultless_base::sys::Huge;
use faultless_base::sys::uffd::{Uffd, feature};
use faultless_base::{PAGE, SLOT, SLOT_PAGES};
use faultless_sim::costs::Costs;
use faultless_sim::seed;

use crate::doctor::measure::{self, Area, time};

/// Samples of each.
const SAMPLES: usize = 9;
/// Bytes of a sample.
const BYTES: usize = 128 * SLOT;
/// Passes of a word.
const PASSES: usize = 20_000;
/// Looks at it after which another thread is let run.
const MANY: usize = 4096;

/// The fastest of the samples: what others do on the machine only adds to them.
fn fastest(mut sample: impl FnMut() -> Result<f64, String>) -> Result<f64, String> {
    (0..SAMPLES).try_fold(f64::MAX, |fastest, _| Ok(fastest.min(sample()?)))
}

/// Measures them. The error says what this machine does not allow.
pub fn measure(memory: u64) -> Result<Costs, String> {
    let doctor = measure::measure(memory);
    let of = |id: &str| {
        let cost = doctor.costs.iter().find(|cost| cost.id == id).ok_or("no such cost")?;
        cost.ns.ok_or_else(|| cost.missing.clone().unwrap_or_default())
    };
    let (single, batched) = (fastest(|| copied(PAGE))?, fastest(|| copied(SLOT))?);
    let moved = fastest(moved)?;
    let transfer = fastest(|| Ok(passed(2)))?;
    Ok(Costs {
        page: PAGE as f64,
        touch: of("touch")?,
        entry: (of("deliver_signal")? - single).max(0.0),
        call: (single - batched).max(0.0),
        install: moved,
        clear_near: (batched - moved).max(0.0),
        clear_far: (batched - moved).max(0.0),
        near: f64::MAX,
        make_huge: of("huge_fault")?,
        move_huge: of("move_huge")?,
        local: fastest(|| Ok(passed(1)))?,
        transfer,
        // Two processors do not show it: in proportion to a transfer, as on the machine of 2004.
        waiter: transfer * seed::MACHINE.waiter / seed::MACHINE.transfer,
        serial: 0.0,
        // The kernel counts the users of its own area at each fault and call.
        kernel_words: 2,
        line: 64,
    })
}

/// A page brought by a copy, `piece` bytes in one call.
fn copied(piece: usize) -> Result<f64, String> {
    let bytes = BYTES * piece / SLOT;
    let builder = Region::builder(bytes).delivery(Delivery::Signal).huge_pages(false);
    let region = builder.build().map_err(|error| error.to_string())?;
    let mut failed = None;
    let ns = time(|| {
        for at in (0..bytes).step_by(piece) {
            if let Err(error) = region.populate(at..at + piece) {
                failed = Some(error.to_string());
            }
        }
    });
    failed.map_or(Ok(ns / (bytes / PAGE) as f64), Err)
}

/// A page moved, 512 of them in one call.
fn moved() -> Result<f64, String> {
    let (uffd, _) = Uffd::open_best().map_err(|error| format!("userfaultfd: error {error}"))?;
    uffd.enable(feature::MOVE).map_err(|error| format!("UFFDIO_MOVE: error {error}"))?;
    let (here, there) = (Area::new(SLOT, Huge::Refused)?, Area::new(SLOT, Huge::Refused)?);
    here.touch(here.span());
    there.register(&uffd)?;
    let mut moved = Ok(());
    let ns = time(|| moved = here.move_to(&uffd, here.span(), &there, there.span()));
    moved.map(|()| ns / SLOT_PAGES as f64).map_err(|stopped| format!("UFFDIO_MOVE: error {}", stopped.error))
}

/// An operation on a word that so many threads pass on from one to the next.
fn passed(threads: usize) -> f64 {
    let turn = AtomicUsize::new(0);
    let pass_on = |i: usize| {
        for turn_of in (i..PASSES).step_by(threads) {
            let mut looked = 0;
            while turn.load(Ordering::Acquire) != turn_of {
                looked += 1;
                // The other one may have no processor.
                if looked % MANY == 0 { thread::yield_now() } else { hint::spin_loop() }
            }
            turn.fetch_add(1, Ordering::AcqRel);
        }
    };
    let ns = time(|| {
        thread::scope(|scope| {
            for i in 1..threads {
                let pass_on = &pass_on;
                scope.spawn(move || pass_on(i));
            }
            pass_on(0);
        });
    });
    ns / PASSES as f64
}
