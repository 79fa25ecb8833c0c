//! What a program says beforehand, in the words of `madvise` and `posix_fadvise`.

use std::io;
use std::ops::Range;

use faultless_base::Errno;
use faultless_mm::cache::evict::To;

use crate::file::mapping::Mapping;
use crate::file::read_ahead::Ahead;
use crate::file::shared::Shared;
use crate::file::{File, error_of, inside};

/// What is said about a part of a file. It changes no byte, and no mapping loses what was written there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// As before: reads that follow each other bring what comes next, and faults bring what they need.
    Normal,
    /// It will be read in turn. So reads bring 32 MiB ahead from the first on. Faults of lazy mappings bring up to 8 MiB,
    /// if they are delivered by thread. Both take no more than half of the room.
    Sequential,
    /// It will be read here and there: nothing comes ahead.
    Random,
    /// It will be used soon: it comes now, as by [`File::prefetch`], as much as there is room for.
    WillNeed,
    /// It will not be used soon: its memory goes, as by [`File::drop_range`], but for what is mapped by [`File::map`]
    /// or not yet written. A private mapping keeps what was changed, other than with `madvise`.
    DontNeed,
    /// Pages come by 2 MiB, unless the knob `thp_pagecache` is `never`. This holds for each 2 MiB that the part touches.
    Huge,
    /// Pages come by 4 KiB; those that are there stay. This holds for each 2 MiB that the part touches.
    NoHuge,
}

impl File {
    /// Says how a part, which is inside the file, will be used. [`Advice::Sequential`], [`Advice::Random`] and
    /// [`Advice::Normal`] hold for all reads by this handle, and for faults of lazy mappings in the part.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("data");
    /// # std::fs::write(&path, vec![7; 50_000])?;
    /// use faultless::file::{Advice, File};
    ///
    /// let file = File::open(&path)?;
    /// file.advise(0..file.len(), Advice::WillNeed)?;
    /// assert_eq!(file.present(), 13 * 4096);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn advise(&self, part: Range<u64>, advice: Advice) -> io::Result<()> {
        let shared = self.shared()?;
        let bytes = usize::try_from(part.end.saturating_sub(part.start)).unwrap_or(usize::MAX);
        let ahead = match advice {
            Advice::Normal => Some(Ahead::ByReads),
            Advice::Sequential => Some(Ahead::Always),
            Advice::Random => Some(Ahead::Never),
            _ => None,
        };
        let start = inside(shared.engine.length(), part.start, bytes)?;
        ahead.into_iter().for_each(|ahead| self.ahead.choose(ahead));
        if ahead == Some(Ahead::Never) {
            shared.engine.end_stream();
        }
        shared.advise(start, bytes, advice)
    }
}

impl Mapping {
    /// The same for a part of the mapping: for its faults, where it is lazy.
    pub fn advise(&self, part: Range<usize>, advice: Advice) -> io::Result<()> {
        let bytes = part.end.saturating_sub(part.start);
        let start = inside(self.len(), part.start as u64, bytes)?;
        let (shared, at) = self.place(start)?;
        shared.advise(at, bytes, advice)
    }
}

impl Shared {
    fn advise(&self, start: usize, bytes: usize, advice: Advice) -> io::Result<()> {
        let _using = self.using();
        let engine = &self.engine;
        // It may be shorter by now.
        if start.checked_add(bytes).is_none_or(|end| end > engine.length()) {
            return Err(error_of(Errno::EINVAL));
        }
        match advice {
            Advice::Normal | Advice::Random => engine.advise_ahead(start, bytes, false),
            Advice::Sequential => engine.advise_ahead(start, bytes, true),
            Advice::WillNeed => {
                engine.prefetch([(start, bytes)].into_iter()).map_err(error_of)?;
            }
            Advice::DontNeed => _ = engine.evict_range(start, bytes, To::Store),
            Advice::Huge => engine.advise_huge(start, bytes, true),
            Advice::NoHuge => engine.advise_huge(start, bytes, false),
        }
        Ok(())
    }
}
