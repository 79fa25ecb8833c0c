//! What is measured of each run, and what the pairs say about it.

use serde::Serialize;

use crate::run::child::Outcome;
use faultless_measure::figures::{seconds, size};
use faultless_measure::paired::{RESOLVING, Ratio, Spread};

/// Something measured of each run.
pub struct Metric {
    pub name: &'static str,
    pub label: &'static str,
    pub value: fn(&Outcome) -> f64,
    pub text: fn(f64) -> String,
}

/// All of them, in the order in which they are shown.
pub const METRICS: [Metric; 5] = [
    Metric {
        name: "wall_s",
        label: "wall",
        value: |o| o.wall.saturating_sub(o.stopped).as_secs_f64(),
        text: seconds,
    },
    Metric { name: "user_s", label: "user", value: |o| o.usage.user.as_secs_f64(), text: seconds },
    Metric { name: "system_s", label: "system", value: |o| o.usage.system.as_secs_f64(), text: seconds },
    Metric {
        name: "minor_faults",
        label: "faults",
        value: |o| o.usage.minor_faults as f64,
        text: |n| format!("{n:.0}"),
    },
    Metric {
        name: "max_rss_bytes",
        label: "resident",
        value: |o| o.usage.max_rss as f64,
        text: |n| size(n as u64),
    },
];

/// What the pairs say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Faultless takes less.
    Less,
    /// Faultless takes more.
    More,
    /// The interval holds 1.
    NotResolved,
    /// Fewer than [`RESOLVING`] pairs.
    TooFewRuns,
}

/// The ratio faultless / plain; its interval where there are pairs enough.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Difference {
    pub ratio: f64,
    pub low: Option<f64>,
    pub high: Option<f64>,
    pub verdict: Verdict,
}

impl Difference {
    /// Of pairs (plain, faultless); `None` if a run took none.
    fn of(runs: &[(f64, f64)]) -> Option<Self> {
        let pairs: Vec<_> = runs.iter().map(|(plain, faultless)| (*faultless, *plain)).collect();
        let Ratio { value: ratio, low, high, pairs } = Ratio::of(&pairs).filter(|r| r.pairs == runs.len())?;
        if pairs < RESOLVING {
            return Some(Self { ratio, low: None, high: None, verdict: Verdict::TooFewRuns });
        }
        let verdict = match () {
            () if high < 1.0 => Verdict::Less,
            () if low > 1.0 => Verdict::More,
            () => Verdict::NotResolved,
        };
        Some(Self { ratio, low: Some(low), high: Some(high), verdict })
    }
}

/// A metric over all pairs.
#[derive(Serialize)]
pub struct Row {
    pub plain: Option<Spread>,
    pub faultless: Option<Spread>,
    pub ratio: Option<Difference>,
    pub runs: Vec<(f64, f64)>,
}

impl Row {
    pub fn new(runs: Vec<(f64, f64)>) -> Self {
        let (plain, faultless): (Vec<_>, Vec<_>) = runs.iter().copied().unzip();
        Self { plain: Spread::of(&plain), faultless: Spread::of(&faultless), ratio: Difference::of(&runs), runs }
    }
}

impl Verdict {
    /// Behind a ratio, for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Less => " (less)",
            Self::More => " (more)",
            Self::NotResolved => " (not resolved)",
            Self::TooFewRuns => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_resolved_only_when_they_are() {
        let of = |ratios: &[f64]| Difference::of(&ratios.iter().map(|r| (2.0, 2.0 * r)).collect::<Vec<_>>());
        let verdict = |ratios: &[f64]| of(ratios).unwrap().verdict;
        assert_eq!(verdict(&[0.5, 0.52, 0.48, 0.51, 0.5, 0.5]), Verdict::Less);
        assert_eq!(verdict(&[2.0, 2.1, 1.9, 2.0, 2.05, 2.0]), Verdict::More);
        assert_eq!(verdict(&[0.5, 2.0, 0.9, 1.2, 1.0, 1.1]), Verdict::NotResolved);
        assert_eq!(verdict(&[1.0; 9]), Verdict::NotResolved);
        let few = of(&[0.5; 5]).unwrap();
        assert_eq!((few.verdict, few.low, few.high), (Verdict::TooFewRuns, None, None));
        assert!((few.ratio - 0.5).abs() < 1e-9);
        // A run of fifteen that another program disturbed does not hide what the others say.
        let mut disturbed = [0.5; 15];
        disturbed[3] = 20.0;
        assert_eq!(verdict(&disturbed), Verdict::Less);
    }

    #[test]
    fn a_run_that_took_none_has_no_ratio() {
        assert!(Difference::of(&[(1.0, 1.0), (0.0, 1.0)]).is_none() && Difference::of(&[]).is_none());
    }
}
