//! Tables of a file that is larger than the memory allowed.

use super::runs::Runs;
use crate::aims::Aims;
use crate::format;
use crate::loops::{Met, RECORD, Route, Work};
use crate::read_ahead::Ahead;
use crate::rule::{Aim, Found};
use crate::table::{self, NOTHING};
use crate::turns::{Rounds, ratio};
use faultless_measure::paired::{Ratio, median};

/// A route, how many threads use it, and the device's read-ahead.
type Case = (Route, usize, Ahead);
type All = Rounds<Case, Met>;

/// Rounds by default: as many as give an interval, and a few more.
const ROUNDS: usize = 9;

fn speed(rounds: &All, case: Case, other: Case) -> Found<Ratio> {
    ratio(rounds, &case, &other, |met| met.rate)
}

/// With the device's read-ahead.
fn found((route, threads): (Route, usize)) -> Case {
    (route, threads, Ahead::Found)
}

fn threads_of(threads: usize) -> String {
    format!("{threads} thread{}", if threads == 1 { "" } else { "s" })
}

/// Cases of one thread: routes with the device's read-ahead, and then those that depend on it with the usual one.
fn alone(runs: &Runs, routes: &[Route], dependent: &[Route]) -> Vec<Case> {
    let case = |ahead: Ahead| move |route: &Route| (*route, 1, ahead);
    let usual = runs.aheads()[1..].iter().flat_map(|ahead| dependent.iter().map(case(*ahead)));
    routes.iter().map(case(Ahead::Found)).chain(usual).collect()
}

/// Runs the cases in turns and prints them. The last columns compare with `usual` and `limit`, by as many threads where
/// there are such.
fn table(
    runs: &mut Runs,
    title: &str,
    work: Work,
    cases: &[Case],
    (usual, limit): (Route, (Route, usize)),
    seconds: u64,
) -> Option<All> {
    let about = match runs.make_large() {
        Ok(about) => about,
        Err(error) => {
            println!("**{title}**: {error:#}\n");
            return None;
        }
    };
    let name =
        |(route, threads, ahead): Case| format!("{}{}, {}", route.name(work), ahead.note(), threads_of(threads));
    let rounds = runs.turns(ROUNDS, seconds).run(cases, name, |case| runs.beyond(work, case));
    println!("**{title}** ({about}; medians)\n");
    let (to_usual, to_limit) = (format!("to {}", usual.name(work)), format!("to {}", limit.0.name(work)));
    let mut table = table::new_table(&["", "records a second", "MB/s", "memory", &to_usual, &to_limit, "rounds"]);
    for case in cases {
        let Some(all) = rounds.get(case) else { continue };
        let rate = median(&all.iter().map(|met| met.rate).collect::<Vec<_>>()).unwrap_or(0.0);
        let resident = all.iter().map(|met| met.resident).max().unwrap_or(0);
        let [usual, same, limit] = [(usual, case.1), (limit.0, case.1), limit].map(found);
        let limit = if cases.contains(&same) { same } else { limit };
        let to = |other: Case| {
            let ratio = (other != *case).then(|| speed(&rounds, *case, other).ok()).flatten();
            ratio.map_or(NOTHING.into(), |ratio| format::interval(&ratio))
        };
        table.add_row([
            name(*case),
            format!("{rate:.0}"),
            format!("{:.0}", rate * RECORD as f64 / 1e6),
            match case.0.is_library() {
                true => format::bytes(resident as f64),
                false => NOTHING.into(),
            },
            to(usual),
            to(limit),
            all.len().to_string(),
        ]);
    }
    println!("{table}\n");
    Some(rounds)
}

/// The memory that a route of the library took, beside what it may take.
fn aim_at_memory(runs: &Runs, aims: &mut Aims, work: Work, cases: &[Case], rounds: &All) {
    for case @ (route, threads, _) in cases.iter().filter(|(route, ..)| route.is_library()) {
        let most = (runs.large().1 + threads * (2 << 20)) as f64;
        let title = format!("{}, {}, {work:?}", route.name(work), threads_of(*threads)).to_lowercase();
        let line = |resident| format!("memory of {title}: {resident}, aimed at {} at most", format::bytes(most));
        match rounds.of(case) {
            Ok(all) => {
                let resident = all.iter().map(|met| met.resident).max().unwrap_or(0) as f64;
                aims.counted(line(format::bytes(resident)), resident, Aim::AtMost(most));
            }
            Err(verdict) => aims.without_figure(line("?".into()), verdict),
        }
    }
}

