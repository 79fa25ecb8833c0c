//! Tables of a file that is larger than the memory allowed.

use super::runs::Runs;
use crate::aims::Aims;
use crate::format;
use crate::loops::{Met, RECORD, Route, Work};
use crate::rule::{Aim, Found};
use crate::table::{self, NOTHING};
use crate::turns::{Rounds, ratio};
use faultless_measure::paired::{Ratio, median};

/// A route, and how many threads use it.
type Case = (Route, usize);
type All = Rounds<Case, Met>;

/// Rounds by default: as many as give an interval, and a few more.
const ROUNDS: usize = 9;

fn speed(rounds: &All, case: Case, other: Case) -> Found<Ratio> {
    ratio(rounds, &case, &other, |met| met.rate)
}

fn threads_of(threads: usize) -> String {
    format!("{threads} thread{}", if threads == 1 { "" } else { "s" })
}

/// Runs the cases in turns and prints them. The last columns compare with `usual` and `limit`, by as many threads where
/// there are such.
fn table(
    runs: &mut Runs,
    title: &str,
    work: Work,
    cases: &[Case],
    (usual, limit): (Route, Case),
    seconds: u64,
) -> Option<All> {
    let about = match runs.make_large() {
        Ok(about) => about,
        Err(error) => {
            println!("**{title}**: {error:#}\n");
            return None;
        }
    };
    let name = |(route, threads): Case| format!("{}, {}", route.name(work), threads_of(threads));
    let rounds = runs.turns(ROUNDS, seconds).run(cases, name, |case| runs.beyond(work, case));
    println!("**{title}** ({about}; medians)\n");
    let (to_usual, to_limit) = (format!("to {}", usual.name(work)), format!("to {}", limit.0.name(work)));
    let mut table = table::new_table(&["", "records a second", "MB/s", "memory", &to_usual, &to_limit, "rounds"]);
    for case in cases {
        let Some(all) = rounds.get(case) else { continue };
        let rate = median(&all.iter().map(|met| met.rate).collect::<Vec<_>>()).unwrap_or(0.0);
        let resident = all.iter().map(|met| met.resident).max().unwrap_or(0);
        let limit = if cases.contains(&(limit.0, case.1)) { (limit.0, case.1) } else { limit };
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
            to((usual, case.1)),
            to(limit),
            all.len().to_string(),
        ]);
    }
    println!("{table}\n");
    Some(rounds)
}

/// The memory that a route of the library took, beside what it may take.
fn aim_at_memory(runs: &Runs, aims: &mut Aims, work: Work, cases: &[Case], rounds: &All) {
    for case @ (route, threads) in cases.iter().filter(|(route, _)| route.is_library()) {
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
    let routes = [Plain, Advised, Direct, Ring, Calls, Signal, Thread];
    let cases: Vec<Case> = [1, 8].iter().flat_map(|threads| routes.map(|route| (route, *threads))).collect();
    let title = "Beyond memory: random reads of 4 KiB";
    let Some(rounds) = table(runs, title, Work::Random, &cases, (Advised, (Ring, 1)), 60) else { return };
    for (route, threads, least) in [(Signal, 1, 0.9), (Signal, 8, 0.95), (Thread, 1, 0.5), (Thread, 8, 0.5)] {
        let line =
            format!("random reads, {}, {}, beside MADV_RANDOM", route.name(Work::Random), threads_of(threads));
        let beside = speed(&rounds, (route, threads), (Advised, threads));
        aims.at_least(&line, least, runs.beside_page_cache(beside));
    }
    aim_at_memory(runs, aims, Work::Random, &cases, &rounds);
}

/// Lists that are known beforehand.
pub fn list(runs: &mut Runs, aims: &mut Aims) {
    use Route::*;
    let cases =
        [(Advised, 1), (Announced, 1), (Ring, 1), (Prefetched, 1), (Advised, 2), (Ring, 2), (Prefetched, 2)];
    let title = "Beyond memory: random reads of 4 KiB, in lists of 256 that are known beforehand";
    let Some(rounds) = table(runs, title, Work::List, &cases, (Advised, (Ring, 1)), 40) else { return };
    for threads in [1, 2] {
        let line = format!("lists, {}", threads_of(threads));
        let ours = (Prefetched, threads);
        let beside = runs.beside_page_cache(speed(&rounds, ours, (Advised, threads)));
        aims.at_least(&format!("{line}, beside MADV_RANDOM"), 5.0, beside);
        aims.at_least(&format!("{line}, beside io_uring"), 0.8, speed(&rounds, ours, (Ring, threads)));
    }
    aim_at_memory(runs, aims, Work::List, &cases, &rounds);
}

/// The file in its order.
pub fn sequential(runs: &mut Runs, aims: &mut Aims) {
    use Route::*;
    let cases = [Plain, Advised, Direct, Ring, Calls, Signal, Thread].map(|route| (route, 1));
    let title = "Beyond memory: all records in their order, once";
    let Some(rounds) = table(runs, title, Work::Sequential, &cases, (Advised, (Ring, 1)), 20) else { return };
    aims.at_least("in order, by calls, beside io_uring", 0.95, speed(&rounds, (Calls, 1), (Ring, 1)));
    aim_at_memory(runs, aims, Work::Sequential, &cases, &rounds);
}

/// Records of which a few are read often.
pub fn zipfian(runs: &mut Runs, aims: &mut Aims) {
    use Route::*;
    let cases = [Plain, Advised, Direct, Calls, Signal, Thread].map(|route| (route, 1));
    let title = "Beyond memory: reads of 4 KiB, a few records often (Zipf, 0.99), after a while";
    let Some(rounds) = table(runs, title, Work::Zipfian, &cases, (Advised, (Direct, 1)), 35) else { return };
    aim_at_memory(runs, aims, Work::Zipfian, &cases, &rounds);
}

/// Parts of 2 MiB in random order.
pub fn large(runs: &mut Runs, aims: &mut Aims) {
    use Route::*;
    let cases = [Plain, Advised, Announced, Direct, Ring, Calls, Signal, Thread].map(|route| (route, 1));
    let title = "Beyond memory: random parts of 2 MiB, all records of each";
    let Some(rounds) = table(runs, title, Work::Large, &cases, (Announced, (Ring, 1)), 20) else { return };
    aim_at_memory(runs, aims, Work::Large, &cases, &rounds);
}

/// Records in random order, each changed.
pub fn writes(runs: &mut Runs) {
    use Route::*;
    let cases = [Advised, Direct, Calls, Signal, Thread].map(|route| (route, 1));
    let title = "Beyond memory: records in random order read and changed, durable at the end";
    table(runs, title, Work::Writes, &cases, (Advised, (Direct, 1)), 40);
}
