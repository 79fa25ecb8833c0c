//! A day of a build machine, in small: bursts of many programs that live shortly, with rests between them. What the
//! scrubber gives such programs, and what it costs: processor time stands for energy, which a virtual machine does not
//! measure.

use super::runs::{Runs, Way};
use crate::aims::Aims;
use crate::measure::Sample;
use crate::plan::Launch;
use crate::programs::job;
use crate::schedule;
use crate::table;
use crate::turns::{Same, Turns, ratio};
use faultless_measure::pages::Counters;
use faultless_measure::paired::median;
use faultless_page::stats::Counter;

/// Bursts, and the rest between two, in seconds.
const BURSTS: u64 = 4;
const REST: f64 = 1.5;
/// Of a burst: C files that are compiled, starts of Python, and of programs that do nothing.
const FILES: u64 = 8;
const STARTS: u64 = 6;
const NOTHINGS: u64 = 60;
const ROUNDS: usize = 3;

/// A day, and what was counted in it.
type Day = (Sample, Counters);

/// The ways take turns.
pub fn table(runs: &mut Runs, aims: &mut Aims) {
    let dir = runs.context.dir.join("day");
    let objects = match job::write(&dir, runs.context.count(FILES)) {
        Ok(objects) => objects,
        Err(missing) => return println!("**A day of a build machine**: {missing}\n"),
    };
    let mut made = Same::default();
    let (bursts, rest) = (runs.context.count(BURSTS), runs.context.seconds(REST));
    let launch = Launch::new("sh", ["-c", &script(runs, &dir.display().to_string(), bursts, rest)]);
    let ways = [Way::Plain, Way::Faultless, Way::Hot].into_iter().filter(|way| runs.has(*way)).collect::<Vec<_>>();
    let turns = Turns { rounds: if runs.context.quick { 1 } else { ROUNDS }, deadline: runs.deadline() };
    let rounds = turns.run(
        &ways,
        |way| way.name().into(),
        |way| {
            let day = runs.sample(&launch, way)?;
            made.check(schedule::checksum(&objects)?)?;
            if way == Way::Faultless {
                runs.note_scrubbing("day", day.1.clone());
            }
            Ok(day)
        },
    );
    println!(
        "**A day of a build machine** ({bursts} bursts with {rest} s of rest: make of {} C files, {STARTS} starts of \
         Python, {NOTHINGS} programs that do nothing; medians of {} days)\n",
        runs.context.count(FILES),
        rounds.values().map(Vec::len).max().unwrap_or(0)
    );
    let mut table = table::new_table(&[
        "",
        "bursts",
        "processor time",
        "context switches",
        "processor time of the scrubber",
        "zeroed",
        "never used",
        "requests it served",
    ]);
    for (way, days) in &rounds {
        let middle = |figure: &dyn Fn(&Day) -> f64| {
            median(&days.iter().map(figure).collect::<Vec<_>>()).unwrap_or_default()
        };
        let count = |counter| middle(&|day| day.1.get(counter) as f64);
        let scrubs = *way == Way::Faultless;
        let of_scrubber = |text: String| if scrubs { text } else { table::NOTHING.into() };
        table.add_row([
            way.name().into(),
            table::seconds(middle(&|day| busy(day, bursts, rest))),
            table::seconds(middle(&processor)),
            format!("{:.0}", middle(&|day| (day.0.used.switches + day.0.used.sleeps) as f64)),
            of_scrubber(table::seconds(count(Counter::ScrubNs) / 1e9)),
            of_scrubber(table::bytes(count(Counter::BytesScrubbed))),
            of_scrubber(table::bytes(count(Counter::BytesZeroedUnused))),
            of_scrubber(format!("{:.0}", count(Counter::ZeroHits))),
        ]);
    }
    println!("{table}\n");
    let beside = ratio(&rounds, &Way::Faultless, &Way::Hot, processor);
    aims.at_most("processor time of a day of a build machine, beside scrub=0", 1.01, beside);
}

/// Seconds in which something ran.
fn busy(day: &Day, bursts: u64, rest: f64) -> f64 {
    day.0.wall - (bursts - 1) as f64 * rest
}

/// Seconds of processors, of the scrubber too.
fn processor(day: &Day) -> f64 {
    day.0.used.user + day.0.used.system
}

fn script(runs: &Runs, dir: &str, bursts: u64, rest: f64) -> String {
    let (jobs, python) = (runs.context.cpus, &runs.context.python);
    let (starts, nothings) = (runs.context.count(STARTS), runs.context.count(NOTHINGS));
    format!(
        "set -e\ncd '{dir}'\nburst=0\nwhile :; do\nmake -s clean\nmake -s -j{jobs}\n\
         i=0; while [ $i -lt {starts} ]; do '{python}' -c 'import json'; i=$((i+1)); done\n\
         i=0; while [ $i -lt {nothings} ]; do /bin/true; i=$((i+1)); done\n\
         burst=$((burst+1)); [ $burst -lt {bursts} ] || break\nsleep {rest}\ndone\n"
    )
}
