//! What a change of the library costs: faultless beside the library before.

use super::contender::Contender;
use super::plan::Against;
use super::rule::{Aim, Verdict, judge};
use super::table::{NOTHING, cell, interval, new_table, title};
use super::verdict::Board;
use faultless_measure::paired::{RESOLVING, Ratio};

/// Whether the ratio of now to before is another than one.
fn verdict(ratio: &Ratio) -> String {
    match ratio.pairs {
        // Their range is no interval.
        pairs if pairs < RESOLVING => format!("not resolved ({pairs} of {RESOLVING} pairs)"),
        _ => match judge(Aim::AtMost(1.0), *ratio).verdict {
            Verdict::Met => "resolved gain".into(),
            Verdict::Missed => "**resolved loss**".into(),
            Verdict::Unresolved(_) => "not resolved".into(),
        },
    }
}

/// What each line costs against the library before; `None` when that ran nothing.
pub fn table(board: &Board) -> Option<String> {
    let mut table = new_table(&["work", "before", "now", "ratio", "verdict"]);
    for (index, row) in board.rows.iter().enumerate() {
        let results = &board.results[index];
        if !results.runs.contains_key(&Contender::Before) && !results.failures.contains_key(&Contender::Before) {
            continue;
        }
        for line in &row.lines {
            let ratio = board.ratio(index, Against::One(Contender::Before), line.metric).ok();
            table.add_row(vec![
                title(&row.title, line.metric),
                cell(board, index, Contender::Before, line.metric),
                cell(board, index, Contender::Faultless, line.metric),
                ratio.as_ref().map_or(NOTHING.into(), interval),
                ratio.as_ref().map_or(NOTHING.into(), verdict),
            ]);
        }
    }
    let heading = "Cost against the library before (ratios: now in parts of before; below 1 is a gain)";
    (!table.is_empty()).then(|| format!("### {heading}\n\n{table}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Sample;
    use crate::plan::{Metric, Row, Section};
    use crate::schedule::{Results, Run};

    fn results(before: &[f64], now: &[f64]) -> Results {
        let mut results = Results::default();
        let run = |(round, cost): (usize, &f64)| Run { round, cost: Some(*cost), sample: Sample::default() };
        for (contender, costs) in [(Contender::Before, before), (Contender::Faultless, now)] {
            results.runs.insert(contender, costs.iter().enumerate().map(run).collect());
        }
        results
    }

    /// The table of one row of this section.
    fn text(section: Section, results: Results) -> Option<String> {
        let rows = [Row::new("row", section, "some work").line(Metric::Cost, &[])];
        table(&Board { rows: &rows, results: &[results], budget: 0 })
    }

    #[test]
    fn a_gain_and_a_loss_are_resolved_by_enough_pairs_and_named_after_now() {
        let verdict = |before: &[f64], now: &[f64]| {
            let text = text(Section::Loops, results(before, now)).unwrap();
            text.lines().last().unwrap().rsplit('|').nth(1).unwrap().trim().to_owned()
        };
        assert_eq!(verdict(&[2.0; 6], &[1.9; 6]), "resolved gain");
        assert_eq!(verdict(&[1.9; 6], &[2.0; 6]), "**resolved loss**");
        assert_eq!(verdict(&[2.0; 6], &[1.9, 1.9, 1.9, 1.9, 1.9, 2.1]), "not resolved");
        assert_eq!(verdict(&[1.0; 5], &[2.0; 5]), "not resolved (5 of 6 pairs)");
    }

    /// Also among loops, whose other ratios are speeds.
    #[test]
    fn the_ratio_is_that_of_now_to_before() {
        for section in [Section::Loops, Section::Programs] {
            let text = text(section, results(&[1.0; 6], &[2.0; 6])).unwrap();
            assert!(text.contains("| some work | 1.00 s | 2.00 s | 2.00 (2.00..2.00) |"), "{text}");
        }
    }

    #[test]
    fn a_failure_is_shown_and_no_table_is_made_without_the_library() {
        let mut crashed = results(&[1.0], &[1.0]);
        crashed.runs.remove(&Contender::Before);
        crashed.failures.insert(Contender::Before, "wrong result".into());
        let text_of = |results| text(Section::Loops, results);
        assert!(text_of(crashed).unwrap().contains("**failed**: wrong result"));
        let mut without = results(&[1.0], &[1.0]);
        without.runs.remove(&Contender::Before);
        assert!(text_of(without).is_none());
    }
}
