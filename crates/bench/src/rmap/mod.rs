//! `faultless bench rmap`: what it costs to keep a moment of memory. Owners of pages that are computed are measured
//! beside lists of them, which kernels once kept for each page, and beside fork.

mod forks;
mod reclaim;
mod redis;
mod runs;
mod storms;
mod swap;
mod swap_file;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::ValueEnum;

use super::aims::Aims;
use super::loops::{Kept, Pages, RmapWay as Way};
use super::parts::{self, Session};
use super::plan;
use super::plot::{self, Chart};
use super::table;
use super::turns::{Rounds, ratio};
use faultless_measure::paired::{Ratio, Spread, median};
use runs::{Case, Runs};

/// Options of `faultless bench rmap`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    parts: parts::Options<Part>,
    /// Draws the time of a snapshot over the size of the memory into this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Ten shells at a time fork and exit: plain, beside an empty library, and under `faultless run`. With --full each of
    /// them 500 times, otherwise 100.
    Forks,
    /// A moment of memory that is there is kept; with --full of 4 GiB, too.
    Snapshots,
    /// Memory is saved to a file while a thread writes to it; and redis saves as much while a client writes.
    Save,
    /// Snapshots without a pause, of memory of 1, 64 and 4096 areas that come and go.
    Storms,
    /// Pages go that 1, 2, 10 and 1000 areas map.
    Reclaim,
    /// A program uses 1.2 times the memory that it may have: a region with a budget, and the kernel's swap. For the
    /// latter the bench gives the kernel a file to swap to, which takes root.
    Swap,
}

const ROUNDS: usize = 7;
const SAVES: usize = 5;
/// Rounds of redis, which is filled anew for each.
const FILLS: usize = 3;
const MIB: f64 = 1_048_576.0;
/// Aims are for memory from this size on: a call of the kernel costs more than what it does to less.
const SMALLEST: u64 = 256 << 20;

/// Runs the parts and prints the tables.
pub fn main(args: &Args) -> Result<()> {
    let session = Session::begin()?;
    let mut runs = Runs::new(args.parts.context(&session, plan::PYTHON)?, session.dir.path());
    parts::try_open(&[args.svg.as_deref()])?;
    session.introduce(&[]);
    let aims = args.parts.run(&session, |part, aims| match part {
        Part::Forks => forks::tables(&mut runs, aims),
        Part::Snapshots => snapshots(&mut runs, aims),
        Part::Save => save(&mut runs, aims),
        Part::Storms => storms::table(&mut runs, aims),
        Part::Reclaim => reclaim::tables(&mut runs, aims),
        Part::Swap => swap::tables(&mut runs, aims),
    });
    args.parts.close(&session, &aims, || runs.json(&session.machine))?;
    args.svg.as_ref().map_or(Ok(()), |path| parts::save(path, &plot(&runs)?))
}

/// The time of a moment over the size of the memory.
fn plot(runs: &Runs) -> Result<String> {
    ensure!(!runs.taken.is_empty(), "there is nothing to draw: --svg is for the part snapshots");
    let points = |taken: &[(u64, f64)]| taken.iter().map(|(bytes, s)| (*bytes as f64 / MIB, s * 1e6)).collect();
    let lines: Vec<_> = runs.taken.iter().map(|(case, taken)| (runs::name(*case), points(taken))).collect();
    let sizes = runs.sizes().into_iter().map(|bytes| bytes as f64 / MIB);
    let (least, most) = sizes.fold((f64::MAX, 0_f64), |(low, high), size| (low.min(size), high.max(size)));
    plot::svg(&[Chart {
        title: "A moment of memory is kept",
        x: "MiB of memory",
        y: "microseconds",
        across: least..most,
        lines,
        circles: None,
    }])
}

fn median_of(all: &[Kept], figure: impl Fn(&Kept) -> f64) -> f64 {
    median(&all.iter().map(figure).collect::<Vec<_>>()).unwrap_or(0.0)
}

