//! `faultless bench run`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::ValueEnum;

use super::contender::Contender;
use super::contenders::Contenders;
use super::machine::Machine;
use super::parts::{self, Session, save};
use super::plan::{Context, Field, Line, Row, Section, Start};
use super::rule::Verdict;
use super::schedule::{self, Results};
use super::verdict::{Board, Judgement};
use super::{change, loops, plan, programs, table};

/// What the measuring may take by default; with what is around it the whole stays below eight minutes.
const TIME: Duration = Duration::from_secs(440);

/// Options of `faultless bench run`.
#[derive(clap::Args)]
pub struct Args {
    /// All rounds however long they take, each row cold too, and more collectors for Java.
    #[arg(long)]
    full: bool,
    /// Only the rows whose name starts with this; may be given again.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Only the loops.
    #[arg(long, conflicts_with = "programs")]
    loops: bool,
    /// Only the real programs.
    #[arg(long)]
    programs: bool,
    /// Names the rows and runs nothing.
    #[arg(long)]
    list: bool,
    /// Writes all figures to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The Python that has the modules.
    #[arg(long, env = "FAULTLESS_PYTHON", default_value = "python3", value_name = "PROGRAM")]
    python: String,
    /// Who takes part.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    contenders: Vec<Contender>,
    /// Another build of the library, libfaultless_preload.so: it runs beside faultless in each round.
    #[arg(long, value_name = "LIBRARY")]
    before: Option<PathBuf>,
    /// Tiny sizes and one round, to try the bench itself.
    #[arg(long, hide = true)]
    quick: bool,
}

/// Runs the rows and prints the tables.
pub fn main(args: &Args) -> Result<()> {
    let session = Session::begin()?;
    let context = Context { full: args.full, quick: args.quick, ..session.context(&args.python)? };
    parts::try_open(&[args.json.as_deref()])?;
    let rows = select(args, all_rows(&context))?;
    if args.list {
        rows.iter().for_each(|row| println!("{:24} {}", row.id, row.title));
        return Ok(());
    }
    let wanted = if args.contenders.is_empty() { Contender::value_variants() } else { &args.contenders };
    let mut contenders = Contenders::find(&context.exe, &context.dir, wanted).map_err(anyhow::Error::msg)?;
    if let Some(before) = &args.before {
        contenders.take_before(before, &context.dir).map_err(anyhow::Error::msg)?;
    }
    let time = (!args.full).then_some(TIME);
    let results = schedule::run(&context, &rows, &contenders, time);

    let board = Board { rows: &rows, results: &results, budget: session.machine.budget };
    println!("{}\n", session.machine.line());
    println!("Median (smallest..largest); ratios of the rounds in pairs with their 95 % interval.\n");
    for (contender, reason) in &contenders.missing {
        println!("No {}: {reason}.", contender.name());
    }
    if let Some(before) = &args.before {
        println!("The library before: {}.\n", before.display());
    }
    for section in Section::ALL {
        if let Some(text) = table::section(&board, section) {
            println!("{text}");
        }
    }
    if let Some(text) = table::memory(&board) {
        println!("{text}");
    }
    if let Some(text) = change::table(&board) {
        println!("{text}");
    }
    let judgements = judge(&board);
    let count =
        |wanted: fn(&Verdict) -> bool| judgements.iter().flatten().filter(|j| wanted(&j.judged.verdict)).count();
    println!(
        "Targets: {} met, {} missed, {} unresolved. {:.0} s elapsed.",
        count(|v| *v == Verdict::Met),
        count(|v| *v == Verdict::Missed),
        count(|v| matches!(v, Verdict::Unresolved(_))),
        session.seconds()
    );
    if let Some(path) = &args.json {
        save(path, &json(&session.machine, &board, &judgements)?)?;
    }
    Ok(())
}

fn all_rows(context: &Context) -> Vec<Row> {
    let every = || loops::rows(context).into_iter().chain(programs::rows(context)).chain([start_of_run()]);
    let mut rows: Vec<Row> = every().collect();
    if context.full {
        let mut twins: Vec<Row> = every().filter_map(cold_twin).collect();
        twins.retain(|twin| rows.iter().all(|row| row.id != twin.id));
        rows.append(&mut twins);
    }
    if context.quick {
        rows.iter_mut().for_each(|row| row.rounds = 1);
    }
    rows
}

/// What `faultless run` itself costs before the program starts.
fn start_of_run() -> Row {
    Row::new("run", Section::Costs, "`faultless run -- /bin/true` beside `/bin/true`")
        .field(Field::Pair)
        .rounds(40, 4.0)
        .program(|_| Ok(plan::Launch::new("/bin/true", [] as [&str; 0])))
        .starting(Start::Run)
        .line(plan::Metric::Wall, &[(plan::Bound::Extra(5e-3), plan::Against::PLAIN)])
}

