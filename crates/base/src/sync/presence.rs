//! Whether a background thread is there: one that is started when there is work, and ends when there is none.
//!
//! Work is noted before the state is looked at. The thread takes the notes when it begins, and looks for new ones after
//! it has said that it sleeps, or that it is about to end. So either who notes work sees that, or the thread sees the
//! note. Between its last look and its end it may have no processor for long. Until its very end it can be told to
//! go on, because no other thread can take its place before.

use super::atomic::{AtomicU32, Ordering, fence};

const ABSENT: u32 = 0;
const AWAKE: u32 = 1;
const ASLEEP: u32 = 2;
const ENDING: u32 = 3;

/// A thread's state.
pub struct Presence(AtomicU32);

/// What who has noted work finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// It looks again before it sleeps or ends.
    Awake,
    /// It is to be woken if the work is urgent.
    Asleep,
    /// It is to be started.
    Absent,
}

impl Presence {
    const_unless_loom! {
        /// There is no thread.
        #[expect(clippy::new_without_default, reason = "for a static")]
        pub fn new() -> Self {
            Self(AtomicU32::new(ABSENT))
        }
    }

    /// By who has noted work. A thread that was about to end goes on.
    pub fn find(&self) -> Found {
        loop {
            match self.0.load(Ordering::SeqCst) {
                ABSENT => return Found::Absent,
                AWAKE => return Found::Awake,
                ASLEEP => return Found::Asleep,
                _ => _ = self.change(ENDING, AWAKE),
            }
        }
    }

    fn change(&self, from: u32, to: u32) -> bool {
        self.0.compare_exchange(from, to, Ordering::SeqCst, Ordering::Acquire).is_ok()
    }

    /// Whether there is none, and the caller may start one. If it cannot, it is to say so.
    pub fn claim(&self) -> bool {
        self.change(ABSENT, AWAKE)
    }

    /// There is no thread, or none any more.
    pub fn note_absent(&self) {
        self.0.store(ABSENT, Ordering::Release);
    }

    /// Whether there is none.
    pub fn is_absent(&self) -> bool {
        self.0.load(Ordering::SeqCst) == ABSENT
    }

    /// Whether it slept, and is to be woken now: it sleeps on [`word`](Self::word).
    pub fn rouse(&self) -> bool {
        self.change(ASLEEP, AWAKE)
    }

    /// The thread sleeps, by `wait` for a change of the word from this value, unless there is something for it.
    pub fn sleep(&self, is_wanted: impl FnOnce() -> bool, wait: impl FnOnce(&AtomicU32, u32)) {
        if self.change(AWAKE, ASLEEP) {
            fence(Ordering::SeqCst);
            if !is_wanted() {
                wait(&self.0, ASLEEP);
            }
            self.0.store(AWAKE, Ordering::Release);
        }
    }

    /// The thread has nothing to do: whether it may [`end`](Self::end).
    pub fn is_ending(&self, is_wanted: impl FnOnce() -> bool) -> bool {
        self.0.store(ENDING, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let ends = !is_wanted();
        if !ends {
            // Unless it was told to go on meanwhile.
            self.change(ENDING, AWAKE);
        }
        ends
    }

    /// What the thread does to the word last of all, in one step: from the first value to the second. If it has another
    /// value, the thread goes on.
    pub fn end(&self) -> (&AtomicU32, u32, u32) {
        (&self.0, ENDING, ABSENT)
    }

    /// The word it sleeps on.
    pub fn word(&self) -> &AtomicU32 {
        &self.0
    }
}
