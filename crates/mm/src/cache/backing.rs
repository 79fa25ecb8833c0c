//! Where the bytes of a file are when they are not in memory, and who decides about huge pages.

use faultless_base::{Errno, Span};

use crate::cache::group::Group;

/// A read that a backing makes.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Where it begins, a multiple of a page.
    pub offset: u64,
    /// Memory that is the backing's alone until it is done.
    pub to: Span,
    /// Whose request it is: for who made it.
    pub tag: usize,
}

/// Reads of which several may be under way at a time.
pub trait Reads {
    /// One more. `None`: there is none, or none before another one is done.
    fn next(&mut self) -> Option<Request>;
    /// What became of one, as by [`Backing::read`].
    fn done(&mut self, request: Request, read: Result<usize, Errno>);
}

/// Reads that were begun and have not ended, at most.
pub const BEGUN: usize = 8;

/// A file, or what stands for one. Any thread may call any of these, several at a time.
pub trait Backing: Send + Sync {
    /// Reads from `offset`, a multiple of a page, into memory that is the caller's alone; how many bytes. Fewer than
    /// asked for: the file ends there.
    fn read(&self, offset: u64, to: Span) -> Result<usize, Errno>;

    /// Makes reads until there are no more of them, and ends all that it has begun. One after the other, unless the
    /// backing knows better.
    fn read_many(&self, reads: &mut dyn Reads) {
        while let Some(request) = reads.next() {
            reads.done(request, self.read(request.offset, request.to));
        }
    }

    /// Whether reads may go on while no call is made.
    fn can_begin(&self) -> bool {
        false
    }

    /// Begins a read that goes on when this has returned, with a tag below [`BEGUN`] that no other one has. `false`:
    /// nothing was begun.
    fn begin_read(&self, _request: Request) -> bool {
        false
    }

    /// Whether a read that was begun has ended, so that its end is not waited for.
    fn has_ended(&self, _tag: usize) -> bool {
        true
    }

    /// Waits for the end of a read that was begun; as [`Backing::read`].
    fn end_read(&self, _request: Request) -> Result<usize, Errno> {
        Err(Errno::EINVAL)
    }

    /// Nothing is under way, and nothing will be begun soon.
    fn end_begun(&self) {}

    /// Writes all of `from` at `offset`, a multiple of a page. Threads may change these bytes meanwhile.
    fn write(&self, offset: u64, from: Span) -> Result<(), Errno>;

    /// What was written survives a power cut from now on.
    fn sync(&self) -> Result<(), Errno>;

    /// Makes it longer, by zeroes, if it is shorter. Its length before.
    fn grow(&self, length: u64) -> Result<u64, Errno>;

    /// Makes it shorter.
    fn truncate(&self, length: u64) -> Result<(), Errno>;

    /// Has bytes read as zero; whether it could. `false`: it has no way that is better than to write zeroes.
    fn punch(&self, _offset: u64, _bytes: usize) -> Result<bool, Errno> {
        Ok(false)
    }

    /// Whether all bytes of a part are there, and read as zero because nothing was ever written to them.
    fn is_hole(&self, _offset: u64, _bytes: usize) -> bool {
        false
    }

    /// Whether changes go there. If not, pages that were changed stay in memory, as the program's own.
    fn is_written_back(&self) -> bool {
        true
    }

    /// Whether huge pages are used where there are any.
    fn is_huge(&self) -> bool {
        true
    }

    /// The files that it shares a budget with; the same each time.
    fn group(&self) -> Option<&dyn Group> {
        None
    }
}
