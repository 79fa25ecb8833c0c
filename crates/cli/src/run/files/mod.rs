//! `--files GLOB`: files that the program is about to read come into the kernel's page cache, beside the program.
//!
//! Threads of this command bring them, from the program's start to its end, in the order in which they were named. The
//! program has no thread, descriptor, lock or mapping of theirs. What it reads is what the kernel gives it.
//!
//! - `named.rs`: which files the patterns name.
//! - `bring.rs`: in which order they come, and when that ends.
//! - `opened.rs`: one file, and the calls of the kernel.
//! - `way.rs`: in huge pages or in small ones.

mod bring;
mod named;
mod opened;
mod way;

use faultless_measure::figures::{seconds, size};
use serde::Serialize;

use super::{complain, filters};
pub use bring::Bringing;
use named::Named;
pub use named::{Pattern, pattern};
pub use opened::CACHESTAT;

/// What became of the files.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// How many were named, and the bytes in them.
    files: usize,
    bytes: u64,
    /// Of these bytes, what was in memory before; `None`: the kernel does not say that of all.
    cached_bytes: Option<u64>,
    brought_bytes: u64,
    /// Holes, of which nothing is brought.
    hole_bytes: u64,
    /// Until the last of it was there, or until the program ended.
    seconds: f64,
    /// Why the rest was not brought.
    stopped: Option<String>,
    /// Files that were not brought, or only a part of them.
    skipped: Vec<Skipped>,
}

/// A file that was left to the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Skipped {
    file: String,
    why: String,
}

impl Report {
    /// Its rows in a summary: what, how much, and what there is to say about it.
    pub fn rows(&self) -> Vec<[String; 3]> {
        let files = if self.files == 1 { "1 file".into() } else { format!("{} files", self.files) };
        let about = format!("of {} in {files}, in {}", size(self.bytes), seconds(self.seconds));
        let mut rows = vec![["files brought into memory".into(), size(self.brought_bytes), about]];
        let mut more = |label: &str, bytes, why: &str| rows.push([label.into(), bytes, why.into()]);
        match self.cached_bytes {
            Some(0) => {}
            Some(bytes) => more("  there before", size(bytes), ""),
            None => more("  there before", String::new(), "the kernel does not say how much"),
        }
        let done = self.brought_bytes + self.cached_bytes.unwrap_or(0) + self.hole_bytes;
        if let Some(why) = &self.stopped {
            more("  left to the program", size(self.bytes.saturating_sub(done)), why);
        }
        for Skipped { file, why } in &self.skipped {
            more("  skipped", String::new(), &format!("{file}: {why}"));
        }
        rows
    }
}

/// The files that are to be brought, found before the program begins.
#[derive(Clone)]
pub struct Files(Named);

impl Files {
    /// `None` without patterns. Says which of them name nothing.
    pub fn find(patterns: &[Pattern]) -> Option<Self> {
        if patterns.is_empty() {
            return None;
        }
        let named = Named::by(patterns);
        named.warnings.iter().for_each(|warning| complain(warning));
        Some(Self(named))
    }

    /// Begins to bring them.
    pub fn start(self) -> Bringing {
        let against = filters::may_kill().then_some("system calls are filtered (seccomp), and the filter kills");
        Bringing::start(self.0, against)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_say_what_was_not_brought_and_why() {
        let report = Report {
            files: 2,
            bytes: 10 << 20,
            cached_bytes: Some(1 << 20),
            brought_bytes: 4 << 20,
            hole_bytes: 2 << 20,
            seconds: 1.0,
            stopped: Some("memory is short".into()),
            skipped: vec![Skipped { file: "a".into(), why: "it was removed".into() }],
        };
        let rows = report.rows();
        let cell = |i: usize, j: usize| rows[i][j].as_str();
        assert_eq!(rows.len(), 4);
        assert_eq!([cell(0, 1), cell(1, 1), cell(2, 1)], [4 << 20, 1 << 20, 3 << 20].map(size));
        assert_eq!([cell(2, 2), cell(3, 2)], ["memory is short", "a: it was removed"]);
        let unknown = Report { cached_bytes: None, stopped: None, skipped: Vec::new(), ..report };
        assert!(unknown.rows()[1][2].contains("does not say"));
    }
}
