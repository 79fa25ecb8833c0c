//! Tables of rates: how many faults, pages or blocks a second.

use super::runs::{Case, Runs, aborted, ends, name, speed};
use crate::aims::Aims;
use crate::loops::{Reached, SpfWay as Way};
use crate::rule::Aim;
use crate::table;
use crate::turns::Rounds;
use faultless_measure::paired::{Ratio, Spread, median};

/// The kernel and both paths, a page a fault.
const PATHS: [Way; 3] = [Way::Kernel, Way::Classic, Way::Speculative];
/// Rounds by default: as many as tell more than noise.
const ROUNDS: usize = 7;
/// Numbers of threads for which more is aimed at beside changes.
const AIMED: [usize; 2] = [1, 2];

/// What stands in a cell that has nothing to say.
const NOTHING: &str = "–";

fn print(title: &str, what: &str, unit: &str, rounds: &Rounds<Case, Reached>) {
    println!("**{title}** ({what})\n");
    let mut table = table::new_table(&[
        "",
        unit,
        "to classic",
        "to the kernel",
        "changes a second",
        "faults",
        "spf",
        "vma_changed",
        "vma_noanon",
        "vma_notsup",
        "vma_access",
        "pmd_changed",
        "aborts",
    ]);
    for (case, all) in rounds {
        let rates: Vec<f64> = all.iter().map(|reached| reached.rate).collect();
        let Some(spread) = Spread::of(&rates) else { continue };
        let to = |way: Way| match speed(rounds, *case, (way, case.1)) {
            Ok(ratio) if case.0 != way => table::interval(&ratio),
            _ => NOTHING.into(),
        };
        let mut cells = vec![
            name(*case),
            format!("{:.0} ({:.0}..{:.0})", spread.median, spread.min, spread.max),
            to(Way::Classic),
            to(Way::Kernel),
            changes(all),
        ];
        let ends = ends(all);
        if ends[0] == 0 {
            cells.resize(13, NOTHING.into());
        } else {
            cells.extend(ends.iter().map(u64::to_string));
            let aborted = aborted(&ends).ok().filter(|_| case.0 != Way::Classic);
            cells.push(aborted.map_or(NOTHING.into(), |aborted| format!("{aborted:.2} %")));
        }
        table.add_row(cells);
    }
    println!("{table}\n");
}

/// What the thread beside got done.
fn changes(all: &[Reached]) -> String {
    match median(&all.iter().map(|reached| reached.changes).collect::<Vec<_>>()) {
        Some(changes) if changes > 0.0 => format!("{changes:.0}"),
        _ => NOTHING.into(),
    }
}

const BOTH: [&str; 2] = ["signal", "thread"];

fn deliveries(runs: &Runs) -> &'static [&'static str] {
    if runs.context.full { &BOTH } else { &BOTH[..1] }
}

/// No thread changes the region.
pub fn alone(runs: &mut Runs, aims: &mut Aims) {
    for by in deliveries(runs) {
        let cases = runs.cases(&PATHS);
        let rounds = runs.rounds("alone", &cases, ROUNDS, &format!("--work touch --by {by}"));
        let what = format!("threads touch 16 MiB each, a page a fault, delivered by {by}, and drop them");
        print("Alone", &what, "faults a second", &rounds);
        if *by == "signal" {
            let two = speed(&rounds, (Way::Speculative, 2), (Way::Speculative, 1));
            aims.at_least("faults of two threads in different areas, beside one thread", 1.9, two);
            let one = speed(&rounds, (Way::Speculative, 1), (Way::Classic, 1)).map(Ratio::inverse);
            aims.at_most("faults of one thread, speculative beside classic", 1.0, one);
        }
    }
}

