//! What is watched: one process, or all of a `faultless` command.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::run::complain;
use faultless_measure::pages::find::{self, All, Covered, Missing};
use faultless_measure::pages::{Counters, is_alive};

/// Processes that are watched together.
pub struct Target {
    /// Those found so far, in the order of their numbers.
    pub processes: Vec<Covered>,
    /// Where new ones show up.
    dir: Option<PathBuf>,
    /// The command that they belong to; `None`: they are on their own.
    command: Option<u32>,
    /// What was said last of pages that cannot be read: once is enough.
    said: Vec<String>,
}

impl Target {
    /// Process `pid`, or all that it runs if it is `faultless run` or `faultless stat`.
    pub fn process(pid: u32) -> Result<Self> {
        let of_process = || format!("process {pid}");
        if let Some(dir) = find::tree(pid).with_context(of_process)?.filter(|_| is_alive(pid)) {
            let mut target = Self { processes: Vec::new(), dir: Some(dir), command: Some(pid), said: Vec::new() };
            target.look();
            return Ok(target);
        }
        let covered = find::process(pid).with_context(of_process)?;
        Ok(Self { processes: vec![covered], dir: None, command: None, said: Vec::new() })
    }

    /// All processes that leave their pages in `dir`.
    pub fn dir(dir: PathBuf) -> Self {
        Self { processes: Vec::new(), dir: Some(dir), command: Some(std::process::id()), said: Vec::new() }
    }

    /// Looks for processes that came up.
    fn look(&mut self) {
        if let Some(dir) = &self.dir {
            let All { found, mut wrong, closed } = find::in_tree(dir, &self.processes);
            self.processes.extend(found);
            self.processes.sort_by_key(|covered| covered.pid);
            if closed > 0 {
                wrong.push(Missing::Closed(closed).to_string());
            }
            // Their numbers change from look to look.
            let is_more = wrong.len() > self.said.len();
            if is_more {
                wrong.iter().filter(|wrong| !self.said.contains(wrong)).for_each(|wrong| complain(wrong));
                self.said = wrong;
            }
        }
    }

    /// What each has counted by now. A program that took the place of another in its process starts from zero; what
    /// the other had counted is not lost.
    pub fn read(&mut self) -> Vec<Counters> {
        self.look();
        if self.dir.is_none() {
            self.follow();
        }
        self.processes.iter_mut().map(|covered| covered.counters().clone()).collect()
    }

    /// Takes up the page of the next program in the same process.
    fn follow(&mut self) {
        let next = self.processes.last().filter(|last| last.runs()).and_then(find::successor);
        self.processes.extend(next);
    }

    /// Whether these are all processes of one command.
    pub fn is_tree(&self) -> bool {
        self.command.is_some()
    }

    /// Whether there is nothing left to be watched.
    pub fn is_over(&self) -> bool {
        match self.command {
            Some(pid) => !is_alive(pid),
            None => !self.processes.iter().any(Covered::runs),
        }
    }

    /// For people.
    pub fn title(&self) -> String {
        match (self.command, self.processes.first()) {
            (None, Some(covered)) => format!("process {} ({})", covered.pid, covered.command()),
            (Some(_), _) if self.processes.len() == 1 => "1 process".into(),
            _ => format!("{} processes", self.processes.len()),
        }
    }
}
