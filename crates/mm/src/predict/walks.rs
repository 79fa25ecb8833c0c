//! How a program walks through a mapping of a file, as its page tables show, and what to ask for ahead of it.
//!
//! A [`Walk`] is a range whose pages came into the page tables one beside the other. A walk that grows at one of its
//! ends, look after look, is a sequence: the program will be behind that end next. What is asked for there grows with
//! the walk, so that a walk which ends early leaves no more behind than it has used.
//!
//! Pages that are far from all walks begin others. Where these are too many and none grows, the program reads at
//! random, and is left alone.

use faultless_base::{PAGE, Span};

/// Sequences that are followed at a time in one mapping.
const WALKS: usize = 6;
/// Runs of pages that one look sees.
const RUNS: usize = 24;
/// A run that is no farther than this from a walk belongs to it.
const NEAR: usize = 256 << 10;
/// A walk is a sequence from this length on, and after that many looks that saw it grow.
const LEAST: usize = 512 << 10;
const GROWN: u8 = 2;
/// At least one page in this many of a sequence is used.
const SPARSE: usize = 4;
/// Looks without growth after which a walk may make room for another.
const QUIET: u8 = 16;
/// Looks that saw pages elsewhere, and no walk that grew: then the program reads at random.
const RANDOM: u8 = 8;
/// What may be left behind unused: this much, and half of what was used.
const WASTE: usize = 16 << 20;

/// Where a walk goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Up,
    Down,
}

#[derive(Clone, Copy, Debug)]
struct Walk {
    span: Span,
    /// Bytes of it that were seen in the page tables.
    seen: usize,
    way: Way,
    /// Looks that saw it grow that way, and looks since.
    grown: u8,
    quiet: u8,
    /// What was asked for ahead of it; the program may have passed a part of it.
    asked: Span,
}

impl Walk {
    fn new(span: Span) -> Self {
        Self { span, seen: span.bytes(), way: Way::Up, grown: 0, quiet: 0, asked: Span::new(span.end, 0) }
    }

    fn is_near(&self, run: Span) -> bool {
        run.start <= self.span.end.saturating_add(NEAR) && self.span.start <= run.end.saturating_add(NEAR)
    }

    fn is_sequence(&self) -> bool {
        self.grown >= GROWN && self.span.bytes() >= LEAST && self.seen >= self.span.bytes() / SPARSE
    }

    /// Bytes of what was asked for that the program has not come to.
    fn left(&self) -> usize {
        self.asked.bytes() - self.asked.clip(self.span).bytes()
    }

    /// What is to be asked for next, up to `most` ahead of the program in `whole`, and `piece` at a time.
    fn next(&self, whole: Span, most: usize, piece: usize) -> Option<Span> {
        let window = self.span.bytes().min(most);
        let next = match self.way {
            Way::Up => {
                let start = self.asked.end.max(self.span.end);
                let end = self.span.end.saturating_add(window).min(whole.end);
                Span { start, end: end.min(start.saturating_add(piece)).max(start) }
            }
            Way::Down => {
                let end = self.asked.start.min(self.span.start);
                let start = self.span.start.saturating_sub(window).max(whole.start);
                Span { start: start.max(end.saturating_sub(piece)).min(end), end }
            }
        };
        // Small requests are for the ends of the mapping alone.
        let is_last = next.end == whole.end || next.start == whole.start;
        (self.is_sequence() && !next.is_empty() && (next.bytes() >= piece || is_last)).then_some(next)
    }
}

/// What a look found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The program goes on.
    Growth,
    /// Nothing new.
    Nothing,
    /// It reads at random.
    Random,
    /// It leaves behind too much of what was asked for.
    Waste,
    /// All of the mapping was walked through.
    End,
}

/// All that is known of one mapping.
#[derive(Clone, Copy, Debug)]
pub struct Walks {
    /// The mapping.
    whole: Span,
    walks: [Option<Walk>; WALKS],
    random: u8,
    used: usize,
    unused: usize,
}

impl Walks {
    /// None yet.
    pub fn new(whole: Span) -> Self {
        Self { whole, walks: [None; WALKS], random: 0, used: 0, unused: 0 }
    }

    /// Bytes that the program has walked through.
    pub fn walked(&self) -> usize {
        self.walks.iter().flatten().map(|walk| walk.span.bytes()).sum()
    }

    /// Bytes that were asked for and used, and those that were left behind, up to now.
    pub fn results(&self) -> (usize, usize) {
        let left: usize = self.walks.iter().flatten().map(Walk::left).sum();
        let came: usize = self.walks.iter().flatten().map(|walk| walk.asked.clip(walk.span).bytes()).sum();
        (self.used + came, self.unused + left)
    }

