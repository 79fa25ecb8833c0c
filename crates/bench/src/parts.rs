//! Benches in parts: which ones are run, and where their figures go.

use std::fmt::Debug;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::ValueEnum;

use super::aims::Aims;
use super::contender::Contender;

/// The parts that were asked for, all of them if none was; each is announced when its turn comes.
pub fn wanted<P: ValueEnum + PartialEq + Debug + 'static>(
    only: &[P],
    start: Instant,
) -> impl Iterator<Item = &'static P> {
    let is_wanted = move |part: &&P| only.is_empty() || only.contains(part);
    P::value_variants()
        .iter()
        .filter(is_wanted)
        .inspect(move |part| eprintln!("[{:4.0} s] {part:?}", start.elapsed().as_secs_f64()))
}

/// Says who cannot take part, and why.
pub fn say_missing(missing: &[(Contender, String)]) {
    for (contender, reason) in missing {
        println!("No {}: {reason}.\n", contender.name());
    }
}

/// Says what was aimed at and what was reached, and how long it took.
pub fn close(aims: &Aims, start: Instant) {
    aims.print();
    println!("{:.0} s elapsed.", start.elapsed().as_secs_f64());
}

/// Writes a file that was asked for.
pub fn save(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| path.display().to_string())
}
