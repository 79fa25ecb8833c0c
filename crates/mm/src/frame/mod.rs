//! Frames: 2 MiB slots of the arena, their states, and the free lists.
//!
//! Owns the state of each slot (`slot`), the free lists (`buddy`), the pieces of a slot and the sizes of blocks
//! (`carver`, `runs`, `sizes`). `arena` is one shard of these, `budget` the account of the process. A shard's lock protects its
//! free lists. A slot's state is an atomic word: a thread that takes a slot from a list owns it until it comes back.
//! Nothing here makes a system call but `arena`, which opens new addresses.

pub mod arena;
pub mod buddy;
pub mod budget;
pub mod busy;
pub mod carver;
mod count;
pub mod extent;
pub mod later;
pub mod pool;
mod promises;
pub mod purpose;
pub(crate) mod runs;
pub mod sizes;
pub mod slot;
pub mod store;
mod unused;
