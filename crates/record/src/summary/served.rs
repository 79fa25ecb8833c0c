//! What faultless did in a covered run: its own counters, and what follows from them.
//!
//! Counters tell how much memory was there when the program got it. They do not tell what of it the program touched. So
//! the number of faults that were avoided has a bound, and no value: one for each small page of such memory, and of
//! memory for which huge pages were asked.

use faultless_page::stats::Counter;
use serde::{Deserialize, Serialize};

use crate::file::Counted;

/// Bytes of a small page.
const PAGE: u64 = 4096;

/// What was done, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Served {
    /// Processes that left counters.
    pub processes: u64,
    /// Those of them for which something was done.
    pub served_processes: u64,
    /// Requests that were served.
    pub requests: u64,
    /// What they asked for.
    pub handed_out_bytes: u64,
    /// The part that had memory behind it: no fault came for it.
    pub with_memory_bytes: u64,
    /// Memory that the program dropped, and that was zeroed where it stood: no fault came for it either.
    pub recycled_bytes: u64,
    /// Touched in the background: in memory that the program had, or in memory kept ready.
    pub touched_ahead_bytes: u64,
    /// Moved to the program's addresses ahead of it.
    pub moved_ahead_bytes: u64,
    /// Zeroed in the background.
    pub zeroed_bytes: u64,
    /// Zeroed in the program's own threads, when it asked for memory.
    pub zeroed_on_demand_bytes: u64,
    /// Huge pages advised in mappings that stay with the kernel.
    pub advised_bytes: u64,
    /// Faults that were avoided, at most; at least none, for counters do not tell what was touched.
    pub avoided_most: u64,
    /// Of what memory that is.
    pub how: String,
}

/// A line of what was done.
pub struct Row {
    /// What.
    pub text: &'static str,
    /// How much.
    pub bytes: u64,
}

/// How the bound was found.
const HOW: &str = "one for each 4 KiB that had memory, was zeroed where it stood, was touched or moved ahead of the \
                   program, or was to come as huge pages; how much of it the program touched was not counted";

impl Served {
    /// From the counters.
    pub fn new(counted: &Counted) -> Self {
        let sum = |counters: &[Counter]| {
            let each = counters.iter().filter_map(|counter| counted.counters.get(counter.declared().name));
            each.fold(0u64, |sum, value| sum.saturating_add(*value))
        };
        let handed_out = sum(&[Counter::MmapBytes, Counter::MallocBytes]);
        // Counted by slots, of which a block may use a part.
        let with_memory = sum(&[Counter::BytesZeroed, Counter::BytesUnzeroed, Counter::BytesHotZeroed]);
        let ahead = sum(&[Counter::BytesTouchedLent, Counter::BytesMovedAhead]);
        let recycled = sum(&[Counter::BytesRecycled]);
        // Blocks grow without a request, so what was asked for is no bound.
        let huge = sum(&[Counter::BytesFreshHuge, Counter::BytesAdvised]);
        let avoided = [with_memory, ahead, recycled, huge].into_iter().fold(0, u64::saturating_add);
        Self {
            processes: counted.processes,
            served_processes: counted.served,
            requests: sum(&[Counter::MmapServed, Counter::MallocServed]),
            handed_out_bytes: handed_out,
            with_memory_bytes: handed_out.min(with_memory),
            recycled_bytes: recycled,
            touched_ahead_bytes: sum(&[Counter::BytesTouchedLent, Counter::BytesTouchedAhead]),
            moved_ahead_bytes: sum(&[Counter::BytesMovedAhead]),
            zeroed_bytes: sum(&[Counter::BytesScrubbed]),
            zeroed_on_demand_bytes: sum(&[Counter::BytesHotZeroed]),
            advised_bytes: sum(&[Counter::BytesAdvised]),
            avoided_most: avoided / PAGE,
            how: HOW.into(),
        }
    }

    /// What was done, without what was not.
    pub fn rows(&self) -> Vec<Row> {
        let rows = [
            ("handed out to the program", self.handed_out_bytes),
            ("of that, served with memory: no fault comes for it", self.with_memory_bytes),
            ("dropped by the program, and zeroed where it stood: the same", self.recycled_bytes),
            ("touched in the background, ahead of the program", self.touched_ahead_bytes),
            ("moved to the program's addresses ahead of it", self.moved_ahead_bytes),
            ("zeroed in the background", self.zeroed_bytes),
            ("zeroed in the program's own threads, on demand", self.zeroed_on_demand_bytes),
            ("huge pages advised in mappings that stay with the kernel", self.advised_bytes),
        ];
        rows.into_iter().filter(|(_, bytes)| *bytes > 0).map(|(text, bytes)| Row { text, bytes }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(counters: &[(&str, u64)]) -> Served {
        let counters = counters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        Served::new(&Counted { counters, ..Counted::default() })
    }

    #[test]
    fn what_was_avoided_is_bounded_by_what_was_there_and_what_came_huge() {
        let mib = 1 << 20;
        let of = served(&[("mmap_bytes", 8 * mib), ("bytes_zeroed", 6 * mib), ("mmap_served", 2)]);
        assert_eq!((of.requests, of.handed_out_bytes, of.with_memory_bytes), (2, 8 * mib, 6 * mib));
        assert_eq!(of.avoided_most, 6 * mib / PAGE);
        // Slots are larger than the blocks in them, and blocks may grow into the rest.
        let of =
            served(&[("malloc_bytes", 3 * mib), ("bytes_unzeroed", 4 * mib), ("bytes_touched_lent", 2 * mib)]);
        assert_eq!((of.with_memory_bytes, of.avoided_most), (3 * mib, 6 * mib / PAGE));
        assert_eq!(served(&[("bytes_fresh_huge", 4 * mib), ("bytes_advised", mib)]).avoided_most, 5 * mib / PAGE);
        // Memory that the program drops comes once more, without a request.
        assert_eq!(served(&[("bytes_recycled", 2 * mib)]).avoided_most, 2 * mib / PAGE);
        // What the kernel still brings page by page, and what was only zeroed, avoids none.
        let none = [("mmap_bytes", mib), ("bytes_fresh_small", mib), ("bytes_scrubbed", mib)];
        assert_eq!((served(&none).avoided_most, served(&none).rows().len()), (0, 2));
        assert!(served(&[]).rows().is_empty());
        assert_eq!(
            served(&[("bytes_recycled", u64::MAX), ("mmap_bytes", u64::MAX)]).avoided_most,
            u64::MAX / PAGE
        );
    }
}
