//! Room in memory for pages, before they come.

use faultless_base::sync::atomic::{AtomicUsize, Ordering};
use faultless_base::sys::mmu::Mmu;
use faultless_base::{PAGE, Span};
use faultless_page::knobs::Knob;
use faultless_page::stats::Counter;

use super::Swap;
use super::clean::COPIED;
use super::reclaim::PIECE;
use super::table::Kind;
use crate::predict::window::Window;
use crate::region::Region;

/// A turn at which a thread that waits sleeps for a moment.
const ASLEEP: u32 = 1000;
/// How often a fault looks again for room while others have pages in hand.
const MOST_TURNS: u32 = if cfg!(debug_assertions) { 4 } else { 100 };

/// Faults for which the background keeps room, at most.
const FAULTS_LOW: usize = PIECE;
/// Faults for which it makes room then.
const FAULTS_HIGH: usize = 2 * PIECE;

/// Room for pages that a thread is bringing, until it has brought them. Of more than it needs, others keep away.
pub(crate) struct Coming<'a>(Option<(&'a AtomicUsize, usize)>);

impl Coming<'_> {
    const NONE: Self = Self(None);
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        if let Some((coming, pages)) = self.0 {
            coming.fetch_sub(pages, Ordering::Relaxed);
        }
    }
}

/// How much a thread needs the room.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    /// It goes without.
    Some,
    /// It takes it all the same.
    All,
}

impl Swap {
    /// Takes room, whether there is any or not.
    fn come(&self, pages: usize) -> Coming<'_> {
        self.coming.fetch_add(pages, Ordering::Relaxed);
        Coming(Some((&self.coming, pages)))
    }

    /// Pages that faults want to bring lately, on average.
    pub(super) fn pages_of_fault(&self) -> usize {
        self.window.get().max(1)
    }

    /// Pages that are to be free: a percentage of the budget, and no more than some faults need.
    fn free_at(&self, percent: usize, faults: usize) -> usize {
        (self.budget * percent / 100).min(faults * self.pages_of_fault())
    }

    /// Pages in memory, and those that are coming.
    fn used(&self) -> usize {
        self.held() + self.coming.load(Ordering::Relaxed)
    }
}

impl<M: Mmu> Region<M> {
    /// Makes room for what a fault brings, and takes it. The window is as large as there is room for: a page at least,
    /// whether there is room for that or not. The caller has no entry.
    pub(crate) fn take_room(&self, window: Window, page: usize) -> (Window, Coming<'_>) {
        match &self.swap {
            Some(swap) => self.take_room_of(swap, window, page),
            None => (window, Coming::NONE),
        }
    }

    /// A function of its own: a signal handler has little stack.
    #[inline(never)]
    fn take_room_of<'a>(&'a self, swap: &'a Swap, window: Window, page: usize) -> (Window, Coming<'a>) {
        swap.window.note(window.pages());
        // Some are there twice, while they are copied.
        if window.pages() > 1 {
            let pages: usize = window.pieces(page).map(|piece| self.missing(swap, piece)).sum();
            // Others need some, too.
            if pages <= swap.budget / 2
                && let Some(coming) = self.room_for(swap, pages + window.pages().min(COPIED), Need::Some)
            {
                return (window, coming);
            }
        }
        let pages = match swap.table.get(page).kind() {
            Kind::Aside => 0,
            Kind::Home | Kind::HomeClean | Kind::AsideClean => 1,
            Kind::Out => 2,
        };
        (Window::page(page), self.room_for(swap, pages, Need::All).unwrap_or(Coming::NONE))
    }

    /// The same for pages that are wanted, all of them. If some are missing, others may go before these come.
    pub(crate) fn take_room_for(&self, span: Span) -> Coming<'_> {
        let most = |missing| if missing > 0 { span.bytes() / PAGE } else { 0 };
        let room = |swap| self.room_for(swap, most(self.missing(swap, span)), Need::All);
        self.swap.as_ref().and_then(room).unwrap_or(Coming::NONE)
    }

    /// How many pages of a span take memory when they come. Those aside have it already.
    fn missing(&self, swap: &Swap, span: Span) -> usize {
        let of_run = |(kind, run): (Kind, Span)| match kind {
            Kind::Home => (run.bytes() / PAGE).saturating_sub(self.mmu.present(run)),
            Kind::Out => run.bytes() / PAGE,
            Kind::HomeClean | Kind::Aside | Kind::AsideClean => 0,
        };
        swap.table.runs(span).map(of_run).sum()
    }

    fn room_for<'a>(&'a self, swap: &'a Swap, pages: usize, need: Need) -> Option<Coming<'a>> {
        // Where more is in memory already, because the store has failed, any fault is a chance to ask it again.
        if pages == 0 && swap.held() <= swap.budget {
            return Some(Coming::NONE);
        }
        let coming = swap.come(pages);
        let (mut turn, mut has_counted) = (0, false);
        loop {
            let above = swap.used().saturating_sub(swap.budget);
            if above == 0 {
                return Some(coming);
            }
            if !has_counted {
                self.count(Counter::SwapDirect, 1, 0);
                has_counted = true;
            }
            let done = self.reclaim(swap, above + PIECE);
            match need {
                _ if done.gone > 0 => {}
                // Another thread has pages in hand, and waits for none of this one's.
                Need::All if done.met_others && turn < MOST_TURNS => {
                    self.mmu.relax(ASLEEP);
                    turn += 1;
                }
                Need::All => {
                    if done.met_others {
                        // Those that follow would wait as long, and in vain: locked memory does not go, say.
                        swap.rest();
                    }
                    return Some(coming);
                }
                Need::Some => return None,
            }
        }
    }

    /// Pages may go that could not before: as many do as the budget wants. The caller's stack is elsewhere.
    pub fn keep_budget(&self) {
        let Some(swap) = &self.swap else { return };
        swap.go_on();
        while swap.used() > swap.budget && self.keep_room() {}
    }

    /// Whether the room left is below the low mark: [`Region::keep_room`].
    pub fn wants_room(&self) -> bool {
        self.swap.as_ref().is_some_and(|swap| {
            swap.used() + swap.free_at(self.mark(Knob::SwapLow), FAULTS_LOW) > swap.budget && !swap.rests()
        })
    }

    /// Lets some pages go, up to the high mark; whether more should. In the background.
    pub fn keep_room(&self) -> bool {
        let Some(swap) = &self.swap else { return false };
        let high = self.mark(Knob::SwapHigh).max(self.mark(Knob::SwapLow));
        let wanted = (swap.used() + swap.free_at(high, FAULTS_HIGH)).saturating_sub(swap.budget);
        wanted > 0 && self.reclaim(swap, wanted.min(PIECE)).gone > 0
    }

    fn mark(&self, knob: Knob) -> usize {
        self.knobs.get(knob) as usize
    }
}
