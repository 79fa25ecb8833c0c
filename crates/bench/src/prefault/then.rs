//! The five tables of 2004, each row beside what the simulation says of it, and where that comes from.

use std::ops::RangeInclusive;

use faultless_measure::paired::median;
use faultless_sim::linux_2_6_10::LOCK;
use faultless_sim::seed::{self, MACHINE, Predicted, Row, Source, Table};
use serde::Serialize;

use crate::table;

/// A prediction is right within this factor.
const RIGHT: RangeInclusive<f64> = 3.0 / 4.0..=4.0 / 3.0;

/// A row of 2004 beside what is said of it.
#[derive(Serialize)]
pub struct Compared {
    /// Its table.
    pub title: &'static str,
    /// Threads.
    pub threads: usize,
    /// Pages touched in a second in 2004.
    pub then: f64,
    /// By the engine, with windows as the patch's code has them.
    pub engine: f64,
    /// By the handler of 2.6.10, where the row ran on its lock.
    pub locked: Option<f64>,
    /// By the serial part alone, and one thread's rate.
    pub ceiling: f64,
    /// Where it comes from.
    pub source: Source,
}

impl Compared {
    /// The prediction for what the row ran on: its lock, or none.
    fn own(&self) -> f64 {
        self.locked.unwrap_or(self.engine)
    }
}

/// The tables, one after the other, and what they show.
pub fn tables(all: &mut Vec<Compared>) {
    costs();
    for (i, table) in seed::tables().into_iter().enumerate() {
        let pages = if table.order() == 0 { 1 } else { 1 << table.order() };
        println!(
            "**{}** ({} Gb, {} times; windows up to {pages} pages; 2004 / simulated, scaled up from {} pages a thread)\n",
            table.title,
            table.gb,
            table.reps,
            seed::PAGES
        );
        let smaller = table.orders.iter().copied().find(|order| *order != table.order());
        let mut more = String::new();
        if smaller.is_some() {
            more += " windows up to 8, to 2004 |";
        }
        if table.is_locked() {
            more += " lock of 2.6.10 | to 2004 |";
        }
        println!(
            "| Threads | is | User | System | flt/cpu/s | fault/wsec | to 2004 | serial part |{more} ceiling to 2004 |"
        );
        println!("|---|---|---|---|---|---|---|---|{}---|", "---|".repeat(more.matches('|').count()));
        for row in &table.rows {
            all.push(line(&table, i, row, smaller));
        }
        println!();
    }
    summary(all);
}

/// What operations take on that machine, and where each figure comes from.
fn costs() {
    println!("**Costs of the machine of 2004**\n");
    println!("| what | takes | is |");
    println!("|---|---|---|");
    let speed = |ns: f64| format!("{:.2} GB/s", MACHINE.page / ns);
    let clearing = format!("{}, {}", speed(MACHINE.clear_near), speed(MACHINE.clear_far));
    let elsewhere = format!("the same beyond {} on another node", table::bytes(MACHINE.near));
    let time = |ns: f64| table::seconds(ns / 1e9);
    let fitted = "fitted";
    for (what, takes, is) in [
        ("a page that is there, touched", time(MACHINE.touch), "read off: one thread's time in user mode"),
        (
            "from an access to the fault function and back",
            time(MACHINE.entry),
            "read off: what prefaulting saves one thread",
        ),
        ("a call that installs", time(MACHINE.call), "assumed"),
        ("a page installed", time(MACHINE.install), "read off: the prezeroing patch's table"),
        ("a page made and cleared, own node", time(MACHINE.clear_near), fitted),
        (&elsewhere, time(MACHINE.clear_far), "both fitted"),
        ("clearing, own node and another", clearing, "follows from the two lines above"),
        ("a shared word, had last by this processor", time(MACHINE.local), "assumed"),
        ("the same, had by another one", time(MACHINE.transfer), fitted),
        ("each one that waits for a lock adds to its hand-over", time(MACHINE.waiter), fitted),
        ("what one thread does for all, a page", time(MACHINE.serial), fitted),
        ("lock of 2.6.10: the same, had by another one", time(LOCK.transfer), fitted),
        ("lock of 2.6.10: each one that waits adds", time(LOCK.waiter), fitted),
        ("lock of 2.6.10: a page installed while it is held", time(LOCK.held), fitted),
    ] {
        println!("| {what} | {takes} | {is} |");
    }
    println!();
}

