//! Memory made ready beforehand, and regions that take it. One test at a time has the pool.

mod built;

use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};

use built::built;
use faultless::region::{Advice, Delivery, Error, Region};
use faultless_page::stats::Counter;
use faultless_testkit::limit::limit;

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;
const MODES: [Delivery; 2] = [Delivery::Thread, Delivery::Signal];

static POOL: Mutex<()> = Mutex::new(());

/// No other test has the pool, and nothing is in it.
fn alone() -> MutexGuard<'static, ()> {
    let alone = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    limit();
    faultless::release_reserved();
    alone
}

/// A region that asks for no more than one huge page itself.
fn region(bytes: usize, delivery: Delivery) -> Option<Region> {
    built(Region::builder(bytes).delivery(delivery).budget(16 * MIB))
}

/// All huge pages that were asked for, or nothing where there are none.
fn reserve(bytes: usize) -> Option<()> {
    let reservation = faultless::reserve(bytes).unwrap();
    let ready = reservation.wait().unwrap();
    assert!(reservation.is_done() && reservation.bytes() == bytes && ready == reservation.ready());
    if ready < bytes {
        faultless_testkit::skip(format_args!("{ready} bytes of huge pages for {bytes}"));
    }
    (ready == bytes).then_some(())
}

/// A walk has taken all but so many bytes. With several nodes it leaves those of other nodes than its own, where the
/// thread that made them has run.
fn is_taken_but(most: usize) {
    let left = faultless::reserved();
    let nodes = fs::read_to_string("/sys/devices/system/node/online").unwrap_or_default();
    assert!(left <= most || nodes.contains(['-', ',']), "{left} bytes were not taken");
}

#[test]
fn a_walk_takes_what_was_reserved_in_few_faults() {
    let _alone = alone();
    for delivery in MODES {
        faultless::release_reserved();
        let Some(mut region) = region(64 * MIB, delivery) else { continue };
        if reserve(64 * MIB).is_none() {
            continue;
        }
        assert_eq!(faultless::reserved(), 64 * MIB);
        let faults = Region::counted(Counter::RegionPgfault);
        for (i, page) in region.as_mut_slice().unwrap().chunks_mut(PAGE).enumerate() {
            assert!(page.iter().all(|byte| *byte == 0), "page {i}: not zero");
            page.fill(i as u8 | 1);
        }
        let faults = Region::counted(Counter::RegionPgfault) - faults;
        assert!(faults < 64, "{faults} faults");
        // None comes to the 2 MiB of a fault.
        is_taken_but(20 * MIB);
        let kept = |(i, page): (usize, &mut [u8])| page.iter().all(|byte| *byte == i as u8 | 1);
        assert!(region.as_mut_slice().unwrap().chunks_mut(PAGE).enumerate().all(kept));
        // Dropped pages are zero when they come again.
        region.advise(0..64 * MIB, Advice::DontNeed).unwrap();
        assert!(region.as_mut_slice().unwrap().iter().all(|byte| *byte == 0));
    }
}

#[test]
fn what_nobody_takes_is_given_back() {
    let _alone = alone();
    if reserve(16 * MIB).is_some() {
        assert_eq!(faultless::release_reserved(), 16 * MIB);
        assert_eq!(faultless::reserved(), 0);
    }
}

#[test]
fn a_reservation_that_is_cancelled_ends_early() {
    let _alone = alone();
    let reservation = faultless::reserve(1 << 40).unwrap();
    reservation.cancel();
    let ready = reservation.ready();
    assert!(reservation.is_done() && ready < 1 << 40);
    assert_eq!((reservation.ready(), faultless::reserved()), (ready, ready));
    faultless::release_reserved();
}

/// A child has none of its parent's pool but one of its own, and its parent's frames can still be moved after the fork.
#[test]
fn a_fork_leaves_the_pool_to_the_parent() {
    let _alone = alone();
    let Some(region) = region(32 * MIB, Delivery::Signal) else { return };
    if reserve(32 * MIB).is_none() {
        return;
    }
    // SAFETY: the child ends in here.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let none = faultless::reserved() == 0 && faultless::release_reserved() == 0;
        let own = reserve(4 * MIB).is_none() || faultless::release_reserved() == 4 * MIB;
        // SAFETY: it ends.
        unsafe { libc::_exit(!(none && own) as i32) };
    }
    for page in (0..32 * MIB).step_by(PAGE) {
        // SAFETY: mapped for writing.
        unsafe { region.as_ptr().add(page).write_volatile(1) };
    }
    is_taken_but(14 * MIB);
    let mut status = 0;
    // SAFETY: the child above.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0);
}

#[test]
fn populating_in_the_background_can_be_waited_for_and_ended() {
    let _alone = alone();
    const READY: usize = 40 * MIB;
    for delivery in [Delivery::Direct, Delivery::Thread, Delivery::Signal] {
        let Some(region) = region(48 * MIB, delivery) else { continue };
        let populating = region.populate_in_background(PAGE..33 * MIB).unwrap();
        assert_eq!(populating.bytes(), 34 * MIB);
        let faults = Region::counted(Counter::RegionPgfault);
        assert_eq!(populating.wait(), Ok(34 * MIB));
        assert!(populating.is_done() && populating.ready() == populating.bytes());
        // SAFETY: mapped for writing.
        (PAGE..33 * MIB).step_by(PAGE).for_each(|at| unsafe { region.as_ptr().add(at).write_volatile(1) });
        assert_eq!(Region::counted(Counter::RegionPgfault), faults);

        region.unmap(40 * MIB..41 * MIB).unwrap();
        assert_eq!(region.populate_in_background(38 * MIB..44 * MIB).unwrap().wait(), Err(Error::NotMapped));
        region.advise(0..40 * MIB, Advice::DontNeed).unwrap();
        let populating = region.populate_in_background(0..40 * MIB).unwrap();
        populating.cancel();
        assert!(populating.is_done());
        // The region may go while another thread populates it.
        let populating = region.populate_in_background(0..40 * MIB).unwrap();
        drop(region);
        assert!(matches!(populating.wait(), Ok(READY) | Err(Error::Ended)));
    }
}
