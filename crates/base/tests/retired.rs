//! The places of isolated ranges go back while threads have some. Alone in its process.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use faultless_base::sys::Sys;
use faultless_base::sys::isolate;
use faultless_base::sys::linux::Linux;
use faultless_base::sys::raw::{self, Access, syscall};
use faultless_base::{PAGE, SLOT, Span};

const BYTES_EACH: usize = 64 * SLOT;
const PLACES: usize = 4;

fn is_mapped(page: usize) -> bool {
    let mut present = 0u8;
    // SAFETY: one page, one byte for the answer.
    unsafe { syscall(libc::SYS_mincore, [page, PAGE, &raw mut present as usize, 0, 0, 0]) }.is_ok()
}

/// A fresh slot, isolated.
fn isolated() -> Option<Span> {
    let one = raw::map_private(SLOT, Access::Write).unwrap();
    let there = Linux.isolate(Span::new(one, SLOT));
    if there.is_none() {
        // SAFETY: memory of the test's own.
        unsafe { raw::unmap(one, SLOT) };
    }
    there
}

#[test]
fn only_what_a_thread_has_stays_and_only_as_long() {
    isolate::reserve(BYTES_EACH);
    let held = isolated().unwrap();
    let first = held.start / SLOT * SLOT;
    // Others come and go meanwhile.
    let ended = AtomicBool::new(false);
    let turns = [const { AtomicUsize::new(0) }; 2];
    std::thread::scope(|scope| {
        let others = [0, 1].map(|i| {
            let (turns, ended) = (&turns[i], &ended);
            scope.spawn(move || {
                while let Some(there) = isolated() {
                    Linux.drop_isolated(there);
                    turns.fetch_add(1, Ordering::SeqCst);
                }
                assert!(ended.load(Ordering::SeqCst), "a place is free before the end");
            })
        });
        let waits = |i: usize| turns[i].load(Ordering::SeqCst) < 10 && !others[i].is_finished();
        while waits(0) || waits(1) {
            std::thread::yield_now();
        }
        ended.store(true, Ordering::SeqCst);
        isolate::retire();
    });

    let all = Span::new(first, PLACES * BYTES_EACH);
    let left = || (all.start..all.end).step_by(PAGE).filter(|&page| is_mapped(page)).collect::<Vec<_>>();
    let own = Span::new(held.start, held.bytes() + PAGE);
    assert_eq!(left(), (own.start..own.end).step_by(PAGE).collect::<Vec<_>>());
    Linux.drop_isolated(held);
    assert_eq!(left(), []);
    isolate::retire();
    assert_eq!(isolated(), None);
}
