//! The simulated address space, with a place to switch threads before each operation.

use std::panic::resume_unwind;
use std::sync::Arc;

use faultless_base::Span;
use faultless_base::sync::atomic::{AtomicBool, Ordering};
use faultless_base::sys::{AtFork, Door, Huge, Job, Sys};
use faultless_base::zero::Engine;
use faultless_base::zero::driver::Poll;
use faultless_fake::Fake;

/// What a thread ends with that a fork left behind; see [`Stepped::leave_behind`].
pub struct LeftBehind;

/// A [`Fake`] on which other threads act before every operation. A clone is another handle of the same one.
#[derive(Clone, Default)]
pub struct Stepped {
    fake: Fake,
    left_behind: Arc<AtomicBool>,
    stalled: Arc<AtomicBool>,
}

impl Stepped {
    /// Other threads act; then the memory as it is.
    pub fn step(&self) -> &Fake {
        self.left_behind.load(Ordering::SeqCst);
        &self.fake
    }

    /// From now on a thread ends when it opens, closes, moves or hot-zeroes memory, as threads do that a fork leaves
    /// behind. These are operations of the program's threads, made with no lock held.
    pub fn leave_behind(&self) {
        self.left_behind.store(true, Ordering::SeqCst);
    }

    /// That is over: the threads are gone.
    pub fn go_on(&self) {
        self.left_behind.store(false, Ordering::SeqCst);
    }

    /// From now on a zeroing engine does not get on, until it is let go.
    pub fn stall(&self, stalled: bool) {
        self.stalled.store(stalled, Ordering::SeqCst);
    }

    /// Whether threads are being left behind.
    pub fn is_leaving(&self) -> bool {
        self.left_behind.load(Ordering::SeqCst)
    }

    /// Ends this thread if a fork left it behind.
    fn last_step(&self) -> &Fake {
        if self.is_leaving() {
            resume_unwind(Box::new(LeftBehind));
        }
        &self.fake
    }
}

/// Operations of the address space, each with a step before it.
macro_rules! stepped {
    ($($step:ident: $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)+) => {
        $(fn $name(&self, $($arg: $type),*) $(-> $result)? {
            self.$step().$name($($arg),*)
        })+
    };
}

impl Sys for Stepped {
    stepped! {
        step: reserve(bytes: usize, align: usize) -> Option<Span>;
        step: open_first(span: Span) -> bool;
        last_step: open(span: Span) -> bool;
        last_step: close(span: Span) -> bool;
        step: reset(span: Span) -> bool;
        step: reclaim(span: Span) -> bool;
        step: release(span: Span) -> bool;
        step: discard(span: Span);
        step: huge(span: Span, huge: Huge);
        step: at_fork(span: Span, what: AtFork) -> bool;
        last_step: zero_hot(span: Span);
        step: scrub_largest() -> usize;
        step: scrub_start(span: Span, door: Door) -> Option<Job>;
        step: scrub_end(job: Job) -> bool;
        step: drop_engine(engine: Engine);
        step: load() -> u64;
        last_step: migrate(from: Span, to: usize) -> bool;
        last_step: move_in(from: Span, to: usize) -> Option<usize>;
        step: touch(addr: usize);
        step: poison(span: Span);
        step: first_nonzero(span: Span) -> Option<usize>;
        step: nonzero_pages(span: Span, samples: usize) -> usize;
        step: peek_nonzero_pages(span: Span, samples: usize) -> usize;
        step: sign(slot: Span);
        step: overwritten(slot: Span) -> usize;
        step: peek_overwritten(slot: Span) -> usize;
        step: present(addr: usize) -> bool;
        step: missing(addr: usize) -> bool;
        step: present_pages(slot: Span) -> usize;
        step: is_short_of_memory() -> bool;
        step: retire();
        step: avoid_cpu(cpu: Option<usize>);
    }

    fn scrub_poll(&self, job: &mut Job) -> Poll {
        while self.stalled.load(Ordering::SeqCst) {
            shuttle::thread::yield_now();
        }
        self.step().scrub_poll(job)
    }

    fn now_ns(&self) -> u64 {
        self.fake.now_ns()
    }

    fn thread_ns(&self) -> u64 {
        self.fake.thread_ns()
    }

    /// Whoever waits lets the others go first, whatever their priorities.
    fn relax(&self, turn: u32) {
        shuttle::thread::yield_now();
        self.fake.relax(turn);
    }
}
