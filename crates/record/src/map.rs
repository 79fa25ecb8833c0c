//! Maps whose keys are numbers, and short rows of numbers: a report looks some of them up for each record.
//!
//! The standard hasher withstands keys that somebody chose to collide. Here these would make a report slow, and the one
//! who wrote the recording is the one who reads it. So a hash is a multiplication for each number, from a start that is
//! another one in each run.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A map with such hashes.
pub type HashMap<K, V> = std::collections::HashMap<K, V, Numbers>;

/// Makes hashers.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    start: u64,
}

impl Default for Numbers {
    fn default() -> Self {
        Self { start: RandomState::new().hash_one(0u8) }
    }
}

impl BuildHasher for Numbers {
    type Hasher = Number;

    fn build_hasher(&self) -> Number {
        Number(self.start)
    }
}

/// A hash.
#[derive(Debug)]
pub struct Number(u64);

/// An odd number with bits of both kinds everywhere: the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl Number {
    fn add(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(FACTOR);
    }
}

impl Hasher for Number {
    fn write(&mut self, bytes: &[u8]) {
        let (numbers, rest) = bytes.as_chunks();
        numbers.iter().for_each(|number| self.add(u64::from_le_bytes(*number)));
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.add(u64::from_le_bytes(last));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.add(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.add(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.add(number as u64);
    }

    /// The upper bits depend on all of the numbers: they take the place of the lower ones too.
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

/// Stands for a row of numbers, where there are too many rows to keep all of them at hand. It has 128 bits, so two rows
/// of a recording do not have the same one by chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark(u64, u64);

/// Another odd number.
const OTHER: u64 = 0xff51_afd7_ed55_8ccd;

impl Numbers {
    /// The mark of these numbers.
    pub fn mark(&self, numbers: impl Iterator<Item = u64>) -> Mark {
        let (mut one, mut two) = (Number(self.start), !self.start);
        for number in numbers {
            one.add(number);
            two = (two ^ number).wrapping_mul(OTHER);
            two ^= two >> 32;
        }
        Mark(one.finish(), two)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_that_are_alike_have_other_hashes() {
        let numbers = Numbers { start: 7 };
        let pages: HashSet<_> = (0..10_000u64).map(|page| numbers.hash_one(page << 12) & 0xf_ffff).collect();
        assert!(pages.len() > 9900, "{}", pages.len());
        let all = ["", "a", "b", "aaaaaaaa", "aaaaaaaab", "aaaaaaaaba"].map(|text| numbers.hash_one(text));
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
        let marks: HashSet<_> = (0..100u64)
            .flat_map(|a| (0..100u64).map(move |b| numbers.mark([a << 12, b << 12].into_iter())))
            .collect();
        assert_eq!((marks.len(), numbers.mark([5, 6].into_iter())), (10_000, numbers.mark([5, 6].into_iter())));
        assert_ne!(numbers.hash_one(vec![1u64, 2]), numbers.hash_one(vec![2u64, 1]));
    }
}
