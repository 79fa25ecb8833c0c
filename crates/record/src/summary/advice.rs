//! One line of advice. It goes by the time in faults, and by what kinds they are of.

use super::{Advice, Kind, Origin, Summary, Way, part_of_time};

/// Below this part of the processors' time, faults are not worth a change.
const LITTLE: f64 = 0.02;
/// From this part of all faults on, a kind is what counts.
const MOST: f64 = 0.5;

/// From this percentage of all faults on, memory that faultless serves is worth a try.
const SERVED: f64 = 25.0;

/// What to do about these faults. `system_calls`: whether those in system calls have records.
pub fn advice(summary: &Summary, system_calls: bool) -> Advice {
    let of = |test: &dyn Fn(Kind) -> bool| -> f64 {
        summary.kinds.iter().filter(|by| test(by.kind)).map(|by| by.part.share).sum()
    };
    // Of several threads that fault at once, the time is that of one.
    let (of_cpu, of_wall) = (summary.time.of_cpu, summary.time.of_wall.map(|part| part.min(1.0)));
    let waiting = summary.kinds.iter().filter(|by| by.kind == Kind::Input).filter_map(|by| by.part.time_s);
    let waits = summary.time.total_s.is_some_and(|total| total > 0.0 && waiting.sum::<f64>() >= MOST * total);
    let part = if waits { of_wall } else { of_cpu.or(of_wall) };
    let told = |action: &str, text: &str| Advice { action: action.into(), text: text.into() };
    if summary.faults.not_recorded as f64 >= MOST * summary.faults.total.max(1) as f64 {
        let text =
            "Most faults may be of programs that were not recorded, because of their rights: see the notes.";
        return told("unknown", text);
    }
    let Some(part) = part else {
        let text = match summary.faults.source {
            Origin::None => "Nothing was counted: see the notes.",
            _ => {
                "Where the faults are is not known: see the notes. `faultless run --compare` measures what it saves."
            }
        };
        return told("unknown", text);
    };
    if part < LITTLE {
        let text = format!("Do not bother: faults take {} of this program's time.", part_of_time(part, 1));
        return told("nothing", &text);
    }
    let taken = part_of_time(part, 0);
    if summary.recording.program.covered {
        let text =
            format!("Under faultless, faults still take {taken} of its time: `report --diff` shows what is gone.");
        return told("nothing", &text);
    }
    let faults = &summary.faults;
    if !system_calls && faults.in_calls as f64 >= MOST * faults.total as f64 {
        let text = "Most faults are in system calls, where this user cannot see them: see the notes. \
                    `faultless run --compare` measures what it saves.";
        return told("unknown", text);
    }
    let new = of(&Kind::is_new_memory);
    if of(&|kind| kind == Kind::Input) >= MOST {
        let text = "Most faults wait for input: more memory, or reading files ahead. faultless does not help.";
        return told("memory", text);
    }
    let served = summary.avoidable.iter().find(|of| of.way == Way::Faultless);
    let part =
        |faults: u64| if faults == 0 { 0.0 } else { faults as f64 * 100.0 / summary.faults.exceptions as f64 };
    let (least, most) = served.map_or((0.0, 0.0), |of| (part(of.least), part(of.most.saturating_sub(of.in_heap))));
    if new >= MOST && most >= SERVED {
        let served = match (least.round(), most.round()) {
            (0.0, most) => format!("it may serve the memory of up to {most:.0} %"),
            (least, most) if least == most => format!("it serves the memory of {most:.0} %"),
            (least, most) => format!("it serves the memory of {least:.0} to {most:.0} %"),
        };
        let text = format!(
            "Run it under faultless: {served} of its faults, which take \
             {taken} of its time. Measure with `faultless run --compare 10 -- …`.{}",
            huge(&summary.recording.machine.huge_pages)
        );
        return told("run", &text);
    }
    if let Some(why) = summary.recording.program.not_covered.as_ref().filter(|_| new >= MOST) {
        let text = format!(
            "Most faults are of new memory, and faultless does not cover this program: {why}. Huge pages may help: \
             transparent_hugepage/enabled at always, or madvise by the program."
        );
        return told("huge_pages", &text);
    }
    if new >= MOST {
        let text = "Most faults are of new memory that faultless does not serve: the C library's heap, small \
                    mappings, or programs that it does not cover. With GLIBC_TUNABLES=glibc.malloc.hugetlb=1 the C library asks for huge pages there.";
        return told("huge_pages", text);
    }
    let text = if of(&|kind| kind == Kind::Copy) >= MOST {
        "Most faults are copies after a fork: faultless does not help. Fewer or shorter-lived children do."
    } else if of(&|kind| kind == Kind::File) >= MOST {
        "Most faults are pages of files in memory: MAP_POPULATE, or huge pages for files. faultless does not help."
    } else {
        "No kind of fault dominates: try `faultless run --compare 10 -- …`."
    };
    told("unknown", text)
}

