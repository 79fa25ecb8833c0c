//! Looking at the machine, again and again: what each process did from one look to the next.
//!
//! Page faults are the kernel's figure of each process, which any user may read. Their time is an estimate: what a
//! fault of a small page cost on this machine when the screen began. Faults of regions are timed by the process itself.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use faultless_base::PAGE;
use faultless_measure::costs::small_fault_ns;
use faultless_measure::pages::Counters;
use faultless_measure::pages::find::{self, All, Covered};
use faultless_measure::pages::process::{Process, Stat};
use faultless_page::stats::Counter;

/// Faults a second from which on a process is shown that is not covered.
pub const MANY: f64 = 100.0;
/// Looks that a graph goes back.
pub const HISTORY: usize = 240;
/// What a fault costs where it could not be measured.
const USUAL_NS: f64 = 500.0;

/// One process, over one interval.
pub struct Row {
    /// Which.
    pub process: Process,
    /// The name of what it runs.
    pub command: String,
    /// Page faults a second.
    pub faults: f64,
    /// The share of one processor's time that they took, about.
    pub time: f64,
    /// Resident memory, in bytes.
    pub resident: u64,
    /// What it counts, if it is covered.
    pub covered: Option<Service>,
    /// What it did in the intervals before, the newest first.
    pub history: VecDeque<Point>,
}

/// What is counted in a covered process.
pub struct Service {
    /// By which knobs are turned.
    pub source: Covered,
    /// So far.
    pub all: Counters,
    /// In the interval.
    pub more: Counters,
    /// How long that was, in seconds.
    pub seconds: f64,
    /// Whether the program that runs is the program that counts: not after an exec. `None`: it is not known.
    pub listens: Option<bool>,
}

/// One point of a graph.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// Page faults a second.
    pub faults: f64,
    /// Bytes handed out a second.
    pub handed: f64,
}

/// What was seen at one look.
pub struct Seen {
    /// All processes that are shown.
    pub rows: Vec<Row>,
    /// Processes and commands that may be covered, and that this user may not look at.
    pub closed: usize,
    /// What is wrong with pages.
    pub wrong: Vec<String>,
    /// Page faults a second of the whole machine.
    pub faults: f64,
    /// The share of time in which some task waited for memory, of the last ten seconds; where the kernel says it.
    pub pressure: Option<f64>,
    /// Memory that is available, in bytes.
    pub available: Option<u64>,
}

/// What was known of a process at the last look.
struct Last {
    faults: u64,
    counters: Option<Counters>,
    history: VecDeque<Point>,
}

/// Looks, and remembers the last look.
pub struct Sampler {
    fault_ns: f64,
    at: Option<Instant>,
    last: BTreeMap<Process, Last>,
    faults: u64,
}

impl Service {
    /// A counter's rate, a second.
    pub fn rate(&self, counter: Counter) -> f64 {
        self.more.get(counter) as f64 / self.seconds
    }

    /// Bytes handed out a second.
    pub fn handed(&self) -> f64 {
        self.rate(Counter::MmapBytes) + self.rate(Counter::MallocBytes)
    }

    /// Of what was handed out so far, the share that takes no fault: it was in memory. `None`: nothing was.
    pub fn ready(&self) -> Option<f64> {
        let sum = |of: &[Counter]| of.iter().map(|counter| self.all.get(*counter)).sum::<u64>() as f64;
        let ready = sum(&[Counter::BytesZeroed, Counter::BytesUnzeroed, Counter::BytesHotZeroed]);
        let all = ready + sum(&[Counter::BytesFreshHuge, Counter::BytesFreshSmall]);
        (all > 0.0).then(|| ready / all)
    }

    /// Requests left to the kernel or the C library, a second.
    pub fn left(&self) -> f64 {
        self.more.left().iter().map(|(_, calls)| *calls as f64).sum::<f64>() / self.seconds
    }
}

/// What was counted since `before`; all of it where another program has taken the process's place.
fn since(now: &Counters, before: Option<&Counters>) -> Counters {
    match before.filter(|before| before.start_ns == now.start_ns) {
        Some(before) => now.since(before),
        None => now.clone(),
    }
}

impl Sampler {
    /// Measures what a fault costs, which takes some ten milliseconds.
    pub fn new() -> Self {
        Self { fault_ns: small_fault_ns().unwrap_or(USUAL_NS), at: None, last: BTreeMap::new(), faults: 0 }
    }

