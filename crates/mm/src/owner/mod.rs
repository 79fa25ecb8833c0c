//! Owners on demand: which areas of an object cover an offset.
//!
//! An object has a tree of its areas ([`spans::Spans`]), and no page has a list of owners. A question about a page
//! walks the tree. Each area that covers the page is a candidate: the caller checks its table, because an area covers more
//! than it has. So mapping and unmapping change one entry for an area, however many pages it has.
//!
//! What protects a tree is its owner's lock.

pub mod chain;
mod cut;
pub mod open;
pub mod pages;
pub mod spans;

use faultless_page::stats::Counter;

/// What questions about owners cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walks {
    /// Questions.
    pub computed: u64,
    /// Areas that were looked at.
    pub walked: u64,
    /// Of these, areas that cover the page, and whose table says that they do not have it.
    pub stale: u64,
}

impl Walks {
    /// The counter of each.
    pub fn counts(&self) -> [(Counter, u64); 3] {
        [
            (Counter::OwnerComputed, self.computed),
            (Counter::OwnerWalked, self.walked),
            (Counter::OwnerStale, self.stale),
        ]
    }
}
