//! The page of counters and knobs, as others see it: through shared memory that only /proc names.

mod built;

use std::ptr::null;
use std::sync::atomic::Ordering;

use built::built;
use faultless::region::{Delivery, Region};
use faultless_page::knobs::Knob;
use faultless_page::layout::{MAGIC, Page, Whole};
use faultless_page::listing::{Line, PLACES, Regions};
use faultless_page::stats::Counter;

const BYTES: usize = 4096;

/// The segment of this process, attached a second time.
fn attach() -> Option<(&'static Page, Regions<'static>)> {
    let list = std::fs::read_to_string("/proc/sysvipc/shm").ok()?;
    let own = std::process::id().to_string();
    let fields = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let line = list.lines().map(fields).find(|fields| fields.get(4) == Some(&own))?;
    let id = line[1].parse().ok()?;
    // SAFETY: a segment of this process's own library, which is atomics, with as many lines as it says.
    unsafe {
        let at = libc::shmat(id, null(), 0);
        (at as isize != -1).then(|| {
            let whole: &Whole = &*at.cast();
            let lines = whole.listing.lines.load(Ordering::Relaxed) as usize * (PLACES + 1);
            let lines = std::slice::from_raw_parts((&raw const *whole).add(1).cast::<Line>(), lines);
            (&whole.page, Regions::new(&whole.listing, lines))
        })
    }
}

#[test]
fn counters_are_seen_and_knobs_turned_from_outside() {
    let builder = Region::builder(1 << 20).delivery(Delivery::Signal).windows(BYTES, BYTES);
    let Some(region) = built(builder) else { return };
    let Some((page, regions)) = attach() else { return faultless_testkit::skip("no shared memory here") };
    assert_eq!(page.header.magic.load(Ordering::Acquire), MAGIC);
    let touch = |i: usize| {
        // SAFETY: mapped for writing.
        unsafe { region.as_ptr().add(i * BYTES).write_volatile(1) };
        [Counter::RegionPgfault, Counter::SpeculativePgfault].map(|counter| regions.sum(counter))
    };
    assert_eq!(touch(0), [1, 1]);
    page.knobs.set(Knob::SpeculativePageFault, 0);
    assert_eq!(touch(1), [2, 1]);
    page.knobs.set(Knob::SpeculativePageFault, 1);
    assert_eq!(touch(2), [3, 2]);
}
