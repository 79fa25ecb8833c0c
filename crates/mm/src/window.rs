//! Windows: how many pages a fault brings.
//!
//! Per thread and area: where the next fault is expected, and an order. A fault that comes there raises the order by
//! one, any other takes it back to the first. The table is small and shared; whoever loses a place begins anew.

use core::hash::{Hash, Hasher};

use faultless_base::sync::atomic::{AtomicUsize, Ordering};
use faultless_base::{PAGE, SLOT, Span};

/// Places in the table: with fewer, hundreds of threads take each other's.
const PLACES: usize = 1024;
/// Order of a huge page.
pub const HUGE_ORDER: u32 = 9;

/// How large windows get, as orders of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orders {
    /// The first of a sequence.
    pub first: u32,
    /// The last.
    pub most: u32,
}

struct Place {
    who: AtomicUsize,
    next: AtomicUsize,
    order: AtomicUsize,
}

/// The windows of one region.
pub struct Windows {
    places: [Place; PLACES],
    orders: Orders,
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

impl Windows {
    /// No thread has been seen yet.
    pub fn new(orders: Orders) -> Self {
        let place = |_| Place { who: AtomicUsize::new(0), next: AtomicUsize::new(0), order: AtomicUsize::new(0) };
        Self { places: core::array::from_fn(place), orders }
    }

    /// The window of a fault at `addr` in `area`, by thread `hint`.
    ///
    /// It begins with the page at `addr`, and ends with the area; while it is smaller than a huge page, with the 2 MiB
    /// around it too.
    pub fn of(&self, addr: usize, area: Span, id: usize, hint: usize) -> Span {
        let start = addr & !(PAGE - 1);
        let mut mix = Mix(0xcbf2_9ce4_8422_2325);
        (id, hint).hash(&mut mix);
        let who = mix.finish() as usize | 1;
        let place = &self.places[who / 2 % PLACES];
        let known = place.who.load(Ordering::Relaxed) == who;
        let follows = known && place.next.load(Ordering::Relaxed) == start;
        let before = place.order.load(Ordering::Relaxed) as u32;
        let order = if follows { (before + 1).min(self.orders.most) } else { self.orders.first };
        let mut window = Span::new(start, PAGE << order).clip(area);
        if order < HUGE_ORDER {
            window = window.clip(Span::new(start & !(SLOT - 1), SLOT));
        } else {
            // Up to a border, so that what comes next are whole huge pages.
            window.end = area.end.min((window.end & !(SLOT - 1)).max((start & !(SLOT - 1)) + SLOT));
        }
        place.who.store(who, Ordering::Relaxed);
        place.next.store(window.end, Ordering::Relaxed);
        place.order.store(order as usize, Ordering::Relaxed);
        window
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const AREA: Span = Span { start: 64 * SLOT, end: 80 * SLOT };

    fn pages(windows: &Windows, addr: usize) -> usize {
        windows.of(addr, AREA, 1, 1).bytes() / PAGE
    }

    #[test]
    fn windows_double_while_faults_follow_each_other() {
        let windows = Windows::new(Orders { first: 0, most: 4 });
        let mut at = AREA.start;
        let sizes: Vec<_> = (0..7)
            .map(|_| {
                let n = pages(&windows, at);
                at += n * PAGE;
                n
            })
            .collect();
        assert_eq!(sizes, [1, 2, 4, 8, 16, 16, 16]);
        assert_eq!(pages(&windows, at + PAGE), 1, "elsewhere it begins anew");
        assert_eq!(windows.of(at + 2 * PAGE, AREA, 1, 2).bytes(), PAGE, "another thread");
    }

    #[test]
    fn windows_end_at_borders() {
        let windows = Windows::new(Orders { first: 4, most: 4 });
        assert_eq!(pages(&windows, AREA.start + SLOT - 3 * PAGE), 3);
        assert_eq!(pages(&windows, AREA.end - PAGE), 1);
        let windows = Windows::new(Orders { first: 11, most: 11 });
        assert_eq!(windows.of(AREA.start + PAGE, AREA, 1, 1).end, AREA.start + 4 * SLOT);
        assert_eq!(windows.of(AREA.end - PAGE, AREA, 1, 1).end, AREA.end);
        assert_eq!(windows.of(AREA.start + PAGE, AREA, 1, 1).end % SLOT, 0);
    }
}
