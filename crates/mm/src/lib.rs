//! The memory engine of faultless.
//!
//! A [`Space`] owns one large reservation of addresses, the arena, and hands out parts of it: to mappings
//! ([`map`](Space::map)) and to large blocks of `malloc` ([`allocate`](Space::allocate)). What comes back is
//! kept, zeroed in the background and handed out again, so that nobody waits for a page fault.
//!
//! | module | holds |
//! |---|---|
//! | [`slot`] | 2 MiB pieces of the arena and their states |
//! | [`buddy`] | free lists: holes, dirty and zeroed memory apart |
//! | [`runs`] | pieces of 64 KiB and more inside a slot |
//! | [`arena`] | one shard: slots, free lists, growth |
//! | [`space`] | all shards; preparing memory for its user and taking it back |
//! | [`mapping`], [`blocks`] | what mmap and malloc ask for |
//! | [`scrub`], [`ahead`] | background steps: zeroing, giving back; touching and advising ahead |
//! | [`advice`] | huge-page advice for mappings that stay with the kernel |
//! | [`fork`] | what happens to free memory when the process is copied |
//! | [`budget`] | the peak rule |
//! | [`stats`] | counters |
#![no_std]
#![deny(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod advice;
pub mod ahead;
pub mod arena;
pub mod blocks;
pub mod buddy;
pub mod budget;
pub mod fork;
pub mod mapping;
pub mod runs;
pub mod scrub;
pub mod slot;
pub mod space;
pub mod stats;

pub use arena::Need;
pub use space::{Knobs, Space, Unmap};
