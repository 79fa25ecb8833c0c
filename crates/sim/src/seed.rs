//! The tables of December 2004: anonymous memory touched for the first time on a machine of 512 processors. The first
//! one is of the standard kernel, the second with prefaulting, the third with prefaulting and faults without the page
//! table's lock.
//!
//! What is in them besides what they say:
//!
//! - Their clock prints hundredths of a second behind a zero: the rates are pages over seconds read so.
//!
//! - From 128 threads on, twice the threads give twice the rate (1.8 to 2.0 times) while processor time falls to
//!   half, in each table. Address spaces of 128 threads each behave like that, if one of them is accounted for; one
//!   address space cannot. So a row of more threads is compared with as many address spaces.
//!
//! - With several threads the clock runs longer than each thread's share of the processor time. The difference is
//!   some 1.1 to 1.4 µs a page, however many threads there are. That is taken to be a part of the program that one
//!   thread does for all, as unmapping.
//!
//! - The third table says "max order 3"; what its code brings is up to 15 pages. Both orders are computed.

use serde::Serialize;

use crate::costs::Costs;
use crate::pattern::Pattern;
use crate::work::{Figures, Frames, Setup, run};

/// The machine of the tables: costs with which the simulation comes closest to the rows of [`is_fitted`]. The time of
/// a fault without clearing is from the prezeroing patch's table: 500 000 faults a second for a page of which one
/// line is used. The part of it that prefaulting saves at one thread is the way into the kernel.
///
/// `cargo test -p faultless-sim` checks that none of the fitted costs fits better when it is much larger or smaller.
pub const MACHINE: Costs = Costs {
    page: 16384.0,
    touch: 225.0,
    entry: 250.0,
    call: 0.0,
    install: 1750.0,
    clear_near: 4490.0,
    clear_far: 19_020.0,
    near: 3.29e9,
    // Its page tables have none.
    make_huge: f64::INFINITY,
    move_huge: f64::INFINITY,
    local: 20.0,
    transfer: 1612.0,
    waiter: 134.0,
    serial: 1447.0,
    kernel_words: 0,
    line: 128,
};

/// Threads of an address space.
const GROUP: usize = 128;
/// Pages of each thread that are simulated.
const PAGES: usize = 512;

/// A row: threads, seconds in user mode and in the kernel, pages touched in a second.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Row {
    /// Threads.
    pub threads: usize,
    /// Seconds of processor time in user mode.
    pub user: f64,
    /// Seconds of processor time in the kernel.
    pub system: f64,
    /// Pages touched in a second.
    pub rate: f64,
}

/// A table.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// What it is of.
    pub title: &'static str,
    /// Gigabytes.
    pub gb: usize,
    /// Repetitions.
    pub reps: usize,
    /// Largest windows that are simulated, as orders.
    pub orders: &'static [u32],
    /// Whether faults do without the lock.
    pub speculative: bool,
    /// Its rows.
    pub rows: Vec<Row>,
}

impl Table {
    fn new(title: &'static str, size: (usize, usize), orders: &'static [u32], speculative: bool) -> Self {
        Self { title, gb: size.0, reps: size.1, orders, speculative, rows: Vec::new() }
    }

    /// Bytes that are touched in one repetition.
    pub fn bytes(&self) -> f64 {
        self.gb as f64 * (1u64 << 30) as f64
    }

    /// What the simulation says of a row.
    pub fn predict(&self, row: &Row, order: u32, costs: &Costs) -> Predicted {
        let spaces = row.threads.div_ceil(GROUP);
        let threads = row.threads / spaces;
        let setup = Setup {
            threads,
            pages: PAGES,
            bytes: self.bytes() / row.threads as f64,
            pattern: Pattern::Sequential,
            order,
            speculative: self.speculative,
            frames: Frames::Cleared,
            huge: false,
        };
        Predicted {
            figures: run(&setup, costs),
            spaces,
            serial: if row.threads > 1 { costs.serial * 1e-9 } else { 0.0 },
        }
    }
}

