//! Runs the programs, and remembers.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use faultless_page::knobs::Knob;

use crate::format;
use crate::group::Group;
use crate::loops::{CacheWay, Met, Route, Set, Timed, Work, make_file};
use crate::machine::Machine;
use crate::measure::{Sample, measure};
use crate::parts;
use crate::plan::{Context, Launch};
use crate::read_ahead::{Ahead, ReadAhead, USUAL, drop_pages};
use crate::rule::{Found, Verdict};
use crate::turns::Turns;
use faultless_measure::paired::Ratio;

const LIMIT: Duration = Duration::from_secs(60);
/// What a process of the kernel's rows has beside the file.
const OF_PROCESS: usize = 16 << 20;

/// One run, for the file of figures.
#[derive(serde::Serialize)]
struct Record {
    table: &'static str,
    way: &'static str,
    read_ahead: Ahead,
    threads: usize,
    tests: Vec<Timed>,
    met: Option<Met>,
    used: Sample,
}

/// A script of Python, and how it is run.
pub struct Script<'a> {
    /// What its figures stand under.
    pub table: &'static str,
    /// How it is started.
    pub launch: &'a Launch,
    /// What it is told.
    pub words: &'a [&'a str],
    /// As it stands in the table.
    pub way: &'static str,
    /// The device's read-ahead meanwhile.
    pub read_ahead: Ahead,
    /// What limits its memory.
    pub group: Option<&'a Group>,
    /// The knob `budget`.
    pub budget: usize,
    /// It runs under `faultless run`, which brings these files. They are not in memory when it begins.
    pub files: Option<&'a Path>,
}

/// What a script printed.
pub struct Printed {
    /// How long what took.
    pub tests: Vec<Timed>,
    /// What it computed.
    pub computed: String,
    /// Seconds from its start to its end.
    pub wall: f64,
}

/// Runs programs.
pub struct Runs {
    /// What they are made for.
    pub context: Context,
    /// In place of those of each part.
    rounds: Option<NonZeroUsize>,
    dir: PathBuf,
    /// The file that is larger than memory; made when it is needed.
    large: Option<PathBuf>,
    group: Option<Group>,
    ahead: ReadAhead,
    records: Vec<Record>,
}

/// A value's name on the command line.
fn word(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
}

/// What is compared with the kernel under a limit is no figure where it had none.
pub fn limited(group: Option<&Group>, ratio: Found<Ratio>) -> Found<Ratio> {
    match group {
        Some(_) => ratio,
        None => Err(ratio.err().unwrap_or(Verdict::Unresolved("no control group".into()))),
    }
}

impl Runs {
    /// None yet; files are made in `dir`.
    pub fn new(context: Context, rounds: Option<NonZeroUsize>, dir: &Path) -> Result<Self> {
        let (dir, ahead) = (dir.to_owned(), ReadAhead::of(dir));
        Ok(Self { context, rounds, dir, large: None, group: None, ahead, records: Vec::new() })
    }

    /// What is said of the file system above all tables.
    pub fn about_files(&self) -> String {
        let ahead = self.ahead.found().map_or("unknown".into(), |kib| format!("{kib} KiB"));
        let kind = Command::new("df").arg("--output=fstype").arg(&self.dir).output();
        let kind = kind.map_or(String::new(), |out| {
            String::from_utf8_lossy(&out.stdout).lines().last().unwrap_or_default().to_owned()
        });
        let no_rows = self.ahead.why_not().map(|why| format!(" No rows with {USUAL} KiB: {why}."));
        format!("Files on {kind}; the device's read-ahead is {ahead}.{}", no_rows.unwrap_or_default())
    }

