//! What the scrubber costs a program that keeps another CPU busy.

use std::process::{Child, Command, Stdio};

use faultless_page::stats::Counter;

use super::runs::{Runs, Way};
use crate::aims::Aims;
use crate::loops::Steps;
use crate::process;
use crate::rule::Verdict;
use crate::table;
use crate::turns::{Turns, ratio};
use faultless_measure::paired::{Ratio, median};

/// Pairs of runs, by default.
const PAIRS: usize = 20;
/// How long each is.
const SECONDS: f64 = 1.0;
const WAYS: [Way; 2] = [Way::Faultless, Way::Hot];

/// One program gives 64 MiB back twenty times a second; beside it another one computes. In turns the memory is zeroed in
/// the background and, by the program itself, when it is handed out.
pub fn table(runs: &mut Runs, aims: &mut Aims) {
    let n = if runs.context.full { 3 * PAIRS } else { PAIRS };
    let (rounds, seconds) = if runs.context.quick { (2, 0.1) } else { (n, SECONDS) };
    let turns = Turns { rounds, deadline: runs.deadline() };
    let rounds = turns.run(&WAYS, |way| format!("Neighbour, {}", way.name()), |way| beside(runs, way, seconds));
    let of = |way| rounds.get(&way).map_or(&[][..], Vec::as_slice);
    let [with, without] = WAYS.map(of);
    let steps: Vec<_> = with.iter().zip(without).map(|(with, without)| (with.0.cost, without.0.cost)).collect();
    let misses = [with, without].map(|all| all.iter().filter_map(|(step, _)| step.misses).collect::<Vec<f64>>());
    let counted = |what: usize| with.iter().map(|(_, counted)| counted[what]).sum::<u64>();
    let (pairs, zeroed, ns) = (steps.len(), counted(0), counted(1));
    let slower = ratio(&rounds, &Way::Faultless, &Way::Hot, |(step, _)| step.cost);
    let kept = slower.as_ref().ok().copied();
    runs.keep("neighbour", &Figures { seconds, steps: &steps, misses: &misses, zeroed, ns, ratio: kept });
    aims.at_most("a busy neighbour while the scrubber works", 1.02, slower);
    if pairs == 0 {
        return;
    }
    let middle = |figures: Vec<f64>| median(&figures).unwrap_or(0.0);
    println!("**Neighbour** (a step of a program that computes on another CPU; {pairs} pairs of {seconds} s)\n");
    // Not every machine counts them.
    let [missed_with, missed_without] = misses
        .each_ref()
        .map(|misses| median(misses).map_or("not counted".into(), |misses| format!("{misses:.4}")));
    println!("| | step | its cache misses | zeroed in the background | processor time of that |");
    println!("|---|---|---|---|---|");
    let total = pairs as f64 * seconds;
    println!(
        "| with a scrubber | {} | {missed_with} | {} a second | {:.2} % |",
        table::seconds(middle(steps.iter().map(|(with, _)| *with).collect())),
        table::bytes(zeroed as f64 / total),
        ns as f64 / 1e7 / total,
    );
    let without = middle(steps.iter().map(|(_, without)| *without).collect());
    println!("| scrub=0 | {} | {missed_without} | – | – |\n", table::seconds(without));
    if zeroed == 0 {
        aims.without_figure("the scrubber worked beside it", Verdict::Missed);
    }
}

/// All of it, for the file of figures.
#[derive(serde::Serialize)]
struct Figures<'a> {
    /// Of each run.
    seconds: f64,
    /// Seconds of a step, in pairs: with a scrubber, and without.
    steps: &'a [(f64, f64)],
    /// Cache misses of a step, with a scrubber and without, of each run on a machine that counts them.
    misses: &'a [Vec<f64>; 2],
    /// Bytes zeroed in the background in all runs, and nanoseconds that took.
    zeroed: u64,
    ns: u64,
    /// How many times as long a step takes with a scrubber.
    ratio: Option<Ratio>,
}

/// The steps of the neighbour, and what the scrubber counted beside it: bytes and ns.
fn beside(runs: &mut Runs, way: Way, seconds: f64) -> Result<(Steps, [u64; 2]), String> {
    let longer = seconds + 0.3;
    let mut command = Command::new(&runs.context.own);
    command.args(["loop", "neighbour", "--seconds", &seconds.to_string()]);
    command.env_remove("LD_PRELOAD").stdout(Stdio::piped());
    process::tie(&mut command);
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let size = runs.context.size(64 << 20);
    let launch = runs.looping(&format!("releases --size {size} --rest 50 --seconds {longer}"));
    let beside = runs.sample(&launch, way);
    let steps = steps(&mut child);
    let (_, counters) = beside?;
    let counted = [Counter::BytesScrubbed, Counter::ScrubNs].map(|counter| counters.get(counter));
    if way == Way::Faultless {
        runs.note_scrubbing("neighbour", counters);
    }
    Ok((steps?, counted))
}

fn steps(child: &mut Child) -> Result<Steps, String> {
    let text = child.stdout.take().map(std::io::read_to_string);
    let status = child.wait().map_err(|error| error.to_string())?;
    let text = text.and_then(Result::ok).unwrap_or_default();
    serde_json::from_str(text.trim()).map_err(|error| format!("{status}: {error}"))
}
