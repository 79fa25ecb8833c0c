//! Chrome's trace format, which Perfetto reads: faults per second over time, and each fault that was recorded, on its
//! thread, as long as it took. One that was not timed is a moment.

use serde_json::{Value, json};

use super::text::fit;
use crate::summary::Summary;

/// Characters of a name: each fault has one.
const MOST_NAME: usize = 256;

/// The trace.
pub fn trace(summary: &Summary) -> Value {
    let mut events = Vec::new();
    let main = summary.processes.first().map_or(0, |by| by.pid);
    for by in &summary.processes {
        events.push(json!({ "ph": "M", "name": "process_name", "pid": by.pid, "args": { "name": by.name } }));
    }
    for by in &summary.threads {
        let args = json!({ "name": by.name });
        events.push(json!({ "ph": "M", "name": "thread_name", "pid": by.pid, "tid": by.tid, "args": args }));
    }
    let line = &summary.timeline;
    for (i, faults) in line.faults.iter().enumerate() {
        let rate = if line.step_s > 0.0 { *faults as f64 / line.step_s } else { 0.0 };
        let us = i as f64 * line.step_s * 1e6;
        events.push(
            json!({ "ph": "C", "name": "page faults/s", "pid": main, "ts": us, "args": { "faults/s": rate } }),
        );
    }
    for fault in &summary.samples {
        let args = json!({
            "function": fit(&fault.function, MOST_NAME),
            "address": format!("{:#x}", fault.address),
            "stands_for": fault.period,
        });
        let (name, us) = (fault.kind.text(), fault.time_ns as f64 / 1e3);
        let (pid, tid) = (fault.pid, fault.tid);
        events.push(match fault.took_ns {
            Some(ns) => json!({
                "ph": "X", "cat": "fault", "name": name, "pid": pid, "tid": tid, "ts": us, "dur": ns as f64 / 1e3,
                "args": args,
            }),
            None => json!({
                "ph": "i", "s": "t", "cat": "fault", "name": name, "pid": pid, "tid": tid, "ts": us, "args": args,
            }),
        });
    }
    // Where there are too many faults, some of those that have records are left out, evenly.
    let kept = json!({ "one_of": summary.samples_one_of, "records": summary.recording.samples });
    json!({ "displayTimeUnit": "ns", "traceEvents": events, "otherData": { "faults": kept } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::{Kind, Sampled, Timeline};

    #[test]
    fn faults_are_slices_or_moments() {
        let sample = |took_ns| Sampled {
            time_ns: 2500,
            took_ns,
            pid: 1,
            tid: 2,
            kind: Kind::FirstTouch,
            address: 0x1000,
            period: 61,
            function: "fill".into(),
        };
        let samples = vec![sample(Some(700)), sample(None)];
        let timeline = Timeline { step_s: 0.5, faults: vec![10] };
        let trace = trace(&Summary { samples, timeline, ..Summary::default() });
        let events = trace["traceEvents"].as_array().unwrap();
        assert_eq!((&events[0]["ph"], &events[0]["args"]["faults/s"]), (&"C".into(), &20.0.into()));
        assert_eq!(
            (&events[1]["ph"], &events[1]["ts"], &events[1]["dur"]),
            (&"X".into(), &2.5.into(), &0.7.into())
        );
        assert_eq!((&events[1]["args"]["function"], &events[2]["ph"]), (&"fill".into(), &"i".into()));
    }
}