/// One row, printed.
fn line(table: &Table, i: usize, row: &Row, smaller: Option<u32>) -> Compared {
    let engine = table.predict(row, table.order(), &MACHINE);
    let source = Source::of(i, row);
    let to = |predicted: &Predicted| predicted.rate() / row.rate;
    let pages = table.pages();
    let (user, system) = (engine.user * pages, engine.system * pages);
    let mut more = String::new();
    if let Some(order) = smaller {
        more += &format!(" {:.2} |", to(&table.predict(row, order, &MACHINE)));
    }
    let locked = table.is_locked().then(|| table.predict_then(row));
    if let Some(locked) = &locked {
        more += &format!(" {:.0} | {:.2} |", locked.rate(), to(locked));
    }
    let ceiling = table.ceiling(row);
    println!(
        "| {} | {} | {:.1} / {user:.1} s | {:.1} / {system:.1} s | {:.0} / {:.0} | {:.0} / {:.0} | {:.2} | {:.0} % |{more} {:.2} |",
        row.threads,
        source.name(),
        row.user,
        row.system,
        row.per_cpu,
        pages / (user + system),
        row.rate,
        engine.rate(),
        to(&engine),
        engine.serial_share() * 100.0,
        ceiling / row.rate,
    );
    Compared {
        title: table.title,
        threads: row.threads,
        then: row.rate,
        engine: engine.rate(),
        locked: locked.map(|locked| locked.rate()),
        ceiling,
        source,
    }
}

/// How many rows are which, and how many predictions are right.
fn summary(all: &[Compared]) {
    println!("**How far that is from 2004** (right: within a third)\n");
    println!("| what is said | rows | right | off in the middle | off at most |");
    println!("|---|---|---|---|---|");
    let of = |source| all.iter().filter(move |row| row.source == source);
    print("fitted, by the engine", of(Source::Fitted).map(|row| row.engine / row.then));
    print("read off: multiples of 128, by the engine", of(Source::ReadOff).map(|row| row.engine / row.then));
    let predicted = || of(Source::Predicted);
    print("predicted, by the engine", predicted().map(|row| row.engine / row.then));
    print("predicted, by the lock that the row ran on", predicted().map(|row| row.own() / row.then));
    print("the same rows by a ceiling", predicted().map(|row| row.ceiling / row.then));
    let free = || predicted().filter(|row| row.locked.is_none());
    print("predicted, without the lock, by the engine", free().map(|row| row.engine / row.then));
    print("the same rows by a ceiling", free().map(|row| row.ceiling / row.then));
    let locked = || predicted().filter(|row| row.locked.is_some());
    print("predicted, with the lock, by the engine", locked().map(|row| row.engine / row.then));
    print("the same rows by the lock of 2.6.10", locked().map(|row| row.own() / row.then));
    print("the same rows by a ceiling", locked().map(|row| row.ceiling / row.then));
    println!();
}

fn print(what: &str, ratios: impl Iterator<Item = f64>) {
    let ratios: Vec<f64> = ratios.collect();
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln().abs()).collect();
    println!(
        "| {what} | {} | {} | {:.2} | {:.2} |",
        ratios.len(),
        ratios.iter().filter(|ratio| RIGHT.contains(ratio)).count(),
        median(&logs).unwrap_or(0.0).exp(),
        logs.iter().copied().fold(0.0, f64::max).exp(),
    );
}
