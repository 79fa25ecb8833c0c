//! Every counter counts, and counts right.

use std::process::Command;

use faultless_e2e::{Case, Counters, need};
use faultless_mm::stats::{COUNTERS, Counter};

/// A program, its argument, what is set, and what it makes count at least.
type Group = (&'static str, &'static str, &'static [(&'static str, &'static str)], &'static [Counter]);

/// How often a program is run until it has made everything count.
const ATTEMPTS: usize = 20;

/// Enough for what the programs do, whatever the machine has.
const BUDGET: (&str, &str) = ("FAULTLESS_BUDGET", "64M");

#[rustfmt::skip]
const GROUPS: &[Group] = {
    use Counter::*;
    &[
        ("groups.c", "blocks", &[BUDGET], &[MallocServed, MallocBytes, ReallocInPlace, ReallocMoved, BytesUnzeroed]),
        ("groups.c", "scrubbed", &[BUDGET], &[MmapServed, MmapBytes, BytesFreshHuge, BytesZeroed, BytesScrubbed, ScrubNs, WorkerStarts]),
        ("groups.c", "mappings", &[BUDGET, ("FAULTLESS_SCRUB", "0")], &[BytesHotZeroed, HotZeroNs, BytesKept]),
        ("groups.c", "ahead", &[BUDGET], &[BytesTouchedLent, BytesTouchedAhead, TouchNs, BytesFreshSmall]),
        ("groups.c", "much", &[BUDGET], &[BytesDecayed]),
        ("groups.c", "reservation", &[("FAULTLESS_BUDGET", "1G")], &[BytesAdvised]),
        ("groups.c", "dropped", &[BUDGET], &[BytesRecycled]),
        ("groups.c", "attributes", &[BUDGET], &[BytesTainted]),
        ("groups.c", "forked", &[BUDGET], &[BytesForked, Forks]),
        ("groups.c", "confined", &[BUDGET], &[BytesPressed, KernelLimited]),
        ("groups.c", "left", &[BUDGET, ("FAULTLESS_MMAP_THRESHOLD", "4M")], &[KernelSmall, KernelFlags, KernelProt, KernelNoSpace]),
        ("groups.c", "waste", &[BUDGET], &[KernelWaste]),
        ("groups.c", "areas", &[BUDGET], &[KernelRefused]),
        ("groups.c", "busy", &[BUDGET], &[WorkerRests]),
        ("signals.c", "mmap", &[BUDGET], &[KernelNested]),
    ]
};

/// What counts only when a knob is turned while a program runs; knobs.rs sees to it.
const TURNED: &[Counter] = &[Counter::BytesOverBudget];

#[test]
fn every_counter_counts() {
    for (i, declared) in COUNTERS.iter().enumerate() {
        let mut tried = GROUPS.iter().flat_map(|(.., counters)| *counters).chain(TURNED);
        let is_tried = tried.any(|counter| *counter as usize == i);
        assert!(is_tried, "no program makes {} count: add one to GROUPS", declared.name);
    }
    for (source, argument, knobs, counters) in GROUPS {
        let Some(case) = Case::compiled(source, &[]) else { return };
        let case = case.args([argument]);
        let mut missing: Vec<Counter> = counters.to_vec();
        // Some depend on when the background thread has a processor.
        for _ in 0..ATTEMPTS {
            let run = case.under(knobs);
            assert!(run.status.success(), "{argument}: {}: {}", run.status, String::from_utf8_lossy(&run.stderr));
            missing.retain(|counter| run.counters.get(*counter) == 0);
            if missing.is_empty() {
                break;
            }
        }
        assert!(missing.is_empty(), "{source} {argument}: never counted: {missing:?}");
    }
}

/// The large private anonymous mappings that a program asks for, and what it unmaps of them, as strace sees it.
fn traced(case: &Case, argument: &str) -> Option<(Vec<u64>, Vec<u64>)> {
    let out = Command::new(need("strace")?)
        .args(["-e", "trace=mmap,munmap"])
        .arg(case.program())
        .arg(argument)
        .output()
        .expect("strace runs");
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{text}");
    let number =
        |line: &str| line.split(", ").nth(1)?.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().ok();
    let large = |start: &str, what: &str| -> Vec<u64> {
        let of_kind = text.lines().filter(|line| line.starts_with(start) && line.contains(what));
        of_kind.filter_map(|line| number(line.split(')').next()?)).filter(|bytes| *bytes >= 2 << 20).collect()
    };
    Some((large("mmap(NULL", "PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, "), large("munmap(", "")))
}

#[test]
fn bytes_are_those_that_strace_sees() {
    let Some(case) = Case::compiled("groups.c", &[]) else { return };
    let Some((mapped, unmapped)) = traced(&case, "scrubbed") else { return };
    assert_eq!((mapped.len(), unmapped.len()), (2, 2), "{mapped:?} {unmapped:?}");
    for scrub in ["0", "1"] {
        let run = case.clone().args(["scrubbed"]).under(&[BUDGET, ("FAULTLESS_SCRUB", scrub)]);
        let get = |counter| run.counters.get(counter);
        assert_eq!(get(Counter::MmapServed), mapped.len() as u64);
        assert_eq!(get(Counter::MmapBytes), mapped.iter().sum::<u64>());
        assert_eq!(get(Counter::BytesKept), unmapped.iter().sum::<u64>());
        // The first mapping never had memory; the second has that of the first, as its size is the same.
        assert_eq!(get(Counter::BytesFreshHuge) + get(Counter::BytesFreshSmall), mapped[0]);
        assert_eq!(get(Counter::BytesZeroed) + get(Counter::BytesHotZeroed), mapped[1]);
        if scrub == "0" {
            assert_eq!((get(Counter::BytesHotZeroed), get(Counter::BytesScrubbed)), (mapped[1], 0));
        }
    }
}

#[test]
fn blocks_are_counted_as_they_were_asked_for() {
    let Some(case) = Case::compiled("groups.c", &[]) else { return };
    let counters: Counters = case.args(["blocks"]).under(&[BUDGET]).counters;
    // 8M, 4M, 300000 bytes and 8M; what is resized counts as moved or grown in its place.
    assert_eq!(counters.get(Counter::MallocServed), 4);
    assert_eq!(counters.get(Counter::MallocBytes), (20 << 20) + 300_000);
    assert_eq!((counters.get(Counter::ReallocInPlace), counters.get(Counter::ReallocMoved)), (1, 1));
}
