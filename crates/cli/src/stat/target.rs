//! What is watched: one process, or all of a `faultless` command.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::run::complain;
use faultless_measure::pages::find::{self, All, Covered, Missing};
use faultless_measure::pages::process;
use faultless_measure::pages::{Counters, Folded, Tree, is_alive};

/// Processes that are watched together.
pub struct Target {
    /// Those found so far, and what others counted whose pages were added up.
    tree: Tree,
    /// Where new ones show up.
    dir: Option<PathBuf>,
    /// The command that they belong to; `None`: they are on their own.
    command: Option<u32>,
    /// What was said last of pages that cannot be read: once is enough.
    said: Vec<String>,
}

impl Target {
    /// Process `pid`, or all that it runs if it is `faultless run` or `faultless stat`. The number of a thread stands for
    /// that of its process.
    pub fn process(asked: u32) -> Result<Self> {
        let pid = process::of_thread(asked).unwrap_or(asked);
        let of_process = || format!("process {pid}");
        let tree = find::tree(pid).with_context(of_process)?.filter(|_| is_alive(pid));
        let target = match tree {
            Some(dir) => {
                let target = Self::new(Tree::default(), Some(dir.clone()), Some(pid));
                // It has ended, and nothing was read before its directory was removed.
                if target.is_empty() && !dir.exists() {
                    return Err(Missing::Process).with_context(of_process);
                }
                target
            }
            None => {
                let processes = vec![find::process(pid).with_context(of_process)?];
                Self::new(Tree::of(processes), None, None)
            }
        };
        if pid != asked {
            complain(&format!("{asked} is a thread of process {pid}"));
        }
        Ok(target)
    }

    /// All processes that leave their pages in `dir`.
    pub fn dir(dir: PathBuf) -> Self {
        Self::new(Tree::default(), Some(dir), Some(std::process::id()))
    }

    fn new(tree: Tree, dir: Option<PathBuf>, command: Option<u32>) -> Self {
        let mut target = Self { tree, dir, command, said: Vec::new() };
        target.look();
        target
    }

    /// Looks for processes that came up.
    fn look(&mut self) {
        if let Some(dir) = &self.dir {
            let All { mut wrong, closed, .. } = self.tree.look(dir);
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
        self.tree.processes.iter_mut().map(|covered| covered.counters().clone()).collect()
    }

    /// Takes up the page of the next program in the same process.
    fn follow(&mut self) {
        let next = self.tree.processes.last().filter(|last| last.runs()).and_then(find::successor);
        self.tree.processes.extend(next);
    }

    /// The processes with pages.
    pub fn processes(&self) -> &[Covered] {
        &self.tree.processes
    }

    /// The same, to be kept.
    pub fn into_processes(self) -> Vec<Covered> {
        self.tree.processes
    }

    /// What processes without pages of their own counted before they ended.
    pub fn folded(&self) -> &Folded {
        &self.tree.folded
    }

    fn is_empty(&self) -> bool {
        self.processes().is_empty() && self.folded().programs.is_empty()
    }

    /// Whether these are all processes of one command.
    pub fn is_tree(&self) -> bool {
        self.command.is_some()
    }

    /// Whether there is nothing left to be watched.
    pub fn is_over(&self) -> bool {
        match self.command {
            Some(pid) => !is_alive(pid),
            None => !self.processes().iter().any(Covered::runs),
        }
    }

    /// For people.
    pub fn title(&self) -> String {
        let processes = self.processes().len() + self.folded().processes();
        match (self.command, self.processes().first()) {
            (None, Some(covered)) => format!("process {} ({})", covered.pid, covered.command()),
            (Some(_), _) if processes == 1 => "1 process".into(),
            _ => format!("{processes} processes"),
        }
    }
}
