//! Counters as JSON: one object a line, `version` 1. docs/reference.md has the schema (`generate/reference.rs`).

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
            command: covered.command(),
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
