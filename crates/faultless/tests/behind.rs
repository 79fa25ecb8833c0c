//! What happens to a region's memory without its knowledge: calls that the program makes itself, for which a
//! userfaultfd could send messages and is not asked to. What follows is what docs/regions.md says.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;

use faultless::region::{Advice, Builder, Delivery, Error, FileBacking, Region, Rights};
use faultless_testkit::alone;
use faultless_testkit::limit::limit;

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;

/// A region of each mode that can be made.
fn each(choose: impl Fn(Builder) -> Builder, test: impl Fn(Region)) {
    limit();
    for delivery in [Delivery::Direct, Delivery::Thread, Delivery::Signal] {
        match choose(Region::builder(8 * MIB).delivery(delivery)).build() {
            Ok(region) => test(region),
            Err(Error::NoUserfaultfd(error)) => {
                faultless_testkit::skip(format_args!("{delivery:?}, error {error}"))
            }
            Err(Error::DirectBacking) => {}
            Err(error) => panic!("{delivery:?}: {error}"),
        }
    }
}

fn read(at: *const u8) -> u8 {
    // SAFETY: the tests read what is mapped.
    unsafe { at.read_volatile() }
}

fn fill(region: &Region, byte: u8) {
    for at in (0..8 * MIB).step_by(PAGE) {
        // SAFETY: all of it is mapped for writing.
        unsafe { region.as_ptr().add(at).write_volatile(byte) };
    }
}

fn madvise(region: &Region, from: usize, bytes: usize, advice: i32) -> Option<i32> {
    // SAFETY: a part of the region, without a reference to it.
    let done = unsafe { libc::madvise(region.as_ptr().add(from).cast(), bytes, advice) };
    if done == 0 { None } else { std::io::Error::last_os_error().raw_os_error() }
}

fn file() -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&vec![9; 8 * MIB]).unwrap();
    file
}

/// Like REMOVE: pages that were dropped are missing, and are brought as when they were first touched.
#[test]
fn dropped_pages_are_fresh_ones() {
    let check = |region: Region, fresh: u8| {
        for (from, bytes) in [(MIB, PAGE), (2 * MIB, 2 * MIB), (5 * MIB + PAGE, 100 * PAGE)] {
            fill(&region, 3);
            assert_eq!(madvise(&region, from, bytes, libc::MADV_DONTNEED), None);
            for at in (0..8 * MIB).step_by(PAGE) {
                let expected = if (from..from + bytes).contains(&at) { fresh } else { 3 };
                assert_eq!(read(region.as_ptr().wrapping_add(at)), expected, "{region:?} at {at:#x}");
            }
            region.advise(0..8 * MIB, Advice::DontNeed).unwrap();
        }
    };
    each(|builder| builder.huge_pages(true), |region| check(region, 0));
    each(|builder| builder.backing(FileBacking::new(file())), |region| check(region, 9));
}

/// The memory is private: there is no hole to be punched into anything.
#[test]
fn holes_cannot_be_punched() {
    each(
        |builder| builder,
        |region| {
            fill(&region, 3);
            assert_eq!(madvise(&region, MIB, MIB, libc::MADV_REMOVE), Some(libc::EINVAL));
            assert!((0..8 * MIB).step_by(PAGE).all(|at| read(region.as_ptr().wrapping_add(at)) == 3));
        },
    );
}

/// Like REMAP: the pages are where they were moved to, and what is missing there is the kernel's business.
#[test]
fn what_is_moved_away_keeps_its_pages_and_is_no_region_s_any_more() {
    let check = |region: Region| {
        for page in 0..100 {
            // SAFETY: mapped for writing.
            unsafe { region.as_ptr().add(2 * MIB + page * PAGE).write_volatile(page as u8 + 1) };
        }
        let before = (0..MIB / PAGE).map(|page| is_there(&region, 2 * MIB + page * PAGE)).collect::<Vec<_>>();
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: a part of the region without a reference to it, moved to addresses that are reserved for it.
        let moved = unsafe {
            let to = libc::mmap(null_mut(), MIB, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
            libc::mremap(region.as_ptr().add(2 * MIB).cast(), MIB, MIB, flags, to).cast::<u8>()
        };
        assert_ne!(moved.cast(), libc::MAP_FAILED);
        for (page, was_there) in before.into_iter().enumerate() {
            // Of a backing, too, what was not there reads as zero.
            let expected = if page < 100 { Some(page as u8 + 1) } else { (!was_there).then_some(0) };
            let found = read(moved.wrapping_add(page * PAGE));
            assert!(expected.is_none_or(|expected| expected == found), "{found} in page {page}");
        }
        assert_eq!(read(region.as_ptr().wrapping_add(4 * MIB)), read(region.as_ptr().wrapping_add(5 * MIB)));
        // The hole is no memory of the region: the region says so, and what is beside it goes on.
        assert_eq!(region.protect(2 * MIB..3 * MIB, Rights::Read), Err(Error::Kernel(libc::ENOMEM)));
        region.unmap(4 * MIB..5 * MIB).unwrap();
        // SAFETY: what was moved, which is not used any more.
        assert_eq!(unsafe { libc::munmap(moved.cast(), MIB) }, 0);
    };
    // What another thread maps in the hole would end with the region.
    alone(|| {
        each(|builder| builder.windows(PAGE, PAGE), check);
        each(|builder| builder.windows(PAGE, PAGE).backing(FileBacking::new(file())), check);
    });
}

fn is_there(region: &Region, at: usize) -> bool {
    let mut there = 0;
    // SAFETY: a page of the region, and a byte for it.
    let done = unsafe { libc::mincore(region.as_ptr().add(at).cast(), PAGE, &mut there) };
    done == 0 && there & 1 != 0
}

/// A region has no more than it may: what a fault brings beyond what was asked for stays within the budget.
#[test]
fn windows_stay_within_the_budget() {
    const BUDGET: usize = 64 << 10;
    each(
        |builder| builder.budget(BUDGET),
        |region| {
            if region.delivery() == Delivery::Direct {
                return;
            }
            for touched in 1..=MIB / PAGE {
                // SAFETY: mapped for writing.
                unsafe { region.as_ptr().add((touched - 1) * PAGE).write_volatile(1) };
                let beyond = (touched..8 * MIB / PAGE).take_while(|page| is_there(&region, page * PAGE)).count();
                assert!(beyond * PAGE <= BUDGET, "{beyond} pages beyond the last, {region:?}");
            }
        },
    );
}

/// The flags of the mapping at an address, as the kernel shows them.
fn flags(at: *const u8) -> String {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut inside = false;
    for line in smaps.lines() {
        if let Some((start, end)) = line.split_once(' ').and_then(|(range, _)| range.split_once('-'))
            && let (Ok(start), Ok(end)) = (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16))
        {
            inside = (start..end).contains(&(at as usize));
        } else if let Some(flags) = line.strip_prefix("VmFlags:")
            && inside
        {
            return flags.to_owned();
        }
    }
    panic!("nothing is mapped at {at:?}");
}

