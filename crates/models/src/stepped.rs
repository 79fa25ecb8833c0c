//! The simulated address space, with a place to switch threads before each operation.

use std::panic::resume_unwind;
use std::sync::{Arc, Mutex};

use faultless_base::Span;
use faultless_base::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use faultless_base::sys::{Headroom, Huge, Job, Sys};
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
    device: Arc<Device>,
}

/// A device that zeroes by itself, one job at a time.
#[derive(Default)]
struct Device {
    is_there: AtomicBool,
    /// No lock of the model: nothing happens while it is held.
    request: Mutex<Option<Span>>,
    is_busy: AtomicBool,
    /// Whether it is to end after the piece in progress.
    cancelled: AtomicBool,
    failed: AtomicBool,
    /// Bytes that are zero by now.
    done: AtomicUsize,
}

impl Device {
    fn serve(&self, fake: &Fake, span: Span) {
        let mut job = Job::by_hand(span);
        while !self.cancelled.load(Ordering::SeqCst) {
            let poll = fake.scrub_poll(&mut job);
            self.done.store(job.done, Ordering::SeqCst);
            match poll {
                Poll::Working => shuttle::thread::yield_now(),
                Poll::Done => break,
                Poll::Failed => {
                    self.failed.store(true, Ordering::SeqCst);
                    break;
                }
            }
        }
        self.is_busy.store(false, Ordering::SeqCst);
    }

    fn poll(&self, job: &mut Job) -> Poll {
        job.done = self.done.load(Ordering::SeqCst);
        match self.failed.load(Ordering::SeqCst) {
            true => Poll::Failed,
            false if job.done == job.span.bytes() => Poll::Done,
            false => Poll::Working,
        }
    }
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

    /// The thread of a device, to which zeroing is left from now on, until [`Stepped::end_device`].
    pub fn work_as_device(&self) {
        while self.device.is_there.load(Ordering::SeqCst) {
            let request = self.device.request.lock().unwrap().take();
            match request {
                Some(span) => self.device.serve(&self.fake, span),
                None => shuttle::thread::yield_now(),
            }
        }
    }

    /// There is a device, which a thread plays.
    pub fn begin_device(&self) {
        self.device.is_there.store(true, Ordering::SeqCst);
    }

    /// There is none any more.
    pub fn end_device(&self) {
        self.device.is_there.store(false, Ordering::SeqCst);
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
        step: reserve_apart(bytes: usize) -> Option<Span>;
        step: unclaimed(rest: Span) -> usize;
        step: open_first(span: Span) -> bool;
        step: reset(span: Span) -> bool;
        step: release(span: Span) -> bool;
        step: discard(span: Span) -> bool;
        step: discard_apart(span: Span) -> bool;
        step: huge(span: Span, huge: Huge);
        last_step: zero_hot(span: Span);
        step: scrub_largest() -> usize;
        step: drop_engine(engine: Engine);
        step: load() -> u64;
        last_step: migrate(from: Span, to: usize) -> bool;
        last_step: move_pages(from: Span, to: usize) -> Option<usize>;
        step: may_move() -> bool;
        last_step: isolate(span: Span) -> Option<Span>;
        step: drop_isolated(span: Span);
        step: forked();
        step: can_drop(span: Span) -> bool;
        step: drop_zero(slot: Span, room: Span) -> Option<bool>;
        step: copy_from_program(from: Span, to: usize) -> bool;
        step: touch(addr: usize);
        step: touch_if_open(addr: usize) -> bool;
        step: poison(span: Span);
        step: first_nonzero(span: Span) -> Option<usize>;
        step: nonzero_pages(span: Span, samples: usize) -> usize;
        step: peek_nonzero_pages(span: Span, samples: usize) -> usize;
        step: sign(slot: Span);
        step: overwritten(slot: Span) -> usize;
        step: peek_overwritten(slot: Span) -> usize;
        step: end_looks();
        step: area(addr: usize) -> Option<Span>;
        step: present(addr: usize) -> bool;
        step: missing(addr: usize) -> bool;
        step: present_pages(slot: Span) -> usize;
        step: is_short_of_memory() -> bool;
        step: resident_bytes() -> Option<usize>;
        step: headroom() -> Headroom;
        step: retire();
        step: avoid_cpu(cpu: Option<usize>);
    }

    fn scrub_start(&self, span: Span) -> Option<Job> {
        let job = self.step().scrub_start(span)?;
        let device = &self.device;
        if device.is_there.load(Ordering::SeqCst) {
            assert!(!device.is_busy.swap(true, Ordering::SeqCst), "one job at a time");
            device.cancelled.store(false, Ordering::SeqCst);
            device.failed.store(false, Ordering::SeqCst);
            device.done.store(0, Ordering::SeqCst);
            *device.request.lock().unwrap() = Some(span);
        }
        Some(job)
    }

    /// As drivers do: when it returns, nothing is written any more.
    fn scrub_end(&self, job: Job) {
        self.device.cancelled.store(true, Ordering::SeqCst);
        while self.device.is_busy.load(Ordering::SeqCst) {
            shuttle::thread::yield_now();
        }
        self.step().scrub_end(job);
    }

    fn scrub_poll(&self, job: &mut Job) -> Poll {
        if self.device.is_there.load(Ordering::SeqCst) {
            return self.device.poll(job);
        }
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

    fn process_ns(&self) -> u64 {
        self.fake.process_ns()
    }

    /// A waiting thread lets the others go first, whatever their priorities.
    fn relax(&self, turn: u32) {
        shuttle::thread::yield_now();
        self.fake.relax(turn);
    }
}
