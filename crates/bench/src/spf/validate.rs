//! Threads that map, touch and unmap blocks on this machine, beside the simulation of the same, with one and two threads.
//!
//! - A region's rows are predicted. Costs are measured one by one, and no compared run is used.
//! - The kernel's row of one thread is fitted: it gives the time for which mapping and unmapping hold the lock. Its row
//!   of two threads is predicted. Faults of today's kernel take the lock of their area alone, so the simulation has them
//!   speculative.

use faultless_measure::paired::median;
use faultless_sim::blocks::{self, DISCARD, Lie};
use faultless_sim::changes::{self, ADJOINING, Faults, Kernel, X86};

use super::runs::{Case, Runs};
use crate::loops::{Reached, SpfWay as Way};
use crate::prefault::costs;
use crate::table;
use crate::turns::Rounds;

const ROUNDS: usize = 5;
/// Pages of a block of the runs.
const PAGES: usize = 128;
const WAYS: [Way; 3] = [Way::Kernel, Way::Classic, Way::Speculative];

/// The table.
pub fn table(runs: &mut Runs) {
    println!(
        "**The simulation beside this machine** (blocks of 512 KiB mapped, touched, unmapped; blocks a second, medians; a page a fault, by signal)\n"
    );
    let costs = match [1, 2].map(costs::measure) {
        [Ok(one), Ok(two)] => [one, two],
        [Err(why), _] | [_, Err(why)] => return println!("Not to be had: {why}.\n"),
    };
    let cases: Vec<Case> = [1, 2].into_iter().flat_map(|threads| WAYS.map(|way| (way, threads))).collect();
    let touched = runs.rounds("validate, touch", &[(Way::Kernel, 1)], ROUNDS, "--work touch");
    let real = runs.rounds("validate", &cases, ROUNDS, "--work blocks");
    let rate = |rounds: &Rounds<Case, Reached>, case: Case| {
        median(&rounds.get(&case)?.iter().map(|reached| reached.rate).collect::<Vec<_>>())
    };
    let one = rate(&touched, (Way::Kernel, 1)).zip(rate(&real, (Way::Kernel, 1)));
    let kernel = one.map(|(faults, blocks)| read_off(faults, blocks, costs[1].transfer));
    let mut rows = table::new_table(&["", "threads", "real", "simulated", "error", "is"]);
    for case in cases {
        let (way, threads) = case;
        let (Some(real), Some(says)) = (rate(&real, case), simulated(case, &costs[threads - 1], kernel.as_ref()))
        else {
            continue;
        };
        rows.add_row(vec![
            way.name().into(),
            threads.to_string(),
            format!("{real:.0}"),
            format!("{says:.0}"),
            format!("{:+.0} %", (says / real - 1.0) * 100.0),
            if case == (Way::Kernel, 1) { "read off" } else { "predicted" }.into(),
        ]);
    }
    println!("{rows}\n");
}

/// The costs of this machine's kernel, by faults a second without changes, and blocks a second with them.
fn read_off(faults: f64, blocks: f64, transfer: f64) -> Kernel {
    let (block, least) = (1e9 / blocks, 2.0 * X86.changes);
    // Faults that were slower in their own run than in blocks leave no time for the calls: then the blocks decide.
    let fault = (1e9 / faults).min((block - least).max(0.0) / PAGES as f64);
    let held = block - PAGES as f64 * fault;
    // The words of the lock and the area are part of a fault already.
    Kernel { pages: PAGES, fault, held, transfer, ..X86 }
}

fn simulated(case: Case, costs: &faultless_sim::costs::Costs, kernel: Option<&Kernel>) -> Option<f64> {
    let (way, threads) = case;
    if way == Way::Kernel {
        return Some(changes::run(kernel?, threads, 64, Faults::Speculative, ADJOINING).rate);
    }
    let speculative = way == Way::Speculative;
    let setup =
        blocks::Setup { lie: Lie::Apart, threads, blocks: 64, pages: PAGES, speculative, discard: DISCARD };
    Some(blocks::run(&setup, costs).rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time of one thread comes out as it was put in, with what is known of the kernel alone.
    #[test]
    fn what_is_read_off_of_one_thread_is_what_is_simulated_for_it() {
        let kernel = read_off(700_000.0, 4_000.0, 100.0);
        let says = simulated((Way::Kernel, 1), &blocks::TODAY, Some(&kernel)).expect("a rate");
        assert!((says / 4_000.0 - 1.0).abs() < 0.05, "{says}");
        let slow = read_off(100_000.0, 4_000.0, 100.0);
        let says_slow = simulated((Way::Kernel, 1), &blocks::TODAY, Some(&slow)).expect("a rate");
        assert!((says_slow / 4_000.0 - 1.0).abs() < 0.05, "{says_slow}");
        assert!(simulated((Way::Kernel, 2), &blocks::TODAY, Some(&kernel)).expect("a rate") < 2.0 * says);
        assert_eq!(simulated((Way::Kernel, 1), &blocks::TODAY, None), None);
    }
}
