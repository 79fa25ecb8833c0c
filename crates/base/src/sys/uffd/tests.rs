use std::println;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::PAGE;
use crate::sys::raw::{Access, map_private};

const PAGES: usize = 8;

/// A descriptor with `features`, and fresh memory registered with it; `None` where the kernel does not let us.
fn registered(features: u64) -> Option<(Uffd, Span)> {
    faultless_testkit::limit::limit();
    let (uffd, way) = match Uffd::open_best() {
        Ok(found) => found,
        Err(error) => {
            faultless_testkit::skip(format_args!("no userfaultfd here (error {error})"));
            return None;
        }
    };
    println!("by {way:?}");
    if uffd.enable(features).is_err() {
        faultless_testkit::skip(format_args!("features {features:#x} are not there"));
        return None;
    }
    let span = fresh();
    // SAFETY: only the test knows the memory.
    unsafe { uffd.register(span, REGISTER_MISSING) }.unwrap();
    Some((uffd, span))
}

fn fresh() -> Span {
    Span::new(map_private(PAGES * PAGE, Access::Write).unwrap(), PAGES * PAGE)
}

fn page(span: Span, i: usize) -> Span {
    Span::new(span.start + i * PAGE, PAGE)
}

fn byte(at: usize) -> u8 {
    // SAFETY: pages that the tests have filled, or that a thread is about to fill.
    unsafe { (at as *const u8).read_volatile() }
}

fn write(at: usize, value: u8) {
    // SAFETY: as above; memory of the test's own.
    unsafe { (at as *mut u8).write_volatile(value) }
}

#[test]
fn pages_are_filled_copied_and_moved() {
    let Some((uffd, span)) = registered(feature::MOVE) else { return };
    let source = fresh();
    (0..PAGES).for_each(|i| write(source.start + i * PAGE, 10 + i as u8));
    // SAFETY: the spans are the test's own and registered.
    unsafe {
        uffd.zero_pages(page(span, 0), Wake::Now).unwrap();
        uffd.copy(source.start + PAGE, page(span, 1), Wake::Now).unwrap();
        uffd.move_pages(source.start + 2 * PAGE, page(span, 2), Wake::Now).unwrap();
    }
    assert_eq!([0, 1, 2].map(|i| byte(page(span, i).start)), [0, 11, 12]);
    assert_eq!([1, 2, 3].map(|i| byte(page(source, i).start)), [11, 0, 13]);
}

#[test]
fn what_is_there_already_stops_a_call() {
    let Some((uffd, span)) = registered(0) else { return };
    let source = fresh();
    write(source.start, 7);
    // SAFETY: as above.
    unsafe {
        uffd.copy(source.start, page(span, 2), Wake::Now).unwrap();
        let stopped = uffd.copy(source.start, span, Wake::Now).unwrap_err();
        assert_eq!(stopped.done, 2 * PAGE);
        let stopped = uffd.zero_pages(page(span, 2), Wake::Now).unwrap_err();
        assert_eq!(stopped, Stopped { done: 0, error: Errno::EEXIST });
    }
    assert_eq!([0, 1, 2].map(|i| byte(page(span, i).start)), [7, 0, 7]);
}

#[test]
fn a_thread_that_touches_is_served() {
    let Some((uffd, span)) = registered(0) else { return };
    assert_eq!(uffd.next_event(0), Ok(None), "nobody has touched anything");
    let reader = std::thread::spawn(move || byte(span.start + 3 * PAGE + 5));
    let Ok(Some(Event::Fault { address, flags, .. })) = uffd.next_event(60_000) else { panic!("no fault") };
    assert_eq!((address, flags), (span.start + 3 * PAGE, 0));
    let mut bytes = std::vec![0u8; PAGE];
    bytes[5] = 42;
    // SAFETY: a page of bytes; the span is registered.
    unsafe { uffd.copy(bytes.as_ptr() as usize, page(span, 3), Wake::Later) }.unwrap();
    uffd.wake(page(span, 3)).unwrap();
    assert_eq!(reader.join().unwrap(), 42);
}

#[test]
fn who_waits_goes_on_when_the_range_is_let_go() {
    let Some((uffd, span)) = registered(0) else { return };
    let reader = std::thread::spawn(move || byte(span.start));
    assert!(matches!(uffd.next_event(60_000), Ok(Some(Event::Fault { .. }))));
    uffd.unregister(span).unwrap();
    assert_eq!(reader.join().unwrap(), 0);
}

/// A fault may have the lock of its area while the range is let go, and waits only afterwards.
#[test]
fn who_is_about_to_wait_goes_on_too() {
    let Some((uffd, span)) = registered(0) else { return };
    let turn = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            for round in 1..=3000 {
                while turn.load(Ordering::Acquire) < round {
                    std::hint::spin_loop();
                }
                assert_eq!(byte(page(span, round % PAGES).start), 0);
                turn.store(0, Ordering::Release);
            }
        });
        for round in 1..=3000 {
            // SAFETY: the test's own memory; what waits in it is woken below.
            unsafe {
                libc::madvise(span.start as *mut _, span.bytes(), libc::MADV_DONTNEED);
                uffd.register(span, REGISTER_MISSING).unwrap();
            }
            turn.store(round, Ordering::Release);
            (0..round % 100).for_each(|_| std::hint::spin_loop());
            uffd.unregister(span).unwrap();
            while turn.load(Ordering::Acquire) != 0 && !reader.is_finished() {
                std::hint::spin_loop();
            }
        }
        reader.join().unwrap();
    });
}

#[test]
fn messages_are_told_apart() {
    let (a, b) = (0x1000, 0x3000);
    let fault = Event::Fault { address: b as usize, flags: a, thread: 9 };
    let span = Span { start: 0x1000, end: 0x3000 };
    let expected = [
        (0x12, fault),
        (0x13, Event::Fork(0x1000)),
        (0x14, Event::Remap(Span::new(0x1000, 9), 0x3000)),
        (0x15, Event::Remove(span)),
        (0x16, Event::Unmap(span)),
        (0x17, Event::Other(0x17)),
    ];
    for (kind, event) in expected {
        assert_eq!(Event::from([kind, a, b, 9]), event);
    }
}

/// As the macros of the kernel's header expand.
#[test]
fn numbers_of_the_calls() {
    let numbers = [UFFDIO_API, UFFDIO_REGISTER, UFFDIO_UNREGISTER, UFFDIO_WAKE, UFFDIO_COPY, UFFDIO_ZEROPAGE];
    let expected = [0xc018_aa3f, 0xc020_aa00, 0x8010_aa01, 0x8010_aa02, 0xc028_aa03, 0xc020_aa04];
    assert_eq!(numbers, expected);
    assert_eq!([UFFDIO_MOVE, UFFDIO_WRITEPROTECT], [0xc028_aa05, 0xc018_aa06]);
}
