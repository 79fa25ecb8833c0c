//! Tables of times: of single faults, of starts of applications, and of threads.

use super::runs::{Case, Runs, name};
use crate::loops::{EDGES, Latency, Reached, SpfWay as Way};
use crate::table;
use crate::turns::Rounds;
use faultless_measure::paired::median;

const PATHS: [Way; 3] = [Way::Kernel, Way::Classic, Way::Speculative];

fn seconds(ns: f64) -> String {
    table::seconds(ns / 1e9)
}

/// The middle of a figure's values in all rounds.
fn middle(all: &[&Latency], figure: impl Fn(&Latency) -> u64) -> f64 {
    median(&all.iter().map(|latency| figure(latency) as f64).collect::<Vec<_>>()).unwrap_or(0.0)
}

/// p50, p99 and the largest of each case: medians of the rounds, but for the last.
fn print(title: &str, what: &str, rounds: &Rounds<Case, Reached>) {
    println!("**{title}** ({what})\n");
    let mut table = table::new_table(&["", "p50", "p99", "max", "a second"]);
    for (case, all) in rounds {
        let latencies: Vec<&Latency> = all.iter().filter_map(|reached| reached.latency.as_ref()).collect();
        let most = latencies.iter().map(|latency| latency.max).max().unwrap_or(0);
        let rate = median(&all.iter().map(|reached| reached.rate).collect::<Vec<_>>()).unwrap_or(0.0);
        table.add_row([
            name(*case),
            seconds(middle(&latencies, |latency| latency.p50)),
            seconds(middle(&latencies, |latency| latency.p99)),
            seconds(most as f64),
            format!("{rate:.0}"),
        ]);
    }
    println!("{table}\n");
}

/// How long an access takes that faults, while another thread maps and unmaps.
pub fn faults(runs: &mut Runs) {
    let deliveries: &[&str] = if runs.context.full { &["signal", "thread"] } else { &["signal"] };
    for (by, beside) in deliveries.iter().flat_map(|by| [(*by, "maps"), (*by, "unmaps")]) {
        let cases = PATHS.map(|way| (way, 1));
        let words = format!("--work touch --beside {beside} --timed --by {by}");
        let rounds = runs.rounds("latency", &cases, 6, &words);
        let does = if beside == "maps" { "maps and unmaps" } else { "maps, populates and unmaps" };
        print("Latency", &format!("an access that faults, by {by}, while one more thread {does}"), &rounds);
        histogram(&rounds);
    }
}

/// How many in a hundred there are in each step.
fn histogram(rounds: &Rounds<Case, Reached>) {
    let mut columns = vec![String::new()];
    columns.extend(EDGES.iter().map(|edge| format!("< {}", seconds(*edge as f64))));
    columns.push("more".into());
    let mut table = table::new_table(&columns.iter().map(String::as_str).collect::<Vec<_>>());
    for (case, all) in rounds {
        let latencies = || all.iter().filter_map(|reached| reached.latency.as_ref());
        let count: usize = latencies().map(|latency| latency.count).sum();
        let percent = |step: usize| {
            let n: usize = latencies().map(|latency| latency.steps[step]).sum();
            format!("{:.3} %", 100.0 * n as f64 / count.max(1) as f64)
        };
        table.add_row(std::iter::once(name(*case)).chain((0..=EDGES.len()).map(percent)));
    }
    println!("{table}\n");
}

/// How long it takes until an application is up, and until a thread is made, while another thread unmaps much.
pub fn starts(runs: &mut Runs) {
    let works = [
        ("starts", "Application", "four threads are started, map 1 MiB each, touch it, unmap it and end"),
        ("creates", "pthread_create", "the call alone"),
    ];
    for (work, title, what) in works {
        let cases = runs.cases(&PATHS);
        let rounds = runs.rounds(title, &cases, 4, &format!("--work {work} --beside unmaps"));
        print(title, &format!("{what}; while one more thread maps, populates and unmaps 16 MiB"), &rounds);
    }
}
