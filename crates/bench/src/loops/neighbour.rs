//! A program that gives memory back with rests between, and one that computes beside it.

use std::hint::black_box;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::Outcome;
use super::memory::Mapping;
use super::misses::Misses;
use faultless_measure::costs::pin;

/// Maps, touches one line of each page, unmaps, rests. The cost is that of one round without the rest.
pub fn releases(size: usize, rest: u64, seconds: f64) -> io::Result<Outcome> {
    let start = Instant::now();
    let (mut busy, mut rounds, mut checksum) = (Duration::ZERO, 0u32, 0);
    while start.elapsed().as_secs_f64() < seconds {
        let round = Instant::now();
        checksum = Mapping::new(size)?.place().touch_lines(1);
        busy += round.elapsed();
        rounds += 1;
        thread::sleep(Duration::from_millis(rest));
    }
    Ok(Outcome { cost: busy.as_secs_f64() / rounds.max(1) as f64, checksum })
}

/// Words of the neighbour's table: 1 MiB, of which a second-level cache holds much and others' zeroes could drive out.
const WORDS: usize = 128 << 10;
/// Steps between looks at the clock.
const STEPS: usize = 1 << 16;

/// What the steps of a computation took.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub struct Steps {
    /// Seconds of one.
    pub cost: f64,
    /// Cache misses of one, where they are counted.
    pub misses: Option<f64>,
    /// Of what was computed.
    pub checksum: u64,
}

/// Follows a random cycle through a table, on one CPU.
pub fn compute(seconds: f64) -> io::Result<Steps> {
    pin();
    let table = cycle(WORDS);
    let mut at = 0;
    let walk = |at: usize| (0..STEPS).fold(at, |at, _| table[at] as usize);
    at = walk(at);
    let mut counter = Misses::start();
    let start = Instant::now();
    let mut steps = 0u64;
    while start.elapsed().as_secs_f64() < seconds {
        at = black_box(walk(at));
        steps += STEPS as u64;
    }
    let cost = start.elapsed().as_secs_f64() / steps as f64;
    let misses = counter.as_mut().and_then(Misses::read).map(|misses| misses as f64 / steps as f64);
    Ok(Steps { cost, misses, checksum: table.iter().map(|word| u64::from(*word)).sum() })
}

/// A permutation of one cycle (Sattolo's shuffle): from each word to the next.
fn cycle(words: usize) -> Vec<u32> {
    let mut table: Vec<u32> = (0..words as u32).collect();
    let mut random = 0x9E37_79B9_7F4A_7C15u64;
    for i in (1..words).rev() {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        table.swap(i, (random >> 33) as usize % i);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cycle_goes_through_all_words() {
        let table = cycle(1000);
        let mut at = 0;
        let steps = (1..).find(|_| {
            at = table[at] as usize;
            at == 0
        });
        assert_eq!(steps, Some(1000));
    }
}
