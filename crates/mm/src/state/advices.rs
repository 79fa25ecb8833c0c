//! The mappings that were advised: a short table behind a lock. [`crate::mapping::advice`] acts on it.

use faultless_base::Span;
use faultless_base::sync::atomic::{AtomicUsize, Ordering};
use faultless_base::sync::{TryGuard, TryLock};

use crate::frame::budget::Budget;
use crate::state::bounds::Bounds;
use crate::state::known::Known;

/// Mappings known at a time.
pub(crate) const KNOWN: usize = 16;
/// Looks without a change after which they end until the program maps something again.
const PATIENCE: u32 = 100;

/// The table, and around what it may be asked.
pub(crate) struct Advices {
    table: TryLock<Table>,
    /// The addresses among which all mappings lie that were ever in the table.
    bounds: Bounds,
    /// Calls under way that drop content of mappings in the table.
    emptying: AtomicUsize,
}

/// A call that drops content is under way until this is dropped.
pub struct Emptying<'a>(Option<&'a AtomicUsize>);

impl Emptying<'_> {
    /// No content that matters is dropped.
    pub(crate) const fn nothing() -> Self {
        Self(None)
    }
}

impl Drop for Emptying<'_> {
    fn drop(&mut self) {
        if let Some(calls) = self.0 {
            calls.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Advices {
    pub(crate) fn new() -> Self {
        let table = Table { known: [None; KNOWN], next: 0, quiet: PATIENCE, begun: 0 };
        Self { table: TryLock::new(table), bounds: Bounds::new(), emptying: AtomicUsize::new(0) }
    }

    /// A call that drops content begins. To be called before the table says so.
    pub(crate) fn begin_emptying(&self) -> Emptying<'_> {
        self.emptying.fetch_add(1, Ordering::SeqCst);
        Emptying(Some(&self.emptying))
    }

    /// Whether such a call is under way: what is seen of the content then says nothing.
    pub(crate) fn is_emptying(&self) -> bool {
        self.emptying.load(Ordering::SeqCst) > 0
    }

    /// The table, behind its lock. The lock is held while advice is given, but not while looking, which takes longer.
    pub(crate) fn lock(&self) -> Option<TryGuard<'_, Table>> {
        self.table.lock_soon()
    }

    /// Whether a mapping that was ever in the table lies near `span`. Takes no lock.
    pub(crate) fn may_have(&self, span: Span) -> bool {
        self.bounds.meet(span.start..span.end)
    }

    /// To be called before a mapping at `span` gets into the table.
    pub(crate) fn widen(&self, span: Span) {
        self.bounds.widen(span.start..span.end);
    }

    /// In a forked child: the holder of the lock is not here, nor are threads that drop content.
    pub(crate) fn begin_again(&self) {
        self.table.force_unlock();
        self.emptying.store(0, Ordering::SeqCst);
    }

    /// Slots that are charged for mappings in the table.
    pub(crate) fn charged(&self) -> usize {
        self.table.try_lock().map_or(0, |table| table.all().map(|known| known.charged).sum())
    }
}

/// The mappings that were advised.
pub(crate) struct Table {
    known: [Option<Known>; KNOWN],
    /// Which one makes room for another first.
    next: usize,
    /// Looks since the last change.
    quiet: u32,
    /// Mappings that began, or began anew.
    begun: u32,
}

impl Table {
    pub(crate) fn all(&self) -> impl Iterator<Item = &Known> {
        self.known.iter().flatten()
    }

    /// Slots of all of them for which nothing was charged.
    pub(crate) fn on_trust(&self) -> usize {
        self.all().map(Known::on_trust).sum()
    }

    /// How many slots are used densely of those that a mapping continues: of all that lie in a row with it.
    pub(crate) fn used_beside(&self, span: Span) -> usize {
        let (mut row, mut used) = (span, 0);
        while let Some(beside) =
            self.all().find(|k| k.is_dense() && (k.span.end == row.start || row.end == k.span.start))
        {
            row = Span { start: row.start.min(beside.span.start), end: row.end.max(beside.span.end) };
            used += beside.used as usize;
        }
        used
    }

    pub(crate) fn at(&self, place: usize) -> Option<Known> {
        self.known[place]
    }

