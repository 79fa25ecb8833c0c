//! A backing that fails: that concerns the needed page, and the threads that need it.

mod apart;

use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use apart::{apart, passes_apart};
use faultless::region::{Backing, Delivery, Error, Region, Rights};
use faultless_testkit::limit::limit;

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;
const MODES: [Delivery; 2] = [Delivery::Thread, Delivery::Signal];

fn build(delivery: Delivery, backing: impl Backing + 'static) -> Option<Region> {
    match Region::builder(8 * MIB).delivery(delivery).backing(backing).build() {
        Ok(region) => Some(region),
        Err(Error::NoUserfaultfd(error)) => {
            faultless_testkit::skip(format_args!("{delivery:?}, error {error}"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn read(region: &Region, page: usize) -> u8 {
    // SAFETY: mapped.
    unsafe { region.as_ptr().add(page * PAGE).read_volatile() }
}

/// One page cannot be read, whatever is read with it.
struct Bad(usize);

impl Backing for Bad {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), i32> {
        let first = offset as usize / PAGE;
        if (first..first + buffer.len() / PAGE).contains(&self.0) {
            return Err(libc::EIO);
        }
        buffer.chunks_mut(PAGE).enumerate().for_each(|(i, page)| page.fill((first + i) as u8 | 1));
        Ok(())
    }
}

#[test]
fn one_page_that_cannot_be_read_keeps_no_other_away() {
    for delivery in MODES {
        passes_apart(|| {
            let Some(region) = build(delivery, Bad(100)) else { return };
            for page in (0..2048).filter(|page| *page != 100) {
                assert_eq!(read(&region, page), page as u8 | 1);
            }
        });
        let status = apart(|| match build(delivery, Bad(100)) {
            Some(region) => _ = read(&region, 100),
            // SAFETY: as if it had ended so.
            None => _ = unsafe { libc::raise(libc::SIGBUS) },
        });
        assert_eq!(status.signal(), Some(libc::SIGBUS), "{delivery:?}: {status}");
    }
}

struct Fails(i32);

impl Backing for Fails {
    fn read(&self, _: u64, _: &mut [u8]) -> Result<(), i32> {
        Err(self.0)
    }
}

/// Its numbers are its own: none of them means that it should be asked again.
#[test]
fn a_backing_that_fails_by_any_number_is_an_error() {
    for (delivery, error) in MODES.iter().flat_map(|mode| [libc::EAGAIN, libc::ENOMEM].map(|error| (*mode, error)))
    {
        let status = apart(|| match build(delivery, Fails(error)) {
            Some(region) => _ = read(&region, 5),
            // SAFETY: as if it had ended so.
            None => _ = unsafe { libc::raise(libc::SIGBUS) },
        });
        assert_eq!(status.signal(), Some(libc::SIGBUS), "{delivery:?}, error {error}: {status}");
    }
}

/// The read at offset 0 fails, when the test says so.
struct FailsLate {
    reads: Arc<AtomicUsize>,
    begun: SyncSender<()>,
    goes_on: Mutex<Receiver<()>>,
}

impl Backing for FailsLate {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), i32> {
        if offset == 0 && self.reads.fetch_add(1, Ordering::SeqCst) == 0 {
            self.begun.send(()).unwrap();
            self.goes_on.lock().unwrap().recv().unwrap();
            return Err(libc::EIO);
        }
        buffer.fill(5);
        Ok(())
    }
}

/// The part is unmapped and mapped anew while a fault reads the backing for what was there before.
#[test]
fn a_read_that_fails_is_no_error_of_what_was_mapped_since() {
    limit();
    for delivery in MODES {
        let (begun, is_begun) = sync_channel(1);
        let (go_on, goes_on) = sync_channel(1);
        let backing = FailsLate { reads: Arc::default(), begun, goes_on: Mutex::new(goes_on) };
        let Some(region) = build(delivery, backing) else { continue };
        // There are buffers from now on.
        assert_eq!(read(&region, 1024), 5);
        thread::scope(|scope| {
            let faults = scope.spawn(|| read(&region, 0));
            is_begun.recv().unwrap();
            region.unmap(0..PAGE).unwrap();
            region.map(0..PAGE, Rights::Write).unwrap();
            go_on.send(()).unwrap();
            assert_eq!(faults.join().unwrap(), 5, "it was asked again");
        });
        assert_eq!(read(&region, 0), 5);
    }
}

/// Is interrupted, as a system call is by a signal, before it reads.
struct Interrupted(AtomicUsize);

impl Backing for Interrupted {
    fn read(&self, _offset: u64, buffer: &mut [u8]) -> Result<(), i32> {
        if self.0.fetch_add(1, Ordering::Relaxed) % 3 < 2 {
            return Err(libc::EINTR);
        }
        buffer.fill(5);
        Ok(())
    }
}

#[test]
fn a_read_that_is_interrupted_is_done_again() {
    limit();
    for delivery in MODES {
        let Some(region) = build(delivery, Interrupted(AtomicUsize::new(0))) else { continue };
        region.populate(0..MIB).unwrap();
        assert!((0..1024).all(|page| read(&region, page) == 5));
    }
}

/// Reads another region.
struct Reads(usize);

impl Backing for Reads {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), i32> {
        // SAFETY: a region that is as large and lives longer.
        unsafe {
            std::ptr::copy_nonoverlapping(
                (self.0 + offset as usize) as *const u8,
                buffer.as_mut_ptr(),
                buffer.len(),
            )
        };
        Ok(())
    }
}

/// Each fault that a backing meets takes the place of a signal.
fn set_alternate_stack() {
    let stack = Box::leak(vec![0u8; 64 << 10].into_boxed_slice());
    let stack = libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: stack.len() };
    // SAFETY: memory that is never freed.
    assert_eq!(unsafe { libc::sigaltstack(&stack, std::ptr::null_mut()) }, 0);
}

#[test]
fn a_backing_may_read_another_region() {
    limit();
    for (outer, inner) in MODES.iter().flat_map(|outer| MODES.map(|inner| (*outer, inner))) {
        passes_apart(|| {
            let Some(innermost) = build(inner, Bad(usize::MAX)) else { return };
            let Some(middle) = build(inner, Reads(innermost.as_ptr() as usize)) else { return };
            let Some(region) = build(outer, Reads(middle.as_ptr() as usize)) else { return };
            let barrier = Barrier::new(2);
            thread::scope(|scope| {
                for first in [0, 1] {
                    let (region, barrier) = (&region, &barrier);
                    scope.spawn(move || {
                        set_alternate_stack();
                        barrier.wait();
                        for page in (first..2048).step_by(2) {
                            assert_eq!(read(region, page), page as u8 | 1);
                        }
                    });
                }
            });
        });
    }
}

/// Reads its own region, which is not allowed.
struct Itself(Arc<AtomicUsize>);

impl Backing for Itself {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), i32> {
        let at = self.0.load(Ordering::SeqCst) + (offset as usize + MIB) % (8 * MIB);
        // SAFETY: mapped, but for what it is about to be.
        buffer.fill(unsafe { (at as *const u8).read_volatile() });
        Ok(())
    }
}

#[test]
fn a_backing_that_uses_its_own_region_ends_the_program() {
    let status = apart(|| {
        // With two signals on it, that of a thread of Rust's may be too small.
        set_alternate_stack();
        let at = Arc::new(AtomicUsize::new(0));
        let Some(region) = build(Delivery::Signal, Itself(at.clone())) else {
            // SAFETY: as if it had ended so.
            unsafe { libc::raise(libc::SIGBUS) };
            return;
        };
        at.store(region.as_ptr() as usize, Ordering::SeqCst);
        println!("read {}", read(&region, 0));
    });
    assert_eq!(status.signal(), Some(libc::SIGBUS), "{status}");
}
