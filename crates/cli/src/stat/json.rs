//! Counters as JSON: one object a line, `version` 1. docs/reference.md has the schema (`generate/reference.rs`).

use std::collections::BTreeMap;

use faultless_page::gauges::{GAUGES, Gauge};
use faultless_page::knobs::{Kind, Knob, When};
use faultless_page::listing::OWN;
use faultless_page::stats::Counter;
use serde::Serialize;
use serde_json::Value;

use super::select::Selection;
use faultless_measure::pages::find::Covered;
use faultless_measure::pages::{Counters, Folded, Regions};

/// A line.
#[derive(Serialize)]
pub struct Report {
    version: u32,
    kind: &'static str,
    time_s: f64,
    over_s: f64,
    processes: Vec<Process>,
    #[serde(skip_serializing_if = "Option::is_none")]
    folded_processes: Option<usize>,
    totals: BTreeMap<&'static str, u64>,
    memory: BTreeMap<&'static str, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    page_faults: Option<u64>,
    unreadable: Vec<String>,
}

#[derive(Serialize)]
struct Process {
    pid: u32,
    command: String,
    running: bool,
    since_s: f64,
    plain: Option<&'static str>,
    counters: BTreeMap<&'static str, u64>,
    memory: BTreeMap<&'static str, u64>,
    knobs: BTreeMap<&'static str, Value>,
    regions: Vec<Region>,
    #[serde(skip_serializing_if = "Option::is_none")]
    other_regions: Option<Others>,
    #[serde(skip_serializing_if = "Option::is_none")]
    page_faults: Option<u64>,
}

#[derive(Serialize)]
struct Region {
    number: u64,
    address: u64,
    bytes: u64,
    delivery: &'static str,
    ended: bool,
    present_bytes: Option<u64>,
    counters: BTreeMap<&'static str, u64>,
}

/// All that are not told apart.
#[derive(Serialize)]
struct Others {
    count: u64,
    counters: BTreeMap<&'static str, u64>,
}

fn of_region(get: impl Fn(Counter) -> u64) -> BTreeMap<&'static str, u64> {
    OWN.iter().map(|counter| (counter.declared().name, get(*counter))).collect()
}

fn regions(all: &Regions) -> (Vec<Region>, Option<Others>) {
    let each = all.each.iter().map(|region| Region {
        number: region.number,
        address: region.start,
        bytes: region.bytes,
        delivery: region.delivery,
        ended: region.ended,
        present_bytes: region.present_bytes,
        counters: of_region(|counter| region.get(counter)),
    });
    let others = Others { count: all.others, counters: of_region(|counter| all.rest(counter)) };
    (each.collect(), (all.others > 0).then_some(others))
}

fn named(selection: &Selection, counters: &Counters) -> BTreeMap<&'static str, u64> {
    let values = selection.places().map(|place| counters.values()[place]);
    selection.declared().map(|declared| declared.name).zip(values).collect()
}

/// Totals of memory.
fn memory(counters: &Counters) -> BTreeMap<&'static str, u64> {
    Gauge::ALL.iter().zip(GAUGES).map(|(gauge, declared)| (declared.name, counters.gauge(*gauge))).collect()
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
    /// What `processes` have counted: `counters`, in the same order, and `all` together.
    pub fn new(
        kind: &'static str,
        (time_s, over_s): (f64, f64),
        selection: &Selection,
        (processes, counters): (&[Covered], &[Counters]),
        all: &Counters,
    ) -> Self {
        let (totals, memory_of_all) = (named(selection, all), memory(all));
        let processes = processes.iter().zip(counters).map(|(covered, counters)| {
            let (regions, other_regions) = regions(&counters.regions);
            Process {
                pid: covered.pid,
                command: covered.command(),
                running: covered.runs(),
                since_s: covered.age(),
                plain: counters.plain(),
                counters: named(selection, counters),
                memory: memory(counters),
                knobs: knobs(counters),
                regions,
                other_regions,
                page_faults: None,
            }
        });
        let processes = processes.collect();
        Self {
            version: 1,
            kind,
            time_s,
            over_s,
            processes,
            folded_processes: None,
            totals,
            memory: memory_of_all,
            page_faults: None,
            unreadable: Vec::new(),
        }
    }

    /// With how many others counted, which are in the totals alone.
    pub fn with_folded(self, folded: &Folded) -> Self {
        Self { folded_processes: Some(folded.processes()), ..self }
    }

    /// With what is wrong with pages.
    pub fn with_wrong(self, unreadable: Vec<String>) -> Self {
        Self { unreadable, ..self }
    }

    /// With the page faults that the kernel took for each process, in their order, where that is known.
    pub fn with_faults_of_each(mut self, faults: &[Option<u64>]) -> Self {
        self.processes.iter_mut().zip(faults).for_each(|(process, faults)| process.page_faults = *faults);
        self.with_faults(Some(faults.iter().flatten().sum()))
    }

    /// With the page faults that the kernel took.
    pub fn with_faults(self, page_faults: Option<u64>) -> Self {
        Self { page_faults, ..self }
    }

    /// As it is printed.
    pub fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }
}
