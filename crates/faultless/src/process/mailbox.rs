//! Messages to a thread of the library, and what it waits for.
//!
//! They take no allocation on either side. A channel of `std`'s allocates in the thread that waits, when it first does.
//! The program may have lowered its limits by then, and an allocation that fails ends it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What both sides have.
#[derive(Default)]
pub struct Mailbox<T> {
    has: Mutex<T>,
    changed: Condvar,
}

impl<T> Mailbox<T> {
    fn lock(&self) -> MutexGuard<'_, T> {
        self.has.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is there, and wakes who waits for that.
    pub fn put(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Waits until `take` finds something, for ever or up to a moment: then `None`.
    pub fn wait<R>(&self, until: Option<Instant>, mut take: impl FnMut(&mut T) -> Option<R>) -> Option<R> {
        let mut has = self.lock();
        loop {
            if let Some(taken) = take(&mut has) {
                return Some(taken);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            has = match left {
                None => self.changed.wait(has).unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => return None,
                Some(left) => self.changed.wait_timeout(has, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
    }
}