/// The same work on memory that lay idle; the targets are for warm memory.
fn cold_twin(row: Row) -> Option<Row> {
    let is_wanted = matches!(row.section, Section::Loops | Section::Programs);
    (is_wanted && !row.is_cold && row.field != Field::Own).then(|| Row {
        id: format!("{}-cold", row.id),
        group: format!("{}-cold", row.group),
        title: format!("{}, cold", row.title),
        lines: row.lines.iter().map(|line| Line { metric: line.metric, targets: Vec::new() }).collect(),
        is_cold: true,
        warm: 0,
        rounds: 2,
        ..row
    })
}

fn select(args: &Args, rows: Vec<Row>) -> Result<Vec<Row>> {
    let is_named =
        |row: &Row| args.only.is_empty() || args.only.iter().any(|name| row.id.starts_with(name.as_str()));
    let is_kind = |row: &Row| match row.section {
        Section::Programs | Section::Quiet => !args.loops,
        Section::Loops | Section::Costs | Section::Memory => !args.programs,
    };
    let rows: Vec<Row> = rows.into_iter().filter(is_kind).collect();
    let is_lost = |name: &&String| !rows.iter().any(|row| row.id.starts_with(name.as_str()));
    if let Some(name) = args.only.iter().find(is_lost) {
        bail!("no row has a name that starts with {name}; `faultless bench run --list` names them");
    }
    Ok(rows.into_iter().filter(is_named).collect())
}

fn judge(board: &Board) -> Vec<Vec<Judgement>> {
    let row = |(index, row): (usize, &Row)| {
        row.lines.iter().flat_map(|l| l.targets.iter().map(move |t| board.judge(index, t, l.metric))).collect()
    };
    board.rows.iter().enumerate().map(row).collect()
}

fn json(machine: &Machine, board: &Board, judgements: &[Vec<Judgement>]) -> Result<String> {
    #[derive(serde::Serialize)]
    struct Entry<'a> {
        id: &'a str,
        section: Section,
        title: &'a str,
        is_cold: bool,
        metrics: Vec<plan::Metric>,
        targets: &'a [Judgement],
        #[serde(flatten)]
        results: &'a Results,
    }
    #[derive(serde::Serialize)]
    struct File<'a> {
        machine: &'a Machine,
        rows: Vec<Entry<'a>>,
    }
    let entry = |((row, results), targets)| {
        let Row { id, section, title, is_cold, lines, .. }: &Row = row;
        let metrics = lines.iter().map(|line| line.metric).collect();
        Entry { id, section: *section, title, is_cold: *is_cold, metrics, targets, results }
    };
    let rows = board.rows.iter().zip(board.results).zip(judgements.iter().map(Vec::as_slice)).map(entry).collect();
    Ok(serde_json::to_string_pretty(&File { machine, rows })? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Against;

    fn context(full: bool) -> Context {
        let (exe, own, dir) = (PathBuf::from("faultless"), PathBuf::from("faultless-bench"), PathBuf::from("."));
        Context { exe, own, dir, cpus: 2, memory: 24 << 30, python: "python3".into(), full, quick: false }
    }

    /// A row that a target names must exist and take turns with the row whose target it is, or there are no pairs.
    #[test]
    fn targets_name_rows_of_their_own_group_and_names_are_unique() {
        for full in [false, true] {
            let rows = all_rows(&context(full));
            for (index, row) in rows.iter().enumerate() {
                assert!(rows[..index].iter().all(|other| other.id != row.id), "{} twice", row.id);
                for target in row.lines.iter().flat_map(|line| &line.targets) {
                    if let Against::Row(id, _) = target.against {
                        assert!(rows.iter().any(|r| r.id == id && r.group == row.group), "{}: {id}", row.id);
                    }
                }
            }
        }
    }

    /// A best of several is known only where each of them runs.
    #[test]
    fn all_of_those_whose_best_is_a_target_run_the_row() {
        for row in all_rows(&context(true)) {
            let runs = row.field.contenders();
            for target in row.lines.iter().flat_map(|line| &line.targets) {
                let among = match target.against {
                    Against::BestKernel => &[Contender::Plain, Contender::Huge][..],
                    Against::BestRetaining => &Contender::RETAINING,
                    _ => &[],
                };
                assert!(among.iter().all(|contender| runs.contains(contender)), "{}", row.id);
            }
        }
    }

    #[test]
    fn a_name_without_a_row_is_an_error_even_beside_one_that_has_some() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: Args,
        }
        let selected = |words: &[&str]| {
            let line = <Line as clap::Parser>::parse_from(["run"].iter().chain(words));
            select(&line.args, all_rows(&context(false)))
        };
        assert!(selected(&["--only", "touch"]).unwrap().len() > 1);
        let error = selected(&["--only", "touch", "--only", "nosuch"]).err().expect("an error");
        assert!(error.to_string().contains("nosuch"), "{error}");
        assert!(selected(&["--programs", "--only", "touch"]).is_err());
    }

    #[test]
    fn a_full_run_has_each_program_warm_and_cold() {
        let rows = all_rows(&context(true));
        for row in rows.iter().filter(|row| row.section == Section::Programs && !row.is_cold) {
            assert!(rows.iter().any(|twin| twin.is_cold && twin.id == format!("{}-cold", row.id)), "{}", row.id);
        }
    }
}
