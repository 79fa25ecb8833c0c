//! Where the bytes of a file come from and go to: each kind that there is.

use faultless_base::{Errno, Span};
use faultless_mm::cache::backing::{Backing, Reads, Request};
use faultless_mm::cache::group::Group;

use crate::file::backing::Custom;
use crate::file::group::CacheGroup;
use crate::file::local::LocalFile;
use crate::file::private::Private;

/// All kinds of backings.
#[expect(clippy::large_enum_variant, reason = "one for each file")]
pub(super) enum Kind {
    Local(LocalFile),
    Custom(Custom),
    Private(Private),
}

/// A backing, and the group that its file is in.
pub(super) struct Source {
    kind: Kind,
    group: Option<CacheGroup>,
}

impl Source {
    pub(super) fn new(kind: Kind, group: Option<&CacheGroup>) -> Self {
        Self { kind, group: group.cloned() }
    }

    /// The group of the file.
    pub(super) fn in_group(&self) -> Option<&CacheGroup> {
        self.group.as_ref()
    }

    /// A file of the system, if it is one.
    pub(super) fn local(&self) -> Option<&LocalFile> {
        if let Kind::Local(local) = &self.kind { Some(local) } else { None }
    }

    fn engine(&self) -> &dyn Backing {
        match &self.kind {
            Kind::Local(local) => local,
            Kind::Custom(custom) => custom,
            Kind::Private(private) => private,
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
    fn can_begin(&self) -> bool {
        self.engine().can_begin()
    }
    fn begin_read(&self, request: Request) -> bool {
        self.engine().begin_read(request)
    }
    fn has_ended(&self, tag: usize) -> bool {
        self.engine().has_ended(tag)
    }
    fn end_read(&self, request: Request) -> Result<usize, Errno> {
        self.engine().end_read(request)
    }
    fn end_begun(&self) {
        self.engine().end_begun();
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
    fn group(&self) -> Option<&dyn Group> {
        self.group.as_ref().map(|group| group as &dyn Group)
    }
}
