//! The counters of programs say what a trace of their system calls, run plain, implies: byte for byte.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use faultless_e2e::{Case, Counters, command, need, python, scratch, script};
use faultless_page::stats::Counter;
use serde_json::Value;

const SLOT: u64 = 2 << 20;
const READ_WRITE: &str = "PROT_READ|PROT_WRITE";
const PRIVATE: &str = "MAP_PRIVATE|MAP_ANONYMOUS";

/// Every block that the library would serve gets a mapping of its own from the C library, and its size leaves this
/// much of the mapping unused. Such mappings have this remainder, as programs/known.c has it.
const PLAIN: [(&str, &str); 3] =
    [("MALLOC_MMAP_THRESHOLD_", "262144"), ("OPENBLAS_NUM_THREADS", "1"), ("PYTHONHASHSEED", "0")];
const UNUSED: u64 = 24;
const REMAINDER: (u64, u64) = (64 << 10, 4096);

/// Everything that depends on when a thread gets a processor is off, and nothing is given back.
const STILL: [(&str, &str); 3] =
    [("FAULTLESS_BUDGET", "256M"), ("FAULTLESS_AHEAD", "0"), ("FAULTLESS_SCRUB", "0")];

/// A mapping that a program made, or undid.
#[derive(Debug)]
enum Call {
    Map { at: u64, bytes: u64, prot: String, flags: String },
    Unmap { at: u64 },
}

/// What a program maps and unmaps when it runs plain.
struct Trace(Vec<Call>);

impl Trace {
    /// Runs it; `None` without strace.
    fn of(program: &Path, args: &[&str]) -> Option<Self> {
        let dir = scratch();
        let file = dir.path().join("trace");
        let mut strace = Command::new(need("strace")?);
        strace.args(["-f", "-e", "trace=mmap,munmap", "-o"]).arg(&file).arg(program).args(args).envs(PLAIN);
        let out = strace.output().expect("strace runs");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let text = std::fs::read_to_string(&file).expect("what strace wrote");
        Some(Self(text.lines().filter_map(call).collect()))
    }

    /// The mappings that were asked for anywhere, of which `is_one` says that they matter: size, protection, flags.
    fn mapped(&self, is_one: impl Fn(u64, &str, &str) -> bool) -> Vec<u64> {
        let size = |call: &Call| match call {
            Call::Map { bytes, prot, flags, .. } if is_one(*bytes, prot, flags) => Some(*bytes),
            _ => None,
        };
        self.0.iter().filter_map(size).collect()
    }

    /// Memory that the program mapped for itself, from `least` bytes on.
    fn own(&self, least: u64) -> Vec<u64> {
        self.mapped(|bytes, prot, flags| is_own(bytes, prot, flags) && bytes >= least)
    }

    /// The blocks of malloc, as they were asked for.
    fn blocks(&self) -> Vec<u64> {
        let is_block = |bytes: u64, prot: &str, flags: &str| {
            (prot, flags) == (READ_WRITE, PRIVATE) && bytes % REMAINDER.0 == REMAINDER.1
        };
        self.mapped(is_block).iter().map(|bytes| bytes - UNUSED).collect()
    }

    /// The most that it had mapped for itself at once, and how much of its own it unmapped.
    fn peak(&self) -> (u64, u64) {
        let (mut live, mut now, mut peak, mut unmapped) = (BTreeMap::new(), 0, 0, 0);
        for call in &self.0 {
            match call {
                Call::Map { at, bytes, prot, flags } if is_own(*bytes, prot, flags) => {
                    live.insert(*at, *bytes);
                    now += bytes;
                    peak = peak.max(now);
                }
                Call::Map { .. } => {}
                Call::Unmap { at } => {
                    let bytes = live.remove(at).unwrap_or(0);
                    now -= bytes;
                    unmapped += bytes;
                }
            }
        }
        (peak, unmapped)
    }
}

fn is_own(bytes: u64, prot: &str, flags: &str) -> bool {
    (prot, flags) == (READ_WRITE, PRIVATE) && bytes % REMAINDER.0 == 0
}

/// A line of strace's: `PID mmap(NULL, BYTES, PROT, FLAGS, -1, 0) = AT`, `PID munmap(AT, BYTES) = 0`.
fn call(line: &str) -> Option<Call> {
    let (call, result) = line.rsplit_once(" = ")?;
    let (name, args) = call.trim_end().strip_suffix(')')?.split_once('(')?;
    let args: Vec<_> = args.split(", ").collect();
    let address = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    match (name.rsplit(' ').next()?, &args[..]) {
        ("mmap", ["NULL", bytes, prot, flags, ..]) => {
            let (prot, flags) = (prot.to_string(), flags.to_string());
            Some(Call::Map { at: address(result)?, bytes: bytes.parse().ok()?, prot, flags })
        }
        ("munmap", [at, _]) => Some(Call::Unmap { at: address(at)? }),
        _ => None,
    }
}

fn known(what: &str) -> Option<(Case, Trace)> {
    let case = Case::compiled("known.c", &[])?;
    let trace = Trace::of(case.program(), &[what])?;
    Some((case.args([what]), trace))
}

