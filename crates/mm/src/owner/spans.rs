//! A tree of spans: those that cover an offset are found without a look at the others.
//!
//! A treap by where spans begin. Each node knows the highest end below it, so a walk leaves out whole branches. Its
//! memory is made with it: a change allocates nothing. A number stands for a span; the caller chooses it.

use core::ops::ControlFlow;

use faultless_base::Span;
use faultless_base::sync::Words;
use faultless_base::sync::atomic::Ordering::Relaxed;

const START: usize = 0;
const END: usize = 1;
const LEFT: usize = 2;
const RIGHT: usize = 3;
/// The highest end of a node and of all below it.
const HIGHEST: usize = 4;
const FIELDS: usize = 5;

/// No span's number.
const NONE: usize = 0;

/// Spans by number, from 1 on.
pub struct Spans {
    words: Words,
    root: usize,
}

impl Spans {
    /// None yet, of at most `most`. `None` when there is no memory for them.
    pub fn new(most: usize) -> Option<Self> {
        Some(Self { words: Words::new((most + 1) * FIELDS)?, root: NONE })
    }

    fn get(&self, id: usize, field: usize) -> usize {
        self.words[id * FIELDS + field].load(Relaxed)
    }

    fn set(&self, id: usize, field: usize, value: usize) {
        self.words[id * FIELDS + field].store(value, Relaxed);
    }

    fn key(&self, id: usize) -> (usize, usize) {
        (self.get(id, START), id)
    }

    fn highest(&self, id: usize) -> usize {
        if id == NONE { 0 } else { self.get(id, HIGHEST) }
    }

    /// What is below a node has changed.
    fn sum_up(&self, id: usize) {
        let below = self.highest(self.get(id, LEFT)).max(self.highest(self.get(id, RIGHT)));
        self.set(id, HIGHEST, self.get(id, END).max(below));
    }

    /// Parts a tree: nodes before a key, and the others.
    fn split(&self, tree: usize, key: (usize, usize)) -> (usize, usize) {
        if tree == NONE {
            return (NONE, NONE);
        }
        let is_before = self.key(tree) < key;
        let side = if is_before { RIGHT } else { LEFT };
        let (before, behind) = self.split(self.get(tree, side), key);
        self.set(tree, side, if is_before { before } else { behind });
        self.sum_up(tree);
        if is_before { (tree, behind) } else { (before, tree) }
    }

    /// Joins two trees, all of the first being before the second.
    fn merge(&self, first: usize, second: usize) -> usize {
        if first == NONE || second == NONE {
            return first.max(second);
        }
        if priority(first) > priority(second) {
            self.set(first, RIGHT, self.merge(self.get(first, RIGHT), second));
            self.sum_up(first);
            first
        } else {
            self.set(second, LEFT, self.merge(first, self.get(second, LEFT)));
            self.sum_up(second);
            second
        }
    }

    /// A span comes, under a number that none has.
    pub fn insert(&mut self, id: usize, span: Span) {
        let fields = [(START, span.start), (END, span.end), (LEFT, NONE), (RIGHT, NONE), (HIGHEST, span.end)];
        fields.into_iter().for_each(|(field, value)| self.set(id, field, value));
        let (before, behind) = self.split(self.root, self.key(id));
        self.root = self.merge(self.merge(before, id), behind);
    }

    /// The span of a number goes, which is there.
    pub fn remove(&mut self, id: usize) {
        let (before, rest) = self.split(self.root, self.key(id));
        let (it, behind) = self.split(rest, (self.get(id, START), id + 1));
        debug_assert_eq!(it, id, "a span that is not there");
        self.root = self.merge(before, behind);
    }

    /// Calls `f` with each span that covers an offset, in the order of their beginnings, until it breaks.
    pub fn covering(&self, at: usize, mut f: impl FnMut(usize) -> ControlFlow<()>) {
        let _ = self.walk(self.root, at, &mut f);
    }

    fn walk<F: FnMut(usize) -> ControlFlow<()>>(&self, from: usize, at: usize, f: &mut F) -> ControlFlow<()> {
        let mut id = from;
        while self.highest(id) > at {
            // Most calls would find nothing there.
            let left = self.get(id, LEFT);
            if self.highest(left) > at {
                self.walk(left, at, f)?;
            }
            if self.get(id, START) > at {
                break;
            }
            if at < self.get(id, END) {
                f(id)?;
            }
            id = self.get(id, RIGHT);
        }
        ControlFlow::Continue(())
    }
}

/// Of a node: higher ones are above lower ones. It mixes the number, so that the tree is flat whatever its order.
fn priority(id: usize) -> u64 {
    let mut mixed = (id as u64).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    mixed ^= mixed >> 33;
    mixed = mixed.wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    mixed ^ mixed >> 33
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn found(spans: &Spans, at: usize) -> Vec<usize> {
        let mut all = Vec::new();
        spans.covering(at, |id| {
            all.push(id);
            ControlFlow::Continue(())
        });
        all
    }

    /// As a list of all spans says, after each of many changes.
    #[test]
    fn spans_found_are_spans_that_are_there() {
        const MOST: usize = 60;
        let mut spans = Spans::new(MOST).unwrap();
        let mut all: Vec<(usize, Span)> = Vec::new();
        let mut random = 88_172_645_463_325_252_u64;
        let mut next = |below: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 20) as usize % below
        };
        for step in 0..3000 {
            let id = next(MOST) + 1;
            match all.iter().position(|(other, _)| *other == id) {
                Some(place) => {
                    all.remove(place);
                    spans.remove(id);
                }
                None => {
                    let most = if step % 3 == 0 { 100 } else { 6 };
                    let span = Span::new(next(100), 1 + next(most));
                    all.push((id, span));
                    spans.insert(id, span);
                }
            }
            for at in 0..201 {
                let mut naive: Vec<(usize, usize)> =
                    all.iter().filter(|(_, span)| span.contains(at)).map(|(id, span)| (span.start, *id)).collect();
                naive.sort_unstable();
                assert!(found(&spans, at).into_iter().eq(naive.into_iter().map(|(_, id)| id)), "{step}: at {at}");
            }
        }
    }

    #[test]
    fn a_walk_leaves_out_what_does_not_cover_and_ends_when_told() {
        const MOST: usize = 4096;
        let mut spans = Spans::new(MOST).unwrap();
        (1..=MOST).for_each(|id| spans.insert(id, Span::new(id * 10, 10)));
        assert_eq!((found(&spans, 20_005), found(&spans, 5)), (Vec::from([2000]), Vec::new()));
        // In order, which would make a plain tree a list.
        fn depth(spans: &Spans, id: usize) -> usize {
            if id == NONE {
                0
            } else {
                1 + [LEFT, RIGHT].map(|side| depth(spans, spans.get(id, side))).into_iter().max().unwrap()
            }
        }
        assert!(depth(&spans, spans.root) < 48, "{}", depth(&spans, spans.root));
        (1..=MOST).for_each(|id| spans.remove(id));
        (1..=MOST).for_each(|id| spans.insert(id, Span::new(0, 10)));
        let mut seen = 0;
        spans.covering(3, |_| {
            seen += 1;
            if seen == 5 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(seen, 5);
    }
}
