//! Counters in the text form of OpenMetrics, which Prometheus and others read. docs/reference.md has the names
//! (`generate/reference.rs`).
//!
//! A counter becomes a metric `faultless_NAME_total` with the labels `pid` and `command`. Times are in seconds, as is the
//! custom there. Every number is exact.

use std::collections::BTreeMap;
use std::fmt::Write;

use faultless_measure::pages::find::Covered;
use faultless_measure::pages::{Counters, Folded};
use faultless_page::gauges::{GAUGES, Gauge};
use faultless_page::knobs::{Kind, Knob, When};
use faultless_page::stats::{Declared, Unit};

use super::select::Selection;

/// What all names begin with.
const PREFIX: &str = "faultless_";

/// The metric of a counter, without `_total`.
pub fn name(counter: &Declared) -> String {
    match (counter.unit, counter.name.strip_suffix("_ns")) {
        (Unit::Ns, Some(name)) => format!("{PREFIX}{name}_seconds"),
        _ => format!("{PREFIX}{}", counter.name),
    }
}

/// The unit that a metric's name ends with, as the format asks for it.
fn unit(counter: &Declared) -> Option<&'static str> {
    match counter.unit {
        Unit::Bytes if counter.name.ends_with("_bytes") => Some("bytes"),
        Unit::Ns if counter.name.ends_with("_ns") => Some("seconds"),
        _ => None,
    }
}

fn value(counter: &Declared, value: u64) -> String {
    match unit(counter) {
        Some("seconds") => format!("{}.{:09}", value / 1_000_000_000, value % 1_000_000_000),
        _ => value.to_string(),
    }
}

/// Text within quotation marks, or behind `# HELP`.
fn quoted(text: &str) -> String {
    let mut out = String::new();
    for c in text.trim().chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out
}

fn family(out: &mut String, (name, kind): (&str, &str), unit: Option<&str>, help: &str) {
    let _ = writeln!(out, "# TYPE {name} {kind}");
    if let Some(unit) = unit {
        let _ = writeln!(out, "# UNIT {name} {unit}");
    }
    let _ = writeln!(out, "# HELP {name} {}", quoted(help));
}

/// Processes by their labels. Those with the same ones are added up: one may have had the number of the other before.
fn labelled<'a>(all: impl Iterator<Item = (u32, String, &'a Counters)>) -> BTreeMap<(u32, String), Counters> {
    let mut labelled: BTreeMap<(u32, String), Counters> = BTreeMap::new();
    for (pid, command, counters) in all {
        let labels = format!("pid=\"{pid}\",command=\"{}\"", quoted(&command));
        let sum = labelled.entry((pid, labels)).and_modify(|sum| sum.add(counters));
        sum.or_insert_with(|| counters.clone());
    }
    labelled
}

/// What `processes` have counted: `counters`, in the same order; and those that were folded, with 0 in the place of their
/// numbers.
pub fn text(selection: &Selection, processes: &[Covered], counters: &[Counters], folded: &Folded) -> String {
    let each =
        processes.iter().zip(counters).map(|(covered, counters)| (covered.pid, covered.command(), counters));
    let running = labelled(each);
    let sums = folded.programs.iter().map(|sum| (0, sum.counters.name.clone(), &sum.counters));
    let all = labelled(sums).into_iter().chain(running.clone());
    let all: Vec<_> = all.map(|((_, labels), counters)| (labels, counters)).collect();
    let labelled: Vec<_> = running.into_iter().map(|((_, labels), counters)| (labels, counters)).collect();
    let mut out = String::new();
    for (place, counter) in selection.places().zip(selection.declared()) {
        let name = name(counter);
        family(&mut out, (&name, "counter"), unit(counter), counter.meaning);
        for (labels, counters) in &all {
            let _ = writeln!(out, "{name}_total{{{labels}}} {}", value(counter, counters.values()[place]));
        }
    }
    let help = "Memory of files as it is now, by the names of /proc/meminfo.";
    family(&mut out, ("faultless_memory_bytes", "gauge"), Some("bytes"), help);
    for (labels, counters) in &labelled {
        for (gauge, declared) in Gauge::ALL.iter().zip(GAUGES) {
            let (name, value) = (declared.name, counters.gauge(*gauge));
            let _ = writeln!(out, "faultless_memory_bytes{{{labels},name=\"{name}\"}} {value}");
        }
    }
    family(&mut out, ("faultless_knob", "gauge"), None, "What a knob is set to; sizes in bytes, switches 0 or 1.");
    let is_number = |knob: &&Knob| {
        let declared = knob.declared();
        declared.when != When::Run && !matches!(declared.kind, Kind::Text | Kind::Choice(_))
    };
    for (labels, counters) in &labelled {
        for knob in Knob::ALL.iter().filter(is_number) {
            let (name, value) = (knob.declared().name, counters.knob(*knob));
            let _ = writeln!(out, "faultless_knob{{{labels},knob=\"{name}\"}} {value}");
        }
    }
    let help = "A covered process; plain: why it runs plain, empty if it does not.";
    family(&mut out, ("faultless_process", "info"), None, help);
    for (labels, counters) in &labelled {
        let plain = quoted(counters.plain().unwrap_or_default());
        let _ = writeln!(out, "faultless_process_info{{{labels},plain=\"{plain}\"}} 1");
    }
    out + "# EOF\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_page::stats::{COUNTERS, Counter};

    #[test]
    fn names_follow_the_customs_of_the_format() {
        assert_eq!(name(Counter::MmapServed.declared()), "faultless_mmap_served");
        let scrub = Counter::ScrubNs.declared();
        assert_eq!(
            (name(scrub), value(scrub, 2_500_000_001)),
            ("faultless_scrub_seconds".into(), "2.500000001".into())
        );
        let mut names: Vec<_> = COUNTERS.iter().map(name).collect();
        let is_name =
            |name: &String| name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        assert!(names.iter().all(is_name), "{names:?}");
        for counter in COUNTERS {
            assert!(unit(counter).is_none_or(|unit| name(counter).ends_with(unit)), "{}", counter.name);
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), COUNTERS.len());
    }

    /// The dashboard that is an example asks for metrics that there are.
    #[test]
    fn the_dashboard_names_metrics() {
        let text = include_str!("../../../../packaging/examples/grafana.json");
        assert!(serde_json::from_str::<serde_json::Value>(text).unwrap()["panels"].is_array());
        let mut known: Vec<_> = COUNTERS.iter().map(|counter| name(counter) + "_total").collect();
        known.push("faultless_process_info".into());
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let words = text.split(|c| !is_part(c)).filter(|word| word.starts_with(PREFIX));
        let unknown: Vec<_> = words.filter(|word| known.iter().all(|name| name != word)).collect();
        assert!(unknown.is_empty() && text.matches("_total").count() > 10, "{unknown:?}");
    }

    #[test]
    fn nothing_is_a_whole_answer_too() {
        let text = text(&Selection::of(&[Counter::MmapServed]), &[], &[], &Folded::default());
        assert!(text.starts_with("# TYPE faultless_mmap_served counter\n# HELP ") && text.ends_with("\n# EOF\n"));
        assert_eq!(quoted(" a\"b\\c\nd "), "a\\\"b\\\\c\\nd");
    }
}
