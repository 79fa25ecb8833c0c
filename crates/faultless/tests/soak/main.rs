//! A soak: the features of the library at the same time, in one process and under memory pressure, and each byte compared
//! with what it has to be.
//!
//! `cargo test` runs a few rounds. `cargo xtask soak SECONDS` runs it for that long, in a control group with a limit where
//! one can be made. A failure names the worker, and the seed of its round.

mod blocks;
mod files;
mod group;
mod history;
mod lengths;
mod pace;
mod regions;
mod snapshots;
mod threads;

use std::thread;
use std::time::{Duration, Instant};

use faultless::region::{Region, set_as};
use faultless_page::stats::Counter;

use group::Group;
use pace::Pace;

/// Rounds of each worker in a short run.
const ROUNDS: usize = 3;
/// Bytes of the control group in a long one. The workers take a third of them.
const LIMIT: usize = 768 << 20;
/// The knob `budget`: less than the files alone have, so that pages go all the time.
const BUDGET: u64 = 16 << 20;

/// A worker, and its name.
type Worker = (&'static str, fn(&Pace) -> usize);

const WORKERS: [Worker; 10] = [
    ("snapshots", snapshots::work),
    ("regions", regions::work),
    ("swapped", regions::work_above_a_budget),
    ("forks", regions::fork),
    ("blocks", blocks::work),
    ("files", files::work),
    ("private mappings", files::work_privately),
    ("a file in a group", threads::work),
    ("a file of any length", lengths::work),
    ("pressure", group::press),
];

#[test]
fn every_byte_is_as_it_has_to_be() {
    let seconds = std::env::var("FAULTLESS_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    let group = seconds.map(|_: u64| Group::new(LIMIT));
    if let Some(Err(why)) = &group {
        println!("no control group: {why}");
    }
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    if seconds.is_none() {
        faultless_testkit::limit::limit();
    }
    assert!(set_as(b"budget", BUDGET));
    let pace = Pace::new(end, ROUNDS);
    thread::scope(|scope| {
        let start = |(name, work): Worker| {
            let pace = &pace;
            (name, thread::Builder::new().name(name.into()).spawn_scoped(scope, move || work(pace)))
        };
        let workers = WORKERS.map(start);
        for (name, worker) in workers {
            let rounds =
                worker.expect("a thread").join().unwrap_or_else(|_| panic!("{name} has failed: see above"));
            println!("{name}: {rounds} rounds");
        }
    });
    for counter in [Counter::BytesPressed, Counter::FileEvicted, Counter::FileWritten, Counter::SnapshotCopied] {
        println!("{}: {} MiB", counter.declared().name, Region::counted(counter) >> 20);
    }
}
