//! What is not the region's: memory that the program has put where a part of it was. Nothing that the region does
//! touches that, and what happens there is as without it.

mod apart;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::ptr::null_mut;

use apart::{apart, passes_apart};
use faultless::region::{Advice, Builder, Delivery, Error, Region, Rights};
use faultless_testkit::limit::limit;

const PAGE: usize = 4096;
const SLOT: usize = 2 << 20;
const MIB: usize = 1 << 20;
const MODES: [Delivery; 2] = [Delivery::Thread, Delivery::Signal];

/// `None`: none of this kind can be made.
fn build(builder: Builder) -> Option<Region> {
    match builder.build() {
        Ok(region) => Some(region),
        Err(error @ (Error::NoUserfaultfd(_) | Error::NoEvents(_))) => {
            faultless_testkit::skip(format_args!("{error}"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The program's own memory, where a part of a region was.
fn replace(at: *mut u8, bytes: usize) {
    let (prot, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE);
    // SAFETY: a part of a region that these tests do not use as such any more.
    unsafe {
        assert_eq!(libc::munmap(at.cast(), bytes), 0);
        assert_eq!(libc::mmap(at.cast(), bytes, prot, flags, -1, 0), at.cast());
    }
}

/// The byte at an address, if it can be read.
fn peek(at: *const u8) -> Option<u8> {
    let mut byte = 0u8;
    let local = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let remote = libc::iovec { iov_base: at.cast_mut().cast(), iov_len: 1 };
    // SAFETY: it writes to the byte alone.
    let n = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    (n == 1).then_some(byte)
}

fn write(at: *mut u8, byte: u8) {
    // SAFETY: the tests write to what is mapped.
    unsafe { at.write_volatile(byte) };
}

/// Accesses that follow nothing, until the area is left to the kernel.
fn leave_to_kernel(region: &Region, bytes: usize) {
    let mut x = 12345u64;
    while region.own_count_as(b"region_given_up") == Some(0) {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        write(region.as_ptr().wrapping_add((x >> 33) as usize % (bytes / PAGE) * PAGE), 1);
    }
}

#[test]
fn what_becomes_of_an_area_that_was_left_to_the_kernel_is_known() {
    limit();
    for handlers in [1, 2] {
        let builder = Region::builder(64 * MIB).events(true).handlers(handlers).delivery(Delivery::Thread);
        let Some(region) = build(builder) else { return };
        leave_to_kernel(&region, 64 * MIB);
        let (own, moved) = (region.as_ptr().wrapping_add(32 * MIB), region.as_ptr().wrapping_add(40 * MIB));
        replace(own, 2 * MIB);
        write(own, 0x55);
        // SAFETY: a part that is not used as the region's any more.
        unsafe {
            let at = libc::mremap(
                moved.cast(),
                MIB,
                MIB,
                libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP,
                null_mut::<u8>(),
            );
            assert_ne!(at, libc::MAP_FAILED);
            libc::munmap(at, MIB);
        }
        for part in [32 * MIB..34 * MIB, 40 * MIB..41 * MIB] {
            assert_eq!(region.advise(part.clone(), Advice::DontNeed), Err(Error::Lost));
            assert_eq!(region.unmap(part), Err(Error::Lost));
        }
        // What is the region's still goes to and fro.
        write(region.as_ptr().wrapping_add(63 * MIB), 3);
        region.advise(48 * MIB..64 * MIB, Advice::DontNeed).unwrap();
        assert_eq!(peek(region.as_ptr().wrapping_add(63 * MIB)), Some(0));
        drop(region);
        assert_eq!(peek(own), Some(0x55), "our own memory is gone");
        // SAFETY: not used any more.
        unsafe { libc::munmap(own.cast(), 2 * MIB) };
    }
}

/// From the part of one descriptor to that of another one, and back.
#[test]
fn parts_move_from_descriptor_to_descriptor_with_events() {
    limit();
    for (events, handlers) in [(false, 2), (true, 1), (true, 2), (true, 4)] {
        let builder = Region::builder(8 * MIB).events(events).handlers(handlers).delivery(Delivery::Thread);
        let Some(region) = build(builder) else { return };
        let at = |offset: usize| region.as_ptr().wrapping_add(offset);
        write(at(0), 7);
        write(at(3 * MIB), 8);
        region.unmap(5 * MIB..8 * MIB).unwrap();
        region.remap(0..MIB, 6 * MIB).unwrap();
        assert_eq!((peek(at(3 * MIB)), peek(at(0)), peek(at(6 * MIB))), (Some(8), None, Some(7)));
        // Missing pages are brought there, and over a border, and in the old place when it is mapped again.
        write(at(6 * MIB + 9 * PAGE), 9);
        region.remap(3 * MIB..5 * MIB, 3 * MIB + 3 * MIB + MIB - 2 * MIB).expect_err("something is there");
        region.unmap(6 * MIB + MIB / 2..7 * MIB).unwrap();
        region.remap(6 * MIB..6 * MIB + MIB / 2, 0).unwrap();
        assert_eq!((peek(at(0)), peek(at(9 * PAGE)), peek(at(6 * MIB))), (Some(7), Some(9), None));
        region.map(5 * MIB..8 * MIB, Rights::Write).unwrap();
        write(at(6 * MIB), 4);
        assert_eq!((peek(at(6 * MIB)), peek(at(7 * MIB))), (Some(4), Some(0)));
    }
}

/// While it is served a fault drops no memory of the region: what it has seen there may be a foreign mapping a moment
/// later.
#[test]
fn a_fault_drops_nothing() {
    limit();
    let status = apart(|| {
        let builder = || Region::builder(32 * SLOT).delivery(Delivery::Signal).windows(16 * SLOT, 16 * SLOT);
        let ends = |region: &Region| [0, 32 * SLOT - 1].map(|at| (region.as_ptr() as u64 + at as u64) >> 32);
        // The filter compares the lower halves of addresses alone.
        let made = std::iter::from_fn(|| build(builder())).take(3);
        let Some(region) = made.collect::<Vec<_>>().into_iter().find(|region| ends(region)[0] == ends(region)[1])
        else {
            return;
        };
        let base = region.as_ptr() as usize;
        let code = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
        let load = |at| code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at);
        let equal = |k, jt, jf| code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, jt, jf, k);
        let below = |k, jt, jf| code(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, jf, jt, k);
        let (first, last) = (base as u64, (base + 32 * SLOT - 1) as u64);
        // `madvise` of an address in the region kills.
        let filter = [
            load(0),
            equal(libc::SYS_madvise as u32, 0, 6),
            load(20),
            equal((first >> 32) as u32, 0, 4),
            load(16),
            below(first as u32, 2, 0),
            below(last as u32, 0, 1),
            code(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
            code(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
        // SAFETY: a filter for this thread, and pages of the region.
        unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
            (0..32 * SLOT).step_by(PAGE).for_each(|at| region.as_ptr().add(at).write_volatile(1));
            libc::_exit(0);
        }
    });
    assert!(status.success(), "{status}");
}

/// A file that was cut, mapped where a part of a region was, or beside it: an access is a SIGBUS as ever.
#[test]
fn an_error_in_a_file_of_the_program_is_its_own() {
    for over in [None, Some(false), Some(true)] {
        let status = apart(|| {
            let Some(region) = build(Region::builder(8 * MIB).delivery(Delivery::Signal)) else {
                // SAFETY: as if it had ended so.
                unsafe { libc::raise(libc::SIGBUS) };
                return;
            };
            let at = region.as_ptr().wrapping_add(4 * MIB);
            // The region may have taken it for unmapped, too.
            match over {
                Some(true) => region.unmap(4 * MIB..5 * MIB).unwrap(),
                Some(false) => write(at, 1),
                None => {}
            }
            let file = tempfile::tempfile().unwrap();
            file.set_len(2 * PAGE as u64).unwrap();
            let (at, fixed) = if over.is_some() { (at.cast(), libc::MAP_FIXED) } else { (null_mut(), 0) };
            let own = map(&file, at, fixed);
            file.set_len(0).unwrap();
            // SAFETY: it is an error.
            println!("read {}", unsafe { own.read_volatile() });
        });
        assert_eq!(status.signal(), Some(libc::SIGBUS), "over a part: {over:?}: {status}");
    }
}

fn map(file: &File, at: *mut libc::c_void, fixed: i32) -> *const u8 {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: where the kernel wants, or where the region is not used any more.
    let at = unsafe { libc::mmap(at, 2 * PAGE, prot, libc::MAP_SHARED | fixed, file.as_raw_fd(), 0) };
    assert_ne!(at, libc::MAP_FAILED);
    at.cast()
}

/// The same where it can be read, by an area that is left to the kernel or is not: the region's faults go on.
#[test]
fn a_file_in_the_place_of_a_part_is_used_as_any() {
    for delivery in MODES {
        passes_apart(|| {
            let Some(region) = build(Region::builder(8 * MIB).delivery(delivery)) else { return };
            region.unmap(4 * MIB..5 * MIB).unwrap();
            let file = tempfile::tempfile().unwrap();
            file.set_len(2 * PAGE as u64).unwrap();
            let own = map(&file, region.as_ptr().wrapping_add(4 * MIB).cast(), libc::MAP_FIXED);
            assert_eq!(peek(own), Some(0));
            leave_to_kernel(&region, 3 * MIB);
            write(own.cast_mut(), 5);
            assert_eq!(peek(own), Some(5));
            write(region.as_ptr().wrapping_add(7 * MIB), 6);
            region.check_thread().unwrap();
        });
    }
}
