//! Grace periods: an unlinked object may be used again once no reader can still see it.
//!
//! A reader announces itself in one of some places. That takes neither an allocation nor thread-local data, so a
//! signal handler may do it, even one that interrupts another reader. When all places are taken a reader is refused,
//! and takes another path.

use super::Table;
use super::atomic::{AtomicUsize, Ordering, fence};

const FREE: usize = 0;

#[repr(align(64))]
struct Place(AtomicUsize);

/// The epochs of one structure.
pub struct Epoch {
    now: AtomicUsize,
    places: Table<Place>,
}

/// A reader, until it is dropped.
pub struct Pinned<'a>(&'a AtomicUsize);

impl Epoch {
    /// The first epoch, with room for `readers` readers at a time, a power of two. `None` when there is no memory for
    /// that.
    pub fn new(readers: usize) -> Option<Self> {
        assert!(readers.is_power_of_two());
        let places = Table::new(readers, || Place(AtomicUsize::new(FREE)))?;
        Some(Self { now: AtomicUsize::new(1), places })
    }

    /// Announces a reader on this processor: it shares no place with others, if there are as many places. `None` when
    /// there are too many.
    pub fn enter(&self, cpu: usize) -> Option<Pinned<'_>> {
        let now = self.now.load(Ordering::Acquire);
        let free = |at: usize| {
            let place = &self.places[at & (self.places.len() - 1)].0;
            let taken = place.load(Ordering::Relaxed) == FREE
                && place.compare_exchange(FREE, now, Ordering::Acquire, Ordering::Relaxed).is_ok();
            taken.then_some(place)
        };
        let place = (0..self.places.len()).find_map(|i| free(cpu.wrapping_add(i)))?;
        // Pairs with the one in `oldest`: either `oldest` sees the announcement, or this reader sees that the object
        // is unlinked.
        fence(Ordering::SeqCst);
        Some(Pinned(place))
    }

    /// In a forked child: all readers but those of this thread stayed with the parent.
    pub fn forget_readers(&self) {
        self.places.iter().for_each(|place| place.0.store(FREE, Ordering::Release));
    }

    /// Ends the epoch in which something was unlinked, and names it.
    pub fn retire(&self) -> usize {
        self.now.fetch_add(1, Ordering::AcqRel)
    }

    /// No reader sees an object that was retired in an epoch before this one.
    pub fn oldest(&self) -> usize {
        let now = self.now.load(Ordering::Acquire);
        fence(Ordering::SeqCst);
        let readers = self.places.iter().map(|place| place.0.load(Ordering::Acquire));
        readers.filter(|epoch| *epoch != FREE).fold(now, usize::min)
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        // The reader's accesses come before the reuse that follows the grace period.
        self.0.store(FREE, Ordering::Release);
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;

    #[test]
    fn a_grace_period_ends_with_its_last_reader() {
        let epoch = Epoch::new(4).unwrap();
        let early = epoch.enter(0).unwrap();
        let retired = epoch.retire();
        let late = epoch.enter(0).unwrap();
        assert!(epoch.oldest() <= retired, "a reader may see it");
        drop(early);
        assert!(epoch.oldest() > retired, "only one that came later is left");
        drop(late);
        assert!(epoch.oldest() > retired);
    }

    #[test]
    fn too_many_readers_are_refused() {
        let epoch = Epoch::new(4).unwrap();
        let all: std::vec::Vec<_> = (0..4).map(|i| epoch.enter(i).unwrap()).collect();
        assert!(epoch.enter(0).is_none());
        drop(all);
        assert!(epoch.enter(7).is_some());
    }
}
