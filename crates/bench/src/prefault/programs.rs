//! Real programs whose memory is fresh: what bringing it ahead of them is worth, and how much of it they leave unused.

use std::time::{Duration, Instant};

use faultless_page::stats::Counter;

use crate::aims::Aims;
use crate::contender::Contender;
use crate::contenders::Contenders;
use crate::machine::Machine;
use crate::plan::{Against, Context, Field, Metric};
use crate::rule::{Aim, Verdict};
use crate::schedule::{self, Results, Run};
use crate::verdict::Board;
use crate::{programs, table};
use faultless_measure::paired::{Ratio, median};

/// What all rounds may take together by default, and when the whole bench is to have ended.
const TIME: Duration = Duration::from_secs(85);
const END: Duration = Duration::from_secs(460);
/// What the program with the most fresh memory is to take beside the kernel, and beside huge pages always.
const SHARES: [(&str, Against, f64); 2] = [("polars", Against::PLAIN, 0.5), ("polars", Against::HUGE, 0.7)];
/// Of what is brought ahead, the part that may stay unused.
const UNUSED: f64 = 0.05;
const PAGE: u64 = 4096;

/// What became of a program, for the file of figures.
#[derive(serde::Serialize)]
pub struct Outcome {
    id: String,
    #[serde(flatten)]
    results: Results,
    ahead: Vec<(Contender, Ahead)>,
}

/// Bytes brought ahead of a program, over all its runs.
#[derive(Clone, Copy, Default, serde::Serialize)]
struct Ahead {
    touched: u64,
    moved: u64,
    seen: u64,
    unused: u64,
}

impl Ahead {
    fn of(runs: &[Run]) -> Self {
        runs.iter().filter_map(|run| run.sample.counters.as_ref()).fold(Self::default(), |sum, counters| {
            sum.and(Self {
                touched: counters.get(Counter::BytesTouchedLent) + counters.get(Counter::BytesTouchedAhead),
                moved: counters.get(Counter::BytesMoved),
                seen: counters.get(Counter::BytesAheadSeen),
                unused: counters.get(Counter::BytesAheadUnused),
            })
        })
    }

    fn and(self, other: Self) -> Self {
        Self {
            touched: self.touched + other.touched,
            moved: self.moved + other.moved,
            seen: self.seen + other.seen,
            unused: self.unused + other.unused,
        }
    }

    /// The part of what was looked at that was not used.
    fn unused(self) -> Option<f64> {
        (self.seen > 0).then(|| self.unused as f64 / self.seen as f64)
    }

    /// As in the table, of one run in `runs`.
    fn cells(self, runs: usize) -> String {
        let pages = |bytes: u64| (bytes / PAGE / runs.max(1) as u64).to_string();
        let unused = self.unused().map_or("–".into(), |part| format!("{:.1} %", part * 100.0));
        format!("{} | {} | {} | {unused}", pages(self.touched), pages(self.moved), pages(self.seen))
    }
}

/// Runs them, and prints the table.
pub fn programs(context: &Context, machine: &Machine, start: Instant, aims: &mut Aims) -> Vec<Outcome> {
    println!(
        "**Programs** (warm; pages of one run, brought ahead by touching or by moves; looked at, and full of zeroes)\n"
    );
    let wanted = Field::Moves.contenders();
    let contenders = match Contenders::find(&context.exe, &context.dir, &wanted) {
        Ok(contenders) => contenders,
        Err(reason) => {
            println!("None: {reason}.\n");
            return Vec::new();
        }
    };
    let mut rows = programs::of_fresh_memory();
    if context.quick {
        rows.iter_mut().for_each(|row| row.rounds = 1);
    }
    let time = TIME.min(END.saturating_sub(start.elapsed()));
    let results = schedule::run(context, &rows, &contenders, (!context.full).then_some(time));
    let board = Board { rows: &rows, results: &results, budget: machine.budget };
    println!(
        "| program | | wall | to plain | to huge pages always | user + system | resident | faults | touched | moved | looked at | unused |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    for index in 0..rows.len() {
        lines(&board, index);
    }
    for contender in wanted.into_iter().filter(|contender| contender.is_own()) {
        let all = results.iter().filter_map(|results| results.runs.get(&contender));
        let sum = all.map(|runs| Ahead::of(runs)).fold(Ahead::default(), Ahead::and);
        println!("| all, of all runs together | {} | | | | | | | {} |", contender.name(), sum.cells(1));
        let name = contender.name();
        let line = |of: String| {
            let aimed = UNUSED * 100.0;
            format!(
                "pages brought ahead of programs and never used, {name}: {of} looked at, aimed at {aimed:.0} % at most"
            )
        };
        let failed = results.iter().any(|results| results.failures.contains_key(&contender));
        match sum.unused() {
            _ if failed => aims.without_figure(line("? of those".into()), Verdict::Missed),
            None => aims.without_figure(line("? of those".into()), Verdict::no_figure("it")),
            Some(part) => {
                let of = format!("{:.1} % of {}", part * 100.0, sum.seen / PAGE);
                aims.counted(line(of), part, Aim::AtMost(UNUSED));
            }
        }
    }
    println!();
    (0..rows.len()).for_each(|index| judge(&board, index, aims));
    let ahead = |results: &Results| {
        let own = results.runs.iter().filter(|(way, _)| way.is_own());
        own.map(|(way, runs)| (*way, Ahead::of(runs))).collect()
    };
    rows.into_iter()
        .zip(results)
        .map(|(row, results)| Outcome { id: row.id, ahead: ahead(&results), results })
        .collect()
}

