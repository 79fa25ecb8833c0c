//! Pages of processes that have ended, added up by program, so that a long run of many processes leaves few files.

use std::path::Path;

use super::{Counters, Source, dir};

/// Pages of ended processes that stay as they are.
const KEPT: usize = 1000;

/// What all folded processes of one name have counted.
#[derive(Clone, Debug)]
pub struct Sum {
    /// All of it, under the name of the program.
    pub counters: Counters,
    /// Processes with anything served, and those without.
    pub served: usize,
    /// See there.
    pub plain: usize,
}

/// All that was folded.
#[derive(Clone, Debug, Default)]
pub struct Folded(pub Vec<Sum>);

impl Folded {
    /// Takes up the pages of ended processes in `dir` beyond those that stay, and removes them.
    pub fn take(&mut self, dir: &Path) {
        self.take_beyond(dir, KEPT);
    }

    fn take_beyond(&mut self, dir: &Path, kept: usize) {
        let mut ended = dir::owned(dir).unwrap_or_default();
        if ended.len() <= kept {
            return;
        }
        let nested = dir::nested_for(&ended);
        ended.retain(|(owner, _)| !owner.is_alive(&nested));
        let more = ended.len().saturating_sub(kept);
        for (owner, path) in ended.into_iter().take(more) {
            // A new process of the same number makes a file of its own from now on.
            let aside = dir.join("folding");
            if std::fs::rename(&path, &aside).is_err() {
                continue;
            }
            if owner.is_alive(&owner.nested()) && std::fs::hard_link(&aside, &path).is_ok() {
                let _ = std::fs::remove_file(&aside);
                continue;
            }
            match Source::file(&aside).and_then(|source| source.read()) {
                Ok(page) => self.add(&page),
                // What is wrong with it is told at the end.
                Err(_) => drop(std::fs::hard_link(&aside, &path)),
            }
            let _ = std::fs::remove_file(&aside);
        }
    }

    fn add(&mut self, page: &Counters) {
        let at = self.0.iter().position(|sum| sum.counters.name == page.name).unwrap_or_else(|| {
            let counters = Counters { name: page.name.clone(), ..Counters::zero() };
            self.0.push(Sum { counters, served: 0, plain: 0 });
            self.0.len() - 1
        });
        let sum = &mut self.0[at];
        sum.served += page.is_served() as usize;
        sum.plain += !page.is_served() as usize;
        sum.counters.add(&page.clone().without_memory());
    }

    /// How many processes.
    pub fn processes(&self) -> usize {
        self.0.iter().map(|sum| sum.served + sum.plain).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::page;
    use super::*;

    #[test]
    fn pages_of_ended_processes_are_added_up_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        // No process has such a number; this one runs; one is of a namespace that has ended; one is none.
        let own = std::process::id().to_string();
        for name in ["4000000001", "4000000002", "4000000003", own.as_str(), "4000000002.7"] {
            std::fs::write(file(name), page()).unwrap();
        }
        std::fs::write(file("4000000000"), "something else").unwrap();
        let mut folded = Folded::default();
        folded.take_beyond(dir.path(), 1);
        let one = Counters::parse(&page()).unwrap();
        assert_eq!((folded.processes(), folded.0.len(), folded.0[0].counters.name.as_str()), (3, 1, "prog?"));
        assert_eq!(folded.0[0].counters.values().map(|n| n / 3), *one.values());
        let left = ["4000000000", "4000000003", own.as_str()];
        assert!(left.iter().all(|name| file(name).exists()));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), left.len());
        folded.take_beyond(dir.path(), 10);
        assert_eq!(folded.processes(), 3);
    }
}
