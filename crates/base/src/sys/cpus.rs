//! Which processors are idle, as /proc/stat counts it.
//!
//! Between two looks the kernel has counted the ticks that each processor was idle. Background work disturbs least on
//! the processors that were idle nearly as long as the most idle one.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use super::raw::{self, leading_number};

/// Processors at most; others are left to the scheduler.
const MOST: usize = 1024;
/// Looks are as far apart as this at least: there are a hundred ticks in a second.
const APART_MS: u32 = 200;

/// A set of processors, or of nodes, as the kernel writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Set([u64; MOST / 64]);

impl Set {
    /// None.
    pub const fn new() -> Self {
        Self([0; MOST / 64])
    }

    /// Its words, to be read or written by the kernel.
    pub fn words(&mut self) -> &mut [u64] {
        &mut self.0
    }

    /// The processors.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..MOST).filter(|&cpu| self.has(cpu))
    }

    /// Whether `cpu` is one.
    pub fn has(&self, cpu: usize) -> bool {
        self.0.get(cpu / 64).is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    /// `cpu` alone.
    pub fn only(cpu: usize) -> Self {
        let mut set = Self::new();
        set.add(cpu);
        set
    }

    /// Those of which `has` says so.
    pub fn of(has: impl Fn(usize) -> bool) -> Self {
        let mut set = Self::new();
        (0..MOST).filter(|cpu| has(*cpu)).for_each(|cpu| set.add(cpu));
        set
    }

    /// Those of a list as the kernel writes it, like `0-3,8`, up to what is none.
    pub fn parse(list: &[u8]) -> Self {
        let mut set = Self::new();
        for part in list.split(|byte| *byte == b',') {
            let Some(first) = leading_number(part) else { break };
            let mut ends = part.splitn(2, |byte| *byte == b'-').skip(1);
            let last = ends.next().map_or(Some(first), leading_number);
            let Some(last) = last else { break };
            (first..=last.min(MOST as u64 - 1)).for_each(|number| set.add(number as usize));
        }
        set
    }

    fn add(&mut self, cpu: usize) {
        if let Some(word) = self.0.get_mut(cpu / 64) {
            *word |= 1 << (cpu % 64);
        }
    }

    fn take(&mut self, cpu: usize) {
        if let Some(word) = self.0.get_mut(cpu / 64) {
            *word &= !(1 << (cpu % 64));
        }
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }
}

/// What is known of each processor: the ticks that it was ever idle, in the upper half, and those between the last two
/// looks. One thread looks; words that two would write show nonsense for the time of a look.
struct Known {
    ticks: [AtomicU64; MOST],
    looked_ms: AtomicU32,
}

static KNOWN: Known = Known::new();

impl Known {
    const fn new() -> Self {
        Self { ticks: [const { AtomicU64::new(0) }; MOST], looked_ms: AtomicU32::new(0) }
    }

    /// Idle ticks between the last two looks.
    fn idle(&self, cpu: usize) -> u32 {
        self.ticks.get(cpu).map_or(0, |ticks| ticks.load(Relaxed) as u32)
    }

    /// Looks, unless that was done a moment ago. `read` gives the next part of /proc/stat.
    fn look(&self, now_ms: u32, read: impl FnMut(&mut [u8]) -> usize) {
        let last = self.looked_ms.load(Relaxed);
        if last != 0 && now_ms.wrapping_sub(last) < APART_MS {
            return;
        }
        self.looked_ms.store(now_ms.max(1), Relaxed);
        each_line(read, |line| {
            let mut fields = line.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
            let Some(name) = fields.next().and_then(|name| name.strip_prefix(b"cpu")) else { return false };
            // user, nice, system, idle, iowait, …; the first line is the sum of all.
            let (cpu, mut waits) = (leading_number(name), fields.skip(3).map(leading_number));
            if let (Some(cpu), Some(Some(idle)), Some(waiting)) = (cpu, waits.next(), waits.next())
                && let Some(ticks) = self.ticks.get(cpu as usize)
            {
                let total = idle.wrapping_add(waiting.unwrap_or(0)) as u32;
                let before = (ticks.load(Relaxed) >> 32) as u32;
                // Nothing is known before the second look.
                let since = if last == 0 { 0 } else { total.wrapping_sub(before).min(i32::MAX as u32) };
                ticks.store((total as u64) << 32 | since as u64, Relaxed);
            }
            true
        });
    }

    /// Of these processors, without `busy`, those that were idle nearly as long as the most idle one.
    fn most_idle(&self, allowed: &Set, busy: usize) -> Set {
        let mut others = *allowed;
        others.take(busy);
        let most = others.iter().map(|cpu| self.idle(cpu)).max().unwrap_or(0);
        let mut chosen = others;
        others.iter().filter(|&cpu| self.idle(cpu) < most - most / 8).for_each(|cpu| chosen.take(cpu));
        chosen
    }
}

/// The processors for work in the background, of those that the process may use, while the program is on `busy`;
/// none, if there is no other. Where there is a choice, the kernel is asked which are idle, now and then.
pub fn most_idle(allowed: &Set, busy: usize) -> Set {
    /// With two there is one other.
    const CHOICE: usize = 3;
    if allowed.count() >= CHOICE
        && let Some(mut file) = raw::File::open(c"/proc/stat")
    {
        KNOWN.look((raw::now_ns() / 1_000_000) as u32, |buffer| file.read(buffer));
    }
    KNOWN.most_idle(allowed, busy)
}

