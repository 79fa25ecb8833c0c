//! The records of a recording, added up.
//!
//! Each record stands for as many faults as its period says. What all of them stand for is scaled to the number that
//! was counted, so that records that were dropped, and faults after a thread's last record, change no sum. The time of
//! a kind is the mean of its timed faults; a kind with too few of them has the mean of all.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::rc::Rc;

use super::avoid::Avoid;
use super::place::{self, Class, Kind};
use super::served::Served;
use super::tables::{Finished, Tables};
use super::weight::{MOST_ROWS, Scale, Weight, rows};
use super::{
    ByKind, ByProcess, ByThread, Faults, LeftOut, Origin, Recording, Sampled, Summary, Time, TimeSource, Timeline,
    VERSION, advice, bounded,
};
use crate::file::{COUNTED_VERSION, Counted, End, Head};
use crate::map::HashMap;
use crate::pairs::{Ended, Pairs, usual};
use crate::space::Space;
use crate::symbols::Symbols;
use crate::sys::event::What;
use crate::wire::{Record, Sample, Told};

/// Steps of the time line.
const STEPS: usize = 100;
/// Timed faults of a kind from which their mean is given, and of all kinds together.
pub const ENOUGH: usize = 10;
/// One fault in this many is little.
const MANY: u64 = 50;
/// Single faults that are kept.
const MOST_KEPT: usize = 100_000;
/// Processes, and threads, that are told apart.
const MOST_TOLD: usize = 100_000;
/// Times of a kind that are kept.
const MOST_TIMES: usize = 1 << 20;

/// What is said where Python's functions were looked for, and have no names.
const NO_PYTHON: &str = "no Python has named its functions: that takes CPython 3.12 or later, which does not ignore its \
                         environment (-E, -I)";

/// Adds faults to a row. Rows beyond those that are told apart are one, of number 0.
fn add<K: Default + Eq + Hash>(
    rows: &mut HashMap<K, (String, Weight)>,
    key: K,
    name: &str,
    others: &str,
    (kind, faults): (Kind, u64),
) {
    let is_told = rows.len() < MOST_TOLD || rows.contains_key(&key);
    let (key, name) = if is_told { (key, name) } else { (K::default(), others) };
    let row = rows.entry(key).or_default();
    if row.0 != name {
        name.clone_into(&mut row.0);
    }
    row.1.add(kind, faults);
}

/// Adds records up.
pub struct Builder {
    head: Head,
    end: Option<End>,
    counted: Option<Counted>,
    space: Space,
    symbols: Symbols,
    pairs: Pairs,
    kinds: Weight,
    times: BTreeMap<Kind, Vec<f64>>,
    tables: Tables,
    avoid: Avoid,
    processes: HashMap<u32, (String, Weight)>,
    threads: HashMap<(u32, u32), (String, Weight)>,
    /// Faults by time since the beginning, in steps of this many nanoseconds; doubled when there are too many.
    line: (u64, Vec<u64>),
    allocators: HashMap<u32, Option<&'static str>>,
    /// The process that runs the program, if that cannot be covered.
    plain: Option<u32>,
    /// Whether a program has begun.
    has_begun: bool,
    samples: Vec<(Sampled, usize)>,
    /// One fault in this many is kept, and how many there were.
    kept: (u64, u64),
    lost: u64,
    major: u64,
    last: u64,
}

impl Builder {
    pub fn new(head: Head) -> Self {
        let began = (head.start_ns, head.began_ns());
        let plain = head.program.pid.filter(|_| head.program.not_covered.is_some());
        Self {
            head,
            end: None,
            counted: None,
            space: Space::default(),
            symbols: Symbols::new(began.0, began.1),
            pairs: Pairs::default(),
            kinds: Weight::default(),
            times: BTreeMap::new(),
            tables: Tables::new(),
            avoid: Avoid::default(),
            processes: HashMap::default(),
            threads: HashMap::default(),
            line: (1_000_000, Vec::new()),
            allocators: HashMap::default(),
            plain,
            has_begun: false,
            samples: Vec::new(),
            kept: (1, 0),
            lost: 0,
            major: 0,
            last: 0,
        }
    }

