//! Whether a line does what is aimed at.

use super::contender::Contender;
use super::format;
use super::peak::Peak;
use super::plan::{Against, Bound, Metric, Row, Target};
use super::rule::{Aim, Found, Judged, Reached, Verdict, judge};
use super::schedule::Results;
use faultless_measure::paired::{Estimate, Ratio, Spread};

/// What the library's tables and its thread may take in each process, beside the budget.
const TABLES: u64 = 1 << 20;

/// The settings of the kernel that are compared with.
const KERNEL: [Contender; 2] = [Contender::Plain, Contender::Huge];

/// A target with its outcome.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Judgement {
    /// What was aimed at.
    pub target: String,
    /// What was reached.
    pub reached: Option<String>,
    /// Whether that is enough.
    pub judged: Judged,
}

/// Peaks of a row, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Peaks {
    /// Of plain.
    pub plain: u64,
    /// Of faultless.
    pub own: u64,
    /// The most that faultless's may be.
    pub limit: u64,
}

impl Peaks {
    /// Whether it is no more. The limit is for each run, so the largest peak of all rounds decides.
    pub fn judged(&self) -> Judged {
        judge(Aim::AtMost(self.limit as f64), Reached::counted(self.own as f64))
    }
}

/// All rows with their results.
pub struct Board<'a> {
    /// The rows.
    pub rows: &'a [Row],
    /// What became of each.
    pub results: &'a [Results],
    /// Bytes that faultless may use beyond the program's own peak.
    pub budget: u64,
}

