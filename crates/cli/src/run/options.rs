//! What is asked for on the command line, and the environment that says so to the library.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use faultless_base::{SLOT, UNIT};

use super::sys;

/// The preload library's file.
const LIBRARY: &str = "libfaultless_preload.so";

/// Options of `faultless run`.
///
/// Sizes are in bytes, or with K, M or G in powers of 1024.
#[derive(clap::Args, Default)]
pub struct Args {
    /// Free memory kept beyond the program's own peak; below 2M everything runs plain.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub budget: Option<u64>,
    /// Whether an access after munmap faults (strict, the default) or may not (relaxed, faster).
    #[arg(long, value_name = "MODE")]
    pub unmap: Option<Unmap>,
    /// Zero nothing in the background.
    #[arg(long)]
    pub no_scrub: bool,
    /// Touch nothing in the background.
    #[arg(long)]
    pub no_ahead: bool,
    /// Verify that memory handed out as zero is zero, and fill the other with a pattern.
    #[arg(long)]
    pub check: bool,
    /// Smallest block of malloc that is served, from 64K.
    #[arg(long, value_name = "SIZE", value_parser = |text: &str| at_least(text, UNIT as u64))]
    pub malloc_threshold: Option<u64>,
    /// Smallest mapping that is served, from 2M.
    #[arg(long, value_name = "SIZE", value_parser = |text: &str| at_least(text, SLOT as u64))]
    pub mmap_threshold: Option<u64>,
    /// Programs of the tree to leave alone: names, separated by commas.
    #[arg(long, value_name = "NAMES")]
    pub skip: Option<OsString>,
    /// Run the programs that the program starts plain.
    #[arg(long)]
    pub no_children: bool,
    /// Print nothing at the end. Without --json, the program then takes this process's place.
    #[arg(long)]
    pub quiet: bool,
    /// Write what happened to a file.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Run the program plain and under faultless, this many times each, and compare.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub compare: Option<u32>,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// What munmap leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Unmap {
    /// Nothing: an access faults.
    Strict,
    /// Perhaps memory.
    Relaxed,
}

/// A number of bytes with an optional suffix K, M or G.
pub fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" | "k" => 10,
        "M" | "m" => 20,
        "G" | "g" => 30,
        _ => return Err("not a size: a whole number, alone or with K, M or G".into()),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err("not a size: a whole number, alone or with K, M or G".into());
    }
    let number: Option<u64> = digits.parse().ok();
    number.and_then(|n| n.checked_mul(1 << shift)).ok_or_else(|| "more than 64 bits can hold".into())
}

fn at_least(text: &str, least: u64) -> Result<u64, String> {
    let bytes = size(text)?;
    if bytes >= least { Ok(bytes) } else { Err(format!("less than {}", super::summary::size(least))) }
}

/// The preload library: what FAULTLESS_LIBRARY names, or the file beside this program or in ../lib/faultless.
pub fn library() -> Result<PathBuf> {
    let path = match std::env::var_os("FAULTLESS_LIBRARY").filter(|name| !name.is_empty()) {
        Some(named) => {
            let path = std::path::absolute(&named).context("FAULTLESS_LIBRARY")?;
            ensure!(path.is_file(), "FAULTLESS_LIBRARY names {}, which is no file", path.display());
            path
        }
        None => {
            let own = std::env::current_exe().context("cannot tell where this program is")?;
            let dir = own.parent().unwrap_or(Path::new("/"));
            let places = [dir.join(LIBRARY), dir.join("../lib/faultless").join(LIBRARY)];
            let found = places.into_iter().find(|path| path.is_file());
            found.with_context(|| {
                format!(
                    "{LIBRARY} is neither in {} nor in ../lib/faultless beside it: build it with `cargo build \
                     --release --workspace`, or name it in FAULTLESS_LIBRARY",
                    dir.display()
                )
            })?
        }
    };
    // The loader takes these for the end of a name, and has no way to quote them.
    if path.as_os_str().as_encoded_bytes().iter().any(|b| b.is_ascii_whitespace() || *b == b':') {
        bail!("{}: a preload library's path can hold no space and no colon", path.display());
    }
    Ok(path)
}

/// The options of AddressSanitizer, with the one that lets it start behind a preloaded library.
fn asan_options(given: Option<OsString>) -> OsString {
    let mut options = OsString::from("verify_asan_link_order=0");
    if let Some(given) = given.filter(|g| !g.is_empty()) {
        options.push(":");
        options.push(given);
    }
    options
}

/// LD_PRELOAD with `library` before what it held.
fn preload(library: &Path, before: Option<OsString>) -> OsString {
    let mut list = library.as_os_str().to_owned();
    if let Some(before) = before.filter(|list| !list.is_empty()) {
        if before.as_encoded_bytes().split(|b| b" :".contains(b)).next() == Some(list.as_encoded_bytes()) {
            return before;
        }
        list.push(":");
        list.push(before);
    }
    list
}