    pub fn end(&mut self, end: End) {
        self.end = Some(end);
    }

    pub fn served(&mut self, counted: Counted) {
        self.counted = Some(counted);
    }

    pub fn maps(&mut self, pid: u32, text: &str) {
        self.space.maps(pid, text);
    }

    pub fn threads(&mut self, pid: u32, text: &str) {
        for line in text.lines() {
            if let Some((tid, name)) = line.split_once(' ')
                && let Ok(tid) = tid.parse()
            {
                self.space.name(pid, tid, name, false);
            }
        }
    }

    pub fn names(&mut self, pid: u32, text: &str) {
        self.symbols.add_made(pid, text);
    }

    pub fn add(&mut self, record: Record) {
        self.last = self.last.max(record.time);
        let time = record.time;
        match record.told {
            Told::Sample(sample) => {
                match sample.what {
                    What::Begin | What::Minor => {}
                    What::Major => self.major = self.major.saturating_add(sample.period),
                }
                if let Some((begin, ended)) = self.pairs.add(sample) {
                    self.fault(begin, ended);
                }
            }
            Told::Mapping(mapping) => {
                // All areas are looked through for one: not after each of as many mappings.
                if place::may_be_allocator(&mapping.name) {
                    self.allocators.remove(&mapping.pid);
                }
                self.space.map(&mapping, time);
            }
            Told::Name { pid, tid, name, exec } => {
                self.allocators.remove(&pid);
                if exec {
                    let is_first = self.plain.is_none() && self.head.program.pid.is_none() && !self.has_begun;
                    let is_plain = is_first && self.head.program.not_covered.is_some();
                    self.plain = if is_plain { Some(pid) } else { self.plain.filter(|plain| *plain != pid) };
                    self.has_begun = true;
                }
                self.space.name(pid, tid, &name, exec);
            }
            Told::Fork { pid, tid, parent, parent_tid } => {
                // A child has what its parent has mapped, a thread the same.
                if pid != parent {
                    match self.allocators.get(&parent).copied() {
                        Some(allocator) => self.allocators.insert(pid, allocator),
                        None => self.allocators.remove(&pid),
                    };
                }
                self.space.fork((pid, tid), (parent, parent_tid));
            }
            Told::Exit { pid, tid } => {
                if let Some(begin) = self.pairs.end(tid) {
                    self.fault(begin, None);
                }
                self.space.exit(pid, tid);
            }
            Told::Lost(records) => self.lost = self.lost.saturating_add(records),
            Told::Other => {}
        }
    }

    /// A fault of which all is known.
    fn fault(&mut self, begin: Sample, ended: Option<Ended>) {
        let (pid, tid, time, faults) = (begin.pid, begin.tid, begin.time, begin.period);
        self.space.process(pid);
        let process = self.space.known(pid);
        let area = process.area(begin.address);
        let class = Class::of(area.map(Rc::as_ref));
        let kind = place::kind(class, &begin, ended);
        self.kinds.add(kind, faults);
        if let Some(ended) = ended {
            let times = self.times.entry(kind).or_default();
            if times.len() < MOST_TIMES {
                times.push(ended.ns as f64);
            }
        }
        let allocators = &mut self.allocators;
        let mut allocator = || *allocators.entry(pid).or_insert_with(|| place::allocator(process));
        // One without an allocator that can be seen has its own C library, or none. What is known of the program itself
        // holds until it runs another one.
        let is_plain = self.plain == Some(pid) || allocator().is_none();
        self.avoid.add(&begin, kind, class, area.map(Rc::as_ref), !is_plain);
        self.tables.area((pid, class, kind), area, faults, allocator);
        add(&mut self.processes, pid, &process.name, "[other processes]", (kind, faults));
        add(&mut self.threads, (pid, tid), self.space.thread(pid, tid), "[other threads]", (kind, faults));
        let address = begin.address;
        let function = self.tables.calls(begin, kind, process, &mut self.symbols);
        let took_ns = ended.map(|ended| ended.ns);
        let time_ns = time.saturating_sub(self.head.start_ns);
        self.keep(
            Sampled { time_ns, took_ns, pid, tid, kind, address, period: faults, function: "".into() },
            function,
        );
        self.step(time, faults);
    }

