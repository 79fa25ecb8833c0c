//! Many processors that fault at once, simulated.
//!
//! The engine's own fault function runs here, for each of up to hundreds of processors, over the memory management
//! unit in ordinary memory that its tests use. Each request to the unit takes virtual time, and so does each shared
//! word that the function comes to.
//!
//! | module | holds |
//! |---|---|
//! | [`costs`] | what operations cost on one machine |
//! | [`clock`] | virtual time, processors, cache lines that they pass on |
//! | [`mmu`] | the memory management unit that takes time |
//! | [`pattern`] | in what order pages are touched for the first time |
//! | [`shared`] | a lock for readers and writers |
//! | [`blocks`] | threads that map and unmap blocks of a region, by the engine |
//! | [`changes`] | threads that map and unmap beside faults, on a kernel of 2019 |
//! | [`layout`] | where their blocks lie, which are one area, which page tables are there |
//! | [`linux_2_6_10`] | the fault handler of that time, with its lock |
//! | [`work`] | the program that touches them, and what it took |
//! | [`seed`] | the tables of 2004 that this is compared with, and the costs that follow from them |

#![forbid(unsafe_code)]

pub mod blocks;
pub mod changes;
pub mod clock;
pub mod costs;
pub mod layout;
pub mod linux_2_6_10;
pub mod mmu;
pub mod pattern;
pub mod seed;
pub mod shared;
pub mod work;
