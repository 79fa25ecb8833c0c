//! A background thread that comes and goes, in every interleaving: whatever was noted is done in the end, and no two
//! threads have its memory at the same time.

use std::sync::{Arc, Mutex};

use faultless_base::sync::{Found, Presence};
use loom::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use loom::sync::atomic::{AtomicBool, AtomicU32, fence};
use loom::thread::{self, JoinHandle};

struct World {
    presence: Presence,
    wanted: AtomicBool,
    /// What is to be done, and what was.
    noted: AtomicU32,
    done: AtomicU32,
    /// Whether a thread has the memory that there is for one.
    used: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            presence: Presence::new(),
            wanted: AtomicBool::new(false),
            noted: AtomicU32::new(0),
            done: AtomicU32::new(0),
            used: AtomicBool::new(false),
            threads: Mutex::new(Vec::new()),
        })
    }

    /// A thread of the program notes work, and sees to it that it is done.
    fn note(self: &Arc<Self>) {
        self.noted.fetch_add(1, Relaxed);
        // Exchanged here and there: loom takes plain stores for unordered where an exchange stands between them.
        self.wanted.swap(true, AcqRel);
        fence(SeqCst);
        if self.presence.find() == Found::Absent && self.presence.claim() {
            let world = self.clone();
            let thread = thread::spawn(move || world.work());
            self.threads.lock().unwrap().push(thread);
        }
    }

    /// The background thread.
    fn work(&self) {
        loop {
            assert!(!self.used.swap(true, Relaxed), "two threads have the same memory");
            self.wanted.swap(false, AcqRel);
            fence(SeqCst);
            self.done.store(self.noted.load(Relaxed), Relaxed);
            self.used.store(false, Relaxed);
            let is_wanted = || self.wanted.load(Relaxed);
            if self.presence.is_ending(is_wanted) {
                let (word, from, to) = self.presence.end();
                if word.compare_exchange(from, to, SeqCst, SeqCst).is_ok() {
                    return;
                }
            }
        }
    }
}

/// Two threads of the program note work, so often each.
fn check(times: [u32; 2]) {
    let mut builder = loom::model::Builder::new();
    // Without a bound, loom lets `find` and the thread change the word in turn for ever.
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let world = World::new();
        let other = world.clone();
        let other = thread::spawn(move || (0..times[1]).for_each(|_| other.note()));
        (0..times[0]).for_each(|_| world.note());
        other.join().unwrap();
        loop {
            let Some(thread) = world.threads.lock().unwrap().pop() else { break };
            thread.join().unwrap();
        }
        assert!(world.presence.is_absent());
        assert_eq!(world.done.load(Relaxed), times[0] + times[1], "work was noted, and nobody does it");
    });
}

#[test]
fn what_is_noted_by_one_thread_is_done() {
    check([2, 0]);
}

#[test]
fn what_is_noted_by_two_threads_is_done() {
    check([1, 1]);
}