/// A program: a line for each way.
fn lines(board: &Board, index: usize) {
    let (row, results) = (&board.rows[index], &board.results[index]);
    let note = results.note.as_ref().map_or(String::new(), |note| format!(" ({note})"));
    if let Some(reason) = &results.missing {
        return println!("| {} | {reason} | | | | | | | | | | |", row.title);
    }
    for way in row.field.contenders() {
        if let Some(failure) = results.failures.get(&way) {
            println!("| {}{note} | {} | **failed**: {failure} | | | | | | | | | |", row.title, way.name());
        }
        let (Some(runs), Some(wall)) = (results.runs.get(&way), board.spread(index, way, Metric::Wall)) else {
            continue;
        };
        let middle = |figure: fn(&Run) -> f64| median(&runs.iter().map(figure).collect::<Vec<_>>()).unwrap_or(0.0);
        let to = |other| ratio(results, way, other).map_or("–".into(), |ratio| table::interval(&ratio));
        println!(
            "| {}{note} | {} | {} | {} | {} | {} + {} | {} | {:.0} | {} |",
            row.title,
            way.name(),
            table::spread(&wall, Metric::Wall),
            to(Contender::Plain),
            to(Contender::Huge),
            table::seconds(middle(|run| run.sample.used.user)),
            table::seconds(middle(|run| run.sample.used.system)),
            table::bytes(middle(|run| run.sample.used.resident as f64)),
            middle(|run| run.sample.used.faults as f64),
            if way.is_own() { Ahead::of(runs).cells(runs.len()) } else { "– | – | – | –".into() },
        );
    }
}

/// How long `way` took in parts of `other`, round by round.
fn ratio(results: &Results, way: Contender, other: Contender) -> Option<Ratio> {
    let (ours, theirs) = (results.values(way, Metric::Wall), results.values(other, Metric::Wall));
    let pair = |(round, value): &(usize, f64)| Some((*value, theirs.iter().find(|(r, _)| r == round)?.1));
    Ratio::of(&ours.iter().filter_map(pair).collect::<Vec<_>>()).filter(|_| way != other)
}

/// What is aimed at, by faultless as it is set by default.
fn judge(board: &Board, index: usize, aims: &mut Aims) {
    let row = &board.rows[index];
    let shares: Vec<_> = SHARES.iter().filter(|(id, ..)| *id == row.id).collect();
    if board.results[index].missing.is_some() {
        return;
    }
    let to = |against| board.ratio(index, against, Metric::Wall);
    for (_, against, most) in &shares {
        aims.at_most(&format!("{}, beside {}", row.title, against.name()), *most, to(*against));
    }
    if shares.is_empty() {
        aims.at_most(&format!("{}, beside the best kernel setting", row.title), 1.0, to(Against::BestKernel));
    }
    let line = |peak: String, limit: String| {
        format!("{}: peak {peak}, aimed at no more than plain's peak, the budget and tables{limit}", row.title)
    };
    match board.peaks(index) {
        Ok(peaks) => {
            let limit = format!(", {}", table::bytes(peaks.limit as f64));
            let line = line(table::bytes(peaks.own as f64), limit);
            aims.counted(line, peaks.own as f64, Aim::AtMost(peaks.limit as f64));
        }
        Err(verdict) => aims.without_figure(line("?".into(), String::new()), verdict),
    }
}