    /// Keeps a fault, if its turn is now; where there are too many, every other one goes.
    fn keep(&mut self, sample: Sampled, function: usize) {
        let (stride, next) = &mut self.kept;
        *next += 1;
        if !next.is_multiple_of(*stride) {
            return;
        }
        if self.samples.len() == MOST_KEPT {
            let mut is_kept = false;
            self.samples.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
            *stride *= 2;
        }
        self.samples.push((sample, function));
    }

    fn step(&mut self, time: u64, faults: u64) {
        let since = time.saturating_sub(self.head.start_ns);
        let (step, line) = &mut self.line;
        while since / *step >= STEPS as u64 {
            *step = step.saturating_mul(2);
            *line = line.chunks(2).map(|two| two.iter().fold(0, |sum: u64, n| sum.saturating_add(*n))).collect();
        }
        let at = (since / *step) as usize;
        if line.len() <= at {
            line.resize(at + 1, 0);
        }
        line[at] = line[at].saturating_add(faults);
    }

    /// The summary; `wrong` is what was wrong with the file.
    pub fn finish(mut self, wrong: Option<String>) -> Summary {
        let pairs = std::mem::take(&mut self.pairs);
        let failed = pairs.failed();
        for begin in pairs.rest() {
            self.fault(begin, None);
        }
        let faults = self.counted(failed);
        let not_waited_for = self.not_waited_for(&faults);
        let (time, costs) = self.time(&faults);
        let scale = Scale { faults: faults.exceptions, sampled: self.kinds.faults(), costs };
        let kinds = self.kinds.by_kind().map(|(kind, _)| ByKind {
            kind,
            part: scale.part(&self.kinds.only(kind)),
            per_fault_ns: scale.costs.as_ref().and_then(|costs| costs.get(&kind).copied()),
        });
        let mut kinds: Vec<_> = kinds.collect();
        kinds.sort_by(|a, b| b.part.faults.cmp(&a.part.faults).then(a.kind.cmp(&b.kind)));
        let (processes, processes_left_out) = rows(
            self.processes,
            MOST_ROWS,
            |of| &of.1,
            u32::cmp,
            |pid, (name, weight)| ByProcess { pid, name, part: scale.part(&weight) },
        );
        let (threads, threads_left_out) = rows(
            self.threads,
            MOST_ROWS,
            |of| &of.1,
            |a, b| a.cmp(b),
            |(pid, tid), (name, weight)| ByThread { pid, tid, name, part: scale.part(&weight) },
        );
        let has_python = self.symbols.has_python();
        let Finished { mappings, functions, stacks, named, left_out, stacks_left_out } =
            self.tables.finish(&scale, &mut self.symbols);
        let (step, line) = self.line;
        let timeline = Timeline {
            step_s: step as f64 / 1e9,
            faults: line.into_iter().map(|faults| scale.number(faults)).collect(),
        };
        let end = self.end.clone().unwrap_or_default();
        let wall = if self.end.is_some() { end.wall_ns } else { self.last.saturating_sub(self.head.start_ns) };
        let recording = Recording {
            program: self.head.program.clone(),
            status: end.status.clone(),
            unix_s: self.head.unix_s,
            wall_s: wall as f64 / 1e9,
            cpu_s: end.usage.map(|usage| usage.user_s + usage.system_s),
            peak_bytes: end.usage.map(|usage| usage.peak),
            processes: self.space.started,
            threads: self.space.threads_started,
            period: self.head.period,
            samples: self.kinds.samples(),
            lost: self.lost.saturating_add(end.dropped),
            complete: self.end.is_some() && wrong.is_none(),
            machine: self.head.machine.clone(),
        };
        let with_name = |(sample, function): (Sampled, usize)| match named.get(function) {
            Some(function) => Sampled { function: Rc::clone(function), ..sample },
            None => sample,
        };
        let known = self.counted.as_ref().filter(|counted| counted.version == COUNTED_VERSION);
        let mut summary = Summary {
            version: VERSION,
            recording,
            faults,
            time,
            kinds,
            mappings,
            processes,
            threads,
            functions,
            left_out: LeftOut {
                mappings: left_out.0,
                processes: processes_left_out,
                threads: threads_left_out,
                functions: left_out.1,
                stacks: stacks_left_out + (stacks.len() - bounded(&stacks).0.len()) as u64,
            },
            stacks,
            timeline,
            avoidable: self.avoid.finish(&scale, &self.head),
            served: known.map(Served::new),
            samples: self.samples.into_iter().map(with_name).collect(),
            samples_one_of: self.kept.0,
            ..Summary::default()
        };
        summary.notes = super::notes::notes(&summary, &self.head, &end, wrong);
        summary.notes.extend(self.counted.iter().flat_map(super::notes::of_counters));
        // What is known of processes without records of their ends is not known where records were dropped.
        let is_over = end.usage.is_some() || self.head.program.pid.is_some_and(|pid| self.space.has_ended(pid));
        let running = if is_over && summary.recording.lost == 0 { self.space.running() } else { 0 };
        summary.notes.extend(super::notes::of_processes(&summary, self.space.unseen, running));
        if self.head.python && !has_python {
            summary.notes.push(NO_PYTHON.into());
        }
        if not_waited_for > 0 && summary.time.of_cpu.is_none() {
            summary.notes.push(
                "the program did not wait for all of its processes: its processor time is without theirs".into(),
            );
        }
        summary.advice = advice::advice(&summary, self.head.system_calls);
        summary
    }

