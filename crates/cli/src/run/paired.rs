//! Whether two ways of running differ: statistics on pairs of measurements.

use serde::Serialize;

/// Pairs below which nothing is said about a difference.
pub const ENOUGH: usize = 5;

/// Middle and ends of several measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle one, or the mean of the middle two.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of `values`, of which there is at least one.
    pub fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Self { median: f64::midpoint(low, high), min: sorted[0], max: sorted[sorted.len() - 1] }
    }
}

/// What the pairs say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The second is smaller.
    Less,
    /// The second is larger.
    More,
    /// The interval holds 1.
    NotResolved,
    /// Fewer than [`ENOUGH`] pairs.
    TooFewRuns,
}

/// The ratio second / first over all pairs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// Geometric mean of the pairs' ratios.
    pub ratio: f64,
    /// Lower end of its 95 % interval (Student's t on logarithms); none below [`ENOUGH`] pairs.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// What that means.
    pub verdict: Verdict,
}

impl Ratio {
    /// Of pairs (first, second); `None` if a measurement is zero.
    pub fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        let logs: Vec<f64> = pairs.iter().map(|(first, second)| (second / first).ln()).collect();
        if logs.is_empty() || !logs.iter().all(|log| log.is_finite()) {
            return None;
        }
        let n = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / n;
        let ratio = mean.exp();
        if logs.len() < ENOUGH {
            return Some(Self { ratio, low: None, high: None, verdict: Verdict::TooFewRuns });
        }
        let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (n - 1.0);
        let half = quantile(n - 1.0) * (variance / n).sqrt();
        let (low, high) = ((mean - half).exp(), (mean + half).exp());
        let verdict = match () {
            () if high < 1.0 => Verdict::Less,
            () if low > 1.0 => Verdict::More,
            () => Verdict::NotResolved,
        };
        Some(Self { ratio, low: Some(low), high: Some(high), verdict })
    }
}

/// The 97.5 % quantile of Student's t with `nu` degrees of freedom, 4 or more, by the series of Cornish and Fisher
/// (Abramowitz and Stegun, 26.7.5): off by less than 0.003.
fn quantile(nu: f64) -> f64 {
    let z: f64 = 1.959_963_985;
    let powers = |coefficients: &[f64]| coefficients.iter().fold(0.0, |sum, c| sum * z * z + c) * z;
    z + powers(&[1.0, 1.0]) / (4.0 * nu)
        + powers(&[5.0, 16.0, 3.0]) / (96.0 * nu.powi(2))
        + powers(&[3.0, 19.0, 17.0, -15.0]) / (384.0 * nu.powi(3))
        + powers(&[79.0, 776.0, 1482.0, -1920.0, -945.0]) / (92160.0 * nu.powi(4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads() {
        assert_eq!(Spread::of(&[3.0]), Spread { median: 3.0, min: 3.0, max: 3.0 });
        assert_eq!(Spread::of(&[9.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 9.0 });
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 8.0]), Spread { median: 3.0, min: 1.0, max: 8.0 });
    }

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (nu, t) in [(4.0, 2.7764), (5.0, 2.5706), (9.0, 2.2622), (19.0, 2.0930), (99.0, 1.9842)] {
            assert!((quantile(nu) - t).abs() < 0.003, "{nu}: {}", quantile(nu));
        }
    }

    #[test]
    fn differences_are_resolved_only_when_they_are() {
        let pairs = |ratios: &[f64]| ratios.iter().map(|r| (2.0, 2.0 * r)).collect::<Vec<_>>();
        let verdict = |ratios: &[f64]| Ratio::of(&pairs(ratios)).unwrap().verdict;
        assert_eq!(verdict(&[0.5, 0.52, 0.48, 0.51, 0.5]), Verdict::Less);
        assert_eq!(verdict(&[2.0, 2.1, 1.9, 2.0, 2.05]), Verdict::More);
        assert_eq!(verdict(&[0.5, 2.0, 0.9, 1.2, 1.0]), Verdict::NotResolved);
        assert_eq!(verdict(&[0.5, 0.5, 0.5, 0.5]), Verdict::TooFewRuns);
        assert_eq!(verdict(&[1.0; 9]), Verdict::NotResolved);
        assert_eq!(Ratio::of(&[(0.0, 1.0)]), None);
        assert_eq!(Ratio::of(&[]), None);
    }

    #[test]
    fn an_interval_is_that_of_the_logarithms() {
        // Logarithms -0.2, -0.1, 0, 0.1, 0.2: mean 0, deviation 0.1581, half width 2.7764 * 0.1581 / sqrt(5).
        let pairs: Vec<_> = [-0.2f64, -0.1, 0.0, 0.1, 0.2].iter().map(|log| (1.0, log.exp())).collect();
        let ratio = Ratio::of(&pairs).unwrap();
        assert!((ratio.ratio - 1.0).abs() < 1e-9);
        assert!((ratio.high.unwrap().ln() - 0.1963).abs() < 0.001, "{ratio:?}");
        assert!((ratio.low.unwrap().ln() + 0.1963).abs() < 0.001, "{ratio:?}");
    }
}
