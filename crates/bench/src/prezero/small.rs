//! Blocks of orders below that of a huge page: what zeroing them ahead could save at most.
//!
//! Such a block of calloc is zeroed hot. One of malloc comes from the same place and is not zeroed. So the difference
//! between the two is all that zeroing ahead could take off the program's own time. Each block has been the program's a
//! moment before, as in a loop over temporaries.

use super::runs::{Runs, Way};
use crate::loops::Outcome;
use crate::table;
use crate::turns::{Turns, ratio};
use faultless_measure::paired::median;

/// Bytes of a block: orders 6, from which the library serves blocks, to 9.
const SIZES: [u64; 4] = [256 << 10, 512 << 10, 1 << 20, 2 << 20];
const ROUNDS: usize = 6;
/// Of a run.
const SECONDS: f64 = 0.2;

/// How the block is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum By {
    Calloc,
    Malloc,
}

/// The two take turns for each size.
pub fn table(runs: &Runs) {
    let mut rows = table::new_table(&["block", "calloc", "malloc", "saved at most", "malloc to calloc"]);
    for size in SIZES {
        let turns = Turns { rounds: if runs.context.quick { 1 } else { ROUNDS }, deadline: runs.deadline() };
        let rounds = turns.run(
            &[By::Calloc, By::Malloc],
            |by| format!("{by:?}"),
            |by| {
                let how = if by == By::Malloc { "--by-malloc" } else { "" };
                let seconds = runs.context.seconds(SECONDS);
                let launch = runs.looping(&format!("marked --size {size} {how} --seconds {seconds}"));
                let (sample, _) = runs.sample(&launch, Way::Faultless)?;
                serde_json::from_str::<Outcome>(sample.output.trim()).map_err(|error| error.to_string())
            },
        );
        let middle = |by| median(&rounds.get(&by)?.iter().map(|taken| taken.cost).collect::<Vec<_>>());
        let (Some(calloc), Some(malloc)) = (middle(By::Calloc), middle(By::Malloc)) else { continue };
        let beside = ratio(&rounds, &By::Malloc, &By::Calloc, |taken| taken.cost);
        rows.add_row([
            table::bytes(size as f64),
            table::seconds(calloc),
            table::seconds(malloc),
            table::seconds((calloc - malloc).max(0.0)),
            beside.map_or(table::NOTHING.into(), |ratio| table::interval(&ratio)),
        ]);
    }
    println!(
        "**Blocks below a huge page** (a byte of each page written, then freed; malloc's are not zeroed: what zeroing \
         ahead could save at most)\n\n{rows}\n"
    );
}
