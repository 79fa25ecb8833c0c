//! The order in which a mapping of a file is brought: all of it once, beginning where the program is.
//!
//! A mapping is divided into units, at multiples of their size in the file. The sweep goes on from one unit to the next
//! and returns to those before its beginning. Where the program has come to another unit meanwhile, it goes on there.

use faultless_base::Span;
use faultless_base::sys::brought::PIECE;

/// The most units, and words with a bit for each.
const UNITS: usize = 1024;
const WORDS: usize = UNITS / 64;
/// Questions for each look about where the program is.
const LOOKS: usize = 16;

/// How far a mapping is brought.
#[derive(Clone, Copy, Debug)]
pub struct Sweep {
    whole: Span,
    /// Where the first unit begins, which may be before the mapping.
    start: usize,
    unit: usize,
    /// A bit for each unit that has been brought.
    done: [u64; WORDS],
    left: usize,
    /// Where the next piece begins.
    next: usize,
}

impl Sweep {
    /// Nothing yet. The file's first byte would lie at `origin`.
    pub fn new(whole: Span, origin: usize) -> Self {
        let offset = whole.start.wrapping_sub(origin);
        let unit = (whole.bytes() / (UNITS - 2)).next_power_of_two().max(PIECE);
        let start = whole.start.wrapping_sub(offset % unit);
        let left = whole.end.wrapping_sub(start).div_ceil(unit);
        Self { whole, start, unit, done: [0; WORDS], left, next: whole.start }
    }

    fn units(&self) -> usize {
        self.whole.end.wrapping_sub(self.start).div_ceil(self.unit)
    }

    fn unit_of(&self, addr: usize) -> usize {
        addr.wrapping_sub(self.start) / self.unit
    }

    fn is_done(&self, unit: usize) -> bool {
        self.done[unit / 64] >> (unit % 64) & 1 != 0
    }

    /// The addresses of units.
    fn span(&self, from: usize, to: usize) -> Span {
        let at = |unit: usize| self.start.wrapping_add(unit * self.unit);
        Span { start: if from == 0 { self.whole.start } else { at(from) }, end: at(to).min(self.whole.end) }
    }

    /// What to bring next; `None`: all has been brought.
    pub fn next(&self) -> Option<Span> {
        if self.left == 0 {
            return None;
        }
        let to_piece = PIECE - self.next.wrapping_sub(self.start) % PIECE;
        Some(Span { start: self.next, end: self.next.saturating_add(to_piece).min(self.whole.end) })
    }

    /// The piece that [`next`](Self::next) said has been brought.
    pub fn pass(&mut self) {
        let Some(piece) = self.next() else { return };
        let unit = self.unit_of(piece.start);
        self.next = piece.end;
        if piece.end != self.span(unit, unit + 1).end {
            return;
        }
        self.done[unit / 64] |= 1 << (unit % 64);
        self.left -= 1;
        let mut following = (unit + 1..self.units()).chain(0..unit);
        if let Some(open) = following.find(|unit| !self.is_done(*unit)) {
            self.next = self.span(open, open + 1).start;
        }
    }

    /// Goes on at the first unit behind this place in which the program has pages, if it has not been brought. `scan`
    /// finds the first run of pages of a range. `None` where it does not say.
    pub fn look(&mut self, mut scan: impl FnMut(Span) -> Option<Option<Span>>) -> Option<()> {
        let (mut unit, mut passed) = (self.unit_of(self.next), 0);
        let here = unit;
        for _ in 0..LOOKS {
            // The next units in a row that have not been brought.
            while passed < self.units() && self.is_done(unit) {
                (unit, passed) = ((unit + 1) % self.units(), passed + 1);
            }
            if passed >= self.units() || self.left == 0 {
                break;
            }
            let to = (unit..self.units()).find(|unit| self.is_done(*unit)).unwrap_or(self.units());
            if let Some(run) = scan(self.span(unit, to))? {
                let found = self.unit_of(run.start);
                if found != here {
                    self.next = self.span(found, found + 1).start;
                }
                break;
            }
            passed += to - unit;
            unit = to % self.units();
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use faultless_base::PAGE;
    use faultless_testkit::foreign::cases;
    use proptest::prelude::*;

    const START: usize = 1 << 40;

    /// All pieces in their order. The program is at these places, each before the piece of that number.
    fn pieces(mut sweep: Sweep, places: &[(usize, usize)]) -> Vec<Span> {
        let mut all = Vec::new();
        while let Some(piece) = sweep.next() {
            let here: Vec<usize> = places.iter().filter(|(n, _)| *n <= all.len()).map(|(_, at)| *at).collect();
            let scan = |span: Span| {
                let first = here.iter().filter(|at| span.contains(**at)).min();
                Some(first.map(|at| Span::new(*at, PAGE)))
            };
            sweep.look(scan).unwrap();
            let piece = sweep.next().unwrap_or(piece);
            all.push(piece);
            sweep.pass();
        }
        all
    }

    #[test]
    fn it_goes_on_where_the_program_is_and_returns() {
        let sweep = Sweep::new(Span::new(START, 10 * PIECE), START);
        let order = |places: &[(usize, usize)]| -> Vec<usize> {
            pieces(sweep, places).iter().map(|piece| (piece.start - START) / PIECE).collect()
        };
        assert_eq!(order(&[]), (0..10).collect::<Vec<_>>());
        assert_eq!(order(&[(2, START + 6 * PIECE + 7 * PAGE)]), [0, 1, 6, 7, 8, 9, 2, 3, 4, 5]);
        assert_eq!(order(&[(1, START + PIECE), (2, START)]), (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn pieces_begin_at_multiples_in_the_file() {
        let sweep = Sweep::new(Span::new(START + PAGE, 2 * PIECE), START);
        let all = pieces(sweep, &[]);
        assert_eq!(all.iter().map(|piece| piece.bytes()).collect::<Vec<_>>(), [PIECE - PAGE, PIECE, PAGE]);
    }

    #[test]
    fn a_file_of_a_tebibyte_takes_no_more_units() {
        let mut sweep = Sweep::new(Span::new(START + PAGE, 1 << 40), START);
        assert!(sweep.units() <= UNITS && sweep.units() > UNITS / 4);
        let mut at = START + PAGE;
        while let Some(piece) = sweep.next() {
            assert_eq!(piece.start, at);
            at = piece.end;
            sweep.pass();
        }
        assert_eq!(at, START + PAGE + (1 << 40));
    }

    proptest! {
        #![proptest_config(cases())]

        #[test]
        fn each_byte_is_brought(
            offset in 0usize..3 * PIECE / PAGE,
            pages in 1usize..20 * PIECE / PAGE,
            places in proptest::collection::vec((0usize..20, 0usize..20 * PIECE / PAGE), 0..8),
        ) {
            let whole = Span::new(START + offset * PAGE, pages * PAGE);
            let places: Vec<_> = places
                .into_iter()
                .map(|(n, page)| (n, whole.start + page % pages * PAGE))
                .collect();
            let mut all = pieces(Sweep::new(whole, START), &places);
            let is_sound =
                |piece: &Span| !piece.is_empty() && (piece.start - START) / PIECE == (piece.end - 1 - START) / PIECE;
            prop_assert!(all.iter().all(is_sound));
            all.sort_by_key(|piece| piece.start);
            prop_assert_eq!(all[0].start, whole.start);
            prop_assert_eq!(all[all.len() - 1].end, whole.end);
            prop_assert!(all.windows(2).all(|two| two[0].end == two[1].start));
        }
    }
}
