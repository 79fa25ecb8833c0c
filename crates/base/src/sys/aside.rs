//! What a region asks for when its pages leave it for a while, and come back.
//!
//! A page goes in two steps. First it moves *aside*: to the same place of memory that is as long as the region, where no
//! program looks. An access faults from then on, and gets the page back without a read. Then it goes *out*: to a store,
//! at the same offset.

use super::uffd::Stopped;
use crate::{Errno, Span};

/// Those operations. A region without them keeps its pages. Memory aside is `Mmu::reserve`'s, and goes back the same way.
pub trait Aside {
    /// Memory for as many bytes, small pages alone, to which pages of the region can move; and behind it some for copies.
    /// EBUSY: the program locks its memory, so all of it would be there at once.
    fn reserve_aside(&self, _bytes: usize, _copies: usize) -> Result<usize, Errno> {
        Err(Errno::ENOSYS)
    }
    /// Lets pages of the region move to memory of `Mmu::reserve`. Where that cannot be, none moves.
    fn accept_moves(&self, _to: Span) {}
    /// Moves pages that are there out of the region, up to the first that cannot move; how many bytes have moved. From
    /// then on they are missing in the region.
    fn take_out(&self, _from: Span, _to: usize) -> usize {
        0
    }
    /// Moves pages from there to where the region misses them. Threads that wait for them still wait. EINVAL: they may
    /// not be written to there.
    fn put_back(&self, _from: usize, _to: Span) -> Result<(), Stopped> {
        Err(Stopped { done: 0, error: Errno::ENOSYS })
    }
    /// Whether the kernel notes the first write to a page that [`Aside::put_copy`] brings.
    fn notes_writes(&self) -> bool {
        false
    }
    /// Copies pages from there to where the region misses them. From the first moment on their first writes are noted.
    /// Threads that wait for them still wait.
    fn put_copy(&self, _from: usize, _to: Span) -> Result<(), Stopped> {
        Err(Stopped { done: 0, error: Errno::ENOSYS })
    }
    /// The first run of pages of the region that are there, came by that, and were not written to since; an empty one if
    /// there is none. `None`: the kernel does not say.
    fn first_unwritten(&self, _span: Span) -> Option<Span> {
        None
    }
    /// Copies pages of the region to memory aside, to be compared later. It waits for no page; whether all were there.
    fn peek(&self, _from: Span, _to: usize) -> bool {
        false
    }
    /// Whether a page aside has the bytes of such a copy.
    fn is_as_copy(&self, _page: usize, _copy: usize) -> bool {
        false
    }
    /// A checksum of a page aside, or of a copy; `None`: all of it is zero.
    fn digest(&self, _page: usize) -> Option<u32> {
        None
    }
    /// Writes pages aside to the store.
    fn write_out(&self, _from: Span, _offset: u64) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }
    /// Reads pages from the store to memory aside, or for copies.
    fn read_in(&self, _offset: u64, _to: Span) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }
    /// The store is not asked for these bytes any more until they are written again.
    fn forget_out(&self, _offset: u64, _bytes: u64) {}
}
