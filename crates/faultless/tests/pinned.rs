//! Snapshots of a process that has pinned memory. In a process of its own: no other test's snapshots may be refused.

use std::thread;

use faultless::region::{Delivery, Error, Region};
use faultless_testkit::limit::limit;

const SLOT: usize = 2 << 20;

/// A device writes to registered buffers past the page tables: as long as there are any, no snapshot is taken.
#[test]
fn registered_buffers_are_refused() {
    limit();
    let mut region = match Region::builder(2 * SLOT).delivery(Delivery::Thread).build() {
        Ok(region) if region.serves_system_calls() => region,
        _ => return faultless_testkit::skip("no region of which snapshots can be had"),
    };
    region.as_mut_slice().unwrap()[..SLOT].fill(1);
    let Ok(ring) = io_uring::IoUring::new(2) else { return faultless_testkit::skip("no io_uring") };
    let buffer = libc::iovec { iov_base: region.as_ptr().cast(), iov_len: SLOT };
    // SAFETY: memory that lives as long as the ring.
    unsafe { ring.submitter().register_buffers(&[buffer]) }.unwrap();
    assert!(matches!(region.snapshot(), Err(Error::NoSnapshots(why)) if why.contains("pinned")));
    ring.submitter().unregister_buffers().unwrap();
    // The kernel may let go of it a moment later.
    let snapshot = loop {
        match region.snapshot() {
            Ok(snapshot) => break snapshot,
            Err(_) => thread::yield_now(),
        }
    };
    region.as_mut_slice().unwrap()[..SLOT].fill(2);
    let mut bytes = vec![0; SLOT];
    snapshot.read_at(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 1));
}
