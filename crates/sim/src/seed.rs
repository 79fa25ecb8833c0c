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
//! - With several threads the clock runs longer than each thread's share of the processor time. The difference is 0.55
//!   to 1.86 µs a page in all tables but the first, where it grows from 0.55 µs with 2 threads to 3.9 µs with 128. It is
//!   taken to be a constant time for each page: a part of the program that one thread does for all, as unmapping. This
//!   form was seen in all tables, so also in the rows of [`Source::Predicted`]. Its size is fitted.
//!
//! - The patch says "max order 3"; what its code brings is up to 15 pages. Both orders are computed. Order 4, 16 pages,
//!   is nearer to the code, and counts where rows are counted.
//!
//! Tables with prefaulting and the lock have a second prediction, by the lock as it was ([`linux_2_6_10`]).

use serde::Serialize;

use crate::costs::Costs;
use crate::linux_2_6_10::{self, LOCK, Lock, PAGEVEC};
use crate::pattern::Pattern;
use crate::work::{Frames, Setup, run};

/// The machine of the tables: costs with which the simulation comes closest to the rows of [`Source::Fitted`].
/// [`FITTED`] names those that are fitted. The others:
///
/// - `touch` is read off the first table: one thread's time in user mode.
/// - `entry` is read off the first and the third: what prefaulting saves one thread, of 14 faults in 15.
/// - `install` is the rest of a fault without clearing. The prezeroing patch's table has that ([`PREZEROED`]).
/// - `line` is said there, too. `call` and `local` are assumed.
///
/// `cargo test -p faultless-sim` checks what is read off, and that none of the fitted costs fits better when it is much
/// larger or smaller.
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

/// Faults a second of the prezeroing patch's table, for a zeroed page of which one line is used.
pub const PREZEROED: f64 = 500_813.853;
/// Threads of an address space.
pub const GROUP: usize = 128;
/// Pages of each thread that are simulated. Times and rates are scaled up from them to a table's size.
pub const PAGES: usize = 512;

/// A row: threads, seconds in user mode and in the kernel, pages touched in a second of processor time, and in a second.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Row {
    /// Threads.
    pub threads: usize,
    /// Seconds of processor time in user mode.
    pub user: f64,
    /// Seconds of processor time in the kernel.
    pub system: f64,
    /// Pages touched in a second of processor time, as printed then. From the printed seconds it may be one off.
    pub per_cpu: f64,
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

    /// The order of windows nearest to what its code brings.
    pub fn order(&self) -> u32 {
        *self.orders.last().expect("one at least")
    }

    /// Pages that are touched in all repetitions.
    pub fn pages(&self) -> f64 {
        self.bytes() * self.reps as f64 / MACHINE.page
    }

    /// What the simulation says of a row.
    pub fn predict(&self, row: &Row, order: u32, costs: &Costs) -> Predicted {
        let spaces = spaces(row.threads);
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
        let took = run(&setup, costs);
        let each = 1.0 / took.pages as f64;
        Predicted::of(
            [took.user, took.system, took.wall].map(|seconds| seconds * each),
            spaces,
            serial(row.threads, costs),
        )
    }

    /// What the handler of 2.6.10 says of a row, with one page a fault or with as many as the patch brings.
    pub fn predict_then(&self, row: &Row) -> Predicted {
        self.predict_with(row, &LOCK)
    }

    fn predict_with(&self, row: &Row, lock: &Lock) -> Predicted {
        let spaces = spaces(row.threads);
        let setup = linux_2_6_10::Setup {
            threads: row.threads / spaces,
            // Windows of 1, 2, 4 and 8 pages, and then of 15.
            pages: 33 * PAGEVEC,
            clear: MACHINE.clear(self.bytes() / row.threads as f64),
            window: if self.order() == 0 { 1 } else { PAGEVEC },
        };
        let took = linux_2_6_10::run(&setup, &MACHINE, lock);
        let each = 1.0 / took.pages as f64;
        Predicted::of(
            [took.user, took.system, took.wall].map(|seconds| seconds * each),
            spaces,
            serial(row.threads, &MACHINE),
        )
    }

    /// What a constant ceiling says of a row, without any simulation. That is as many times one thread's rate as there
    /// are threads, up to what the serial part leaves to each address space.
    pub fn ceiling(&self, row: &Row) -> f64 {
        let one = 1e9 / (MACHINE.entry + MACHINE.install + MACHINE.clear(self.bytes()) + MACHINE.touch);
        if row.threads == 1 {
            one
        } else {
            (row.threads as f64 * one).min(spaces(row.threads) as f64 * 1e9 / MACHINE.serial)
        }
    }

    /// Whether it ran on the lock of 2.6.10.
    pub fn is_locked(&self) -> bool {
        !self.speculative
    }
}

