//! Sums of what records stand for, and what they are scaled to.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::hash::Hash;

use super::{Kind, Part};
use crate::map::HashMap;

/// Rows of a table at most.
pub const MOST_ROWS: usize = 1000;

/// What was added up so far: faults by kind, so that their time can be told in the end.
#[derive(Clone, Default)]
pub struct Weight {
    /// Faults, and the records that stand for them, in the order of [`Kind::ALL`].
    sums: [(u64, u64); Kind::ALL.len()],
}

impl Weight {
    pub fn add(&mut self, kind: Kind, faults: u64) {
        let sums = &mut self.sums[kind as usize];
        *sums = (sums.0.saturating_add(faults), sums.1 + 1);
    }

    /// The kinds that have records, and their faults.
    pub fn by_kind(&self) -> impl Iterator<Item = (Kind, u64)> {
        let all = Kind::ALL.into_iter().zip(self.sums);
        all.filter(|(_, (_, samples))| *samples > 0).map(|(kind, (faults, _))| (kind, faults))
    }

    pub fn faults(&self) -> u64 {
        self.sums.iter().fold(0, |sum, (faults, _)| sum.saturating_add(*faults))
    }

    pub fn samples(&self) -> u64 {
        self.sums.iter().map(|(_, samples)| samples).sum()
    }

    /// Adds another one.
    pub fn merge(&mut self, other: &Self) {
        for (sums, (faults, samples)) in self.sums.iter_mut().zip(other.sums) {
            *sums = (sums.0.saturating_add(faults), sums.1 + samples);
        }
    }

    /// What of it is of one kind.
    pub fn only(&self, kind: Kind) -> Self {
        let mut only = Self::default();
        only.sums[kind as usize] = self.sums[kind as usize];
        only
    }
}

/// From what records stand for to what was counted.
pub struct Scale {
    pub faults: u64,
    pub sampled: u64,
    pub costs: Option<BTreeMap<Kind, f64>>,
}

impl Scale {
    pub fn number(&self, faults: u64) -> u64 {
        if self.sampled == 0 { 0 } else { (faults as u128 * self.faults as u128 / self.sampled as u128) as u64 }
    }

    pub fn part(&self, weight: &Weight) -> Part {
        let faults = weight.faults();
        let factor = if self.sampled == 0 { 0.0 } else { self.faults as f64 / self.sampled as f64 };
        let time = |costs: &BTreeMap<Kind, f64>| {
            let ns: f64 =
                weight.by_kind().map(|(kind, faults)| costs.get(&kind).unwrap_or(&0.0) * faults as f64).sum();
            ns * factor / 1e9
        };
        Part {
            faults: self.number(faults),
            share: if self.sampled == 0 { 0.0 } else { faults as f64 / self.sampled as f64 },
            time_s: self.costs.as_ref().map(time),
            samples: weight.samples(),
        }
    }
}

/// The rows of a table, with the most faults first, and where these are equal by `compare`. There are `most` at most; the
/// number is that of those that were left out.
pub fn rows<K: Hash + Eq, V, R>(
    map: HashMap<K, V>,
    most: usize,
    weight: impl Fn(&V) -> &Weight,
    compare: impl Fn(&K, &K) -> Ordering,
    row: impl Fn(K, V) -> R,
) -> (Vec<R>, u64) {
    let mut all: Vec<_> = map
        .into_iter()
        .map(|(key, value)| {
            let faults = weight(&value).faults();
            (faults, key, value)
        })
        .collect();
    all.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| compare(&a.1, &b.1)));
    let left_out = all.len().saturating_sub(most) as u64;
    all.truncate(most);
    (all.into_iter().map(|(_, key, value)| row(key, value)).collect(), left_out)
}
