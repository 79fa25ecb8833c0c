//! What this machine's memory costs, measured.
//!
//! All measurements take turns, round after round, on one CPU, so that a disturbance or a change of the processor's
//! clock meets them alike. Samples are short; of a cost's samples, a tenth is below the figure that is given: the
//! fastest are luck, and the slow ones are disturbances.

mod area;
mod cpus;
mod delivery;
mod list;
mod sigbus;
mod touch;
mod zeroing;

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use faultless_base::{Errno, SLOT};
use serde::Serialize;

pub use area::{Area, time};
pub use cpus::{allowed as allowed_cpus, pin};
pub use list::{COSTS, Cost, Group};
pub use sigbus::serving;

/// When the last round begins, and how many there are at least and at most.
const TIME: Duration = Duration::from_millis(2200);
const ROUNDS: std::ops::Range<usize> = 3..40;
/// How long the first touch of memory may take.
const PATIENCE: Duration = Duration::from_millis(300);
/// A first touch that takes this much longer than the second met memory that was not warm.
const COLD: f64 = 1.5;

/// One round of something that is measured: it adds to the samples, or says why it will not again.
type Probe = Box<dyn FnMut(&mut Samples) -> Result<(), String>>;

/// Nanoseconds by name: what each sample took.
#[derive(Default)]
struct Samples(BTreeMap<&'static str, Vec<f64>>);

impl Samples {
    fn add(&mut self, id: &'static str, ns: f64) {
        self.0.entry(id).or_default().push(ns);
    }
}

/// The error of a system call, for people.
fn errno(what: &str, error: Errno) -> String {
    format!("{what}: {}", std::io::Error::from_raw_os_error(error.number()))
}

/// What was measured.
#[derive(Serialize)]
pub struct Measured {
    /// The CPU that it ran on; `None`: wherever it was put.
    pub cpu: Option<usize>,
    /// Rounds that were made.
    pub rounds: usize,
    /// Whether memory was there at the first touch, or had to be brought by the hypervisor; `None`: not measured.
    pub warm: Option<bool>,
    /// Nanoseconds for each 4 KiB of the first touch of memory, and of the second.
    pub first_touch_ns: Option<f64>,
    /// The same memory given back and touched again.
    pub second_touch_ns: Option<f64>,
    /// Bytes that were touched for that.
    pub touched: usize,
    /// The costs.
    pub costs: Vec<Cost>,
}

/// Nanoseconds for each 4 KiB of the first touch of memory and of the second; `None` where there is no memory.
pub struct Warmth {
    /// Of the first touch.
    pub first_ns: f64,
    /// Of the second.
    pub second_ns: f64,
}

impl Warmth {
    /// Of up to `bytes` bytes, or as much as is brought in a third of a second.
    pub fn measure(bytes: usize) -> Option<Self> {
        let twice = touch::twice(bytes, PATIENCE).ok()?;
        Some(Self { first_ns: twice.first, second_ns: twice.second })
    }

    /// Whether memory was there at the first touch.
    pub fn is_warm(&self) -> bool {
        self.first_ns < COLD * self.second_ns
    }
}

/// Nanoseconds of the fault of a small page: what takes some ten milliseconds tells about it. `None` where there is no
/// memory.
pub fn small_fault_ns() -> Option<f64> {
    let mut probe = touch::small(4 * SLOT).ok()?;
    let mut samples = Samples::default();
    (0..3).try_for_each(|_| probe(&mut samples)).ok()?;
    let mut all = samples.0.remove("small_fault")?;
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 10).copied()
}

/// Measures, with at most `memory` bytes in use at once.
pub fn measure(memory: u64) -> Measured {
    // A thread of its own, so that the others keep their placement. It does not panic by itself; if the system
    // refuses a thread, this one does it.
    let work = move || rounds(memory);
    match thread::Builder::new().name("measure".into()).spawn(work) {
        Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        Err(_) => rounds(memory),
    }
}

fn rounds(memory: u64) -> Measured {
    let share = |most: u64| (memory.min(most) as usize / SLOT).max(1) * SLOT;
    let cpu = cpus::pin();
    let start = Instant::now();
    let twice = touch::twice(share(256 << 20), PATIENCE).ok();
    let (small, large) = (share(memory / 4).min(64 << 20), share(memory / 4).min(64 << 20));
    let makers: [(&[&'static str], Result<Probe, String>); 7] = [
        (&["small_fault", "touch", "discard_small"], touch::small(small)),
        (&["huge_fault", "move", "mremap", "discard_huge"], touch::huge(large)),
        (&["move_page"], delivery::move_pages()),
        (&["move_huge"], delivery::move_huge()),
        (&["deliver_thread"], delivery::by_thread()),
        (&["deliver_signal"], delivery::by_signal()),
        (&[], zeroing::all(large)),
    ];
    let mut samples = Samples::default();
    let mut missing = BTreeMap::new();
    let mut probes = Vec::new();
    for (ids, made) in makers {
        match made {
            Ok(probe) => probes.push((ids, probe)),
            Err(why) => missing.extend(ids.iter().map(|id| (*id, why.clone()))),
        }
    }
    let mut done = 0;
    while done < ROUNDS.end && (done < ROUNDS.start || start.elapsed() < TIME) {
        probes.retain_mut(|(ids, probe)| match probe(&mut samples) {
            Ok(()) => true,
            Err(why) => {
                missing.extend(ids.iter().map(|id| (*id, why.clone())));
                false
            }
        });
        done += 1;
    }
    Measured {
        cpu,
        rounds: done,
        warm: twice.as_ref().map(|twice| Warmth { first_ns: twice.first, second_ns: twice.second }.is_warm()),
        first_touch_ns: twice.as_ref().map(|twice| twice.first),
        second_touch_ns: twice.as_ref().map(|twice| twice.second),
        touched: twice.map_or(0, |twice| twice.bytes),
        costs: COSTS.iter().map(|kind| Cost::new(kind, &samples.0, &missing)).collect(),
    }
}
