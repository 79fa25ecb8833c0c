//! The ground of faultless: units, error numbers, locks, system calls and zeroing engines.
//!
//! This is the only crate, besides those that speak a foreign ABI, that may hold unsafe code. What lies above
//! (`faultless-mm`) sees memory as [`Span`]s of addresses and acts on it through the [`sys::Sys`] trait.
#![no_std]

#[cfg(test)]
extern crate std;

mod errno;
pub mod pagefault;
pub mod probe;
pub mod raw;
pub mod sync;
pub mod sys;
pub mod table;
pub mod units;
pub mod zero;

pub use errno::Errno;
pub use units::{PAGE, Pages, SLOT, SLOT_PAGES, Slot, Span, UNIT};
