//! Memory that does not fault when it is used.
//!
//! An [`Arena`] hands out large blocks from memory that was used before, or that its background steps made ready. So
//! the first touch of a block costs no page fault.
//!
//! ```
//! let arena = faultless::Arena::new(1 << 30)?;
//! let mut block = arena.zeroed(64 << 20)?;
//! block[12345] = 1;
//! drop(block); // its memory stays ready for the next block
//! arena.work();
//! # Ok::<(), faultless::Error>(())
//! ```

//!
//! A [`Region`](region::Region) is memory of which each page is brought when it is first used. Windows of pages grow,
//! and their bytes are zeroes or come from a backing. The function [`reserve`] has memory ready before regions need
//! it.
//!
//! Rooms use those above them in this table, and never those below; `cargo xtask structure` checks it.
//!
//! | room | holds |
//! |---|---|
//! | `error` | what can go wrong with a region |
//! | `process` | which process this is, signals held back, descriptors of the library's own |
//! | `shared` | what the owner of a region and its threads share; the backing |
//! | `events` | what the program does to a region's memory by calls of its own, and what follows |
//! | `page` | the page of counters and knobs, and the list of regions |
//! | `background` | the owner of all frames, and work that goes on beside the program: its threads, `reserve` |
//! | `delivery` | how a fault reaches the library: by threads, by signal; the watchdog |
//! | [`region`] | regions as a program has them, and blocks that share one |
//! | [`file`](mod@file) | files, mapped by huge pages of the process's own |

mod background;
mod delivery;
mod error;
mod events;
pub mod file;
mod page;
mod process;
pub mod region;
mod shared;

pub use background::Background;
pub use background::reserve::{release_reserved, reserve, reserved};
pub use process::thread::aside;

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use faultless_base::sys::linux::Linux;
use faultless_mm::{Need, Space};

use crate::background::owner;
use crate::process::owner::Owner;

/// How often a block is asked for, a millisecond apart. The background thread may have the lock that this takes, and on a
/// busy machine no processor.
const TURNS: usize = 1000;

/// Why a block could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The kernel refused the address space: lower the size, or raise the limit that the text names.
    NoAddressSpace,
    /// The arena has no room for a block of this size: make it larger, or drop other blocks.
    ArenaFull,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAddressSpace => error::no_addresses(f),
            Self::ArenaFull => f.write_str("the arena has no room for a block of this size"),
        }
    }
}

impl std::error::Error for Error {}

/// A source of large blocks of memory.
///
/// All arenas and regions of a process share idle memory, and one budget.
///
/// A forked child makes one of its own: from that of its parent it gets no block. Those that it has of its parent stay
/// as they are until it ends.
pub struct Arena {
    space: &'static Space<Linux>,
    owner: Owner,
    /// Bytes that may still be handed out.
    left: AtomicUsize,
}

impl Arena {
    /// An arena for up to `bytes` bytes of blocks. It takes no memory by itself. The first arena of a process reserves
    /// the addresses of all of them: twice the machine's memory, or `bytes` if that is more.
    pub fn new(bytes: usize) -> Result<Self, Error> {
        let space = owner::with_arena(bytes).ok_or(Error::NoAddressSpace)?;
        // It gives back what stays idle.
        owner::start();
        Ok(Self { space, owner: Owner::here(), left: AtomicUsize::new(bytes) })
    }

    /// A block of `bytes` zero bytes.
    pub fn zeroed(&self, bytes: usize) -> Result<Block<'_>, Error> {
        if !self.owner.is_here() {
            return Err(Error::ArenaFull);
        }
        let take = |left: usize| left.checked_sub(bytes);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).map_err(|_| Error::ArenaFull)?;
        let got = (0..TURNS).find_map(|turn| {
            if turn > 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            self.space.allocate(0, bytes.max(1), 1, Need::Zero)
        });
        let Some(got) = got else {
            self.left.fetch_add(bytes, Ordering::Relaxed);
            return Err(Error::ArenaFull);
        };
        let mut block = Block { arena: self, addr: got.addr, bytes };
        if !got.zero {
            block.fill(0);
        }
        Ok(block)
    }

    /// Does all pending background work: zeroes dropped blocks, and gives memory beyond the budget back. Call it from
    /// a thread of your own, or when the program is idle.
    pub fn work(&self) {
        if self.owner.is_here() {
            owner::work();
        }
    }
}

/// A block of memory; dropping it gives it back to its arena.
pub struct Block<'a> {
    arena: &'a Arena,
    addr: usize,
    bytes: usize,
}

impl Deref for Block<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the block is this value's own until it is dropped, readable and initialised.
        unsafe { std::slice::from_raw_parts(self.addr as *const u8, self.bytes) }
    }
}

impl DerefMut for Block<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and writable.
        unsafe { std::slice::from_raw_parts_mut(self.addr as *mut u8, self.bytes) }
    }
}

impl Drop for Block<'_> {
    fn drop(&mut self) {
        let arena = self.arena;
        if arena.owner.is_here() {
            arena.space.free(self.addr);
            if arena.space.is_worker_wanted() {
                arena.space.ring();
            }
            arena.left.fetch_add(self.bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroed_blocks_are_zero_again_and_again() {
        let arena = Arena::new(256 << 20).unwrap();
        for bytes in [1, 100_000, 3 << 20, 16 << 20] {
            for round in 0..3 {
                let mut block = arena.zeroed(bytes).unwrap();
                assert_eq!(block.len(), bytes);
                assert!(block.iter().all(|b| *b == 0), "{bytes} bytes, round {round}");
                block.fill(7);
                drop(block);
                arena.work();
            }
        }
        assert_eq!(arena.zeroed(1 << 40).err(), Some(Error::ArenaFull));
    }
}