/// Records in random order.
pub fn random(runs: &mut Runs, aims: &mut Aims) {
    use Route::*;
    let routes = [Plain, Advised, Direct, Ring, Umap, Calls, Signal, Thread];
    let mut cases = alone(runs, &routes, &[Plain]);
    cases.extend(routes.map(|route| found((route, 8))));
    let title = "Beyond memory: random reads of 4 KiB";
    let Some(rounds) = table(runs, title, Work::Random, &cases, (Advised, (Ring, 1)), 60) else { return };
    for (route, threads, least) in [(Signal, 1, 0.9), (Signal, 8, 0.95), (Thread, 1, 0.5), (Thread, 8, 0.5)] {
        let line =
            format!("random reads, {}, {}, beside MADV_RANDOM", route.name(Work::Random), threads_of(threads));
        let beside = speed(&rounds, found((route, threads)), found((Advised, threads)));
        aims.at_least(&line, least, runs.beside_page_cache(beside));
    }
    aim_at_memory(runs, aims, Work::Random, &cases, &rounds);
}

/// Lists that are known beforehand.
pub fn list(runs: &mut Runs, aims: &mut Aims) {
    use Route::*;
    let cases =
        [(Advised, 1), (Announced, 1), (Ring, 1), (Prefetched, 1), (Advised, 2), (Ring, 2), (Prefetched, 2)];
    let cases = cases.map(found);
    let title = "Beyond memory: random reads of 4 KiB, in lists of 256 that are known beforehand";
    let Some(rounds) = table(runs, title, Work::List, &cases, (Advised, (Ring, 1)), 35) else { return };
    for threads in [1, 2] {
        let line = format!("lists, {}", threads_of(threads));
        let ours = found((Prefetched, threads));
        let beside = runs.beside_page_cache(speed(&rounds, ours, found((Advised, threads))));
        aims.at_least(&format!("{line}, beside MADV_RANDOM"), 5.0, beside);
        aims.at_least(&format!("{line}, beside io_uring"), 0.8, speed(&rounds, ours, found((Ring, threads))));
    }
    aim_at_memory(runs, aims, Work::List, &cases, &rounds);
}

/// The file in its order.
pub fn sequential(runs: &mut Runs, aims: &mut Aims) {
    use Route::*;
    let cases = alone(runs, &[Plain, Advised, Direct, Ring, Umap, Calls, Signal, Thread], &[Plain, Advised]);
    let title = "Beyond memory: all records in their order, once";
    let Some(rounds) = table(runs, title, Work::Sequential, &cases, (Advised, (Ring, 1)), 20) else { return };
    aims.at_least(
        "in order, by calls, beside io_uring",
        0.95,
        speed(&rounds, found((Calls, 1)), found((Ring, 1))),
    );
    aim_at_memory(runs, aims, Work::Sequential, &cases, &rounds);
}

/// Records of which a few are read often.
pub fn zipfian(runs: &mut Runs, aims: &mut Aims) {
    use Route::*;
    let cases = alone(runs, &[Plain, Advised, Direct, Umap, Calls, Signal, Thread], &[Plain]);
    let title = "Beyond memory: reads of 4 KiB, a few records often (Zipf, 0.99), after a while";
    let Some(rounds) = table(runs, title, Work::Zipfian, &cases, (Advised, (Direct, 1)), 30) else { return };
    aim_at_memory(runs, aims, Work::Zipfian, &cases, &rounds);
}

/// Parts of 2 MiB in random order.
pub fn large(runs: &mut Runs, aims: &mut Aims) {
    use Route::*;
    let routes = [Plain, Advised, Announced, Direct, Ring, Umap, Calls, Signal, Thread];
    let cases = alone(runs, &routes, &[Plain, Announced]);
    let title = "Beyond memory: random parts of 2 MiB, all records of each";
    let Some(rounds) = table(runs, title, Work::Large, &cases, (Announced, (Ring, 1)), 20) else { return };
    aim_at_memory(runs, aims, Work::Large, &cases, &rounds);
}

/// Records in random order, each changed.
pub fn writes(runs: &mut Runs) {
    use Route::*;
    let cases = alone(runs, &[Advised, Direct, Umap, Calls, Signal, Thread], &[]);
    let title = "Beyond memory: records in random order read and changed, durable at the end";
    table(runs, title, Work::Writes, &cases, (Advised, (Direct, 1)), 30);
}
