//! What the reader has to know of the figures.

use super::{Origin, Summary, TimeSource};
use crate::file::{COUNTED_VERSION, Counted, End, Head};

/// Timed faults of huge pages from which their time is given without a warning.
const FEW_HUGE: u64 = super::build::ENOUGH as u64;
/// Records from which shares are given without a warning.
const ENOUGH: u64 = 100;

/// The notes of a summary; `wrong` is what was wrong with the file.
pub fn notes(summary: &Summary, head: &Head, end: &End, wrong: Option<String>) -> Vec<String> {
    let mut notes = Vec::new();
    notes.extend(wrong.clone());
    if wrong.is_none() && !summary.recording.complete {
        notes.push("the recording has no end: the number of faults is estimated from its records".into());
    }
    if let Some(failed) = &end.failed {
        notes.push(format!("recording ended early: {failed}"));
    }
    if let Some(refused) = &head.refused {
        notes.push(format!("faults were counted, not sampled: {refused}"));
    } else if !head.system_calls {
        notes.push(
            "faults in system calls (such as read into new memory) were counted, not sampled: that takes \
             kernel.perf_event_paranoid at 1, or CAP_PERFMON"
                .into(),
        );
    }
    if summary.recording.lost > 0 {
        notes.push(format!(
            "{} records were dropped: numbers of faults are exact all the same, shares are of the others; how many \
             processes and threads there were, and whether all of them have ended, is not known exactly",
            summary.recording.lost
        ));
    }
    if end.names_left_out > 0 {
        notes.push(format!(
            "names of functions that {} processes made at run time are not in the recording: it had reached its limit",
            end.names_left_out
        ));
    }
    if end.names_too_large > 0 {
        notes.push(format!(
            "names of functions that {} processes made at run time are not in the recording: such files \
             (/tmp/perf-PID.map) have more than 64 MiB",
            end.names_too_large
        ));
    }
    let left_out = &summary.left_out;
    let tables = [
        ("mappings", summary.mappings.len(), left_out.mappings),
        ("processes", summary.processes.len(), left_out.processes),
        ("threads", summary.threads.len(), left_out.threads),
        ("functions", summary.functions.len(), left_out.functions),
    ];
    for (table, rows, left_out) in tables.iter().filter(|(.., left_out)| *left_out > 0) {
        let all = *rows as u64 + left_out;
        notes.push(format!("{all} {table} had records: their table has the {rows} with the most faults"));
    }
    if left_out.stacks > 0 {
        notes.push(format!(
            "{} call stacks with the fewest faults are one row where the functions of each are named (--json, \
             --collapsed)",
            left_out.stacks
        ));
    }
    let samples = summary.recording.samples;
    if head.refused.is_none() && samples < ENOUGH && summary.faults.source != Origin::None {
        notes.push(format!("{samples} records: shares are rough"));
    }
    let time = &summary.time;
    if time.source == TimeSource::Machine && time.total_s.is_some() {
        let but = if time.timed_huge > 0 { ", but for huge pages" } else { "" };
        notes.push(format!("too few faults were timed: the time is that of a first touch on this machine{but}"));
    }
    if time.total_s.is_some() && (1..FEW_HUGE).contains(&time.timed_huge) {
        let of = if time.timed_huge < 4 { "their mean" } else { "the mean of the middle half of them" };
        notes.push(format!(
            "{} faults of huge pages were timed: the time of huge pages is {of}, and rough",
            time.timed_huge
        ));
    }
    notes
}

/// What the reader has to know of processes: `unseen` programs were not recorded, `running` processes went on.
pub fn of_processes(summary: &Summary, unseen: u64, running: u64) -> Vec<String> {
    let mut notes = Vec::new();
    if unseen > 0 {
        let up_to = if summary.recording.lost > 0 { "up to " } else { "" };
        notes.push(format!(
            "{up_to}{unseen} programs were not recorded, because they ran with other rights than this command (set-uid, \
             set-gid, capabilities): {} faults are theirs, or were within system calls",
            summary.faults.not_recorded
        ));
    }
    if running > 0 {
        notes.push(format!(
            "{running} processes went on when the program had ended: what they did afterwards is not recorded, and not \
             in the numbers"
        ));
    }
    notes
}

/// What the reader has to know of what faultless counted.
pub fn of_counters(counted: &Counted) -> Vec<String> {
    let mut notes = Vec::new();
    if counted.version != COUNTED_VERSION {
        notes.push(format!(
            "what faultless counted has version {}, this command reads {COUNTED_VERSION}: it is left out",
            counted.version
        ));
    }
    if counted.lost {
        notes.push(
            "a process was covered that could not leave its counters (of another user, or where nothing could be \
             written): it is missing in what faultless did"
                .into(),
        );
    }
    notes.extend(counted.unreadable.iter().map(|wrong| format!("counters of a process are missing: {wrong}")));
    notes
}
