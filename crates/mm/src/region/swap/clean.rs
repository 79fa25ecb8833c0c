//! Pages that the store has as they are: they come protected, and go without a write.
//!
//! A page that was copied to its place is protected from the first moment on, and the kernel notes the first write to it.
//! But a move does not tell of it. So a page goes aside as follows:
//!
//! 1. It is copied to memory beside.
//! 2. The kernel must not have noted a write. So the copy is what the store has.
//! 3. It moves. If it differs from the copy by then, it was written to in between, and is not clean.
//! 4. It must have the checksum of what the store has. The program can lose the kernel's notes: it may look for writes
//!    by `PAGEMAP_SCAN` itself, and have pages protected again.
//!
//! Whatever is not known counts as a write.

use faultless_base::sync::atomic::{AtomicUsize, Ordering};
use faultless_base::sys::mmu::Mmu;
use faultless_base::{PAGE, SLOT, Span};

use super::Swap;
use super::table::{Kind, Place};
use crate::region::Region;

/// Pages that are copied at a time.
pub(super) const COPIED: usize = 16;
/// Threads that copy at a time. More of them count what they take as written to, and read to memory aside.
const PLACES: usize = 8;
/// Addresses for that, as they are reserved.
pub(super) const RESERVED: usize = SLOT;

/// Memory for copies: a thread takes a place, and has it alone.
pub(super) struct Copies {
    at: usize,
    /// A bit for each place.
    taken: AtomicUsize,
}

impl Copies {
    pub(super) fn new(at: usize) -> Self {
        Self { at, taken: AtomicUsize::new(0) }
    }

    /// Calls `f` with a free place, if there is one.
    pub(super) fn with<T>(&self, f: impl FnOnce(Option<usize>) -> T) -> T {
        // Acquire: pairs with the return of the place by the thread that had it.
        let take = |place: &usize| self.taken.fetch_or(1 << place, Ordering::Acquire) & 1 << place == 0;
        let place = (0..PLACES).find(take);
        let done = f(place.map(|place| self.at + place * COPIED * PAGE));
        if let Some(place) = place {
            self.taken.fetch_and(!(1 << place), Ordering::Release);
        }
        done
    }
}

impl<M: Mmu> Region<M> {
    /// Whether the page before one that comes from the store has been written to since it came from there. `None`: the
    /// page does not come from the store.
    pub(crate) fn is_rewritten(&self, page: usize, before: usize) -> Option<bool> {
        let kind = |page: usize| Some(self.swap.as_ref()?.table.get(page).kind());
        kind(page).filter(|kind| kind.is_stored())?;
        let before = Span::new(before, PAGE);
        let is_clean = kind(before.start) == Some(Kind::HomeClean);
        // If it has gone meanwhile, nothing is known of it.
        let is_there = || self.mmu.first_there(before) == Some(before);
        Some(is_clean && self.mmu.first_unwritten(before) != Some(before) && is_there())
    }

    /// Pages that are there, and came clean, go aside: clean if they still are. How many went.
    pub(super) fn take_clean(&self, swap: &Swap, there: Span) -> usize {
        swap.copies.with(|copy| {
            let Some(copy) = copy else { return self.take_run(swap, there, |_| Place::Aside) };
            let (mut at, mut taken) = (there.start, 0);
            while at < there.end {
                let rest = Span { start: at, ..there };
                let unwritten = self.mmu.first_unwritten(rest).unwrap_or(Span::new(there.end, 0));
                taken += self.take_run(swap, Span { end: unwritten.start, ..rest }, |_| Place::Aside);
                let some = Span::new(unwritten.start, COPIED * PAGE).clip(unwritten);
                taken += self.take_unwritten(swap, some, copy);
                at = some.end.max(unwritten.start);
            }
            taken
        })
    }

    fn take_unwritten(&self, swap: &Swap, run: Span, copy: usize) -> usize {
        let is_clean = !run.is_empty() && self.mmu.peek(run, copy) && self.mmu.first_unwritten(run) == Some(run);
        self.take_run(swap, run, |page| {
            let aside = swap.aside(Span::new(page, PAGE)).start;
            let is_as_copy = || self.mmu.is_as_copy(aside, copy + page - run.start);
            match swap.table.get(page) {
                Place::HomeClean { digest }
                    if is_clean && is_as_copy() && self.mmu.digest(aside) == Some(digest) =>
                {
                    Place::AsideClean { digest }
                }
                _ => Place::Aside,
            }
        })
    }
}
