//! Whether the large requests of a program, and of those that it starts, may be worth the library.
//!
//! The library costs some 0.1 ms for each program that starts, with large requests or without. A script that starts many
//! short programs pays for each, although one in ten maps a little.

use faultless_base::PAGE;
use faultless_measure::pages::Counters;
use faultless_page::stats::Counter;

use super::tree::Program;
use crate::profile::Requests;

/// Requests are few where they are those of so many processes at least: for fewer the library costs next to nothing,
const LEAST: usize = 8;
/// and where they cannot have spared a larger part of the processor time.
const PART: f64 = 0.1;
/// What a fault takes that is spared, in s: measured with pages of 4 KiB that the kernel zeroes.
const FAULT_S: f64 = 1.5e-6;

/// What they were, of processes that took so much processor time.
pub fn requests(programs: &[Program], sum: &Counters, cpu_s: f64) -> Requests {
    let processes: usize = programs.iter().map(Program::processes).sum();
    if processes == 0 {
        return Requests::No;
    }
    let bytes = |counters: &[Counter]| counters.iter().map(|counter| sum.get(*counter)).sum::<u64>();
    let covered = bytes(&[
        Counter::MmapBytes,
        Counter::MallocBytes,
        Counter::BytesAdvised,
        Counter::BytesMoved,
        Counter::BytesRecycled,
    ]);
    let spared_s = covered.div_ceil(PAGE as u64) as f64 * FAULT_S;
    let is_little = spared_s <= PART * cpu_s && bytes(&[Counter::BytesReadAhead]) == 0;
    if processes >= LEAST && is_little { Requests::Few } else { Requests::Many }
}

#[cfg(test)]
mod tests {
    use faultless_measure::pages::Folded;
    use faultless_page::stats::COUNT;

    use super::super::tree::programs;
    use super::*;

    /// What a number of processes made that map `mib` MiB each, with `more` counted.
    fn seen(processes: u32, mib: u64, more: &[(Counter, u64)], cpu_s: f64) -> Requests {
        let page = |pid| {
            let mut values = [0; COUNT];
            values[Counter::MmapServed as usize] = 1;
            values[Counter::MmapBytes as usize] = mib << 20;
            Counters::from_values(pid, values.into_iter())
        };
        let pages: Vec<_> = (0..processes).map(page).collect();
        let mut sum = [0; COUNT];
        sum[Counter::MmapBytes as usize] = u64::from(processes) * (mib << 20);
        more.iter().for_each(|(counter, n)| sum[*counter as usize] += n);
        requests(&programs(&pages, &Folded::default()), &Counters::from_values(0, sum.into_iter()), cpu_s)
    }

    #[test]
    fn what_cannot_have_spared_much_is_few() {
        assert_eq!(seen(0, 0, &[], 1.0), Requests::No);
        // 100 times 2 MiB are 51 200 faults, which take 77 ms.
        assert_eq!(seen(100, 2, &[], 0.8), Requests::Few);
        assert_eq!(seen(100, 2, &[], 0.7), Requests::Many, "they are a large part of it");
        assert_eq!(seen(7, 2, &[], 10.0), Requests::Many, "so few cost nothing");
        assert_eq!(seen(100, 2, &[(Counter::BytesReadAhead, 1)], 0.8), Requests::Many);
        assert_eq!(seen(100, 2, &[(Counter::BytesAdvised, 64 << 20)], 0.8), Requests::Many);
    }
}
