//! Runs the programs, and remembers.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;

use crate::loops::{Kept, Known, Pages, Reclaimed, RmapWay as Way, Stormed};
use crate::machine::Machine;
use crate::measure::measure;
use crate::parts;
use crate::plan::Context;
use crate::profile;
use crate::turns::{Rounds, Turns};

/// From then on every part makes one round only, so that the whole stays below eight minutes.
const TIME: Duration = Duration::from_secs(400);
/// How long a program may take.
pub const LIMIT: Duration = Duration::from_secs(120);

/// A way, and what the memory consists of.
pub type Case = (Way, Pages);

/// As it stands in the tables.
pub fn name((way, pages): Case) -> String {
    let pages = match pages {
        _ if way == Way::Alone => return way.name().into(),
        Pages::Huge => "huge pages",
        Pages::Small => "4 KiB pages",
    };
    format!("{}, {pages}", way.name())
}

/// A value's name on the command line.
pub fn word(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
}

/// One run, for the file of figures.
#[derive(Serialize)]
struct Record {
    table: String,
    way: Way,
    pages: Pages,
    bytes: u64,
    kept: Kept,
}

/// The ways through a storm.
const STORMS: [Way; 4] = [Way::Lazy, Way::Eager, Way::Kept, Way::Fork];

fn storm(context: &Context, way: Way, areas: usize, size: u64, seconds: &str) -> Command {
    let mut command = Command::new(&context.own);
    command.args(["loop", "storm", "--way", &word(way), "--areas", &areas.to_string()]);
    command.args(["--size", &size.to_string(), "--seconds", seconds]);
    command.env_remove("LD_PRELOAD").env("LC_ALL", "C");
    command
}

/// Runs programs.
pub struct Runs {
    start: Instant,
    /// What they are made for.
    pub context: Context,
    file: PathBuf,
    records: Vec<serde_json::Value>,
    /// Bytes, and the seconds that it took to keep a moment of them: the lines of the plot.
    pub taken: BTreeMap<Case, Vec<(u64, f64)>>,
}

impl Runs {
    /// None yet; files go to this folder.
    pub fn new(context: Context, dir: &Path) -> Self {
        let file = dir.join("saved");
        Self { start: Instant::now(), context, file, records: Vec::new(), taken: BTreeMap::new() }
    }

    /// How much memory is kept.
    pub fn sizes(&self) -> Vec<u64> {
        const ALL: [u64; 4] = [64 << 20, 256 << 20, 1 << 30, 4 << 30];
        let all = if self.context.full { &ALL[..] } else { &ALL[..3] };
        all.iter().map(|size| self.context.size(*size)).collect()
    }

    /// Runs the cases in turns.
    pub fn rounds(
        &mut self,
        table: &str,
        cases: &[Case],
        usual: usize,
        bytes: u64,
        saves: bool,
    ) -> Rounds<Case, Kept> {
        let turns = self.turns(usual);
        turns.run(cases, name, |case| self.once(table, case, bytes, saves))
    }

    fn turns(&self, usual: usize) -> Turns {
        let rounds = match &self.context {
            Context { quick: true, .. } => 1,
            Context { full: true, .. } => usual * 2,
            _ => usual,
        };
        Turns { rounds, deadline: (!self.context.full).then_some(self.start + TIME) }
    }

    /// Reclaims that many pages from that many areas, both ways in turns.
    pub fn reclaims(&mut self, areas: usize, pages: usize, usual: usize) -> Rounds<Known, Reclaimed> {
        let turns = self.turns(usual);
        let once = |known: Known| {
            let mut command = Command::new(&self.context.own);
            let (areas_word, pages_word) = (areas.to_string(), pages.to_string());
            command.args(["loop", "reclaim", "--known", &word(known), "--areas", &areas_word]);
            command.args(["--pages", &pages_word]);
            let used = measure(command.env_remove("LD_PRELOAD").env("LC_ALL", "C"), LIMIT)?;
            let all: Reclaimed = serde_json::from_str(used.output.trim()).map_err(|error| error.to_string())?;
            let figures = serde_json::json!({
                "table": "reclaim", "known": known, "areas": areas, "pages": pages, "reclaimed": all
            });
            self.records.push(figures);
            Ok(all)
        };
        turns.run(&[Known::Lazy, Known::Eager, Known::Kept], |known| format!("{known:?}"), once)
    }

    /// Storms of snapshots of memory of that many areas, each way in turns.
    pub fn storms(&mut self, areas: usize, size: u64, usual: usize) -> Rounds<Way, Stormed> {
        let turns = self.turns(usual);
        let seconds = self.context.seconds(1.0).to_string();
        let once = |way: Way| {
            let used = measure(&mut storm(&self.context, way, areas, size, &seconds), LIMIT)?;
            let all: Stormed = serde_json::from_str(used.output.trim()).map_err(|error| error.to_string())?;
            self.records.push(serde_json::json!({
                "table": "storms", "way": way, "areas": areas, "bytes": size, "storm": all
            }));
            Ok(all)
        };
        turns.run(&STORMS, |way| way.name().into(), once)
    }

    /// Where processor time goes in such storms.
    pub fn functions_of_storms(&self, areas: usize, size: u64) -> Vec<(String, Result<profile::Shares, String>)> {
        let seconds = self.context.seconds(1.0).to_string();
        let of = |way: Way| {
            let command = storm(&self.context, way, areas, size, &seconds);
            (way.name().to_owned(), profile::of(&command, &self.context.dir, LIMIT))
        };
        STORMS.map(of).into()
    }

    /// Runs something else in turns.
    pub fn recorded<W: Copy + Ord + Debug + Serialize, T: Serialize>(
        &mut self,
        table: &str,
        (ways, usual): (&[W], usize),
        name: impl Fn(W) -> String,
        once: impl Fn(W) -> Result<T, String>,
    ) -> Rounds<W, T> {
        let turns = self.turns(usual);
        let recorded = |way: W| {
            let result = once(way)?;
            self.records.push(serde_json::json!({ "table": table, "way": way, "result": result }));
            Ok(result)
        };
        turns.run(ways, name, recorded)
    }

    fn once(&mut self, table: &str, (way, pages): Case, bytes: u64, saves: bool) -> Result<Kept, String> {
        let mut command = Command::new(&self.context.own);
        command.args(["loop", "rmap", "--way", &word(way), "--pages", &word(pages), "--size", &bytes.to_string()]);
        if saves {
            command.arg("--save").arg(&self.file);
        }
        let used = measure(command.env_remove("LD_PRELOAD").env("LC_ALL", "C"), LIMIT)?;
        let kept: Kept = serde_json::from_str(used.output.trim()).map_err(|error| error.to_string())?;
        let record = Record { table: table.to_owned(), way, pages, bytes, kept: kept.clone() };
        self.records.push(serde_json::to_value(record).map_err(|error| error.to_string())?);
        Ok(kept)
    }

    /// All figures.
    pub fn json(&self, machine: &Machine) -> Result<String> {
        parts::figures(machine, &self.records)
    }
}
