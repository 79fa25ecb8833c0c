//! `faultless stat` on a program with two regions, each of which is shown with its own figures.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use common::{faultless, text};
use faultless::region::{Delivery, Error, Region};
use faultless_testkit::Killed;
use serde_json::Value;

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;

/// Not a test: the program that is watched. It writes one region from the front to the back, and three pages of the
/// other, far from each other. It waits until its input is closed.
#[test]
#[ignore = "the program of the tests below"]
fn program() {
    let region = |bytes, delivery| Region::builder(bytes).delivery(delivery).build();
    let (mut first, mut second) = match (region(8 * MIB, Delivery::Signal), region(16 * MIB, Delivery::Thread)) {
        (Ok(first), Ok(second)) => (first, second),
        (Err(Error::NoUserfaultfd(_)), _) | (_, Err(Error::NoUserfaultfd(_))) => return println!("\nnone"),
        (first, second) => panic!("{first:?} {second:?}"),
    };
    let write = |region: &mut Region, page: usize| region.as_mut_slice().unwrap()[page * PAGE] = 1;
    (0..8 * MIB / PAGE).for_each(|page| write(&mut first, page));
    [3000, 70, 1010].iter().for_each(|page| write(&mut second, *page));
    println!("\n{:x} {:x}", first.as_ptr() as usize, second.as_ptr() as usize);
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

const WORDS: [&str; 4] = ["--exact", "program", "--ignored", "--nocapture"];

struct Program {
    child: Killed,
    /// Where its regions are.
    addresses: Vec<u64>,
}

impl Program {
    /// `None` where there is no userfaultfd.
    fn start() -> Option<Self> {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(WORDS).env_remove("FAULTLESS_STATS").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Killed(command.spawn().unwrap());
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let is_said =
            |line: &String| line == "none" || line.split(' ').all(|w| u64::from_str_radix(w, 16).is_ok());
        let said = lines.filter(|line| !line.is_empty()).find(is_said).expect("it says where they are");
        let addresses: Vec<_> = said.split(' ').filter_map(|word| u64::from_str_radix(word, 16).ok()).collect();
        let program = Self { child, addresses };
        if program.addresses.len() == 2 { Some(program) } else { None }
    }
}

fn json(args: &[&str]) -> Value {
    let out = faultless(args).output().unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    serde_json::from_str(text(&out.stdout).lines().next().unwrap()).unwrap()
}

fn count(region: &Value, counter: &str) -> u64 {
    region["counters"][counter].as_u64().unwrap()
}

#[test]
fn each_region_of_a_process_is_shown() {
    let Some(program) = Program::start() else { return faultless_testkit::skip("no userfaultfd") };
    let pid = program.child.id().to_string();
    let report = json(&["stat", "-p", &pid, "--once", "--json"]);
    let process = &report["processes"][0];
    let [first, second] = process["regions"].as_array().unwrap().as_slice() else { panic!("{report}") };
    for (region, bytes, delivery, address) in
        [(first, 8 * MIB, "signal", program.addresses[0]), (second, 16 * MIB, "thread", program.addresses[1])]
    {
        assert_eq!((&region["bytes"], &region["delivery"]), (&bytes.into(), &delivery.into()));
        assert_eq!((&region["address"], &region["ended"]), (&address.into(), &false.into()));
        assert!(count(region, "region_fault_ns") > 0);
    }
    assert_eq!(first["present_bytes"], 8 * MIB);
    assert_eq!(second["present_bytes"], 3 * PAGE);
    let of = |counter| [count(first, counter), count(second, counter)];
    let [hits, none] = of("region_window_hits");
    assert!(hits > 0 && none == 0, "{report}");
    assert_eq!((of("region_window_misses"), of("region_pages")), ([1, 3], [8 * MIB as u64 / 4096, 3]));
    assert_eq!(of("region_prefaulted"), [8 * MIB as u64 / 4096 - 1 - hits, 0]);
    let names = first["counters"].as_object().unwrap().keys();
    for name in names {
        assert_eq!(report["totals"][name], of(name).iter().sum::<u64>(), "{name}: nothing else has regions");
    }
    assert!(process.get("other_regions").is_none());

    // Nothing happens in an interval.
    let interval = json(&["stat", "-p", &pid, "--json", "-i", "0.05", "-n", "1"]);
    let regions = interval["processes"][0]["regions"].as_array().unwrap().clone();
    assert!(regions.iter().all(|region| count(region, "region_pgfault") == 0), "{interval}");
    assert_eq!(regions[0]["present_bytes"], 8 * MIB);

    let shown = |args: &[&str]| text(&faultless(args).output().unwrap().stdout).to_owned();
    let all = shown(&["stat", "-p", &pid, "--once"]);
    let lines: Vec<Vec<&str>> = all.lines().map(|line| line.split_whitespace().collect()).collect();
    let head = lines.iter().position(|line| line.first() == Some(&"region")).expect("a table");
    let cell = |line: usize, i: usize| lines[head + line][i];
    for (line, region) in [(1, first), (2, second)] {
        assert_eq!(cell(line, 0), format!("{:x}", region["address"].as_u64().unwrap()));
        assert_eq!(cell(line, 3), count(region, "region_window_hits").to_string());
    }
    assert_eq!((cell(1, 1), cell(1, 2), cell(2, 2)), ("signal", "8192K", "16M"));
    assert!(shown(&["stat", "-p", &pid, "--once", "-e", "region_*"]).contains("regions of"));
    assert!(!shown(&["stat", "-p", &pid, "--once", "-e", "faults"]).contains("regions of"));
}

#[test]
fn regions_that_have_ended_are_in_the_totals_of_a_program() {
    let exe = std::env::current_exe().unwrap();
    let args = ["stat", "--json", "--", exe.to_str().unwrap()];
    let out = faultless(args).args(WORDS).stdin(Stdio::null()).output().unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    if text(&out.stdout).contains("\nnone") {
        return faultless_testkit::skip("no userfaultfd");
    }
    let said = text(&out.stderr);
    let report: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    let regions = report["processes"][0]["regions"].as_array().unwrap();
    assert_eq!(regions.len(), 2, "{report}");
    assert!(regions.iter().all(|region| region["ended"] == true && region["present_bytes"] == 0));
    assert_eq!(regions.iter().map(|region| count(region, "region_window_misses")).sum::<u64>(), 4);
}
