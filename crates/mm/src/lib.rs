//! The memory engine of faultless.
//!
//! A [`Space`] owns one large reservation of addresses, the arena. It hands out parts of it to large blocks of `malloc`
//! ([`allocate`](Space::allocate)), and moves frames of it into mappings of the program ([`mapped`](Space::mapped)).
//! What comes back is kept, zeroed in the background and handed out again, so that nobody waits for a page fault.
//!
//! | module | holds |
//! |---|---|
//! | [`slot`] | 2 MiB pieces of the arena and their states |
//! | [`buddy`] | free lists: holes, dirty and zeroed memory apart |
//! | `runs`, [`sizes`] | pieces of 64 KiB and more inside a slot; how long each block is |
//! | [`arena`] | one shard: slots, free lists, growth |
//! | [`busy`] | the slots that the background thread is in |
//! | [`space`] | all shards, and what they share |
//! | [`purpose`] | what memory is taken for, and whether it has to be zero |
//! | [`handout`], [`takeback`] | the way of memory to its user and back |
//! | [`later`] | what comes back while a lock cannot be had |
//! | [`mapping`], [`blocks`], [`resize`] | what mmap, malloc and realloc ask for |
//! | [`attributes`] | blocks whose memory must not be handed out again |
//! | `expose` | mappings of programs that look what is resident |
//! | `transfer` | frames on their way into mappings of the program, and out of them |
//! | [`recycle`] | what the program drops and uses again |
//! | [`step`] | the background work as a whole |
//! | [`scrub`], `pace` | zeroing in the background, and how far ahead |
//! | [`decay`] | giving back |
//! | [`ahead`], [`stock`] | touching and advising ahead |
//! | [`retire`] | the end of service: free addresses go back |
//! | [`advice`] | huge-page advice for mappings that stay with the kernel |
//! | [`fork`] | what happens to free memory when the process is copied |
//! | [`watched`] | what the background steps keep an eye on |
//! | [`budget`] | the peak rule |
//! | [`stats`], [`knobs`] | counters; what can be set |
//! | [`region`] | mapped memory: a range of addresses whose faults are resolved here |
//! | [`area`], [`entry`], [`frames`], [`pool`] | its parts: the index of areas, the upper table, sources |
//! | [`streams`], [`window`], `behind` | what a fault brings: which sequence it belongs to, what is cut where, what was left |
//! | `install`, `keep` | bringing pages, and how many there are; keeping those that are dropped |
//! | [`fault`], [`change`] | what a fault does; map, unmap, protect, remap, advise, populate |
//! | [`page`], [`listing`] | both, as a process shares them with those who watch it, and its regions one by one |
#![no_std]
#![deny(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod account;
pub mod advice;
pub mod ahead;
pub mod area;
pub mod arena;
pub mod attributes;
mod behind;
pub mod blocks;
pub mod buddy;
pub mod budget;
pub mod busy;
pub mod change;
mod choose;
mod credit;
pub mod decay;
pub mod entry;
mod examine;
mod expose;
pub mod fault;
pub mod fork;
pub mod frames;
pub mod handout;
mod install;
mod keep;
pub mod knobs;
pub mod later;
pub mod listing;
pub mod mapping;
mod movein;
mod pace;
pub mod page;
pub mod pool;
pub mod progress;
pub mod purpose;
pub mod recycle;
pub mod region;
pub mod resize;
pub mod retire;
mod runs;
pub mod scrub;
pub mod sizes;
pub mod slot;
pub mod space;
pub mod spread;
pub mod stats;
pub mod step;
pub mod stock;
mod streak;
mod stream;
pub mod streams;
mod supply;
pub mod takeback;
mod tally;
mod transfer;
mod unused;
mod usage;
mod warmth;
pub mod watched;
pub mod window;

pub use progress::Progress;
pub use purpose::Need;
pub use space::Space;
