//! Grace periods, in every interleaving: no reader sees a freed object.

use std::sync::Arc;

use faultless_base::sync::Epoch;
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use loom::thread;

const LIVE: usize = 1;
const FREED: usize = 2;

/// A thing that is linked, and what became of it. All relaxed: only the epochs order anything.
struct World {
    epoch: Epoch,
    linked: AtomicUsize,
    thing: AtomicUsize,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            epoch: Epoch::new(2).unwrap(),
            linked: AtomicUsize::new(1),
            thing: AtomicUsize::new(LIVE),
        })
    }

    fn walk(&self, hint: usize) {
        let Some(_pinned) = self.epoch.enter(hint) else { return };
        if self.linked.load(Relaxed) == 1 {
            assert_eq!(self.thing.load(Relaxed), LIVE, "freed while it is seen");
            thread::yield_now();
            assert_eq!(self.thing.load(Relaxed), LIVE, "freed while it is used");
        }
    }

    /// Unlinks the thing, and frees it if no reader sees it any more.
    fn free(&self) {
        self.linked.store(0, Relaxed);
        let retired = self.epoch.retire();
        if self.epoch.oldest() > retired {
            self.thing.store(FREED, Relaxed);
        }
    }
}

fn check(readers: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let world = World::new();
        let readers: Vec<_> = (0..readers)
            .map(|hint| {
                let world = world.clone();
                thread::spawn(move || world.walk(hint))
            })
            .collect();
        world.free();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        let retired = world.epoch.retire();
        assert!(world.epoch.oldest() > retired, "a reader is left that has gone");
    });
}

#[test]
fn a_reader_keeps_what_it_may_see() {
    check(1);
}

#[test]
fn two_readers_keep_what_they_may_see() {
    check(2);
}
