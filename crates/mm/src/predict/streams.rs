//! Streams: sequences of faults, by which windows grow.
//!
//! A stream knows where its next fault is expected, and an order. A fault that comes there raises the order by one;
//! one that no stream expects begins another stream, with the first order. A new stream may go up or down, and three
//! faults of one thread on a line make one of pages apart. A thread has several streams, so that sequences that
//! alternate do not break each other; one that another thread goes on with is taken over.
//!
//! Faults that follow no stream cost more than they would without a region. They are counted for each area, and what
//! streams save is set off against it; see [`Streams::is_without_pattern`].
//!
//! A stream that ends leaves a window behind that may stay unused. When too much of what was brought ahead turns out
//! to be unused, windows become smaller for all; see [`Streams::judge`].

use core::hash::{Hash, Hasher};

use faultless_base::Span;
use faultless_base::sync::Table;
use faultless_base::sync::atomic::{AtomicIsize, Ordering};

use crate::predict::stream::{Set, Stream, get, set};
use crate::predict::usage::Usage;
use crate::predict::window::{Orders, Step, UP, Window};

/// Areas that are told apart.
const AREAS: usize = 64;
/// How much is in an area's favour at most, in faults that follow nothing.
const MOST_CREDIT: usize = 4;

/// Whose faults follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Those of a thread in one area.
    ThreadAndArea,
    /// Those of a thread.
    Thread,
    /// Those of a thread, which has one stream alone, and goes up: as in the prefaulting patches of 2004.
    One,
}

impl By {
    /// As the knob `prefault_by` says it.
    pub fn of(knob: u64) -> Self {
        [Self::ThreadAndArea, Self::Thread, Self::One][(knob as usize).min(2)]
    }
}

/// The streams of one region.
pub struct Streams {
    /// A thread has one of them, alone or with others.
    sets: Table<Set>,
    orders: Orders,
    /// Faults that may follow nothing before an area counts as without a pattern.
    patience: usize,
    /// For each area, what was spent of its patience.
    spent: [AtomicIsize; AREAS],
    usage: Usage,
}

/// What is expected of a fault.
#[derive(Clone, Copy, Debug)]
pub struct Prediction {
    /// What it brings.
    pub window: Window,
    /// Whether a stream expected it.
    pub follows: bool,
    /// The last window of a stream that has ended.
    pub left: Option<Span>,
}

/// A fault as streams see it.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// The page.
    pub page: usize,
    /// The addresses of its area.
    pub area: Span,
    /// The area's number.
    pub id: usize,
    /// What tells the thread apart.
    pub hint: usize,
}