fn snapshots(runs: &mut Runs, aims: &mut Aims) {
    for size in runs.sizes() {
        let cases =
            [Pages::Huge, Pages::Small].map(|pages| [Way::Lazy, Way::Eager, Way::Fork].map(|way| (way, pages)));
        let rounds = runs.rounds("snapshots", &cases.concat(), ROUNDS, size, false);
        println!(
            "**A moment of {}** that are there is kept, and let go: after a write to each page, and again\n",
            table::bytes(size as f64)
        );
        let header =
            ["", "taken", "each 2 MiB", "taken again", "let go", "owners added", "removed", "locks taken"];
        let mut rows = table::new_table(&header);
        for (case, all) in &rounds {
            let Some(taken) = Spread::of(&all.iter().map(|kept| kept.taken).collect::<Vec<_>>()) else { continue };
            runs.taken.entry(*case).or_default().push((size, taken.median));
            let chains = all[0].chains;
            rows.add_row([
                runs::name(*case),
                format!(
                    "{} ({}..{})",
                    table::seconds(taken.median),
                    table::seconds(taken.min),
                    table::seconds(taken.max)
                ),
                table::seconds(taken.median / (size as f64 / f64::from(2 << 20))),
                table::seconds(median_of(all, |kept| kept.again)),
                table::seconds(median_of(all, |kept| kept.dropped)),
                chains.added.iter().sum::<u64>().to_string(),
                chains.removed.iter().sum::<u64>().to_string(),
                chains.locked.to_string(),
            ]);
        }
        println!("{rows}\n");
        if size < runs.context.size(SMALLEST) {
            continue;
        }
        let of = table::bytes(size as f64);
        let slots = size as f64 / f64::from(2 << 20);
        let each =
            rounds.of(&(Way::Lazy, Pages::Huge)).map(|all| all.iter().map(|kept| kept.taken / slots).collect());
        aims.seconds(&format!("a snapshot of {of} in huge pages, for each 2 MiB"), 200e-9, each);
        let beside = |way: Case, other: Case| ratio(&rounds, &way, &other, |kept: &Kept| kept.taken);
        let huge = (Way::Lazy, Pages::Huge);
        let what = format!("a snapshot of {of} in huge pages, beside fork of as much in 4 KiB pages");
        aims.at_least(&what, 100.0, beside(huge, (Way::Fork, Pages::Small)).map(Ratio::inverse));
        let what = format!("the same, beside lists of owners of {of}");
        aims.at_least(&what, 1000.0, beside(huge, (Way::Eager, Pages::Huge)).map(Ratio::inverse));
        let small = (Way::Lazy, Pages::Small);
        let what = format!("a snapshot of {of} in 4 KiB pages, beside fork of the same");
        aims.at_most(&what, 1.0, beside(small, (Way::Fork, Pages::Small)));
    }
}

/// A row of the table of saves.
fn saved(name: String, all: &[Kept]) -> Vec<String> {
    let mut cells = vec![name];
    cells.extend([
        table::seconds(median_of(all, |kept| kept.taken)),
        table::seconds(median_of(all, |kept| kept.saved)),
    ]);
    cells.extend((0..4).map(|i| table::seconds(median_of(all, |kept| kept.writes[i]))));
    let rate = median_of(all, |kept| kept.count as f64 / if kept.saved > 0.0 { kept.saved } else { 1.0 });
    cells.push(format!("{rate:.0}"));
    cells.push(format!("{:.0}", median_of(all, |kept| kept.faults as f64)));
    cells.push(table::bytes(median_of(all, |kept| kept.copied as f64)));
    cells
}

/// The same of redis, of which a write is a command of a client.
fn redis_saves(runs: &mut Runs, size: u64) -> Vec<(&'static str, Vec<Kept>)> {
    let program = match redis::program() {
        Ok(program) => program,
        Err(why) => {
            println!("No redis: {why}.\n");
            return Vec::new();
        }
    };
    let dir = runs.context.dir.clone();
    let once = |()| redis::once(&program, &dir, size);
    let rounds = runs.recorded("redis", (&[()], FILLS), |()| "redis".into(), once);
    let all = rounds.get(&()).map_or(&[][..], Vec::as_slice);
    let of = |which: usize| all.iter().map(|both| both[which].clone()).collect::<Vec<_>>();
    match all.is_empty() {
        true => Vec::new(),
        false => vec![("redis: commands alone", of(0)), ("redis: commands beside BGSAVE", of(1))],
    }
}

fn save(runs: &mut Runs, aims: &mut Aims) {
    let size = runs.context.size(2 << 30);
    let ways =
        [(Way::Lazy, Pages::Huge), (Way::Lazy, Pages::Small), (Way::Fork, Pages::Huge), (Way::Fork, Pages::Small)];
    let cases = [&ways[..], &[(Way::Alone, Pages::Huge)]].concat();
    let rounds: Rounds<Case, Kept> = runs.rounds("save", &cases, SAVES, size, true);
    println!(
        "**{} are saved** (to a file, with fsync) while a thread writes to pages of it in a random order, without a pause\n",
        table::bytes(size as f64)
    );
    let header = [
        "",
        "taken",
        "save",
        "a write: median",
        "1 in 100",
        "1 in 1000",
        "longest",
        "writes a second",
        "waited",
        "copied",
    ];
    let mut rows = table::new_table(&header);
    for (case, all) in &rounds {
        rows.add_row(saved(runs::name(*case), all));
    }
    for (name, all) in redis_saves(runs, size) {
        rows.add_row(saved(name.into(), &all));
    }
    println!("{rows}\n");
    for pages in [Pages::Huge, Pages::Small] {
        let case = (Way::Lazy, pages);
        let stalls = rounds.of(&case).map(|all| all.iter().map(|kept| kept.writes[2]).collect());
        let what = format!("{}: what one write in 1000 takes beside the save, or more", runs::name(case));
        aims.seconds(&what, 1e-3, stalls);
        let longest = ratio(&rounds, &case, &(Way::Fork, pages), |kept: &Kept| kept.writes[3]);
        aims.at_most(&format!("{}: the longest write, beside fork", runs::name(case)), 1.0, longest);
        let saved = ratio(&rounds, &case, &(Way::Fork, pages), |kept: &Kept| kept.saved);
        aims.at_most(&format!("{}: the save, beside fork", runs::name(case)), 1.0, saved);
    }
}
