//! What the fault path asks of the memory management unit.
//!
//! [`super::user_mmu::UserMmu`] is the kernel's, through userfaultfd; `faultless-fake` has one in ordinary memory,
//! which checks every rule that the kernel would enforce and some that it would not.

use super::aside::Aside;
use super::uffd::Stopped;
use crate::{Errno, Span};

/// What an area may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rights {
    /// Nothing: an access is a SIGSEGV.
    None,
    /// Reading.
    Read,
    /// Reading and writing.
    Write,
}

/// Where the bytes of missing pages come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// They are zero.
    Zeroes,
    /// They are zero and were asked for by a read: the kernel's page of zeroes, which takes no memory. At the first
    /// write the kernel replaces it by a page of its own.
    ZeroPage,
    /// They are in a buffer at this address.
    Buffer(usize),
}

/// What becomes of writes to pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protect {
    /// They raise faults.
    All,
    /// The same, where the caller knows nothing of these pages. Those that are protected already take less time.
    Rest,
    /// They go through.
    Lift,
}

/// A word that all threads of a region share, when the fault path comes to it. Its cost depends on the processor that
/// had its cache line before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// What the region counts on this processor, from the first number of it to the last.
    Counters(usize, usize, usize),
    /// A reader's place in an epoch, on this processor.
    Reader(usize),
    /// The users of an area that are counted on this processor.
    Users(usize),
    /// The streams of a thread of this hint.
    Streams(usize),
    /// The faults of an area that followed nothing, set off against those that were saved.
    Account,
    /// The pool, when a huge page is taken from it, and when its place is let go.
    Pool,
    /// The entry around this address.
    Entry(usize),
    /// How many pages the region has, as they are counted on this processor.
    Resident(usize),
    /// The lock on the index of areas, taken and let go.
    Index,
    /// The range lock, when a range is taken.
    RangeTaken,
    /// The same, when it is let go.
    RangeFreed,
}

/// Operations on the memory of one region. All spans are whole pages inside it, which makes them safe to call.
pub trait Mmu: Aside {
    /// Fills the missing pages of `to`, up to the first that is there (EEXIST). Threads that wait for them still
    /// wait.
    fn install(&self, from: Source, to: Span) -> Result<(), Stopped>;
    /// Moves a huge page, made by [`Mmu::make_huge`] or taken by [`Mmu::take_huge`], to where nothing is. False
    /// leaves it where it is, or drops it.
    fn move_huge(&self, frame: usize, to: usize) -> bool;
    /// Moves the huge page of a slot with its bytes to an empty frame that is reserved for such pages. No thread
    /// accesses the slot any more. False: it did not come. It is where it was, if it was whole.
    fn take_huge(&self, _slot: usize, _frame: usize) -> bool {
        false
    }
    /// Whether dropping a whole slot leaves nothing in the way of a huge page, not even the table that accesses left
    /// there.
    fn frees_tables(&self) -> bool;
    /// Has the kernel itself bring the missing pages of a span from now on, zeroes all of them.
    fn leave_to_kernel(&self, span: Span) -> Result<(), Errno>;
    /// Ends that.
    fn take_from_kernel(&self, span: Span) -> Result<(), Errno>;
    /// How many pages of a span are there, the kernel's page of zeroes included.
    fn present(&self, span: Span) -> usize;
    /// Whether a page is there that takes memory.
    fn is_own(&self, page: usize) -> bool;
    /// How many pages of a span of zeroes that the program has left were not written to, by a few samples; all of
    /// them where that cannot be seen.
    fn unused(&self, span: Span) -> usize;
    /// Whether that may be asked while a fault is served. Not where the serving thread would wait for itself, if a
    /// page of the span is missing by then.
    fn looks_in_faults(&self) -> bool {
        true
    }
    /// Makes a missing page an error for each access, until it is dropped. Threads that wait for it still wait.
    /// EEXIST: a page is there, or such an error. ENOENT: it is not the region's any more.
    fn poison(&self, page: usize) -> Result<(), Errno>;
    /// Whether faults on a page are delivered. A foreign mapping there is not the region's.
    fn serves(&self, _page: usize) -> bool {
        true
    }
    /// Lets threads that wait for pages of a span look again.
    fn wake(&self, span: Span);
    /// Changes what a span may be used for, or gives the error number.
    fn protect(&self, span: Span, rights: Rights) -> Result<(), Errno>;
    /// Makes a span as it is in a new region: its pages are missing, it has no rights, and its faults are delivered. What
    /// the program said of it to the kernel ends.
    fn renew(&self, span: Span) -> Result<(), Errno> {
        self.protect(span, Rights::None)?;
        self.discard(span)?;
        self.take_from_kernel(span)
    }
    /// Drops the pages of a span: they are missing again.
    fn discard(&self, span: Span) -> Result<(), Errno>;
    /// Moves the pages of a span without rights to another such span, where pages are missing.
    fn relocate(&self, from: Span, to: usize) -> Result<(), Errno>;
    /// Whether [`Mmu::fill`] may be called while the region changes.
    fn fills_at_any_time(&self) -> bool;
    /// Reads what belongs at `offset` of the region's backing into a buffer, to its end; zeroes behind the backing's
    /// end.
    fn fill(&self, offset: u64, buffer: Span) -> Result<(), Errno>;
    /// Whether missing pages raise faults; otherwise the kernel brings them, and nothing is ever installed.
    fn raises_faults(&self) -> bool;
    /// Says whether the kernel is to bring huge pages, where missing pages raise no faults.
    fn prefer_huge(&self, _span: Span, _huge: bool) {}
    /// Makes missing pages of a span that may be written present, as an access would. An error where the program itself
    /// has unmapped, closed or mapped over a part.
    fn touch(&self, span: Span) -> Result<(), Errno>;
    /// Memory for buffers and copies, which no forked child has; at a multiple of 2 MiB. None of it comes before it is used.
    fn reserve(&self, bytes: usize) -> Option<usize>;
    /// Gives that back.
    fn release(&self, span: Span);
    /// Makes a huge page of zeroes of a slot of such memory; whether it is one.
    fn make_huge(&self, frame: usize) -> bool;
    /// Drops the rest of such a page if not all of it is there any more; whether it is whole.
    fn drop_unless_whole(&self, frame: usize) -> bool;
    /// Has writes to the pages of a span that are there raise faults; or lets them through again, and wakes the threads
    /// that wait. ENOENT: in a part of it no write was ever to raise a fault.
    fn protect_writes(&self, _span: Span, _protect: Protect) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }
    /// The first run of pages of a span that are there, in memory or swapped out; an empty one if there is none. `None`
    /// where the kernel does not say.
    fn first_there(&self, _span: Span) -> Option<Span> {
        None
    }
    /// Copies pages that are there, of the region or of memory of [`Mmu::reserve`], to such memory. False: the program
    /// itself has closed a part of the region, and not all is copied.
    fn copy_pages(&self, _from: Span, _to: usize) -> bool {
        false
    }
    /// Copies bytes of such pages to a buffer; whether all of them may be read.
    fn read_bytes(&self, _from: usize, _buffer: &mut [u8]) -> bool {
        false
    }
    /// Drops pages of such memory: they are zero when they are used again.
    fn drop_reserved(&self, _span: Span) {}
    /// Spends a moment waiting for another thread, the longer the higher `turn`.
    fn relax(&self, turn: u32);
    /// The fault path comes to a shared word. Only a simulation wants to know.
    fn meets(&self, _word: Word) {}
}
