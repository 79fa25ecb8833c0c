//! Recordings that are made here: what is told of them is known, and garbled ones do no harm.

mod parts;

use faultless_record::file::{Chunk, Cost, Counted, End, Fault, Head, Reader, Usage, Writer};
use faultless_record::summary::{self, Kind, Origin, TimeSource};
use faultless_record::view::text::{Style, report};
use faultless_record::view::{collapsed, diff, html, trace};
use faultless_record::wire::{Records, Source, count};
use faultless_testkit::foreign::{cases, changed, changes};
use parts::{ANONYMOUS, LIBRARY, MADE, Parts, counted, recorded, recording, sources};
use proptest::prelude::*;

#[test]
fn records_are_added_up() {
    let summary = summary::read(&recording()[..]).unwrap();
    assert_eq!(summary.faults.total, 1010, "the kernel's account has ten more than the events");
    assert_eq!((summary.faults.exceptions, summary.faults.in_calls, summary.faults.major), (1000, 10, 0));
    assert_eq!(summary.faults.source, Origin::Counted);
    assert_eq!((summary.recording.samples, summary.recording.lost), (20, 7));
    assert_eq!((summary.recording.processes, summary.recording.threads), (2, 3));
    // 16 of 20 records are of the anonymous mapping; 12 of them of small pages and timed, 4 of huge ones.
    let kinds: Vec<_> = summary.kinds.iter().map(|by| (by.kind, by.part.faults, by.part.samples)).collect();
    assert_eq!(
        kinds,
        [(Kind::FirstTouch, 600, 12), (Kind::Huge, 200, 4), (Kind::Copy, 100, 2), (Kind::File, 100, 2)]
    );
    let mappings: Vec<_> =
        summary.mappings.iter().map(|by| (by.name.as_str(), by.part.faults, by.areas)).collect();
    assert_eq!(
        mappings,
        [("anonymous, 8 MiB", 800, 1), ("/usr/lib/libc.so.6", 100, 2), ("[heap]", 100, 2)],
        "by faults, then by name"
    );
    assert_eq!(summary.mappings[0].allocator.as_deref(), Some("glibc"));
    assert_eq!(summary.mappings[0].largest_bytes, 8 << 20);
    let threads: Vec<_> = summary.threads.iter().map(|by| (by.name.as_str(), by.tid, by.part.faults)).collect();
    assert_eq!(threads, [("worker", 11, 800), ("program", 10, 100), ("program", 20, 100)]);
    let functions: Vec<_> = summary.functions.iter().map(|by| (by.name.as_str(), by.part.faults)).collect();
    assert_eq!(functions, [("made_here", 800), ("[program]", 200)]);
    let lines = "[program];made_here 800\n[program] 100\npy::work:a.py;[program] 100\n";
    assert_eq!(collapsed::collapsed(&summary), lines);
}

/// Beginnings are counted exactly. What the program's account lacks of them are processes that it did not wait for, or
/// faults that brought no page because a signal ended them.
#[test]
fn faults_are_counted_by_their_beginnings() {
    let told = |begun, minor| summary::read(&recorded(End { begun, minor, ..End::default() })[..]).unwrap();
    let few = told(1000, 30).faults;
    assert_eq!((few.total, few.minor, few.exceptions, few.in_calls), (1010, 1010, 1000, 10));
    let not_waited_for = told(5000, 30);
    assert_eq!((not_waited_for.faults.total, not_waited_for.faults.exceptions), (5000, 5000));
    assert_eq!(not_waited_for.time.of_cpu, None, "the time of those processes is not known");
    assert!(not_waited_for.notes.last().unwrap().contains("did not wait"), "{:?}", not_waited_for.notes);
    let mut parts = Parts::default();
    parts.program();
    for i in 0..40 {
        // The second of two ends is of another fault than the beginning before it.
        parts.fault(10, 1000, ANONYMOUS + i * 4096, Some((1000, 4096)));
        parts.failing(10, 1000, ANONYMOUS);
    }
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes).unwrap();
    writer.head(&Head { period: 50, sources: sources(), ..Head::default() }).unwrap();
    writer.records(0, &parts.bytes, &[]).unwrap();
    let usage = Usage { minor: 2020, ..Usage::default() };
    writer.end(&End { begun: 4000, minor: 30, usage: Some(usage), ..End::default() }).unwrap();
    let failing = summary::read(&bytes[..]).unwrap().faults;
    assert_eq!((failing.total, failing.exceptions), (2020, 2020), "half of those that began brought no page");
}

