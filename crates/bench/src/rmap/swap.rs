//! A program whose working set is larger than its memory: a region with a budget beside the kernel's swap.

use std::process::Command;

use super::runs::{LIMIT, Runs, word};
use super::swap_file::SwapFile;
use crate::aims::Aims;
use crate::group::Group;
use crate::loops::{Swapped, Swapper, Uses};
use crate::measure::measure;
use crate::rule::{Aim, Found, Verdict};
use crate::table::{self, NOTHING};
use crate::turns::{Rounds, ratio};
use faultless_measure::paired::{Ratio, Spread, median};

const ROUNDS: usize = 6;
/// Bytes that may be in memory.
const BUDGET: u64 = 128 << 20;
const FULL: u64 = 1 << 30;
/// What the process of a region may have beside that: its heap, tables, and the room of handlers. The budget limits it.
const OF_PROCESS: u64 = 8 << 20;
/// The same of one that the kernel swaps. With that it has as much of the memory that is used as a region has.
const OF_KERNEL: u64 = 3 << 20;
/// The working set, in tenths of the budget.
const TENTHS: u64 = 12;
/// What a region takes beside its budget: stacks of its handlers, and memory for copies.
const OF_HANDLERS: u64 = 1 << 20;
/// The same for each page: a word.
const OF_PAGE: u64 = 8;
const PAGE: u64 = 4096;

const USES: [Uses; 3] = [Uses::Sequential, Uses::Random, Uses::Zipfian];
const KERNEL: [Swapper; 2] = [Swapper::Kernel, Swapper::KernelSmall];

/// What the kernel's rows need; each of it ends with this.
struct Limited {
    region: Group,
    kernel: Group,
    _swap: SwapFile,
}

impl Limited {
    fn group(&self, by: Swapper) -> &Group {
        if by == Swapper::Library { &self.region } else { &self.kernel }
    }
}

fn limit(runs: &Runs, budget: u64, size: u64) -> Result<Limited, String> {
    let _swap = SwapFile::on(&runs.context.dir, size)?;
    let group =
        |beside: u64| Group::new((budget + beside) as usize).map_err(|error| format!("no control group: {error}"));
    Ok(Limited { region: group(OF_PROCESS)?, kernel: group(OF_KERNEL)?, _swap })
}

/// One run, in the group if there is one.
fn once(command: &mut Command, group: Option<&Group>) -> Result<Swapped, String> {
    let mut inside = group.map(|group| group.enter(command));
    let command = inside.as_mut().unwrap_or(command);
    let used = measure(command.env_remove("LD_PRELOAD").env("LC_ALL", "C"), LIMIT)?;
    serde_json::from_str(used.output.trim()).map_err(|error| error.to_string())
}

/// Runs it and prints the tables.
pub fn tables(runs: &mut Runs, aims: &mut Aims) {
    let budget = if runs.context.full { FULL } else { runs.context.size(BUDGET) };
    let size = budget * TENTHS / 10;
    let limited = limit(runs, budget, size);
    let ways = match &limited {
        Ok(_) => [&[Swapper::Library], &KERNEL[..]].concat(),
        Err(why) => {
            println!("The kernel's swap: {why}.\n");
            vec![Swapper::Library]
        }
    };
    let (has, may) = (table::bytes(size as f64), table::bytes(budget as f64));
    println!(
        "**{has} are used**, of which {may} may be in memory. Every second use of a page writes to it. The kernel's swap \
         has a control group of {}, in which it has as much of them in memory as a region. All have their file in the same \
         folder\n",
        table::bytes((budget + OF_KERNEL) as f64)
    );
    let mut rows =
        table::new_table(&["uses, by", "time", "to the kernel's swap", "memory at most", "written", "read"]);
    let mut most = None;
    let mut verdicts = Vec::new();
    for uses in USES {
        let (own, dir) = (runs.context.own.clone(), runs.context.dir.clone());
        let run = |(_, by): (Uses, Swapper)| {
            let group = limited.as_ref().ok().map(|limited| limited.group(by));
            let mut command = Command::new(&own);
            command.args(["loop", "swap", "--by", &word(by), "--uses", &word(uses)]);
            command.args(["--budget", &budget.to_string(), "--size", &size.to_string(), "--dir"]).arg(&dir);
            once(&mut command, group)
        };
        let cases: Vec<_> = ways.iter().map(|by| (uses, *by)).collect();
        let rounds = runs.recorded("swap", (&cases, ROUNDS), |(_, by)| by.name().into(), run);
        for ((_, by), all) in &rounds {
            rows.add_row(row(uses, *by, all, beside(&rounds, (uses, *by), (uses, Swapper::Kernel)).ok()));
        }
        for kernel in KERNEL {
            let what = format!("{}: a region with a budget beside {}", uses.name(), kernel.name());
            let beside = match &limited {
                Ok(_) => beside(&rounds, (uses, Swapper::Library), (uses, kernel)),
                Err(why) => Err(Verdict::Unresolved(why.clone())),
            };
            verdicts.push((what, beside));
        }
        let resident = rounds.get(&(uses, Swapper::Library)).into_iter().flatten().map(|all| all.resident);
        most = most.max(resident.max());
    }
    println!("{rows}\n");
    for (what, beside) in verdicts {
        aims.at_most(&what, 1.0, beside);
    }
    let aimed = (budget + OF_HANDLERS + size / PAGE * OF_PAGE) as f64;
    let line = |most: String| {
        format!("memory of a region with a budget: {most}, aimed at {} at most", table::bytes(aimed))
    };
    match most {
        Some(most) => aims.counted(line(table::bytes(most as f64)), most as f64, Aim::AtMost(aimed)),
        None => aims.without_figure(line("?".into()), Verdict::Missed),
    }
}

fn beside(
    rounds: &Rounds<(Uses, Swapper), Swapped>,
    case: (Uses, Swapper),
    other: (Uses, Swapper),
) -> Found<Ratio> {
    ratio(rounds, &case, &other, |swapped: &Swapped| swapped.seconds)
}

fn row(uses: Uses, by: Swapper, all: &[Swapped], beside: Option<Ratio>) -> Vec<String> {
    let of = |figure: fn(&Swapped) -> f64| all.iter().map(figure).collect::<Vec<_>>();
    let bytes = |figure| table::bytes(median(&of(figure)).unwrap_or(0.0));
    let time = Spread::of(&of(|swapped| swapped.seconds)).map_or(NOTHING.into(), |time| {
        let [median, min, max] = [time.median, time.min, time.max].map(table::seconds);
        format!("{median} ({min}..{max})")
    });
    let resident = all.iter().map(|swapped| swapped.resident).max().unwrap_or(0);
    vec![
        format!("{}, {}", uses.name(), by.name()),
        time,
        beside.filter(|_| by != Swapper::Kernel).map_or(NOTHING.into(), |beside| table::interval(&beside)),
        table::bytes(resident as f64),
        bytes(|swapped| swapped.written as f64),
        bytes(|swapped| swapped.read as f64),
    ]
}
