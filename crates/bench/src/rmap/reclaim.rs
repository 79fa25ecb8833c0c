//! Pages go from all areas that map them: computed owners beside lists for each page.

use crate::aims::Aims;
use crate::loops::{Known, Reclaimed};
use crate::table;
use crate::turns::ratio;
use faultless_measure::paired::median;

use super::runs::Runs;

const ROUNDS: usize = 7;
/// Entries of page tables that go in each run, if there are areas for it.
const ENTRIES: usize = 2_000_000;
const MOST_PAGES: usize = 200_000;
/// Numbers of areas, and how much longer a page may take with computed owners.
const CASES: [(usize, f64); 4] = [(1, 1.1), (2, 1.1), (10, 1.1), (1000, 2.0)];

/// Runs it and prints the tables.
pub fn tables(runs: &mut Runs, aims: &mut Aims) {
    println!(
        "**Pages go** from all areas that map them, after a look whether they were used; areas and tables are the bench's \
         own\n"
    );
    let header = [
        "areas, owners",
        "mapped: a page",
        "unmapped: a page",
        "looked at: a page",
        "reclaimed: a page",
        "computed",
        "walked",
        "stale",
    ];
    let mut rows = table::new_table(&header);
    let stats_header = [
        "areas, owners",
        "added: 1st",
        "2nd",
        "3rd and more",
        "no list",
        "by faults",
        "by looks",
        "removed: 1st",
        "others",
        "no list",
        "by unmap",
        "by reclaim",
        "locks taken",
    ];
    let mut stats = table::new_table(&stats_header);
    let mut verdicts = Vec::new();
    for (areas, most) in CASES {
        let pages = (ENTRIES / areas).min(MOST_PAGES);
        let rounds = runs.reclaims(areas, pages, ROUNDS);
        for (known, all) in &rounds {
            let name = match known {
                Known::Lazy => format!("{areas}, computed"),
                Known::Eager => format!("{areas}, lists"),
                Known::Kept => format!("{areas}, lists once asked for"),
            };
            let each = |figure: fn(&Reclaimed) -> f64| {
                let all: Vec<f64> = all.iter().map(figure).collect();
                table::seconds(median(&all).unwrap_or(0.0) / pages as f64)
            };
            let mut cells = vec![name.clone(), each(|all| all.mapped), each(|all| all.unmapped)];
            cells.extend([each(|all| all.looked), each(|all| all.reclaimed)]);
            cells.extend(all[0].walks.map(|n| n.to_string()));
            rows.add_row(cells);
            let (chains, callers) = (all[0].chains, all[0].callers);
            let added = chains.added.iter().chain([&chains.nope[0]]).chain(&callers[..2]);
            let removed = chains.removed.iter().chain([&chains.nope[1]]).chain(&callers[2..]);
            let mut cells = vec![name];
            cells.extend(added.chain(removed).chain([&chains.locked]).map(u64::to_string));
            stats.add_row(cells);
        }
        let beside = ratio(&rounds, &Known::Lazy, &Known::Eager, |all: &Reclaimed| all.reclaimed);
        verdicts.push((format!("reclaim of a page of {areas} areas, computed owners beside lists"), most, beside));
    }
    println!("{rows}\n\nWhat was done to lists:\n\n{stats}\n");
    for (what, most, beside) in verdicts {
        aims.at_most(&what, most, beside);
    }
}
