//! Blocks that share regions: each is zero and its own, many cost no more threads and descriptors than the first, and
//! a forked child has some of its own.

use std::fs;

use faultless::region::{Block, Builder, Delivery, Error, Heap};
use faultless_testkit::limit::limit;
use faultless_testkit::rng::Rng;

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;

/// A heap of each mode that can be made.
fn each(test: impl Fn(Delivery, &'static Heap)) {
    limit();
    for delivery in [Delivery::Direct, Delivery::Thread, Delivery::Signal, Delivery::Kernel] {
        let heap = Heap::new(move |builder: Builder| builder.delivery(delivery));
        match heap.allocate(1) {
            Ok(_) => test(delivery, heap),
            Err(Error::NoUserfaultfd(error)) => {
                faultless_testkit::skip(format_args!("{delivery:?}, error {error}"))
            }
            Err(error) => panic!("{delivery:?}: {error}"),
        }
    }
}

/// The first and the last byte of each page.
fn ends(block: &Block) -> impl Iterator<Item = *mut u8> {
    let pages = (0..block.len()).step_by(PAGE);
    let both = pages.flat_map(|at| [at, (at + PAGE).min(block.len()) - 1]);
    both.map(|at| block.as_ptr().wrapping_add(at))
}

fn fill(block: &Block, with: u8) {
    // SAFETY: the block's own.
    ends(block).for_each(|at| unsafe { at.write_volatile(with) });
}

fn has(block: &Block, what: u8) -> bool {
    // SAFETY: the block's own.
    ends(block).all(|at| unsafe { at.read_volatile() } == what)
}

fn entries(dir: &str) -> usize {
    fs::read_dir(dir).unwrap().count()
}

#[test]
fn blocks_are_zero_and_apart() {
    each(|delivery, heap| {
        let mut random = Rng::new(7);
        let mut blocks: Vec<(Block, u8)> = Vec::new();
        for round in 0..300 {
            if blocks.len() > 12 || (random.below(3) == 0 && !blocks.is_empty()) {
                let (block, mark) = blocks.swap_remove(random.below(blocks.len()));
                assert!(has(&block, mark), "{delivery:?}, round {round}: another block has written to {block:?}");
            } else {
                let block = heap.allocate(1 + random.below(5 * MIB)).unwrap();
                assert_eq!(block.as_ptr() as usize % (2 * MIB), 0);
                assert!(has(&block, 0), "{delivery:?}, round {round}: {block:?} is not zero");
                let mark = 1 + random.below(255) as u8;
                fill(&block, mark);
                blocks.push((block, mark));
            }
        }
        assert!(blocks.iter().all(|(block, mark)| has(block, *mark)));
    });
}

#[test]
fn many_blocks_cost_as_many_threads_and_descriptors_as_one() {
    each(|delivery, heap| {
        let first = heap.allocate(2 * MIB).unwrap();
        fill(&first, 1);
        let before = [entries("/proc/self/task"), entries("/proc/self/fd")];
        // More than there may be regions with signals, or descriptors where `ulimit -n` is 1024.
        let blocks: Vec<_> = (0..1500).map(|_| heap.allocate(PAGE).unwrap()).collect();
        blocks.iter().for_each(|block| fill(block, 2));
        let after = [entries("/proc/self/task"), entries("/proc/self/fd")];
        // Tests run beside each other in this process.
        assert!(
            after[0] < before[0] + 20 && after[1] < before[1] + 20,
            "{delivery:?}: {before:?}, then {after:?}"
        );
        assert!(has(&first, 1) && blocks.iter().all(|block| has(block, 2)));
    });
}

/// The areas of a region are limited. What does not fit goes to another region.
#[test]
fn a_region_that_is_full_gets_a_neighbour() {
    limit();
    let small = Heap::new(|builder| builder.delivery(Delivery::Kernel).areas(8));
    let heap = Heap::new(|builder| builder.delivery(Delivery::Kernel));
    for (heap, count) in [(small, 100), (heap, 17_000)] {
        let blocks: Vec<_> = (0..count).map(|_| heap.allocate(1).unwrap()).collect();
        let some = || blocks.iter().enumerate().step_by(count / 50);
        some().for_each(|(i, block)| fill(block, i as u8));
        assert!(some().all(|(i, block)| has(block, i as u8)));
    }
}

#[test]
fn a_forked_child_has_blocks_of_its_own() {
    each(|delivery, heap| {
        let block = heap.allocate(4 * MIB).unwrap();
        fill(&block, 3);
        // SAFETY: the child uses memory and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut right = has(&block, 3);
            let own = heap.allocate(4 * MIB);
            right &= own.as_ref().is_ok_and(|own| has(own, 0));
            own.iter().for_each(|own| fill(own, 4));
            right &= has(&block, 3);
            drop(block);
            let next = heap.allocate(4 * MIB);
            right &= next.is_ok_and(|next| has(&next, 0)) && own.is_ok_and(|own| has(&own, 4));
            // SAFETY: ends the child without what the test process does at its end.
            unsafe { libc::_exit(i32::from(!right)) };
        }
        let mut status = 0;
        // SAFETY: the child of this process.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "{delivery:?}");
        assert!(has(&block, 3));
    });
}

#[test]
fn a_block_that_is_larger_than_regions_are_has_one_for_itself() {
    limit();
    let heap = Heap::new(|builder| builder.delivery(Delivery::Kernel));
    let block = heap.allocate(65 << 30).unwrap();
    let ends = [block.as_ptr(), block.as_ptr().wrapping_add(block.len() - 1)];
    // SAFETY: the block's own.
    assert!(ends.iter().all(|at| unsafe { at.read_volatile() } == 0));
    assert_eq!(heap.allocate(0).err(), Some(Error::Length));
    assert_eq!(heap.allocate(usize::MAX).err(), Some(Error::Length));
}