    /// What there is now, and what happened since the last look.
    pub fn look(&mut self) -> Seen {
        let now = Instant::now();
        // Nothing has a rate at the first look.
        let seconds = self.at.map_or(f64::INFINITY, |at| (now - at).as_secs_f64().max(1e-3));
        self.at = Some(now);
        let All { found, wrong, closed } = find::all();
        let mut covered: BTreeMap<u32, Covered> =
            found.into_iter().map(|covered| (covered.pid, covered)).collect();
        let mut last = BTreeMap::new();
        let mut rows = Vec::new();
        for (pid, stat) in find::processes().filter_map(|pid| Some((pid, Stat::read(pid)?))) {
            let process = Process { pid, started: stat.started };
            let before = self.last.remove(&process);
            // One that came up since counts from its start.
            let base = before.as_ref().map_or(0, |before| before.faults);
            let faults = stat.faults.saturating_sub(base) as f64 / seconds;
            let counters = before.as_ref().and_then(|before| before.counters.as_ref());
            let service = covered.remove(&pid).map(|source| Service::new(source, counters, seconds));
            let handed = service.as_ref().map_or(0.0, Service::handed);
            let mut history = before.map(|before| before.history).unwrap_or_default();
            history.push_front(Point { faults, handed });
            history.truncate(HISTORY);
            let all = service.as_ref().map(|service| service.all.clone());
            last.insert(process, Last { faults: stat.faults, counters: all, history: history.clone() });
            if service.is_some() || faults >= MANY {
                let regions = service.as_ref().map_or(0.0, |service| service.rate(Counter::RegionFaultNs));
                let time = (faults * self.fault_ns + regions) / 1e9;
                let resident = resident(pid);
                rows.push(Row { process, command: stat.name, faults, time, resident, covered: service, history });
            }
        }
        self.last = last;
        let before = std::mem::replace(&mut self.faults, figure("/proc/vmstat", "pgfault ").unwrap_or(0));
        Seen {
            rows,
            closed,
            wrong,
            faults: self.faults.saturating_sub(before) as f64 / seconds,
            pressure: pressure(),
            available: figure("/proc/meminfo", "MemAvailable:").map(|kib| kib << 10),
        }
    }
}

impl Service {
    fn new(mut source: Covered, before: Option<&Counters>, seconds: f64) -> Self {
        let all = source.counters().clone();
        let more = since(&all, before);
        let listens = source.listens();
        Self { source, all, more, seconds, listens }
    }
}

/// The number behind a name, in a file of the kernel's with one on each line.
fn figure(file: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

fn resident(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages: u64 = text.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages.saturating_mul(PAGE as u64)
}

fn pressure() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/pressure/memory").ok()?;
    let some = text.lines().find_map(|line| line.strip_prefix("some avg10="))?;
    some.split_whitespace().next()?.parse::<f64>().ok().map(|percent| percent / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This process takes faults between two looks, and they are seen.
    #[test]
    fn a_process_that_takes_faults_is_shown() {
        let mut sampler = Sampler::new();
        let first = sampler.look();
        assert!(first.rows.iter().all(|row| row.covered.is_some() && row.faults == 0.0), "nothing has a rate yet");
        let own = Process::this();
        let mut taken = 0.0;
        // Each page is a fault; how long it takes is the machine's affair.
        for _ in 0..100 {
            std::hint::black_box(vec![1u8; 64 << 20]);
            let seen = sampler.look();
            let row = seen.rows.iter().find(|row| row.process == own);
            taken = row.map_or(0.0, |row| row.faults);
            if let Some(row) = row {
                assert!(row.time > 0.0 && row.resident > 0 && row.covered.is_none());
                assert_eq!(row.history[0], Point { faults: taken, handed: 0.0 });
                assert!(seen.faults > 0.0);
                break;
            }
        }
        assert!(taken >= MANY, "{taken}");
    }

    #[test]
    fn another_program_in_the_same_process_counts_from_its_start() {
        let counters = |start_ns, n| {
            let mut counters = Counters::from_values(7, [n].into_iter());
            counters.start_ns = start_ns;
            counters
        };
        let served = |counters: &Counters| counters.get(Counter::MmapServed);
        assert_eq!(served(&since(&counters(5, 10), Some(&counters(5, 4)))), 6);
        assert_eq!(served(&since(&counters(9, 3), Some(&counters(5, 4)))), 3);
        assert_eq!(served(&since(&counters(9, 3), None)), 3);
    }

    #[test]
    fn figures_of_the_kernel_are_read() {
        assert!(figure("/proc/meminfo", "MemAvailable:").is_some_and(|kib| kib > 0));
        assert_eq!(figure("/proc/meminfo", "NoSuchThing:"), None);
        assert_eq!(figure("/proc/no-such-file", "x"), None);
        assert!(resident(std::process::id()) > 0 && resident(u32::MAX) == 0);
        assert!(pressure().is_none_or(|share| (0.0..=1.0).contains(&share)));
    }
}
