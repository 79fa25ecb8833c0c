//! A stream: a sequence of faults, and where its next one is expected. A set has those of a thread, alone or with
//! others.
//!
//! Nothing is locked: threads that share a place may spoil each other's prediction, and no more.

use faultless_base::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use faultless_base::{PAGE, Span};

use crate::predict::window::{DOWN, Step, UP, Window};

const WAYS: usize = 16;
/// For how many faults more a stream that was followed is remembered than one that was not.
const FOLLOWED_LASTS: usize = 2 * WAYS;

/// One sequence. It belongs to no thread while `who` is 0.
pub(crate) struct Stream {
    pub(crate) who: AtomicUsize,
    /// The page of its last fault.
    pub(crate) last: AtomicUsize,
    /// Where the next one is expected; the second of a new stream alone, which may also go down.
    pub(crate) next: AtomicUsize,
    below: AtomicUsize,
    /// 0: it is new.
    step: AtomicIsize,
    pub(crate) order: AtomicUsize,
    /// Its last window, unless that went to the end of the area.
    start: AtomicUsize,
    end: AtomicUsize,
    /// When it was used, by the clock of its set.
    pub(crate) used: AtomicUsize,
}

/// Aligned, so that no thread writes to a line that all read.
#[repr(align(64))]
pub(crate) struct Set {
    pub(crate) streams: [Stream; WAYS],
    pub(crate) clock: AtomicUsize,
    /// Pages brought ahead that were used, before they are added to those of all sets.
    pub(crate) used: AtomicUsize,
}

pub(crate) fn get(word: &AtomicUsize) -> usize {
    word.load(Ordering::Relaxed)
}

pub(crate) fn set(word: &AtomicUsize, value: usize) {
    word.store(value, Ordering::Relaxed);
}

impl Stream {
    pub(crate) fn new() -> Self {
        let zero = || AtomicUsize::new(0);
        Self {
            who: zero(),
            last: zero(),
            next: zero(),
            below: zero(),
            step: AtomicIsize::new(0),
            order: zero(),
            start: zero(),
            end: zero(),
            used: zero(),
        }
    }

    pub(crate) fn step(&self) -> Step {
        self.step.load(Ordering::Relaxed)
    }

    /// The step with which a fault on `page` goes on with it.
    fn goes_on(&self, page: usize) -> Option<Step> {
        match self.step() {
            0 if page == get(&self.next) => Some(UP),
            0 if page == get(&self.below) => Some(DOWN),
            step if step != 0 && page == get(&self.next) => Some(step),
            _ => None,
        }
    }

    fn is_new_of(&self, who: usize) -> bool {
        get(&self.who) == who && self.step() == 0
    }

    /// The pages of its last window but that of its fault.
    pub(crate) fn ahead(&self) -> usize {
        (get(&self.end).saturating_sub(get(&self.start)) / PAGE).saturating_sub(1)
    }

    /// Ends it; its last window, if that was brought ahead.
    pub(crate) fn end(&self) -> Option<Span> {
        let left = Span { start: get(&self.start), end: get(&self.end) };
        let followed = get(&self.who) != 0 && self.step() != 0;
        set(&self.who, 0);
        (followed && self.ahead() > 0).then_some(left)
    }

    pub(crate) fn note(&self, page: usize, step: Step, order: u32, window: Window, area: Span, used: usize) {
        set(&self.last, page);
        set(&self.next, window.next());
        // 0 is no page of a region.
        set(&self.below, if step == 0 { window.span.start - PAGE } else { 0 });
        self.step.store(step, Ordering::Relaxed);
        set(&self.order, order as usize);
        let ends = window.is_apart() || window.span.end == area.end || step < 0 && window.span.start == area.start;
        set(&self.start, window.span.start);
        set(&self.end, if ends { window.span.start } else { window.span.end });
        set(&self.used, used + if step == 0 { 0 } else { FOLLOWED_LASTS });
    }
}

impl Set {
    pub(crate) fn new() -> Self {
        let zero = || AtomicUsize::new(0);
        Self { streams: core::array::from_fn(|_| Stream::new()), clock: zero(), used: zero() }
    }

    /// The stream of `who` that expects a fault on `page`, and its step.
    pub(crate) fn expecting(&self, who: usize, page: usize) -> Option<(&Stream, Step)> {
        let own = self.streams.iter().filter(|stream| get(&stream.who) == who);
        own.filter_map(|stream| Some((stream, stream.goes_on(page)?))).next()
    }

    /// The step of a line on which the last faults of two new streams and `page` are.
    pub(crate) fn line(&self, who: usize, page: usize) -> Option<Step> {
        let new = || self.streams.iter().filter(move |stream| stream.is_new_of(who));
        new().find_map(|later| {
            let step = page.wrapping_sub(get(&later.last));
            let before = get(&later.last).wrapping_sub(step);
            let is_earlier = |other: &Stream| get(&other.last) == before && get(&other.used) < get(&later.used);
            (step != 0 && new().any(is_earlier)).then_some(step as Step)
        })
    }

    /// The first stream of `who`, or a place for it.
    pub(crate) fn first_of(&self, who: usize) -> &Stream {
        self.streams.iter().find(|stream| get(&stream.who) == who).unwrap_or_else(|| self.place())
    }

    /// A place for a new stream: a free one, or the one whose last use is longest ago.
    pub(crate) fn place(&self) -> &Stream {
        let age = |stream: &&Stream| if get(&stream.who) == 0 { 0 } else { get(&stream.used) };
        self.streams.iter().min_by_key(age).unwrap_or(&self.streams[0])
    }
}
