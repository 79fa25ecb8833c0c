//! A machine with several nodes: pages of a region lie where the kernel alone would put them. Each case is checked for
//! the kernel's own delivery, too, which says whether the case itself is right. `cargo xtask nodes` runs this in a
//! machine with two nodes; on others there is nothing to see.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::thread;

use faultless::region::{Advice, Backing, Builder, Delivery, Error, Region};
use faultless_testkit::limit::limit;

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;
const BYTES: usize = 8 * MIB;

/// Modes of policies, as `linux/mempolicy.h` has them.
const DEFAULT: i32 = 0;
const PREFERRED: i32 = 1;
const BIND: i32 = 2;
const INTERLEAVE: i32 = 3;
const LOCAL: i32 = 4;

/// A processor of each of two nodes, with the node's number.
fn two() -> Option<[(usize, i32); 2]> {
    limit();
    let node = |node: i32| {
        let list = fs::read_to_string(format!("/sys/devices/system/node/node{node}/cpulist")).ok()?;
        let first: String = list.chars().take_while(char::is_ascii_digit).collect();
        Some((first.parse().ok()?, node))
    };
    match (node(0), node(1)) {
        (Some(first), Some(second)) => Some([first, second]),
        _ => {
            faultless_testkit::skip_optional("the machine has one node");
            None
        }
    }
}

/// A region of each delivery that there is, with small pages one at a time, or with windows and huge pages.
fn each(builder: impl Fn() -> Builder, test: impl Fn(&Region)) {
    for delivery in [Delivery::Kernel, Delivery::Signal, Delivery::Thread] {
        match builder().delivery(delivery).build() {
            Ok(region) => {
                eprintln!("{delivery:?}");
                test(&region);
            }
            Err(Error::DirectBacking | Error::NoEvents(_)) => {}
            Err(error) => panic!("{delivery:?}: {error}"),
        }
    }
}

fn small() -> Builder {
    Region::builder(BYTES).windows(PAGE, PAGE).huge_pages(false)
}

/// Does something in a new thread on this processor.
fn on<R: Send>(cpu: usize, work: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| {
        scope
            .spawn(|| {
                go(cpu);
                work()
            })
            .join()
            .unwrap()
    })
}

fn go(cpu: usize) {
    // SAFETY: a set of this function's own.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}

/// Gives the calling thread a policy, for nodes of a mask.
fn set_policy(mode: i32, nodes: u64) {
    let at = if nodes == 0 { null_mut() } else { &raw const nodes };
    // SAFETY: a word for the mask.
    assert_eq!(unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, at, 64) }, 0);
}

/// Gives a part of a region one.
fn set_policy_of(region: &Region, from: usize, bytes: usize, mode: i32, nodes: u64) {
    let at = if nodes == 0 { null_mut() } else { &raw const nodes };
    let from = region.as_ptr().wrapping_add(from);
    // SAFETY: a part of the region, and a word for the mask.
    assert_eq!(unsafe { libc::syscall(libc::SYS_mbind, from, bytes, mode, at, 64, 0) }, 0);
}

/// Writes to each page of a part, or to each second one.
fn touch(region: &Region, from: usize, bytes: usize, step: usize) {
    let at = region.as_ptr() as usize + from;
    // SAFETY: mapped for writing, and no reference to it exists.
    (at..at + bytes).step_by(step).for_each(|page| unsafe { (page as *mut u8).write_volatile(1) });
}

/// The node of each page of a part.
fn nodes(region: &Region, from: usize, bytes: usize) -> Vec<i32> {
    let start = region.as_ptr() as usize + from;
    let pages: Vec<usize> = (start..start + bytes).step_by(PAGE).collect();
    let mut nodes = vec![-1i32; pages.len()];
    // SAFETY: without target nodes the call only says where pages are; room for the answers.
    let asked = unsafe {
        let no_nodes = null_mut::<i32>();
        libc::syscall(libc::SYS_move_pages, 0, pages.len(), pages.as_ptr(), no_nodes, nodes.as_mut_ptr(), 0)
    };
    assert_eq!(asked, 0);
    nodes
}

