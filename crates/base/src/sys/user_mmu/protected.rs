//! Pages that are protected against writing.
//!
//! The kernel looks at a page much faster than it protects one. So it is asked first which pages are not protected yet.
//! After a snapshot these are the pages that were written to since the last one, and new ones.

use super::{Backing, SwapStore, UserMmu};
use crate::sys::mmu::Mmu;
use crate::sys::pagemap::{self, RUNS};
use crate::{Errno, PAGE, Span};

/// How often the kernel may ask to try again before it counts as an error.
const MOST_TURNS: u32 = 1000;
/// Protected pages between others are protected along with them where they are fewer: a call costs more.
const GAP: usize = 32 * PAGE;

impl<B: Backing + SwapStore> UserMmu<B> {
    /// Protects all pages of a span that are there, or lifts that.
    pub(super) fn write_protect(&self, span: Span, protected: bool) -> Result<(), Errno> {
        let mut turn = 0;
        for (uffd, part) in self.parts(span) {
            // SAFETY: registered for that; a write waits until it is let through.
            while let Err(error) = unsafe { uffd.write_protect(part, protected) } {
                if error != Errno::EAGAIN || turn == MOST_TURNS {
                    return Err(error);
                }
                self.relax(turn);
                turn += 1;
            }
        }
        Ok(())
    }

    /// Protects all pages of a span that are there and are not protected yet. No thread lifts the protection of any
    /// meanwhile, and none installs any.
    pub(super) fn protect_the_rest(&self, span: Span) -> Result<(), Errno> {
        let mut at = span.start;
        while at < span.end {
            let rest = Span { start: at, ..span };
            let mut runs = [Span::new(at, 0); RUNS];
            let Some((told, to)) = pagemap::unprotected_runs(rest, &mut runs) else {
                return self.write_protect(rest, true);
            };
            let near = |run: &Span, next: &Span| next.start - run.end < GAP;
            for together in runs[..told].chunk_by(near) {
                let (first, last) = (together[0], together[together.len() - 1]);
                self.write_protect(Span { end: last.end, ..first }, true)?;
            }
            at = to;
        }
        Ok(())
    }
}
