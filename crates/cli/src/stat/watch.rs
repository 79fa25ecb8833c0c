//! Watching: what is counted from one look to the next, and when to look.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use faultless_page::stats::Counter;

use super::faults::Faults;
use super::json::Report;
use super::regions;
use super::select::Selection;
use super::show::{self, Intervals};
use super::target::Target;
use crate::output::Out;
use faultless_measure::figures::wrap_at;
use faultless_measure::pages::find::Covered;
use faultless_measure::pages::{Counters, Folded, Regions};

/// How often is looked for processes that come up and end.
pub const LOOK: Duration = Duration::from_millis(50);

/// What intervals show unless they are asked for something else: what fits 80 columns.
const MAIN: &[Counter] =
    &[Counter::MmapServed, Counter::MallocServed, Counter::MmapBytes, Counter::MallocBytes, Counter::BytesZeroed];

/// How it is shown.
pub struct Style {
    /// Which counters.
    pub selection: Selection,
    /// As JSON.
    pub json: bool,
    /// A report after each of these.
    pub interval: Option<Duration>,
}

/// A target that is watched.
pub struct Watch {
    target: Target,
    style: Style,
    out: Out,
    intervals: Intervals,
    start: Instant,
    /// The last report of an interval, and how many there were.
    last: Duration,
    reports: u64,
    /// What was counted before the watch began, and at the last report.
    base: Moment,
    reported: Moment,
    faults: Faults,
}

/// What had been counted at one moment.
struct Moment {
    /// By each process that had a page, by its number and since when it counts.
    each: HashMap<(u32, u64), Counters>,
    /// By all, also by those without a page.
    all: Counters,
}

impl Moment {
    fn new() -> Self {
        Self { each: HashMap::new(), all: Counters::zero() }
    }

    /// The same moment, if this is what is read now.
    fn of(now: &[Counters], folded: &Folded) -> Self {
        let each = now.iter().map(|page| ((page.pid, page.start_ns), page.clone())).collect();
        Self { each, all: folded.with(now) }
    }

    /// What each process has counted since; all of it where it is not known here.
    fn each_since(&self, now: &[Counters]) -> Vec<Counters> {
        let old = |page: &Counters| self.each.get(&(page.pid, page.start_ns));
        now.iter().map(|page| old(page).map_or_else(|| page.clone(), |old| page.since(old))).collect()
    }

    /// What all have counted since.
    fn all_since(&self, now: &[Counters], folded: &Folded) -> Counters {
        folded.with(now).since(&self.all)
    }
}

impl Watch {
    /// Watches `target` from now on.
    pub fn new(mut target: Target, style: Style, out: Out) -> Self {
        let now = target.read();
        let [base, reported] = [(); 2].map(|()| Moment::of(&now, target.folded()));
        let shown = if style.selection.is_named { style.selection.clone() } else { Selection::of(MAIN) };
        let intervals = Intervals::new(shown, out.columns());
        let (start, last) = (Instant::now(), Duration::ZERO);
        let mut faults = Faults::default();
        faults.look(target.processes());
        faults.begin();
        Self { target, style, out, intervals, start, last, reports: 0, base, reported, faults }
    }

    /// Counts from the start of each process, not from now.
    pub fn all_of_it(mut self) -> Self {
        (self.base, self.reported) = (Moment::new(), Moment::new());
        self.faults = Faults::default();
        self
    }

    /// All that is watched was started by this process.
    pub fn started(mut self, program: i32) -> Self {
        self.faults = Faults::below(program as u32);
        self
    }

    fn read(&mut self) -> Vec<Counters> {
        let now = self.target.read();
        self.faults.look(self.target.processes());
        now
    }

    /// The kernel's page faults, if they are shown.
    fn shown(&self, faults: u64) -> Option<u64> {
        self.style.selection.has_faults.then_some(faults)
    }

    /// Looks, and reports if an interval is over.
    pub fn look(&mut self) -> Result<()> {
        let now = self.read();
        if self.style.interval.is_some_and(|interval| self.start.elapsed() >= self.last + interval) {
            self.report(&now)?;
        }
        Ok(())
    }

    /// How long until the next look.
    pub fn pause(&self) -> Duration {
        let next = self.style.interval.map(|interval| (self.last + interval).saturating_sub(self.start.elapsed()));
        next.map_or(LOOK, |next| next.min(LOOK))
    }

