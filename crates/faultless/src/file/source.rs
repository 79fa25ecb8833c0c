//! Where the bytes of a file come from and go to: each kind that there is.

use faultless_base::{Errno, Span};
use faultless_mm::cache::backing::{Backing, Reads};

use crate::file::backing::Custom;
use crate::file::local::LocalFile;
use crate::file::private::Private;

/// All kinds of backings.
#[expect(clippy::large_enum_variant, reason = "one for each file")]
pub(super) enum Source {
    Local(LocalFile),
    Custom(Custom),
    Private(Private),
}

impl Source {
    fn engine(&self) -> &dyn Backing {
        match self {
            Self::Local(local) => local,
            Self::Custom(custom) => custom,
            Self::Private(private) => private,
        }
    }
}

impl Backing for Source {
    fn read(&self, offset: u64, to: Span) -> Result<usize, Errno> {
        self.engine().read(offset, to)
    }
    fn read_many(&self, reads: &mut dyn Reads) {
        self.engine().read_many(reads);
    }
    fn write(&self, offset: u64, from: Span) -> Result<(), Errno> {
        self.engine().write(offset, from)
    }
    fn sync(&self) -> Result<(), Errno> {
        self.engine().sync()
    }
    fn grow(&self, length: u64) -> Result<u64, Errno> {
        self.engine().grow(length)
    }
    fn truncate(&self, length: u64) -> Result<(), Errno> {
        self.engine().truncate(length)
    }
    fn punch(&self, offset: u64, bytes: usize) -> Result<bool, Errno> {
        self.engine().punch(offset, bytes)
    }
    fn is_hole(&self, offset: u64, bytes: usize) -> bool {
        self.engine().is_hole(offset, bytes)
    }
    fn is_huge(&self) -> bool {
        self.engine().is_huge()
    }
    fn is_written_back(&self) -> bool {
        self.engine().is_written_back()
    }
}
