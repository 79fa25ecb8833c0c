//! A handler that serves one thread runs on that thread's processor.
//!
//! The thread goes to sleep as its message comes: its processor is free then, and awake. A handler elsewhere has to be
//! woken there, and a processor that has halted takes a while, in a virtual machine above all. So does that of the thread
//! by then, once its page is there.
//!
//! The watchdog does all of it. It has a table of descriptors of its own, in which it opens the file that says where a
//! thread runs. It keeps the handler to that processor, looks again each [`BETWEEN`], and lets go when the handler
//!
//! - has served nothing since the last look: no fault came, or a thread of higher priority has the processor;
//! - has served another thread, or windows;
//! - has a machine on which more threads run than there are processors.
//!
//! So a handler is kept from its work no longer than that. Of the handlers of a part, the others run everywhere. None
//! runs code of the program's meanwhile, which could start threads that are kept there, too.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use faultless_base::sys::confined::Confined;
use faultless_base::sys::placement;

use crate::delivery::thread::Handlers;

/// Faults of one thread, one after the other and each of a page alone, after which a handler follows it.
const ENOUGH: u32 = 64;
/// Between two looks at a handler that follows.
const BETWEEN: Duration = Duration::from_millis(10);

/// What a handler leaves for the watchdog.
#[derive(Default)]
pub struct Trace {
    /// The handler's number while it may be kept somewhere; 0: it may not.
    number: AtomicU32,
    /// The thread that it has served last, and how many faults of that in a row, each of a page alone.
    run: AtomicU64,
    /// Whether it follows.
    follows: AtomicBool,
}

/// A handler may be kept somewhere until this is dropped: by then its number is that of no thread of ours.
pub struct MayFollow<'a>(&'a Trace);

impl Drop for MayFollow<'_> {
    fn drop(&mut self) {
        self.0.number.store(0, Ordering::Release);
    }
}

impl Trace {
    /// This thread may be kept where threads run that it serves.
    pub fn begin(&self) -> MayFollow<'_> {
        self.number.store(faultless_base::sys::raw::thread_number() as u32, Ordering::Release);
        MayFollow(self)
    }

    /// Notes a fault that is about to count as served. By the handler alone.
    pub fn note(&self, thread: u32, is_alone: bool) {
        let (before, run) = self.run();
        let run = match is_alone {
            true if before == thread => run.wrapping_add(1),
            alone => alone as u32,
        };
        self.run.store((thread as u64) << 32 | run as u64, Ordering::Relaxed);
    }

    /// Whether the watchdog should be told of this one.
    pub fn should_follow(&self) -> bool {
        let (_, run) = self.run();
        run >= ENOUGH
            && run.is_multiple_of(ENOUGH)
            && self.number.load(Ordering::Relaxed) != 0
            && !self.follows.load(Ordering::Relaxed)
    }

    fn run(&self) -> (u32, u32) {
        let both = self.run.load(Ordering::Relaxed);
        ((both >> 32) as u32, both as u32)
    }
}

/// What a handler has done so far.
#[derive(Clone, Copy, Debug)]
struct Seen {
    served: u64,
    thread: u32,
    run: u32,
}

/// What to do about a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It stays as it is.
    Stay,
    /// It goes where this thread runs.
    Follow(u32),
    /// It runs everywhere.
    Free,
}

/// The thread that a handler follows, and when the next look is.
#[derive(Debug)]
struct Followed {
    thread: u32,
    next: Instant,
}

/// What is known of a handler.
#[derive(Default)]
struct Follower {
    followed: Option<Followed>,
    /// What the handler had served when that last changed, or at the last look.
    served: u64,
    kept: Option<Confined>,
}

impl Follower {
    fn decide(&mut self, seen: Seen, now: Instant) -> Step {
        let Seen { served, thread, run } = seen;
        let more = served.wrapping_sub(self.served);
        let follows = match &self.followed {
            None if more.min(run as u64) < ENOUGH as u64 => return Step::Stay,
            None => true,
            Some(followed) if now < followed.next => return Step::Stay,
            Some(followed) => more > 0 && thread == followed.thread && run as u64 >= more,
        };
        self.served = served;
        self.followed = follows.then(|| Followed { thread, next: now + BETWEEN });
        if follows { Step::Follow(thread) } else { Step::Free }
    }

    fn look(&mut self, trace: &Trace, served: u64, now: Instant) {
        let number = trace.number.load(Ordering::Acquire);
        if number == 0 {
            self.followed = None;
            self.kept.take().into_iter().for_each(Confined::forget);
            return;
        }
        let (thread, run) = trace.run();
        match self.decide(Seen { served, thread, run }, now) {
            Step::Stay => {}
            Step::Free => self.kept = None,
            Step::Follow(thread) => {
                // Where all processors are busy, none has to be woken, and a handler should go to the least busy one. The
                // thread may wait beside its handler for a moment.
                let may_wait = self.kept.is_some() as usize;
                let cpu =
                    placement::processors_suffice(may_wait).then(|| placement::shared_processor(thread)).flatten();
                self.kept = match (cpu, self.kept.take()) {
                    (None, _) => None,
                    (Some(cpu), None) => Confined::new(number, cpu),
                    (Some(cpu), Some(mut kept)) => kept.go(cpu).then_some(kept),
                };
                if self.kept.is_none() {
                    self.followed = None;
                }
            }
        }
        trace.follows.store(self.kept.is_some(), Ordering::Relaxed);
    }
}

