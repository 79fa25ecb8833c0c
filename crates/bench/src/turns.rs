//! Ways of doing the same, in turns: what the machine does meanwhile hits all of them.

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::fmt::Debug;
use std::ops::Deref;
use std::time::Instant;

use super::rule::{Found, Verdict};
use faultless_measure::paired::Ratio;

/// The order of a round. The orders of as many rounds as there are ways, or twice as many of an odd number, are balanced.
/// Each way is first equally often, and comes equally often right after each other. So what one leaves in caches and in
/// memory hits all alike. It is the design of E. J. Williams (Experimental designs balanced for the estimation of residual effects of
/// treatments, 1949).
pub fn order<T: Copy>(ways: &[T], round: usize) -> Vec<T> {
    let n = ways.len();
    let is_odd = n % 2 == 1;
    let shift = if is_odd { round / 2 } else { round };
    // 0, 1, n - 1, 2, n - 2 and so on.
    let place = |i: usize| if i % 2 == 1 { i.div_ceil(2) } else { n - i / 2 };
    let mut order: Vec<T> = (0..n).map(|i| ways[(place(i) + shift) % n]).collect();
    if is_odd && round % 2 == 1 {
        order.reverse();
    }
    order
}

/// How many rounds there are.
#[derive(Clone, Copy, Debug)]
pub struct Turns {
    /// At most.
    pub rounds: usize,
    /// From then on only the first.
    pub deadline: Option<Instant>,
}

/// What came of each way; the rounds are pairs.
pub struct Rounds<W, T> {
    runs: BTreeMap<W, Vec<T>>,
    /// Those that failed: nothing of them counts.
    failed: BTreeSet<W>,
}

impl<W, T> Default for Rounds<W, T> {
    fn default() -> Self {
        Self { runs: BTreeMap::new(), failed: BTreeSet::new() }
    }
}

impl<W, T> Deref for Rounds<W, T> {
    type Target = BTreeMap<W, Vec<T>>;

    fn deref(&self) -> &Self::Target {
        &self.runs
    }
}

impl<W, T> IntoIterator for Rounds<W, T> {
    type Item = (W, Vec<T>);
    type IntoIter = btree_map::IntoIter<W, Vec<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.runs.into_iter()
    }
}

impl<'a, W, T> IntoIterator for &'a Rounds<W, T> {
    type Item = (&'a W, &'a Vec<T>);
    type IntoIter = btree_map::Iter<'a, W, Vec<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.runs.iter()
    }
}

impl<W: Ord, T> Rounds<W, T> {
    /// The runs of a way that an aim is for.
    pub fn of(&self, way: &W) -> Found<&[T]> {
        match self.runs.get(way) {
            Some(runs) => Ok(runs),
            None if self.failed.contains(way) => Err(Verdict::Missed),
            None => Err(Verdict::no_figure("it")),
        }
    }
}

impl Turns {
    /// Every way runs once a round, in [`order`]; one that fails has no more turns.
    pub fn run<W: Copy + Ord + Debug, T>(
        self,
        ways: &[W],
        name: impl Fn(W) -> String,
        mut once: impl FnMut(W) -> Result<T, String>,
    ) -> Rounds<W, T> {
        let mut ways = ways.to_vec();
        let mut all = Rounds::default();
        for round in 0..self.rounds {
            if round > 0 && self.deadline.is_some_and(|deadline| Instant::now() > deadline) {
                break;
            }
            for way in order(&ways, round) {
                match once(way) {
                    Ok(result) => all.runs.entry(way).or_insert_with(Vec::new).push(result),
                    Err(error) => {
                        println!("{}: {error}\n", name(way));
                        all.runs.remove(&way);
                        all.failed.insert(way);
                        ways.retain(|other| *other != way);
                    }
                }
            }
        }
        all
    }
}

/// What runs compute that are to compute the same: the first one's says what.
#[derive(Debug)]
pub struct Same<T>(Option<T>);

impl<T> Default for Same<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: PartialEq> Same<T> {
    /// Takes in what one run computed.
    pub fn check(&mut self, computed: T) -> Result<(), String> {
        match &self.0 {
            Some(first) if *first != computed => return Err("wrong result".into()),
            Some(_) => {}
            None => self.0 = Some(computed),
        }
        Ok(())
    }
}

/// A figure of one way in parts of another's, round by round. An aim is for the first of them: where that failed, the aim
/// is missed.
pub fn ratio<W: Ord, T>(rounds: &Rounds<W, T>, way: &W, other: &W, figure: impl Fn(&T) -> f64) -> Found<Ratio> {
    let (ours, theirs) = (rounds.of(way)?, rounds.get(other));
    let pairs = ours.iter().zip(theirs.into_iter().flatten()).map(|(a, b)| (figure(a), figure(b)));
    Ratio::of(&pairs.collect::<Vec<_>>()).ok_or(Verdict::no_figure("the other"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_take_turns_and_one_that_fails_has_no_more() {
        let mut order = Vec::new();
        let turns = Turns { rounds: 3, deadline: None };
        let rounds = turns.run(
            &[1, 2, 3],
            |way| way.to_string(),
            |way| {
                order.push(way);
                if way == 2 && order.len() > 3 {
                    Err("broken".into())
                } else {
                    Ok(way as f64 * order.len() as f64)
                }
            },
        );
        assert_eq!(order, [1, 2, 3, 3, 2, 1, 1, 3]);
        assert_eq!(rounds.keys().collect::<Vec<_>>(), [&1, &3]);
        assert_eq!(rounds[&3], [9.0, 12.0, 24.0]);
        assert_eq!(ratio(&rounds, &3, &1, |x| *x).unwrap().pairs, 3);
        assert_eq!(ratio(&rounds, &3, &2, |x| *x), Err(Verdict::no_figure("the other")));
        assert_eq!(ratio(&rounds, &2, &3, |x| *x), Err(Verdict::Missed), "it failed");
        assert_eq!(ratio(&rounds, &4, &3, |x| *x), Err(Verdict::no_figure("it")), "it never ran");
    }

    #[test]
    fn each_way_is_first_and_follows_each_other_equally_often() {
        for n in 1..15_usize {
            let ways: Vec<usize> = (0..n).collect();
            let rounds = if n % 2 == 1 { 2 * n } else { n };
            let (mut first, mut follows) = (vec![0; n], vec![vec![0; n]; n]);
            for round in 0..rounds {
                let order = super::order(&ways, round);
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, ways, "none is lost");
                first[order[0]] += 1;
                order.windows(2).for_each(|pair| follows[pair[1]][pair[0]] += 1);
            }
            let often = rounds / n;
            assert!(first.iter().all(|count| *count == often), "{n}: {first:?}");
            for (way, before) in follows.iter().enumerate() {
                let expected: Vec<usize> = (0..n).map(|other| if other == way { 0 } else { often }).collect();
                assert_eq!(*before, expected, "{n} ways, way {way}");
            }
        }
        assert!(super::order(&[] as &[u8], 3).is_empty());
        assert_eq!(super::order(&["plain", "huge", "own"], 0)[0], "plain", "the first says what is computed");
    }

    #[test]
    fn after_the_deadline_there_is_one_round() {
        let turns = Turns { rounds: 3, deadline: Some(Instant::now()) };
        assert_eq!(turns.run(&[()], |()| String::new(), |()| Ok(0))[&()].len(), 1);
    }
}
