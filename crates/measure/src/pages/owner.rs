//! The process that a page is named after: `PID`, or `PID.NAMESPACE` in another PID namespace than the directory's.

use std::path::Path;

use super::Source;
use super::process::{self, Nested, Process};

/// The process that a page is of, by the page's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// Its number.
    number: u32,
    /// Where it has that number; `None`: in the PID namespace of the directory.
    namespace: Option<u64>,
}

impl Owner {
    /// By this name.
    pub fn parse(name: &str) -> Option<Self> {
        let (number, namespace) = match name.split_once('.') {
            None => (name, None),
            Some((number, namespace)) => (number, Some(namespace.parse().ok()?)),
        };
        Some(Self { number: number.parse().ok()?, namespace })
    }

    /// Its number in the directory's namespace; 0 if it has it in another one.
    pub fn here(self) -> u32 {
        if self.is_elsewhere() { 0 } else { self.number }
    }

    /// Whether it is in another PID namespace than the directory.
    pub fn is_elsewhere(self) -> bool {
        self.namespace.is_some()
    }

    /// The processes that may be it, by their numbers here.
    fn processes(self, nested: &[Nested]) -> impl Iterator<Item = u32> {
        let is = move |other: &&Nested| {
            other.number == self.number
                && other.namespace.is_none_or(|namespace| self.namespace == Some(namespace))
        };
        let inside = nested.iter().filter(is).map(|other| other.pid).filter(move |_| self.namespace.is_some());
        self.namespace.is_none().then_some(self.number).into_iter().chain(inside)
    }

    /// Whether there is such a process.
    pub fn is_alive(self, nested: &[Nested]) -> bool {
        self.processes(nested).any(super::is_alive)
    }

    /// The processes among which it is, as far as they have to be looked for.
    pub fn nested(self) -> Vec<Nested> {
        if self.is_elsewhere() { process::nested() } else { Vec::new() }
    }

    /// Whether the process that a page is named after may still have it.
    pub fn may_have(self, path: &Path, nested: &[Nested]) -> bool {
        let mut living = self.processes(nested).filter_map(Process::read).peekable();
        if living.peek().is_none() {
            return false;
        }
        let made = Source::file(path).and_then(|source| source.read()).map(|page| page.start_ns);
        made.map_or(true, |made| living.any(|process| !process.is_younger_than(made)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_in_another_namespace_is_found_by_both_numbers() {
        let nested = [(100, 7, Some(67)), (101, 7, Some(68)), (102, 8, Some(67)), (103, 7, None)];
        let nested = nested.map(|(pid, number, namespace)| Nested { pid, number, namespace });
        let of = |name: &str| Owner::parse(name).unwrap().processes(&nested).collect::<Vec<_>>();
        assert_eq!([of("7.67"), of("7.69"), of("9.67"), of("7")], [vec![100, 103], vec![103], vec![], vec![7]]);
    }
}