/// A recording of these records alone, of 1000 faults by the kernel's account and 400 that began.
fn told(parts: &Parts) -> summary::Summary {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes).unwrap();
    writer.head(&Head { period: 50, system_calls: true, sources: sources(), ..Head::default() }).unwrap();
    writer.records(0, &parts.bytes, &[]).unwrap();
    let usage = Usage { user_s: 0.1, minor: 1000, ..Usage::default() };
    writer.end(&End { begun: 400, minor: 400, usage: Some(usage), ..End::default() }).unwrap();
    summary::read(&bytes[..]).unwrap()
}

/// The kernel records no more of a program that gets other rights: its end follows its beginning at once.
#[test]
fn faults_of_programs_with_other_rights_are_not_those_of_system_calls() {
    let mut parts = Parts::default();
    parts.program();
    (0..8).for_each(|i| parts.fault(10, 1000, ANONYMOUS + i * 4096, Some((1000, 4096))));
    parts.fork((1500, 1500), (10, 10));
    let style = Style { columns: 200, rows: 5 };
    let recorded = told(&parts);
    assert_eq!((recorded.faults.in_calls, recorded.faults.not_recorded), (600, 0));
    assert!(report(&recorded, style).contains("600 of them within system calls\n"));
    parts.name(1500, 1500, "su", true);
    parts.exit(1500);
    let other = told(&parts);
    assert_eq!((other.faults.in_calls, other.faults.not_recorded), (0, 600));
    assert_eq!(other.faults.exceptions + other.faults.not_recorded, other.faults.total);
    assert_eq!(other.advice.action, "unknown", "{}", other.advice.text);
    let text = report(&other, style);
    assert!(text.contains("600 of them in programs that were not recorded, or within"), "{text}");
    assert!(other.notes.join("; ").contains("1 programs were not recorded"), "{:?}", other.notes);
}

#[test]
fn names_that_are_not_there_are_told() {
    let notes = |end| summary::read(&recorded(end)[..]).unwrap().notes.join("; ");
    let large = notes(End { names_too_large: 2, ..End::default() });
    assert!(large.contains("that 2 processes made") && large.contains("more than 64 MiB"), "{large}");
    assert!(!notes(End::default()).contains("made at run time"));
}

/// A daemon goes on, and what it does then is not recorded. Where records were dropped, its end may be among them.
#[test]
fn processes_that_go_on_are_told() {
    let mut parts = Parts::default();
    parts.program();
    parts.fork((1500, 1500), (10, 10));
    parts.fork((1501, 1501), (10, 10));
    let notes = |parts: &Parts| told(parts).notes.join("; ");
    assert!(notes(&parts).contains("3 processes went on"), "{}", notes(&parts));
    parts.exit(10);
    parts.exit(1500);
    assert!(notes(&parts).contains("1 processes went on"), "{}", notes(&parts));
    parts.lost(1);
    let lost = notes(&parts);
    assert!(!lost.contains("went on") && lost.contains("whether all of them have ended, is not known"), "{lost}");
    let mut over = Parts::default();
    over.program();
    over.exit(10);
    assert!(!notes(&over).contains("went on"), "{}", notes(&over));
}

