//! In huge pages, or in small ones: whichever has been faster in this run.
//!
//! Huge pages take less of the processor. Where the free memory of a virtual machine is its host's, they take longer,
//! since the host has to find 2 MiB for each. The kernel does not say which is the case, so pieces are timed.

use std::time::Duration;

/// How a piece is brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Huge,
    Small,
}

/// Pieces of a try: two for each thread, since the first ones run beside pieces of the other way.
const TRY: usize = 8;
/// Pieces of the faster way until the other one is tried again.
const KEEP: usize = 96;

/// Which way is next.
#[derive(Debug)]
pub struct Choice {
    way: Way,
    is_try: bool,
    /// Pieces until the next turn.
    left: usize,
    /// Of the way, since the last turn.
    time: Duration,
    bytes: u64,
    /// Seconds for a byte, when each was last used; huge pages first.
    cost: [Option<f64>; 2],
}

impl Default for Choice {
    fn default() -> Self {
        Self { way: Way::Huge, is_try: true, left: TRY, time: Duration::ZERO, bytes: 0, cost: [None; 2] }
    }
}

impl Choice {
    /// For the next piece.
    pub fn next(&mut self) -> Way {
        if self.left == 0 {
            self.turn();
        }
        self.left -= 1;
        self.way
    }

    /// How long a piece took. Late ones of the way before do not count.
    pub fn took(&mut self, way: Way, bytes: u64, time: Duration) {
        if way == self.way {
            self.time += time;
            self.bytes += bytes;
            self.cost[way as usize] = Some(self.time.as_secs_f64() / self.bytes.max(1) as f64);
        }
    }

    /// A try of the other way, or, after a try, the faster one.
    fn turn(&mut self) {
        let other = if self.way == Way::Huge { Way::Small } else { Way::Huge };
        let costs = self.cost[0].zip(self.cost[1]).filter(|_| self.is_try);
        (self.way, self.left) = match costs {
            Some((huge, small)) => (if huge <= small { Way::Huge } else { Way::Small }, KEEP),
            None => (other, TRY),
        };
        self.is_try = costs.is_none();
        (self.time, self.bytes) = (Duration::ZERO, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces of each way, huge pages first, of `count`, where pieces take so long.
    fn brought(choice: &mut Choice, count: usize, costs: [u64; 2]) -> [usize; 2] {
        let mut all = [0; 2];
        for _ in 0..count {
            let way = choice.next();
            all[way as usize] += 1;
            choice.took(way, 4 << 20, Duration::from_micros(costs[way as usize]));
        }
        all
    }

    #[test]
    fn the_faster_way_has_most_pieces_also_once_it_is_the_other_one() {
        let mut choice = Choice::default();
        assert_eq!(brought(&mut choice, 2 * TRY + KEEP, [1000, 3000]), [TRY + KEEP, TRY]);
        let turned = brought(&mut choice, 20 * (TRY + KEEP), [4000, 3000]);
        assert!(turned[0] <= KEEP + 20 * TRY, "{turned:?}");
        let back = brought(&mut choice, 20 * (TRY + KEEP), [1000, 3000]);
        assert!(back[1] <= KEEP + 20 * TRY, "{back:?}");
    }

    #[test]
    fn pieces_that_were_there_say_nothing() {
        let mut choice = Choice::default();
        (0..10 * TRY).for_each(|_| _ = choice.next());
        assert_eq!(choice.cost, [None; 2]);
        // Late ones of the way before.
        let late = choice.way;
        while choice.next() == late {}
        choice.took(late, 1 << 20, Duration::from_secs(9));
        assert_eq!(choice.cost, [None; 2]);
    }
}
