//! Tables of files that are in memory.

use super::runs::Runs;
use crate::aims::Aims;
use crate::format;
use crate::loops::{CacheWay as Way, Set, Timed};
use crate::read_ahead::Ahead;
use crate::rule::Found;
use crate::table::{self, NOTHING};
use crate::turns::{Rounds, ratio};
use faultless_measure::paired::{Ratio, median};

/// A way, how many threads use it, and the device's read-ahead.
type Case = (Way, usize, Ahead);

/// The thread counts of 2013.
const THREADS: [usize; 15] = [1, 2, 4, 8, 10, 20, 30, 40, 50, 60, 70, 80, 120, 160, 200];
const FEW: [usize; 4] = [1, 2, 8, 64];

fn name((way, threads, ahead): Case) -> String {
    format!("{}{}, {threads} thread{}", way.name(), ahead.note(), if threads == 1 { "" } else { "s" })
}

/// How many times faster one case was in a test.
fn speed(rounds: &Rounds<Case, Vec<Timed>>, test: usize, case: Case, other: Case) -> Found<Ratio> {
    ratio(rounds, &case, &other, |tests| tests[test].seconds).map(Ratio::inverse)
}

/// The median of a test; none of a flush where there is no device.
fn middle(rounds: &Rounds<Case, Vec<Timed>>, case: Case, test: usize) -> Option<f64> {
    let all = rounds.get(&case)?;
    if case.0 == Way::Tmpfs && all.first()?[test].test.starts_with("flush") {
        return None;
    }
    median(&all.iter().map(|tests| tests[test].seconds).collect::<Vec<_>>())
}

/// What a cell says that may have nothing to say.
fn or_nothing(text: Option<String>) -> String {
    text.unwrap_or_else(|| NOTHING.into())
}

/// First touches, and what is already mapped.
pub fn first(runs: &mut Runs, aims: &mut Aims) {
    let size = runs.context.size(512 << 20) as usize;
    let mut cases = Way::ALL.map(|way| (way, 1, Ahead::Found)).to_vec();
    // A fault of the kernel's mapping brings as much as is read ahead, also of a file that is empty yet.
    cases.extend(runs.aheads()[1..].iter().map(|ahead| (Way::Kernel, 1, *ahead)));
    let rounds = runs.turns(9, 45).run(&cases, name, |case| runs.inside(Set::First, case, size, true));
    println!(
        "**First touches** ({} in records of 4 KiB, mapped, 1 thread; medians; huge pages of faultless are made before \
         the first row)\n",
        format::bytes(size as f64)
    );
    let (ours, kernel) = ((Way::Huge, 1, Ahead::Found), (Way::Kernel, 1, Ahead::Found));
    let others: Vec<Case> = cases.iter().copied().filter(|case| !case.0.is_library()).collect();
    let mut heads = vec![String::new()];
    heads.extend(cases.iter().map(|(way, _, ahead)| format!("{}{}", way.name(), ahead.note())));
    heads.extend(others.iter().map(|(way, _, ahead)| format!("huge pages to {}{}", way.name(), ahead.note())));
    heads.push("rounds".into());
    let mut table = table::new_table(&heads.iter().map(String::as_str).collect::<Vec<_>>());
    for (test, title) in Set::First.tests().into_iter().enumerate() {
        let mut cells = vec![title.to_owned()];
        cells.extend(cases.iter().map(|case| or_nothing(middle(&rounds, *case, test).map(format::seconds))));
        for other in &others {
            let speed = middle(&rounds, *other, test).and_then(|_| speed(&rounds, test, ours, *other).ok());
            cells.push(or_nothing(speed.map(|speed| format::interval(&speed))));
        }
        cells.push(rounds.get(&ours).map_or(0, Vec::len).to_string());
        table.add_row(cells);
    }
    println!("{table}\n");
    let aimed = [(0, 5.0), (2, 1.8), (4, 1.25), (5, 0.98), (6, 1.3), (7, 0.98)];
    for (test, least) in aimed {
        let title = format!("{}, beside the kernel", Set::First.tests()[test]);
        aims.at_least(&title, least, speed(&rounds, test, ours, kernel));
    }
}

/// IOzone's tests, mapped.
pub fn mapped(runs: &mut Runs, aims: &mut Aims) {
    iozone(runs, aims, Set::Mapped, "mapped");
}

/// IOzone's tests by calls.
pub fn calls(runs: &mut Runs, aims: &mut Aims) {
    iozone(runs, aims, Set::Calls, "by calls");
}

fn iozone(runs: &mut Runs, aims: &mut Aims, set: Set, by: &str) {
    let size = if runs.context.full { 8 << 30 } else { runs.context.size(256 << 20) as usize };
    let threads: &[usize] = match (runs.context.full, runs.context.quick) {
        (true, _) => &THREADS,
        (_, true) => &FEW[..2],
        _ => &FEW,
    };
    let case = |way: Way, threads: usize| (way, threads, Ahead::Found);
    let cases: Vec<Case> = threads.iter().flat_map(|threads| Way::ALL.map(|way| case(way, *threads))).collect();
    let rounds = runs.turns(7, 55).run(&cases, name, |case| runs.inside(set, case, size, true));
    let bytes = format::bytes(size as f64);
    println!(
        "**IOzone's tests, {by}** ({bytes} in all, a file for each thread, records of 4 KiB; KB/s, medians)\n"
    );
    let mut heads = vec!["".to_owned(), "".to_owned()];
    heads
        .extend(threads.iter().map(|threads| format!("{threads} thread{}", if *threads == 1 { "" } else { "s" })));
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let mut table = table::new_table(&heads);
    for (test, title) in set.tests().into_iter().enumerate() {
        for way in Way::ALL {
            let mut cells = vec![title.to_owned(), way.name().to_owned()];
            cells.extend(threads.iter().map(|threads| {
                let seconds = middle(&rounds, case(way, *threads), test);
                or_nothing(seconds.map(|seconds| format!("{:.0}", size as f64 / 1024.0 / seconds)))
            }));
            table.add_row(cells);
        }
        let ratios = threads
            .iter()
            .map(|threads| speed(&rounds, test, case(Way::Huge, *threads), case(Way::Kernel, *threads)));
        let mut cells = vec![title.to_owned(), "huge pages to kernel".to_owned()];
        cells.extend(ratios.clone().map(|ratio| or_nothing(ratio.ok().map(|ratio| format::interval(&ratio)))));
        table.add_row(cells);
        if title.starts_with("flush") {
            continue;
        }
        for (threads, ratio) in threads.iter().zip(ratios) {
            aims.at_least(
                &format!("{title} {by}, {}, beside the kernel", name(case(Way::Huge, *threads))),
                1.0,
                ratio,
            );
        }
    }
    println!("{table}\n");
    println!("{} rounds.\n", rounds.values().map(Vec::len).max().unwrap_or(0));
}
