//! Numbers of which a few are drawn often, and most of them seldom.

use super::shuffled;

/// The exponent that benchmarks of databases use.
const EXPONENT: f64 = 0.99;

/// `count` draws of numbers below `numbers`. The one of rank k comes as often as 1 / k^0.99 says. Which number has which
/// rank is mixed, so that those drawn often do not lie beside each other.
pub(in crate::loops) fn draws(numbers: usize, count: usize, seed: u64) -> Vec<u32> {
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=numbers)
        .map(|rank| {
            sum += (rank as f64).powf(-EXPONENT);
            sum
        })
        .collect();
    let number_of = shuffled(0..numbers, seed);
    let mut state = 88_172_645_463_325_252u64 ^ seed;
    let draw = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let at = (state >> 11) as f64 / (1u64 << 53) as f64 * sum;
        let rank = sums.partition_point(|end| *end <= at).min(numbers - 1);
        number_of[rank]
    };
    (0..count).map(draw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_are_drawn_often_and_they_lie_apart() {
        let draws = draws(1000, 100_000, 3);
        let mut counts = vec![0usize; 1000];
        draws.iter().for_each(|number| counts[*number as usize] += 1);
        let most = (0..1000).max_by_key(|number| counts[*number]).unwrap();
        assert_eq!(most, shuffled(0..1000, 3)[0] as usize);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        // The first has 1 of the 7.7 that all have together, and ten times as many as the tenth.
        assert!((11_000..15_000).contains(&counts[0]), "{}", counts[0]);
        assert!((900..2000).contains(&counts[9]), "{}", counts[9]);
        assert!(counts[999] < 100);
    }
}
