//! Counters as JSON: one object a line, `version` 1.
//!
//! | field | meaning |
//! |---|---|
//! | `version` | of this table; a field that changes its meaning makes it grow |
//! | `kind` | `interval`: counted in one interval; `total`: counted while it was watched; `list`: counted so far |
//! | `time_s` | since it is watched; 0 in a list |
//! | `over_s` | for how long was counted; 0 in a list |
//! | `processes` | each process: |
//! | `.pid`, `.command` | which; the command's name as the kernel has it |
//! | `.running` | whether it runs still |
//! | `.since_s` | how long ago its page was made |
//! | `.counters` | its counters |
//! | `.knobs` | what its knobs are set to: sizes in bytes, switches 0 or 1, words as text |
//! | `totals` | the counters, summed |
//! | `unreadable` | what is wrong with pages that could not be read |
//!
//! Counters are objects from name to number, and hold those that were chosen.

use std::collections::BTreeMap;

use faultless_mm::knobs::{Kind, Knob, When};
use serde::Serialize;
use serde_json::Value;

use super::select::Selection;
use crate::pages::Counters;
use crate::pages::find::Covered;

/// A line.
#[derive(Serialize)]
pub struct Report {
    version: u32,
    kind: &'static str,
    time_s: f64,
    over_s: f64,
    processes: Vec<Process>,
    totals: BTreeMap<&'static str, u64>,
    unreadable: Vec<String>,
}

#[derive(Serialize)]
struct Process {
    pid: u32,
    command: String,
    running: bool,
    since_s: f64,
    counters: BTreeMap<&'static str, u64>,
    knobs: BTreeMap<&'static str, Value>,
}

fn named(selection: &Selection, counters: &Counters) -> BTreeMap<&'static str, u64> {
    let values = selection.places().map(|place| counters.values()[place]);
    selection.declared().map(|declared| declared.name).zip(values).collect()
}

/// What the knobs of a process are set to.
fn knobs(counters: &Counters) -> BTreeMap<&'static str, Value> {
    let on_page = |knob: &&Knob| knob.declared().when != When::Run && knob.declared().kind != Kind::Text;
    let value = |knob: &Knob| match knob.declared().kind {
        Kind::Choice(_) => knob.declared().show(counters.knob(*knob)).to_string().into(),
        _ => counters.knob(*knob).into(),
    };
    Knob::ALL.iter().filter(on_page).map(|knob| (knob.declared().name, value(knob))).collect()
}

impl Report {
    /// What `processes` have counted: `counters`, in the same order.
    pub fn new(
        kind: &'static str,
        (time_s, over_s): (f64, f64),
        selection: &Selection,
        (processes, counters): (&[Covered], &[Counters]),
        unreadable: Vec<String>,
    ) -> Self {
        let totals = named(selection, &Counters::sum(counters));
        let processes = processes.iter().zip(counters).map(|(covered, counters)| Process {
            pid: covered.pid,
            command: covered.name.clone(),
            running: covered.runs(),
            since_s: covered.age(),
            counters: named(selection, counters),
            knobs: knobs(counters),
        });
        Self { version: 1, kind, time_s, over_s, processes: processes.collect(), totals, unreadable }
    }

    /// As it is printed.
    pub fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }
}
