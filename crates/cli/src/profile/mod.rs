//! `faultless profile`: what is known of programs from earlier runs.
//!
//! `shape` says which words make a program the same, `entry` what is noted and when the library is left out, `store`
//! where it lies. A wrong profile costs speed only: whether a program is covered changes none of its results.

mod entry;
mod shape;
mod store;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Subcommand;
use faultless_measure::figures::size;

use crate::replaced::Replaced;
use crate::said::{complain, print};

pub use entry::{Entry, Key, Requests, Seen};
use store::Store;

/// What `faultless profile` does.
#[derive(Subcommand)]
pub enum Command {
    /// Lists what is known of programs.
    Show,
    /// Forgets it: of the programs that are named by a path or a file name, or of all.
    Forget {
        /// Programs.
        #[arg(value_name = "PROGRAM")]
        programs: Vec<PathBuf>,
    },
    /// Writes all profiles to a file, or to standard output.
    Export {
        /// The file.
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Takes profiles from such a file.
    Import {
        /// The file.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

/// A number of things, for people.
fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn say(text: &str) -> Result<()> {
    print(text).context("standard output")
}

/// Shows, forgets, or carries profiles. `find` says which file a command is.
pub fn main(command: &Command, find: impl Fn(&OsStr) -> Option<PathBuf>) -> ExitCode {
    let done = Store::of_user().context("neither XDG_CACHE_HOME nor HOME says where profiles are");
    match done.and_then(|store| run(&store, command, find)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("{error:#}"));
            ExitCode::from(125)
        }
    }
}

fn run(store: &Store, command: &Command, find: impl Fn(&OsStr) -> Option<PathBuf>) -> Result<()> {
    match command {
        Command::Show => show(store),
        Command::Forget { programs } => {
            // Profiles have the file that a link leads to.
            let files: Vec<_> =
                programs.iter().filter_map(|named| find(named.as_os_str())?.canonicalize().ok()).collect();
            let is_named = |path: &Path| {
                let is_it = |named: &PathBuf| path == named || path.file_name() == Some(named.as_os_str());
                programs.iter().any(is_it) || files.iter().any(|file| file == path)
            };
            let n =
                store.forget(|entry| programs.is_empty() || entry.is_some_and(|entry| is_named(&entry.key.path)));
            say(&format!("forgot {}\n", count(n, "profile")))
        }
        Command::Export { file } => {
            let text = serde_json::to_string_pretty(&store.all())? + "\n";
            match file {
                None => say(&text),
                Some(file) => {
                    Replaced::open(file)?.write(text.as_bytes()).with_context(|| file.display().to_string())
                }
            }
        }
        Command::Import { file } => {
            let all = store::read(file).map_err(anyhow::Error::msg).with_context(|| file.display().to_string())?;
            all.iter().try_for_each(|entry| store.put(entry))?;
            say(&format!("took {}\n", count(all.len(), "profile")))
        }
    }
}

fn show(store: &Store) -> Result<()> {
    let all = store.all();
    let mut text = format!("{} in {}\n", count(all.len(), "profile"), store.path().display());
    for entry in all {
        let next = if entry.is_plain() { "plain" } else { "covered" };
        let requests = match (entry.is_large, entry.cpu) {
            (true, _) => "large requests",
            (false, Some(_)) => "few large requests",
            (false, None) => "no large request",
        };
        let peak = size(entry.peak);
        let path: String = faultless_measure::pages::shown(&entry.key.path.to_string_lossy());
        text += &format!(
            "  {path}  {requests}, peak {peak}, {}; next: {next}\n",
            count(entry.covered as usize, "covered run")
        );
    }
    say(&text)
}

/// What is known of a program that is about to run, and where what is seen of it goes.
pub struct Known {
    store: Store,
    key: Key,
    entry: Option<Entry>,
}

impl Known {
    /// Of the program in `file`. Settings that decide what is a large request make it another one.
    pub fn new(file: &Path, words: &[OsString], settings: &[OsString]) -> Option<Self> {
        let here = std::env::current_dir().ok()?;
        let (store, key) = (Store::of_user()?, Key::new(file, words, settings, &here)?);
        let entry = store.get(&key);
        Some(Self { store, key, entry })
    }

    /// Whether it goes without the library this time.
    pub fn is_plain(&self) -> bool {
        self.entry.as_ref().is_some_and(Entry::is_plain)
    }

    /// The most memory that one of its processes had last time.
    pub fn peak(&self) -> Option<u64> {
        self.entry.as_ref().map(|entry| entry.peak)
    }

    /// Notes what was seen. Where that cannot be written nothing is lost but speed.
    pub fn note(self, seen: Seen) {
        if let Some(entry) = Entry::after(self.entry, self.key, seen) {
            let _ = self.store.put(&entry);
        }
    }
}
