//! A prefetch that tells how far it is, and can be ended.

use std::io;
use std::ops::{ControlFlow, Range};

use faultless_base::PAGE;

use crate::file::{File, inside};

/// Bytes that come between two tellings, at most.
const PIECE: u64 = 32 << 20;

impl File {
    /// As [`File::prefetch`]. `progress` is told how many bytes are in memory by then, after 32 MiB each time or a
    /// quarter of the room. When it breaks, no more comes, and what it breaks with is the error.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("data");
    /// # std::fs::write(&path, vec![7; 50_000])?;
    /// use std::ops::ControlFlow;
    ///
    /// let file = faultless::file::File::open(&path)?;
    /// let done = file.prefetch_with(&[0..50_000], |done| {
    ///     println!("{done} of 50000 bytes");
    ///     ControlFlow::Continue(())
    /// })?;
    /// assert_eq!(done, 50_000);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn prefetch_with(
        &self,
        parts: &[Range<u64>],
        mut progress: impl FnMut(usize) -> ControlFlow<io::Error>,
    ) -> io::Result<usize> {
        let engine = &self.shared()?.engine;
        let most = engine.capacity();
        let piece = (most as u64 / 4).clamp(PAGE as u64, PIECE);
        let mut pieces = Vec::new();
        for part in parts {
            // All of them, before anything comes.
            let bytes = usize::try_from(part.end.saturating_sub(part.start)).unwrap_or(usize::MAX);
            inside(engine.length(), part.start, bytes)?;
            let starts = (part.start..part.end).step_by(piece as usize);
            pieces.extend(starts.map(|start| start..part.end.min(start + piece)));
        }
        let (mut rest, mut done) = (&pieces[..], 0);
        while !rest.is_empty() {
            let mut asked = 0;
            let is_one_more = |part: &&Range<u64>| {
                asked += part.end - part.start;
                asked <= piece
            };
            let (now, later) = rest.split_at(rest.iter().take_while(is_one_more).count());
            let asked = now.iter().map(|part| (part.end - part.start) as usize).sum::<usize>();
            // What comes must not drive out what came.
            if done + asked > most {
                break;
            }
            let brought = self.prefetch(now)?;
            done += brought;
            if let ControlFlow::Break(error) = progress(done) {
                return Err(error);
            }
            rest = if brought < asked { &[] } else { later };
        }
        Ok(done)
    }
}
