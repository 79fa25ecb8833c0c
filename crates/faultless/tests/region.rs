//! Regions on the kernel, in each delivery mode. Where there is no userfaultfd the tests say so and pass.

mod sevens;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;

use faultless::region::{Advice, Backing, Builder, Delivery, Error, FileBacking, Region, Rights};
use faultless_page::stats::Counter;
use faultless_testkit::limit::limit;
use sevens::Sevens;

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;

/// A region of each mode that can be made.
fn each(length: usize, choose: impl Fn(Builder) -> Builder, test: impl Fn(Region)) {
    limit();
    for delivery in [Delivery::Direct, Delivery::Thread, Delivery::Signal] {
        match choose(Region::builder(length).delivery(delivery)).build() {
            Ok(region) => test(region),
            Err(Error::NoUserfaultfd(error)) => {
                faultless_testkit::skip(format_args!("{delivery:?}, error {error}"))
            }
            Err(Error::DirectBacking) if delivery == Delivery::Direct => {}
            Err(error) => panic!("{delivery:?}: {error}"),
        }
    }
}

fn read(region: &Region, at: usize) -> u8 {
    region.check_thread().unwrap();
    // SAFETY: the tests read what is mapped.
    unsafe { region.as_ptr().add(at).read_volatile() }
}

fn write(region: &Region, at: usize, byte: u8) {
    // SAFETY: the tests write to what is mapped.
    unsafe { region.as_ptr().add(at).write_volatile(byte) }
}

#[test]
fn fresh_memory_is_zero_and_keeps_what_is_written() {
    each(
        9 * MIB,
        |builder| builder.huge_pages(true).windows(PAGE, 8 * MIB),
        |mut region| {
            assert_eq!(region.len(), 9 * MIB);
            let slice = region.as_mut_slice().unwrap();
            for (i, page) in slice.chunks_mut(PAGE).enumerate() {
                assert!(page.iter().all(|byte| *byte == 0), "page {i} is not zero");
                page.fill(i as u8);
            }
            assert!(slice.chunks(PAGE).enumerate().all(|(i, page)| page.iter().all(|byte| *byte == i as u8)));
            region.advise(0..4 * MIB, Advice::DontNeed).unwrap();
            assert_eq!(read(&region, MIB + 5), 0, "dropped memory is zero again");
            assert_eq!(read(&region, 5 * MIB), (5 * MIB / PAGE) as u8);
        },
    );
}

#[test]
fn what_lies_beside_a_part_that_was_moved_comes_from_the_backing() {
    each(
        4 * MIB,
        |builder| builder.backing(Sevens).windows(PAGE, PAGE),
        |region| {
            let (hole, to) = (200 * PAGE..600 * PAGE, 400 * PAGE);
            region.unmap(hole.clone()).unwrap();
            region.protect(600 * PAGE..700 * PAGE, Rights::None).unwrap();
            region.remap(PAGE..11 * PAGE, to).unwrap();
            for part in [hole.start..hole.start + PAGE, to - PAGE..to, to + 10 * PAGE..hole.end] {
                region.map(part.clone(), Rights::Write).unwrap();
                assert_eq!(read(&region, part.start), 7, "{part:?}");
                region.populate(part).unwrap();
            }
            region.protect(600 * PAGE..700 * PAGE, Rights::Read).unwrap();
            assert_eq!(read(&region, 650 * PAGE), 7, "closed meanwhile");
        },
    );
}