#[track_caller]
fn all_lie_on(node: i32, region: &Region, from: usize, bytes: usize) {
    let nodes = nodes(region, from, bytes);
    let wrong = nodes.iter().filter(|other| **other != node).count();
    assert_eq!(wrong, 0, "of {} pages, not on node {node}: {:?}", nodes.len(), &nodes[..8]);
}

#[test]
fn each_page_lies_where_its_thread_ran() {
    let Some(two) = two() else { return };
    each(small, |region| {
        for turn in 0..16 {
            let (cpu, node) = two[turn % 2];
            let from = turn * 16 * PAGE;
            on(cpu, || touch(region, from, 16 * PAGE, PAGE));
            all_lie_on(node, region, from, 16 * PAGE);
        }
        // Of one thread that moves, too.
        let from = BYTES / 2;
        thread::scope(|scope| {
            let walk = || {
                for page in 0..64 {
                    let (cpu, _) = two[page % 2];
                    go(cpu);
                    touch(region, from + page * PAGE, PAGE, PAGE);
                }
            };
            scope.spawn(walk);
        });
        let nodes = nodes(region, from, 64 * PAGE);
        assert!((0..64).all(|page| nodes[page] == two[page % 2].1), "{nodes:?}");
    });
}

/// Threads on both nodes at the same time, each in pages of its own.
#[test]
fn threads_at_the_same_time_have_their_own() {
    let Some(two) = two() else { return };
    each(small, |region| {
        thread::scope(|scope| {
            for (side, (cpu, _)) in two.into_iter().enumerate() {
                scope.spawn(move || {
                    go(cpu);
                    touch(region, side * PAGE, 4 * MIB, 2 * PAGE);
                });
            }
        });
        let nodes = nodes(region, 0, 4 * MIB);
        let wrong = (0..nodes.len()).filter(|page| nodes[*page] != two[page % 2].1).count();
        assert_eq!(wrong, 0, "of {}", nodes.len());
    });
}

/// Windows and huge pages; and frames that one region leaves behind, which lie on the node of the last one.
#[test]
fn streams_lie_where_their_threads_ran() {
    let Some(two) = two() else { return };
    for zeroed in [true, false] {
        for turn in 0..4 {
            each(
                || Region::builder(4 * BYTES).zeroed(zeroed),
                |region| {
                    let (cpu, node) = two[turn % 2];
                    on(cpu, || touch(region, 0, 4 * BYTES, PAGE));
                    all_lie_on(node, region, 0, 4 * BYTES);
                    region.advise(0..2 * BYTES, Advice::DontNeed).unwrap();
                    let (cpu, node) = two[(turn + 1) % 2];
                    on(cpu, || touch(region, 0, 2 * BYTES, PAGE));
                    all_lie_on(node, region, 0, 2 * BYTES);
                },
            );
        }
    }
}

/// A thread's own policy, which it changes between two faults.
#[test]
fn a_thread_has_its_memory_where_it_says() {
    let Some([(here, own), (there, other)]) = two() else { return };
    let (first, second) = (1 << own, 1 << other);
    each(small, |region| {
        on(here, || {
            let policies = [
                (BIND, second, other),
                (DEFAULT, 0, own),
                (PREFERRED, second, other),
                (LOCAL, 0, own),
                (BIND, first | second, own),
                (BIND, first, own),
                (DEFAULT, 0, own),
            ];
            for (i, (mode, mask, node)) in policies.into_iter().enumerate() {
                let from = i * 16 * PAGE;
                set_policy(mode, mask);
                touch(region, from, 16 * PAGE, PAGE);
                // Another thread without a policy.
                on(there, || {
                    set_policy(DEFAULT, 0);
                    touch(region, from + 4 * MIB, 16 * PAGE, PAGE);
                });
                all_lie_on(node, region, from, 16 * PAGE);
                all_lie_on(other, region, from + 4 * MIB, 16 * PAGE);
            }
            set_policy(INTERLEAVE, first | second);
            let from = 2 * MIB;
            touch(region, from, 128 * PAGE, PAGE);
            let nodes = nodes(region, from, 128 * PAGE);
            assert_eq!(nodes.iter().filter(|node| **node == own).count(), 64, "{nodes:?}");
        });
    });
    // With windows and huge pages, and frames of its own node at hand.
    each(
        || Region::builder(4 * BYTES),
        |region| {
            on(here, || {
                touch(region, 0, 4 * BYTES, PAGE);
                region.advise(0..4 * BYTES, Advice::DontNeed).unwrap();
                set_policy(BIND, second);
                touch(region, 0, 4 * BYTES, PAGE);
                all_lie_on(other, region, 0, 4 * BYTES);
            });
        },
    );
}

