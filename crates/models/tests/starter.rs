//! The start of the engine by several threads at once, in every interleaving.

use std::sync::Arc;

use faultless_base::sync::Starter;
use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};
use loom::thread;

const PROCESS: i32 = 7;

/// What is started: a word, of which only the starter says when it is there, and how often it was built.
struct World {
    starter: Starter,
    word: AtomicU32,
    builds: AtomicU32,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self { starter: Starter::new(), word: AtomicU32::new(0), builds: AtomicU32::new(0) })
    }

    /// Whether it was started; then it is complete.
    fn start(&self, works: bool) -> bool {
        let build = || {
            self.builds.fetch_add(1, Relaxed);
            self.word.store(1, Relaxed);
            works
        };
        let undo = || self.word.store(0, Relaxed);
        let on = self.starter.start(PROCESS, build, undo);
        self.look(on);
        on
    }

    fn look(&self, on: bool) {
        assert!(!on || self.word.load(Relaxed) == 1, "it is on, but not complete");
    }
}

/// Two threads start it, and one looks whether it is there.
fn three_threads(works: bool) {
    loom::model(move || {
        let world = World::new();
        let spawn = |f: fn(&World, bool) -> bool| {
            let world = world.clone();
            thread::spawn(move || f(&world, works))
        };
        let start = spawn(World::start);
        let look = spawn(|world, _| {
            let on = world.starter.is_on();
            world.look(on);
            on
        });
        let seen = [world.start(works), start.join().unwrap(), look.join().unwrap()];
        assert!(works || seen == [false; 3]);
        assert_eq!((world.starter.is_on(), world.starter.is_off()), (works, !works));
        assert_eq!(world.builds.load(Relaxed), 1);
    });
}

#[test]
fn one_thread_builds_and_all_have_it_in_the_end() {
    three_threads(true);
}

#[test]
fn what_could_not_be_built_stays_off() {
    three_threads(false);
}

/// A thread that has seen it on finds it on for ever: its memory is in use.
#[test]
fn what_is_called_off_was_never_on() {
    loom::model(|| {
        let world = World::new();
        let other = {
            let world = world.clone();
            thread::spawn(move || world.start(true))
        };
        let off = world.starter.call_off();
        let seen = [world.start(true), other.join().unwrap()];
        assert!(!off || seen == [false; 2]);
        assert_eq!((world.starter.is_on(), world.starter.is_off()), (!off, off));
        assert!(!off || world.word.load(Relaxed) == 0, "what was called off is still there");
    });
}

/// Who has called it off, and no thread is at it any more, finds nothing of it.
#[test]
fn what_is_called_off_is_gone_when_no_thread_is_at_it() {
    loom::model(|| {
        let world = World::new();
        let other = {
            let world = world.clone();
            thread::spawn(move || world.start(true))
        };
        if world.starter.call_off() && !world.starter.is_under_way(|| PROCESS) {
            assert_eq!(world.word.load(Relaxed), 0);
        }
        assert!(!world.starter.is_under_way(|| PROCESS + 1), "nobody of this process is at it");
        other.join().unwrap();
        assert!(!world.starter.is_under_way(|| PROCESS));
    });
}

/// The thread that starts it stays behind in the parent.
#[test]
fn a_child_goes_without_what_a_thread_of_its_parent_was_starting() {
    loom::model(|| {
        let starter = Starter::new();
        let child = || starter.start(PROCESS + 1, || unreachable!(), || ());
        assert!(!starter.start(PROCESS, || !child(), || ()));
        assert!(starter.is_off());
    });
}

/// The thread that starts it may have stopped: another one, or a signal handler that interrupted it, goes on.
#[test]
fn nobody_waits_while_it_is_built() {
    loom::model(|| {
        let starter = Starter::new();
        let nested = || starter.start(PROCESS, || unreachable!(), || ());
        assert!(starter.start(PROCESS, || !nested(), || ()));
    });
}
