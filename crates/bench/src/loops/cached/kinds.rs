//! How a file that is larger than memory is used, and what is done with it.

use clap::ValueEnum;

/// How the file is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Route {
    /// The kernel's mapping, without advice.
    Plain,
    /// The kernel's mapping with the advice for this order; by calls where that is best.
    Advised,
    /// The kernel's mapping, each record of a list announced by `MADV_WILLNEED`.
    Announced,
    /// Calls past the page cache.
    Direct,
    /// Many reads at a time past the page cache.
    Ring,
    /// As UMap pages a file.
    Umap,
    /// Calls of the library.
    Calls,
    /// A lazy mapping of the library, by signal.
    Signal,
    /// The same by thread.
    Thread,
    /// The same by signal; each list is brought beforehand.
    Prefetched,
}

impl Route {
    /// As it stands in the tables.
    pub fn name(self, work: Work) -> &'static str {
        match (self, work) {
            (Self::Plain, _) => "mmap",
            (Self::Advised, Work::Sequential) => "read, POSIX_FADV_SEQUENTIAL",
            (Self::Advised, _) => "mmap, MADV_RANDOM",
            (Self::Announced, _) => "mmap, MADV_WILLNEED",
            (Self::Direct, _) => "pread and pwrite, O_DIRECT",
            (Self::Ring, Work::Sequential | Work::Large) => "io_uring, 2 MiB, depth 8",
            (Self::Ring, _) => "io_uring, depth 32",
            (Self::Umap, Work::Sequential | Work::Large) => "as UMap does it, pages of 2 MiB",
            (Self::Umap, _) => "as UMap does it",
            (Self::Calls, _) => "faultless, calls",
            (Self::Signal, _) => "faultless, lazy, by signal",
            (Self::Thread, _) => "faultless, lazy, by thread",
            (Self::Prefetched, _) => "faultless, prefetch",
        }
    }

    /// Whether it is the library's.
    pub fn is_library(self) -> bool {
        matches!(self, Self::Calls | Self::Signal | Self::Thread | Self::Prefetched)
    }

    /// Whether it uses the kernel's page cache.
    pub fn is_in_page_cache(self) -> bool {
        matches!(self, Self::Plain | Self::Advised | Self::Announced)
    }
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Records of 4 KiB in random order are read.
    Random,
    /// The same, in lists that are known beforehand.
    List,
    /// All records in their order, once.
    Sequential,
    /// Records in random order are read, and changed; all is durable at the end.
    Writes,
    /// Records are read as Zipf has it: few of them often, most of them seldom. The caches have had a while before.
    Zipfian,
    /// Parts of 2 MiB in random order are read, all records of each.
    Large,
}

impl Work {
    /// Whether whole parts of 2 MiB are used.
    pub(super) fn is_by_huge_pages(self) -> bool {
        matches!(self, Self::Sequential | Self::Large)
    }

    /// Whether records may be asked for that were used before.
    pub(super) fn repeats(self) -> bool {
        self == Self::Zipfian
    }
}