/// What the kernel's own setting may do instead.
fn huge(setting: &str) -> &'static str {
    match setting {
        "madvise" | "never" => {
            " The kernel's huge pages for all (transparent_hugepage/enabled at always) may do as much, and cost memory."
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::{Avoidable, ByKind, Part};

    fn action(of_cpu: Option<f64>, kinds: &[(Kind, f64)], change: impl FnOnce(&mut Summary)) -> String {
        let by = |(kind, share): &(Kind, f64)| ByKind {
            kind: *kind,
            part: Part { share: *share, ..Part::default() },
            per_fault_ns: None,
        };
        let mut summary = Summary { kinds: kinds.iter().map(by).collect(), ..Summary::default() };
        (summary.time.of_cpu, summary.faults.total, summary.faults.exceptions) = (of_cpu, 100, 100);
        summary.avoidable =
            vec![Avoidable { way: Way::Faultless, least: 50, most: 70, in_heap: 0, how: String::new() }];
        change(&mut summary);
        let is_seen = summary.faults.in_calls == 0;
        advice(&summary, is_seen).action
    }

    #[test]
    fn advice_goes_by_time_and_kind() {
        let new = [(Kind::FirstTouch, 0.4), (Kind::Huge, 0.3), (Kind::File, 0.3)];
        assert_eq!(action(Some(0.2), &new, |_| ()), "run");
        assert_eq!(action(Some(0.2), &new, |summary| summary.avoidable[0].most = 10), "huge_pages");
        assert_eq!(action(Some(0.2), &new, |summary| summary.avoidable.clear()), "huge_pages");
        let is_static = |summary: &mut Summary| {
            summary.recording.program.not_covered = Some("x is statically linked".into());
            summary.avoidable[0] = Avoidable { least: 0, most: 0, ..summary.avoidable[0].clone() };
        };
        assert_eq!(action(Some(0.2), &new, is_static), "huge_pages");
        assert_eq!(action(Some(0.2), &new, |summary| summary.avoidable[0].in_heap = 60), "huge_pages");
        assert_eq!(action(Some(0.01), &new, |_| ()), "nothing");
        assert_eq!(action(None, &new, |_| ()), "unknown");
        assert_eq!(action(Some(0.2), &new, |summary| summary.recording.program.covered = true), "nothing");
        assert_eq!(action(Some(0.2), &new, |summary| summary.faults.in_calls = 60), "unknown");
        assert_eq!(action(Some(0.01), &new, |summary| summary.faults.not_recorded = 60), "unknown");
        assert_eq!(action(Some(0.2), &[(Kind::Input, 0.6), (Kind::File, 0.4)], |_| ()), "memory");
        let waits = |summary: &mut Summary| {
            (summary.time.total_s, summary.time.of_wall) = (Some(1.0), Some(0.8));
            summary.kinds[0].part.time_s = Some(0.9);
        };
        assert_eq!(action(Some(0.0), &[(Kind::Input, 0.6), (Kind::File, 0.4)], waits), "memory");
        assert_eq!(action(Some(0.2), &[(Kind::Copy, 0.6), (Kind::File, 0.4)], |_| ()), "unknown");
    }
}
