//! Which programs of a tree were served: by name, or each process.

use std::fmt;

use faultless_page::stats::Counter;
use serde::Serialize;

use faultless_measure::figures::{size, wrap_at};
use faultless_measure::pages::{Counters, Folded, Sum};

/// Programs that are named unless all are asked for.
const NAMED: usize = 5;
/// Before what is said of one, and columns of all.
const INDENT: &str = "                          ";
const WIDTH: usize = 78;

/// All processes of a tree in which the same program made the last large request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Program {
    pub(super) name: String,
    /// Those with anything served, and those without.
    pub(super) served_processes: usize,
    pub(super) plain_processes: usize,
    /// Why those ran plain that have a reason; of several, one.
    pub(super) plain: Option<&'static str>,
    pub(super) requests: u64,
    pub(super) bytes: u64,
    /// Of these, what had memory behind it when it was handed out, and what was touched ahead of the program.
    pub(super) ready_bytes: u64,
    pub(super) ahead_bytes: u64,
    pub(super) left: u64,
}

impl Program {
    fn of(page: &Counters) -> Self {
        let sum = |counters: &[Counter]| counters.iter().map(|counter| page.get(*counter)).sum();
        let bytes: u64 = sum(&[Counter::MmapBytes, Counter::MallocBytes]);
        // Counted by slots, of which a block may use a part.
        let of_these = |counters: &[Counter]| bytes.min(sum(counters));
        Self {
            name: if page.name.is_empty() { "?".into() } else { page.name.clone() },
            served_processes: page.is_served() as usize,
            plain_processes: !page.is_served() as usize,
            plain: page.plain(),
            requests: sum(&[Counter::MmapServed, Counter::MallocServed]),
            bytes,
            ready_bytes: of_these(&[Counter::BytesZeroed, Counter::BytesUnzeroed, Counter::BytesHotZeroed]),
            ahead_bytes: of_these(&[Counter::BytesTouchedLent, Counter::BytesMovedAhead]),
            left: page.left().iter().map(|(_, n)| n).sum(),
        }
    }

    fn add(&mut self, other: &Self) {
        self.served_processes += other.served_processes;
        self.plain_processes += other.plain_processes;
        self.plain = self.plain.or(other.plain);
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.ready_bytes += other.ready_bytes;
        self.ahead_bytes += other.ahead_bytes;
        self.left += other.left;
    }

    pub(super) fn processes(&self) -> usize {
        self.served_processes + self.plain_processes
    }

    /// What was done for it, in a few words.
    fn words(&self) -> String {
        if self.requests == 0 && self.served_processes == 0 {
            return match self.plain {
                Some(why) => format!("plain: {why}"),
                None => format!("{} requests left to the kernel", self.left),
            };
        }
        let mut words = format!("{} in {} requests", size(self.bytes), self.requests);
        for (bytes, how) in [(self.ready_bytes, "ready"), (self.ahead_bytes, "touched ahead")] {
            if bytes > 0 {
                words += &format!(", {} {how}", size(bytes));
            }
        }
        words
    }
}

/// The programs of a tree, those first that were served most.
pub fn programs(pages: &[Counters], folded: &Folded) -> Vec<Program> {
    let mut all: Vec<Program> = Vec::new();
    let of_many = |sum: &Sum| Program {
        served_processes: sum.served,
        plain_processes: sum.plain,
        ..Program::of(&sum.counters)
    };
    for page in pages.iter().map(Program::of).chain(folded.programs.iter().map(of_many)) {
        match all.iter_mut().find(|program| program.name == page.name) {
            Some(program) => program.add(&page),
            None => all.push(page),
        }
    }
    all.sort_by(|a, b| (b.bytes, &a.name).cmp(&(a.bytes, &b.name)));
    all
}

/// What is said of a tree.
pub enum Tree<'a> {
    /// The programs with most of it, if there are several.
    Programs(&'a [Program]),
    /// Every process.
    Processes(&'a [Counters]),
}

impl fmt::Display for Tree<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |f: &mut fmt::Formatter<'_>, who: &str, words: &str| {
            let words = wrap_at(words, INDENT, WIDTH);
            writeln!(f, "  {who:<24}{}", words.trim_start())
        };
        match self {
            Self::Programs([] | [_]) => Ok(()),
            Self::Programs(all) => {
                writeln!(f, "programs, by what they were served:")?;
                for program in all.iter().take(NAMED) {
                    let times = if program.processes() > 1 {
                        format!(" x {}", program.processes())
                    } else {
                        String::new()
                    };
                    line(f, &format!("{}{times}", program.name), &program.words())?;
                }
                match all.len().saturating_sub(NAMED) {
                    0 => Ok(()),
                    n => writeln!(f, "  and {n} more: --tree names each process"),
                }
            }
            Self::Processes(pages) => {
                writeln!(f, "processes that made large requests:")?;
                pages
                    .iter()
                    .map(|page| (page.pid, Program::of(page)))
                    .try_for_each(|(pid, program)| line(f, &format!("{pid} {}", program.name), &program.words()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(pid: u32, name: &str, blocks: u64, left: u64) -> Counters {
        let mut values = [0; faultless_page::stats::COUNT];
        values[Counter::MallocServed as usize] = blocks;
        values[Counter::MallocBytes as usize] = blocks << 20;
        values[Counter::BytesUnzeroed as usize] = blocks << 19;
        values[Counter::KernelFlags as usize] = left;
        let mut page = Counters::from_values(pid, values.into_iter());
        page.name = name.into();
        page
    }

    #[test]
    fn programs_are_put_together_by_name_those_served_most_first() {
        let pages = [page(1, "sh", 0, 2), page(2, "cc1", 3, 0), page(3, "cc1", 4, 0), page(4, "ld", 9, 0)];
        let all = programs(&pages, &Folded::default());
        let names: Vec<_> = all.iter().map(|program| (program.name.as_str(), program.bytes >> 20)).collect();
        assert_eq!(names, [("ld", 9), ("cc1", 7), ("sh", 0)]);
        let text = Tree::Programs(&all).to_string();
        assert!(text.contains("  cc1 x 2                 7 MiB in 7 requests, 3.50 MiB ready\n"), "{text}");
        assert!(text.contains("  sh                      2 requests left to the kernel\n"), "{text}");
        assert_eq!(Tree::Programs(&all[..1]).to_string(), "");
        let folded = Folded {
            programs: vec![Sum { counters: page(0, "cc1", 5, 0), served: 2, plain: 1 }],
            ..Folded::default()
        };
        let more = programs(&pages, &folded);
        assert_eq!((more[0].name.as_str(), more[0].bytes >> 20, more[0].processes()), ("cc1", 12, 5));
        let each = Tree::Processes(&pages).to_string();
        assert_eq!(each.lines().count(), 5);
        assert!(each.contains("  3 cc1 "), "{each}");
        let limited = Program {
            served_processes: 0,
            requests: 0,
            plain: Some(faultless_page::layout::PLAIN[1]),
            ..all[1].clone()
        };
        let text = Tree::Programs(&[limited.clone(), limited]).to_string();
        assert!(text.lines().all(|line| line.len() <= WIDTH) && text.contains("RLIMIT_AS"), "{text}");
        let many: Vec<_> = (0..8).map(|i| page(i, &format!("p{i}"), 1, 0)).collect();
        let text = Tree::Programs(&programs(&many, &Folded::default())).to_string();
        assert!(text.ends_with("and 3 more: --tree names each process\n"), "{text}");
    }
}
