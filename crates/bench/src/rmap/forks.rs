//! Ten shells that fork and exit, and do little else: plain, beside an empty library, and under `faultless run`.

use std::time::Duration;

use crate::aims::Aims;
use crate::contender::Contender;
use crate::contenders::Contenders;
use crate::measure::Sample;
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

fn name(contender: Contender) -> String {
    match contender {
        Contender::Faultless => "under `faultless run`".into(),
        other => other.name().into(),
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
    let ways = contenders.of(&row);
    let count = count(&runs.context);
    let said = format!("{count} times, {LINES} lines\n").repeat(WIDE);
    let once = |contender: Contender| {
        let sample = contenders.run(&row, &launch, contender)?;
        if sample.output != said {
            return Err(format!("it printed something else: {:?}", sample.output));
        }
        Ok(sample)
    };
    let rounds = runs.recorded("forks", (&ways, ROUNDS), name, once);
    println!(
        "**Forks**: {WIDE} shells at a time, each of which starts {count} times a subshell with a pipe of two programs\n"
    );
    print(&rounds);
    let beside = ratio(&rounds, &Contender::Faultless, &Contender::Empty, |sample: &Sample| sample.wall);
    aims.at_most("the forks under run, beside an empty library", MOST, beside);
    let looked_at = ways.iter().filter(|way| **way != Contender::Empty);
    let functions = looked_at.map(|way| {
        let command = contenders.command(&row, &launch, *way);
        (name(*way), profile::of(&command, &runs.context.dir, LIMIT))
    });
    profile::print("all processes together", functions.collect());
    Ok(())
}

fn print(rounds: &Rounds<Contender, Sample>) {
    let mut rows =
        table::new_table(&["", "elapsed", "user", "system", "processors in use", "faults", "beside plain"]);
    for (way, all) in rounds {
        let [wall, user, system] = table::times(all);
        let of = |figure: fn(&Sample) -> f64| Spread::of(&all.iter().map(figure).collect::<Vec<_>>());
        let used = of(|sample| (sample.used.user + sample.used.system) / sample.wall * 100.0);
        let faults = median(&all.iter().map(|sample| sample.used.faults as f64).collect::<Vec<_>>());
        let beside = ratio(rounds, way, &Contender::Plain, |sample: &Sample| sample.wall);
        rows.add_row([
            name(*way),
            wall,
            user,
            system,
            used.map_or(table::NOTHING.into(), |used| format!("{:.0} %", used.median)),
            faults.map_or(table::NOTHING.into(), |faults| format!("{faults:.0}")),
            beside
                .ok()
                .filter(|_| *way != Contender::Plain)
                .map_or(table::NOTHING.into(), |ratio| table::interval(&ratio)),
        ]);
    }
    println!("{rows}\n");
}
