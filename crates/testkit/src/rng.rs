//! Random numbers that depend on a seed alone.

/// A generator (splitmix64).
#[derive(Clone, Debug)]
pub struct Rng(u64);

/// Mixes the bits of a number; different numbers stay different.
pub fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ (n >> 31)
}

impl Rng {
    /// A generator whose numbers depend on `seed` alone.
    pub fn new(seed: u64) -> Self {
        Self(mix(seed ^ 0xD1B5_4A32_D192_ED03))
    }

    /// The next number.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.word() % n as u64) as usize
    }

    /// A number from `low` up to and including `high`.
    pub fn within(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of `items`.
    pub fn of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// An index into `weights`, as often as its weight says.
    pub fn weighted(&mut self, weights: &[usize]) -> usize {
        let mut at = self.below(weights.iter().sum());
        weights
            .iter()
            .position(|w| {
                let here = at < *w;
                at = at.saturating_sub(*w);
                here
            })
            .expect("the weights add up")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_zero_never_come_and_the_others_do() {
        let mut rng = Rng::new(1);
        let mut seen = [0; 3];
        (0..3000).for_each(|_| seen[rng.weighted(&[1, 0, 2])] += 1);
        assert!(seen[0] > 500 && seen[1] == 0 && seen[2] > seen[0]);
    }
}
