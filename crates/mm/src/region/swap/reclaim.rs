//! Pages go.

use core::cell::Cell;
use core::ops::Range;

use faultless_base::sync::atomic::{AtomicUsize, Ordering};
use faultless_base::sys::mmu::{Mmu, Rights};
use faultless_base::{PAGE, Span};
use faultless_page::stats::Counter;

use super::Swap;
use super::table::{Kind, Place};
use crate::region::Region;

/// Pages that a step of a hand looks at: it takes them, or writes them out. A fault in the same 2 MiB waits for that.
pub(super) const PIECE: usize = 64;
/// Pages aside are this part of the budget, and two pieces at least: so a piece is not written as soon as it is taken.
/// Where faults bring single pages, each page that comes back from there costs a message: they are fewer then.
const ASIDE_PART: usize = 8;
const ASIDE_PART_OF_SINGLE: usize = 32;
/// Windows of fewer pages count as single pages.
const FEW: usize = 8;
/// Calls of reclaim that are left out after the store has failed, or tours of all and waits were in vain.
const REST: usize = 64;
/// Tours in vain, one after the other, before that.
const VAIN: usize = 8;
/// Fewer pages than this between two that are written are written along with them: a call costs more than they do.
const GAP: usize = 32;

/// What a call of reclaim has done.
pub(super) struct Reclaimed {
    /// Pages that have left memory.
    pub gone: usize,
    /// Other threads had pages in hand that might have gone.
    pub met_others: bool,
}

/// How the second hand's step ended.
enum Step {
    /// This many pages are gone. There may be more in this piece.
    Gone(usize),
    /// There is none in this piece, or another thread has it.
    Nothing,
    /// The store has failed.
    Failed,
}

impl Swap {
    fn aside_part(&self) -> usize {
        if self.pages_of_fault() < FEW { ASIDE_PART_OF_SINGLE } else { ASIDE_PART }
    }

    /// Reclaim is left out for some calls.
    pub(super) fn rest(&self) {
        self.rests.store(REST, Ordering::Relaxed);
    }

    /// Reclaim may be of use again.
    pub(super) fn go_on(&self) {
        self.vain.store(0, Ordering::Relaxed);
        self.rests.store(0, Ordering::Relaxed);
    }

    /// Whether reclaim is left out now.
    pub(super) fn rests(&self) -> bool {
        self.rests.load(Ordering::Relaxed) > 0
    }
}

