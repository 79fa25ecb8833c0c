//! Installing against changing, in every interleaving: a sequence count that a change makes odd, and an entry's lock
//! that it takes once. No thread installs while the change is under way, or after it by the state before.

use std::sync::Arc;

use faultless_base::sys::mmu::Rights;
use faultless_base::{PAGE, SLOT, Span};
use faultless_mm::region::area::{Areas, Attributes, View};
use faultless_mm::region::entry::Entries;
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use loom::thread;

const REGION: Span = Span { start: 1 << 40, end: (1 << 40) + SLOT };
const ATTRIBUTES: Attributes =
    Attributes { rights: Rights::Write, backed: false, huge: false, random: false, kernel: false };

/// All relaxed: only counts and locks order anything.
struct World {
    areas: Areas,
    entries: Entries,
    /// Whether pages may be there: as the kernel has it.
    open: AtomicUsize,
    installed: AtomicUsize,
    /// Where the part begins that is unmapped.
    cut: usize,
}

impl World {
    fn new(cut: usize) -> Arc<Self> {
        let areas = Areas::new(3, 2).unwrap();
        areas.keep_room().unwrap();
        areas.insert(View { span: REGION, offset: 0, attributes: ATTRIBUTES }).unwrap();
        let entries = Entries::new(REGION).unwrap();
        Arc::new(Self { areas, entries, open: AtomicUsize::new(1), installed: AtomicUsize::new(0), cut })
    }

    /// The steps of a speculative fault.
    fn fault(&self, addr: usize) {
        let Some(area) = self.areas.find(addr, 0) else { return };
        let Some((view, sequence)) = area.read() else { return };
        let borders = [REGION.start, self.cut, self.cut + PAGE, REGION.end];
        let whole = borders.contains(&view.span.start) && borders.contains(&view.span.end);
        let offset = view.span.start - REGION.start;
        assert!(whole && view.attributes == ATTRIBUTES && view.offset == offset, "torn: {view:x?}");
        if !view.span.contains(addr) {
            return;
        }
        let seen = self.entries.read(addr);
        let Some(_entry) = self.entries.try_lock(addr, seen, thread::yield_now) else { return };
        if area.sequence() == sequence {
            assert_eq!(self.open.load(Relaxed), 1, "a page where none may be");
            self.installed.store(1, Relaxed);
        }
    }

    /// Those of an unmap.
    fn unmap(&self, span: Span) {
        self.areas.begin(span).unwrap();
        self.entries.settle(span, |_| thread::yield_now());
        self.open.store(0, Relaxed);
        self.installed.store(0, Relaxed);
        self.areas.end(span, |_| None);
    }
}

fn check(span: Span) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        let world = World::new(span.start);
        let other = {
            let world = world.clone();
            thread::spawn(move || world.fault(span.start))
        };
        world.unmap(span);
        assert_eq!(world.installed.load(Relaxed), 0, "a page that nobody drops");
        other.join().unwrap();
        assert_eq!(world.installed.load(Relaxed), 0);
        assert!(world.areas.find(span.start, 0).is_none());
    });
}

#[test]
fn a_fault_against_an_unmap_of_the_area() {
    check(REGION);
}

#[test]
fn a_fault_against_an_unmap_of_a_part() {
    check(Span::new(REGION.start + 5 * PAGE, PAGE));
}
