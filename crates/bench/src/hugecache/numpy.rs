//! Tables of NumPy: an array in a file that is larger than the memory allowed.

use super::runs::{Runs, Script, limited};
use crate::aims::Aims;
use crate::format;
use crate::group::Group;
use crate::loops::Timed;
use crate::plan::Launch;
use crate::programs::find::{done, module, python};
use crate::read_ahead::Ahead;
use crate::rule::Found;
use crate::table::{self, NOTHING};
use crate::turns::{Rounds, Same, ratio};
use faultless_measure::paired::{Ratio, median};

const SCRIPT: &str = include_str!("../programs/scripts/numpy_beyond.py");
/// What Python and NumPy have in memory beside the array.
const OF_PYTHON: usize = 64 << 20;

/// What the script is told to do, and how it stands in the table.
const WORKS: [(&str, &str); 3] = [
    ("sum", "sum, by chunks of 16 MiB"),
    ("matmul", "chunks of 16 MiB, times a matrix of 1024 x 64"),
    ("gather", "fancy index, 1024 rows of 4 KiB at a time"),
];

/// How the script gets its array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Plain,
    Advised,
    Lazy,
    Prefetched,
}

impl Way {
    const ALL: [Self; 4] = [Self::Plain, Self::Advised, Self::Lazy, Self::Prefetched];

    fn is_kernel(self) -> bool {
        matches!(self, Self::Plain | Self::Advised)
    }

    fn word(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Advised => "advised",
            Self::Lazy => "lazy",
            Self::Prefetched => "prefetched",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Plain => "numpy.memmap",
            Self::Advised => "numpy.memmap, best advice",
            Self::Lazy => "faultless.memmap, lazy",
            Self::Prefetched => "faultless.memmap, lazy, prefetch",
        }
    }
}

/// A way, and the device's read-ahead.
type Case = (Way, Ahead);

fn speed(rounds: &Rounds<Case, Timed>, case: Case, other: Way) -> Found<Ratio> {
    ratio(rounds, &case, &(other, Ahead::Found), |timed| timed.seconds).map(Ratio::inverse)
}

/// The cases of a work. Only what the kernel reads depends on its read-ahead.
fn cases(runs: &Runs, work: &str) -> Vec<Case> {
    let all = Way::ALL.into_iter().flat_map(|way| runs.aheads().iter().map(move |ahead| (way, *ahead)));
    // Where the kernel reads megabytes ahead for each row, rows in random order take minutes.
    let is_slow = |way: Way, ahead: Ahead| work == "gather" && way == Way::Plain && ahead == Ahead::Found;
    all.filter(|(way, ahead)| (way.is_kernel() || *ahead == Ahead::Found) && !is_slow(*way, *ahead)).collect()
}

fn name((way, ahead): Case) -> String {
    format!("{}{}", way.name(), ahead.note())
}

/// The script, once its array is there; the error says what is missing.
fn script(runs: &Runs) -> Result<Launch, String> {
    module(&runs.context, "faultless")
        .map_err(|_| "not installed: the Python package of faultless (pip install ./python)".to_owned())?;
    let file = runs.dir().join("array").display().to_string();
    let launch = python(&runs.context, "numpy", SCRIPT, &[file, runs.large().0.to_string()])?;
    done(std::process::Command::new(&launch.program).args(&launch.args).args(["make", "plain"]))?;
    Ok(launch)
}

/// Sums, products and rows of such an array.
pub fn arrays(runs: &mut Runs, aims: &mut Aims) {
    let title = "Beyond memory: NumPy";
    let launch = match script(runs) {
        Ok(launch) => launch,
        Err(why) => return println!("**{title}**: {why}\n"),
    };
    let (bytes, memory) = runs.large();
    let group = Group::new(memory + OF_PYTHON);
    if let Err(error) = &group {
        println!("The kernel's page cache has no limit: no control group ({error}).\n");
    }
    let (bytes, memory) = (format::bytes(bytes as f64), format::bytes(memory as f64));
    let note = launch.note.as_deref().unwrap_or_default();
    println!("**{title}** ({note}; a float32 array of {bytes}, memory for {memory} of it; medians)\n");
    let mut table = table::new_table(&["", "", "time", "to numpy.memmap", "to its best advice", "rounds"]);
    for (work, about) in WORKS {
        let (cases, turns, mut computed) = (cases(runs, work), runs.turns(9, 15), Same::default());
        let once = |(way, read_ahead): Case| {
            let group = group.as_ref().ok().filter(|_| way.is_kernel());
            let (launch, words, table, budget) = (&launch, &[work, way.word()], "numpy", runs.large().1);
            let script = Script { table, launch, words, way: way.name(), read_ahead, group, budget, files: None };
            let printed = runs.script(script)?;
            computed.check(printed.computed).map(|()| printed.tests[0].clone())
        };
        let rounds = turns.run(&cases, |case| format!("{}, {about}", name(case)), once);
        for case in cases {
            let Some(all) = rounds.get(&case) else { continue };
            let time = median(&all.iter().map(|timed| timed.seconds).collect::<Vec<_>>());
            let to = |other: Way| {
                let ratio = (case != (other, Ahead::Found)).then(|| speed(&rounds, case, other).ok()).flatten();
                ratio.map_or(NOTHING.into(), |ratio| format::interval(&ratio))
            };
            table.add_row([
                about.to_owned(),
                name(case),
                time.map_or(NOTHING.into(), format::seconds),
                to(Way::Plain),
                to(Way::Advised),
                all.len().to_string(),
            ]);
        }
        let line = format!("NumPy, {work}, with prefetch, beside numpy.memmap with its best advice");
        let beside = speed(&rounds, (Way::Prefetched, Ahead::Found), Way::Advised);
        aims.at_least(&line, 1.5, limited(group.as_ref().ok(), beside));
    }
    println!("{table}\n");
}