#[test]
fn parts_are_mapped_moved_and_protected() {
    each(
        8 * MIB,
        |builder| builder.mapped(false),
        |region| {
            assert_eq!(region.check_thread(), Ok(()));
            region.map(0..2 * MIB, Rights::Write).unwrap();
            assert_eq!(region.map(MIB..3 * MIB, Rights::Write), Err(Error::Mapped));
            assert_eq!(region.protect(0..3 * MIB, Rights::Read), Err(Error::NotMapped));
            assert_eq!(region.map(1..PAGE, Rights::Read), Err(Error::Outside));
            assert_eq!(region.map(8 * MIB..9 * MIB, Rights::Read), Err(Error::Outside));
            (0..512).step_by(3).for_each(|page| write(&region, page * PAGE, page as u8));
            region.remap(MIB..2 * MIB, 5 * MIB).unwrap();
            region.protect(5 * MIB..6 * MIB, Rights::Read).unwrap();
            region.populate(5 * MIB..6 * MIB).unwrap();
            for page in 256..512 {
                let expected = if page % 3 == 0 { page as u8 } else { 0 };
                assert_eq!(read(&region, 4 * MIB + page * PAGE), expected, "page {page}");
            }
            region.map(MIB..2 * MIB, Rights::Write).unwrap();
            assert_eq!(read(&region, 2 * MIB - PAGE), 0, "what was moved away left nothing behind");
            region.unmap(0..8 * MIB).unwrap();
            region.map(0..8 * MIB, Rights::Write).unwrap();
            assert!((0..8 * MIB).step_by(PAGE).all(|at| read(&region, at) == 0));
            region.protect(MIB..2 * MIB, Rights::None).unwrap();
            assert_eq!(region.populate(0..8 * MIB), Err(Error::Rights), "there is no use for its pages");
            assert_eq!(region.populate_in_background(0..8 * MIB).unwrap().wait(), Err(Error::Rights));
        },
    );
}

/// The kernel's accesses to memory that was not touched: they work, or give the documented error.
#[test]
fn system_calls_meet_untouched_memory() {
    each(
        4 * MIB,
        |builder| builder,
        |region| {
            let mut pipe = [0; 2];
            // SAFETY: two descriptors of the test's own, for which files answer from then on.
            let (mut from, mut to) = unsafe {
                assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
                (File::from_raw_fd(pipe[0]), File::from_raw_fd(pipe[1]))
            };
            to.write_all(&[7; 100]).unwrap();
            let error = |got: i64| {
                if got >= 0 { None } else { std::io::Error::last_os_error().raw_os_error() }
            };
            let expected = if region.serves_system_calls() { None } else { Some(libc::EFAULT) };
            // SAFETY: parts of the region, mapped for reading and writing.
            unsafe {
                let (at, fd) = (region.as_ptr().add(MIB), pipe[1]);
                assert_eq!(error(libc::syscall(libc::SYS_write, fd, at, 5)), expected, "{region:?}");
                assert_eq!(error(libc::syscall(libc::SYS_ioctl, fd, libc::FIONREAD, at.add(MIB))), expected);
                assert_eq!(error(libc::syscall(libc::SYS_getrandom, at.add(PAGE), 5, 0)), expected);
            }
            // SAFETY: 100 bytes of the region, mapped for writing.
            let got = unsafe {
                let buffer = region.as_ptr().add(3 * MIB);
                libc::syscall(libc::SYS_read, pipe[0], buffer, 100)
            };
            if region.serves_system_calls() {
                assert_eq!(got, 100, "{region:?}: {}", std::io::Error::last_os_error());
                assert_eq!(read(&region, 3 * MIB + 99), 7);
            } else {
                assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EFAULT));
                region.populate(0..4 * MIB).unwrap();
                // SAFETY: as above.
                let buffer = unsafe { std::slice::from_raw_parts_mut(region.as_ptr().add(3 * MIB), 100) };
                from.read_exact(buffer).unwrap();
                assert_eq!(buffer, [7; 100]);
            }
        },
    );
}

#[test]
fn a_backing_is_read_when_it_is_needed() {
    let mut file = tempfile::tempfile().unwrap();
    let bytes: Vec<u8> = (0..3 * MIB + 100).map(|i| (i / PAGE) as u8 ^ (i % 251) as u8).collect();
    file.write_all(&bytes).unwrap();
    each(
        4 * MIB,
        |builder| builder.backing(FileBacking::new(file.try_clone().unwrap())),
        |mut region| {
            region.unmap(MIB..2 * MIB).unwrap();
            region.map(MIB..2 * MIB, Rights::Write).unwrap();
            let slice = region.as_mut_slice().unwrap();
            assert!(slice[..bytes.len()] == bytes, "not what the file has");
            assert!(slice[bytes.len()..].iter().all(|byte| *byte == 0), "not zero behind the end");
            slice[5] = 77;
            assert_eq!(read(&region, 5), 77);
        },
    );
    let mut first = [0; 6];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut first, 0).unwrap();
    assert_eq!(first[5], bytes[5], "what is written stays in the region");
}