    /// How many faults there were; `failed` of them, as a part, ended by a signal.
    fn counted(&self, failed: f64) -> Faults {
        let Some(end) = &self.end else {
            let exceptions = self.kinds.faults().max(self.major);
            let source = if exceptions == 0 { Origin::None } else { Origin::Samples };
            let (major, minor) = (self.major, exceptions - self.major);
            return Faults { total: exceptions, minor, major, exceptions, in_calls: 0, not_recorded: 0, source };
        };
        let usage = end.usage.unwrap_or_default();
        let waited = usage.minor.saturating_add(usage.major);
        // The events of beginnings have all processes, and faults that brought no page.
        let failed = (end.begun as f64 * failed).ceil() as u64;
        let ended = end.minor.saturating_add(end.major);
        let exceptions = match end.begun.saturating_sub(ended) {
            // All ends were recorded.
            0 => ended,
            // As many have failed as the program's account lacks.
            _ if end.usage.is_some() && end.begun.saturating_sub(waited) <= failed.saturating_mul(2) => {
                end.begun.min(waited)
            }
            _ => end.begun - failed.min(end.begun),
        };
        // The account has pages that calls brought in, the events have processes that nothing waited for.
        let total = waited.max(exceptions);
        let major = end.major.max(usage.major).min(total);
        let minor = total - major;
        let source = match (self.head.sources.is_empty(), end.usage) {
            (false, _) => Origin::Counted,
            (true, Some(_)) => Origin::Getrusage,
            (true, None) => Origin::None,
        };
        let rest = total.saturating_sub(exceptions);
        let (in_calls, not_recorded) = if self.space.unseen == 0 { (rest, 0) } else { (0, rest) };
        Faults { total, minor, major, exceptions, in_calls, not_recorded, source }
    }