/// The kernel joins like areas. What it joins must not be forgotten, and what the program has said stays.
#[test]
fn a_part_that_moves_leaves_its_neighbours_what_they_were() {
    const ADVICE: [(i32, &str); 4] = [
        (libc::MADV_SEQUENTIAL, " sr"),
        (libc::MADV_RANDOM, " rr"),
        (libc::MADV_DONTDUMP, " dd"),
        (libc::MADV_NORMAL, ""),
    ];
    for (advice, flag) in ADVICE {
        let check = |region: Region, fresh: u8| {
            region.unmap(4 * MIB..6 * MIB).unwrap();
            assert_eq!(madvise(&region, 0, 8 * MIB, advice), None);
            region.remap(0..PAGE, 5 * MIB).unwrap();
            region.map(4 * MIB..5 * MIB, Rights::Write).unwrap();
            region.map(5 * MIB + PAGE..6 * MIB, Rights::Write).unwrap();
            for page in [4 * MIB, 5 * MIB - PAGE, 5 * MIB, 5 * MIB + PAGE, 6 * MIB - PAGE] {
                let at = region.as_ptr().wrapping_add(page);
                assert_eq!(read(at), fresh, "{region:?} at {page:#x}");
                assert!(flags(at).contains(flag), "advice {advice}: {}", flags(at));
            }
            region.populate(4 * MIB..6 * MIB).unwrap();
        };
        each(|builder| builder, |region| check(region, 0));
        each(|builder| builder.backing(FileBacking::new(file())), |region| check(region, 9));
    }
}

/// The program has taken a part by calls of its own: populating says so, in the background as well, and goes on beside.
#[test]
fn populating_what_the_program_has_taken_is_an_error() {
    type Take = fn(*mut libc::c_void) -> bool;
    // SAFETY: a part of a test's region without a reference to it.
    const TAKEN: [Take; 4] = unsafe {
        [
            |at| libc::munmap(at, MIB) == 0,
            |at| libc::mprotect(at, MIB, libc::PROT_NONE) == 0,
            |at| libc::mprotect(at, MIB, libc::PROT_READ) == 0,
            |at| {
                let file = tempfile::tempfile().unwrap();
                file.set_len(PAGE as u64).unwrap();
                let flags = libc::MAP_SHARED | libc::MAP_FIXED;
                libc::mmap(at, MIB, libc::PROT_READ | libc::PROT_WRITE, flags, file.as_raw_fd(), 0) == at
            },
        ]
    };
    let check = |delivery| {
        for (i, take) in TAKEN.into_iter().enumerate() {
            let region = Region::builder(8 * MIB).delivery(delivery).build().unwrap();
            region.advise(0..8 * MIB, Advice::DontNeed).unwrap();
            assert!(take(region.as_ptr().wrapping_add(3 * MIB).cast()), "{i}");
            let refused = region.populate(0..8 * MIB);
            assert!(matches!(refused, Err(Error::Kernel(_))), "{delivery:?}, {i}: {refused:?}");
            let refused = region.populate_in_background(0..8 * MIB).and_then(|work| work.wait());
            assert!(matches!(refused, Err(Error::Kernel(_))), "{delivery:?}, {i}: {refused:?}");
            region.populate(4 * MIB..8 * MIB).unwrap();
            assert!((4 * MIB..8 * MIB).step_by(PAGE).all(|at| is_there(&region, at)));
        }
    };
    // What another thread maps in a hole would end with the region.
    alone(|| {
        limit();
        [Delivery::Direct, Delivery::Kernel].into_iter().for_each(check);
    });
}