#[test]
fn several_handlers_share_a_region() {
    limit();
    let Ok(mut region) = Region::builder(33 * MIB).delivery(Delivery::Thread).handlers(4).build() else {
        return faultless_testkit::skip("no thread delivery");
    };
    let mut parts: Vec<_> = region.as_mut_slice().unwrap().chunks_mut(5 * MIB).collect();
    std::thread::scope(|scope| {
        for (i, part) in parts.iter_mut().enumerate() {
            scope.spawn(move || {
                for page in part.chunks_mut(PAGE) {
                    assert!(page.iter().all(|byte| *byte == 0));
                    page.fill(i as u8 + 1);
                }
            });
        }
    });
    for (i, part) in parts.iter().enumerate() {
        assert!(part.iter().all(|byte| *byte == i as u8 + 1));
    }
    drop(parts);
    region.remap(0..17 * MIB, 17 * MIB).unwrap_err();
    region.unmap(17 * MIB..33 * MIB).unwrap();
    region.remap(MIB..16 * MIB, 18 * MIB).unwrap();
    assert_eq!(read(&region, 18 * MIB), 1);
    assert_eq!(read(&region, 33 * MIB - 1), 4, "over the border of two handlers");
}

#[test]
fn slices_are_refused_where_something_is_missing() {
    let mut region = Region::builder(4 * MIB).delivery(Delivery::Direct).build().unwrap();
    region.protect(MIB..2 * MIB, Rights::Read).unwrap();
    assert_eq!(region.as_mut_slice().err(), Some(Error::Rights));
    // SAFETY: no thread changes the region.
    assert_eq!(unsafe { region.as_slice() }.unwrap().len(), 4 * MIB);
    region.unmap(2 * MIB..3 * MIB).unwrap();
    assert_eq!(region.as_mut_slice().err(), Some(Error::NotMapped));
    assert_eq!(Region::anonymous(0).err(), Some(Error::Length));
    assert_eq!(Region::anonymous(usize::MAX).err(), Some(Error::Length));
    struct Nothing;
    impl Backing for Nothing {
        fn read(&self, _: u64, _: &mut [u8]) -> Result<(), i32> {
            Ok(())
        }
    }
    let direct = Region::builder(MIB).delivery(Delivery::Direct).backing(Nothing);
    assert_eq!(direct.build().err(), Some(Error::DirectBacking));
}

#[test]
fn the_knob_turns_speculation_off() {
    limit();
    let Ok(region) = Region::builder(4 * MIB).delivery(Delivery::Signal).windows(PAGE, PAGE).build() else {
        return faultless_testkit::skip("no signal delivery");
    };
    let counted = || Region::counted(Counter::SpeculativePgfault);
    let before = counted();
    write(&region, 0, 1);
    assert!(counted() > before, "off from the start");
    // Other tests of this process may fault meanwhile, but not so often in so few steps each time.
    let classic = (0..100).any(|i| {
        faultless::region::set_speculative(false);
        let before = counted();
        write(&region, (i + 1) * PAGE, 1);
        counted() == before
    });
    faultless::region::set_speculative(true);
    assert!(classic, "still speculative");
}

/// A region whose backing cannot be read: the access fails, it does not read zeroes. The errors name the way out.
#[test]
fn errors_say_what_to_do() {
    for error in [Error::Mapped, Error::NotMapped, Error::NoUserfaultfd(1), Error::SigbusBlocked, Error::Forked] {
        let text = error.to_string();
        assert!(text.contains(": ") && text.len() > 40, "{text}");
    }
}

/// What is done to serve a fault by a signal is not seen by the program that it interrupts.
#[test]
fn a_fault_leaves_errno_alone() {
    struct Fails;
    impl Backing for Fails {
        fn read(&self, _offset: u64, buffer: &mut [u8]) -> Result<(), i32> {
            // SAFETY: no descriptor.
            unsafe { libc::close(-1) };
            buffer.fill(1);
            Ok(())
        }
    }
    let errno = || std::io::Error::last_os_error().raw_os_error();
    each(
        MIB,
        |builder| builder.backing(Fails).windows(PAGE, PAGE),
        |region| {
            // SAFETY: this thread's own.
            unsafe { *libc::__errno_location() = libc::ENOTTY };
            // SAFETY: mapped.
            assert_eq!(unsafe { region.as_ptr().add(9 * PAGE).read_volatile() }, 1);
            assert_eq!(errno(), Some(libc::ENOTTY));
        },
    );
}