impl<M: Mmu> Region<M> {
    /// Lets `most` pages go, or some more; how many went. It ends, too, when both hands have been everywhere in vain.
    pub(super) fn reclaim(&self, swap: &Swap, most: usize) -> Reclaimed {
        let rests = |rests: usize| rests.checked_sub(1);
        if swap.rests.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rests).is_ok() {
            return Reclaimed { gone: 0, met_others: false };
        }
        let met_others = Cell::new(false);
        let pieces = self.span.bytes() / (PIECE * PAGE);
        let (mut gone, mut in_vain) = (0, 0);
        // A page goes by both hands: once around each.
        let mut may_take = pieces;
        while gone < most && in_vain < pieces {
            let aside = (swap.budget / swap.aside_part()).max(2 * PIECE).max(most);
            // Pages that have become read-only since they went aside stay there. They are not those to choose from.
            let stuck = swap.stuck.load(Ordering::Relaxed);
            if may_take > 0 && swap.kept.load(Ordering::Relaxed) < aside.saturating_add(stuck) {
                let (piece, passed) = self.next_piece(&swap.takes);
                may_take = may_take.saturating_sub(passed);
                swap.takes.store(piece.end, Ordering::Relaxed);
                self.take_aside(swap, piece, &met_others);
                continue;
            }
            let hand = swap.writes.load(Ordering::Relaxed);
            let (piece, passed) = self.next_piece(&swap.writes);
            match self.write_out(swap, piece, &met_others) {
                Step::Gone(pages) => (gone, in_vain) = (gone + pages, 0),
                Step::Nothing => {
                    if piece.start < hand {
                        let met = swap.met_stuck.swap(0, Ordering::Relaxed);
                        swap.stuck.store(met, Ordering::Relaxed);
                    }
                    swap.met_stuck.fetch_add(self.closed_aside(swap, piece), Ordering::Relaxed);
                    in_vain += passed;
                    swap.writes.store(piece.end, Ordering::Relaxed);
                }
                Step::Failed => {
                    swap.rest();
                    break;
                }
            }
        }
        let is_vain = gone == 0 && in_vain >= pieces && !met_others.get();
        // More tours would take as long, and be in vain as well.
        if !is_vain {
            swap.vain.store(0, Ordering::Relaxed);
        } else if swap.vain.fetch_add(1, Ordering::Relaxed) >= VAIN {
            swap.rest();
        }
        Reclaimed { gone, met_others: met_others.get() }
    }

    /// The next piece from a hand on in which something is mapped, and how many pieces the hand passes by that.
    fn next_piece(&self, hand: &AtomicUsize) -> (Span, usize) {
        let bytes = PIECE * PAGE;
        let at =
            Some(hand.load(Ordering::Relaxed)).filter(|at| self.span.contains(*at)).unwrap_or(self.span.start);
        let from = |at: usize| Some(self.areas.first(Span { start: at, ..self.span })?.span.start.max(at));
        let behind = from(at);
        let next = behind.or_else(|| from(self.span.start)).unwrap_or(self.span.start) / bytes * bytes;
        let passed = if behind.is_some() { next - at } else { self.span.end - at + next - self.span.start };
        (Span::new(next, bytes), passed / bytes + 1)
    }

    /// How many pages of a piece are aside and may not be written to.
    fn closed_aside(&self, swap: &Swap, piece: Span) -> usize {
        let (mut at, mut pages) = (piece.start, 0);
        while at < piece.end
            && let Some(view) = self.areas.first(Span { start: at, ..piece })
        {
            if view.attributes.rights != Rights::Write {
                pages += swap.table.aside(view.span.clip(Span { start: at, ..piece }));
            }
            at = view.span.end;
        }
        pages
    }

    /// Calls `f` for each part of a piece that may be written to, with its entry, as long as it is true.
    fn each_writable(&self, all: Span, met_others: &Cell<bool>, mut f: impl FnMut(Span) -> bool) {
        let mut at = all.start;
        while at < all.end
            && let Some(view) = self.areas.first(Span { start: at, ..all })
        {
            let from = view.span.start.max(at);
            at = view.span.end;
            let Some(area) = self.areas.find_locked(from) else { continue };
            let Some((view, sequence)) = area.read().filter(|(view, _)| view.span.contains(from)) else {
                continue;
            };
            let seen = self.entries.read(from);
            let Some(_entry) = self.entries.try_lock(from, seen, || self.mmu.relax(0)) else {
                return met_others.set(true);
            };
            let suits = view.attributes.rights == Rights::Write && !view.attributes.backed;
            if suits && area.sequence() == sequence && !f(view.span.clip(Span { start: from, ..all })) {
                return;
            }
        }
    }

    /// The first hand: the pages of a piece go aside.
    fn take_aside(&self, swap: &Swap, piece: Span, met_others: &Cell<bool>) {
        self.each_writable(piece, met_others, |part| {
            let is_home = |kind: Kind| matches!(kind, Kind::Home | Kind::HomeClean);
            for (kind, home) in swap.table.runs(part).filter(|(kind, _)| is_home(*kind)) {
                self.each_there(home, |there| {
                    let taken = match kind {
                        Kind::HomeClean => self.take_clean(swap, there),
                        _ => self.take_run(swap, there, |_| Place::Aside),
                    };
                    swap.keep_more(taken);
                    self.count_less(taken);
                    self.count(Counter::SwapAside, taken * PAGE, 0);
                });
            }
            true
        });
    }

    /// Pages that are there go aside, but for those that a device uses; how many. `place` says what each is then.
    pub(super) fn take_run(&self, swap: &Swap, there: Span, place: impl Fn(usize) -> Place) -> usize {
        let (mut at, mut taken) = (there.start, 0);
        while at < there.end {
            let rest = Span { start: at, ..there };
            let moved = Span::new(at, self.mmu.take_out(rest, swap.aside(rest).start));
            (moved.start..moved.end).step_by(PAGE).for_each(|page| swap.table.set(page, place(page)));
            taken += moved.bytes() / PAGE;
            // A page that did not move stays.
            at = moved.end + PAGE;
        }
        taken
    }

    /// The second hand: pages of a piece that are still aside go out.
    fn write_out(&self, swap: &Swap, piece: Span, met_others: &Cell<bool>) -> Step {
        let mut step = Step::Nothing;
        self.each_writable(piece, met_others, |part| {
            let Some(run) = swap.table.first_aside(part) else { return true };
            step = self.write_run(swap, run);
            false
        });
        step
    }

    /// Writes pages that are aside, but for those that the store has, and those that are zero: these are as if they had
    /// never been there.
    fn write_run(&self, swap: &Swap, run: Span) -> Step {
        let pages = run.bytes() / PAGE;
        let page = |i: usize| Span::new(run.start + i * PAGE, PAGE);
        let (mut digests, mut is_changed) = ([None; PIECE], [false; PIECE]);
        for i in 0..pages {
            let stored = swap.table.get(page(i).start).digest();
            digests[i] = stored.or_else(|| self.mmu.digest(swap.aside(page(i)).start));
            is_changed[i] = stored.is_none() && digests[i].is_some();
        }
        let (mut at, mut written) = (0, [false; PIECE]);
        while let Some(some) = next_to_write(&is_changed[..pages], at) {
            let part = Span::new(page(some.start).start, some.len() * PAGE);
            if self.mmu.write_out(swap.aside(part), swap.offset(part.start)).is_err() {
                // What the store had there may be overwritten in part.
                let clean = (part.start..part.end)
                    .step_by(PAGE)
                    .filter(|page| swap.table.get(*page).kind() == Kind::AsideClean);
                clean.for_each(|page| swap.table.set(page, Place::Aside));
                self.count(Counter::SwapErrors, 1, 0);
                return Step::Failed;
            }
            self.count(Counter::SwapOut, part.bytes(), 0);
            at = some.end;
            written[some].fill(true);
        }
        let when = swap.gone.fetch_add(digests.iter().flatten().count(), Ordering::Relaxed);
        let (mut gone, mut unwritten) = (0, 0);
        for i in 0..pages {
            let out = |digest| Place::Out { digest, when: when + gone };
            swap.table.set(page(i).start, digests[i].map_or(Place::Home, out));
            gone += digests[i].is_some() as usize;
            unwritten += (digests[i].is_some() && !written[i]) as usize;
        }
        self.mmu.drop_reserved(swap.aside(run));
        swap.keep_less(pages);
        swap.hold_less(pages);
        self.count(Counter::SwapClean, unwritten * PAGE, 0);
        Step::Gone(pages)
    }
}

/// The next pages to write, from `at` on: the first that has changed, and those after it, over short gaps.
fn next_to_write(is_changed: &[bool], at: usize) -> Option<Range<usize>> {
    let next = |at: usize, most: usize| {
        is_changed[at..].iter().take(most).position(|is_changed| *is_changed).map(|further| at + further)
    };
    let first = next(at, is_changed.len())?;
    let mut end = first + 1;
    while let Some(more) = next(end, GAP) {
        end = more + 1;
    }
    Some(first..end)
}