#[test]
fn times_are_the_means_of_kinds() {
    let summary = summary::read(&recording()[..]).unwrap();
    // A record takes 300 ns of the 1000 between two: the recorder's own faults of 500 ns have 800 between theirs.
    assert_eq!((summary.time.source, summary.time.timed), (TimeSource::Timed, 16));
    let first = &summary.kinds[0];
    assert_eq!(first.per_fault_ns, Some(700.0));
    let near = |a: Option<f64>, b: f64| assert!((a.unwrap() - b).abs() < 1e-9, "{a:?} {b}");
    near(first.part.time_s, 600.0 * 700e-9);
    // The slowest of the four huge pages is left out. Other kinds have too few timed faults: they have the mean of all.
    assert_eq!(summary.kinds[1].per_fault_ns, Some(89_700.0));
    assert_eq!(summary.kinds[2].per_fault_ns, Some(700.0));
    let total = (800.0 * 700.0 + 200.0 * 89_700.0) * 1e-9;
    near(summary.time.total_s, total);
    near(summary.time.of_wall, total / 2.0);
    near(summary.time.of_cpu, total);
    assert_eq!(summary.timeline.faults.iter().sum::<u64>(), 1000);
    assert_eq!(summary.samples.len(), 20);
    assert_eq!(
        trace::trace(&summary)["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] == "X").count(),
        16
    );
}

/// A huge page takes far longer than a first touch: its time is its own, however few were timed, and is called so.
#[test]
fn the_time_of_few_huge_pages_is_theirs() {
    let style = Style { columns: 200, rows: 5 };
    let of = |huge: u64, small: u64| {
        let mut parts = Parts::default();
        parts.program();
        for i in 0..huge {
            parts.fault(10, 10_000, ANONYMOUS + (i << 21), Some((90_000 + i, 2 << 20)));
        }
        (0..small).for_each(|i| parts.fault(10, 10_000, ANONYMOUS + (6 << 20) + (i << 12), None));
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes).unwrap();
        let cost = Some(Cost { fault_ns: 500.0, between_records_ns: 500.0 });
        let head = Head { period: 50, system_calls: true, sources: sources(), cost, ..Head::default() };
        writer.head(&head).unwrap();
        writer.records(0, &parts.bytes, &[]).unwrap();
        writer.end(&End { begun: 150, minor: 3, usage: Some(Usage::default()), ..End::default() }).unwrap();
        let summary = summary::read(&bytes[..]).unwrap();
        let notes = summary.notes.join("; ");
        (summary.time.clone(), report(&summary, style), notes)
    };
    let (alone, text, notes) = of(3, 0);
    assert_eq!((alone.source, alone.timed_huge, alone.per_fault_ns), (TimeSource::Timed, 3, Some(90_001.0)));
    assert!(text.contains("3 of its faults were timed)") && !text.contains("a first touch here"), "{text}");
    assert!(notes.contains("3 faults of huge pages were timed: the time of huge pages is their mean"), "{notes}");
    assert!(!notes.contains("first touch on this machine"), "{notes}");
    let (mixed, text, notes) = of(2, 1);
    assert_eq!((mixed.source, mixed.timed_huge), (TimeSource::Machine, 2));
    assert!(text.contains("huge pages: 2 of its faults were timed; others: a first touch here"), "{text}");
    assert!(notes.contains("first touch on this machine, but for huge pages"), "{notes}");
    let (none, text, notes) = of(0, 2);
    assert_eq!((none.source, none.timed_huge, none.per_fault_ns), (TimeSource::Machine, 0, Some(500.0)));
    assert!(text.contains("; the cost of a first touch here)") && !notes.contains("huge"), "{text} {notes}");
}

/// The time of faults and the program's own are two estimates: their quotient is never more than there can be.
#[test]
fn faults_never_take_more_than_all_of_the_time() {
    let style = Style { columns: 200, rows: 5 };
    let used = |user_s| {
        let usage = Usage { user_s, minor: 1010, ..Usage::default() };
        summary::read(&recorded(End { minor: 1000, usage: Some(usage), ..End::default() })[..]).unwrap()
    };
    // The faults take 18.5 ms.
    for (cpu, part, words) in [(0.01, 1.0, "about all"), (0.019, 0.9737, "about all"), (0.02, 0.925, "92.5 %")] {
        let summary = used(cpu);
        assert!((summary.time.of_cpu.unwrap() - part).abs() < 1e-4, "{cpu}: {:?}", summary.time);
        let text = report(&summary, style);
        assert!(text.contains(&format!("{words} of the processor time")), "{text}");
    }
    let text = report(&used(0.001), style);
    assert!(text.contains("take about all of its time"), "{text}");
    // One that waits for input uses no processor meanwhile, and one thread waits no longer than the program runs.
    let mut parts = Parts::default();
    parts.program();
    (0..20).for_each(|i| parts.waiting(10, LIBRARY + i * 4096, 1_000_000));
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes).unwrap();
    writer.head(&Head { period: 50, system_calls: true, sources: sources(), ..Head::default() }).unwrap();
    writer.records(0, &parts.bytes, &[]).unwrap();
    let usage = Usage { user_s: 0.1, major: 1000, ..Usage::default() };
    writer.end(&End { wall_ns: 500_000_000, major: 1000, usage: Some(usage), ..End::default() }).unwrap();
    let waiting = summary::read(&bytes[..]).unwrap();
    assert!((waiting.time.total_s.unwrap() - 1.0).abs() < 1e-9, "{:?}", waiting.time);
    assert_eq!((waiting.time.of_cpu, waiting.time.of_wall), (Some(0.0), Some(1.0)));
    assert_eq!(waiting.advice.action, "memory");
}

