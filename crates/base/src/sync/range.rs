//! A lock on ranges of addresses: a change of one part does not wait for a change of another.
//!
//! First come, first served: a thread waits for every earlier one that it conflicts with, one that holds its range or
//! waits for it. So no thread starves. The table of ranges is behind a [`Lock`] held for some steps. Threads sleep on
//! a word that changes whenever a range is let go.

use super::atomic::{AtomicU32, Ordering};
use super::{Futex, Lock, pause};
use crate::Span;

/// Ranges that are held or waited for at a time; more wait without a place in the queue.
pub const PLACES: usize = 64;
/// A checker looks at every turn, and one shows as much as many.
const SPINS: u32 = if cfg!(feature = "model") { 1 } else { 50 };

/// What a range is locked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Other threads may share it.
    Shared,
    /// Alone.
    Exclusive,
}

#[derive(Clone, Copy)]
struct Held {
    span: Span,
    access: Access,
    turn: u64,
}

impl Held {
    fn conflicts(&self, other: &Self) -> bool {
        let meets = self.span.start < other.span.end && other.span.start < self.span.end;
        meets && (self.access == Access::Exclusive || other.access == Access::Exclusive)
    }
}

struct Table {
    held: [Option<Held>; PLACES],
    next: u64,
}

/// The lock.
pub struct RangeLock {
    table: Lock<Table>,
    /// Changes whenever a range is let go.
    released: Futex,
    sleepers: AtomicU32,
}

/// A range that is held, until it is dropped.
pub struct RangeGuard<'a> {
    lock: &'a RangeLock,
    place: usize,
}

impl RangeLock {
    /// Nothing is held.
    #[expect(clippy::new_without_default, reason = "as the other locks")]
    pub fn new() -> Self {
        Self {
            table: Lock::new(Table { held: [None; PLACES], next: 0 }),
            released: Futex::new(0),
            sleepers: AtomicU32::new(0),
        }
    }

    /// Waits for a range and takes it.
    pub fn lock(&self, span: Span, access: Access) -> RangeGuard<'_> {
        let mut turn = 0;
        let place = loop {
            let seen = self.released.load(Ordering::Acquire);
            if let Some(place) = self.queue(span, access) {
                break place;
            }
            self.sleep(seen, &mut turn);
        };
        loop {
            let seen = self.released.load(Ordering::Acquire);
            if self.is_first(place) {
                return RangeGuard { lock: self, place };
            }
            self.sleep(seen, &mut turn);
        }
    }

    /// Takes a range if no other thread holds a part of it or waits for one.
    pub fn try_lock(&self, span: Span, access: Access) -> Option<RangeGuard<'_>> {
        let mut table = self.table.lock();
        let turn = table.next;
        let own = Held { span, access, turn };
        if table.held.iter().flatten().any(|held| held.conflicts(&own)) {
            return None;
        }
        let place = table.held.iter().position(Option::is_none)?;
        table.next += 1;
        table.held[place] = Some(own);
        Some(RangeGuard { lock: self, place })
    }

    fn queue(&self, span: Span, access: Access) -> Option<usize> {
        let mut table = self.table.lock();
        let place = table.held.iter().position(Option::is_none)?;
        let turn = table.next;
        table.next += 1;
        table.held[place] = Some(Held { span, access, turn });
        Some(place)
    }

    /// Whether no earlier one is in the way.
    fn is_first(&self, place: usize) -> bool {
        let table = self.table.lock();
        let Some(own) = table.held[place] else { return true };
        !table.held.iter().flatten().any(|held| held.turn < own.turn && held.conflicts(&own))
    }

    fn sleep(&self, seen: u32, turn: &mut u32) {
        if *turn < SPINS {
            *turn += 1;
            pause();
        } else {
            // Pairs with the drop of a range: either the sleeper is seen there, or the change of the word here.
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            self.released.wait(seen);
            self.sleepers.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        self.lock.table.lock().held[self.place] = None;
        self.lock.released.fetch_add(1, Ordering::SeqCst);
        if self.lock.sleepers.load(Ordering::SeqCst) > 0 {
            self.lock.released.wake_all();
        }
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;
    use faultless_testkit::limit::limit;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::thread;

    #[test]
    fn ranges_that_do_not_meet_are_held_at_once() {
        let lock = RangeLock::new();
        let _one = lock.lock(Span::new(0, 10), Access::Exclusive);
        let _two = lock.lock(Span::new(10, 10), Access::Exclusive);
        let _three = lock.lock(Span::new(20, 10), Access::Shared);
        let _four = lock.lock(Span::new(25, 10), Access::Shared);
    }

    #[test]
    fn a_range_that_somebody_has_is_not_waited_for() {
        let lock = RangeLock::new();
        let one = lock.lock(Span::new(0, 10), Access::Shared);
        assert!(lock.try_lock(Span::new(5, 10), Access::Exclusive).is_none());
        assert!(lock.try_lock(Span::new(5, 10), Access::Shared).is_some());
        assert!(lock.try_lock(Span::new(10, 10), Access::Exclusive).is_some(), "what was taken was let go");
        drop(one);
        assert!(lock.try_lock(Span::new(5, 10), Access::Exclusive).is_some());
    }

    #[test]
    fn ranges_that_meet_exclude_each_other() {
        limit();
        let lock = RangeLock::new();
        let inside = [const { AtomicU32::new(0) }; 8];
        thread::scope(|scope| {
            for id in 0..4u32 {
                let (lock, inside) = (&lock, &inside);
                scope.spawn(move || {
                    for round in 0..2000u32 {
                        let first = (id * 7 + round * 3) as usize % 7;
                        let _held = lock.lock(Span::new(first, 2), Access::Exclusive);
                        for cell in &inside[first..first + 2] {
                            assert_eq!(cell.swap(1, SeqCst), 0, "two are inside");
                        }
                        inside[first..first + 2].iter().for_each(|cell| cell.store(0, SeqCst));
                    }
                });
            }
        });
    }
}
