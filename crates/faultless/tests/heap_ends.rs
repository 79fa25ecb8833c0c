//! Only a heap that lasts has threads wait for the next block. Alone in its process, whose threads it counts.

use std::fs;

use faultless::region::{Builder, Delivery, Error, Heap};
use faultless_testkit::limit::limit;

fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

#[test]
fn threads_end_with_the_last_block_unless_the_heap_lasts() {
    limit();
    let choose = |builder: Builder| builder.delivery(Delivery::Thread);
    let (passing, lasting) = (Heap::new(choose), Heap::lasting(choose));
    // The thread that makes huge pages ready starts with the first region, and is the process's.
    match passing.allocate(1) {
        Err(Error::NoUserfaultfd(error)) => return faultless_testkit::skip(format_args!("error {error}")),
        first => drop(first.unwrap()),
    }
    let before = threads();
    let blocks = [passing.allocate(1).unwrap(), passing.allocate(1).unwrap()];
    let with_one_region = threads();
    assert!(with_one_region > before);
    let [first, second] = blocks;
    drop(first);
    assert_eq!(threads(), with_one_region);
    drop(second);
    assert_eq!(threads(), before);
    for _ in 0..3 {
        drop(lasting.allocate(1).unwrap());
        assert_eq!(threads(), with_one_region);
    }
}
