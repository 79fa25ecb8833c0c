//! Times of many short things, in classes of about 3 %.

const STEPS: u64 = 32;

/// How many took how long.
pub struct Times {
    classes: Vec<u64>,
    longest: u64,
}

impl Times {
    /// None yet.
    pub fn new() -> Self {
        Self { classes: vec![0; 64 * STEPS as usize], longest: 0 }
    }

    fn class(ns: u64) -> usize {
        if ns < STEPS {
            return ns as usize;
        }
        let shift = 63 - ns.leading_zeros() as u64 - 5;
        ((shift + 1) * STEPS + (ns >> shift) - STEPS) as usize
    }

    /// The longest time of a class.
    fn most(class: usize) -> u64 {
        let (shift, step) = (class as u64 / STEPS, class as u64 % STEPS);
        if shift == 0 { step } else { ((STEPS + step + 1) << (shift - 1)) - 1 }
    }

    /// One more.
    pub fn add(&mut self, ns: u64) {
        self.classes[Self::class(ns)] += 1;
        self.longest = self.longest.max(ns);
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.classes.iter().sum()
    }

    /// The median, one in 100, one in 1000, the longest, in seconds.
    pub fn percentiles(&self) -> [f64; 4] {
        let all = self.count();
        let above = |share: u64| {
            let (mut left, mut at) = (all / share, self.classes.len());
            while at > 0 {
                at -= 1;
                if self.classes[at] > left {
                    return Self::most(at).min(self.longest);
                }
                left -= self.classes[at];
            }
            0
        };
        [above(2), above(100), above(1000), self.longest].map(|ns| ns as f64 / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_narrow_and_in_order() {
        for ns in (0..2000).chain((11..60).map(|bit| (1 << bit) + 12345)) {
            let (class, most) = (Times::class(ns), Times::most(Times::class(ns)));
            assert!(most >= ns && most <= ns + ns / 30, "{ns}: up to {most}");
            assert_eq!(Times::class(most), class);
            assert_eq!(Times::class(most + 1), class + 1);
        }
    }

    #[test]
    fn percentiles_are_of_all_times() {
        let mut times = Times::new();
        (0..980).for_each(|_| times.add(10));
        (0..19).for_each(|_| times.add(20));
        times.add(1_000_000);
        assert_eq!(times.percentiles(), [10e-9, 20e-9, 20e-9, 1e-3]);
    }
}
