//! Regions in a forked child: those of its parent end without harm, and those of its own are as any.

mod built;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use built::built;
use faultless::region::{Backing, Delivery, Region};
use faultless_testkit::limit::limit;

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;

/// Whether what the child does is right; a child that hangs is killed, and is not.
fn child(test: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child ends in here, and so does a second thread that it has.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(60);
            libc::_exit(!test() as i32);
        }
        let mut status = 0;
        libc::waitpid(child, &mut status, 0);
        println!("status {status:#x}");
        status == 0
    }
}

fn region(delivery: Delivery, backing: Option<fn()>) -> Option<Region> {
    let mut builder = Region::builder(4 * MIB).delivery(delivery).windows(PAGE, PAGE);
    if let Some(step) = backing {
        builder = builder.backing(Slow(step));
    }
    built(builder)
}

/// Sevens, after something else.
struct Slow(fn());

impl Backing for Slow {
    fn read(&self, _offset: u64, buffer: &mut [u8]) -> Result<(), i32> {
        (self.0)();
        buffer.fill(7);
        Ok(())
    }
}

/// A region with a backing is not in the child, which may have something else in its place.
#[test]
fn what_a_child_has_in_the_place_of_a_region_stays() {
    limit();
    for delivery in [Delivery::Thread, Delivery::Signal] {
        let Some(region) = region(delivery, Some(|| {})) else { continue };
        let right = child(|| {
            let at = region.as_ptr();
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
            // SAFETY: a new mapping where nothing is.
            let mapped = unsafe {
                libc::mmap(at.cast(), PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) == at.cast()
            };
            // SAFETY: the child's own copy, which ends here and nowhere else.
            drop(unsafe { std::ptr::read(&region) });
            // SAFETY: mapped above.
            mapped && unsafe { at.read_volatile() } == 0
        });
        assert!(right, "{delivery:?}");
    }
}

#[test]
fn a_child_sees_its_own_pages() {
    limit();
    // The parent has looked at its own before.
    let parent = region(Delivery::Direct, None).unwrap();
    assert_eq!(parent.present(), 4 * MIB);
    assert!(child(|| region(Delivery::Direct, None).is_some_and(|region| region.present() == 4 * MIB)));
}

/// A thread that serves a fault while its process forks is not in the child.
#[test]
fn a_child_does_not_wait_for_a_handler_of_its_parent() {
    limit();
    static READING: AtomicBool = AtomicBool::new(false);
    static END: AtomicBool = AtomicBool::new(false);
    let wait = || {
        READING.store(true, Ordering::SeqCst);
        while !END.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let Some(mut region) = region(Delivery::Signal, Some(wait)) else { return };
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| region.as_mut_slice().unwrap()[5]);
        while !READING.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        let right = child(|| {
            let Some(mut own) = self::region(Delivery::Signal, None) else { return false };
            own.as_mut_slice().unwrap()[MIB] = 3;
            own.as_mut_slice().unwrap()[MIB] == 3
        });
        END.store(true, Ordering::SeqCst);
        assert_eq!(reading.join().unwrap(), 7);
        assert!(right);
    });
}