impl Board<'_> {
    /// One contender's figures.
    pub fn spread(&self, row: usize, contender: Contender, metric: Metric) -> Option<Spread> {
        let values: Vec<f64> =
            self.results[row].values(contender, metric).into_iter().map(|(_, value)| value).collect();
        Spread::of(&values)
    }

    /// The contender among these with the smallest median.
    pub fn best(&self, row: usize, among: &[Contender], metric: Metric) -> Option<Contender> {
        let with_median = |c: &Contender| Some((*c, self.spread(row, *c, metric)?.median));
        among.iter().filter_map(with_median).min_by(|a, b| a.1.total_cmp(&b.1)).map(|(contender, _)| contender)
    }

    /// Figures of faultless and of whom it is compared with, from rounds in which both ran.
    pub fn pairs(&self, row: usize, against: Against, metric: Metric) -> Found<Vec<(f64, f64)>> {
        if self.results[row].failures.contains_key(&Contender::Faultless) {
            return Err(Verdict::Missed);
        }
        let (other_row, contender) = match against {
            Against::One(contender) => (Some(row), contender),
            Against::BestKernel => (Some(row), self.best_of_all(row, &KERNEL, metric)?),
            Against::BestRetaining => (Some(row), self.best_of_all(row, &Contender::RETAINING, metric)?),
            Against::Row(id, _) => (self.rows.iter().position(|row| row.id == id), Contender::Faultless),
        };
        let others = other_row.map_or(Vec::new(), |row| self.results[row].values(contender, metric));
        let own = self.results[row].values(Contender::Faultless, metric);
        let pair = |(round, value): &(usize, f64)| Some((*value, others.iter().find(|(r, _)| r == round)?.1));
        match own.iter().filter_map(pair).collect::<Vec<_>>() {
            pairs if pairs.is_empty() => Err(Verdict::no_figure(against.name())),
            pairs => Ok(pairs),
        }
    }

    /// The best among these. That cannot be said while one of them has no figure.
    fn best_of_all(&self, row: usize, among: &[Contender], metric: Metric) -> Found<Contender> {
        let lacking = among.iter().find(|contender| self.spread(row, **contender, metric).is_none());
        match (lacking, self.best(row, among, metric)) {
            (None, Some(best)) => Ok(best),
            (lacking, _) => Err(Verdict::no_figure(lacking.map_or("it", |contender| contender.name()))),
        }
    }

    /// Faultless beside whom it is compared with.
    pub fn ratio(&self, row: usize, against: Against, metric: Metric) -> Found<Ratio> {
        Ratio::of(&self.pairs(row, against, metric)?).ok_or(Verdict::no_figure(against.name()))
    }

    /// What faultless may have beyond plain with this number of processes.
    pub fn allowed(&self, processes: u64) -> u64 {
        self.budget + processes * TABLES
    }

    /// The largest peak of a contender's runs.
    pub fn peak(&self, row: usize, contender: Contender) -> Option<Peak> {
        let runs = self.results[row].runs.get(&contender)?;
        runs.iter().filter_map(|run| run.sample.peak).max_by_key(|peak| peak.bytes)
    }

    /// The peaks of plain and of faultless, and the most that faultless's may be.
    pub fn peaks(&self, row: usize) -> Found<Peaks> {
        if self.results[row].failures.contains_key(&Contender::Faultless) {
            return Err(Verdict::Missed);
        }
        let of = |contender| self.peak(row, contender).ok_or(Verdict::no_figure(contender.name()));
        let (plain, own) = (of(Contender::Plain)?, of(Contender::Faultless)?);
        let limit = plain.bytes + self.allowed(own.processes);
        Ok(Peaks { plain: plain.bytes, own: own.bytes, limit })
    }

    /// Compares a target with the results.
    pub fn judge(&self, row: usize, target: &Target, metric: Metric) -> Judgement {
        let text = describe(target);
        let found = self
            .pairs(row, target.against, metric)
            .and_then(|pairs| Ok((self.ratio(row, target.against, metric)?, pairs)));
        let (ratio, pairs) = match found {
            Ok(found) => found,
            Err(verdict) => {
                return Judgement { target: text, reached: None, judged: Judged::without_figure(verdict) };
            }
        };
        let more: Vec<f64> = pairs.iter().map(|(own, other)| own - other).collect();
        let more = |most: f64, show: fn(f64) -> String| {
            let more = Estimate::of(&more).expect("a ratio is of some pairs");
            (format::estimate(&more, show), judge(Aim::AtMost(most), Reached::shown(&more, show)))
        };
        let (reached, judged) = match target.bound {
            Bound::Speed(least) => {
                let speed = ratio.inverse();
                (format::interval(&speed), judge(Aim::AtLeast(least), speed))
            }
            Bound::Share(most) => (format::interval(&ratio), judge(Aim::AtMost(most), ratio)),
            Bound::Extra(most) => more(most, format::seconds),
            Bound::Budget => {
                let processes = self.peak(row, Contender::Faultless).map_or(1, |peak| peak.processes);
                more(self.allowed(processes) as f64, format::bytes)
            }
        };
        Judgement { target: text, reached: Some(reached), judged }
    }
}

