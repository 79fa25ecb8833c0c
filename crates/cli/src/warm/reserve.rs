//! The memory that the daemon holds.
//!
//! Slots of 2 MiB, of which the first ones are resident. The daemon's thread alone sets the target and gives back;
//! another thread, at idle priority, touches one slot after the other up to the target. No lock: the one with the
//! lower priority may have no processor for long.
//!
//! A thread that gives back lowers the target first. Then the other thread fills no slot that is given back, and takes
//! back itself what it filled too much.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::{self, Thread};

use faultless_base::SLOT;
use faultless_base::sys::linux::Linux;
use faultless_base::sys::{Huge, Sys};
use faultless_measure::costs::{Area, time};

/// A first touch of a huge page takes 0.1 to 0.2 ms where the machine has the memory, 2 to 4 ms where it comes from the
/// host.
const COLD_NS: f64 = 1e6;

/// Memory of which a part is resident.
pub struct Reserve {
    area: Area,
    slots: usize,
    /// How many of the first slots are resident.
    held: AtomicUsize,
    /// How many are to be.
    target: AtomicUsize,
    /// Slots that were touched, and those of them that came from the host.
    taken: AtomicUsize,
    cold: AtomicUsize,
    /// Whether a slot is touched now.
    touches: AtomicBool,
}

impl Reserve {
    /// For `slots` slots, none of them resident.
    pub fn new(slots: usize) -> Result<Self, String> {
        let area = Area::new(slots * SLOT, Huge::Advised)?;
        let zero = || AtomicUsize::new(0);
        let touches = AtomicBool::new(false);
        Ok(Self { area, slots, held: zero(), target: zero(), taken: zero(), cold: zero(), touches })
    }

    /// Slots that are resident.
    pub fn held(&self) -> usize {
        self.held.load(SeqCst)
    }

    /// Slots that are to be resident.
    pub fn target(&self) -> usize {
        self.target.load(SeqCst)
    }

    /// Whether memory is taken now.
    pub fn fills(&self) -> bool {
        self.held() < self.target() || self.touches.load(SeqCst)
    }

    /// Slots that were touched so far, and those of them that came from the host.
    pub fn taken(&self) -> (usize, usize) {
        (self.taken.load(SeqCst), self.cold.load(SeqCst))
    }

    /// This many slots are to be resident from now on. Slots above that go back to the kernel at once, and their
    /// number is returned. Called by the daemon's thread.
    pub fn aim(&self, slots: usize) -> usize {
        let slots = slots.min(self.slots);
        self.target.store(slots, SeqCst);
        let mut held = self.held();
        while held > slots {
            match self.held.compare_exchange(held, slots, SeqCst, SeqCst) {
                Ok(_) => {
                    let (from, n) = (self.area.piece(slots, SLOT).start, held - slots);
                    Linux.discard(faultless_base::Span::new(from, n * SLOT));
                    return n;
                }
                Err(now) => held = now,
            }
        }
        0
    }

    /// Makes one more slot resident; false: there are enough. By the thread that fills.
    fn fill_one(&self) -> bool {
        let at = self.held();
        if at >= self.target() {
            return false;
        }
        let slot = self.area.piece(at, SLOT);
        self.touches.store(true, SeqCst);
        let ns = time(|| self.area.touch(slot));
        self.touches.store(false, SeqCst);
        self.taken.fetch_add(1, SeqCst);
        self.cold.fetch_add((ns >= COLD_NS) as usize, SeqCst);
        let is_kept = self.held.compare_exchange(at, at + 1, SeqCst, SeqCst).is_ok();
        // The target may have become lower before this slot counted. Then it has to go, unless the daemon saw it.
        let is_surplus =
            is_kept && self.target() <= at && self.held.compare_exchange(at + 1, at, SeqCst, SeqCst).is_ok();
        if !is_kept || is_surplus {
            Linux.discard(slot);
        }
        true
    }

    /// Starts the thread that fills. It sleeps while there is enough: [`Thread::unpark`] wakes it.
    pub fn start_filling(&'static self) -> std::io::Result<Thread> {
        let fill = move || {
            super::sys::be_idle();
            loop {
                if !self.fill_one() {
                    thread::park();
                }
            }
        };
        Ok(thread::Builder::new().name("fill".into()).spawn(fill)?.thread().clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident(reserve: &Reserve) -> usize {
        (0..reserve.slots).filter(|i| Linux.present(reserve.area.piece(*i, SLOT).start)).count()
    }

    #[test]
    fn what_is_held_is_resident_and_what_is_given_is_not() {
        let reserve = Reserve::new(4).unwrap();
        assert!(!reserve.fill_one());
        assert_eq!(reserve.aim(9), 0);
        assert_eq!(reserve.target(), 4, "never above its size");
        while reserve.fill_one() {}
        assert_eq!((reserve.held(), resident(&reserve)), (4, 4));
        assert_eq!((reserve.aim(1), reserve.held(), resident(&reserve)), (3, 1, 1));
        reserve.aim(2);
        while reserve.fill_one() {}
        assert_eq!((reserve.held(), resident(&reserve), reserve.taken().0), (2, 2, 5));
    }

    #[test]
    fn filling_and_giving_at_once_leaves_what_is_wanted() {
        let reserve: &'static Reserve = Box::leak(Box::new(Reserve::new(8).unwrap()));
        let filler = reserve.start_filling().unwrap();
        for round in 0..300usize {
            reserve.aim(round * 7 % 9);
            filler.unpark();
        }
        reserve.aim(3);
        filler.unpark();
        while reserve.held() != 3 {
            thread::yield_now();
        }
        // The thread that fills may still be taking back what it filled last.
        while resident(reserve) != 3 {
            thread::yield_now();
        }
    }
}