/// The handlers that follow, as the watchdog has them. When this is dropped, all run where they might before.
pub struct Followers(Vec<Follower>);

impl Followers {
    /// Of so many handlers.
    pub fn new(handlers: usize) -> Self {
        Self(std::iter::repeat_with(Follower::default).take(handlers).collect())
    }

    /// Looks at all of them.
    pub fn look(&mut self, handlers: &Handlers) {
        let now = Instant::now();
        for (follower, beat) in self.0.iter_mut().zip(&*handlers.beats) {
            // Acquire: pairs with the handler's addition.
            follower.look(&beat.trace, beat.served.load(Ordering::Acquire), now);
        }
    }

    /// When the next look is due, if one is.
    pub fn next(&self) -> Option<Instant> {
        self.0.iter().filter_map(|follower| follower.followed.as_ref()).map(|followed| followed.next).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A handler, and a clock of its own.
    struct Handler {
        trace: Trace,
        served: u64,
        follower: Follower,
        now: Instant,
    }

    impl Handler {
        fn new() -> Self {
            Self { trace: Trace::default(), served: 0, follower: Follower::default(), now: Instant::now() }
        }

        fn serve(&mut self, thread: u32, pages: &[usize]) {
            for pages in pages {
                self.trace.note(thread, *pages == 1);
                self.served += 1;
            }
        }

        fn look(&mut self, later: Duration) -> Step {
            self.now += later;
            let (thread, run) = self.trace.run();
            self.follower.decide(Seen { served: self.served, thread, run }, self.now)
        }
    }

    const SINGLE: [usize; ENOUGH as usize] = [1; ENOUGH as usize];

    #[test]
    fn a_handler_follows_one_thread_that_goes_on() {
        let mut handler = Handler::new();
        handler.serve(7, &SINGLE[1..]);
        assert_eq!(handler.look(Duration::ZERO), Step::Stay);
        handler.serve(7, &[1]);
        assert_eq!(handler.look(Duration::ZERO), Step::Follow(7));
        assert_eq!(handler.look(BETWEEN / 2), Step::Stay, "it is too early");
        for _ in 0..3 {
            handler.serve(7, &[1]);
            assert_eq!(handler.look(BETWEEN), Step::Follow(7));
        }
        assert_eq!(handler.look(BETWEEN), Step::Free, "nothing was served");
        handler.serve(7, &SINGLE[1..]);
        assert_eq!(handler.look(BETWEEN), Step::Stay, "it was freed a moment ago");
        handler.serve(7, &[1]);
        assert_eq!(handler.look(BETWEEN), Step::Follow(7));
    }

    #[test]
    fn another_thread_or_a_window_ends_it() {
        for (thread, pages) in [(8, 1), (7, 2)] {
            for more in [0, 1, ENOUGH as usize] {
                let mut handler = Handler::new();
                handler.serve(7, &SINGLE);
                assert_eq!(handler.look(Duration::ZERO), Step::Follow(7));
                handler.serve(7, &[1]);
                handler.serve(thread, &[pages]);
                handler.serve(7, &SINGLE[..more]);
                assert_eq!(handler.look(BETWEEN), Step::Free, "{thread}, {pages}, {more}");
                assert_eq!(handler.look(BETWEEN), Step::Stay);
            }
        }
    }

    #[test]
    fn threads_by_turns_are_not_followed() {
        let mut handler = Handler::new();
        for _ in 0..100 {
            handler.serve(7, &SINGLE[1..]);
            handler.serve(8, &SINGLE[1..]);
            assert!(!handler.trace.should_follow());
            assert_eq!(handler.look(BETWEEN), Step::Stay);
        }
    }

    #[test]
    fn it_is_told_once_in_a_while() {
        let handler = Handler::new();
        let told = |times: u32| {
            (0..times).filter(|_| {
                handler.trace.note(7, true);
                handler.trace.should_follow()
            })
        };
        assert_eq!(told(10 * ENOUGH).count(), 0, "it may not be kept anywhere");
        let may = handler.trace.begin();
        assert_eq!(told(10 * ENOUGH).count(), 10);
        handler.trace.follows.store(true, Ordering::Relaxed);
        assert_eq!(told(10 * ENOUGH).count(), 0);
        handler.trace.follows.store(false, Ordering::Relaxed);
        drop(may);
        assert_eq!(told(10 * ENOUGH).count(), 0);
    }
}