    fn report(&mut self, now: &[Counters]) -> Result<()> {
        let time = self.start.elapsed();
        let seconds = (time.as_secs_f64(), (time - self.last).as_secs_f64());
        let counted = self.reported.each_since(now);
        let all = self.reported.all_since(now, self.target.folded());
        let faults = self.faults.report();
        let faults = self.shown(faults);
        let text = if self.style.json {
            self.json("interval", seconds, &counted, &all).with_faults(faults).line()
        } else {
            self.intervals.line(&all, faults, seconds.0, seconds.1)
                + &self.regions(counted.iter().map(|counted| counted.regions.active()))
        };
        self.reported = Moment::of(now, self.target.folded());
        // On the beat, also when a look came late.
        let interval = self.style.interval.unwrap_or(LOOK);
        let beats = (time - self.last).as_nanos() / interval.as_nanos().max(1);
        self.last += interval * beats.max(1).min(u32::MAX as u128) as u32;
        self.reports += 1;
        self.out.write(&text)
    }

    /// How many intervals were reported.
    pub fn reports(&self) -> u64 {
        self.reports
    }

    /// Whether there is nothing left to be watched.
    pub fn is_over(&self) -> bool {
        self.target.is_over()
    }

    /// Reports everything since the start of the oldest process.
    pub fn so_far(mut self) -> Result<()> {
        let now = self.read();
        let over = self.target.processes().iter().map(Covered::age).fold(0.0, f64::max);
        let faults = self.faults.total();
        self.total(&now, over, faults)
    }

    /// Reports the totals; `faults` are the kernel's page faults of all processes, where that is known.
    pub fn finish(mut self, faults: Option<u64>) -> Result<()> {
        let now = self.read();
        faults.into_iter().for_each(|all| self.faults.settle(all));
        let more = self.reported.all_since(&now, self.target.folded());
        let has_counted = || more.values().iter().any(|n| *n > 0);
        let has_faults = self.shown(1).is_some() && self.faults.has_more();
        if self.style.interval.is_some() && (has_faults || has_counted()) {
            // What the last, shorter interval counted, and faults that no look met: the lines add up to the totals.
            self.report(&now)?;
        }
        let over = self.start.elapsed().as_secs_f64();
        let faults = self.faults.total();
        self.total(&now, over, faults)
    }

    fn json(&self, kind: &'static str, times: (f64, f64), counted: &[Counters], all: &Counters) -> Report {
        let processes = (self.target.processes(), counted);
        Report::new(kind, times, &self.style.selection, processes, all).with_folded(self.target.folded())
    }

    /// The regions of all processes, if there are any.
    fn regions(&self, all: impl Iterator<Item = Regions>) -> String {
        if !self.style.selection.wants_regions() {
            return String::new();
        }
        let have = self.target.processes().iter().zip(all).filter(|(_, regions)| !regions.is_empty());
        let one = |(covered, regions): (&Covered, Regions)| {
            let title = format!("regions of {} ({}):\n", covered.pid, covered.command());
            title + &regions::text(&regions, self.out.columns())
        };
        have.map(one).collect()
    }

    /// Why processes run plain, if any does.
    fn plain(&self, all: &[Counters]) -> String {
        let of = self
            .target
            .processes()
            .iter()
            .zip(all)
            .filter_map(|(covered, counted)| Some((covered, counted.plain()?)));
        let one = |(covered, why): (&Covered, &str)| {
            let text = format!("process {} ({}) runs plain: {why}", covered.pid, covered.command());
            wrap_at(&text, "", self.out.columns()) + "\n"
        };
        of.map(one).collect()
    }

    fn total(&mut self, now: &[Counters], over: f64, faults: u64) -> Result<()> {
        let counted = self.base.each_since(now);
        let all = self.base.all_since(now, self.target.folded());
        let faults = self.shown(faults);
        let text = if self.style.json {
            self.json("total", (over, over), &counted, &all).with_faults(faults).line()
        } else {
            let title = format!("faultless: {}, {:.2} s", self.target.title(), over);
            wrap_at(&title, "", self.out.columns())
                + "\n"
                + &self.plain(&counted)
                + &show::faults(faults, over, self.out.columns())
                + &show::lines(&self.style.selection, &all, over, self.out.columns())
                + &self.regions(counted.iter().map(|counted| counted.regions.clone()))
        };
        self.out.write(&text)
    }
}
