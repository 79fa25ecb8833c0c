//! The tests of the engine and of the library on other kernels, in QEMU. `cargo xtask kernels [--only NAME]… KERNEL…`,
//! where a name is that of a program, or of a program and its tests: `page`, `files::group`. Not part of `cargo xtask
//! test`.
//!
//! These are the tests of the crates that speak to the kernel, with few cases of those that are drawn by chance: all of
//! it is slow there. The guest has no compiler, no Python, and no other file system than memory.

use std::fmt::{self, Display, Formatter};
use std::ops::AddAssign;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::guest::{Image, Machine, kernels};
use crate::shell::{cargo, output, root};

/// The crates.
const CRATES: &str = "--package faultless-base --package faultless";
/// Tests that have more to do, and take minutes there.
const TOO_LONG: [&str; 14] = [
    "files::flush::nothing_is_lost_beside_the_background",
    "files::group::a_group_never_has_more_than_its_budget",
    "files::lazy::threads_touch_map_sync_and_drop_at_a_time",
    "files::lazy::what_is_written_while_pages_go_is_there",
    "files::power",
    "files::private::calls_may_be_given_private_memory_while_the_length_changes",
    "files::private::changes_are_seen_in_their_mapping_alone",
    "files::streamed",
    "heap::blocks_are_zero_and_apart",
    "many",
    "soak",
    "swap",
    "unzeroed::no_more_is_kept_than_the_budget_allows_and_it_can_be_given_back",
    "unzeroed::what_is_dropped_comes_again_and_only_to_those_who_take_it",
];
/// Seconds for one test, for one program, and for all of them together.
const LIMIT_OF_TEST: u32 = 240;
const LIMIT: u32 = 600;
const LIMIT_OF_ALL: u32 = 2400;
/// What the guest says of each that failed, and at its end.
const FAILED: &str = "guest: failed: ";
const ENDED: &str = "guest: ended";

/// A program with tests.
pub struct Tests {
    pub file: PathBuf,
    /// Crate and target.
    name: String,
    /// Where they expect to run, from the root.
    dir: PathBuf,
}

impl Tests {
    /// The target alone.
    fn target(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or_default()
    }

    /// What a selection of programs and tests says of this program: the tests, an empty name for all of them.
    fn chosen<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
        let parts = names.into_iter().map(|name| name.split_once("::").unwrap_or((name, "")));
        parts.filter(|(target, _)| *target == self.target()).map(|(_, tests)| tests).collect()
    }

    /// Its arguments in the guest, if it is to run there at all.
    fn arguments(&self, only: &[String]) -> Option<String> {
        if !only.is_empty() {
            let chosen = self.chosen(only.iter().map(String::as_str));
            let all = chosen.contains(&"");
            return (!chosen.is_empty()).then(|| if all { String::new() } else { chosen.join(" ") });
        }
        let left = self.chosen(TOO_LONG);
        let skips = left.iter().map(|test| format!("--skip {test}")).collect::<Vec<_>>().join(" ");
        (!left.contains(&"")).then_some(skips)
    }

    /// Runs them in the guest, and shows all that they say if they fail.
    fn commands(&self, arguments: &str) -> String {
        let (name, dir) = (&self.name, self.dir.display());
        format!(
            "busybox mkdir -p /{dir}; cd /{dir}; echo guest: {name}
             if busybox timeout {LIMIT} /{name} {arguments} > /tmp/said 2>&1
             then busybox grep -E '(^test result|skipped: )' /tmp/said
             else echo {FAILED}{name}; busybox cat /tmp/said; fi\n"
        )
    }
}

/// Builds the tests that `selection` names.
pub fn built(selection: &str) -> Result<Vec<Tests>> {
    let built = output(&mut cargo(&format!("test --no-run --message-format=json {selection}")))?;
    let messages = built.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages
        .filter(|message| message["profile"]["test"] == Value::Bool(true))
        .filter_map(|message| Some((message["executable"].as_str()?.to_owned(), message)))
        .map(|(file, message)| {
            let manifest = PathBuf::from(message["manifest_path"].as_str().context("a manifest")?);
            let dir = manifest.parent().context("a directory")?.strip_prefix(root())?.to_owned();
            let name = format!("{}/{}", dir.display(), message["target"]["name"].as_str().unwrap_or_default());
            Ok(Tests { file: file.into(), name, dir })
        })
        .collect()
}