/// FNV-1a over the bytes of words; enough to tell threads and areas apart.
struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = (self.0 ^ *byte as u64).wrapping_mul(0x100_0000_01b3));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Streams {
    /// No thread has been seen yet; they have `sets` sets, a power of two. `None` when there is no memory for those.
    pub fn new(orders: Orders, patience: usize, sets: usize) -> Option<Self> {
        Some(Self {
            sets: Table::new(sets, Set::new)?,
            orders,
            patience,
            spent: core::array::from_fn(|_| AtomicIsize::new(0)),
            usage: Usage::new(orders.most),
        })
    }

    /// Says how many faults may follow nothing.
    pub fn set_patience(&mut self, patience: usize) {
        self.patience = patience;
    }

    /// What a fault brings, with an order of `most` at most.
    pub fn predict(&self, seen: Seen, by: By, most: u32) -> Prediction {
        let Seen { page, area, id, hint } = seen;
        let mut mix = Mix(0xcbf2_9ce4_8422_2325);
        let id_of = if by == By::ThreadAndArea { id } else { 0 };
        (id_of, hint).hash(&mut mix);
        let who = mix.finish() as usize | 1;
        // Threads one after the other have different ones, whatever the sum above.
        let own = &self.sets[hint.wrapping_add(id_of) & (self.sets.len() - 1)];
        let used = own.clock.fetch_add(1, Ordering::Relaxed) + 1;
        let most = self.orders.most.min(most).min(self.usage.limit());
        let first = self.orders.first.min(most);

        let grown = |order: u32| (order + 1).min(most);
        // The first fault of a thread can follow nothing.
        let is_known = own.streams.iter().any(|stream| get(&stream.who) == who);
        let mut left = None;
        let expecting = own.expecting(who, page).filter(|(_, step)| by != By::One || *step == UP);
        let (stream, step, order) = match expecting {
            Some((stream, step)) => {
                self.count_used(own, stream.ahead());
                (stream, step, grown(get(&stream.order) as u32))
            }
            None => {
                let place = if by == By::One { own.first_of(who) } else { own.place() };
                left = place.end();
                let goes_on = match by {
                    By::One => None,
                    _ => own.line(who, page).map(|step| (step, first)).or_else(|| self.take_over(page, area)),
                };
                set(&place.who, who);
                goes_on.map_or((place, 0, first), |(step, order)| (place, step, grown(order)))
            }
        };
        let window = Window::of(page, if step == 0 { UP } else { step }, order, area);
        stream.note(page, step, order, window, area, used);
        // Where nothing is brought ahead, nothing is lost by that.
        if most > 0 && (is_known || step != 0) {
            // Single pages apart save nothing, as where the next one is in another area.
            let saves = step != 0 && !(window.is_apart() && window.pages() == 1);
            self.account(id, saves, window.pages());
        }
        Prediction { window, follows: step != 0, left }
    }

    /// A fault came where a window ended: `pages` pages were used. While windows are as large as they may be, the sum
    /// is not needed, and stays in the thread's own set.
    fn count_used(&self, own: &Set, pages: usize) {
        own.used.fetch_add(pages, Ordering::Relaxed);
        if self.usage.is_limited() {
            self.usage.add_used(own.used.swap(0, Ordering::Relaxed));
        }
    }

    /// Of a window that a stream has left, `unused` pages were found unused.
    pub fn judge(&self, pages: usize, unused: usize) {
        self.usage.add_used(self.sets.iter().map(|set| set.used.swap(0, Ordering::Relaxed)).sum());
        self.usage.judge(pages, unused);
    }

    /// The stream of another thread in this area that expects a fault on `page` ends: its step and its order.
    fn take_over(&self, page: usize, area: Span) -> Option<(Step, u32)> {
        let expects = |stream: &&Stream| {
            let followed = get(&stream.who) != 0 && stream.step() != 0;
            followed && get(&stream.next) == page && area.contains(get(&stream.last))
        };
        // A loop of iterators, one in the other, takes much of a signal handler's stack.
        for own in self.sets.iter() {
            if let Some(other) = own.streams.iter().find(expects) {
                set(&other.who, 0);
                return Some((other.step(), get(&other.order) as u32));
            }
        }
        None
    }

    /// Sets what a fault saved, or cost, off against what it was before.
    fn account(&self, id: usize, saves: bool, pages: usize) {
        let spent = &self.spent[id % AREAS];
        let before = spent.load(Ordering::Relaxed);
        let after = match saves {
            true => (before - pages as isize).max(-((MOST_CREDIT * self.patience) as isize)),
            false => before + 1,
        };
        // All threads read it: it is written only when it changes.
        if after != before {
            spent.store(after, Ordering::Relaxed);
        }
    }

    /// How much of an area's patience was spent: below zero if faults saved more than they cost.
    pub fn spent(&self, id: usize) -> isize {
        self.spent[id % AREAS].load(Ordering::Relaxed)
    }

    /// Whether faults in an area follow nothing, and would be cheaper without a region.
    pub fn is_without_pattern(&self, id: usize) -> bool {
        self.spent(id) >= self.patience as isize
    }

    /// Earlier faults of an area do not count any more.
    pub fn forgive(&self, id: usize) {
        self.spent[id % AREAS].store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::window::HUGE_ORDER;
    use faultless_base::{PAGE, SLOT};
    use std::vec::Vec;

    const AREA: Span = Span { start: 64 * SLOT, end: 80 * SLOT };

    fn streams(first: u32, most: u32) -> Streams {
        Streams::new(Orders { first, most }, 20, 2).unwrap()
    }

    /// A fault on a page of the area, by a thread.
    fn fault(streams: &Streams, page: usize, hint: usize) -> Window {
        let seen = Seen { page: AREA.start + page * PAGE, area: AREA, id: 1, hint };
        streams.predict(seen, By::ThreadAndArea, 14).window
    }

    /// Pages that each fault of a walk brings: on from where the window ended.
    fn walk(streams: &Streams, from: usize, faults: usize) -> Vec<usize> {
        let mut at = from;
        let fault = |_| {
            let window = fault(streams, at, 1);
            at = window.next().wrapping_sub(AREA.start) / PAGE;
            window.pages()
        };
        (0..faults).map(fault).collect()
    }

    #[test]
    fn windows_double_while_faults_follow_each_other() {
        let streams = streams(0, 4);
        assert_eq!(walk(&streams, 0, 7), [1, 2, 4, 8, 16, 16, 16]);
        assert_eq!(fault(&streams, 70, 1).pages(), 1, "elsewhere it begins anew");
        assert_eq!(fault(&streams, 90, 2).pages(), 1, "another thread");
        let seen = Seen { page: AREA.start + 1000 * PAGE, area: AREA, id: 1, hint: 7 };
        streams.predict(seen, By::Thread, 14);
        let next = Seen { page: seen.page + PAGE, id: 2, ..seen };
        assert_eq!(
            streams.predict(next, By::Thread, 14).window.pages(),
            2,
            "in another area, by the thread alone"
        );
        assert_eq!(
            streams.predict(Seen { page: next.page + 2 * PAGE, ..next }, By::Thread, 1).window.pages(),
            2,
            "the limit"
        );
    }

    /// As in 2004: a thread has one prediction, in all areas, and it goes up.
    #[test]
    fn one_stream_goes_up_alone() {
        let streams = streams(0, 4);
        let fault = |page: usize, id: usize| {
            let seen = Seen { page: AREA.start + page * PAGE, area: AREA, id, hint: 1 };
            streams.predict(seen, By::One, 14).window.pages()
        };
        assert_eq!([0, 1, 3, 7, 15, 31].map(|page| fault(page, 1)), [1, 2, 4, 8, 16, 16]);
        assert_eq!(fault(47, 2), 16, "another area does not count");
        assert_eq!(fault(2000, 1), 1, "a second sequence begins anew");
        assert_eq!(fault(63, 2), 1, "and has ended the first");
        assert_eq!([1000, 999, 998, 997].map(|page| fault(page, 1)), [1; 4], "backward is no sequence");
        assert_eq!([3000, 3003, 3006, 3009].map(|page| fault(page, 1)), [1; 4], "nor are pages apart");
    }

    #[test]
    fn windows_grow_backward() {
        let streams = streams(0, HUGE_ORDER);
        let mut at = 2 * SLOT / PAGE - 1;
        let mut sizes = Vec::new();
        while at > SLOT / PAGE - 1 {
            let window = fault(&streams, at, 1);
            sizes.push(window.pages());
            assert_eq!(window.span.end, AREA.start + (at + 1) * PAGE);
            at = (window.span.start - AREA.start) / PAGE - 1;
        }
        assert_eq!(sizes, [1, 2, 4, 8, 16, 32, 64, 128, 256, 1]);
        assert_eq!(fault(&streams, at, 1).pages(), 512);
    }

    #[test]
    fn three_faults_on_a_line_make_a_stream_of_pages_apart() {
        for apart in [3isize, -3, 700, -700] {
            let streams = streams(0, 14);
            let mut at = if apart > 0 { 100 } else { 8000isize };
            let mut sizes = Vec::new();
            while (0..SLOT as isize * 16 / PAGE as isize).contains(&at) {
                let window = fault(&streams, at as usize, 1);
                sizes.push(window.pages());
                at += apart * window.pages() as isize;
                if sizes.len() == 6 {
                    break;
                }
            }
            let most = [1, 1, 2, 4, 8, 16];
            assert_eq!(sizes[..4], most[..4], "{apart} apart");
            assert!(sizes.iter().zip(most).all(|(size, most)| *size <= most), "{sizes:?}");
        }
    }

    #[test]
    fn streams_of_one_thread_do_not_break_each_other() {
        let streams = streams(0, 5);
        let (mut at, mut last) = ([0usize, 3072, 1536, 5120, 7680], [0; 5]);
        for _ in 0..7 {
            for i in 0..at.len() {
                let window = fault(&streams, at[i], 1);
                last[i] = window.pages();
                at[i] = (window.next() - AREA.start) / PAGE;
            }
        }
        assert_eq!(last, [32; 5]);
    }

    #[test]
    fn a_stream_is_handed_over() {
        let streams = streams(0, 14);
        walk(&streams, 0, 5);
        assert_eq!(fault(&streams, 31, 2).pages(), 32, "the second thread goes on where the first was");
        assert_eq!(fault(&streams, 31, 1).pages(), 1, "which has it no more");
    }

    #[test]
    fn an_area_without_a_pattern_is_told() {
        let streams = streams(0, 14);
        // As if by chance.
        let page = |i: usize| i * i * i * 7919 % 7993;
        let needed = (0..100).position(|i| {
            fault(&streams, page(i), 1);
            streams.is_without_pattern(1)
        });
        assert_eq!(needed, Some(20));
        assert!(!streams.is_without_pattern(2));
        streams.forgive(1);
        assert!(!streams.is_without_pattern(1));
        // One that is followed pays for many that are not.
        walk(&streams, 0, 8);
        (0..80).for_each(|i| _ = fault(&streams, page(i + 20), 3));
        assert!(!streams.is_without_pattern(1));
        (80..120).for_each(|i| _ = fault(&streams, page(i + 20), 3));
        assert!(streams.is_without_pattern(1), "but not for ever");
    }

    #[test]
    fn the_first_fault_of_each_thread_costs_no_patience() {
        let streams = streams(0, 14);
        (0..500).for_each(|thread| _ = fault(&streams, thread * 1000, thread));
        assert!(!streams.is_without_pattern(1));
    }
}
