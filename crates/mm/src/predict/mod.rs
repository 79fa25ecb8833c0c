//! What a program will need next, judged by what it did.
//!
//! Owns the streams of a region's faults and their windows (`streams`, `window`), and how much of what was brought
//! ahead is used (`usage`, `prefault_budget`). Owns how it walks through files (`walks`), and whether it pays to read
//! them ahead (`worth`). Owns how far ahead zeroing works (`pace`), and when huge pages do not pay (`huge_cost`,
//! `own_cost`, `run_length`). Owns averages (`average`). Guesses only: a wrong one costs time or memory within the
//! budget, and never changes a byte. Atomic words protect the data, or the lock of the value's owner.

pub(crate) mod average;
pub(crate) mod huge_cost;
pub(crate) mod own_cost;
pub(crate) mod pace;
pub(crate) mod pending;
pub(crate) mod prefault_budget;
pub(crate) mod run_length;
pub(crate) mod stream;
pub mod streams;
pub(crate) mod usage;
pub(crate) mod walks;
pub mod window;
pub(crate) mod worth;
