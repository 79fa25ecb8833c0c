//! Every counter counts. That it counts right is in traced.rs.

use std::process::Command;

use faultless_base::zero::Engine;
use faultless_e2e::{Case, Counters, need};
use faultless_page::listing::OWN;
use faultless_page::stats::{COUNTERS, Counter};

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
        ("groups.c", "scrubbed", &[BUDGET], &[MmapServed, MmapBytes, BytesFreshHuge, BytesZeroed, BytesScrubbed, ScrubNs, WorkerStarts, ScrubWakeups, ScrubBlocks, ZeroHits, ZeroMisses, ZeroedForMap]),
        ("groups.c", "zeroes", &[BUDGET], &[BytesZeroedUnused, ZeroedInstead, ZeroedForCalloc]),
        ("groups.c", "mappings", &[BUDGET, ("FAULTLESS_SCRUB", "0")], &[BytesHotZeroed, HotZeroNs, BytesKept, ZeroHot]),
        ("groups.c", "ahead", &[BUDGET], &[BytesTouchedLent, BytesTouchedAhead, TouchNs, BytesFreshSmall, BytesAheadSeen, BytesAheadUnused]),
        ("groups.c", "much", &[BUDGET], &[BytesDecayed]),
        ("groups.c", "reservation", &[("FAULTLESS_BUDGET", "1G")], &[BytesAdvised]),
        ("groups.c", "supplied", &[("FAULTLESS_BUDGET", "256M"), ("FAULTLESS_MAPPED", "1")], &[BytesMoved, BytesMovedAhead, BytesMovedUnused, MoveWindows, MoveMisses]),
        ("groups.c", "dropped", &[BUDGET], &[BytesRecycled]),
        ("groups.c", "attributes", &[BUDGET], &[BytesTainted]),
        ("groups.c", "forked", &[BUDGET], &[BytesForked, Forks]),
        ("groups.c", "confined", &[BUDGET], &[BytesPressed, KernelLimited]),
        ("groups.c", "left", &[BUDGET, ("FAULTLESS_MMAP_THRESHOLD", "4M")], &[KernelSmall, KernelFlags, KernelProt]),
        ("groups.c", "waste", &[BUDGET], &[KernelWaste]),
        ("groups.c", "areas", &[BUDGET], &[KernelNoSpace]),
        ("groups.c", "busy", &[BUDGET], &[WorkerRests]),
        ("signals.c", "mmap", &[BUDGET], &[KernelNested]),
    ]
};

/// What counts only when a knob is turned while a program runs; knobs.rs sees to it.
const TURNED: &[Counter] = &[Counter::BytesOverBudget];

/// What never counts as long as everything works.
const NEVER: &[Counter] = &[
    Counter::ZeroedForMalloc,
    Counter::ZeroedForCopy,
    Counter::ZeroedForFile,
    Counter::MovesRefused,
    Counter::EnginesDropped,
    Counter::EnginesFailed,
    Counter::EnginesHung,
    Counter::EnginesSlow,
];

/// What counts only for files that programs map by the library; the tests of `faultless` reach each of them
/// (`tests/files`).
const FILES: &[Counter] = &[
    Counter::FileAlloc,
    Counter::FileFallback,
    Counter::FileWriteAlloc,
    Counter::FileWriteFailed,
    Counter::FileMapped,
    Counter::FileSplit,
    Counter::FileCollapsed,
    Counter::FileFault,
    Counter::FileFilled,
    Counter::FileBuffered,
    Counter::FileQueued,
    Counter::FileUnqueued,
    Counter::FileWritten,
    Counter::FileFlushed,
    Counter::FileThrottled,
    Counter::FileEvicted,
    Counter::FileGone,
    Counter::FileRefaults,
    Counter::FileRefaultDistance,
];

