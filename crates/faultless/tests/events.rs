//! Events: what the program does to a region's memory by calls of its own, with a region that is told of it. Each
//! test ends the program if it takes much too long, because a mistake here is that a thread waits for ever.

mod told;

use std::thread;

use faultless::region::{Advice, Delivery, Error, Region, Rights};
use told::{BYTES, MIB, PAGE, ROUNDS, beside, each, forked, mremap, munmap, read, write};

#[test]
fn what_is_unmapped_is_known_at_once() {
    each(|region, fresh| {
        beside(&region, fresh, || {
            for round in 0..ROUNDS {
                let part = round * 17 * PAGE..(round * 17 + 5) * PAGE;
                let at = region.as_ptr().wrapping_add(part.start);
                write(at, 1);
                munmap(at, part.len());
                assert_eq!(region.protect(part.clone(), Rights::Read), Err(Error::Lost));
                assert_eq!(region.advise(part.end - PAGE..part.end + PAGE, Advice::DontNeed), Err(Error::Lost));
                assert_eq!(region.remap(part.end..part.end + PAGE, part.start), Err(Error::Lost));
                region.advise(part.end..part.end + PAGE, Advice::DontNeed).unwrap();
                assert_eq!(read(at.wrapping_add(part.len())), fresh(part.end));
            }
        });
        // SAFETY: there is no slice.
        assert_eq!(unsafe { region.as_slice() }.err(), Some(Error::Lost));
        // A foreign mapping that is there now stays when the region ends.
        // SAFETY: nothing is mapped there.
        let other = unsafe {
            let (prot, flags) =
                (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE);
            libc::mmap(region.as_ptr().cast(), PAGE, prot, flags, -1, 0).cast::<u8>()
        };
        assert_eq!(other, region.as_ptr());
        drop(region);
        assert_eq!(read(other), 0);
        munmap(other, PAGE);
    });
}

#[test]
fn what_is_dropped_is_not_counted_and_comes_again() {
    each(|region, fresh| {
        beside(&region, fresh, || {
            for round in 0..ROUNDS {
                let at = region.as_ptr().wrapping_add(MIB);
                (0..MIB).step_by(PAGE).for_each(|page| write(at.wrapping_add(page), 7));
                // SAFETY: there is no reference to it.
                assert_eq!(unsafe { libc::madvise(at.cast(), MIB, libc::MADV_DONTNEED) }, 0);
                let page = round % 256 * PAGE;
                assert_eq!(read(at.wrapping_add(page)), fresh(MIB + page));
            }
        });
        region.advise(0..BYTES, Advice::DontNeed).unwrap();
        assert_eq!(region.present(), 0);
        (0..MIB).step_by(PAGE).for_each(|page| write(region.as_ptr().wrapping_add(page), 7));
        let before = region.present();
        assert!(before >= MIB);
        // SAFETY: as above.
        assert_eq!(unsafe { libc::madvise(region.as_ptr().cast(), MIB / 2, libc::MADV_DONTNEED) }, 0);
        assert_eq!(region.present(), before - MIB / 2);
    });
}

#[test]
fn what_is_moved_away_is_served_where_it_is() {
    each(|region, fresh| {
        beside(&region, fresh, || {
            let mut places = Vec::new();
            for round in 0..ROUNDS {
                let from = round * 32 * PAGE;
                write(region.as_ptr().wrapping_add(from + 3 * PAGE), 252);
                let mut at = mremap(region.as_ptr().wrapping_add(from), 16 * PAGE);
                assert_eq!(region.populate(from..from + PAGE), Err(Error::Lost));
                if round % 3 == 0 {
                    // A part of it, once more.
                    at = mremap(at.wrapping_add(2 * PAGE), 14 * PAGE).wrapping_sub(2 * PAGE);
                }
                places.push((from, at));
            }
            for (from, at) in places {
                for page in 2..16 {
                    let expected = if page == 3 { 252 } else { fresh(from + page * PAGE) };
                    assert_eq!(read(at.wrapping_add(page * PAGE)), expected, "page {page} of {from:#x}");
                    write(at.wrapping_add(page * PAGE), 253);
                }
                munmap(at.wrapping_add(2 * PAGE), 14 * PAGE);
            }
        });
        // What is left behind when the region ends is never zero that is none.
        let left = mremap(region.as_ptr().wrapping_add(5 * MIB), MIB);
        write(left, 9);
        drop(region);
        assert_eq!(read(left), 9);
        let status = forked(|| read(left.wrapping_add(MIB - PAGE)) == 0);
        assert!(if fresh(0) == 0 { status == 0 } else { libc::WTERMSIG(status) == libc::SIGBUS }, "{status}");
        munmap(left, MIB);
    });
}

/// The region's own changes make the same messages.
#[test]
fn own_changes_lose_nothing() {
    each(|region, fresh| {
        beside(&region, fresh, || {
            for round in 0..ROUNDS {
                let (one, other) = (0..MIB, 2 * MIB..3 * MIB);
                let byte = round as u8 | 1;
                write(region.as_ptr().wrapping_add(one.start + round * PAGE), byte);
                region.unmap(other.clone()).unwrap();
                region.remap(one.clone(), other.start).unwrap();
                assert_eq!(read(region.as_ptr().wrapping_add(other.start + round * PAGE)), byte);
                assert_eq!(read(region.as_ptr().wrapping_add(other.start + 255 * PAGE)), fresh(255 * PAGE));
                region.map(one, Rights::Write).unwrap();
            }
        });
        assert_eq!(region.advise(0..BYTES, Advice::DontNeed), Ok(()));
    });
}

/// The other modes have none, and neither has a process that may not.
#[test]
fn events_that_cannot_be_had_are_refused() {
    for delivery in [Delivery::Direct, Delivery::Signal] {
        let error = Region::builder(MIB).events(true).delivery(delivery).build().err();
        assert_eq!(error, Some(Error::NoEvents(libc::EOPNOTSUPP)));
    }
    let unprivileged = || {
        const NOBODY: usize = 65534;
        // SAFETY: by the system call itself, of this thread alone.
        let done = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
        (done == 0).then(|| Region::builder(MIB).events(true).build().err())
    };
    match thread::spawn(unprivileged).join().unwrap() {
        None => faultless_testkit::skip("this user cannot become another one"),
        Some(Some(Error::NoUserfaultfd(error))) => {
            faultless_testkit::skip(format_args!("no userfaultfd, error {error}"))
        }
        Some(error) => {
            assert_eq!(error, Some(Error::NoEvents(libc::EPERM)));
            assert!(error.unwrap().to_string().contains("CAP_SYS_PTRACE"));
        }
    }
}
