//! Attributes that a program gives memory by calls of its own end with the memory. The next block at the same addresses
//! is without them, as is what is mapped there next.

use std::fs;
use std::ops::Range;

use faultless::region::{Builder, Delivery, Error, Heap, Region, Rights, Swap};
use faultless_testkit::limit::limit;

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;
const BYTES: usize = 4 * MIB;
/// What a program changes; the kernel makes areas of its own of it.
const PART: Range<usize> = MIB..3 * MIB + PAGE;

const GUARD_INSTALL: i32 = 102;

/// What a program does; whether the kernel knows of it.
type Change = (&'static str, fn(*mut u8, usize) -> bool);

fn madvise(at: *mut u8, bytes: usize, advice: i32) -> bool {
    // SAFETY: memory of the test's own.
    unsafe { libc::madvise(at.cast(), bytes, advice) == 0 }
}

fn mprotect(at: *mut u8, bytes: usize, prot: i32) -> bool {
    // SAFETY: memory of the test's own.
    unsafe { libc::mprotect(at.cast(), bytes, prot) == 0 }
}

/// A policy that prefers the first node.
fn bind(at: *mut u8, bytes: usize) -> bool {
    const PREFERRED: usize = 1;
    let nodes = 1_usize;
    // SAFETY: memory of the test's own.
    unsafe { libc::syscall(libc::SYS_mbind, at, bytes, PREFERRED, &raw const nodes, 64, 0) == 0 }
}

const CHANGES: [Change; 8] = [
    ("wiped in children", |at, bytes| madvise(at, bytes, libc::MADV_WIPEONFORK)),
    ("not in children", |at, bytes| madvise(at, bytes, libc::MADV_DONTFORK)),
    ("not in core dumps", |at, bytes| madvise(at, bytes, libc::MADV_DONTDUMP)),
    ("used in no order", |at, bytes| madvise(at, bytes, libc::MADV_RANDOM)),
    // SAFETY: memory of the test's own.
    ("locked", |at, bytes| unsafe { libc::mlock(at.cast(), bytes) == 0 }),
    ("closed", |at, bytes| mprotect(at, bytes, libc::PROT_NONE)),
    ("bound", bind),
    // Last: the kernel drops pages, of which the region does not know that it has fewer.
    ("guards", |at, bytes| madvise(at, bytes, GUARD_INSTALL)),
];

/// Shared memory with bytes of its own, in the place of what is there.
fn lay_over(at: *mut u8, bytes: usize) -> bool {
    let (prot, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
    // SAFETY: memory of the test's own.
    unsafe {
        let is_there = libc::mmap(at.cast(), bytes, prot, flags, -1, 0) == at.cast();
        at.write_bytes(9, bytes);
        is_there
    }
}

/// What a program does with a block's addresses, and not with its memory.
const TAKEN: [Change; 2] = [
    ("laid over", lay_over),
    // SAFETY: memory of the test's own.
    ("unmapped", |at, bytes| unsafe { libc::munmap(at.cast(), bytes) == 0 }),
];

/// What the kernel says of the area of an address: its rights, how much of it is locked, its flags and policy.
fn account(at: *const u8) -> Vec<String> {
    let at = at as usize;
    let find = |file: &str, is_there: &dyn Fn(&str) -> bool| -> Vec<String> {
        let text = fs::read_to_string(file).unwrap();
        text.lines().skip_while(|line| !is_there(line)).map(str::to_string).collect()
    };
    let has = |line: &str| {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap_or_default();
        let [start, end] = [start, end].map(|hex| usize::from_str_radix(hex, 16).unwrap_or(0));
        (start..end).contains(&at)
    };
    let smaps = find("/proc/self/smaps", &has);
    let field = |name: &str| smaps.iter().find(|line| line.starts_with(name)).unwrap().clone();
    let rights = smaps[0].split(' ').skip(1).collect();
    let start = smaps[0].split('-').next().unwrap();
    // Of a policy that the process has, an area has no line of its own.
    let policy = find("/proc/self/numa_maps", &|line| line.starts_with(start));
    let policy = policy.first().map_or("", |line| line.split(' ').nth(1).unwrap()).to_string();
    vec![rights, field("Locked:"), field("VmFlags:"), policy]
}

/// Fills the memory and changes what the kernel knows of a part; the account of its middle from before. `None`: it cannot
/// be changed here.
fn changed(at: *mut u8, what: &str, change: fn(*mut u8, usize) -> bool) -> Option<Vec<String>> {
    fill(at, 1);
    let plain = account(at.wrapping_add(2 * MIB));
    if !change(at.wrapping_add(PART.start), PART.len()) {
        faultless_testkit::skip(format_args!("{what}: {}", std::io::Error::last_os_error()));
        return None;
    }
    Some(plain)
}

fn pages(at: *mut u8) -> impl Iterator<Item = *mut u8> {
    (0..BYTES).step_by(PAGE).map(move |page| at.wrapping_add(page))
}

fn fill(at: *mut u8, byte: u8) {
    // SAFETY: memory of the test's own.
    pages(at).for_each(|page| unsafe { page.write_volatile(byte) });
}

fn has(at: *mut u8, byte: u8) -> bool {
    // SAFETY: memory of the test's own.
    pages(at).all(|page| unsafe { page.read_volatile() } == byte)
}

/// Whether a forked child has these bytes.
fn child_has(at: *mut u8, byte: u8) -> bool {
    // SAFETY: the child looks at memory and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let code = i32::from(!has(at, byte));
        // SAFETY: ends the child without what the test process does at its end.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: the child of this process.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    status == 0
}

#[test]
fn the_next_block_has_none_of_the_last() {
    limit();
    for delivery in [Delivery::Direct, Delivery::Thread, Delivery::Signal, Delivery::Kernel] {
        for zeroed in [true, false] {
            let heap = Heap::new(move |builder| builder.delivery(delivery).zeroed(zeroed));
            // So that the region stays.
            let _first = match heap.allocate(1) {
                Ok(first) => first,
                Err(Error::NoUserfaultfd(error)) => {
                    faultless_testkit::skip(format_args!("{delivery:?}, error {error}"));
                    continue;
                }
                Err(error) => panic!("{delivery:?}: {error}"),
            };
            for (what, change) in CHANGES.into_iter().chain(TAKEN) {
                let block = heap.allocate(BYTES).unwrap();
                let at = block.as_ptr();
                let middle = at.wrapping_add(2 * MIB);
                let Some(plain) = changed(at, what, change) else { continue };
                drop(block);
                let next = heap.allocate(BYTES).unwrap();
                assert_eq!(next.as_ptr(), at, "{delivery:?}, {what}: its place is lost");
                assert!(!zeroed || has(at, 0), "{delivery:?}, {what}: not zero");
                fill(at, 5);
                assert_eq!(account(middle), plain, "{delivery:?}, {what}");
                assert!(has(at, 5) && child_has(at, 5), "{delivery:?}, {what}");
            }
        }
    }
}

/// A region of zeroes or of other bytes, by all that is kept of it where a part is mapped again.
#[test]
fn what_is_mapped_again_is_as_the_region_was_built() {
    struct Sevens;
    impl faultless::region::Backing for Sevens {
        fn read(&self, _offset: u64, buffer: &mut [u8]) -> Result<(), i32> {
            buffer.fill(7);
            Ok(())
        }
    }
    limit();
    let builder = |delivery| Region::builder(BYTES).delivery(delivery);
    let kinds: [(&str, Builder, u8); 9] = [
        ("direct", builder(Delivery::Direct), 0),
        ("thread", builder(Delivery::Thread), 0),
        ("threads", builder(Delivery::Thread).handlers(2), 0),
        ("signal", builder(Delivery::Signal), 0),
        ("kernel", builder(Delivery::Kernel), 0),
        ("events", builder(Delivery::Thread).events(true), 0),
        ("events and a backing", builder(Delivery::Thread).events(true).backing(Sevens), 7),
        ("a backing", builder(Delivery::Thread).backing(Sevens), 7),
        ("a store", builder(Delivery::Thread).swap(Swap::new(2 * BYTES)), 0),
    ];
    for (kind, builder, byte) in kinds {
        let region = match builder.build() {
            Ok(region) => region,
            Err(error @ (Error::NoUserfaultfd(_) | Error::NoEvents(_) | Error::NoSwap(_))) => {
                faultless_testkit::skip(format_args!("{kind}: {error}"));
                continue;
            }
            Err(error) => panic!("{kind}: {error}"),
        };
        for (what, change) in CHANGES {
            let at = region.as_ptr();
            let middle = at.wrapping_add(2 * MIB);
            let Some(plain) = changed(at, what, change) else { continue };
            region.unmap(0..BYTES).unwrap();
            let is_counted = what != "guards";
            assert!(region.present() == 0 || !is_counted, "{kind}, {what}");
            region.map(0..BYTES, Rights::Write).unwrap();
            assert!(has(at, byte), "{kind}, {what}: other bytes");
            fill(at, 5);
            assert!(has(at, 5), "{kind}, {what}");
            assert_eq!(account(middle), plain, "{kind}, {what}");
            assert!(region.present() == BYTES || !is_counted, "{kind}, {what}");
        }
    }
}

/// Seals a page, so that the kernel unmaps none of what is around it; whether it can.
fn seal(at: *mut u8) -> bool {
    const SYS_MSEAL: i64 = 462;
    // SAFETY: memory of the test's own.
    unsafe { libc::syscall(SYS_MSEAL, at, PAGE, 0) == 0 }
}

#[test]
fn what_cannot_be_mapped_afresh_is_as_before() {
    limit();
    for delivery in [Delivery::Direct, Delivery::Thread, Delivery::Signal, Delivery::Kernel] {
        let region = match Region::builder(BYTES).delivery(delivery).build() {
            Ok(region) => region,
            Err(error) => {
                faultless_testkit::skip(format_args!("{delivery:?}: {error}"));
                continue;
            }
        };
        let at = region.as_ptr();
        fill(at, 3);
        if !seal(at.wrapping_add(MIB)) {
            return faultless_testkit::skip("no mseal");
        }
        assert_eq!(region.unmap(0..BYTES), Err(Error::Kernel(libc::EPERM)), "{delivery:?}");
        assert!(has(at, 3), "{delivery:?}");
        assert_eq!(region.present(), BYTES, "{delivery:?}");
        region.unmap(2 * MIB..BYTES).unwrap();
        assert_eq!(region.present(), 2 * MIB, "{delivery:?}");

        let heap = Heap::new(move |builder| builder.delivery(delivery));
        let block = heap.allocate(BYTES).unwrap();
        let at = block.as_ptr();
        fill(at, 3);
        assert!(seal(at.wrapping_add(MIB)));
        drop(block);
        let next = heap.allocate(BYTES).unwrap();
        assert!(next.as_ptr() != at && has(next.as_ptr(), 0), "{delivery:?}: {next:?}");
    }
}

/// The kernel limits the areas of a process. It makes one of those that are alike.
#[test]
fn free_places_take_no_areas() {
    limit();
    for delivery in [Delivery::Direct, Delivery::Thread, Delivery::Signal, Delivery::Kernel] {
        let heap = Heap::new(move |builder| builder.delivery(delivery));
        let first = match heap.allocate(1) {
            Ok(first) => first,
            Err(error) => {
                faultless_testkit::skip(format_args!("{delivery:?}: {error}"));
                continue;
            }
        };
        let start = first.as_ptr() as usize;
        let areas = || {
            let maps = fs::read_to_string("/proc/self/maps").unwrap();
            let starts = maps.lines().filter_map(|line| usize::from_str_radix(line.split_once('-')?.0, 16).ok());
            starts.filter(|at| (start..start + 41 * 2 * MIB).contains(at)).count()
        };
        let before = areas();
        for round in 0..3 {
            let blocks: Vec<_> = (0..40).map(|_| heap.allocate(MIB).unwrap()).collect();
            // SAFETY: the block's own.
            blocks.iter().for_each(|block| unsafe { block.as_ptr().write_volatile(1) });
            let (even, odd): (Vec<_>, Vec<_>) = blocks.into_iter().enumerate().partition(|(i, _)| i % 2 == 0);
            drop(even);
            drop(odd);
            assert!(areas() <= before + 1, "{delivery:?}, round {round}: {} areas, and {before} before", areas());
        }
    }
}
