//! What lies at addresses: ranges that do not overlap. A new one takes the place of what was there.

use rpds::RedBlackTreeMap;

/// Ranges with something in each. A copy costs nothing, and shares with the original what is the same in both.
#[derive(Clone, Debug)]
pub struct Ranges<T> {
    /// Where each begins: where it ends, and what is in it.
    all: RedBlackTreeMap<u64, (u64, T)>,
}

impl<T> Default for Ranges<T> {
    fn default() -> Self {
        Self { all: RedBlackTreeMap::new() }
    }
}

impl<T: Clone> Ranges<T> {
    /// The last one that begins before `address`, or at it.
    fn before(&self, address: u64) -> Option<(u64, &(u64, T))> {
        self.all.range(..=address).next_back().map(|(start, range)| (*start, range))
    }

    /// What is at an address.
    pub fn get(&self, address: u64) -> Option<&T> {
        let (_, (end, value)) = self.before(address)?;
        (address < *end).then_some(value)
    }

    /// Puts something there; what is left of others before it and behind it stays.
    pub fn insert(&mut self, start: u64, end: u64, value: T) {
        if start >= end {
            return;
        }
        if let Some((from, (to, old))) = self.before(start)
            && *to > start
        {
            let (to, old) = (*to, old.clone());
            if to > end {
                self.all.insert_mut(end, (to, old.clone()));
            }
            self.all.insert_mut(from, (start, old));
        }
        let covered: Vec<u64> = self.all.range(start..end).map(|(from, _)| *from).collect();
        for from in covered {
            if let Some((to, old)) = self.all.get(&from).filter(|(to, _)| *to > end).cloned() {
                self.all.insert_mut(end, (to, old));
            }
            self.all.remove_mut(&from);
        }
        self.all.insert_mut(start, (end, value));
    }

    /// Those that begin from `start` up to before `end`: where they begin and end, and what is in them.
    pub fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64, &T)> {
        self.all.range(start..end).map(|(from, (to, value))| (*from, *to, value))
    }

    /// What is in all of them, in the order of addresses.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.all.values().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_last_that_was_put_at_an_address_counts(
            puts in proptest::collection::vec((0u64..40, 0u64..40), 1..30)
        ) {
            let (mut ranges, mut naive) = (Ranges::default(), [None; 40]);
            for (n, (start, end)) in puts.into_iter().enumerate() {
                let before = ranges.clone();
                ranges.insert(start, end, n);
                let old: Vec<_> = (0..40).map(|at| before.get(at).copied()).collect();
                prop_assert_eq!(&old[..], &naive[..], "a copy stays as it was");
                (start..end).for_each(|at| naive[at as usize] = Some(n));
            }
            let found: Vec<_> = (0..40).map(|at| ranges.get(at).copied()).collect();
            prop_assert_eq!(&found[..], &naive[..]);
            let mut behind = 0;
            for (start, end, _) in ranges.within(0, 40) {
                prop_assert!(behind <= start && start < end);
                behind = end;
            }
        }
    }
}
