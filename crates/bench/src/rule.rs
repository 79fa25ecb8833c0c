//! Whether an aim is reached: the one rule of all benches.
//!
//! A figure is an interval. It is the 95 % interval where there are six rounds; below that the range stands in its
//! place, and the verdict names the number of rounds. A figure that is counted is a point.
//!
//! | verdict | the interval |
//! |---|---|
//! | met | lies on the good side of the aim, to its last value |
//! | missed | lies on the other side, to its last value |
//! | unresolved | holds the aim, or ends at it; or there was one round, or none |
//!
//! The interval's ends and the aim decide as they are printed, so that a reader comes to the same verdict. Of a count
//! the aim itself is good enough.

use std::fmt;

use super::format::{parse, three_digits};
use faultless_measure::paired::{Estimate, RESOLVING, Ratio};

/// What a figure is to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Aim {
    /// This much, or more.
    AtLeast(f64),
    /// This much, or less.
    AtMost(f64),
}

/// A figure, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub struct Reached {
    low: f64,
    high: f64,
    /// How it is printed.
    show: fn(f64) -> String,
    /// Rounds that the interval is of; none where the figure is a count.
    rounds: Option<usize>,
}

impl Reached {
    /// A figure that is counted, and has no spread.
    pub fn counted(value: f64) -> Self {
        Self { low: value, high: value, show: three_digits, rounds: None }
    }

    /// A figure of several rounds, which is printed like this.
    pub fn shown(figure: &Estimate, show: fn(f64) -> String) -> Self {
        Self { low: figure.low, high: figure.high, show, rounds: Some(figure.rounds) }
    }
}

impl From<Ratio> for Reached {
    fn from(ratio: Ratio) -> Self {
        Self { low: ratio.low, high: ratio.high, show: three_digits, rounds: Some(ratio.pairs) }
    }
}

/// What came out.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Reached.
    Met,
    /// Not reached.
    Missed,
    /// Cannot be said, with the reason.
    Unresolved(String),
}

/// A figure that an aim is for, or what is to be said of the aim without one.
pub type Found<T> = Result<T, Verdict>;

impl Verdict {
    /// Nothing failed, but this has no figure.
    pub fn no_figure(of: &str) -> Self {
        Self::Unresolved(format!("no figure for {of}"))
    }
}

/// A verdict and what it rests on.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Judged {
    /// What came out.
    pub verdict: Verdict,
    /// How many rounds, where they are too few for an interval of 95 %.
    pub few: Option<usize>,
}

impl Judged {
    /// One that rests on no figure.
    pub fn without_figure(verdict: Verdict) -> Self {
        Self { verdict, few: None }
    }
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.verdict {
            Verdict::Met => f.write_str("met")?,
            Verdict::Missed => f.write_str("**missed**")?,
            Verdict::Unresolved(why) => return write!(f, "unresolved: {why}"),
        }
        self.few.map_or(Ok(()), |rounds| write!(f, " in {rounds} rounds"))
    }
}

/// The rule.
pub fn judge(aim: Aim, reached: impl Into<Reached>) -> Judged {
    let Reached { low, high, show, rounds } = reached.into();
    let few = rounds.filter(|rounds| *rounds < RESOLVING);
    if let Some(rounds @ 0..=1) = few {
        let why = if rounds == 0 { "no round" } else { "one round" };
        return Judged::without_figure(Verdict::Unresolved(why.into()));
    }
    let printed = |value: f64| if rounds.is_none() { value } else { parse(&show(value)).unwrap_or(value) };
    let (low, high) = (printed(low), printed(high));
    let (met, missed) = match aim {
        Aim::AtLeast(least) if rounds.is_none() => (low >= least, high < least),
        Aim::AtMost(most) if rounds.is_none() => (high <= most, low > most),
        Aim::AtLeast(least) => (low > printed(least), high < printed(least)),
        Aim::AtMost(most) => (high < printed(most), low > printed(most)),
    };
    match (met, missed) {
        (true, _) => Judged { verdict: Verdict::Met, few },
        (_, true) => Judged { verdict: Verdict::Missed, few },
        _ => Judged::without_figure(Verdict::Unresolved("the interval holds the aim".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::seconds;

    fn says(aim: Aim, low: f64, high: f64, rounds: usize) -> String {
        judge(aim, Reached { low, high, show: three_digits, rounds: Some(rounds) }).to_string()
    }

    const HELD: &str = "unresolved: the interval holds the aim";

    #[test]
    fn an_interval_that_holds_the_aim_resolves_nothing() {
        // Figures that counted as met by their estimate, or by one end.
        assert_eq!(says(Aim::AtLeast(60.0), 10.4, 92.0, 12), HELD);
        assert_eq!(says(Aim::AtMost(1.0), 0.76, 2.78, 8), HELD);
        assert_eq!(says(Aim::AtMost(1.01), 0.90, 1.03, 6), HELD);
        // One that counted as missed.
        assert_eq!(says(Aim::AtLeast(12.0), 3.30, 29.7, 12), HELD);
    }

    #[test]
    fn the_whole_interval_decides() {
        assert_eq!(says(Aim::AtLeast(50.0), 77.4, 97.1, 6), "met");
        assert_eq!(says(Aim::AtLeast(1.9), 1.45, 1.78, 7), "**missed**");
        assert_eq!(says(Aim::AtMost(1.1), 1.06, 1.09, 7), "met");
        assert_eq!(says(Aim::AtMost(1.0), 1.13, 1.83, 7), "**missed**");
    }

    #[test]
    fn an_end_that_is_printed_as_the_aim_resolves_nothing() {
        assert_eq!(says(Aim::AtLeast(50.0), 50.0, 97.1, 6), HELD);
        assert_eq!(says(Aim::AtMost(1.01), 0.98, 1.0099, 20), HELD);
        assert_eq!(says(Aim::AtMost(1.01), 0.98, 1.0049, 20), "met");
        assert_eq!(says(Aim::AtMost(1.01), 1.0101, 1.2, 20), HELD);
        let estimate = |high| Estimate { value: 0.5e-3, low: 0.4e-3, high, rounds: 7 };
        let says = |high| judge(Aim::AtMost(1e-3), Reached::shown(&estimate(high), seconds)).to_string();
        assert_eq!([says(0.9996e-3), says(0.9994e-3)], [HELD, "met"]);
    }

    #[test]
    fn few_rounds_are_named_and_one_is_none() {
        assert_eq!(says(Aim::AtLeast(22.0), 25.4, 27.4, 2), "met in 2 rounds");
        assert_eq!(says(Aim::AtLeast(4.0), 2.98, 3.21, 5), "**missed** in 5 rounds");
        assert_eq!(says(Aim::AtLeast(15.0), 9.14, 16.3, 3), HELD);
        assert_eq!(says(Aim::AtLeast(4.0), 25.3, 25.3, 1), "unresolved: one round");
        assert_eq!(says(Aim::AtLeast(4.0), 25.3, 25.3, 0), "unresolved: no round");
    }

    #[test]
    fn a_count_is_a_point() {
        assert_eq!(judge(Aim::AtMost(64.0), Reached::counted(64.0)).to_string(), "met");
        assert_eq!(judge(Aim::AtMost(64.0), Reached::counted(65.0)).to_string(), "**missed**");
    }
}
