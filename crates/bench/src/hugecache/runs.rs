//! Runs the programs, and remembers.

use std::fs;
use std::os::unix::fs::MetadataExt;
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
    threads: usize,
    tests: Vec<Timed>,
    met: Option<Met>,
    used: Sample,
}

/// Runs programs.
pub struct Runs {
    /// What they are made for.
    pub context: Context,
    dir: PathBuf,
    /// The file that is larger than memory; made when it is needed.
    large: Option<PathBuf>,
    group: Option<Group>,
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
    pub fn new(context: Context, dir: &Path) -> Result<Self> {
        Ok(Self { context, dir: dir.to_owned(), large: None, group: None, records: Vec::new() })
    }

    /// What is said of the file system above all tables.
    pub fn about_files(&self) -> String {
        let ahead = fs::metadata(&self.dir).ok().and_then(|about| {
            let path =
                format!("/sys/class/bdi/{}:{}/read_ahead_kb", libc::major(about.dev()), libc::minor(about.dev()));
            fs::read_to_string(path).ok()
        });
        let ahead = ahead.map_or("unknown".into(), |kib| format!("{} KiB", kib.trim()));
        let kind = Command::new("df").arg("--output=fstype").arg(&self.dir).output();
        let kind = kind.map_or(String::new(), |out| {
            String::from_utf8_lossy(&out.stdout).lines().last().unwrap_or_default().to_owned()
        });
        format!("Files on {kind}; the device's read-ahead is {ahead}.")
    }

    /// `usual` rounds within `seconds`, and one in any case; three times as many in a full run, without a deadline.
    pub fn turns(&self, usual: usize, seconds: u64) -> Turns {
        let rounds = match &self.context {
            Context { quick: true, .. } => 1,
            Context { full: true, .. } => usual * 3,
            _ => usual,
        };
        let deadline = Instant::now() + Duration::from_secs(seconds);
        Turns { rounds, deadline: (!self.context.full).then_some(deadline) }
    }

    fn run(&mut self, command: &mut Command, budget: usize) -> Result<Sample, String> {
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
        (way, threads): (CacheWay, usize),
        size: usize,
        ready: bool,
    ) -> Result<Vec<Timed>, String> {
        let (name, table) = (word(way), if set == Set::First { "first" } else { "iozone" });
        let mut command =
            self.program(&format!("inside --set {} --way {name} --threads {threads} --size {size}", word(set)));
        command.arg("--dir").arg(&self.dir).args(ready.then_some("--ready"));
        // The kernel's page cache has all of the files, and so may this.
        let used = self.run(&mut command, 2 * size);
        for file in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let _ = (Some(&file.path()) != self.large.as_ref()).then(|| fs::remove_file(file.path()));
        }
        let used = used?;
        let tests: Vec<Timed> = serde_json::from_str(used.output.trim()).map_err(|error| error.to_string())?;
        let record = Record { table, way: way.name(), threads, tests: tests.clone(), met: None, used };
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
    pub fn beyond(&mut self, work: Work, (route, threads): (Route, usize)) -> Result<Met, String> {
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
        let used = self.run(&mut command, memory)?;
        let met: Met = serde_json::from_str(used.output.trim()).map_err(|error| error.to_string())?;
        self.records.push(Record {
            table: "beyond",
            way: route.name(work),
            threads,
            tests: Vec::new(),
            met: Some(met.clone()),
            used,
        });
        Ok(met)
    }

    /// One run of a script, which prints how long what took and what it computed; in a group if there is one.
    pub fn script(
        &mut self,
        launch: &Launch,
        words: [&str; 2],
        way: &'static str,
        group: Option<&Group>,
    ) -> Result<(Timed, String), String> {
        let mut command = Command::new(&launch.program);
        command.args(&launch.args).args(words);
        if let Some(group) = group {
            command = group.enter(&command);
        }
        let used = self.run(&mut command, self.large().1)?;
        let (json, computed) = used.output.trim().split_once('\n').ok_or("it printed no checksum")?;
        let tests: Vec<Timed> = serde_json::from_str(json).map_err(|error| error.to_string())?;
        let (timed, computed) = (tests.first().cloned().ok_or("it printed no time")?, computed.to_owned());
        self.records.push(Record { table: "numpy", way, threads: 1, tests, met: None, used });
        Ok((timed, computed))
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
