//! Tasks that wait for memory: what the kernel tells of them (pressure stall information), and what it means.
//!
//! The kernel tells when tasks waited a tenth of a window. Two things it tells are not what the daemon asked for. The
//! first time may be told after microseconds: for a daemon without special rights Linux 6.18 counts from what tasks
//! waited since the machine began. And the thread that fills is a task, too: it may wait for a huge page that is made
//! of small ones, at idle priority for long.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, RawFd};
use std::time::{Duration, Instant};

use faultless_base::sys::pressure;

const PRESSURE: &str = "/proc/pressure/memory";

/// What the kernel told means this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Nothing: tasks waited for less since it was asked.
    Nothing,
    /// The daemon itself may be what waits.
    Own,
    /// Others wait.
    Others,
}

/// The kernel was asked to tell.
#[derive(Debug)]
pub struct Stalls {
    trigger: File,
    window: Duration,
    /// Microseconds that tasks had waited when it was asked.
    before: u64,
    /// When the daemon was last seen to take memory.
    filled: Option<Instant>,
}

impl Stalls {
    /// Asks the kernel; `None`: it does not tell.
    pub fn ask() -> Option<Self> {
        let before = pressure::stalled()?;
        let of = |window: Duration| {
            let mut trigger = OpenOptions::new().read(true).write(true).open(PRESSURE).ok()?;
            let what = format!("some {} {}\0", least(window), window.as_micros());
            trigger.write_all(what.as_bytes()).ok()?;
            Some(Self { trigger, window, before, filled: None })
        };
        // Without special rights the window is a multiple of two seconds.
        of(Duration::from_secs(1)).or_else(|| of(Duration::from_secs(2)))
    }

    /// Where it tells.
    pub fn descriptor(&self) -> RawFd {
        self.trigger.as_raw_fd()
    }

    /// The daemon takes memory, or did just now.
    pub fn fills(&mut self, now: Instant) {
        self.filled = Some(now);
    }

    /// The kernel told. What it tells next is of others, unless the daemon goes on.
    pub fn told(&mut self, now: Instant) -> Told {
        let told = self.meaning(pressure::stalled(), now);
        if told == Told::Own {
            self.filled = None;
        }
        told
    }

    fn meaning(&self, waited: Option<u64>, now: Instant) -> Told {
        match waited {
            Some(waited) if waited.saturating_sub(self.before) < least(self.window) => Told::Nothing,
            _ if self.filled.is_some_and(|at| now.duration_since(at) < self.window) => Told::Own,
            _ => Told::Others,
        }
    }
}

/// Microseconds of a window that tasks have to wait.
fn least(window: Duration) -> u64 {
    window.as_micros() as u64 / 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_before_and_what_the_daemon_takes_itself_is_no_pressure() {
        let now = Instant::now();
        let window = Duration::from_secs(2);
        let mut stalls =
            Stalls { trigger: File::open("/dev/null").unwrap(), window, before: 5_000_000, filled: None };
        assert_eq!(stalls.meaning(Some(5_000_004), now), Told::Nothing, "4 µs");
        assert_eq!(stalls.meaning(Some(5_199_999), now), Told::Nothing);
        assert_eq!(stalls.meaning(Some(5_200_000), now), Told::Others);
        assert_eq!(stalls.meaning(None, now), Told::Others, "in doubt it gives back");
        stalls.fills(now);
        assert_eq!(stalls.meaning(Some(5_000_004), now), Told::Nothing);
        assert_eq!(stalls.meaning(Some(6_000_000), now + window / 2), Told::Own);
        assert_eq!(stalls.meaning(Some(6_000_000), now + window), Told::Others);
    }
}