    pub(crate) fn at_mut(&mut self, place: usize) -> Option<&mut Known> {
        self.known[place].as_mut()
    }

    /// A free place.
    pub(crate) fn free(&self) -> Option<usize> {
        self.known.iter().position(Option::is_none)
    }

    /// A place for another mapping: a free one, or that of one that does not count and `may_go`. One that counts stays:
    /// its huge pages do. So does one that was advised: its advice does, whatever the program drops there.
    pub(crate) fn place(&self, may_go: impl Fn(&Known) -> bool) -> Option<usize> {
        let ended =
            |place: &usize| self.known[*place].is_some_and(|k| k.charged == 0 && !k.is_advised() && may_go(&k));
        self.free().or_else(|| (0..KNOWN).map(|i| (self.next + i) % KNOWN).find(ended))
    }

    /// The same by making one of two that lie side by side and are used throughout, as a heap that grows step by step.
    pub(crate) fn join(&mut self) -> Option<usize> {
        let pairs = (0..KNOWN).flat_map(|place| (0..KNOWN).map(move |other| (place, other)));
        let (place, other, joined) = pairs
            .into_iter()
            .find_map(|(place, other)| Some((place, other, self.known[place]?.joined(&self.known[other]?)?)))?;
        (self.known[place], self.known[other]) = (Some(joined), None);
        Some(other)
    }

    /// The program has mapped the one at `place`: another one makes room first.
    pub(crate) fn note_new(&mut self, place: usize) {
        self.next = place + 1;
        self.note_change();
    }

    /// Something has changed: looks go on.
    pub(crate) fn note_change(&mut self) {
        self.quiet = 0;
    }

    /// Another look begins: which one it is since the last change. `None`: there were enough.
    pub(crate) fn begin_look(&mut self) -> Option<u32> {
        (self.quiet < PATIENCE).then(|| {
            self.quiet += 1;
            self.quiet
        })
    }

    /// The number of a mapping that begins, or begins anew.
    pub(crate) fn number(&mut self) -> u32 {
        self.begun = self.begun.wrapping_add(1);
        self.begun
    }

    /// Puts `known` where another one was or none, and squares the account: what each of them is charged counts while
    /// it is in the table. One that only counts is not put there if it counts for nothing, unless advice has divided it: a
    /// program that watches it is to find one area.
    pub(crate) fn set(&mut self, place: usize, known: Known, account: &Budget) {
        let charged = |known: Option<Known>| known.map_or(0, |known| known.charged);
        let is_divided =
            |known: &Known| (known.depth > 0 || known.full != 0) && !known.is_whole() && !known.span.is_empty();
        let known = Some(known).filter(|known| !known.cut || known.charged > 0 || is_divided(known));
        let before = charged(core::mem::replace(&mut self.known[place], known));
        let after = charged(known);
        account.charge(after.saturating_sub(before));
        account.discharge(before.saturating_sub(after));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_base::SLOT;
    use faultless_page::knobs::{Knob, Values};
    use std::boxed::Box;

    #[test]
    fn what_is_charged_counts_while_it_is_in_the_table() {
        let knobs: &'static Values = Box::leak(Box::default());
        knobs.set(Knob::Budget, 64 * SLOT as u64);
        let account = Budget::new(knobs);
        let advices = Advices::new();
        let mut table = advices.lock().unwrap();
        let known = |charged: usize| {
            let mut known = Known::new(0, Span::new(0, 8 * SLOT), 1, 0);
            known.charged = charged;
            known
        };
        let place = table.place(|_| true).unwrap();
        table.set(place, known(6), &account);
        assert_eq!(account.charged(), 6);
        table.set(place, known(2), &account);
        assert_eq!((account.charged(), table.all().count()), (2, 1));
        assert_ne!(table.place(|_| true), Some(place), "one that counts stays");
        // Its last three slots, of which two at most are charged.
        table.set(place, known(2).without(Span::new(0, 5 * SLOT)), &account);
        assert_eq!((account.charged(), table.free() == Some(place)), (2, false));
        table.set(place, known(2).without(Span::new(0, 8 * SLOT)), &account);
        assert_eq!((account.charged(), table.free()), (0, Some(place)), "nothing is left of it");
        drop(table);
        assert_eq!(advices.charged(), 0);
    }
}