    /// Faults of processes that the program did not wait for.
    fn not_waited_for(&self, faults: &Faults) -> u64 {
        let usage = self.end.as_ref().and_then(|end| end.usage);
        usage.map_or(0, |usage| faults.exceptions.saturating_sub(usage.minor.saturating_add(usage.major)))
    }

    /// What they cost, and what a fault of each kind does.
    fn time(&mut self, faults: &Faults) -> (Time, Option<BTreeMap<Kind, f64>>) {
        let cost = self.head.cost.unwrap_or_default();
        // A record costs time itself, between the two of a fault.
        let extra = if cost.between_records_ns > 0.0 { cost.fault_ns - cost.between_records_ns } else { 0.0 };
        let least = cost.fault_ns.max(100.0) / 10.0;
        let mut all: Vec<_> = self.times.values().flatten().copied().collect();
        let timed = all.len();
        let machine = (cost.fault_ns > 0.0).then_some(cost.fault_ns);
        let timed_huge = self.times.get(&Kind::Huge).map_or(0, Vec::len);
        let is_huge_alone = timed_huge > 0 && self.kinds.by_kind().all(|(kind, _)| kind == Kind::Huge);
        let (source, mean) = match machine {
            _ if timed >= ENOUGH || is_huge_alone => {
                (TimeSource::Timed, Some((usual(&mut all) + extra).max(least)))
            }
            Some(ns) => (TimeSource::Machine, Some(ns)),
            None => (TimeSource::None, None),
        };
        // A fault is known to be a huge page only by its end, and then it takes far longer than any other.
        let is_enough = |kind, timed| timed >= ENOUGH || (kind == Kind::Huge && timed > 0);
        let (timed, timed_huge) = (timed as u64, timed_huge as u64);
        let mut result = Time { source, timed, timed_huge, machine_fault_ns: machine, ..Time::default() };
        let Some(mean) = mean.filter(|_| self.kinds.faults() > 0) else { return (result, None) };
        let costs: BTreeMap<_, _> = self
            .kinds
            .by_kind()
            .map(|(kind, _)| {
                let times = self.times.get_mut(&kind).filter(|times| is_enough(kind, times.len()));
                (kind, times.map_or(mean, |times| (usual(times) + extra).max(least)))
            })
            .collect();
        let cost = |(kind, faults): (Kind, u64)| costs[&kind] * faults as f64;
        let sum: f64 = self.kinds.by_kind().map(cost).sum();
        // A thread that waits for input uses no processor.
        let running: f64 = self.kinds.by_kind().filter(|(kind, _)| *kind != Kind::Input).map(cost).sum();
        let per_fault = sum / self.kinds.faults() as f64;
        // Faults in system calls cost as much where they are not seen.
        let number = if self.head.system_calls { faults.exceptions } else { faults.total };
        let total = per_fault * number as f64 / 1e9;
        result.per_fault_ns = Some(per_fault);
        result.total_s = Some(total);
        let end = self.end.as_ref();
        let wall = end.map(|end| end.wall_ns as f64 / 1e9).filter(|wall| *wall > 0.0);
        // Both are estimates, so that their quotient may be more than there can be.
        let threads = self.space.threads_started.max(1) as f64;
        result.of_wall = wall.map(|wall| (total / wall).min(threads));
        let cpu = end.and_then(|end| end.usage).map(|usage| usage.user_s + usage.system_s);
        // The time of processes that the program did not wait for is not in its account; their faults are.
        let is_whole = self.not_waited_for(faults) * MANY <= faults.total;
        result.of_cpu = cpu.filter(|cpu| *cpu > 0.0 && is_whole).map(|cpu| {
            let used = if sum > 0.0 { total * (running / sum) } else { 0.0 };
            (used / cpu).min(1.0)
        });
        (result, Some(costs))
    }
}
