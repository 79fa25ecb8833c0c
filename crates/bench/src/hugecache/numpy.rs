//! Tables of NumPy: an array in a file that is larger than the memory allowed.

use super::runs::{Runs, limited};
use crate::aims::Aims;
use crate::format;
use crate::group::Group;
use crate::loops::Timed;
use crate::plan::Launch;
use crate::programs::find::{done, python};
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

fn speed(rounds: &Rounds<Way, Timed>, way: Way, other: Way) -> Found<Ratio> {
    ratio(rounds, &way, &other, |timed| timed.seconds).map(Ratio::inverse)
}

/// The script, once its array is there; the error says what is missing.
fn script(runs: &Runs) -> Result<Launch, String> {
    python(&runs.context, "faultless", "import faultless", &[])
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
        // With a large read-ahead the kernel reads megabytes for each row: that takes minutes.
        let ways = if work == "gather" { &Way::ALL[1..] } else { &Way::ALL };
        let (turns, mut computed) = (runs.turns(9, 20), Same::default());
        let once = |way: Way| {
            let is_kernel = matches!(way, Way::Plain | Way::Advised);
            let group = group.as_ref().ok().filter(|_| is_kernel);
            let (timed, found) = runs.script(&launch, [work, way.word()], way.name(), group)?;
            computed.check(found).map(|()| timed)
        };
        let rounds = turns.run(ways, |way| format!("{}, {about}", way.name()), once);
        for way in Way::ALL {
            let Some(all) = rounds.get(&way) else { continue };
            let time = median(&all.iter().map(|timed| timed.seconds).collect::<Vec<_>>());
            let to = |other: Way| {
                let ratio = (other != way).then(|| speed(&rounds, way, other).ok()).flatten();
                ratio.map_or(NOTHING.into(), |ratio| format::interval(&ratio))
            };
            table.add_row([
                about.to_owned(),
                way.name().to_owned(),
                time.map_or(NOTHING.into(), format::seconds),
                to(Way::Plain),
                to(Way::Advised),
                all.len().to_string(),
            ]);
        }
        let line = format!("NumPy, {work}, with prefetch, beside numpy.memmap with its best advice");
        let beside = speed(&rounds, Way::Prefetched, Way::Advised);
        aims.at_least(&line, 1.5, limited(group.as_ref().ok(), beside));
    }
    println!("{table}\n");
}