impl Args {
    /// The program with its arguments, as it is.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program[0]);
        command.args(&self.program[1..]);
        command
    }

    /// The program as it runs under faultless, its counters pages in `stats`. What is not asked for stays as the
    /// environment has it.
    pub fn covered(&self, library: &Path, stats: Option<&Path>) -> Command {
        let mut command = self.command();
        command.env("LD_PRELOAD", preload(library, std::env::var_os("LD_PRELOAD")));
        // AddressSanitizer as a shared library refuses to start behind any other; ours then stays away.
        command.env("ASAN_OPTIONS", asan_options(std::env::var_os("ASAN_OPTIONS")));
        for (name, value) in self.environment() {
            command.env(name, value);
        }
        match stats {
            Some(dir) => command.env("FAULTLESS_STATS", dir),
            None => command.env_remove("FAULTLESS_STATS"),
        };
        command
    }

    fn environment(&self) -> Vec<(&'static str, OsString)> {
        let number = |n: u64| OsString::from(n.to_string());
        let flag = |is_set: bool, value: &str| is_set.then(|| OsString::from(value));
        let unmap = self.unmap.map(|mode| match mode {
            Unmap::Strict => "strict".into(),
            Unmap::Relaxed => "relaxed".into(),
        });
        let all = [
            ("FAULTLESS_BUDGET", self.budget.map(number)),
            ("FAULTLESS_UNMAP", unmap),
            ("FAULTLESS_SCRUB", flag(self.no_scrub, "0")),
            ("FAULTLESS_AHEAD", flag(self.no_ahead, "0")),
            ("FAULTLESS_CHECK", flag(self.check, "1")),
            ("FAULTLESS_MALLOC_THRESHOLD", self.malloc_threshold.map(number)),
            ("FAULTLESS_MMAP_THRESHOLD", self.mmap_threshold.map(number)),
            ("FAULTLESS_SKIP", self.skip.clone()),
            ("FAULTLESS_NO_CHILDREN", flag(self.no_children, "1")),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// What the settings themselves say against covering the program.
    pub fn ruled_out(&self) -> Option<String> {
        let var = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        if var("FAULTLESS_DISABLE").is_some_and(|value| value != "0") {
            return Some("FAULTLESS_DISABLE is set".into());
        }
        let from_environment = || size(var("FAULTLESS_BUDGET")?.to_str()?).ok();
        if let Some(budget) = self.budget.or_else(from_environment).filter(|budget| *budget < SLOT as u64) {
            return Some(format!("the budget of {} is less than 2 MiB", super::summary::size(budget)));
        }
        if sys::limits_address_space() {
            return Some("address space is limited (ulimit -v)".into());
        }
        let skip = self.skip.clone().or_else(|| var("FAULTLESS_SKIP")).unwrap_or_default();
        let name = Path::new(&self.program[0]).file_name().unwrap_or(OsStr::new(""));
        let is_skipped = skip.as_encoded_bytes().split(|b| *b == b',').any(|n| n == name.as_encoded_bytes());
        is_skipped.then(|| format!("{} is to be skipped", name.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_refused() {
        let good = [("0", 0), ("123", 123), ("1K", 1 << 10), ("3k", 3 << 10), ("64M", 64 << 20), ("2G", 2 << 30)];
        for (text, bytes) in good {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in
            ["", "K", "-1", "+1", "1.5G", "1T", "1KB", "1 K", " 1", "0x10", "1é", "M1", "99999999999999999999"]
        {
            assert!(size(text).is_err(), "{text}");
        }
        assert!(size("18446744073709551615").is_ok());
        assert!(size("18014398509481984K").is_err());
        assert_eq!(at_least("64K", 64 << 10), Ok(64 << 10));
        assert_eq!(at_least("63K", 64 << 10), Err("less than 64 KiB".into()));
    }

    #[test]
    fn the_library_comes_before_other_preloads() {
        let preload = |before: Option<&str>| preload(Path::new("/a/f.so"), before.map(OsString::from));
        assert_eq!(preload(None), "/a/f.so");
        assert_eq!(preload(Some("")), "/a/f.so");
        assert_eq!(preload(Some("/b.so /c.so")), "/a/f.so:/b.so /c.so");
        assert_eq!(preload(Some("/a/f.so:/b.so")), "/a/f.so:/b.so");
        assert_eq!(preload(Some("/a/f.so2")), "/a/f.so:/a/f.so2");
    }

    #[test]
    fn options_become_settings_of_the_library() {
        assert!(Args::default().environment().is_empty());
        let args = Args {
            budget: Some(3 << 20),
            unmap: Some(Unmap::Relaxed),
            no_scrub: true,
            no_ahead: true,
            check: true,
            no_children: true,
            ..Args::default()
        };
        let expected = [
            ("FAULTLESS_BUDGET", "3145728"),
            ("FAULTLESS_UNMAP", "relaxed"),
            ("FAULTLESS_SCRUB", "0"),
            ("FAULTLESS_AHEAD", "0"),
            ("FAULTLESS_CHECK", "1"),
            ("FAULTLESS_NO_CHILDREN", "1"),
        ];
        assert_eq!(args.environment(), expected.map(|(name, value)| (name, OsString::from(value))));
    }
}
