//! Operations, oracles and helpers shared by the tests of faultless.
//!
//! The program `ops` makes random calls about memory and keeps its own account of what they must have done
//! ([`world`]). It runs plain and with the preload library, and must print the same both times.
//!
//! | module | holds |
//! |---|---|
//! | [`rng`] | random numbers that depend on a seed alone |
//! | [`call`], [`direct`] | calls by the C library or without it, with their error numbers |
//! | [`probe`] | loads and stores that survive a fault |
//! | [`world`] | the oracle: what each page holds and allows |
//! | [`mappings`], [`remaps`], [`holes`], [`mistakes`] | steps on mappings |
//! | [`attributes`] | what the kernel says of mappings |
//! | [`blocks`] | steps on malloc and its family |
//! | [`lease`] | leases on files |
//! | [`limit`] | how long a test may take |
//! | [`foreign`] | bytes that others wrote, for parsers |
//! | [`alone`] | tests in a process of their own |
//! | [`cached`], [`uncache`] | what the page cache has of a file |
//! | [`copy`] | programs to be run from elsewhere |
//! | [`peak`] | the most memory that a program had |
//! | [`refuse`] | system calls that the kernel refuses |
//! | [`sends_first`] | children that send a datagram before their program begins |
//! | [`Killed`] | children that end with their test |
//! | [`skip`] | tests that cannot run here |

mod alone;
pub mod attributes;
pub mod block;
pub mod blocks;
mod cached;
pub mod call;
pub mod copy;
pub mod direct;
mod first;
pub mod foreign;
pub mod holes;
mod killed;
pub mod lease;
pub mod limit;
pub mod mappings;
pub mod mistakes;
mod peak;
pub mod probe;
mod refuse;
pub mod remaps;
pub mod rng;
mod skipped;
pub mod world;

pub use alone::alone;
pub use cached::{cached, uncache};
pub use copy::copy_program;
pub use first::sends_first;
pub use killed::Killed;
pub use peak::peak;
pub use refuse::refuse;
pub use skipped::{skip, skip_optional};
