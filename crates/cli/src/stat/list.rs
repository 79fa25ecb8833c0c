//! All covered processes with their main figures.

use std::time::{Duration, Instant};

use anyhow::Result;
use faultless_page::stats::{Counter, Unit};

use super::json::Report;
use super::show::{faults, lines, short};
use super::watch::Style;
use super::{Args, signals};
use crate::output::Out;
use crate::run::complain;
use faultless_measure::pages::Counters;
use faultless_measure::pages::find::{self, All, Covered, Missing};
use faultless_measure::pages::process::Stat;

/// Lists them, once or at each interval.
pub fn main(args: &Args, style: Style, mut out: Out) -> Result<()> {
    if !find::is_proc_there() {
        return Err(Missing::Unseen.into());
    }
    signals::hold();
    let start = Instant::now();
    for turn in 1.. {
        let All { found: mut processes, wrong, closed } = find::all();
        // What may be looked at is shown; that there is more, and nothing else, is an error.
        if processes.is_empty() && closed > 0 && args.interval.is_none() {
            return Err(Missing::Closed(closed).into());
        }
        let counters: Vec<_> = processes.iter_mut().map(|covered| covered.counters().clone()).collect();
        if style.json {
            let (both, sum) = ((&*processes, &*counters), Counters::sum(&counters));
            let mut report = Report::new("list", (0.0, 0.0), &style.selection, both, &sum).with_wrong(wrong);
            if style.selection.has_faults {
                let faults = |covered: &Covered| Stat::read(covered.pid).map(|stat| stat.faults);
                report = report.with_faults_of_each(&processes.iter().map(faults).collect::<Vec<_>>());
            }
            out.write(&report.line())?;
        } else {
            wrong.iter().for_each(|wrong| complain(wrong));
            out.write(&text(&processes, &counters, &style, out.columns()))?;
            if closed > 0 {
                complain(&Missing::Closed(closed).to_string());
            }
        }
        let (Some(interval), false) = (style.interval, args.count == Some(turn)) else { break };
        if signals::wait((interval * turn as u32).saturating_sub(start.elapsed()).max(Duration::from_millis(1))) {
            break;
        }
    }
    Ok(())
}

/// All that may be looked at, with what they have counted. What else there is, is said.
pub fn all() -> Result<(Vec<Covered>, Vec<Counters>)> {
    if !find::is_proc_there() {
        return Err(Missing::Unseen.into());
    }
    let All { found: mut processes, wrong, closed } = find::all();
    if processes.is_empty() && closed > 0 {
        return Err(Missing::Closed(closed).into());
    }
    wrong.iter().for_each(|wrong| complain(wrong));
    if closed > 0 {
        complain(&Missing::Closed(closed).to_string());
    }
    let counters = processes.iter_mut().map(|covered| covered.counters().clone()).collect();
    Ok((processes, counters))
}

/// Columns that the table needs: four figures, and the longest name that the kernel keeps.
const TABLE: usize = 48;

fn text(processes: &[Covered], counters: &[Counters], style: &Style, columns: usize) -> String {
    if processes.is_empty() {
        return "No process is covered that you may watch.\n".into();
    }
    let both = processes.iter().zip(counters);
    if style.selection.is_named {
        let one = |(covered, counters): (&Covered, &Counters)| {
            let title = format!("{} {}\n", covered.pid, covered.command());
            // Since its start, which was before it had counters.
            let stat = Stat::read(covered.pid).filter(|_| style.selection.has_faults);
            let kernel = stat.map_or_else(String::new, |stat| faults(Some(stat.faults), stat.age(), columns));
            title + &kernel + &lines(&style.selection, counters, covered.age(), columns)
        };
        return both.map(one).collect();
    }
    let wide = columns >= TABLE;
    let mut text = String::new();
    if wide {
        text += &format!("{:>7} {:>8} {:>7} {:>7} COMMAND\n", "PID", "REQUESTS", "SERVED", "LEFT");
    }
    for (covered, counters) in both {
        let get = |counter| counters.get(counter);
        let requests = short(get(Counter::MmapServed) + get(Counter::MallocServed), Unit::Calls);
        let bytes = short(get(Counter::MmapBytes) + get(Counter::MallocBytes), Unit::Bytes);
        let left = short(counters.left().iter().map(|(_, calls)| calls).sum(), Unit::Calls);
        let plain = if counters.plain().is_some() { " (runs plain)" } else { "" };
        let (pid, command) = (covered.pid, covered.command() + plain);
        text += &match wide {
            true => format!("{pid:>7} {requests:>8} {bytes:>7} {left:>7} {command}\n"),
            false => {
                format!("{pid} {command}\n  {requests} requests, {bytes} served\n  {left} left to the kernel\n")
            }
        };
    }
    text
}
