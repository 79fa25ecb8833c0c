//! The tables of this machine. Columns as in the patch: Gb, repetitions, threads; seconds in user mode, in the kernel, and on the
//! clock; pages touched for the first time in a second of processor time, and in a second.

use faultless_sim::pattern::Pattern;

use super::runs::{Case, Rounds, Runs, Way, speed};
use crate::bench::aims::Aims;
use crate::bench::loops::Touched;
use crate::bench::table;
use crate::paired::{Spread, median};

/// Bytes that are touched.
const SIZE: u64 = 512 << 20;
/// How long memory lies idle until a hypervisor that takes it back has taken it.
const IDLE: u64 = 15;

/// What most tables begin with: one thread, in order, warm.
pub fn case(runs: &Runs, table: &'static str) -> Case {
    Case { table, size: runs.context.size(SIZE), reps: 1, threads: 1, pattern: Pattern::Sequential, idle: 0 }
}

fn heading(title: &str, what: &str) {
    println!("**{title}** ({what})\n");
    println!("| | Gb | Rep | Threads | User | System | Wall | flt/cpu/s | fault/wsec | faults | to kernel |");
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
}

fn lines(rounds: &Rounds, case: &Case) {
    for (way, touched) in rounds {
        let middle =
            |figure: fn(&Touched) -> f64| median(&touched.iter().map(figure).collect::<Vec<_>>()).unwrap_or(0.0);
        let walls: Vec<f64> = touched.iter().map(|touched| touched.taken.wall).collect();
        let Some(Spread { median, min, max }) = Spread::of(&walls) else { continue };
        println!(
            "| {} | {:.2} | {} | {} | {:.4} s | {:.4} s | {median:.4} s ({min:.4}..{max:.4}) | {:.0} | {:.0} | {:.0} | {} |",
            way.name(),
            case.size as f64 / (1u64 << 30) as f64,
            case.reps,
            case.threads,
            middle(|touched| touched.taken.user),
            middle(|touched| touched.taken.system),
            middle(|touched| touched.taken.per_cpu_second()),
            middle(|touched| touched.taken.per_second()),
            middle(|touched| touched.resolved as f64),
            speed(rounds, *way, Way::Plain).map_or("–".into(), |ratio| table::interval(&ratio)),
        );
    }
}

/// One to four times as many threads as there are CPUs.
pub fn threads(runs: &mut Runs, aims: &mut Aims) {
    heading("Threads", "in order, warm; each thread a part of its own");
    for threads in [1, 2, 4]
        .map(|times| times * runs.context.cpus)
        .into_iter()
        .chain([1])
        .collect::<std::collections::BTreeSet<_>>()
    {
        let case = Case { threads, ..case(runs, "threads") };
        let rounds = runs.in_turns(&case, &Way::ALL, 5);
        lines(&rounds, &case);
        if threads == 1 {
            for way in [Way::SignalReserved, Way::ThreadReserved] {
                for (other, n) in [(Way::Plain, 50.0), (Way::Huge, 8.0)] {
                    let what = format!("in order, one thread, {}, beside {}", way.name(), other.name());
                    aims.at_least(&what, n, speed(&rounds, way, other));
                }
            }
            let slower = speed(&rounds, Way::Signal, Way::Huge).map(|ratio| ratio.inverse());
            aims.no_loss("in order, one thread, beside huge pages always", 1.0, slower);
            let gb = case.size as f64 / (1u64 << 30) as f64;
            for way in [Way::Signal, Way::Thread] {
                let faults =
                    rounds.get(&way).and_then(|all| all.first()).map(|touched| touched.resolved as f64 / gb);
                if let Some(faults) = faults {
                    aims.add(
                        format!("{}: {faults:.0} faults for 1 GiB in order, aimed at fewer than 64", way.name()),
                        faults < 64.0,
                    );
                }
            }
        }
    }
    println!();
}

/// Other orders.
pub fn patterns(runs: &mut Runs, aims: &mut Aims) {
    heading(
        "Patterns",
        "warm; backward and every fourth page touch all, random a tenth, zipfian half as often as there are pages",
    );
    let most = if runs.context.full { runs.context.cpus } else { 1 };
    for threads in [1, most].into_iter().collect::<std::collections::BTreeSet<_>>() {
        for pattern in Pattern::ALL.into_iter().filter(|pattern| *pattern != Pattern::Sequential) {
            println!("| *{}* | | | | | | | | | | |", pattern.name());
            let case = Case { threads, pattern, ..case(runs, "patterns") };
            let rounds = runs.in_turns(&case, &Way::ALL, 4);
            lines(&rounds, &case);
            if pattern == Pattern::Random && threads == 1 {
                let slower = speed(&rounds, Way::Signal, Way::Plain).map(|ratio| ratio.inverse());
                aims.no_loss("a tenth of the pages anywhere, beside the kernel", 1.03, slower);
            }
        }
    }
    println!();
}

/// Memory that a hypervisor may have taken back.
pub fn cold(runs: &mut Runs) {
    heading("Cold", "in order, after 15 s in which memory lay idle");
    let case = Case { idle: IDLE, ..case(runs, "cold") };
    let rounds = runs.in_turns(&case, &[Way::Plain, Way::Huge, Way::Signal, Way::Thread], 2);
    lines(&rounds, &case);
    println!();
}
