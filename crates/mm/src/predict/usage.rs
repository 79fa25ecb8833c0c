//! How much of what was brought ahead is used, and how large windows may be for that.
//!
//! All threads read the largest order with each fault. The numbers change only when a thread has looked at what a
//! stream left behind, and after that for as long as windows are smaller than they might be.

use faultless_base::sync::atomic::{AtomicUsize, Ordering};

/// Of how many pages brought ahead one may be unused before windows become smaller.
const FEW: usize = 16;
/// Unused pages that count for nothing.
const SLACK: usize = 1024;
/// The smallest order that unused pages lead to.
const LEAST: usize = 3;
/// After this many pages, older counts are worth half.
const RECENT: usize = 1 << 20;

/// Pages brought ahead, of late.
pub struct Usage {
    used: AtomicUsize,
    unused: AtomicUsize,
    /// The largest order that this leaves, and the largest of all.
    limit: AtomicUsize,
    most: usize,
}

impl Usage {
    /// Nothing is known, so windows may have up to this order.
    pub fn new(most: u32) -> Self {
        let (zero, most) = (|| AtomicUsize::new(0), most as usize);
        Self { used: zero(), unused: zero(), limit: AtomicUsize::new(most), most }
    }

    /// The largest order of a window.
    pub fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed) as u32
    }

    /// Whether windows may become larger, once enough was used.
    pub fn is_limited(&self) -> bool {
        (self.limit() as usize) < self.most
    }

    /// This many pages were used.
    pub fn add_used(&self, pages: usize) {
        let (used, unused) = self.add(pages, 0);
        if self.is_limited() && unused * FEW <= used {
            self.limit.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// `pages` pages were looked at, and `unused` of them were not used.
    pub fn judge(&self, pages: usize, unused: usize) {
        let (used, unused) = self.add(pages.saturating_sub(unused), unused);
        if unused > SLACK && unused * FEW > used {
            let least = LEAST.min(self.most);
            self.limit.store((self.limit() as usize).saturating_sub(1).max(least), Ordering::Relaxed);
        }
    }

    fn add(&self, used: usize, unused: usize) -> (usize, usize) {
        let used = self.used.fetch_add(used, Ordering::Relaxed) + used;
        let unused = self.unused.fetch_add(unused, Ordering::Relaxed) + unused;
        let halvings = ((used + unused) / RECENT + 1).next_power_of_two().ilog2();
        if halvings > 0 {
            self.used.store(used >> halvings, Ordering::Relaxed);
            self.unused.store(unused >> halvings, Ordering::Relaxed);
        }
        (used >> halvings, unused >> halvings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_become_smaller_by_what_is_unused_and_larger_again_by_what_is_used() {
        let usage = Usage::new(9);
        usage.judge(SLACK, SLACK);
        assert_eq!(usage.limit(), 9, "that little says nothing");
        (0..20).for_each(|_| usage.judge(2, 1));
        assert_eq!(usage.limit() as usize, LEAST);
        usage.add_used(FEW * SLACK);
        assert_eq!(usage.limit() as usize, LEAST, "one more was unused");
        (0..20).for_each(|_| usage.add_used(FEW * SLACK));
        assert_eq!((usage.limit(), usage.is_limited()), (9, false));
    }

    #[test]
    fn what_was_long_ago_is_worth_little() {
        let usage = Usage::new(9);
        usage.add_used(100 * RECENT);
        usage.judge(RECENT / 8, RECENT / 8);
        assert!(usage.is_limited(), "an eighth of what is remembered");
        (0..3).for_each(|_| usage.add_used(RECENT));
        assert!(!usage.is_limited());
    }
}
