//! Whether it pays to ask ahead for what a program reads by mmap.
//!
//! A device may be as fast as the program, or the kernel's own read-ahead as good as ours: its pages are larger. So a
//! mapping begins with a trial. First the kernel reads as it does by itself, and then with requests ahead of the
//! program. Where these make it no faster, they rest, each time longer.

/// Bytes read in the two parts of a trial.
const PLAIN: usize = 16 << 20;
const ASKED: usize = 48 << 20;
/// Bytes between two checks of requests that pay, and of the first rest.
const CHECK: usize = 256 << 20;
const REST: usize = 256 << 20;
/// Requests pay where the program reads this much faster, in percent.
const GAIN: u64 = 120;

/// What is known of it for one mapping.
#[derive(Clone, Copy, Debug)]
pub struct Worth {
    asks: bool,
    /// Nanoseconds for a MiB without requests.
    plain: u64,
    /// Bytes and time of the present part, and the bytes at which it ends. Of a rest, the last part counts.
    bytes: usize,
    ns: u64,
    until: usize,
    rest: usize,
}

impl Worth {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self { asks: false, plain: 0, bytes: 0, ns: 0, until: PLAIN, rest: REST }
    }

    /// Whether to ask.
    pub const fn asks(&self) -> bool {
        self.asks
    }

    /// Whether nothing depends on when the next look comes.
    pub const fn rests(&self) -> bool {
        !self.asks && self.until > PLAIN
    }

    /// The program has read `bytes` more, in `ns`.
    pub fn note(&mut self, bytes: usize, ns: u64) {
        if self.rests() {
            // In a rest, behind what was asked for before it.
            self.until = self.until.saturating_sub(bytes).max(PLAIN);
            return;
        }
        self.bytes += bytes;
        self.ns += ns;
        if self.bytes < self.until {
            return;
        }
        let per_mib = self.ns / (self.bytes >> 20).max(1) as u64;
        (self.bytes, self.ns) = (0, 0);
        if !self.asks {
            (self.plain, self.asks, self.until) = (per_mib, true, ASKED);
        } else if per_mib.saturating_mul(GAIN) <= self.plain.saturating_mul(100) {
            self.until = CHECK;
        } else {
            (self.asks, self.until) = (false, self.rest);
            self.rest = self.rest.saturating_mul(2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// How many of this many MiB were read with requests, where a MiB takes so long without and with them.
    fn asked(mib: usize, plain: u64, with: u64) -> usize {
        let mut worth = Worth::new();
        (0..mib)
            .filter(|_| {
                let asks = worth.asks();
                worth.note(MIB, if asks { with } else { plain });
                asks
            })
            .count()
    }

    #[test]
    fn requests_go_on_where_they_pay() {
        assert_eq!(asked(2048, 1000, 500), 2048 - PLAIN / MIB);
    }

    #[test]
    fn requests_rest_ever_longer_where_they_do_not() {
        let [few, more, most] = [512, 2048, 16384].map(|mib| asked(mib, 1000, 1000));
        assert!(few <= 96 && more <= 4 * 48 && most <= 8 * 48 && few > 0, "{few} {more} {most}");
        assert!(asked(2048, 1000, 5000) <= 4 * 48);
    }

    #[test]
    fn a_device_that_becomes_slow_is_seen_after_a_rest() {
        let mut worth = Worth::new();
        (0..200).for_each(|_| worth.note(MIB, 1000));
        assert!(!worth.asks());
        let mut last = false;
        for _ in 0..1024 {
            last = worth.asks();
            worth.note(MIB, if last { 4000 } else { 9000 });
        }
        assert!(last);
    }
}
