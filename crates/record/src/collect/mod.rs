//! Recording: events are opened, a thread takes what the kernel writes, and all of it goes to a file.
//!
//! [`Recorder`] holds the events, from before the program begins. [`Collecting`] is the thread; it ends with
//! [`Collecting::finish`]. Memory is bounded by the rings, the file by [`Options::limit`]. Dropped events are
//! counted: by the kernel where a ring is full, here where the file is.

mod cost;
mod counted;
mod names;
mod pace;

use std::borrow::Cow;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufWriter, PipeReader, PipeWriter};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use crate::file::{CHUNK_HEAD, Cost, Counted, End, Head, Machine, Writer};
use crate::sys::event::{Event, Sampling, What, Whose};
use crate::sys::ring::Ring;
use crate::sys::{self, event};
use crate::wire::{self, Source};
pub use counted::counted;
pub use names::Running;
use pace::Ends;

/// How it is recorded.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// One fault in this many has a record.
    pub period: u64,
    /// Bytes of the file at most.
    pub limit: u64,
    /// Whether records hold what an interpreter's functions are found in: a part of the stack's memory.
    pub python: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { period: 61, limit: 1 << 30, python: false }
    }
}

/// Bytes of a ring: what any user may have for each CPU (`perf_event_mlock_kb`), and what is tried after that.
const RINGS: [usize; 4] = [512 << 10, 128 << 10, 32 << 10, 8 << 10];
/// Pipes, of two descriptors each, for which there is room beside the events: to start a program, and to write.
const FREE_PIPES: usize = 4;
/// How long nothing is done at least after the rings were empty.
const REST: Duration = Duration::from_millis(10);

/// The events of one CPU. The first one has the ring.
struct Cpu {
    number: usize,
    ring: Ring,
    events: Vec<(What, Event)>,
    /// Those among them of beginnings.
    begins: HashSet<u64>,
    /// About how many faults it had in this cycle.
    faults: u64,
}

/// The kernel gives no memory for a ring.
#[derive(Debug)]
struct NoRing(io::Error);

impl std::fmt::Display for NoRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(error) = self;
        write!(
            f,
            "no memory for records ({error}): other recordings hold what kernel.perf_event_mlock_kb and the limit of \
             locked memory (ulimit -l) allow; end them, raise one of both, or run as root"
        )
    }
}

impl std::error::Error for NoRing {}

/// Why faults cannot be sampled.
#[derive(Debug)]
pub struct Refused(pub io::Error);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let setting = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
        let level = setting.ok().and_then(|text| text.trim().parse::<i32>().ok());
        match (self.0.raw_os_error(), level) {
            (Some(libc::EACCES | libc::EPERM), Some(level)) if level > 2 => write!(
                f,
                "kernel.perf_event_paranoid is {level}: `sysctl kernel.perf_event_paranoid=2` as root, or CAP_PERFMON"
            ),
            (Some(libc::EACCES | libc::EPERM), _) => f.write_str(
                "perf_event_open is not permitted: a filter of system calls (container) forbids it, or the process \
                 belongs to another user; allow it there, or run as root",
            ),
            (Some(libc::ENOSYS), _) => f.write_str(
                "there is no perf_event_open: the kernel lacks CONFIG_PERF_EVENTS, or a filter of system calls \
                 (container) hides it",
            ),
            (Some(libc::EMFILE), _) => {
                f.write_str("too many open files: raise the hard limit (ulimit -Hn), or record fewer threads")
            }
            (None, _) => write!(f, "{}", self.0),
            _ => write!(f, "perf_event_open: {}", self.0),
        }
    }
}

/// Events that are open.
pub struct Recorder {
    cpus: Vec<Cpu>,
    options: Options,
    sampling: Sampling,
    /// From when on files are written by what is recorded: from before it begins.
    since: SystemTime,
}

/// The text of a file of the kernel's; empty where there is none. An error: this process has no descriptor for it.
fn kernel_text(path: &str) -> io::Result<String> {
    match std::fs::read_to_string(path) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => Err(error),
        text => Ok(text.unwrap_or_default()),
    }
}

/// CPUs that are online: from the kernel's list of ranges, or where there is no /sys from its description of each.
/// None: they are not known.
fn online() -> io::Result<Vec<usize>> {
    let text = kernel_text("/sys/devices/system/cpu/online")?;
    let cpus: Vec<_> = text.trim().split(',').filter_map(range).flatten().collect();
    if cpus.is_empty() { Ok(described(&kernel_text("/proc/cpuinfo")?)) } else { Ok(cpus) }
}