/// Calls `f` for one line after the other, while it wants more. Of a long line it gets the beginning.
pub(super) fn each_line(mut read: impl FnMut(&mut [u8]) -> usize, mut f: impl FnMut(&[u8]) -> bool) {
    let (mut part, mut line, mut length) = ([0; 512], [0; 128], 0);
    loop {
        let got = read(&mut part);
        for byte in part.iter().take(got) {
            if *byte != b'\n' {
                if let Some(place) = line.get_mut(length) {
                    *place = *byte;
                    length += 1;
                }
            } else if f(line.get(..length).unwrap_or_default()) {
                length = 0;
            } else {
                return;
            }
        }
        if got == 0 {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_testkit::foreign::{cases, garbled, in_parts};
    use proptest::prelude::*;
    use std::{format, string::String, vec::Vec};

    fn set(cpus: &[usize]) -> Set {
        let mut set = Set::new();
        cpus.iter().for_each(|cpu| set.0[cpu / 64] |= 1 << (cpu % 64));
        set
    }

    /// /proc/stat of a machine whose processors were idle for `idle` ticks.
    fn stat(idle: &[u64]) -> String {
        let line = |(cpu, idle): (usize, &u64)| format!("cpu{cpu} 10 2 33 {idle} 7 0 1 0 0 0\n");
        let lines: String = idle.iter().enumerate().map(line).collect();
        let sum: u64 = idle.iter().sum();
        format!("cpu  99 9 99 {sum} 9 0 9 0 0 0\n{lines}intr {}\nctxt 5\n", "12 ".repeat(1000))
    }

    /// Two looks, in parts of `part` bytes.
    fn known(first: &[u64], second: &[u64], part: usize) -> Known {
        let known = Known::new();
        for (now, idle) in [(1000, first), (1000 + APART_MS, second)] {
            let text = stat(idle);
            let mut rest = text.as_bytes();
            known.look(now, |buffer| {
                let n = rest.len().min(buffer.len()).min(part);
                buffer[..n].copy_from_slice(&rest[..n]);
                rest = &rest[n..];
                n
            });
        }
        known
    }

    #[test]
    fn the_most_idle_are_chosen_whatever_was_before() {
        for part in [1, 7, 100, 10_000] {
            let known = known(&[900, 0, 500, 80, 0], &[920, 20, 519, 90, 19], part);
            let chosen: Vec<usize> = known.most_idle(&set(&[0, 1, 2, 3, 4]), 0).iter().collect();
            assert_eq!(chosen, [1, 2, 4], "{part}");
            assert_eq!(known.most_idle(&set(&[0, 3]), 0), set(&[3]), "no other is allowed");
            assert_eq!(known.most_idle(&set(&[3]), 3), Set::new());
        }
    }

    #[test]
    fn before_the_second_look_all_others_are_equal() {
        let known = Known::new();
        let text = stat(&[5, 100, 9]);
        let mut rest = text.as_bytes();
        known.look(1, |buffer| {
            let n = rest.len().min(buffer.len());
            buffer[..n].copy_from_slice(&rest[..n]);
            rest = &rest[n..];
            n
        });
        assert_eq!(known.most_idle(&set(&[0, 1, 2]), 1), set(&[0, 2]));
    }

    #[test]
    fn looks_are_apart() {
        let known = known(&[0, 0, 0], &[10, 20, 20], 64);
        known.look(1000 + 2 * APART_MS - 2, |_| panic!("it looks again"));
        assert_eq!(known.most_idle(&set(&[0, 1, 2]), 1), set(&[2]));
    }

    #[test]
    fn many_processors_and_counts_that_wrap() {
        let (mut first, mut second) = ([u32::MAX as u64 - 5; 200], [u32::MAX as u64 + 1; 200]);
        (first[150], second[150]) = (0, 60);
        let known = known(&first, &second, 333);
        let all: Vec<usize> = (0..200).collect();
        assert_eq!(known.most_idle(&set(&all), 7), set(&[150]));
        assert_eq!(known.idle(3), 6);
    }

    #[test]
    fn this_machine_is_understood() {
        let mut file = raw::File::open(c"/proc/stat").unwrap();
        let known = Known::new();
        known.look(1, |buffer| file.read(buffer));
        let cpus = std::thread::available_parallelism().unwrap().get();
        let idle = known.ticks.iter().filter(|ticks| ticks.load(Relaxed) >> 32 > 0).count();
        assert!(idle >= cpus, "{idle} of {cpus}");
    }

    const STAT: &str =
        "cpu  99 9 99 100 9 0 9 0 0 0\ncpu0 10 2 33 900 7 0 1 0 0 0\ncpu1 10 2 33 4294967295 7\nintr 1 2\n";

    proptest! {
        #![proptest_config(cases())]

        /// Whatever stands there, the chosen processor is allowed, and not busy.
        #[test]
        fn any_text_is_borne(first in garbled(&[STAT]), second in garbled(&[STAT]), part in 1usize..600) {
            let known = Known::new();
            known.look(1, in_parts(&first, part));
            known.look(1 + APART_MS, in_parts(&second, part));
            let allowed = set(&[0, 1, 2, 1023]);
            let chosen = known.most_idle(&allowed, 1);
            prop_assert!(chosen.count() > 0 && chosen.iter().all(|cpu| allowed.has(cpu) && cpu != 1));
        }

        /// Lines are those of the text, up to the first one that is not wanted.
        #[test]
        fn lines_come_as_they_are(text in garbled(&[STAT]), part in 1usize..600, wanted in 0usize..6) {
            let mut lines = Vec::new();
            each_line(in_parts(&text, part), |line| {
                lines.push(line.to_vec());
                lines.len() <= wanted
            });
            let mut expected: Vec<_> = text.split(|b| *b == b'\n').map(|line| &line[..line.len().min(128)]).collect();
            expected.pop();
            expected.truncate(wanted + 1);
            prop_assert_eq!(lines, expected);
        }
    }
}