/// What counts for files that a program reads by mmap. reading.rs reaches most of these; tests of the engine and pressure
/// on the machine are there for the others.
const READ: &[Counter] = &[
    Counter::MappedFiles,
    Counter::BytesReadAhead,
    Counter::BytesReadAheadUsed,
    Counter::BytesReadAheadUnused,
    Counter::ReadAheadAdvised,
    Counter::ReadAheadRandom,
    Counter::ReadAheadWasted,
    Counter::ReadAheadPressed,
    Counter::ReadAheadRefused,
];

/// Counters that need threads to meet at the right moment, or the kernel to have no area left then. The models and
/// the tests of the engine cover them.
const SELDOM: &[Counter] = &[Counter::ScrubRecalls, Counter::KernelRefused, Counter::BackLater];

/// What each zeroing engine did: which of them are used depends on the processor.
fn engines() -> impl Iterator<Item = Counter> {
    Engine::ALL.into_iter().map(Counter::scrubbed_by)
}

/// Which engines are not used any more: none, as long as everything works.
fn dropped() -> impl Iterator<Item = Counter> {
    Engine::ALL.into_iter().map(Counter::dropped)
}

#[test]
fn every_counter_counts() {
    for (i, declared) in COUNTERS.iter().enumerate() {
        let mut tried = GROUPS
            .iter()
            .flat_map(|(.., counters)| *counters)
            .chain(TURNED)
            .chain(NEVER)
            .chain(SELDOM)
            .chain(READ)
            // Only in mapped regions, which programs make themselves; the tests of the engine reach each of them.
            .chain(OWN)
            .chain(FILES)
            .copied()
            .chain(engines())
            .chain(dropped());
        let is_tried = tried.any(|counter| counter as usize == i);
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
            let never = NEVER.iter().copied().chain(dropped());
            never.for_each(|counter| assert_eq!(run.counters.get(counter), 0, "{argument}: {counter:?}"));
            let by_engines: u64 = engines().map(|counter| run.counters.get(counter)).sum();
            assert_eq!(by_engines, run.counters.get(Counter::BytesScrubbed), "{argument}");
            if missing.is_empty() {
                break;
            }
        }
        assert!(missing.is_empty(), "{source} {argument}: never counted: {missing:?}");
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

/// Zeroing is for those who ask for zeroes.
#[test]
fn blocks_that_need_no_zeroes_cause_none() {
    let Some(case) = Case::compiled("groups.c", &[]) else { return };
    let counters: Counters = case.args(["blocks"]).under(&[BUDGET]).counters;
    use Counter::*;
    for counter in [BytesScrubbed, BytesHotZeroed, ZeroedForMalloc, ZeroedForCopy, ZeroHits, ZeroHot, ZeroMisses] {
        assert_eq!(counters.get(counter), 0, "{counter:?}");
    }
    assert!(counters.get(BytesUnzeroed) > 0);
}

/// The background thread does not even exist in a program that gives nothing back.
#[test]
fn a_program_without_large_requests_has_no_background_thread() {
    let run = Case::new("/bin/true").under(&[BUDGET]);
    assert_eq!((run.counters.processes, run.counters.get(Counter::WorkerStarts)), (0, 0));
    let Some(case) = Case::compiled("groups.c", &[]) else { return };
    let run = case.args(["zeroes"]).under(&[
        BUDGET,
        ("FAULTLESS_MMAP_THRESHOLD", "1G"),
        ("FAULTLESS_MALLOC_THRESHOLD", "1G"),
    ]);
    assert_eq!((run.counters.get(Counter::WorkerStarts), run.counters.get(Counter::ScrubNs)), (0, 0));
}

/// What bpftrace and perf look for in the library's file.
#[test]
fn probes_are_noted_in_the_library() {
    let Some(readelf) = need("readelf") else { return };
    let out = Command::new(readelf).arg("-n").arg(faultless_e2e::library()).output().expect("readelf runs");
    let text = String::from_utf8_lossy(&out.stdout);
    for probe in ["scrub_wakeup", "scrub", "zero_hit", "zero_hot", "zero_miss", "engine_dropped"] {
        assert!(text.contains(&format!("Provider: faultless\n    Name: {probe}\n")), "{probe} in {text}");
    }
}
