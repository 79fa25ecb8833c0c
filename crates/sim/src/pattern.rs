//! In what order the pages of a part are touched for the first time.

use serde::Serialize;

/// The order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// From the front to the back.
    Sequential,
    /// From the back to the front.
    Backward,
    /// Every fourth page, from the front; then the others in the same way.
    Strided,
    /// A tenth of the pages, anywhere.
    Random,
    /// Few pages often, many pages rarely: half as many touches as there are pages.
    Zipfian,
}

impl Pattern {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Sequential, Self::Backward, Self::Strided, Self::Random, Self::Zipfian];
    /// Pages from one touch to the next of [`Pattern::Strided`].
    pub const STRIDE: usize = 4;

    /// As it stands in the tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Backward => "backward",
            Self::Strided => "strided",
            Self::Random => "random",
            Self::Zipfian => "zipfian",
        }
    }

    /// Whether it follows no sequence.
    pub fn is_chance(self) -> bool {
        matches!(self, Self::Random | Self::Zipfian)
    }

    /// The pages of a part of `pages`, by number; `seed` makes parts differ where chance decides.
    pub fn touches(self, pages: usize, seed: u64) -> Box<dyn Iterator<Item = usize>> {
        let mut chance = Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        match self {
            Self::Sequential => Box::new(0..pages),
            Self::Backward => Box::new((0..pages).rev()),
            Self::Strided => Box::new((0..Self::STRIDE).flat_map(move |i| (i..pages).step_by(Self::STRIDE))),
            Self::Random => Box::new((0..pages.div_ceil(10)).map(move |_| chance.below(pages))),
            // The inverse of the distribution function of ranks r with probability 1/r, by its integral.
            Self::Zipfian => Box::new((0..pages.div_ceil(2)).map(move |_| {
                let rank = ((pages as f64 + 1.0).powf(chance.share()) - 1.0) as usize;
                // Neighbours in rank are no neighbours in memory.
                rank.wrapping_mul(0x9E37_79B1) % pages
            })),
        }
    }
}

/// Marsaglia's xorshift, enough for an order of touches.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const PAGES: usize = 10_000;

    fn set(pattern: Pattern) -> BTreeSet<usize> {
        pattern.touches(PAGES, 1).collect()
    }

    #[test]
    fn those_that_follow_a_sequence_touch_every_page_once() {
        for pattern in [Pattern::Sequential, Pattern::Backward, Pattern::Strided] {
            assert_eq!(pattern.touches(PAGES, 1).count(), PAGES);
            assert_eq!(set(pattern), (0..PAGES).collect());
        }
        let steps: Vec<_> = Pattern::Strided.touches(8, 1).collect();
        assert_eq!(steps, [0, 4, 1, 5, 2, 6, 3, 7]);
    }

    #[test]
    fn those_of_chance_stay_inside_and_touch_what_they_should() {
        let (random, zipf) = (set(Pattern::Random), set(Pattern::Zipfian));
        assert!(random.iter().chain(&zipf).all(|page| *page < PAGES));
        // Of a tenth of the pages, drawn with repetition, one in twenty is drawn twice.
        assert!((900..1000).contains(&random.len()), "{}", random.len());
        let first = Pattern::Zipfian.touches(PAGES, 1).filter(|page| *page == 0).count();
        assert!(first * 20 > PAGES / 2 && zipf.len() > 1000, "{first} {}", zipf.len());
        assert!(Pattern::Random.touches(PAGES, 1).ne(Pattern::Random.touches(PAGES, 2)));
    }
}