/// Builds, boots, and says what failed, with these kernels or the distribution's.
pub fn run(args: &[String]) -> Result<()> {
    let (only, named) = split(args)?;
    let all = built(CRATES)?;
    for name in &only {
        let names = || all.iter().map(Tests::target).collect::<Vec<_>>().join(", ");
        let is_known = all.iter().any(|tests| !tests.chosen([name.as_str()]).is_empty());
        ensure!(is_known, "no program {name} among {}", names());
    }
    let image = Image::new("tests")?;
    let mut commands = format!("export PROPTEST_CASES=8 FAULTLESS_TEST_LIMIT={LIMIT_OF_TEST}\n");
    for (tests, arguments) in all.iter().filter_map(|tests| Some((tests, tests.arguments(&only)?))) {
        image.add(&tests.file, &tests.name)?;
        commands += &tests.commands(&arguments);
    }
    let guest = image.pack(&format!("{commands}echo {ENDED}\n"))?;
    let machine = Machine { nodes: 2, cpus_of_node: 1, mib_of_node: 2048 };
    let mut failed = Vec::new();
    for kernel in kernels(&named)? {
        let said = machine.boot(&kernel, &guest, LIMIT_OF_ALL)?;
        let name = kernel.file_name().unwrap_or_default().display().to_string();
        println!("{name}: {}", Totals::of(&said));
        ensure!(said.contains(ENDED), "the guest with {name} has not run all of them");
        let names = said.lines().filter_map(|line| line.trim_end().strip_prefix(FAILED));
        failed.extend(names.map(|tests| format!("{tests} with {name}")));
    }
    if only.is_empty() {
        println!("not run here, too slow in software: {}", TOO_LONG.join(", "));
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Programs that `--only` names, and kernels.
fn split(args: &[String]) -> Result<(Vec<String>, Vec<String>)> {
    let (mut only, mut named) = (Vec::new(), Vec::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--only" => only.push(args.next().context("--only needs the name of a program")?.clone()),
            option if option.starts_with('-') => anyhow::bail!("{option} is no option: there is --only NAME"),
            _ => named.push(arg.clone()),
        }
    }
    Ok((only, named))
}

/// What all programs said together.
#[derive(Debug, Default, PartialEq, Eq)]
struct Totals {
    programs: usize,
    passed: usize,
    failed: usize,
    ignored: usize,
    skipped: usize,
}

impl Totals {
    fn of(said: &str) -> Self {
        let mut all = Self::default();
        said.lines().map(Self::of_line).for_each(|one| all += one);
        all
    }

    /// Of what one line says: `test result: ok. 10 passed; 0 failed; 1 ignored; …`, or that a test was skipped.
    fn of_line(line: &str) -> Self {
        let skipped = line.contains("skipped: ") as usize;
        let Some((_, counts)) = line.split_once("test result: ") else {
            return Self { skipped, ..Self::default() };
        };
        let count = |what: &str| {
            let mut words = counts.split_whitespace().peekable();
            while let Some(word) = words.next() {
                if words.peek().is_some_and(|next| next.trim_end_matches(';') == what) {
                    return word.parse().unwrap_or(0);
                }
            }
            0
        };
        let (passed, failed, ignored) = (count("passed"), count("failed"), count("ignored"));
        Self { programs: 1, passed, failed, ignored, skipped }
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.programs += other.programs;
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.skipped += other.skipped;
    }
}

impl Display for Totals {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { programs, passed, failed, ignored, skipped } = self;
        write!(f, "{programs} programs: {passed} passed, {failed} failed, {ignored} ignored, {skipped} skipped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn programs_and_kernels_are_told_apart() {
        let (only, named) = split(&words("--only page linux-image-a --only swap /boot/b")).unwrap();
        assert_eq!((only, named), (words("page swap"), words("linux-image-a /boot/b")));
        assert!(split(&words("linux-image-a --only")).is_err());
        assert!(split(&words("--nly page")).is_err());
    }

    #[test]
    fn what_is_named_runs_and_what_takes_too_long_does_not() {
        let tests =
            |name: &str| Tests { file: PathBuf::new(), name: format!("crates/a/{name}"), dir: PathBuf::new() };
        let run = |name: &str, only: &str| tests(name).arguments(&words(only));
        assert_eq!(run("page", ""), Some(String::new()));
        assert_eq!(run("many", ""), None);
        assert_eq!(run("heap", ""), Some("--skip blocks_are_zero_and_apart".into()));
        assert_eq!(run("many", "page many"), Some(String::new()));
        assert_eq!(run("page", "many"), None);
        assert_eq!(run("files", "files::group files::advise"), Some("group advise".into()));
        assert_eq!(run("heap", "heap::a heap"), Some(String::new()));
    }

    #[test]
    fn lines_of_all_programs_are_added_up() {
        let said = "guest: a\r\n\
                    test result: ok. 10 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.00s\r\n\
                    skipped: x: no policies here\r\n\
                    guest: failed: b\r\n\
                    test c ... FAILED\r\n\
                    test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\r\n";
        let expected = Totals { programs: 2, passed: 14, failed: 2, ignored: 1, skipped: 1 };
        assert_eq!(Totals::of(said), expected);
        assert_eq!(expected.to_string(), "2 programs: 14 passed, 2 failed, 1 ignored, 1 skipped");
    }
}
