//! Ten shells that fork and exit, and do little else: plain, beside an empty library, and under `faultless run`, without
//! notes of an earlier run and with them.

use std::time::Duration;

use crate::aims::Aims;
use crate::contender::Contender;
use crate::contenders::Contenders;
use crate::measure::{Sample, measure};
use crate::plan::{Context, Field, Launch, Row, Section, Start};
use crate::profile;
use crate::programs::find::write;
use crate::table;
use crate::turns::{Rounds, ratio};
use faultless_measure::paired::{Spread, median};

use super::runs::Runs;

const ROUNDS: usize = 6;
/// Shells at a time.
const WIDE: usize = 10;
/// Subshells of each, by default and in full.
const COUNT: [u64; 2] = [100, 500];
const LIMIT: Duration = Duration::from_secs(240);
/// Lines of the file that each subshell counts.
const LINES: usize = 100;
/// How much longer it may take than beside an empty library.
const MOST: f64 = 1.01;

/// Who runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
enum Way {
    Of(Contender),
    /// Under `faultless run`, with notes of a run before.
    Again,
}

impl Way {
    const PLAIN: Self = Self::Of(Contender::Plain);
    const EMPTY: Self = Self::Of(Contender::Empty);
    const FIRST: Self = Self::Of(Contender::Faultless);

    fn name(self) -> String {
        match self {
            Self::FIRST => "under `faultless run`".into(),
            Self::Of(other) => other.name().into(),
            Self::Again => "under `faultless run`, the second time".into(),
        }
    }
}

/// How often each shell starts a subshell.
fn count(context: &Context) -> u64 {
    context.count(COUNT[usize::from(context.full)])
}

fn launch(context: &Context) -> Result<Launch, String> {
    let script = write(context, "forks.sh", include_str!("../programs/scripts/forks.sh"))?;
    let file = write(context, "lines", &"a line\n".repeat(LINES))?;
    let numbers = [WIDE.to_string(), count(context).to_string()];
    let args = [script.into_os_string(), file.into_os_string()].into_iter().chain(numbers.map(Into::into));
    Ok(Launch::new("/bin/sh", args))
}

/// Runs it and prints the tables.
pub fn tables(runs: &mut Runs, aims: &mut Aims) {
    if let Err(why) = try_tables(runs, aims) {
        println!("No forks: {why}.\n");
    }
}

fn try_tables(runs: &mut Runs, aims: &mut Aims) -> Result<(), String> {
    let launch = launch(&runs.context)?;
    let wanted = Field::Empty.contenders();
    let contenders = Contenders::find(&runs.context.exe, &runs.context.dir, &wanted)?;
    for (contender, why) in &contenders.missing {
        println!("No {}: {why}.\n", contender.name());
    }
    let row = Row::new("forks", Section::Costs, "forks").field(Field::Empty).starting(Start::Run);
    let row = Row { limit: LIMIT, ..row };
    let notes = tempfile::tempdir_in(&runs.context.dir).map_err(|error| error.to_string())?;
    let exe = runs.context.exe.clone();
    let again = || launch.noted(&exe, notes.path());
    measure(&mut again(), LIMIT)?;
    let ways: Vec<_> = contenders.of(&row).into_iter().map(Way::Of).chain([Way::Again]).collect();
    let count = count(&runs.context);
    let said = format!("{count} times, {LINES} lines\n").repeat(WIDE);
    let once = |way: Way| {
        let sample = match way {
            Way::Of(contender) => contenders.run(&row, &launch, contender)?,
            Way::Again => measure(&mut again(), LIMIT)?,
        };
        if sample.output != said {
            return Err(format!("it printed something else: {:?}", sample.output));
        }
        Ok(sample)
    };
    let rounds = runs.recorded("forks", (&ways, ROUNDS), Way::name, once);
    println!(
        "**Forks**: {WIDE} shells at a time, each of which starts {count} times a subshell with a pipe of two programs\n"
    );
    print(&rounds);
    for (way, when) in [(Way::FIRST, ""), (Way::Again, ", the second time")] {
        let beside = ratio(&rounds, &way, &Way::EMPTY, |sample: &Sample| sample.wall);
        aims.at_most(&format!("the forks under run{when}, beside an empty library"), MOST, beside);
    }
    let looked_at = [Contender::Plain, Contender::Faultless].into_iter();
    let functions = looked_at.map(|contender| {
        let command = contenders.command(&row, &launch, contender);
        (Way::Of(contender).name(), profile::of(&command, &runs.context.dir, LIMIT))
    });
    profile::print("all processes together", functions.collect());
    Ok(())
}

fn print(rounds: &Rounds<Way, Sample>) {
    let mut rows =
        table::new_table(&["", "elapsed", "user", "system", "processors in use", "faults", "beside plain"]);
    for (way, all) in rounds {
        let [wall, user, system] = table::times(all);
        let of = |figure: fn(&Sample) -> f64| Spread::of(&all.iter().map(figure).collect::<Vec<_>>());
        let used = of(|sample| (sample.used.user + sample.used.system) / sample.wall * 100.0);
        let faults = median(&all.iter().map(|sample| sample.used.faults as f64).collect::<Vec<_>>());
        let beside = ratio(rounds, way, &Way::PLAIN, |sample: &Sample| sample.wall);
        rows.add_row([
            way.name(),
            wall,
            user,
            system,
            used.map_or(table::NOTHING.into(), |used| format!("{:.0} %", used.median)),
            faults.map_or(table::NOTHING.into(), |faults| format!("{faults:.0}")),
            beside
                .ok()
                .filter(|_| *way != Way::PLAIN)
                .map_or(table::NOTHING.into(), |ratio| table::interval(&ratio)),
        ]);
    }
    println!("{rows}\n");
}
