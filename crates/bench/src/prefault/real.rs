//! The tables of this machine. Columns as in the patch: Gb, repetitions, threads; seconds in user mode, in the kernel, and on the
//! clock; pages touched for the first time in a second of processor time, and in a second.

use faultless_sim::pattern::Pattern;

use super::runs::{Case, Rounds, Runs, Way, speed};
use crate::aims::Aims;
use crate::loops::{By, Touched};
use crate::rule::Aim;
use crate::table;
use faultless_measure::paired::{Spread, median};

/// Bytes that are touched.
const SIZE: u64 = 512 << 20;
/// Bytes of what is large.
const LARGE: u64 = 2 << 30;
/// How often a program that computes goes over each page: about as long as zeroing takes, and three times that.
const PASSES: [u8; 2] = [2, 6];
/// How long memory lies idle until a hypervisor that takes it back has taken it.
const IDLE: u64 = 15;

/// What most tables begin with: one thread, in order, warm.
pub fn case(runs: &Runs, table: &'static str) -> Case {
    let size = runs.context.size(SIZE);
    Case { table, size, reps: 1, threads: 1, pattern: Pattern::Sequential, arrays: 1, idle: 0, passes: 0 }
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

/// What one thread touches in order: much of it, and computing on it.
pub fn large(runs: &mut Runs, aims: &mut Aims) {
    heading("Large", "in order, one thread, warm; then each page is gone over, too");
    let case = Case { size: runs.context.size(LARGE), ..case(runs, "large") };
    let rounds = runs.in_turns(&case, &Way::OWN_CHOICE, 4);
    lines(&rounds, &case);
    for way in [Way::SignalReserved, Way::ThreadReserved] {
        for (other, n) in [(Way::Plain, 50.0), (Way::Huge, 8.0), (Way::Advised, 8.0)] {
            let what = format!("{}, beside {}", way.name(), other.name());
            aims.at_least(&what, n, speed(&rounds, way, other));
        }
    }
    let slower = speed(&rounds, Way::Signal, Way::Huge).map(|ratio| ratio.inverse());
    aims.at_most("fresh memory, beside huge pages always", 1.0, slower);
    let gb = case.size as f64 / (1u64 << 30) as f64;
    for way in [Way::Signal, Way::Thread] {
        let most = rounds.of(&way).map(|all| all.iter().map(|touched| touched.resolved).max().unwrap_or(0));
        let line = |faults| format!("{}: {faults} faults for 1 GiB in order, aimed at 64 at most", way.name());
        match most.map(|most| most as f64 / gb) {
            Ok(faults) => aims.counted(line(format!("{faults:.0}")), faults, Aim::AtMost(64.0)),
            Err(verdict) => aims.without_figure(line("?".into()), verdict),
        }
    }
    for passes in PASSES {
        println!("| *{passes} passes over each page* | | | | | | | | | | |");
        let case = Case { passes, ..case };
        let rounds = runs.in_turns(&case, &Way::OWN_CHOICE, 3);
        lines(&rounds, &case);
        for other in [Way::Huge, Way::Advised] {
            let what = format!("{passes} passes, fresh memory, beside {}", other.name());
            aims.at_least(&what, 1.3, speed(&rounds, Way::Signal, other));
        }
    }
    println!();
}

/// One to four times as many threads as there are CPUs.
pub fn threads(runs: &mut Runs) {
    heading("Threads", "in order, warm; each thread a part of its own");
    for threads in [1, 2, 4]
        .map(|times| times * runs.context.cpus)
        .into_iter()
        .chain([1])
        .collect::<std::collections::BTreeSet<_>>()
    {
        let case = Case { threads, ..case(runs, "threads") };
        let rounds = runs.in_turns(&case, &Way::MOST, 5);
        lines(&rounds, &case);
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
            let rounds = runs.in_turns(&case, &Way::MOST, 4);
            lines(&rounds, &case);
            if pattern == Pattern::Random && threads == 1 {
                let slower = speed(&rounds, Way::Signal, Way::Plain).map(|ratio| ratio.inverse());
                aims.at_most("a tenth of the pages anywhere, beside the kernel", 1.03, slower);
            }
        }
    }
    println!();
}

/// Arrays in turns: fewer and more than a thread has streams.
const ARRAYS: [usize; 3] = [4, 12, 20];

/// Whose faults follow each other.
pub fn arrays(runs: &mut Runs) {
    heading(
        "Arrays in turns",
        "a page of each, then the next of each, warm; streams of a thread in one area, of a thread wherever it faults, \
         or one for each thread, as in the patches of 2004",
    );
    for arrays in ARRAYS {
        println!("| *{arrays} arrays* | | | | | | | | | | |");
        let case = Case { arrays, ..case(runs, "arrays") };
        let ways =
            [By::Area, By::Thread, By::One].into_iter().flat_map(|by| [Way::SignalBy(by), Way::ThreadBy(by)]);
        let ways: Vec<_> = [Way::Plain].into_iter().chain(ways).collect();
        let rounds = runs.in_turns(&case, &ways, 3);
        lines(&rounds, &case);
        if let Ok(ratio) = speed(&rounds, Way::SignalBy(By::Area), Way::SignalBy(By::Thread)) {
            println!("| *by thread and area, to by thread: {}* | | | | | | | | | | |", table::interval(&ratio));
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
