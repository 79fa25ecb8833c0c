//! The rows of 2019 on many processors, each beside what the simulation of a kernel of then says.

use crate::table;
use faultless_sim::blocks::{self, DISCARD, Lie, TODAY};
use faultless_sim::changes::{ADJOINING, Faults, MISSING, ONE, ROWS, Reached, Row, Words, counted};
use faultless_sim::costs::Costs;

/// Processors, faults of each, work of a fault and what a line takes from one processor to another, in ns. It is a
/// lock's word that limits page_fault3 to the rate of its table.
const FILES: (usize, usize, f64, f64) = (72, 400, 1000.0, 110.0);
/// Faults of a thread in a second there, without and with speculative tries.
const FILES_THEN: [f64; 2] = [63_216.0, 52_537.0];

/// All tables.
pub fn tables() {
    println!(
        "**Blocks on many processors** (ebizzy -mTt N, blocks a second; 2019 / simulated; the kernel's ways, without the engine)\n"
    );
    let mut rows = table::new_table(&["processors", "classic", "speculative", "gain", "given up"]);
    for row in ROWS {
        rows.add_row(cells(&row));
    }
    println!("{rows}\n");
    spaces();
    println!("**Blocks of a region on many processors** (the engine; 512 KiB, a page a fault; blocks a second)\n");
    let mut rows = table::new_table(&[
        "processors",
        "classic",
        "speculative",
        "gain",
        "given up",
        "speculative, to linear",
        "speculative, with the kernel's words",
    ]);
    let mut one = None;
    for threads in [1, 2, 24, 48] {
        let reached = |speculative, costs: &Costs| {
            let blocks = (96 / threads).max(4);
            let setup =
                blocks::Setup { lie: Lie::Apart, threads, blocks, pages: 128, speculative, discard: DISCARD };
            blocks::run(&setup, costs)
        };
        let (classic, speculative) = (reached(false, &TODAY), reached(true, &TODAY));
        let one = *one.get_or_insert(speculative.rate);
        let beside = reached(true, &Costs { kernel_words: 2, ..TODAY });
        rows.add_row(vec![
            threads.to_string(),
            format!("{:.0}", classic.rate),
            format!("{:.0}", speculative.rate),
            format!("{:+.0} %", (speculative.rate / classic.rate - 1.0) * 100.0),
            speculative.given_up.to_string(),
            format!("{:.2}", speculative.rate / one / threads as f64),
            format!("{:.0}", beside.rate),
        ]);
    }
    println!("{rows}\n");
    adjoining();
    println!("**One shared counter** (page_fault3 on 72 processors: faults of a thread a second)\n");
    let mut rows = table::new_table(&["", "2019", "simulated", "change"]);
    let (threads, faults, work, transfer) = FILES;
    let rate = |words| counted(threads, faults, work, transfer, words) / threads as f64;
    let lock = rate(Words::Lock);
    let change = |rate: f64, to: f64| format!("{:+.1} %", (rate / to - 1.0) * 100.0);
    rows.add_row(vec![
        "the lock's word alone".into(),
        format!("{:.0}", FILES_THEN[0]),
        format!("{lock:.0} (read off)"),
        table::NOTHING.into(),
    ]);
    rows.add_row(vec![
        "speculative tries, as measured".into(),
        format!("{:.0}", FILES_THEN[1]),
        table::NOTHING.into(),
        change(FILES_THEN[1], FILES_THEN[0]),
    ]);
    for (name, words) in [
        ("a counter on a line of its own", Words::Counter),
        ("a counter on the lock's line", Words::SameLine),
        ("a counter for each processor", Words::Spread),
    ] {
        let rate = rate(words);
        rows.add_row(vec![name.into(), table::NOTHING.into(), format!("{rate:.0}"), change(rate, lock)]);
    }
    println!("{rows}\n");
}

/// The same rows in address spaces of other kinds. None of them is fitted.
fn spaces() {
    println!(
        "**Areas and page tables** (the same rows, speculative; parts of all faults, 2019 / simulated; what no counter of 2019 \
         explains is the most that may have missed a page table)\n"
    );
    let mut rows =
        table::new_table(&["processors", "address space", "speculative", "area changed", "table missing"]);
    let part = |of: Option<f64>, digits: usize| {
        of.map_or(table::NOTHING.into(), |of| format!("{:.digits$} %", of * 100.0))
    };
    for row in ROWS {
        for (name, kind) in [
            ("one area, tables stay", ONE),
            ("blocks that adjoin are one area", ADJOINING),
            ("the same, tables go with their last block", MISSING),
        ] {
            let says = row.simulated(Faults::Speculative, kind);
            let then = row.rates[1].map_or(table::NOTHING.into(), |rate| format!("{rate:.0}"));
            rows.add_row(vec![
                format!("{}, {}", row.threads, row.name),
                name.into(),
                format!("{then} / {:.0}", says.rate),
                format!("{} / {}", part(row.aborts, 1), part(Some(says.aborts()), 1)),
                format!("{} / {}", part(row.untold, 3), part(Some(says.missing()), 3)),
            ]);
        }
    }
    println!("{rows}\n");
}

/// The engine's blocks of 2 MiB, apart and as one area.
fn adjoining() {
    println!(
        "**Blocks of a region that adjoin** (the engine; 2 MiB, or a page less where they lie apart; speculative)\n"
    );
    let mut rows = table::new_table(&[
        "processors",
        "blocks a second, apart",
        "adjoining",
        "faults",
        "given up, area changed",
        "otherwise",
    ]);
    for threads in [1, 2, 24, 48] {
        let reached = |lie, pages| {
            let setup = blocks::Setup { lie, threads, blocks: 6, pages, speculative: true, discard: DISCARD };
            blocks::run(&setup, &TODAY)
        };
        let (apart, near) = (reached(Lie::Apart, 511), reached(Lie::Adjoining, 512));
        rows.add_row(vec![
            threads.to_string(),
            format!("{:.0}", apart.rate),
            format!("{:.0}", near.rate),
            near.faults.to_string(),
            format!("{} ({:.2} %)", near.given_up, 100.0 * near.given_up as f64 / near.faults as f64),
            near.otherwise.to_string(),
        ]);
    }
    println!("{rows}\n");
}

fn cells(row: &Row) -> Vec<String> {
    let says = [Faults::Classic, Faults::Speculative].map(|faults| row.simulated(faults, ONE));
    let then = |figure: Option<String>| figure.unwrap_or(table::NOTHING.into());
    let rate = |i: usize, reached: &Reached| {
        let source = if row.fitted[i] { ", fitted" } else { "" };
        format!("{} / {:.0}{source}", then(row.rates[i].map(|rate| format!("{rate:.0}"))), reached.rate)
    };
    let gain = |classic: f64, speculative: f64| format!("{:+.0} %", (speculative / classic - 1.0) * 100.0);
    let gained = row.rates[0].zip(row.rates[1]).map(|(classic, speculative)| gain(classic, speculative));
    let aborts = row.aborts.map(|part| format!("{:.1} %", part * 100.0));
    // A gain is as much fitted as the two rates that it follows from.
    let source = match row.fitted {
        [true, true] => ", fitted",
        [false, false] => "",
        _ => ", partly fitted",
    };
    vec![
        format!("{}, {}", row.threads, row.name),
        rate(0, &says[0]),
        rate(1, &says[1]),
        format!("{} / {}{source}", then(gained), gain(says[0].rate, says[1].rate)),
        format!("{} / {:.1} %", then(aborts), says[1].aborts() * 100.0),
    ]
}