/// Address spaces that a row of this many threads is compared with.
pub fn spaces(threads: usize) -> usize {
    threads.div_ceil(GROUP)
}

/// Seconds a page that one thread does for all.
fn serial(threads: usize, costs: &Costs) -> f64 {
    if threads > 1 { costs.serial * 1e-9 } else { 0.0 }
}

/// Pages a second of this many threads, each address space at the rate of `space` but for the serial part.
pub fn with_serial(space: f64, spaces: usize) -> f64 {
    spaces as f64 / (1.0 / space + MACHINE.serial * 1e-9)
}

/// What the simulation says of a row: seconds a page.
#[derive(Clone, Copy, Debug)]
pub struct Predicted {
    /// Of all processors, in the program.
    pub user: f64,
    /// Of all processors, in faults.
    pub system: f64,
    /// On the clock, of one address space, while its threads fault.
    pub parallel: f64,
    /// Address spaces.
    pub spaces: usize,
    /// What one thread of each spends alone.
    pub serial: f64,
}

impl Predicted {
    fn of([user, system, parallel]: [f64; 3], spaces: usize, serial: f64) -> Self {
        Self { user, system, parallel, spaces, serial }
    }

    /// Pages touched in a second of all address spaces together, the serial part included.
    pub fn rate(&self) -> f64 {
        self.spaces as f64 / (self.parallel + self.serial)
    }

    /// Which part of the time on the clock is the serial part.
    pub fn serial_share(&self) -> f64 {
        self.serial / (self.parallel + self.serial)
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
        let mut next = || numbers.next().expect("six numbers in each line");
        let table = &mut tables[next() as usize];
        let [threads, user, system, per_cpu, rate] = std::array::from_fn(|_| next());
        table.rows.push(Row { threads: threads as usize, user, system, per_cpu, rate });
    }
    tables
}

/// Where what the simulation says of a row comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Costs were chosen by it: the standard kernel's rows up to 128 threads, for the lock. Rows of few threads
    /// of the third table gave the costs of memory on other nodes and of the serial part.
    Fitted,
    /// A rule was read off it: rows of more than 128 threads are taken as multiples of the row of 128.
    ReadOff,
    /// Neither.
    Predicted,
}

impl Source {
    /// Of a row of a table, by its place.
    pub fn of(table: usize, row: &Row) -> Self {
        match (table, row.threads) {
            (_, threads) if threads > GROUP => Self::ReadOff,
            (0, _) | (2, ..=16) => Self::Fitted,
            _ => Self::Predicted,
        }
    }

    /// As it stands in the tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fitted => "fitted",
            Self::ReadOff => "read off",
            Self::Predicted => "predicted",
        }
    }
}

/// How far the simulation is from the rows that it is fitted to: the mean square of the logarithm.
pub fn distance(costs: &Costs) -> f64 {
    let mut squares = Vec::new();
    for (i, table) in tables().iter().enumerate() {
        for row in table.rows.iter().filter(|row| Source::of(i, row) == Source::Fitted) {
            let rate = table.predict(row, table.order(), costs).rate();
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
    fn costs_that_are_not_fitted_are_those_of_the_tables() {
        let tables = tables();
        let [standard, both] = [0, 2].map(|table: usize| &tables[table].rows[0]);
        let near = |what: &str, cost: f64, then: f64, error: f64| {
            assert!((cost / then - 1.0).abs() < error, "{what}: {cost}, {then} then");
        };
        near("touch", MACHINE.touch, 1e9 * standard.user / tables[0].pages(), 0.01);
        let saved = 1e9 / standard.per_cpu - 1e9 / both.per_cpu;
        near("entry", MACHINE.entry, saved * PAGEVEC as f64 / (PAGEVEC - 1) as f64, 0.03);
        near("install", MACHINE.entry + MACHINE.install, 1e9 / PREZEROED, 0.01);
    }

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
    fn no_other_lock_fits_better() {
        let table = &tables()[0];
        let distance = |lock: &Lock| {
            let rows = table.rows.iter().filter(|row| Source::of(0, row) == Source::Fitted);
            rows.map(|row| (table.predict_with(row, lock).rate() / row.rate).ln().powi(2)).sum::<f64>()
        };
        let best = distance(&LOCK);
        for (name, field) in linux_2_6_10::FITTED {
            for factor in [0.4, 2.5] {
                let mut lock = LOCK;
                *field(&mut lock) *= factor;
                assert!(distance(&lock) > best, "{name} times {factor}");
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
