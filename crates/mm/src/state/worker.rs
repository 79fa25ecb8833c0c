//! What the background thread is told, and its habits: when it rests, and which processors it uses.

use faultless_base::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, Ordering::Relaxed, fence};

use crate::state::decay::Decay;

/// A step was preempted when it took longer than the time it had a processor for by this much.
const PREEMPTED_NS: u64 = 500_000;
/// How long the rest is, at first and at most.
const REST_MS: u32 = 1;
const REST_MAX_MS: u32 = 160;
/// Other processors that were busy are taken to be so for this long.
const CROWDED_MS: u32 = 8_000;

/// The background thread, as the engine knows it.
#[derive(Debug, Default)]
pub(crate) struct Worker {
    pub(crate) notes: Notes,
    pub(crate) rest: Rest,
    pub(crate) cpus: Cpus,
    pub(crate) decay: Decay,
}

/// That there is work. Any thread sets these; the background thread clears them before it looks what there is.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// There is new work.
    wanted: AtomicBool,
    /// It cannot wait for the thread's next look.
    urgent: AtomicBool,
}

impl Notes {
    pub(crate) fn want(&self) {
        Self::note(&self.wanted);
    }

    pub(crate) fn want_now(&self) {
        Self::note(&self.urgent);
        self.want();
    }

    fn note(word: &AtomicBool) {
        if !word.load(Relaxed) {
            word.store(true, Ordering::Release);
            // Pairs with the thread's own, between its saying that it goes and its look at this: one of the two sees
            // the other.
            fence(Ordering::SeqCst);
        }
    }

    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Relaxed)
    }

    pub(crate) fn is_urgent(&self) -> bool {
        self.urgent.load(Relaxed)
    }

    /// The thread begins to look: notes from now on are new ones.
    pub(crate) fn take(&self) {
        // Exchanged, so that what the notes were about is seen.
        self.wanted.swap(false, Ordering::Acquire);
        self.urgent.swap(false, Ordering::Acquire);
        fence(Ordering::SeqCst);
    }
}

/// How long the background work rests after a step that was preempted. The background thread alone uses it.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    /// How long, in ms, and since when.
    ms: AtomicU32,
    since_ms: AtomicU32,
    /// Nanoseconds for which the thread slept in the present step, because a device worked for it.
    slept_ns: AtomicUsize,
}

impl Rest {
    /// For how many ms it still rests.
    pub(crate) fn left(&self, now_ms: u32) -> Option<u32> {
        let rested = now_ms.wrapping_sub(self.since_ms.load(Relaxed));
        self.ms.load(Relaxed).checked_sub(rested).filter(|left| *left > 0)
    }

    /// A step begins.
    pub(crate) fn begin_step(&self) {
        self.slept_ns.store(0, Relaxed);
    }

    /// The thread slept because a device worked for it.
    pub(crate) fn note_sleep(&self, ns: usize) {
        self.slept_ns.fetch_add(ns, Relaxed);
    }

    /// A step that did something took `wall_ns`, of `cpu_ns` on a processor. How long it rests now, in ms: longer each
    /// time.
    pub(crate) fn end_step(&self, wall_ns: u64, cpu_ns: u64, now_ms: u32) -> u32 {
        let waited = wall_ns.saturating_sub(cpu_ns + self.slept_ns.load(Relaxed) as u64);
        let longer = (self.ms.load(Relaxed) * 2).clamp(REST_MS, REST_MAX_MS);
        let rest = if waited < PREEMPTED_NS { 0 } else { longer };
        self.ms.store(rest, Relaxed);
        self.since_ms.store(now_ms, Relaxed);
        rest
    }

    /// Whether a rest of this length follows another one.
    pub(crate) fn is_again(ms: u32) -> bool {
        ms > REST_MS
    }
}

/// Where the program runs, and where the background thread does not.
#[derive(Debug, Default)]
pub(crate) struct Cpus {
    /// The processor that the program last asked for memory on, plus one; 0: it has not asked since the last look.
    /// Any thread of the program sets it, the background thread takes it by a swap.
    program: AtomicUsize,
    /// The processor that the background thread keeps off, plus one; 0 for none. The background thread's own, as the
    /// next one.
    avoided: AtomicUsize,
    /// When the processors beside the program's were last seen to be busy, in ms; odd, 0 for never.
    crowded_ms: AtomicU32,
}

impl Cpus {
    /// The program asks for memory on processor `cpu`.
    #[inline]
    pub(crate) fn note_program(&self, cpu: usize) {
        self.program.store(cpu + 1, Relaxed);
    }

    /// The processor that the background thread is to keep off from now on; `None`: nothing changes. Where the others
    /// were seen to be busy it may run anywhere: the program's is free whenever the program rests.
    pub(crate) fn choose(&self, now_ms: impl FnOnce() -> u32) -> Option<usize> {
        let cpu = self.program.swap(0, Relaxed);
        let crowded = self.crowded_ms.load(Relaxed);
        if crowded != 0 && now_ms().wrapping_sub(crowded).wrapping_add(1) <= CROWDED_MS {
            return None;
        }
        let is_new = cpu != 0 && cpu != self.avoided.swap(cpu, Relaxed);
        is_new.then(|| cpu - 1)
    }

    /// The processor that the background thread keeps off.
    pub(crate) fn avoided(&self) -> Option<usize> {
        self.avoided.load(Relaxed).checked_sub(1)
    }

    /// It keeps off none.
    pub(crate) fn avoid_none(&self) {
        self.avoided.store(0, Relaxed);
    }

    /// The other processors are busy: it keeps off none for a while.
    pub(crate) fn note_crowd(&self, now_ms: u32) {
        self.avoid_none();
        self.crowded_ms.store(now_ms | 1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_become_longer_while_steps_are_preempted_again() {
        let rest = Rest::default();
        let step = |waited: u64| {
            rest.begin_step();
            rest.note_sleep(1000);
            rest.end_step(5000 + 1000 + waited, 5000, 7)
        };
        assert_eq!([0, 1, 1, 1].map(|waited| step(waited * PREEMPTED_NS)), [0, REST_MS, 2, 4]);
        assert_eq!((rest.left(7), rest.left(10), rest.left(11)), (Some(4), Some(1), None));
        (0..20).for_each(|_| assert!(step(PREEMPTED_NS) <= REST_MAX_MS));
        assert_eq!((step(PREEMPTED_NS - 1), rest.left(7)), (0, None));
    }

    #[test]
    fn the_thread_keeps_off_where_the_program_was_unless_the_others_are_busy() {
        let cpus = Cpus::default();
        assert_eq!((cpus.choose(|| 0), cpus.avoided()), (None, None));
        cpus.note_program(3);
        assert_eq!((cpus.choose(|| 0), cpus.choose(|| 0), cpus.avoided()), (Some(3), None, Some(3)));
        cpus.note_program(3);
        assert_eq!(cpus.choose(|| 0), None, "it keeps off there already");
        cpus.note_crowd(100);
        cpus.note_program(5);
        assert_eq!((cpus.choose(|| 200), cpus.avoided()), (None, None));
        cpus.note_program(5);
        assert_eq!(cpus.choose(|| 200 + CROWDED_MS), Some(5));
    }
}
