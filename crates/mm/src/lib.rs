//! The memory engine of faultless.
//!
//! A [`Space`] owns one large reservation of addresses, the arena. It gives parts of it to large blocks of `malloc`
//! ([`allocate`](Space::allocate)), and moves frames of it into mappings of the program ([`mapped`](Space::mapped)).
//! The engine keeps the memory that comes back, zeroes it in the background and uses it again. A
//! [`Region`](region::Region) is memory whose faults the engine resolves itself.
//!
//! Rooms use those above them in this table, and never those below; `cargo xtask structure` checks it.
//!
//! | room | holds |
//! |---|---|
//! | [`frame`] | slots and their states, free lists, sizes of blocks, the budget: data, and what changes it |
//! | [`predict`] | what will be needed next: streams of faults, windows, how much of what was brought is used |
//! | `state` | what is remembered from call to call: small owners of words, clocks and short tables |
//! | [`space`] | the arena as a whole: frames taken and given back, moved, counted; forks; the end of service |
//! | [`mapping`] | mappings of the program: frames move in, ahead of it, and out again |
//! | [`blocks`] | what `malloc`, `realloc` and `free` ask for |
//! | [`background`] | steps of the background thread: zeroing, touching ahead, giving back |
//! | [`owner`] | which areas of an object cover an offset: owners of pages are computed, and not kept |
//! | [`region`] | regions: areas, page tables, where bytes come from, changes |
//! | [`fault`] | a fault of a region, from the address to the pages |
//! | [`cache`] | files: which of their pages are in memory, how these come, go and are written back |
#![no_std]
#![deny(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod background;
pub mod blocks;
pub mod cache;
pub mod fault;
pub mod frame;
pub mod mapping;
pub mod owner;
pub mod predict;
pub mod region;
pub mod space;
mod state;

pub use frame::purpose::Need;
pub use space::Space;
pub use space::progress::Progress;