/// The policy of a part of a region comes before that of the thread.
#[test]
fn a_part_has_its_memory_where_it_says() {
    let Some([(here, own), (_, other)]) = two() else { return };
    each(small, |region| {
        set_policy_of(region, 0, MIB, BIND, 1 << other);
        set_policy_of(region, MIB, MIB, LOCAL, 0);
        on(here, || {
            touch(region, 0, 16 * PAGE, PAGE);
            set_policy(BIND, 1 << other);
            touch(region, MIB, 16 * PAGE, PAGE);
            touch(region, 2 * MIB, 16 * PAGE, PAGE);
        });
        all_lie_on(other, region, 0, 16 * PAGE);
        all_lie_on(own, region, MIB, 16 * PAGE);
        all_lie_on(other, region, 2 * MIB, 16 * PAGE);
    });
    each(
        || Region::builder(4 * BYTES),
        |region| {
            set_policy_of(region, BYTES, BYTES, BIND, 1 << other);
            on(here, || touch(region, 0, 4 * BYTES, PAGE));
            all_lie_on(own, region, 0, BYTES);
            all_lie_on(other, region, BYTES, BYTES);
            all_lie_on(own, region, 2 * BYTES, 2 * BYTES);
        },
    );
}

/// A forked child on another node: its parent's region, and one of its own.
#[test]
fn a_child_has_its_memory_where_it_runs() {
    let Some([(here, own), (there, other)]) = two() else { return };
    each(small, |region| {
        on(here, || touch(region, 0, 16 * PAGE, PAGE));
        // SAFETY: the child makes a region, touches memory and ends.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                let alone = || {
                    go(there);
                    touch(region, MIB, 16 * PAGE, PAGE);
                    all_lie_on(other, region, MIB, 16 * PAGE);
                    let mine = small().delivery(region.delivery()).build().unwrap();
                    touch(&mine, 0, 16 * PAGE, PAGE);
                    all_lie_on(other, &mine, 0, 16 * PAGE);
                    go(here);
                    touch(&mine, MIB, 16 * PAGE, PAGE);
                    all_lie_on(own, &mine, MIB, 16 * PAGE);
                };
                libc::_exit(catch_unwind(AssertUnwindSafe(alone)).is_err() as i32);
            }
            let mut status = -1;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            status
        };
        assert_eq!(status, 0);
        on(there, || touch(region, MIB, 16 * PAGE, PAGE));
        all_lie_on(own, region, 0, 16 * PAGE);
        all_lie_on(other, region, MIB, 16 * PAGE);
    });
}

struct Ones;

impl Backing for Ones {
    fn read(&self, _offset: u64, buffer: &mut [u8]) -> Result<(), i32> {
        buffer.fill(1);
        Ok(())
    }
}

/// What a backing has, and with messages about what the program does; and calls of the kernel's on memory that was not
/// touched.
#[test]
fn other_regions_too() {
    let Some(two) = two() else { return };
    let calls = |region: &Region| {
        for (i, (cpu, node)) in two.into_iter().enumerate() {
            let from = i * 16 * PAGE;
            let read = || {
                let zeroes = fs::File::open("/dev/zero").unwrap();
                let at = region.as_ptr().wrapping_add(from).cast();
                // SAFETY: mapped for writing.
                let got = unsafe { libc::read(std::os::fd::AsRawFd::as_raw_fd(&zeroes), at, 16 * PAGE) };
                assert_eq!(got, 16 * PAGE as isize);
            };
            match region.serves_system_calls() {
                true => on(cpu, read),
                false => on(cpu, || touch(region, from, 16 * PAGE, PAGE)),
            }
            all_lie_on(node, region, from, 16 * PAGE);
        }
    };
    each(|| small().backing(Ones), calls);
    each(|| small().events(true), calls);
    each(|| small().events(true).backing(Ones), calls);
    each(|| small().handlers(2), calls);
    each(small, calls);
}
