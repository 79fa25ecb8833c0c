//! Taking a range away from the program, as munmap does, with its memory still there.
//!
//! `mremap` moves the range, areas and page tables, to a place that no other code knows. To the program it is
//! unmapped at that moment, all at once. Its pages can then be looked at, moved and dropped without a race. The
//! kernel decides: it refuses to move a sealed range, for one, and then nothing has happened.
//!
//! That holds for a range that is one area to the kernel. Several in one call may stop half way (Linux 6.17), at areas
//! that cannot all be told beforehand. Memory would be gone meanwhile, and its addresses free for other threads. So a
//! range of several areas stays with the kernel.
//!
//! There are a few such places. When all are taken, or the range is too large, a range stays with the kernel, too.
//!
//! ```text
//!         isolate             give_up · a part may be another's
//!   FREE ─────────► IN_USE ─────────► IN_USE|LOST ───────► LOST
//!    ▲ ▲             │ │                   ▲      leave
//!    │ └─────────────┘ │ retire            │
//!    │  drop_isolated  └──► IN_USE|GONE ───┼─────────────► GONE
//!    │                    give_up · retire │      leave
//!    └─────────────────────────────────────┘
//! ```
//!
//! A program may map something of its own over a place, move memory onto it or unmap it. It says so first
//! ([`give_up`]), without a lock. A lost place is never used, closed or unmapped again, also in a forked child. The
//! caller then waits for a thread that uses the place, a second at most. An instruction of the program says nothing.
//! So the kernel is asked what lies at a place before memory moves onto it, and before its addresses go back.
//!
//! All places go back at once where the program limits its addresses. A thread that has one says beforehand which
//! range it moves memory onto (`PLANNED`). Only that range stays, until the thread is done, as a range stays that is
//! being unmapped.

use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use super::raw::{self, Answer, NoSignals, syscall};
use super::{area, linux};
use crate::units::{PAGE, SLOT, Span};

/// Where the places begin, and the bytes of each; 0 before [`reserve`].
static START: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

static PLACES: [Place; 4] = [const { Place::new() }; 4];

/// What is known of a place. In one page of memory, of which a forked child has one moment.
#[repr(align(32))]
struct Place {
    /// [`FREE`], or some of the others.
    word: AtomicU8,
    /// What is isolated here, or about to be, if the word says so.
    at: AtomicUsize,
    bytes: AtomicUsize,
}

const FREE: u8 = 0;
/// A thread has it.
const IN_USE: u8 = 1;
/// It is out of use for good. A thread that has it still may close the range that it isolated itself.
const LOST: u8 = 2;
/// The program's call did not wait any longer for that thread, which leaves all of the place alone.
const OVERTAKEN: u8 = 4;
/// Its addresses went back, all but what the thread that has it had planned. That goes when the thread is done.
const GONE: u8 = 8;
/// The thread that has it is about to move memory onto the range noted here.
const PLANNED: u8 = 16;
/// The memory is there.
const ISOLATED: u8 = 32;
/// They are going back at this moment.
const GOING: u8 = 64;
/// What ends with a use.
const USE: u8 = IN_USE | PLANNED | ISOLATED;

impl Place {
    const fn new() -> Self {
        Self { word: AtomicU8::new(FREE), at: AtomicUsize::new(0), bytes: AtomicUsize::new(0) }
    }

    fn has(&self, flags: u8) -> bool {
        self.word.load(Ordering::SeqCst) & flags != 0
    }

