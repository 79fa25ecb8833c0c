//! What the benches have in common: the machine they run on, and the parts they are made of.

use std::fmt::Debug;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::ValueEnum;

use super::aims::Aims;
use super::contender::Contender;
use super::machine::Machine;
use super::plan::Context;
use super::undo::{self, Folder};

/// Options of a bench in parts.
#[derive(clap::Args)]
pub struct Options<P: ValueEnum + Send + Sync + 'static> {
    /// More rounds, and more cases of the parts that say so.
    #[arg(long)]
    pub full: bool,
    /// Only these parts.
    #[arg(long, value_delimiter = ',', value_name = "PARTS")]
    only: Vec<P>,
    /// Writes all figures to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Tiny sizes and one round, to try the bench itself.
    #[arg(long, hide = true)]
    quick: bool,
}

impl<P: ValueEnum + PartialEq + Debug + Send + Sync + 'static> Options<P> {
    /// What the parts are run for.
    pub fn context(&self, session: &Session, python: &str) -> Result<Context> {
        try_open(&[self.json.as_deref()])?;
        Ok(Context { full: self.full, quick: self.quick, ..session.context(python)? })
    }

    /// Runs the parts that were asked for, all of them if none was. Each is announced when its turn comes.
    pub fn run(&self, session: &Session, mut part: impl FnMut(&P, &mut Aims)) -> Aims {
        let mut aims = Aims::default();
        let is_wanted = |part: &&P| self.only.is_empty() || self.only.contains(part);
        for wanted in P::value_variants().iter().filter(is_wanted) {
            eprintln!("[{:4.0} s] {wanted:?}", session.seconds());
            part(wanted, &mut aims);
        }
        aims
    }

    /// Says what was aimed at and what was reached, and writes all figures where that was asked for.
    pub fn close(&self, session: &Session, aims: &Aims, json: impl FnOnce() -> Result<String>) -> Result<()> {
        aims.print();
        println!("{:.0} s elapsed.", session.seconds());
        self.json.as_ref().map_or(Ok(()), |path| save(path, &with_aims(&json()?, aims)?))
    }
}

/// Options of a bench that makes files.
#[derive(clap::Args)]
pub struct Place {
    /// Where the files are made, on the file system that is to be measured. The default is the folder for temporary
    /// files.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Place {
    /// A folder there, which goes with its value.
    pub fn folder(&self) -> Result<Folder> {
        let dir = self.dir.clone().unwrap_or_else(std::env::temp_dir);
        tempfile::tempdir_in(&dir).map(Folder::of).with_context(|| format!("files in {}", dir.display()))
    }
}

/// All figures of a bench: the machine, and what was run there.
pub fn figures<R: serde::Serialize>(machine: &Machine, runs: &[R]) -> Result<String> {
    #[derive(serde::Serialize)]
    struct File<'a, R> {
        machine: &'a Machine,
        runs: &'a [R],
    }
    Ok(serde_json::to_string_pretty(&File { machine, runs })? + "\n")
}

/// The figures of a bench, and what is aimed at.
fn with_aims(figures: &str, aims: &Aims) -> Result<String> {
    let mut all: serde_json::Map<String, serde_json::Value> = serde_json::from_str(figures)?;
    all.insert("aims".into(), serde_json::to_value(aims)?);
    Ok(serde_json::to_string_pretty(&all)? + "\n")
}

/// One run of a bench.
pub struct Session {
    /// When it began.
    pub start: Instant,
    /// Where it runs.
    pub machine: Machine,
    /// For what the programs read and write; it goes with the session.
    pub dir: Folder,
}

impl Session {
    /// Begins now, on this machine. A signal that ends it leaves nothing behind.
    pub fn begin() -> Result<Self> {
        let start = Instant::now();
        undo::on_signals().context("signals")?;
        let dir = tempfile::tempdir().map(Folder::of).context("a folder for the inputs")?;
        Ok(Self { start, machine: Machine::read(), dir })
    }

    /// What its rows are made for: at the default size, with this Python.
    pub fn context(&self, python: &str) -> Result<Context> {
        Ok(Context { python: python.to_owned(), ..Context::new(&self.machine, self.dir.path())? })
    }

    /// Names the machine, and says who cannot take part, and why.
    pub fn introduce(&self, missing: &[(Contender, String)]) {
        println!("{}\n", self.machine.line());
        for (contender, reason) in missing {
            println!("No {}: {reason}.\n", contender.name());
        }
    }

    /// Since it began.
    pub fn seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }
}

/// Fails before anything ran if a file that was asked for cannot be written.
pub fn try_open(paths: &[Option<&Path>]) -> Result<()> {
    paths.iter().flatten().try_for_each(|path| {
        let opened = OpenOptions::new().create(true).append(true).open(path);
        opened.map(drop).with_context(|| path.display().to_string())
    })
}

/// Writes a file that was asked for.
pub fn save(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Verdict;

    #[test]
    fn aims_stand_beside_the_figures() {
        let mut aims = Aims::default();
        aims.without_figure("a: ?", Verdict::Missed);
        let text = with_aims("{\"runs\": [1]}", &aims).unwrap();
        let all: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(all["runs"][0], 1);
        assert_eq!(
            (all["aims"][0]["line"].as_str(), all["aims"][0]["verdict"].as_str()),
            (Some("a: ?"), Some("missed"))
        );
    }

    #[test]
    fn a_file_that_cannot_be_written_is_noticed_first_and_one_that_is_there_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (there, nowhere) = (dir.path().join("file"), dir.path().join("none/file"));
        std::fs::write(&there, "text").unwrap();
        try_open(&[Some(&there), None]).unwrap();
        assert_eq!(std::fs::read_to_string(&there).unwrap(), "text");
        assert!(try_open(&[None, Some(&nowhere)]).unwrap_err().to_string().contains("none/file"));
    }
}