    /// Looks at what no walk has. `scan` finds the first runs of pages of a range; how many, and up to where it looked.
    /// `None` where it does not say.
    pub fn look(&mut self, mut scan: impl FnMut(Span, &mut [Span]) -> Option<(usize, usize)>) -> Option<Found> {
        let mut runs = [Span::new(0, 0); RUNS];
        let mut n = 0;
        let mut at = self.whole.start;
        while at < self.whole.end && n < RUNS {
            let inside = self.walks.iter().flatten().find(|walk| walk.span.contains(at));
            if let Some(walk) = inside {
                at = walk.span.end;
                continue;
            }
            let starts = self.walks.iter().flatten().map(|walk| walk.span.start).filter(|start| *start > at);
            let gap = Span { start: at, end: starts.min().unwrap_or(self.whole.end) };
            let (told, to) = scan(gap, &mut runs[n..])?;
            n += told;
            at = if told == 0 || to <= at { gap.end } else { to };
        }
        self.walks.iter_mut().flatten().for_each(|walk| walk.quiet = walk.quiet.saturating_add(1));
        let mut is_elsewhere = false;
        let before = self.walks;
        for run in &runs[..n] {
            is_elsewhere |= !self.take(*run);
        }
        self.join();
        let has_grown = self.settle(&before);
        let is_random = is_elsewhere && !has_grown;
        self.random =
            if is_random { self.random + 1 } else { self.random.saturating_sub(has_grown as u8 * RANDOM) };
        let is_all = || self.walks.iter().flatten().any(|walk| walk.span.bytes() + PAGE > self.whole.bytes());
        Some(match (has_grown, n) {
            _ if is_all() => Found::End,
            _ if self.random >= RANDOM => Found::Random,
            _ if self.unused > WASTE + self.used / 2 => Found::Waste,
            (false, 0) => Found::Nothing,
            _ => Found::Growth,
        })
    }

    /// Adds a run to its walk, or begins one; false: there is no room for another.
    fn take(&mut self, run: Span) -> bool {
        if let Some(walk) = self.walks.iter_mut().flatten().find(|walk| walk.is_near(run)) {
            walk.seen += run.bytes();
            walk.span = Span { start: walk.span.start.min(run.start), end: walk.span.end.max(run.end) };
            return true;
        }
        let free = self.walks.iter().position(Option::is_none);
        let quietest = || {
            let walk = |i: &usize| self.walks[*i].map_or(0, |walk| walk.quiet);
            (0..WALKS).max_by_key(walk).filter(|i| walk(i) >= QUIET)
        };
        let Some(place) = free.or_else(quietest) else { return false };
        if let Some(old) = self.walks[place].replace(Walk::new(run)) {
            self.forget(&old);
        }
        // What makes room for another is no growth.
        free.is_some()
    }

    fn forget(&mut self, old: &Walk) {
        self.unused += old.left();
        self.used += old.asked.clip(old.span).bytes();
    }

    /// Walks that have met are one: the walk that asks goes on.
    fn join(&mut self) {
        for i in 0..WALKS {
            for j in 0..WALKS {
                let (Some(a), Some(b)) = (self.walks[i], self.walks[j]) else { continue };
                if i == j || a.span.end < b.span.start || b.span.end < a.span.start || a.grown < b.grown {
                    continue;
                }
                let span = Span { start: a.span.start.min(b.span.start), end: a.span.end.max(b.span.end) };
                let together = Walk { span, seen: a.seen + b.seen, ..a };
                self.walks[i] = Some(together);
                self.walks[j] = None;
                self.forget(&b);
            }
        }
    }

    /// Notes which walks have grown, and where; whether one has.
    fn settle(&mut self, before: &[Option<Walk>; WALKS]) -> bool {
        let mut has_grown = false;
        for (walk, old) in self.walks.iter_mut().zip(before) {
            let (Some(walk), Some(old)) = (walk, old) else { continue };
            let (up, down) = (walk.span.end > old.span.end, walk.span.start < old.span.start);
            if walk.span == old.span || walk.span.clip(old.span).is_empty() {
                continue;
            }
            let way = match (up, down) {
                (true, true) => walk.way,
                (true, false) => Way::Up,
                _ => Way::Down,
            };
            let (is_same, has_asked) = (way == walk.way || walk.grown == 0, !walk.asked.is_empty());
            walk.grown = if is_same { walk.grown.saturating_add(1) } else { 1 };
            let is_outrun = match way {
                Way::Up => walk.asked.end < walk.span.end,
                Way::Down => walk.asked.start > walk.span.start,
            };
            if way != walk.way || is_outrun {
                if has_asked {
                    self.unused += walk.left();
                    self.used += walk.asked.clip(walk.span).bytes();
                }
                let at = if way == Way::Up { walk.span.end } else { walk.span.start };
                walk.asked = Span::new(at, 0);
            }
            walk.way = way;
            walk.quiet = 0;
            has_grown = true;
        }
        has_grown
    }