#[test]
fn what_faultless_did_is_told_if_it_is_known() {
    let served = summary::read(&recording()[..]).unwrap().served.unwrap();
    assert_eq!((served.processes, served.served_processes, served.requests), (2, 1, 3));
    assert_eq!((served.handed_out_bytes, served.with_memory_bytes), (8 << 20, 6 << 20));
    assert_eq!(served.avoided_most, 1536);
    let of = |counted: Option<&Counted>| {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes).unwrap();
        writer.head(&Head::default()).unwrap();
        counted.map_or(Ok(()), |counted| writer.counted(counted)).unwrap();
        writer.end(&End::default()).unwrap();
        summary::read(&bytes[..]).unwrap()
    };
    // Recordings of earlier versions have none, those of later ones may mean something else.
    let old = of(None);
    assert!(old.served.is_none() && !report(&old, Style { columns: 80, rows: 5 }).contains("What faultless did"));
    let later = of(Some(&Counted { version: 2, ..counted() }));
    assert!(later.served.is_none() && later.notes.join("; ").contains("has version 2"), "{:?}", later.notes);
    let lost = of(Some(&Counted { lost: true, unreadable: vec!["7: ends".into()], ..counted() }));
    let notes = lost.notes.join("; ");
    assert!(notes.contains("could not leave its counters") && notes.contains("missing: 7: ends"), "{notes}");
}

/// Functions with long names, of which each stack has many: names are made once, and forms that name the functions of each
/// stack have as many as there is room for.
#[test]
fn stacks_of_long_names_are_bounded() {
    const STACKS: u64 = 300;
    let mut parts = Parts { is_without_memory: true, ..Parts::default() };
    parts.program();
    for way in 0..STACKS {
        // The number of the stack, in functions of two kinds.
        let stack: Vec<_> = (0..30).map(|bit| MADE + bit * 0x10 + (way >> bit & 1) * 8 + 1).collect();
        parts.touch(10, ANONYMOUS + way * 4096, &stack, false);
    }
    let names: String = (0..60).map(|i| format!("{:x} 8 f{i}_{}\n", MADE + i * 8, "x".repeat(4000))).collect();
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes).unwrap();
    let sources: Vec<_> = sources().into_iter().map(|source| Source { memory: false, ..source }).collect();
    writer.head(&Head { period: 50, sources, ..Head::default() }).unwrap();
    writer.records(0, &parts.bytes, &[]).unwrap();
    writer.names(10, names.as_bytes()).unwrap();
    writer.end(&End { begun: STACKS * 50, ..End::default() }).unwrap();
    let summary = summary::read(&bytes[..]).unwrap();
    assert_eq!(summary.stacks.len() as u64, STACKS);
    let mut shared: Vec<_> = summary.stacks.iter().flat_map(|by| &by.frames).map(|name| name.as_ptr()).collect();
    shared.sort();
    shared.dedup();
    assert!(shared.len() <= 60, "{} names", shared.len());
    let text = serde_json::to_string(&summary).unwrap();
    assert!(text.len() < 40 << 20, "{}", text.len());
    let back: summary::Summary = serde_json::from_str(&text).unwrap();
    let others = back.stacks.last().unwrap();
    assert_eq!((others.frames.len(), &*others.frames[0]), (1, "[other stacks]"));
    assert_eq!(back.stacks.len() as u64 - 1 + summary.left_out.stacks, STACKS);
    assert_eq!(others.part.samples, summary.left_out.stacks);
    assert_eq!(back.stacks.iter().map(|by| by.part.faults).sum::<u64>(), STACKS * 50);
    let note = format!("{} call stacks with the fewest faults are one row", summary.left_out.stacks);
    assert!(summary.notes.join("; ").contains(&note), "{:?}", summary.notes);
    let lines = collapsed::collapsed(&summary);
    assert_eq!(lines.lines().count(), back.stacks.len());
    // A page has its names once.
    let page = html::html(&summary).unwrap();
    assert!(page.len() < 4 << 20 && !page.contains("[other stacks]"), "{}", page.len());
}

