//! What the scrubber costs a program that keeps another CPU busy.

use std::process::{Child, Command, Stdio};

use faultless_page::stats::Counter;

use super::runs::{Runs, Way};
use crate::aims::Aims;
use crate::loops::Steps;
use crate::table;
use faultless_measure::paired::{Ratio, median};

/// Pairs of runs, by default.
const PAIRS: usize = 20;
/// How long each is.
const SECONDS: f64 = 1.0;

/// One program gives 64 MiB back twenty times a second; beside it another one computes. In turns the memory is zeroed in
/// the background and, by the program itself, when it is handed out.
pub fn table(runs: &mut Runs, aims: &mut Aims) {
    let n = if runs.context.full { 3 * PAIRS } else { PAIRS };
    let (pairs, seconds) = if runs.context.quick { (2, 0.1) } else { (n, SECONDS) };
    let mut steps: Vec<(f64, f64)> = Vec::new();
    let mut misses: [Vec<f64>; 2] = Default::default();
    let (mut zeroed, mut ns) = (0, 0);
    for pair in 0..pairs {
        if pair > 0 && runs.is_late() {
            break;
        }
        let mut with_without = [0.0; 2];
        for turn in 0..2 {
            let scrubs = (turn + pair) % 2 == 0;
            match beside(runs, scrubs, seconds) {
                Ok((step, counted)) => {
                    with_without[usize::from(!scrubs)] = step.cost;
                    misses[usize::from(!scrubs)].extend(step.misses);
                    if scrubs {
                        zeroed += counted[0];
                        ns += counted[1];
                    }
                }
                Err(error) => return println!("**Neighbour**: {error}\n"),
            }
        }
        steps.push((with_without[0], with_without[1]));
    }
    let (pairs, ratio) = (steps.len(), Ratio::of(&steps));
    runs.keep("neighbour", &Figures { seconds, steps: &steps, misses: &misses, zeroed, ns, ratio });
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
    aims.at_most("a busy neighbour while the scrubber works", 1.02, ratio);
    if zeroed == 0 {
        aims.failed("the scrubber worked beside it");
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
fn beside(runs: &mut Runs, scrubs: bool, seconds: f64) -> Result<(Steps, [u64; 2]), String> {
    let longer = seconds + 0.3;
    let mut child = Command::new(&runs.context.own)
        .args(["loop", "neighbour", "--seconds", &seconds.to_string()])
        .env_remove("LD_PRELOAD")
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let size = runs.context.size(64 << 20);
    let launch = runs.looping(&format!("releases --size {size} --rest 50 --seconds {longer}"));
    let way = if scrubs { Way::Faultless } else { Way::Hot };
    let beside = runs.sample(&launch, way);
    let steps = steps(&mut child);
    let (_, counters) = beside?;
    let counted = [Counter::BytesScrubbed, Counter::ScrubNs].map(|counter| counters.get(counter));
    if scrubs {
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
