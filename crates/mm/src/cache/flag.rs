//! What is true of a slot.

/// A thread brings or drops pages.
pub const CHANGING: usize = 1;
/// Its pages go: no thread may pin them.
pub const LEAVING: usize = 1 << 1;
/// It has the memory of a huge page, whatever pages are present.
pub const HUGE: usize = 1 << 2;
/// It was used since eviction came by.
pub const USED: usize = 1 << 3;
/// A page table may be in the way of a huge page.
pub const TABLE: usize = 1 << 4;
/// Some of its pages are present.
pub const FILLED: usize = 1 << 5;
/// Pages that are not present raise faults ([`crate::cache::watch`]).
pub const WATCHED: usize = 1 << 6;
/// The kernel notes which of its pages are written to.
pub const TRACKED: usize = 1 << 7;
/// A mapping has it, or had it since its memory came: the kernel may have references to that for the program (bytes
/// in a pipe).
pub const MAPPED: usize = 1 << 8;
/// Its pages are to be huge, by advice.
pub const BY_HUGE: usize = 1 << 9;
/// Its pages are to be small, by advice.
pub const BY_SMALL: usize = 1 << 10;
/// A fault is to bring what comes behind it, too, by advice.
pub const AHEAD: usize = 1 << 11;
/// Nothing of it is there, and it is read into a frame aside (`cache/stream.rs`). What was read counts while this
/// is true.
pub const STREAMED: usize = 1 << 12;
/// Others have changed the file, and it could not go: it has bytes from before.
pub const STALE: usize = 1 << 13;
/// One thread that uses it.
pub const PIN: usize = 1 << 14;
