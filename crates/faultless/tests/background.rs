//! Populating in the background, with a backing that is slow, breaks or goes.

mod built;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use built::built;
use faultless::region::{Backing, Delivery, Error, Region};
use faultless_testkit::limit::limit;

const MIB: usize = 1 << 20;

/// What a backing has seen.
#[derive(Default)]
struct Seen {
    begun: AtomicUsize,
    ended: AtomicUsize,
}

struct Slow(Arc<Seen>, fn(u64));

impl Backing for Slow {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), i32> {
        self.0.begun.fetch_add(1, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(50));
        (self.1)(offset);
        buffer.fill(1);
        self.0.ended.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

fn region(then: fn(u64)) -> Option<(Region, Arc<Seen>)> {
    limit();
    let seen = Arc::<Seen>::default();
    let builder = Region::builder(8 * MIB).delivery(Delivery::Signal).backing(Slow(seen.clone(), then));
    built(builder).map(|region| (region, seen))
}

/// The end of a region is the end of all use of its backing.
#[test]
fn nobody_reads_the_backing_of_a_region_that_has_ended() {
    let Some((region, seen)) = region(|_| {}) else { return };
    let populating = region.populate_in_background(0..8 * MIB).unwrap();
    while seen.begun.load(Ordering::SeqCst) == 0 {
        thread::yield_now();
    }
    drop(region);
    assert_eq!(seen.begun.load(Ordering::SeqCst), seen.ended.load(Ordering::SeqCst));
    let begun = seen.begun.load(Ordering::SeqCst);
    assert_eq!(populating.wait(), Err(Error::Ended));
    assert_eq!(seen.begun.load(Ordering::SeqCst), begun);
}

/// Nor does the end wait for steps that were not begun, though another thread helps, so that there is always one
/// under way.
#[test]
fn the_end_of_a_region_waits_for_no_step_that_was_not_begun() {
    limit();
    const HELPERS: usize = 3;
    let seen = Arc::<Seen>::default();
    let builder = Region::builder(128 * MIB).delivery(Delivery::Signal).backing(Slow(seen.clone(), |_| {}));
    let Ok(region) = builder.build() else { return faultless_testkit::skip("no userfaultfd") };
    let populating = region.populate_in_background(0..128 * MIB).unwrap();
    thread::scope(|scope| {
        for _ in 0..HELPERS {
            scope.spawn(|| assert_eq!(populating.wait(), Err(Error::Ended)));
        }
        while seen.begun.load(Ordering::SeqCst) < 2 * HELPERS {
            thread::yield_now();
        }
        drop(region);
        assert_eq!(seen.begun.load(Ordering::SeqCst), seen.ended.load(Ordering::SeqCst));
        assert!(seen.ended.load(Ordering::SeqCst) < 64, "all of it was populated");
    });
}

/// Each waiting thread goes on when all is there, and other threads may help.
#[test]
fn all_who_wait_wait_for_the_end() {
    let Some((region, _)) = region(|_| {}) else { return };
    let populating = region.populate_in_background(0..8 * MIB).unwrap();
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| assert_eq!(populating.wait(), Ok(8 * MIB)));
        }
    });
}

#[test]
fn a_backing_that_breaks_is_an_error_for_whoever_waits() {
    let Some((region, _)) = region(|offset| assert!(offset < 4 * MIB as u64, "the backing is broken")) else {
        return;
    };
    let populating = region.populate_in_background(0..8 * MIB).unwrap();
    while !populating.is_done() {
        thread::yield_now();
    }
    assert_eq!(populating.wait(), Err(Error::Kernel(libc::EIO)));
}
