//! Pages go.

use faultless_base::sync::atomic::{AtomicUsize, Ordering};
use faultless_base::sys::mmu::{Mmu, Rights};
use faultless_base::{PAGE, Span};
use faultless_page::knobs::Knob;
use faultless_page::stats::Counter;

use super::Swap;
use super::table::{Kind, Place};
use crate::region::Region;

/// Pages that a step of a hand looks at: it takes them, or writes them out. A fault in the same 2 MiB waits for that.
const PIECE: usize = 64;
/// Pages aside are this part of the budget, and two pieces at least: so a piece is not written as soon as it is taken.
const ASIDE_PART: usize = 8;
/// Calls of reclaim that are left out after the store has failed.
const REST: usize = 64;

/// How the second hand's step ended.
enum Step {
    /// This many pages are gone. There may be more in this piece.
    Gone(usize),
    /// There is none in this piece, or another thread has it.
    Nothing,
    /// The store has failed.
    Failed,
}

impl<M: Mmu> Region<M> {
    /// Lets pages go before a fault, as many as are above the budget. The background has failed to keep room then.
    pub(crate) fn make_room(&self) {
        let Some(swap) = &self.swap else { return };
        let above = self.pages_in_memory().saturating_sub(swap.budget);
        if above > 0 {
            self.count(Counter::SwapDirect, 1, 0);
            self.reclaim(swap, above + PIECE);
        }
    }

    /// Whether the room left is below the low mark: [`Region::keep_room`].
    pub fn wants_room(&self) -> bool {
        self.swap.as_ref().is_some_and(|swap| {
            self.pages_in_memory() + swap.budget * self.mark(Knob::SwapLow) / 100 > swap.budget
                && swap.rests.load(Ordering::Relaxed) == 0
        })
    }

    /// Lets some pages go, up to the high mark; whether more should. In the background.
    pub fn keep_room(&self) -> bool {
        let Some(swap) = &self.swap else { return false };
        let high = self.mark(Knob::SwapHigh).max(self.mark(Knob::SwapLow));
        let wanted = (self.pages_in_memory() + swap.budget * high / 100).saturating_sub(swap.budget);
        wanted > 0 && self.reclaim(swap, wanted.min(PIECE)) > 0
    }

    fn mark(&self, knob: Knob) -> usize {
        self.knobs.get(knob) as usize
    }

    /// Lets `most` pages go, or some more; how many went. It ends, too, when both hands have been everywhere in vain.
    fn reclaim(&self, swap: &Swap, most: usize) -> usize {
        let rests = |rests: usize| rests.checked_sub(1);
        if swap.rests.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rests).is_ok() {
            return 0;
        }
        let pieces = self.span.bytes() / (PIECE * PAGE);
        let (mut gone, mut in_vain) = (0, 0);
        // A page goes by both hands: once around each.
        let mut may_take = pieces;
        while gone < most && in_vain < pieces {
            let aside = (swap.budget / ASIDE_PART).max(2 * PIECE).max(most);
            if may_take > 0 && swap.kept.load(Ordering::Relaxed) < aside {
                let (piece, passed) = self.next_piece(&swap.takes);
                may_take = may_take.saturating_sub(passed);
                swap.takes.store(piece.end, Ordering::Relaxed);
                self.take_aside(swap, piece);
                continue;
            }
            let (piece, passed) = self.next_piece(&swap.writes);
            match self.write_out(swap, piece) {
                Step::Gone(pages) => (gone, in_vain) = (gone + pages, 0),
                Step::Nothing => {
                    in_vain += passed;
                    swap.writes.store(piece.end, Ordering::Relaxed);
                }
                Step::Failed => {
                    swap.rests.store(REST, Ordering::Relaxed);
                    break;
                }
            }
        }
        gone
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

    /// Calls `f` for each part of a piece that may be written to, with its entry, as long as it is true.
    fn each_writable(&self, all: Span, mut f: impl FnMut(Span) -> bool) {
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
            let Some(_entry) = self.entries.try_lock(from, seen, || self.mmu.relax(0)) else { return };
            let suits = view.attributes.rights == Rights::Write && !view.attributes.backed;
            if suits && area.sequence() == sequence && !f(view.span.clip(Span { start: from, ..all })) {
                return;
            }
        }
    }

    /// The first hand: the pages of a piece go aside.
    fn take_aside(&self, swap: &Swap, piece: Span) {
        self.each_writable(piece, |part| {
            for (_, home) in swap.table.runs(part).filter(|(kind, _)| *kind == Kind::Home) {
                self.each_there(home, |there| {
                    let taken = self.take_run(swap, there);
                    // Before another thread can let them go further.
                    swap.keep_more(taken);
                    self.count_less(taken);
                    self.count(Counter::SwapAside, taken * PAGE, 0);
                });
            }
            true
        });
    }

    /// Pages that are there go aside, but for those that a device uses; how many.
    fn take_run(&self, swap: &Swap, there: Span) -> usize {
        let (mut at, mut taken) = (there.start, 0);
        while at < there.end {
            let rest = Span { start: at, ..there };
            let moved = Span::new(at, self.mmu.take_out(rest, swap.aside(rest).start));
            swap.table.put(moved, Place::Aside);
            taken += moved.bytes() / PAGE;
            // A page that did not move stays.
            at = moved.end + PAGE;
        }
        taken
    }

    /// The second hand: pages of a piece that are still aside go out.
    fn write_out(&self, swap: &Swap, piece: Span) -> Step {
        let mut step = Step::Nothing;
        self.each_writable(piece, |part| {
            let Some((_, run)) = swap.table.runs(part).find(|(kind, _)| *kind == Kind::Aside) else { return true };
            step = self.write_run(swap, run);
            false
        });
        step
    }

    /// Writes pages that are aside, but for those that are zero: these are as if they had never been there.
    fn write_run(&self, swap: &Swap, run: Span) -> Step {
        let mut digests = [None; PIECE];
        let pages = || (run.start..run.end).step_by(PAGE).enumerate();
        for (i, page) in pages() {
            digests[i] = self.mmu.digest(swap.aside(Span::new(page, PAGE)).start);
        }
        let mut at = 0;
        while at < run.bytes() / PAGE {
            let is_zero = digests[at].is_none();
            let same = |digest: &Option<u32>| digest.is_none() == is_zero;
            let count = digests[at..run.bytes() / PAGE].iter().take_while(|digest| same(digest)).count();
            let part = Span::new(run.start + at * PAGE, count * PAGE);
            if !is_zero && self.mmu.write_out(swap.aside(part), swap.offset(part.start)).is_err() {
                self.count(Counter::SwapErrors, 1, 0);
                return Step::Failed;
            }
            let when = swap.gone.fetch_add(if is_zero { 0 } else { count }, Ordering::Relaxed);
            for (i, page) in pages().skip(at).take(count) {
                let out = |digest| Place::Out { digest, when: when + i - at };
                swap.table.set(page, digests[i].map_or(Place::Home, out));
            }
            self.mmu.drop_reserved(swap.aside(part));
            swap.keep_less(count);
            self.count(Counter::SwapOut, if is_zero { 0 } else { part.bytes() }, 0);
            at += count;
        }
        Step::Gone(run.bytes() / PAGE)
    }
}