    /// What is to be asked for next: `most` bytes ahead of all sequences together, `piece` at a time. It counts as
    /// asked for then.
    pub fn next(&mut self, most: usize, piece: usize) -> Option<Span> {
        let whole = self.whole;
        let sequences =
            self.walks.iter().flatten().filter(|walk| walk.is_sequence() && walk.quiet < QUIET).count();
        let share = most / sequences.max(1);
        self.walks.iter_mut().flatten().filter(|walk| walk.quiet < QUIET).find_map(|walk| {
            let next = walk.next(whole, share, piece)?;
            let is_first = walk.asked.is_empty();
            walk.asked = Span {
                start: if is_first { next.start } else { walk.asked.start.min(next.start) },
                end: if is_first { next.end } else { walk.asked.end.max(next.end) },
            };
            Some(next)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use super::*;

    const MIB: usize = 1 << 20;
    const PIECE: usize = MIB;
    const WHOLE: Span = Span { start: 1 << 30, end: (1 << 30) + 512 * MIB };

    /// Page tables, and what was asked for.
    struct Program {
        present: Vec<bool>,
        walks: Walks,
        asked: Vec<Span>,
    }

    impl Program {
        fn new() -> Self {
            let pages = WHOLE.bytes() / PAGE;
            Self { present: vec![false; pages], walks: Walks::new(WHOLE), asked: Vec::new() }
        }

        /// The program uses `bytes` at `at`; then there is a look, and all is asked for that is to be.
        fn read(&mut self, at: usize, bytes: usize, most: usize) -> Found {
            self.present[at / PAGE..(at + bytes) / PAGE].fill(true);
            let present = &self.present;
            let scan = |span: Span, runs: &mut [Span]| {
                let (mut told, mut at) = (0, span.start);
                let is_there = |at: usize| present[(at - WHOLE.start) / PAGE];
                while at < span.end && told < runs.len() {
                    if is_there(at) {
                        let start = at;
                        while at < span.end && is_there(at) {
                            at += PAGE;
                        }
                        runs[told] = Span { start, end: at };
                        told += 1;
                    } else {
                        at += PAGE;
                    }
                }
                Some((told, at))
            };
            let found = self.walks.look(scan).unwrap();
            while let Some(span) = self.walks.next(most, PIECE) {
                assert!(span.start >= WHOLE.start && span.end <= WHOLE.end && span.bytes() <= PIECE);
                self.asked.push(span);
            }
            found
        }

        fn bytes(&self) -> usize {
            self.asked.iter().map(|span| span.bytes()).sum()
        }
    }

    #[test]
    fn windows_grow_with_a_sequence_and_nothing_is_asked_for_twice() {
        let mut program = Program::new();
        for i in 0..64 {
            program.read(i * MIB, MIB, 32 * MIB);
            let ahead = program.asked.last().map_or(0, |span| span.end - (WHOLE.start + (i + 1) * MIB));
            assert!(ahead <= 32 * MIB && ahead <= (i + 1) * MIB, "{ahead} ahead after {i}");
            assert!(i < 2 || ahead >= 32.min(i) * MIB, "{ahead} ahead after {i}");
        }
        assert!(program.asked.windows(2).all(|two| two[0].end == two[1].start), "in order, and once");
        let (used, unused) = program.walks.results();
        assert_eq!((used + unused, unused), (program.bytes(), 32 * MIB));
    }

    #[test]
    fn backward_is_a_sequence_too() {
        let mut program = Program::new();
        let end = WHOLE.bytes();
        (1..64).for_each(|i| _ = program.read(end - i * MIB, MIB, 16 * MIB));
        assert!(program.asked.windows(2).all(|two| two[0].start == two[1].end));
        let (used, unused) = program.walks.results();
        assert!(used >= 55 * MIB && unused == 16 * MIB, "{used} {unused}");
    }

    #[test]
    fn several_sequences_share_what_may_be_asked_for() {
        let mut program = Program::new();
        for i in 0..32 {
            (0..4).for_each(|part| _ = program.read(part * 128 * MIB + i * MIB, MIB, 32 * MIB));
        }
        let (used, unused) = program.walks.results();
        assert!(used > 100 * MIB && unused <= 32 * MIB, "{used} {unused}");
    }

    #[test]
    fn nothing_is_asked_for_at_random() {
        let mut program = Program::new();
        let mut at = 12345usize;
        let found = (0..64).map(|_| {
            for _ in 0..7 {
                at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let page = ((at >> 33) % (WHOLE.bytes() / PAGE)) & !15;
                program.present[page..page + 16].fill(true);
            }
            program.read(0, 0, 32 * MIB)
        });
        assert!(found.into_iter().any(|found| found == Found::Random));
        assert_eq!(program.bytes(), 0);
    }

    #[test]
    fn pieces_at_random_places_end_it_when_too_much_is_left_behind() {
        let mut program = Program::new();
        let found = (0..40usize).flat_map(|i| (0..4 * QUIET as usize).map(move |j| (i, j))).map(|(i, j)| {
            // 4 MiB, and then nothing for a while.
            let at = i * 5 % 40 * 12 * MIB + j.min(4) * MIB;
            program.read(at, if j < 4 { MIB } else { 0 }, 32 * MIB)
        });
        assert!(found.into_iter().any(|found| found == Found::Waste));
    }

    #[test]
    fn the_end_is_seen() {
        let mut program = Program::new();
        let step = 8 * MIB;
        let found: Vec<_> = (0..64).map(|i| program.read(i * step, step, 64 * MIB)).collect();
        assert_eq!(found.iter().position(|found| *found == Found::End), Some(63));
        assert_eq!(program.walks.results().1, 0);
    }
}