#[test]
fn the_json_is_read_back() {
    let mut summary = summary::read(&recording()[..]).unwrap();
    let text = serde_json::to_string(&summary).unwrap();
    summary.samples.clear();
    let back: summary::Summary = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&back).unwrap(), text);
    assert_eq!((back.faults, back.kinds.len()), (summary.faults, summary.kinds.len()));
}

#[test]
fn a_recording_that_was_cut_tells_what_it_has() {
    let whole = recording();
    for cut in 0..whole.len() {
        match summary::read(&whole[..cut]) {
            Err(fault) => assert!(matches!(fault, Fault::Cut | Fault::Foreign | Fault::Broken), "{cut}: {fault}"),
            Ok(summary) => {
                assert!(!summary.recording.complete && !summary.notes.is_empty(), "{cut}");
                assert!(summary.faults.source == Origin::Samples || summary.faults.total == 0, "{cut}");
            }
        }
    }
    assert!(summary::read(&whole[..]).unwrap().recording.complete);
}

#[test]
fn what_is_no_recording_is_refused() {
    assert!(matches!(summary::read(&b"#!/bin/sh\nexit 0\n"[..]), Err(Fault::Foreign)));
    assert!(matches!(summary::read(&b""[..]), Err(Fault::Foreign)));
    let mut later = recording();
    later[8] = 9;
    assert!(matches!(summary::read(&later[..]), Err(Fault::Version(9))));
    // A length of nearly all memory takes none.
    let mut long = recording();
    long[24..32].copy_from_slice(&(u64::MAX / 2).to_le_bytes());
    assert!(matches!(summary::read(&long[..]), Err(Fault::Broken)));
}

proptest! {
    #![proptest_config(cases())]

    /// Whatever was changed in a file, it is read to its end or refused, and all forms can be made of it.
    #[test]
    fn garbled_recordings_do_no_harm(changes in changes(), cut in proptest::option::of(any::<usize>())) {
        let bytes = changed(recording(), changes, cut);
        if let Ok(summary) = summary::read(&bytes[..]) {
            let whole = report(&summary, Style { columns: 80, rows: 5 });
            prop_assert!(!whole.is_empty());
            collapsed::collapsed(&summary);
            trace::trace(&summary);
            diff::diff(&summary, &summary).text(Style { columns: 20, rows: 5 });
            serde_json::to_string(&summary).unwrap();
            let shares: f64 = summary.kinds.iter().map(|by| by.part.share).sum();
            prop_assert!(shares < 1.0 + 1e-6);
        }
    }

    /// The same for the records alone, with changes that all fall into them.
    #[test]
    fn garbled_records_do_no_harm(changes in changes(), cut in proptest::option::of(any::<usize>())) {
        let mut parts = Parts::default();
        parts.program();
        parts.fault(10, 1000, ANONYMOUS, Some((1000, 4096)));
        let whole = parts.bytes;
        let bytes = changed(whole, changes, cut);
        let records: Vec<_> = Records::new(&bytes, &sources()).collect();
        let good = records.iter().filter(|record| record.is_ok()).count();
        prop_assert!(good as u64 <= count(&bytes));
        prop_assert!(records.iter().rev().skip(1).all(Result::is_ok), "an error is the last one");
    }

    /// Random bytes are no recording, and no chunk.
    #[test]
    fn random_bytes_do_no_harm(mut bytes in prop::collection::vec(any::<u8>(), 0..400), with_head: bool) {
        if with_head {
            bytes.splice(0..0, recording()[..16].iter().copied());
        }
        let Ok(mut reader) = Reader::new(&bytes[..]) else { return Ok(()) };
        while let Ok(Some(chunk)) = reader.chunk() {
            prop_assert!(!matches!(chunk, Chunk::Head(_)) || bytes.len() > 32);
        }
        prop_assert!(matches!(reader.chunk(), Ok(None)));
    }
}