/// CPUs in the text of `/proc/cpuinfo`.
fn described(text: &str) -> Vec<usize> {
    let number = |line: &str| line.strip_prefix("processor")?.trim_start().strip_prefix(':')?.trim().parse().ok();
    text.lines().filter_map(number).filter(|cpu| *cpu < MOST_CPUS).collect()
}

/// The most CPUs that a kernel can have.
const MOST_CPUS: usize = 8192;

fn range(text: &str) -> Option<std::ops::Range<usize>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
    (last < MOST_CPUS).then_some(first..last + 1)
}

impl Recorder {
    /// For the program that this thread starts next, and all that it starts.
    pub fn children(options: Options) -> Result<Self, Refused> {
        Self::open(&[Whose::Children], options)
    }

    /// For threads that run already, and what they start.
    pub fn threads(tids: &[u32], options: Options) -> Result<Self, Refused> {
        let whose: Vec<_> = tids.iter().map(|tid| Whose::Thread(*tid as i32)).collect();
        Self::open(&whose, options)
    }

    /// With faults in system calls if that is allowed.
    fn open(whose: &[Whose], options: Options) -> Result<Self, Refused> {
        let Options { period, python, .. } = options;
        let with =
            |kernel| Self::open_with(whose, options, Sampling { period, kernel, stacks: true, memory: python });
        // Each CPU takes three files for each of `whose`.
        let opened = sys::with_more_files(|| {
            // The lowest descriptors stay free for what is opened afterwards, under the limit as it was.
            let _free: Vec<_> = (0..FREE_PIPES).map_while(|_| io::pipe().ok()).collect();
            match with(true) {
                Err(error) if matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM)) => with(false),
                result => result,
            }
        });
        opened.map_err(Refused)
    }

    fn open_with(whose: &[Whose], options: Options, sampling: Sampling) -> io::Result<Self> {
        let mut cpus = Vec::new();
        let online = online()?;
        if online.is_empty() {
            // The faults of some would be missing, unseen.
            return Err(io::Error::other("which processors there are is not known: /sys and /proc do not say it"));
        }
        for number in online {
            match Cpu::open(number, whose, sampling) {
                Ok(cpu) => cpus.push(cpu),
                // It went offline.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) && number > 0 => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self { cpus, options, sampling, since: sys::file_time() })
    }

    /// Fills in what the events say of a recording.
    pub fn describe(&self, head: &mut Head) {
        head.period = self.options.period;
        head.system_calls = self.sampling.kernel;
        head.python = self.options.python;
        let source = |(what, event): &(What, Event)| Source {
            id: event.id,
            what: *what,
            period: self.sampling.of(*what),
            stacks: *what == What::Begin && self.sampling.stacks,
            memory: self.sampling.memory_of(*what) > 0,
        };
        head.sources = self.events().map(source).collect();
    }

    /// Switches events of threads on.
    pub fn enable(&self) -> io::Result<()> {
        self.events().try_for_each(|(_, event)| event.enable())
    }

    fn events(&self) -> impl Iterator<Item = &(What, Event)> {
        self.cpus.iter().flat_map(|cpu| &cpu.events)
    }

    /// Has the ends of faults recorded, or not.
    fn ends(&self, switch: impl Fn(&Event) -> io::Result<()>) -> io::Result<()> {
        self.events().filter(|(what, _)| *what == What::Minor).try_for_each(|(_, event)| switch(event))
    }

    /// Faults of the CPU that had the most of them since this was asked last.
    fn most_faults(&mut self) -> u64 {
        self.cpus.iter_mut().map(|cpu| std::mem::take(&mut cpu.faults)).max().unwrap_or(0)
    }

    /// Switches them off.
    pub fn disable(&self) -> io::Result<()> {
        self.events().try_for_each(|(_, event)| event.disable())
    }

    /// Begins to write, in a thread: first what `begin` writes. So this thread waits for no reader of a pipe. `running`:
    /// the process, if it runs already.
    pub fn collect(
        self,
        mut writer: Writer<BufWriter<File>>,
        running: Option<Running>,
        begin: impl FnOnce(&mut Writer<BufWriter<File>>) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Collecting> {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        // Its end wakes the thread.
        let (end, wake) = io::pipe()?;
        let work = move || {
            let mut recorder = self;
            let mut dropped = 0;
            let run = begin(&mut writer).and_then(|()| recorder.run(&mut writer, &told, &end, &mut dropped));
            let failed = run.err();
            Finished { recorder, writer, dropped, failed }
        };
        let thread = thread::Builder::new().name("record".into()).spawn(work)?;
        Ok(Collecting { stop, wake, thread, running })
    }

    fn run(
        &mut self,
        writer: &mut Writer<BufWriter<File>>,
        stop: &AtomicBool,
        end: &PipeReader,
        dropped: &mut u64,
    ) -> io::Result<()> {
        let mut files: Vec<_> = self.cpus.iter().map(|cpu| cpu.events[0].1.fd()).collect();
        files.push(end.as_raw_fd());
        let start = Instant::now();
        // A cycle: when it began, its faults so far, and what it does with ends.
        let (mut since, mut faults, mut ends) = (start, 0u64, Ends::All);
        // Pairs with the store in `finish`: all that was written to the rings before it is taken.
        while !stop.load(Ordering::Acquire) {
            let cycle = pace::cycle(start.elapsed());
            sys::wait(&files, cycle.saturating_sub(since.elapsed()));
            let taken = self.take(writer, dropped)?;
            let time = since.elapsed();
            faults = faults.saturating_add(self.most_faults());
            let is_too_fast = ends == Ends::All && pace::is_too_fast(faults, time);
            if time >= cycle || is_too_fast {
                let next = pace::next(faults, time, cycle);
                // Where the kernel refuses to switch, faults are timed as far as they can be without.
                match next {
                    Ends::All if ends == Ends::All => {}
                    Ends::All => drop(self.ends(Event::enable)),
                    // The cycle before had them all, and too many.
                    Ends::Window(_) if is_too_fast => drop(self.ends(Event::disable)),
                    Ends::Window(length) => {
                        drop(self.ends(Event::enable));
                        sys::wait(&[end.as_raw_fd()], length);
                        drop(self.ends(Event::disable));
                    }
                }
                (since, faults, ends) = (Instant::now(), 0, next);
            } else if taken == 0 && !stop.load(Ordering::Acquire) {
                // Events of a thread that has ended are always ready, and empty.
                thread::sleep(REST);
            }
        }
        self.take(writer, dropped)?;
        // All is younger than that now.
        writer.round()
    }

    /// Writes what the rings hold: that many bytes.
    fn take(&mut self, writer: &mut Writer<BufWriter<File>>, dropped: &mut u64) -> io::Result<usize> {
        let (mut taken, period, before) = (0, self.options.period, writer.written());
        for cpu in &mut self.cpus {
            let Cpu { number, ring, begins, faults, .. } = cpu;
            // With the round that follows.
            let room = self.options.limit.saturating_sub(writer.written().saturating_add(2 * CHUNK_HEAD));
            let (bytes, result) = ring.read(|one, two| {
                if one.is_empty() {
                    return Ok(());
                }
                let both = if two.is_empty() { Cow::Borrowed(one) } else { Cow::Owned([one, two].concat()) };
                let (of_begins, of_ends) = wire::faults(&both, begins);
                *faults += of_begins.saturating_mul(period).max(of_ends);
                if both.len() as u64 <= room {
                    return writer.records(*number, one, two);
                }
                *dropped += wire::count(&both);
                Ok(())
            });
            result?;
            taken += bytes;
        }
        if writer.written() > before {
            writer.round()?;
        }
        Ok(taken)
    }

    /// Fills in what was counted.
    fn count(&self, end: &mut End) -> io::Result<()> {
        for (what, event) in self.events() {
            let sum = match what {
                What::Begin => &mut end.begun,
                What::Minor => &mut end.minor,
                What::Major => &mut end.major,
            };
            *sum = sum.saturating_add(event.count()?);
        }
        Ok(())
    }
}

impl Cpu {
    fn open(number: usize, whose: &[Whose], sampling: Sampling) -> io::Result<Self> {
        let mut events: Vec<(What, Event)> = Vec::new();
        let mut ring = None;
        for whose in whose {
            for what in What::ALL {
                let event = match Event::open(what, *whose, number, sampling, RINGS[0] / 4) {
                    // The thread has ended.
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => continue,
                    event => event?,
                };
                match events.first() {
                    Some((_, first)) => event.write_to(first)?,
                    None => ring = Some(first_ring(&event)?),
                }
                events.push((what, event));
            }
        }
        let ring = ring.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
        let begins = events.iter().filter(|(what, _)| *what == What::Begin).map(|(_, event)| event.id).collect();
        Ok(Self { number, ring, events, begins, faults: 0 })
    }
}

/// The largest ring that is allowed.
fn first_ring(event: &event::Event) -> io::Result<Ring> {
    let mut error = io::Error::from_raw_os_error(libc::ENOMEM);
    for bytes in RINGS {
        match Ring::new(event, bytes) {
            Ok(ring) => return Ok(ring),
            Err(refused) => error = refused,
        }
    }
    Err(io::Error::other(NoRing(error)))
}

/// What the thread leaves behind.
struct Finished {
    recorder: Recorder,
    writer: Writer<BufWriter<File>>,
    dropped: u64,
    failed: Option<io::Error>,
}

/// A thread that takes records.
pub struct Collecting {
    stop: Arc<AtomicBool>,
    wake: PipeWriter,
    thread: JoinHandle<Finished>,
    running: Option<Running>,
}

impl Collecting {
    /// Whether nothing is recorded any more, because the file cannot be written.
    pub fn has_failed(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends it, and writes the end of the recording: `end` with what events counted, and what faultless did.
    pub fn finish(self, mut end: End, counted: Option<&Counted>) -> io::Result<End> {
        self.stop.store(true, Ordering::Release);
        drop(self.wake);
        let Ok(mut finished) = self.thread.join() else {
            return Err(io::Error::other("the recording thread failed"));
        };
        finished.recorder.count(&mut end)?;
        end.dropped = finished.dropped;
        let limit = finished.recorder.options.limit;
        end.failed = finished.failed.as_ref().map(ToString::to_string);
        let (found, too_large) = names::written_since(finished.recorder.since, self.running);
        end.names_too_large = too_large;
        for (pid, text) in found {
            // Without room for its names, functions of a process have their addresses.
            let bytes = CHUNK_HEAD + text.len() as u64;
            if finished.writer.written().saturating_add(bytes) <= limit {
                finished.writer.names(pid, &text)?;
            } else {
                end.names_left_out += 1;
            }
        }
        counted.map_or(Ok(()), |counted| finished.writer.counted(counted))?;
        finished.writer.end(&end)?;
        match finished.failed {
            Some(error) => Err(error),
            None => Ok(end),
        }
    }
}

/// What is known of the machine.
pub fn head() -> Head {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let huge = read("/sys/kernel/mm/transparent_hugepage/enabled");
    let chosen = huge.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(chosen, _)| chosen);
    let memory = read("/proc/meminfo");
    let memory = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let memory = memory.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    Head {
        machine: Machine {
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpus: online().map_or(0, |cpus| cpus.len()),
            huge_pages: chosen.unwrap_or("never").to_owned(),
        },
        memory: memory.unwrap_or(0).saturating_mul(1024),
        ..Head::default()
    }
}

/// What a fault costs here; nothing where it cannot be measured.
pub fn cost(options: Options) -> Option<Cost> {
    cost::measure(options).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read() {
        let all = |text: &str| text.split(',').filter_map(range).flatten().collect::<Vec<_>>();
        assert_eq!(all("0-2,5"), [0, 1, 2, 5]);
        assert!(all("0-99999999999,x,3-1").is_empty());
        let text =
            "processor\t: 0\nmodel name\t: processor : 7\n\nprocessor\t: 3\nprocessor: x\nprocessor : 99999\n";
        assert_eq!(described(text), [0, 3]);
        assert!(described("").is_empty());
        let by_proc = described(&std::fs::read_to_string("/proc/cpuinfo").unwrap());
        assert_eq!(by_proc, online().unwrap());
    }

    #[test]
    fn memory_that_is_refused_is_not_a_filter() {
        let refused = |error| Refused(error).to_string();
        let memory = refused(io::Error::other(NoRing(io::Error::from_raw_os_error(libc::EPERM))));
        assert!(memory.contains("perf_event_mlock_kb") && !memory.contains("filter"), "{memory}");
        assert!(!refused(io::Error::from_raw_os_error(libc::EPERM)).contains("mlock"));
    }
}