fn describe(target: &Target) -> String {
    let name = target.against.name();
    match target.bound {
        Bound::Speed(least) => format!("≥ {least} × {name}"),
        Bound::Share(most) => format!("≤ {most} × {name}"),
        Bound::Extra(most) => format!("≤ {name} + {}", format::seconds(most)),
        Bound::Budget => format!("≤ {name} + budget"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Sample;
    use crate::plan::Section;
    use crate::schedule::Run;

    fn results(figures: &[(Contender, &[f64])]) -> Results {
        let mut results = Results::default();
        for (contender, costs) in figures {
            let run = |(round, cost): (usize, &f64)| Run { round, cost: Some(*cost), sample: Sample::default() };
            results.runs.insert(*contender, costs.iter().enumerate().map(run).collect());
        }
        results
    }

    fn verdict(bound: Bound, against: Against, figures: &[(Contender, &[f64])]) -> Verdict {
        let rows = [Row::new("row", Section::Loops, "")];
        let board = Board { rows: &rows, results: &[results(figures)], budget: 64 };
        board.judge(0, &Target { bound, against }, Metric::Cost).judged.verdict
    }

    #[test]
    fn bounds() {
        use Contender::*;
        let twice = [(Plain, &[2.0, 4.0][..]), (Faultless, &[1.0, 2.0])];
        assert_eq!(verdict(Bound::Speed(1.9), Against::PLAIN, &twice), Verdict::Met);
        assert_eq!(verdict(Bound::Speed(2.1), Against::PLAIN, &twice), Verdict::Missed);
        assert_eq!(verdict(Bound::Share(0.6), Against::PLAIN, &twice), Verdict::Met);
        assert_eq!(verdict(Bound::Share(0.4), Against::PLAIN, &twice), Verdict::Missed);
        let more = [(Plain, &[100.0; 6][..]), (Faultless, &[165.0; 6])];
        let budget = 64.0 + (1 << 20) as f64;
        let most = [(Plain, &[100.0; 6][..]), (Faultless, &[100.0 + 0.9 * budget; 6])];
        let above = [(Plain, &[100.0; 6][..]), (Faultless, &[100.0 + 1.1 * budget; 6])];
        assert_eq!(verdict(Bound::Budget, Against::PLAIN, &most), Verdict::Met);
        assert_eq!(verdict(Bound::Budget, Against::PLAIN, &above), Verdict::Missed);
        assert_eq!(verdict(Bound::Extra(66.0), Against::PLAIN, &more), Verdict::Met);
        assert!(matches!(verdict(Bound::Speed(1.0), Against::HUGE, &twice), Verdict::Unresolved(_)));
    }

    #[test]
    fn the_best_is_the_one_with_the_smallest_median() {
        use Contender::*;
        let figures = [
            (Mimalloc, &[9.0, 9.0, 1.0][..]),
            (Tcmalloc, &[4.0; 3]),
            (Jemalloc, &[3.0; 3]),
            (Faultless, &[3.1; 3]),
        ];
        assert_eq!(verdict(Bound::Share(1.05), Against::BestRetaining, &figures), Verdict::Met);
        assert_eq!(verdict(Bound::Share(1.01), Against::BestRetaining, &figures), Verdict::Missed);
    }

    #[test]
    fn the_best_setting_of_the_kernel_is_not_known_without_huge_pages() {
        use Contender::*;
        let both = [(Plain, &[2.0; 6][..]), (Huge, &[1.0; 6]), (Faultless, &[1.5; 6])];
        let judged = |figures: &[_]| verdict(Bound::Share(1.01), Against::BestKernel, figures);
        assert_eq!(judged(&both), Verdict::Missed);
        assert_eq!(judged(&[both[0], both[2]]), Verdict::no_figure("huge pages always"));
        assert_eq!(judged(&both[1..]), Verdict::no_figure("plain"));
        let allocators = [(Mimalloc, &[2.0; 6][..]), (Jemalloc, &[2.0; 6]), (Faultless, &[1.0; 6])];
        let judged = verdict(Bound::Share(1.0), Against::BestRetaining, &allocators);
        assert_eq!(judged, Verdict::no_figure("tcmalloc"));
    }

    #[test]
    fn a_loss_and_its_absence_count_when_the_interval_shows_them() {
        use Contender::*;
        let noisy: Vec<f64> = (0..20).map(|n| if n % 2 == 0 { 0.9 } else { 1.12 }).collect();
        let against =
            |own: &[f64]| verdict(Bound::Share(1.01), Against::PLAIN, &[(Plain, &[1.0; 20]), (Faultless, own)]);
        assert_eq!(against(&[1.1; 20]), Verdict::Missed);
        assert_eq!(against(&[1.0; 20]), Verdict::Met);
        assert!(matches!(against(&noisy), Verdict::Unresolved(_)));
        assert!(matches!(against(&[1.1; 1]), Verdict::Unresolved(_)));
    }

    #[test]
    fn a_crash_of_faultless_misses_the_target() {
        let rows = [Row::new("row", Section::Loops, "")];
        let mut crashed = results(&[(Contender::Plain, &[1.0])]);
        crashed.failures.insert(Contender::Faultless, "killed by signal 11".into());
        let board = Board { rows: &rows, results: &[crashed], budget: 0 };
        let target = Target { bound: Bound::Speed(1.0), against: Against::PLAIN };
        assert_eq!(board.judge(0, &target, Metric::Cost).judged.verdict, Verdict::Missed);
        assert_eq!(board.peaks(0), Err(Verdict::Missed));
    }
}
