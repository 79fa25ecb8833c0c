//! Windows: what a fault brings, cut to where it may reach.
//!
//! A window is a span around the page of the fault, or pages at equal distances from it. [`crate::predict::streams`]
//! says which. Here it is clipped, and divided into pieces of one entry each, the fault's own first.

use faultless_base::{PAGE, SLOT, Span};

/// Order of a huge page.
pub const HUGE_ORDER: u32 = 9;
/// Order of the largest window: 64 MiB.
pub const MOST_ORDER: u32 = 14;
/// Order of the largest window of pages apart: each is a call of its own.
const MOST_APART: u32 = 6;

/// How large windows get, as orders of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orders {
    /// The first of a sequence.
    pub first: u32,
    /// The last.
    pub most: u32,
}

/// From one page of a sequence to the next, in bytes.
pub type Step = isize;
/// To the next page, and to the one before.
pub const UP: Step = PAGE as Step;
/// See [`UP`].
pub const DOWN: Step = -UP;

/// What a fault brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// From the lowest page to the highest.
    pub span: Span,
    /// All pages of the span for [`UP`] and [`DOWN`], else those this far apart, from the page of the fault on.
    pub step: Step,
}

/// The 2 MiB around an address.
fn slot(addr: usize) -> Span {
    Span::new(addr & !(SLOT - 1), SLOT)
}

impl Window {
    /// One page.
    pub fn page(page: usize) -> Self {
        Self { span: Span::new(page, PAGE), step: UP }
    }

    /// The window of an order for a fault on `page` in `area`.
    ///
    /// It ends with the area. While it is smaller than a huge page, it also ends with the 2 MiB around it. When it is
    /// larger, it ends at a border of 2 MiB, so that whole huge pages come next.
    pub fn of(page: usize, step: Step, order: u32, area: Span) -> Self {
        let bytes = PAGE << order;
        let around = slot(page);
        let span = match step {
            UP => {
                let end = page.saturating_add(bytes);
                let end =
                    if order < HUGE_ORDER { end.min(around.end) } else { (end & !(SLOT - 1)).max(around.end) };
                Span { start: page, end }
            }
            DOWN => {
                let start = (page + PAGE).saturating_sub(bytes);
                let up = if order < HUGE_ORDER { start } else { start.next_multiple_of(SLOT).min(around.start) };
                Span { start: if order < HUGE_ORDER { up.max(around.start) } else { up }, end: page + PAGE }
            }
            _ => {
                let room = if step > 0 { area.end - PAGE - page } else { page - area.start };
                let further = ((1 << order.min(MOST_APART)) - 1).min(room / step.unsigned_abs());
                let last = page.wrapping_add_signed(step * further as isize);
                Span { start: page.min(last), end: page.max(last) + PAGE }
            }
        };
        Self { span: span.clip(area), step }
    }

    /// Whether its pages are not one after the other.
    pub fn is_apart(self) -> bool {
        self.step != UP && self.step != DOWN
    }

    /// How many pages it has.
    pub fn pages(self) -> usize {
        (self.span.bytes() - PAGE) / self.step.unsigned_abs() + 1
    }

    /// The page after the last of the sequence: where its next fault is expected.
    pub fn next(self) -> usize {
        match self.step {
            UP => self.span.end,
            0.. => (self.span.end - PAGE).saturating_add_signed(self.step),
            _ => self.span.start.saturating_add_signed(self.step),
        }
    }

    /// The part of it around `page` that one entry has.
    pub fn clip_to_slot(self, page: usize) -> Self {
        match self.is_apart() {
            true => Self::page(page),
            false => Self { span: self.span.clip(slot(page)), ..self },
        }
    }

    /// Its pieces, each below one entry: that of the fault first, then in the order in which the program will come.
    pub fn pieces(self, page: usize) -> impl Iterator<Item = Span> {
        let first = self.clip_to_slot(page).span;
        let step = self.step;
        let rest = move |piece: &Span| {
            let next = match step {
                UP => Span { start: piece.end, end: self.span.end.min(piece.end + SLOT) },
                DOWN => Span { start: self.span.start.max(piece.start.saturating_sub(SLOT)), end: piece.start },
                _ => Span::new(piece.start.checked_add_signed(step)?, PAGE).clip(self.span),
            };
            (!next.is_empty()).then_some(next)
        };
        core::iter::successors(Some(first), rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const AREA: Span = Span { start: 64 * SLOT, end: 80 * SLOT };

    fn window(page: usize, step: Step, order: u32) -> Window {
        Window::of(page, step, order, AREA)
    }

    #[test]
    fn windows_end_at_borders() {
        assert_eq!(window(AREA.start + SLOT - 3 * PAGE, UP, 4).pages(), 3);
        assert_eq!(window(AREA.end - PAGE, UP, 4).pages(), 1);
        assert_eq!(window(AREA.start + PAGE, UP, 11).span.end, AREA.start + 4 * SLOT);
        assert_eq!(window(AREA.start + PAGE, UP, 9).span.end, AREA.start + SLOT);
        assert_eq!(window(AREA.end - PAGE, UP, 11).span.end, AREA.end);
        let from = AREA.end - SLOT;
        assert_eq!(window(from + 2 * PAGE, DOWN, 4).span, Span::new(from, 3 * PAGE));
        assert_eq!(window(from + 2 * PAGE, DOWN, 9).span, Span::new(from, 3 * PAGE));
        assert_eq!(window(AREA.end - PAGE, DOWN, 10).span, Span::new(from - SLOT, 2 * SLOT));
        assert_eq!(window(AREA.end - 2 * PAGE, DOWN, 10).span.start, from - SLOT);
        assert_eq!(window(AREA.start, DOWN, 11).pages(), 1);
        let apart = 3 * PAGE as isize;
        assert_eq!(window(AREA.end - 7 * PAGE, apart, 5).pages(), 3);
        assert_eq!(window(AREA.end - 7 * PAGE, apart, 5).span.end, AREA.end);
        assert_eq!(window(AREA.start + 7 * PAGE, -apart, 5).span, Span::new(AREA.start + PAGE, 7 * PAGE));
        assert_eq!(window(AREA.start, apart, 20).pages(), 1 << MOST_APART);
    }

    #[test]
    fn pieces_cover_a_window_once_and_the_fault_first() {
        for step in [UP, DOWN, 5 * UP, -700 * UP] {
            for order in 0..=MOST_ORDER {
                for page in [AREA.start, AREA.start + 3 * PAGE, AREA.start + 8 * SLOT - PAGE, AREA.end - PAGE] {
                    let window = window(page, step, order);
                    let pieces: Vec<_> = window.pieces(page).collect();
                    assert!(pieces[0].contains(page) && window.span.contains(page), "{window:x?}");
                    for piece in &pieces {
                        assert!(piece.start / SLOT == (piece.end - 1) / SLOT, "{piece:x?} has two entries");
                        assert!(AREA.clip(*piece) == *piece && window.span.clip(*piece) == *piece);
                    }
                    let mut pages: Vec<_> =
                        pieces.iter().flat_map(|piece| (piece.start..piece.end).step_by(PAGE)).collect();
                    pages.sort_unstable();
                    pages.dedup();
                    assert_eq!(pages.len(), window.pages(), "{window:x?}");
                    assert!(!pages.contains(&window.next()) && pages[0] == window.span.start);
                }
            }
        }
    }
}