#[test]
fn mappings_and_where_their_memory_comes_from() {
    let Some((case, trace)) = known("mappings") else { return };
    let (all, (peak, unmapped)) = (trace.own(SLOT), trace.peak());
    let total: u64 = all.iter().sum();
    assert!(all.len() > 10 && peak < total / 2, "a program that recycles little: {all:?}");
    for scrub in ["0", "1"] {
        let counters = case.under(&[&STILL[..2], &[("FAULTLESS_SCRUB", scrub)]].concat()).counters;
        let get = |counter| counters.get(counter);
        assert_eq!((get(Counter::MmapServed), get(Counter::MmapBytes)), (all.len() as u64, total));
        let fresh = get(Counter::BytesFreshHuge) + get(Counter::BytesFreshSmall);
        assert_eq!(fresh + get(Counter::BytesZeroed) + get(Counter::BytesHotZeroed), total);
        // What is mapped beyond the most that there was at once has been there before; what the background thread has
        // at that moment, without a processor, is missing.
        assert!(fresh == peak || fresh > peak && scrub == "1", "{fresh} fresh of {peak}");
        assert_eq!((get(Counter::BytesUnzeroed), get(Counter::BytesKept)), (0, unmapped));
        if scrub == "0" {
            assert_eq!((get(Counter::BytesZeroed), get(Counter::BytesScrubbed)), (0, 0));
        }
    }
}

#[test]
fn what_is_left_to_the_kernel() {
    let Some((case, trace)) = known("left") else { return };
    let threshold = 5 << 20;
    let counters = case.under(&[&STILL[..], &[("FAULTLESS_MMAP_THRESHOLD", "5M")]].concat()).counters;
    let large = |is_one: &dyn Fn(&str, &str) -> bool| {
        trace.mapped(|bytes, prot, flags| bytes >= SLOT && bytes % SLOT == 0 && is_one(prot, flags)).len() as u64
    };
    let (served, small) = (trace.own(threshold), trace.own(SLOT).len() as u64);
    let expected = [
        (Counter::MmapServed, served.len() as u64),
        (Counter::MmapBytes, served.iter().sum()),
        (Counter::KernelSmall, small - served.len() as u64),
        (Counter::KernelProt, large(&|prot, flags| prot == "PROT_READ" && flags == PRIVATE)),
        (Counter::KernelFlags, large(&|_, flags| flags == "MAP_SHARED|MAP_ANONYMOUS")),
    ];
    for (counter, n) in expected {
        assert!(n > 0, "{counter:?}: the program does nothing of the kind");
        assert_eq!(counters.get(counter), n, "{counter:?}");
    }
}

fn same_blocks(counters: &Counters, blocks: &[u64]) {
    let served = (counters.get(Counter::MallocServed), counters.get(Counter::MallocBytes));
    assert_eq!(served, (blocks.len() as u64, blocks.iter().sum()), "{blocks:?}");
}

#[test]
fn blocks() {
    let Some((case, trace)) = known("blocks") else { return };
    assert_eq!(trace.blocks().len(), 10);
    same_blocks(&case.under(&STILL).counters, &trace.blocks());
}

/// What Python and NumPy ask for themselves is the same with arrays and without, and is left out.
#[test]
fn arrays_of_numpy() {
    let Some(python) = python() else { return };
    let script = script("numpy_known.py");
    let script = script.to_str().expect("a readable path");
    let Some(trace) = Trace::of(&python, &[script, "arrays"]) else { return };
    let Some(without) = Trace::of(&python, &[script]) else { return };
    let mut blocks = trace.blocks();
    for block in without.blocks() {
        blocks.remove(blocks.iter().position(|other| *other == block).expect("the same without arrays"));
    }
    assert_eq!(blocks.len(), 10, "{blocks:?}");
    let run = |args: &[&str]| {
        let case = PLAIN.iter().fold(Case::new(&python), |case, (name, value)| case.env(name, value));
        let case = case.args([script]).args(args);
        let run = case.under(&STILL);
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        [Counter::MallocServed, Counter::MallocBytes].map(|counter| run.counters.get(counter))
    };
    let ([calls, bytes], [calls_without, bytes_without]) = (run(&["arrays"]), run(&[]));
    assert_eq!((calls - calls_without, bytes - bytes_without), (blocks.len() as u64, blocks.iter().sum()));
}

/// As many faults are avoided as the trace has it, by the kernel's own count; `run` itself says no number that it
/// cannot know.
#[test]
fn faults_that_are_avoided() {
    let Some((case, trace)) = known("mappings") else { return };
    let (peak, _) = trace.peak();
    let total: u64 = trace.own(SLOT).iter().sum();
    let dir = scratch();
    let json = |more: &[&str]| -> Value {
        let file = dir.path().join("out.json");
        let file = file.to_str().expect("a readable path");
        let mut run = command(["run", "--quiet", "--json", file].into_iter().chain(more.iter().copied()));
        let out = run.args(["--"]).arg(case.program()).arg("mappings").envs(STILL).output().expect("it runs");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        serde_json::from_slice(&std::fs::read(file).expect("what it wrote")).expect("JSON")
    };
    let report = json(&[]);
    assert!(report.get("estimate").is_none(), "{report:#}");
    let thp = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let fault = if thp.contains("[always]") { SLOT } else { 4096 };
    let fresh = report["totals"]["bytes_fresh_huge"].as_u64().expect("a number");
    assert!(fresh <= peak, "{fresh} bytes with huge pages");
    let (ready, fewer) = ((total - peak) / fault, fresh / fault);
    let compared = json(&["--compare", "1"]);
    let faults = |way: usize| compared["minor_faults"]["runs"][0][way].as_f64().expect("a number") as u64;
    // The start of the library itself takes some; and fresh memory may not get the huge pages that it is advised.
    let (avoided, some) = (faults(0).saturating_sub(faults(1)), 300);
    assert!(avoided + some >= ready && avoided <= ready + fewer + some, "{ready} + {fewer}, {avoided}");
}
