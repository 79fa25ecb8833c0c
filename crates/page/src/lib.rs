//! What a process running faultless shares with the commands that watch and steer it.
//!
//! A process has a page in shared memory: a header, the knobs and the counters ([`layout`]). Behind it lies a table
//! of its regions ([`listing`]). Counters and knobs are declared here, each once, with unit and meaning; the engine
//! counts and reads them, `faultless stat` and `faultless sysctl` show and set them. Every field is an atomic word: no
//! lock protects the page, and a reader may see one counter older than another.
#![no_std]
#![deny(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod gauges;
pub mod knobs;
pub mod layout;
pub mod listing;
pub mod stats;
