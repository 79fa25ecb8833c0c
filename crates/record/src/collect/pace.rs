//! When the ends of faults are recorded.
//!
//! An end tells how long a fault took, and whether it brought a huge page. A record costs about a third of a small
//! fault, so the recorder takes a bounded number of them. While faults are rare, all ends have one. While they are
//! many, ends are recorded in a window at the beginning of each cycle. Huge pages cannot be many in a second, because
//! each takes the kernel long: so a program that gets them has all of their ends recorded.

use std::time::Duration;

/// Ends that are recorded in a second, on the CPU with the most faults: about this many.
const ENDS: f64 = 10_000.0;
/// A cycle. In the first second it is shorter, so that short programs have timed faults too.
const CYCLE: Duration = Duration::from_millis(200);
const FIRST_CYCLE: Duration = Duration::from_millis(50);
const SOON: Duration = Duration::from_secs(1);
/// The shortest window: switching takes some time itself.
const SHORTEST: Duration = Duration::from_millis(1);
/// The longest window, as a part of a cycle: a longer one has all ends. So ends that follow each other within a quarter
/// of a cycle have no pause between them.
const LONGEST: f64 = 0.75;
/// This many times the right number are too many, also within a cycle.
const TOO_MANY: f64 = 4.0;
/// What is counted in less time gives no rate.
const LEAST: Duration = Duration::from_millis(1);

/// How long ends are recorded in a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// From its beginning to its end.
    All,
    /// At its beginning, so long.
    Window(Duration),
}

/// The cycle that follows `age` after the beginning.
pub fn cycle(age: Duration) -> Duration {
    if age < SOON { FIRST_CYCLE } else { CYCLE }
}

fn rate(faults: u64, time: Duration) -> f64 {
    faults as f64 / time.max(LEAST).as_secs_f64()
}

/// What the next cycle does, after one with that many faults.
pub fn next(faults: u64, time: Duration, cycle: Duration) -> Ends {
    let part = ENDS / rate(faults, time);
    if part > LONGEST { Ends::All } else { Ends::Window(cycle.mul_f64(part).max(SHORTEST)) }
}

/// Whether a cycle in which all ends are recorded has to end early.
pub fn is_too_fast(faults: u64, time: Duration) -> bool {
    time >= LEAST && rate(faults, time) > TOO_MANY * ENDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_faults_have_all_of_their_ends_and_many_have_some() {
        let (second, cycle) = (Duration::from_secs(1), Duration::from_millis(200));
        assert_eq!(next(0, second, cycle), Ends::All);
        assert_eq!(next(10_000, second, cycle), Ends::All);
        assert_eq!(next(20_000, second, cycle), Ends::Window(cycle / 2));
        assert_eq!(next(100_000, second, cycle), Ends::Window(cycle / 10));
        assert_eq!(next(u64::MAX, second, cycle), Ends::Window(SHORTEST));
        assert_eq!(next(0, Duration::ZERO, cycle), Ends::All);
        assert!(is_too_fast(50_000, second) && !is_too_fast(30_000, second));
        assert!(!is_too_fast(61, Duration::ZERO), "one fault says nothing");
    }
}