/// What the simulation says of a row.
pub struct Predicted {
    /// Of one address space.
    pub figures: Figures,
    /// Address spaces.
    pub spaces: usize,
    /// Seconds a page that one thread of each spends alone.
    serial: f64,
}

impl Predicted {
    /// Pages touched in a second of all address spaces together, the serial part included.
    pub fn rate(&self) -> f64 {
        self.spaces as f64 / (1.0 / self.figures.rate() + self.serial)
    }
}

/// The tables, in their order. `seed.csv` has their rows.
pub fn tables() -> Vec<Table> {
    let mut tables = vec![
        Table::new("Standard kernel: one lock", (32, 3), &[0], false),
        Table::new("Prefaulting", (32, 3), &[3, 4], false),
        Table::new("Prefaulting, and faults without the lock", (32, 10), &[3, 4], true),
        Table::new("Prefaulting, much memory", (256, 3), &[3, 4], false),
        Table::new(
            "Prefaulting by up to 32 pages, and faults without the lock, much memory",
            (256, 10),
            &[5],
            true,
        ),
    ];
    for line in include_str!("seed.csv").lines().filter(|line| !line.starts_with('#')) {
        let mut numbers = line.split(',').map(|number| number.trim().parse::<f64>().expect("a number"));
        let mut next = || numbers.next().expect("five numbers in each line");
        let table = &mut tables[next() as usize];
        table.rows.push(Row { threads: next() as usize, user: next(), system: next(), rate: next() });
    }
    tables
}

/// Whether the costs were chosen to fit a row of a table, by its place. The standard kernel's rows up to 128 threads
/// were, for the lock. Rows of few threads of the third table were, for memory on other nodes and the serial part.
/// All others are predictions.
pub fn is_fitted(table: usize, row: &Row) -> bool {
    (table == 0 && row.threads <= GROUP) || (table == 2 && row.threads <= 16)
}

/// How far the simulation is from the rows that it is fitted to: the mean square of the logarithm.
pub fn distance(costs: &Costs) -> f64 {
    let mut squares = Vec::new();
    for (i, table) in tables().iter().enumerate() {
        for row in table.rows.iter().filter(|row| is_fitted(i, row)) {
            let rate = table.predict(row, *table.orders.last().expect("one at least"), costs).rate();
            squares.push((rate / row.rate).ln().powi(2));
        }
    }
    squares.iter().sum::<f64>() / squares.len() as f64
}

/// The costs that are fitted, for a search that varies them.
pub type Field = fn(&mut Costs) -> &mut f64;
/// Names and places of them.
pub const FITTED: [(&str, Field); 6] = [
    ("clear_near", |costs| &mut costs.clear_near),
    ("clear_far", |costs| &mut costs.clear_far),
    ("near", |costs| &mut costs.near),
    ("transfer", |costs| &mut costs.transfer),
    ("waiter", |costs| &mut costs.waiter),
    ("serial", |costs| &mut costs.serial),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_other_costs_fit_better() {
        let best = distance(&MACHINE);
        assert!(best.sqrt() < 0.2, "{best}");
        for (name, field) in FITTED {
            for factor in [0.4, 2.5] {
                let mut costs = MACHINE;
                *field(&mut costs) *= factor;
                assert!(distance(&costs) > best, "{name} times {factor}");
            }
        }
    }

    #[test]
    fn processor_time_of_the_tables_goes_with_threads_as_they_say() {
        for table in tables() {
            let of = |threads| table.rows.iter().find(|row| row.threads == threads).expect("a row");
            for (few, many) in [(128, 256), (256, 512)] {
                let (few, many) = (of(few), of(many));
                let (rate, time) = (many.rate / few.rate, many.system / few.system);
                assert!(
                    (1.6..2.1).contains(&rate) && (0.45..0.56).contains(&time),
                    "{}: {rate} {time}",
                    table.title
                );
            }
        }
    }
}
