//! Parts of a region that are not its own any more, because the kernel refused to reserve them again.

use core::array;

use crate::Span;
use crate::sync::atomic::{AtomicUsize, Ordering};

/// As many as one move and its way back may leave. The region is shut then, and nothing moves in it any more.
const MOST: usize = 4;

/// A few spans.
#[derive(Default)]
pub(super) struct Gone([[AtomicUsize; 2]; MOST]);

impl Gone {
    /// Notes one. The caller alone does so.
    pub(super) fn add(&self, span: Span) {
        let free = self.0.iter().find(|[_, end]| end.load(Ordering::Relaxed) == 0);
        if let Some([start, end]) = free {
            start.store(span.start, Ordering::Relaxed);
            end.store(span.end, Ordering::Release);
        }
    }

    /// The runs of a span that are there still.
    pub(super) fn kept(&self, span: Span) -> impl Iterator<Item = Span> + use<> {
        let gone: [Span; MOST] = array::from_fn(|i| {
            let end = self.0[i][1].load(Ordering::Acquire);
            Span { start: self.0[i][0].load(Ordering::Relaxed), end }
        });
        let mut at = span.start;
        core::iter::from_fn(move || {
            while let Some(around) = gone.iter().find(|gone| gone.contains(at)) {
                at = around.end;
            }
            let end = gone.iter().map(|gone| gone.start).filter(|start| *start > at).fold(span.end, usize::min);
            let run = Span { start: at, end };
            at = end.max(at);
            (run.start < run.end).then_some(run)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAGE;
    use std::vec::Vec;

    #[test]
    fn the_rest_is_kept() {
        let pages = |start: usize, end: usize| Span { start: start * PAGE, end: end * PAGE };
        let gone = Gone::default();
        assert_eq!(gone.kept(pages(1, 9)).collect::<Vec<_>>(), [pages(1, 9)]);
        [pages(4, 5), pages(1, 2), pages(5, 6)].into_iter().for_each(|span| gone.add(span));
        assert_eq!(gone.kept(pages(1, 9)).collect::<Vec<_>>(), [pages(2, 4), pages(6, 9)]);
        assert_eq!(gone.kept(pages(3, 5)).collect::<Vec<_>>(), [pages(3, 4)]);
        assert_eq!(gone.kept(pages(4, 6)).count(), 0);
        gone.add(pages(8, 9));
        assert_eq!(gone.kept(pages(0, 9)).collect::<Vec<_>>(), [pages(0, 1), pages(2, 4), pages(6, 8)]);
    }
}
