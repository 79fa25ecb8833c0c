//! The scrubber: free memory is zeroed in the background, before zeroes are asked for.
//!
//! It sleeps until the largest dirty block reaches `scrub_start`, then zeroes the largest blocks first, until none of
//! `scrub_stop` is left or enough is zero (`pace.rs`). A block is zeroed as a whole, by one job of an engine. Memory
//! that was freed a moment ago is left alone: if it is wanted again, its lines are still in the cache, and it is
//! zeroed hot.
//!
//! A request that finds its memory with the scrubber calls it back. Then the job ends after the piece in progress,
//! and the part that is not zero by then is dirty again. An engine that fails or makes no progress is dropped. In
//! every case, slots are handed on as zeroed only as far as the job says that they are.

use faultless_base::probe;
use faultless_base::sys::Sys;
use faultless_base::zero::Engine;
use faultless_base::zero::driver::Poll;
use faultless_base::{SLOT, Span};

use crate::frame::buddy::{Kind, Ready};
use crate::frame::extent::Extent;
use crate::frame::slot::State;
use crate::space::progress::{Progress, sooner};
use crate::space::{Shard, Space};
use faultless_page::knobs::{Knob, MOST_ORDER, slot_order};
use faultless_page::stats::Counter;

/// Memory wanted again sooner than this is cheaper to zero hot, at its hand-out.
const DELAY_MS: u32 = 5;
/// A job that takes this much of the thread's time, working or asking, has an engine that hangs: the slowest takes a
/// few milliseconds. On the clock it may take long: other threads go first.
const STALLED_NS: u64 = 50_000_000;
/// While the machine is loaded: how often it is looked at again.
const LOADED_US: u64 = 100_000;

/// What became of an extent that was to be zeroed.
pub(crate) enum Zeroing {
    /// This many slots from its start are zero by this engine, and the others are not.
    Done(usize, Engine),
    /// Its content is lost.
    Lost,
}

/// The order of the largest dirty block, in slots; `None` also where the lock is taken.
fn largest(shard: &Shard) -> Option<usize> {
    shard.lock_soon()?.free().largest(Kind::Dirty)
}

impl<S: Sys> Space<S> {
    /// Zeroes a block, if there is one.
    pub(crate) fn scrub_step(&self) -> Progress {
        let now = self.now_ms();
        if !self.scrubber.pace.is_awake() {
            if !self.is_worth_waking() {
                self.scrubber.pace.note_nothing(now);
                return Progress::Idle;
            }
            if self.is_loaded() {
                return Progress::Wait(LOADED_US);
            }
            self.scrubber.pace.wake();
            self.choose_cpu();
            self.program().count(Counter::ScrubWakeups, 1);
            probe::scrub_wakeup();
        }
        let progress = self.scrub_next(now);
        if progress == Progress::Idle {
            self.scrubber.sleep(now);
        }
        progress
    }

    /// Whether a dirty block is as large as one has to be to wake the scrubber, and zeroes are in demand.
    fn is_worth_waking(&self) -> bool {
        let Some(order) = self.waking_order() else { return false };
        self.scrubber.pace.target(self.now_ms()) > self.zeroed()
            && (self.free_in_pool(Kind::Dirty) >= 1 << order
                || self.all_shards().any(|shard| largest(shard) >= Some(order)))
    }

    /// The order of a block, in slots, from which on it wakes the scrubber; `None`: none does. A block too small to
    /// be zeroed does not wake it.
    fn waking_order(&self) -> Option<usize> {
        let (start, stop) = (self.knobs.get(Knob::ScrubStart), self.knobs.get(Knob::ScrubStop));
        (start <= MOST_ORDER).then(|| slot_order(start.max(stop)))
    }

    fn is_loaded(&self) -> bool {
        match self.knobs.get(Knob::ScrubLoad) {
            // Never: not worth asking.
            load if load == Knob::ScrubLoad.declared().range().1 => false,
            load => self.sys.load() >= load,
        }
    }

    /// Slots that are zero and free.
    pub(crate) fn zeroed(&self) -> usize {
        self.free_slots(Kind::Zeroed)
    }