#[test]
fn locked_memory_is_dropped_too() {
    each(
        4 * MIB,
        |builder| builder,
        |region| {
            (0..4 * MIB).step_by(PAGE).for_each(|at| write(&region, at, 1));
            // SAFETY: pages of the region, which are there.
            if unsafe { libc::mlock(region.as_ptr().cast(), 64 * PAGE) } != 0 {
                return faultless_testkit::skip("memory cannot be locked");
            }
            region.advise(0..PAGE, Advice::DontNeed).unwrap();
            assert_eq!([0, PAGE].map(|at| read(&region, at)), [0, 1]);
            region.unmap(0..32 * PAGE).unwrap();
            region.map(0..32 * PAGE, Rights::Write).unwrap();
            assert_eq!([PAGE, 32 * PAGE].map(|at| read(&region, at)), [0, 1]);
        },
    );
}

#[test]
fn choices_without_bounds_are_met() {
    let areas = |areas| Region::builder(MIB).areas(areas).build().err();
    assert_eq!([usize::MAX, usize::MAX / 2, 1 << 58].map(areas), [Some(Error::NoAddressSpace); 3]);
    let region = Region::builder(MIB).windows(usize::MAX, usize::MAX).budget(usize::MAX).build().unwrap();
    assert_eq!(region.remap(0..PAGE, usize::MAX - PAGE + 1), Err(Error::Outside));
    #[expect(clippy::reversed_empty_ranges, reason = "this is what is tested")]
    let backward = 3 * PAGE..PAGE;
    assert_eq!(region.remap(backward.clone(), 8 * PAGE), Err(Error::Outside));
    assert_eq!(region.unmap(backward.clone()), Err(Error::Outside));
    assert_eq!(region.populate_in_background(backward).err(), Some(Error::Outside));
    assert_eq!(region.populate(PAGE..usize::MAX), Err(Error::Outside));
    let small = Region::builder(5000).build().unwrap();
    assert_eq!(small.populate(0..2 * PAGE), Ok(()));
    assert_eq!(small.populate(2 * PAGE..3 * PAGE), Err(Error::Outside));
    // What would move there could not be moved back.
    small.unmap(PAGE..2 * PAGE).unwrap();
    for to in [2 * PAGE, MIB, 2 * MIB - PAGE, 2 * MIB, usize::MAX - PAGE + 1] {
        assert_eq!(small.remap(0..PAGE, to), Err(Error::Outside), "{to:#x}");
    }
    assert_eq!(small.remap(0..PAGE, PAGE), Ok(()));
    let reservation = faultless::reserve(usize::MAX).unwrap();
    reservation.cancel();
    assert!(reservation.bytes() > usize::MAX / 2);
    faultless::release_reserved();
}

/// Where the kernel brings pages, advice about huge ones is the kernel's.
#[test]
fn direct_delivery_passes_advice_about_huge_pages_on() {
    let build =
        |huge| Region::builder(4 * MIB).delivery(Delivery::Direct).huge_pages(huge).mapped(false).build().unwrap();
    let has = |region: &Region, at: usize, flag: &str| {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let around = |line: &&str| {
            let bounds = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
            let bounds = bounds.map(|(a, b)| (usize::from_str_radix(a, 16), usize::from_str_radix(b, 16)));
            let at = region.as_ptr() as usize + at;
            matches!(bounds, Some((Ok(start), Ok(end))) if (start..end).contains(&at))
        };
        let mut lines = smaps.lines().skip_while(|line| !around(line));
        lines.find(|line| line.starts_with("VmFlags:")).unwrap().split(' ').any(|word| word == flag)
    };
    for huge in [true, false] {
        let region = build(huge);
        assert!(has(&region, 0, if huge { "hg" } else { "nh" }));
        region.map(0..4 * MIB, Rights::Read).unwrap();
        region.advise(2 * MIB..4 * MIB, if huge { Advice::NoHuge } else { Advice::Huge }).unwrap();
        assert_eq!((has(&region, 0, "hg"), has(&region, 2 * MIB, "hg")), (huge, !huge));
    }
}
