//! Whether two ways of running differ: medians, spreads, and the ratio over pairs of runs. What `run --compare` and
//! `bench` say rests on it.

/// The middle value.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// The mean; 0 of nothing.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The standard deviation of a sample; 0 where there is no telling.
pub fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (values.len().max(2) - 1) as f64).sqrt()
}

/// Pairs without which no interval of 95 % can be had.
pub const RESOLVING: usize = 6;

/// Median and extremes of one contender's rounds.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Spread {
    /// The middle value.
    pub median: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
}

impl Spread {
    /// Of these values; `None` when there are none.
    pub fn of(values: &[f64]) -> Option<Spread> {
        let fold = |pick: fn(f64, f64) -> f64| values.iter().copied().reduce(pick);
        Some(Spread { median: median(values)?, min: fold(f64::min)?, max: fold(f64::max)? })
    }
}

/// A figure of several rounds, as a difference of two contenders is: the estimate and the interval of [`Ratio`].
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Estimate {
    /// The estimate.
    pub value: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end of it.
    pub high: f64,
    /// How many rounds.
    pub rounds: usize,
}

impl Estimate {
    /// Of one figure for each round; `None` when there are none.
    pub fn of(values: &[f64]) -> Option<Estimate> {
        let n = values.len();
        let mut walsh: Vec<f64> =
            (0..n).flat_map(|i| (i..n).map(move |j| (i, j))).map(|(i, j)| (values[i] + values[j]) / 2.0).collect();
        walsh.sort_by(f64::total_cmp);
        let cut = signed_rank_cut(n);
        Some(Estimate { value: median(&walsh)?, low: walsh[cut], high: walsh[walsh.len() - 1 - cut], rounds: n })
    }
}

/// The ratio of two contenders, from rounds in which both ran.
///
/// The estimate is Hodges and Lehmann's: the median of all pairwise means of the logarithms of the ratios. The
/// interval is from Wilcoxon's signed-rank test. A round disturbed from outside moves neither much, and no
/// distribution is assumed but symmetry. Student's t would give a narrower interval, if times were normally
/// distributed: they have a tail to one side. Fewer pairs than [`RESOLVING`] cannot give 95 %; the interval is the
/// whole range then.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Ratio {
    /// The estimate.
    pub value: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end of it.
    pub high: f64,
    /// How many rounds.
    pub pairs: usize,
}

impl Ratio {
    /// Of numerator to denominator in each pair.
    pub fn of(pairs: &[(f64, f64)]) -> Option<Ratio> {
        let logs: Vec<f64> =
            pairs.iter().filter(|(a, b)| *a > 0.0 && *b > 0.0).map(|(a, b)| (a / b).ln()).collect();
        let Estimate { value, low, high, rounds } = Estimate::of(&logs)?;
        Some(Ratio { value: value.exp(), low: low.exp(), high: high.exp(), pairs: rounds })
    }

    /// The same the other way round.
    pub fn inverse(self) -> Ratio {
        Ratio { value: 1.0 / self.value, low: 1.0 / self.high, high: 1.0 / self.low, ..self }
    }
}

/// The largest k with P(W ≤ k) ≤ 2.5 % for the signed-rank statistic W of `n` pairs; 0 if there is none.
fn signed_rank_cut(n: usize) -> usize {
    let most = n * (n + 1) / 2;
    // ways[s]: how many subsets of the ranks 1..=n have the sum s.
    let mut ways = vec![0.0; most + 1];
    ways[0] = 1.0;
    for rank in 1..=n {
        for sum in (rank..=most).rev() {
            ways[sum] += ways[sum - rank];
        }
    }
    let allowed = 0.025 * 2f64.powi(n as i32);
    let mut below = 0.0;
    ways.iter()
        .take_while(|w| {
            below += **w;
            below <= allowed
        })
        .count()
        .saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_deviation() {
        assert_eq!((mean(&[]), deviation(&[3.0])), (0.0, 0.0));
        assert_eq!((mean(&[2.0, 4.0, 6.0]), deviation(&[2.0, 4.0, 6.0])), (4.0, 2.0));
    }

    #[test]
    fn median_of_odd_and_even_counts() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    /// The critical values that statistical tables print for a two-sided test at 5 %.
    #[test]
    fn signed_rank_critical_values() {
        // With fewer than six pairs, even the most extreme outcome is more likely than that.
        assert!(0.5f64.powi(RESOLVING as i32) <= 0.025 && 0.5f64.powi(RESOLVING as i32 - 1) > 0.025);
        for (pairs, critical) in [(5, 0), (6, 0), (7, 2), (8, 3), (10, 8), (15, 25), (20, 52), (25, 89)] {
            assert_eq!(signed_rank_cut(pairs), critical, "{pairs} pairs");
        }
    }

    #[test]
    fn ratio_is_paired_and_survives_a_disturbed_round() {
        // Both contenders drift by a factor of four; within each round the ratio is 2.
        let mut pairs: Vec<(f64, f64)> = (1..=20).map(|i| (2.0 * i as f64, i as f64)).collect();
        pairs[7].0 *= 50.0;
        let ratio = Ratio::of(&pairs).unwrap();
        assert!((ratio.value - 2.0).abs() < 1e-9 && (ratio.low - 2.0).abs() < 1e-9);
        assert_eq!(ratio.pairs, 20);
        assert!((ratio.inverse().value - 0.5).abs() < 1e-9 && ratio.inverse().high >= ratio.inverse().low);
    }

    #[test]
    fn a_difference_has_an_interval_as_a_ratio_has() {
        let values: Vec<f64> = (1..=20).map(f64::from).collect();
        let estimate = Estimate::of(&values).unwrap();
        assert_eq!((estimate.value, estimate.rounds), (10.5, 20));
        assert!(estimate.low > 6.0 && estimate.high < 15.0, "{estimate:?}");
        assert_eq!(Estimate::of(&[]), None);
        let few = Estimate::of(&[3.0, -1.0]).unwrap();
        assert_eq!((few.low, few.value, few.high), (-1.0, 1.0, 3.0));
    }

    #[test]
    fn interval_of_few_pairs_is_their_range() {
        let ratio = Ratio::of(&[(1.0, 1.0), (3.0, 1.0), (2.0, 1.0)]).unwrap();
        assert!((ratio.low - 1.0).abs() < 1e-9 && (ratio.high - 3.0).abs() < 1e-9);
        assert_eq!(Ratio::of(&[]), None);
    }
}
