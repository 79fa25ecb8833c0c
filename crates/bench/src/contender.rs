//! Who takes part in a bench.

/// One way of running a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Contender {
    /// The kernel as found, with whatever the program itself advises.
    Plain,
    /// The kernel with huge pages always.
    Huge,
    /// faultless.
    Faultless,
    /// faultless as it was before: another library, by `--before` alone.
    #[value(skip)]
    Before,
    /// faultless, with frames that move to where the program is about to be.
    Mapped,
    /// The allocator mimalloc.
    Mimalloc,
    /// The allocator tcmalloc.
    Tcmalloc,
    /// The allocator jemalloc.
    Jemalloc,
    /// A preload library with nothing in it.
    Empty,
}

impl Contender {
    /// The allocators that retain what is freed.
    pub const RETAINING: [Contender; 3] = [Contender::Mimalloc, Contender::Tcmalloc, Contender::Jemalloc];

    /// As it stands in the tables.
    pub fn name(self) -> &'static str {
        match self {
            Contender::Plain => "plain",
            Contender::Huge => "huge pages always",
            Contender::Faultless => "faultless",
            Contender::Before => "faultless before",
            Contender::Mapped => "faultless, mapped",
            Contender::Mimalloc => "mimalloc",
            Contender::Tcmalloc => "tcmalloc",
            Contender::Jemalloc => "jemalloc",
            Contender::Empty => "empty library",
        }
    }

    /// Whether it is faultless, however it is set.
    pub fn is_own(self) -> bool {
        matches!(self, Contender::Faultless | Contender::Before | Contender::Mapped)
    }

    /// The start of its library's file name, for other projects' ones.
    pub fn library(self) -> Option<&'static str> {
        match self {
            Contender::Mimalloc => Some("libmimalloc.so.2"),
            Contender::Tcmalloc => Some("libtcmalloc_minimal.so.4"),
            Contender::Jemalloc => Some("libjemalloc.so.2"),
            _ => None,
        }
    }
}
