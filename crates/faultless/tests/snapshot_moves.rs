//! Memory that goes while a snapshot has it moves there. A process of its own: a child that another test forks would have
//! the pages, too, and they could not move.

use faultless::region::{Advice, Delivery, Region, Rights, Snapshot};
use faultless_page::stats::Counter;
use faultless_testkit::limit::limit;

const PAGE: usize = 4096;
const SLOT: usize = 2 << 20;
const LENGTH: usize = 8 * SLOT;

fn all(snapshot: &Snapshot) -> Vec<u8> {
    let mut bytes = vec![0xEE; snapshot.len()];
    snapshot.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Small pages and huge ones, in whole and in part, and then what a child has, too.
#[test]
fn memory_that_is_dropped_moves_to_the_snapshot() {
    limit();
    let Ok(mut region) = Region::builder(LENGTH).delivery(Delivery::Thread).build() else {
        return faultless_testkit::skip("no region by thread");
    };
    if !region.serves_system_calls() {
        return faultless_testkit::skip("the kernel does not deliver its own faults");
    }
    region.populate(0..4 * SLOT).unwrap();
    region.advise(4 * SLOT..LENGTH, Advice::NoHuge).unwrap();
    let bytes = region.as_mut_slice().unwrap();
    (0..LENGTH).step_by(PAGE).for_each(|at| bytes[at + 5] = (at / PAGE % 255) as u8 + 1);
    let before = bytes.to_vec();
    let snapshot = region.snapshot().unwrap();
    region.as_mut_slice().unwrap()[3 * PAGE] = 7;
    let count = |counter| Region::counted(counter) as usize;
    let copied = count(Counter::SnapshotCopied);
    region.unmap(0..3 * SLOT).unwrap();
    region.advise(3 * SLOT + PAGE..7 * SLOT, Advice::DontNeed).unwrap();
    assert_eq!([Counter::SnapshotMoved, Counter::SnapshotCopied].map(count), [7 * SLOT - PAGE - copied, copied]);
    assert!(all(&snapshot) == before);
    region.map(0..3 * SLOT, Rights::Write).unwrap();
    let bytes = region.as_mut_slice().unwrap();
    assert!(bytes[..3 * SLOT].iter().chain(&bytes[3 * SLOT + PAGE..7 * SLOT]).all(|byte| *byte == 0));
    let mut ends = [-1; 2];
    // SAFETY: room for two numbers. The child only waits until the parent closes its end, and leaves.
    let child = unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        match libc::fork() {
            0 => {
                libc::close(ends[1]);
                libc::read(ends[0], [0_u8].as_mut_ptr().cast(), 1);
                libc::_exit(0)
            }
            child => child,
        }
    };
    let moved = count(Counter::SnapshotMoved);
    region.unmap(7 * SLOT..LENGTH).unwrap();
    assert_eq!([Counter::SnapshotMoved, Counter::SnapshotCopied].map(count), [moved, copied + SLOT]);
    assert!(all(&snapshot) == before);
    // SAFETY: numbers and a child of this test's own.
    unsafe {
        ends.into_iter().for_each(|end| _ = libc::close(end));
        assert_eq!(libc::waitpid(child, std::ptr::null_mut(), 0), child);
    }
    drop(snapshot);
    region.map(7 * SLOT..LENGTH, Rights::Write).unwrap();
    region.as_mut_slice().unwrap().fill(3);
}