    fn scrub_next(&self, now: u32) -> Progress {
        let target = self.scrubber.pace.target(now);
        let missing = target.saturating_sub(self.zeroed());
        if missing == 0 {
            return Progress::Idle;
        }
        // Zeroed slots in other places do not make this block whole. So zero a little more than needed, rather than
        // leave a dirty end.
        let of_block = |n: usize| if n <= missing + target / 8 { n } else { missing };
        let stop = slot_order(self.knobs.get(Knob::ScrubStop));
        let mut result = Progress::Idle;
        for shard in self.all_shards() {
            let Some(mut arena) = shard.lock_soon() else { continue };
            match arena.free().ready(Kind::Dirty, stop, now, DELAY_MS) {
                Ready::None => {}
                Ready::Later(ms) => result = sooner(result, Progress::Wait(ms as u64 * 1000)),
                Ready::Now(free) => {
                    let most = free.extent().n.min(self.sys.scrub_largest() / SLOT);
                    let e = free.extent().front(of_block(most));
                    self.scrubber.begin();
                    if !arena.take_at(e) {
                        return Progress::Worked;
                    }
                    self.scrubber.take_away(e.n);
                    drop(arena);
                    self.scrub(shard, e, free.stamp);
                    self.scrubber.bring_back(e.n);
                    self.scrubber.pace.note_zeroed();
                    return Progress::Worked;
                }
            }
        }
        if let Some(at) = self.older_in_pool(Kind::Dirty, now, DELAY_MS) {
            self.scrub_in_pool(at);
            return Progress::Worked;
        }
        result
    }

    /// Zeroes a frame of the pool in transit.
    fn scrub_in_pool(&self, at: usize) {
        let (start, counting) = (self.sys.thread_ns(), self.program());
        self.scrubber.begin();
        match self.zero(counting, Span::new(at, SLOT), false, || false) {
            Zeroing::Done(1, engine) => {
                counting.count(Counter::BytesScrubbed, SLOT);
                counting.count(Counter::scrubbed_by(engine), SLOT);
                counting.count(Counter::ScrubBlocks, 1);
                self.give_to_pool(at, Kind::Zeroed);
            }
            Zeroing::Done(..) => self.give_to_pool(at, Kind::Dirty),
            Zeroing::Lost => {
                self.budget.unkeep(1);
                self.empty_in_pool(at);
            }
        }
        self.scrubber.pace.note_zeroed();
        counting.count(Counter::ScrubNs, (self.sys.thread_ns() - start) as usize);
    }

    fn scrub(&self, shard: &Shard, e: Extent, stamp: u32) {
        let start = self.sys.thread_ns();
        let is_hole = shard.slots.was(e.first) == State::Unbacked;
        match self.zero(shard, shard.span(e), is_hole, || self.scrubber.is_recalled()) {
            Zeroing::Lost => self.return_to_kernel(shard, e, stamp),
            Zeroing::Done(n, engine) => {
                let (zero, rest) = (e.front(n), e.behind(n));
                shard.count(Counter::BytesScrubbed, n * SLOT);
                shard.count(Counter::scrubbed_by(engine), n * SLOT);
                shard.count(Counter::ScrubBlocks, 1);
                self.put_back(shard, zero, Kind::Zeroed, stamp);
                self.put_back(shard, rest, Kind::Dirty, stamp);
            }
        }
        shard.count(Counter::ScrubNs, (self.sys.thread_ns() - start) as usize);
    }

    /// Zeroes memory in transit, unless it is called back meanwhile.
    pub(crate) fn zero(
        &self,
        shard: &Shard,
        span: Span,
        is_hole: bool,
        is_recalled: impl Fn() -> bool,
    ) -> Zeroing {
        let (start, cpu) = (self.sys.now_ns(), self.sys.thread_ns());
        let Some(mut job) = self.sys.scrub_start(span) else { return Zeroing::Lost };
        job.is_hole = is_hole;
        let engine = job.engine();
        let broken = loop {
            match self.sys.scrub_poll(&mut job) {
                Poll::Done => break None,
                Poll::Failed => break Some(Counter::EnginesFailed),
                Poll::Working if is_recalled() => {
                    shard.count(Counter::ScrubRecalls, 1);
                    break None;
                }
                Poll::Working if self.sys.thread_ns() - cpu > STALLED_NS => break Some(Counter::EnginesHung),
                Poll::Working => self.sys.relax(0),
            }
        };
        if broken.is_some() {
            self.sys.drop_engine(engine);
        }
        if let Some(why) = broken.or(job.dropped.then_some(Counter::EnginesSlow)) {
            for counter in [Counter::EnginesDropped, Counter::dropped(engine), why] {
                shard.count(counter, 1);
            }
            probe::engine_dropped(engine);
        }
        self.worker.rest.note_sleep(job.slept_ns);
        let n = job.done / SLOT;
        self.sys.scrub_end(job);
        probe::scrub(span.start, n * SLOT, self.sys.now_ns() - start, engine);
        Zeroing::Done(n, engine)
    }

    /// Memory came back: whether the scrubber is to be woken for the largest dirty block.
    pub(crate) fn is_due(&self, shard: &Shard, now_ms: u32) -> bool {
        let due = self.knobs.is_on(Knob::Scrub)
            && self.scrubber.pace.wants_call(now_ms)
            && self.scrubber.pace.target(now_ms) > 0
            && self.waking_order().is_some_and(|order| largest(shard) >= Some(order));
        if due {
            self.scrubber.pace.call();
        }
        due
    }
}