    /// The read-ahead that rows which depend on it have.
    pub fn aheads(&self) -> &'static [Ahead] {
        if self.ahead.why_not().is_some() { &[Ahead::Found] } else { &[Ahead::Found, Ahead::Usual] }
    }

    /// `usual` rounds within `seconds`, and one in any case; three times as many in a full run, without a deadline. Or as
    /// many as were asked for, with the same deadline.
    pub fn turns(&self, usual: usize, seconds: u64) -> Turns {
        let usual = match &self.context {
            Context { quick: true, .. } => 1,
            Context { full: true, .. } => usual * 3,
            _ => usual,
        };
        let rounds = self.rounds.map_or(usual, NonZeroUsize::get);
        let deadline = Instant::now() + Duration::from_secs(seconds);
        Turns { rounds, deadline: (!self.context.full).then_some(deadline) }
    }

    fn run(&self, command: &mut Command, budget: usize, ahead: Ahead) -> Result<Sample, String> {
        let _set = self.ahead.set(ahead)?;
        command
            .env_remove("LD_PRELOAD")
            .env("LC_ALL", "C")
            .env(Knob::Budget.declared().variable, budget.to_string());
        measure(command, LIMIT)
    }

    fn program(&self, words: &str) -> Command {
        let mut command = Command::new(&self.context.own);
        command.arg("loop").args(words.split_whitespace());
        command
    }

    /// The tests of a set by one way: their times, in the order of the set.
    pub fn inside(
        &mut self,
        set: Set,
        (way, threads, read_ahead): (CacheWay, usize, Ahead),
        size: usize,
        ready: bool,
    ) -> Result<Vec<Timed>, String> {
        let (name, table) = (word(way), if set == Set::First { "first" } else { "iozone" });
        let mut command =
            self.program(&format!("inside --set {} --way {name} --threads {threads} --size {size}", word(set)));
        command.arg("--dir").arg(&self.dir).args(ready.then_some("--ready"));
        // The kernel's page cache has all of the files, and so may this.
        let used = self.run(&mut command, 2 * size, read_ahead);
        for file in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let _ = (Some(&file.path()) != self.large.as_ref()).then(|| fs::remove_file(file.path()));
        }
        let used = used?;
        let tests: Vec<Timed> = serde_json::from_str(used.output.trim()).map_err(|error| error.to_string())?;
        let (way, tests_of) = (way.name(), tests.clone());
        let record = Record { table, way, read_ahead, threads, tests: tests_of, met: None, used };
        self.records.push(record);
        Ok(tests)
    }

    /// Bytes of the large file, and of the memory that it may take.
    pub fn large(&self) -> (usize, usize) {
        let bytes = match self.context.full {
            true => 4 << 30,
            false => self.context.size(256 << 20) as usize,
        };
        (bytes, bytes / 4)
    }

    /// Makes the large file; what is to be said above a table of it.
    pub fn make_large(&mut self) -> Result<String> {
        let (bytes, memory) = self.large();
        if self.large.is_none() {
            let path = self.dir.join("large");
            make_file(&path, bytes).with_context(|| path.display().to_string())?;
            self.large = Some(path);
            match Group::new(memory + OF_PROCESS) {
                Ok(group) => self.group = Some(group),
                Err(error) => println!("The kernel's page cache has no limit: no control group ({error}).\n"),
            }
        }
        let (bytes, memory) = (format::bytes(bytes as f64), format::bytes(memory as f64));
        Ok(format!("a file of {bytes}, memory for {memory} of it"))
    }

    /// One run beyond memory.
    pub fn beyond(
        &mut self,
        work: Work,
        (route, threads, read_ahead): (Route, usize, Ahead),
    ) -> Result<Met, String> {
        let memory = self.large().1;
        let seconds = self.context.seconds(0.7);
        let mut command = self.program(&format!(
            "beyond --work {} --route {} --threads {threads} --memory {memory} --seconds {seconds}",
            word(work),
            word(route)
        ));
        command.arg("--file").args(&self.large);
        if let Some(group) = self.group.as_ref().filter(|_| route.is_in_page_cache()) {
            command = group.enter(&command);
        }
        let used = self.run(&mut command, memory, read_ahead)?;
        let met: Met = serde_json::from_str(used.output.trim()).map_err(|error| error.to_string())?;
        self.records.push(Record {
            table: "beyond",
            way: route.name(work),
            read_ahead,
            threads,
            tests: Vec::new(),
            met: Some(met.clone()),
            used,
        });
        Ok(met)
    }

    /// One run of a script, which prints how long what took and what it computed; in a group if there is one.
    pub fn script(&mut self, script: Script<'_>) -> Result<Printed, String> {
        let Script { table, launch, words, way, read_ahead, group, budget, files } = script;
        let mut command = match files {
            None => Command::new(&launch.program),
            Some(files) => {
                drop_pages(&self.dir).map_err(|error| error.to_string())?;
                let mut run = Command::new(&self.context.exe);
                run.args(["run", "--quiet", "--no-profile", "--files"]).arg(files).arg("--").arg(&launch.program);
                run
            }
        };
        command.args(&launch.args).args(words);
        if let Some(group) = group {
            command = group.enter(&command);
        }
        let used = self.run(&mut command, budget, read_ahead)?;
        let (json, computed) = used.output.trim().split_once('\n').ok_or("it printed no checksum")?;
        let (tests, computed): (Vec<Timed>, _) =
            (serde_json::from_str(json).map_err(|error| error.to_string())?, computed.to_owned());
        let wall = used.wall;
        let record = Record { table, way, read_ahead, threads: 1, tests: tests.clone(), met: None, used };
        self.records.push(record);
        if tests.is_empty() { Err("it printed no time".into()) } else { Ok(Printed { tests, computed, wall }) }
    }

    /// The ratio to a route through the kernel's page cache, which is no figure unless a control group limits that.
    pub fn beside_page_cache(&self, ratio: Found<Ratio>) -> Found<Ratio> {
        limited(self.group.as_ref(), ratio)
    }

    /// Where files are made.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// All figures.
    pub fn json(&self, machine: &Machine) -> Result<String> {
        parts::figures(machine, &self.records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_limit_only_a_failure_decides() {
        let ratio = Ratio::of(&[(2.0, 1.0); 6]).expect("pairs");
        assert!(matches!(limited(None, Ok(ratio)), Err(Verdict::Unresolved(_))));
        assert_eq!(limited(None, Err(Verdict::Missed)), Err(Verdict::Missed));
    }
}
