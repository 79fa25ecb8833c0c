//! More threads than buffers for what a backing has. Each test build has two buffers.

mod built;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use built::built;
use faultless::region::{Backing, Delivery, Region, Rights};
use faultless_testkit::limit::limit;

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;

static READING: AtomicUsize = AtomicUsize::new(0);
static OPEN: AtomicBool = AtomicBool::new(false);

/// Some of its pages come late.
struct Late;

impl Backing for Late {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), i32> {
        if (10..12).contains(&(offset as usize / PAGE)) {
            READING.fetch_add(1, Ordering::SeqCst);
            while !OPEN.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(1));
            }
        }
        buffer.fill(4);
        Ok(())
    }
}

/// A fault that has a buffer may wait for a change, the change for another fault, and that for a buffer.
#[test]
fn nobody_keeps_others_from_a_change_while_it_waits_for_a_buffer() {
    limit();
    let builder = Region::builder(MIB).delivery(Delivery::Signal).windows(PAGE, PAGE).backing(Late);
    let Some(region) = built(builder).map(Arc::new) else { return };
    let (ended, end) = mpsc::channel();
    let start = |work: fn(&Region)| {
        let (region, ended) = (region.clone(), ended.clone());
        thread::spawn(move || {
            work(&region);
            ended.send(()).unwrap();
        });
    };
    fn read(region: &Region, page: usize) {
        // SAFETY: mapped memory, which is not written to.
        assert_eq!(unsafe { region.as_ptr().add(page * PAGE).read_volatile() }, 4);
    }
    read(&region, 0);
    start(|region| read(region, 10));
    start(|region| read(region, 11));
    while READING.load(Ordering::SeqCst) < 2 {
        thread::yield_now();
    }
    // The area around them is not what it was: they will try again, and wait for changes.
    region.protect(12 * PAGE..13 * PAGE, Rights::Read).unwrap();
    start(|region| read(region, 20));
    thread::sleep(Duration::from_millis(100));
    start(|region| region.protect(30 * PAGE..31 * PAGE, Rights::Read).unwrap());
    thread::sleep(Duration::from_millis(100));
    OPEN.store(true, Ordering::SeqCst);
    (0..4).for_each(|_| end.recv().unwrap());
}