    /// Takes it if it is free, `with` other flags.
    fn take(&self, with: u8) -> bool {
        self.word.compare_exchange(FREE, IN_USE | with, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// It is out of use from now on: the word before.
    fn lose(&self) -> u8 {
        self.word.fetch_or(LOST, Ordering::SeqCst)
    }

    /// This thread, which has it, is about to move memory onto a range of it; whether it may.
    fn plan(&self, range: Span) -> bool {
        self.at.store(range.start, Ordering::SeqCst);
        self.bytes.store(range.bytes(), Ordering::SeqCst);
        self.word.fetch_or(PLANNED, Ordering::SeqCst) & (LOST | GONE) == 0
    }

    /// After the memory came, not before: a move that fails may leave a hole, which is free for others.
    fn note_isolated(&self) {
        self.word.fetch_or(ISOLATED, Ordering::SeqCst);
    }

    fn planned(&self) -> Span {
        Span::new(self.at.load(Ordering::SeqCst), self.bytes.load(Ordering::SeqCst))
    }

    /// Ends a use. `own` is what this thread had planned, if it is still reserved: it goes with the rest of the place.
    fn leave(&self, mut own: Option<Span>) {
        let end = |word: u8| {
            let is_left = word & GONE != 0 && word & OVERTAKEN == 0 && own.is_some();
            (!is_left).then_some(word & !USE)
        };
        if self.word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, end).is_err() {
            own.take().into_iter().for_each(give_back);
            self.word.fetch_and(!USE, Ordering::SeqCst);
        }
    }
}

/// Reserves the places, each of `bytes` bytes.
pub fn reserve(bytes: usize) {
    if START.load(Ordering::Acquire) == 0
        && let Some(span) = linux::reserve(bytes * PLACES.len(), SLOT)
    {
        BYTES.store(bytes, Ordering::Relaxed);
        START.store(span.start, Ordering::Release);
    }
}

/// Where a place is.
fn span_of(place: &Place) -> Span {
    let bytes = BYTES.load(Ordering::Relaxed);
    let i = PLACES.iter().position(|other| core::ptr::eq(other, place)).unwrap_or(0);
    Span::new(START.load(Ordering::Acquire) + i * bytes, bytes)
}

/// What a range takes in a place: it becomes larger.
fn larger(span: Span) -> Span {
    Span::new(span.start, span.bytes() + PAGE)
}

/// As [`super::Sys::isolate`].
pub fn isolate(span: Span) -> Option<Span> {
    let room = BYTES.load(Ordering::Relaxed);
    if START.load(Ordering::Acquire) == 0 || span.bytes() + 2 * SLOT > room {
        return None;
    }
    let place = PLACES.iter().find(|place| place.take(0))?;
    let isolated = Span::new(span_of(place).start + span.start % SLOT, span.bytes());
    let target = larger(isolated);
    if !place.plan(target) {
        place.leave(None);
        return None;
    }
    if area::is_reserved(target) == Some(false) {
        // An instruction of the program has laid something there.
        place.lose();
        place.leave(None);
        return None;
    }
    if shift(span, target).is_ok() {
        place.note_isolated();
        return Some(isolated);
    }
    // A move that failed late has unmapped its target. Another thread may have mapped something there by now.
    let is_ours = linux::reserve_at(target, libc::MAP_FIXED_NOREPLACE)
        || area::is_reserved(target).unwrap_or_else(|| is_mapped(target));
    if !is_ours {
        give_back_beside(place, target);
    }
    place.leave(is_ours.then_some(target));
    None
}

/// Moves `from`, which becomes larger: so the kernel takes a single area only.
fn shift(from: Span, to: Span) -> Answer {
    let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as usize;
    // SAFETY: the program unmaps this range, and the place is ours.
    unsafe { syscall(libc::SYS_mremap, [from.start, from.bytes(), to.bytes(), flags, to.start, 0]) }
}

/// Gives up a place that this thread has; `part` of it may hold a mapping that is not ours, and the rest goes back. Not
/// where it went back already, nor where the program gave it up: it may have mapped something anywhere in it.
fn give_back_beside(place: &Place, part: Span) {
    if place.lose() & (LOST | GONE) == 0 {
        give_back_around(place, part);
    }
}

/// Unmaps all of a place but `part`.
fn give_back_around(place: &Place, part: Span) {
    let whole = span_of(place);
    give_back(Span { start: whole.start, end: part.start.max(whole.start) });
    give_back(Span { start: part.end.clamp(whole.start, whole.end), end: whole.end });
}

/// Unmaps what is ours, as far as the kernel says.
fn give_back(part: Span) {
    if !part.is_empty() && area::is_reserved(part) != Some(false) {
        unmap(part);
    }
}

fn unmap(span: Span) {
    // SAFETY: what the program unmaps, or a place of ours.
    unsafe { raw::unmap(span.start, span.bytes()) };
}

/// Whether a range has no gap.
pub(super) fn is_mapped(span: Span) -> bool {
    // SAFETY: for memory without a file this writes nothing, and for files it starts nothing.
    unsafe { syscall(libc::SYS_msync, [span.start, span.bytes(), libc::MS_ASYNC as usize, 0, 0, 0]) }.is_ok()
}

/// As [`super::Sys::drop_isolated`].
pub fn drop_isolated(span: Span) {
    let i = (span.start - START.load(Ordering::Acquire)) / BYTES.load(Ordering::Relaxed);
    let place = &PLACES[i];
    let own = if place.has(OVERTAKEN) { None } else { drop_range(place, larger(span)) };
    place.leave(own);
}

/// Makes a reservation of a range again: the range if that is so.
fn drop_range(place: &Place, range: Span) -> Option<Span> {
    if linux::reserve_at(range, libc::MAP_FIXED) {
        return Some(range);
    }
    // A limit of addresses forbids this, so all the place goes. It is out of use before its addresses are free: others
    // may come to lie there.
    give_back_beside(place, range);
    unmap(range);
    None
}

/// In a forked child: memory that another thread of the parent had taken away is here too, and has no owner.
pub fn forget() {
    PLACES.iter().for_each(|place| _ = place.word.fetch_and(!GOING, Ordering::SeqCst));
    for place in PLACES.iter().filter(|place| place.has(IN_USE)) {
        let range = place.planned();
        let own = match () {
            // Others may lie there.
            () if place.has(LOST) => None,
            () if place.has(ISOLATED) => drop_range(place, range),
            // Nothing had moved there yet.
            () if !place.has(PLANNED) => None,
            () if area::is_reserved(range) == Some(true) => Some(range),
            // Memory has moved there, or another thread's lies in a hole that a move left.
            () => {
                give_back_beside(place, range);
                None
            }
        };
        place.leave(own);
    }
}

/// Gives the places back, but for ranges onto which a thread moves memory at this moment: they go when it is done.
pub fn retire() {
    if START.load(Ordering::Acquire) != 0 {
        PLACES.iter().for_each(retire_one);
    }
}

fn retire_one(place: &Place) {
    // First out of use, because its addresses have other owners at once.
    let retired = |word: u8| (word & (LOST | GONE) == 0).then_some(word | GONE | GOING);
    let Ok(before) = place.word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, retired) else { return };
    let none = Span::new(span_of(place).start, 0);
    give_back_around(place, if before & PLANNED != 0 { place.planned() } else { none });
    place.word.fetch_and(!GOING, Ordering::SeqCst);
}

