//! What operations cost: nanoseconds, on one machine or another.

use serde::Serialize;

/// Costs of one machine. Times are in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Costs {
    /// Bytes of a page.
    pub page: f64,
    /// The program's own time with a page that is there.
    pub touch: f64,
    /// From an access that faults to the fault function, and back.
    pub entry: f64,
    /// A call that installs pages, whatever their number.
    pub call: f64,
    /// A page installed, without what is in it.
    pub install: f64,
    /// A page cleared in memory of the processor's own node.
    pub clear_near: f64,
    /// A page cleared in memory of another node.
    pub clear_far: f64,
    /// Bytes that a processor finds on its own node before it gets those of others.
    pub near: f64,
    /// A huge page made and cleared.
    pub make_huge: f64,
    /// A huge page moved.
    pub move_huge: f64,
    /// An operation on a word whose cache line this processor had last.
    pub local: f64,
    /// The same when another one had it.
    pub transfer: f64,
    /// What each processor that waits for a lock adds to its hand-over: its copy of the line has to go, and comes back.
    pub waiter: f64,
    /// A page of what one thread does for all others, besides faults.
    pub serial: f64,
    /// Shared words that the kernel below comes to in a fault, and in a call that installs.
    pub kernel_words: u32,
    /// Bytes of a cache line.
    pub line: usize,
}

impl Costs {
    /// What clearing a page takes on average, when each processor uses `bytes` bytes.
    pub fn clear(&self, bytes: f64) -> f64 {
        let near = (self.near / bytes).min(1.0);
        near * self.clear_near + (1.0 - near) * self.clear_far
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::MACHINE;

    #[test]
    fn memory_beyond_the_own_node_is_further_away() {
        let costs = Costs { clear_near: 1.0, clear_far: 3.0, near: 100.0, ..MACHINE };
        assert_eq!([50.0, 100.0, 200.0].map(|bytes| costs.clear(bytes)), [1.0, 1.0, 2.0]);
    }
}