/// One more thread changes the address space, somewhere else.
pub fn beside(runs: &mut Runs, aims: &mut Aims) {
    let others = [
        ("maps", "maps and unmaps 16 MiB"),
        ("near", "maps and unmaps 16 MiB that adjoin those of the last"),
        ("unmaps", "maps, populates and unmaps 16 MiB"),
    ];
    for (other, does) in others {
        let aimed = other == "maps";
        for by in if aimed { &BOTH } else { deliveries(runs) } {
            let mut cases = runs.cases(&PATHS);
            if aimed {
                cases.extend(AIMED.into_iter().flat_map(|n| [(Way::OneLock, n), (Way::Backed, n)]));
            }
            let words = format!("--work touch --beside {other} --by {by}");
            let rounds = runs.rounds(other, &cases, ROUNDS, &words);
            let what = format!("the same, by {by}, while one more thread {does} without a pause");
            print("Beside changes", &what, "faults a second", &rounds);
            for threads in AIMED.into_iter().filter(|_| aimed) {
                let case = (Way::Speculative, threads);
                let title = |case| format!("{}, by {by}, beside one that maps and unmaps", name(case));
                let slower = speed(&rounds, case, (Way::Classic, threads)).map(Ratio::inverse);
                aims.at_most(&format!("{}: beside classic", title(case)), 1.02, slower);
                let backed = (Way::Backed, threads);
                let ratio = speed(&rounds, backed, (Way::OneLock, threads));
                aims.at_least(&format!("{}: beside one lock", title(backed)), 1.5, ratio);
                let title = title(case);
                let aimed = "aborts, aimed at 10 at most";
                match rounds.of(&case).and_then(|all| aborted(&ends(all))) {
                    Ok(given_up) => {
                        let line = format!("{title}: {given_up:.2} % {aimed}");
                        aims.counted(line, given_up, Aim::AtMost(10.0));
                    }
                    Err(verdict) => aims.without_figure(format!("{title}: ? {aimed}"), verdict),
                }
            }
        }
    }
}

/// What `ebizzy -m` does: each thread maps, uses and unmaps blocks, so that all change the address space all the time.
pub fn blocks(runs: &mut Runs) {
    for by in deliveries(runs) {
        let cases = runs.cases(&Way::ALL);
        let rounds = runs.rounds("blocks", &cases, ROUNDS / 2, &format!("--work blocks --by {by}"));
        let what = format!("threads map blocks of 512 KiB, use each page, unmap them; by {by}");
        print("Blocks", &what, "blocks a second", &rounds);
    }
}

/// A program that was not written for a bench.
pub fn store(runs: &mut Runs) {
    for by in deliveries(runs) {
        let cases = runs.cases(&Way::ALL);
        let rounds = runs.rounds("store", &cases, ROUNDS / 2, &format!("--work store --by {by}"));
        let what = format!(
            "threads load paths of this machine's files into a hash table each, which grows, and look for them; by {by}"
        );
        print("Store", &what, "keys a second", &rounds);
    }
}

/// The loops in which speculative faults lost 10 to 19 percent on two machines of 72 CPUs.
pub fn files(runs: &mut Runs, aims: &mut Aims) {
    let works = [
        ("anonymous", "page_fault1", ROUNDS, "anonymous memory"),
        ("private", "page_fault2", ROUNDS / 2, "a private mapping of a file"),
        (
            "shared",
            "page_fault3",
            ROUNDS / 2,
            "a shared mapping of a file; a region's is written back before it is unmapped",
        ),
    ];
    for (work, title, usual, what) in works {
        let cases = runs.cases(&Way::ALL);
        let rounds = runs.rounds(title, &cases, usual, &format!("--work {work}"));
        print(title, &format!("16 MiB mapped, each page written, unmapped; {what}"), "pages a second", &rounds);
        for threads in runs.threads() {
            let case = (Way::Speculative, threads);
            let slower = speed(&rounds, case, (Way::Classic, threads)).map(Ratio::inverse);
            aims.at_most(&format!("{title}, {} beside classic", name(case)), 1.02, slower);
        }
    }
}

/// What a region adds to the system calls that a fault takes anyway.
pub fn cost(runs: &mut Runs, aims: &mut Aims) {
    for window in [1, 64] {
        let cases = [1, 2].map(|threads| [Way::Speculative, Way::Bare].map(|way| (way, threads))).concat();
        let rounds = runs.rounds("cost", &cases, ROUNDS, &format!("--work touch --window {window}"));
        let what = format!(
            "as alone, {window} page(s) a fault; the other program makes the same system calls and nothing else"
        );
        print("Cost", &what, "pages a second", &rounds);
        let slower = speed(&rounds, (Way::Speculative, 1), (Way::Bare, 1)).map(Ratio::inverse);
        aims.at_most(&format!("faults of {window} page(s), beside their system calls alone"), 1.1, slower);
    }
}