/// Whether a byte of `span` lies where places are or were.
#[inline]
pub fn touches(span: Span) -> bool {
    let start = START.load(Ordering::Acquire);
    start != 0 && span.start < start + PLACES.len() * BYTES.load(Ordering::Relaxed) && span.end > start
}

/// What becomes of a place that the program gives up, beside its own part.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// Its addresses go back.
    GoesBack,
    /// It stays reserved: this thread may make no call for it.
    Stays,
}

/// Before the program maps something over `span`, moves memory onto it or unmaps it. Places there are out of use then.
/// The exception is a thread that has had one for a second.
pub fn give_up(span: Span, rest: Rest) {
    let is_part = |place: &&Place| touches(span) && !span_of(place).clip(span).is_empty();
    PLACES.iter().filter(is_part).for_each(|place| give_up_one(place, span, rest));
}

/// How often and how long a call of the program waits for the thread that has a place: a second in all.
const TRIES: usize = 20_000;
const REST_NS: u64 = 50_000;

fn give_up_one(place: &Place, span: Span, rest: Rest) {
    if rest == Rest::GoesBack && place.word.load(Ordering::SeqCst) == FREE {
        // A handler may leave by a jump.
        let _no_signals = NoSignals::new();
        if place.take(LOST) {
            give_back_around(place, span);
            return place.leave(None);
        }
    }
    place.lose();
    for _ in 0..TRIES {
        if !place.has(IN_USE | GOING) {
            return;
        }
        raw::sleep_ns(REST_NS);
    }
    place.word.fetch_or(OVERTAKEN, Ordering::SeqCst);
}
