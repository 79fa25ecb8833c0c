//! What is asked for on the command line, and the environment that says so to the library.

use std::ffi::{CStr, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, ensure};
use faultless_base::SLOT;
use faultless_base::sys::raw::status_number;
use faultless_measure::library;
pub use faultless_measure::library::LIBRARY;
use faultless_page::knobs::{Knob, skip};

use super::{files, filters, link, program, sys};
use crate::profile::Known;
use crate::settings::{self, Origin, Setting};
use crate::warm;

/// Options of `faultless run`.
///
/// Sizes are in bytes, or with K, M or G in powers of 1024.
#[derive(clap::Args, Default)]
pub struct Args {
    /// Sets a knob; `faultless sysctl --list` explains them. The last of several counts, and the flags below count
    /// before it.
    #[arg(short = 's', long = "set", value_name = "NAME=VALUE", value_parser = settings::assignment)]
    pub set: Vec<Setting>,
    /// Free memory kept beyond the program's own peak; below 2M everything runs plain.
    #[arg(long, value_name = "SIZE", value_parser = value_of(Knob::Budget))]
    pub budget: Option<Setting>,
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
    #[arg(long, value_name = "SIZE", value_parser = value_of(Knob::MallocThreshold))]
    pub malloc_threshold: Option<Setting>,
    /// Smallest mapping that is served, from 2M.
    #[arg(long, value_name = "SIZE", value_parser = value_of(Knob::MmapThreshold))]
    pub mmap_threshold: Option<Setting>,
    /// Programs of the tree to leave alone: names, separated by commas. That of the file that is started counts, that
    /// of the file that runs (of a script, its interpreter's), and that of the first argument that is no option.
    #[arg(long, value_name = "NAMES", value_parser = value_of(Knob::Skip))]
    pub skip: Option<Setting>,
    /// Run the programs that the program starts plain.
    #[arg(long)]
    pub no_children: bool,
    /// Neither use what is known of the program from earlier runs, nor note what it does.
    #[arg(long)]
    pub no_profile: bool,
    /// Start a warm reserve, if there is none and this machine gives idle memory back to its host.
    #[arg(long)]
    pub warm: bool,
    /// Print nothing at the end. Without --json and --files, the program then takes this process's place.
    #[arg(long)]
    pub quiet: bool,
    /// Bring these files into the kernel's page cache while the program starts and runs. A file, a directory, or a pattern
    /// in quotes (`*`, `?`, `[a-z]`, and `**` for directories). May be given several times; the order counts.
    #[arg(long, value_name = "GLOB", value_parser = files::pattern)]
    pub files: Vec<files::Pattern>,
    /// Write what happened to a file.
    #[arg(long, visible_alias = "export-json", value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Name every process of the tree at the end, and not only the programs that were served most.
    #[arg(long)]
    pub tree: bool,
    /// Run the program plain and under faultless, this many times each, and compare: output, status, times, faults,
    /// memory.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub compare: Option<u32>,
    /// With --compare: this many pairs of runs before those that count.
    #[arg(long, value_name = "N", requires = "compare", default_value_t = 0)]
    pub warmup: u32,
    /// With --compare: a command for the shell before each run.
    #[arg(long, value_name = "COMMAND", requires = "compare")]
    pub prepare: Option<OsString>,
    /// With --compare: write every run to a file, a line each.
    #[arg(long, value_name = "FILE", requires = "compare")]
    pub export_csv: Option<PathBuf>,
    /// With --compare: write the table to a file.
    #[arg(long, value_name = "FILE", requires = "compare")]
    pub export_markdown: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
    /// What the user's file says.
    #[arg(skip)]
    pub file: Vec<Setting>,
    /// The program goes without the library, because it made few large requests when it ran last, or none.
    #[arg(skip)]
    pub is_known_plain: bool,
    /// The socket of the warm reserve, if there is one.
    #[arg(skip)]
    pub reserve: Option<PathBuf>,
}

/// Reads the value of a flag that sets `knob`.
fn value_of(knob: Knob) -> impl Fn(&str) -> Result<Setting, String> + Clone + Send + Sync + 'static {
    move |value| settings::setting(knob, value)
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
            library::of(&own).map_err(|error| {
                anyhow!(
                    "{error}: install a package, use `cargo xtask install PREFIX`, build it with `cargo build --release \
                     --workspace`, or name it in FAULTLESS_LIBRARY"
                )
            })?
        }
    };
    link::loadable(path)
}

/// The options of AddressSanitizer, with one more that lets it start behind a preloaded library.
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

/// Whether what this command starts has the library anyway: another one that covers it is around this one.
pub fn is_below_another() -> bool {
    let list = std::env::var_os("LD_PRELOAD").filter(|list| !list.is_empty());
    list.is_some_and(|list| library().is_ok_and(|library| is_preloaded(&library, &list)))
}

/// Whether the library is in this list, from whatever place.
fn is_preloaded(library: &Path, list: &OsStr) -> bool {
    let mut files = list.as_bytes().split(|b| b" :".contains(b)).map(|file| Path::new(OsStr::from_bytes(file)));
    files.any(|file| file.file_name().is_some() && file.file_name() == library.file_name())
}

/// Options whose value is the next word.
const WITH_VALUE: [&str; 14] = [
    "-s",
    "--set",
    "--budget",
    "--malloc-threshold",
    "--mmap-threshold",
    "--skip",
    "--files",
    "--json",
    "--export-json",
    "--compare",
    "--warmup",
    "--prepare",
    "--export-csv",
    "--export-markdown",
];

/// The place of the program among words of `run`, before there is a runtime to read them with.
pub fn program_in(words: &[&CStr]) -> Option<usize> {
    let mut i = 0;
    loop {
        let word = words.get(i)?.to_bytes();
        match word {
            b"--" => return (i + 1 < words.len()).then_some(i + 1),
            _ if WITH_VALUE.iter().any(|option| option.as_bytes() == word) => i += 2,
            _ if word.starts_with(b"-") && word.len() > 1 => i += 1,
            _ => return Some(i),
        }
    }
}

impl Args {
    /// The same with what the user's file says. What is wrong with that, or with the environment, is an error.
    pub fn with_file(self) -> Result<Self> {
        settings::check_environment().map_err(anyhow::Error::msg)?;
        Ok(Self { file: settings::file()?, ..self })
    }

    /// The same with the warm reserve, which is told that a program is about to start.
    pub fn with_reserve(self) -> Self {
        let reserve = warm::for_program(if self.warm { warm::Use::Start } else { warm::Use::IfThere });
        Self { reserve, ..self }
    }

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
        if filters::ruled_out().is_some() {
            return command;
        }
        command.env("LD_PRELOAD", preload(library, std::env::var_os("LD_PRELOAD")));
        // AddressSanitizer as a shared library refuses to start behind any other; ours then stays away.
        command.env("ASAN_OPTIONS", asan_options(std::env::var_os("ASAN_OPTIONS")));
        for (name, value) in self.environment() {
            command.env(name, value);
        }
        // How many system call filters are in force here; 0 where the kernel does not tell.
        let filters = status_number("Seccomp_filters").unwrap_or(0);
        command.env("FAULTLESS_FILTERS", filters.to_string());
        match &self.reserve {
            Some(socket) => _ = command.env(warm::VARIABLE, socket),
            // Who set it may have been without filters, which kill for a socket here.
            None if filters > 0 && std::env::var_os(warm::VARIABLE).is_some() => {
                _ = command.env(warm::VARIABLE, "")
            }
            None => {}
        }
        // Without a place of its own it counts where the command counts that this one was started by.
        if let Some(dir) = stats {
            command.env("FAULTLESS_STATS", dir);
        }
        command
    }

    /// What is known of the program from earlier runs; `None` where settings decide whether it is covered, or say that
    /// nothing is to be known. Below another `run` that covers it, it has the library anyway.
    pub fn known(&self) -> Option<Known> {
        let decide = self.has_skips() || [Knob::NoChildren, Knob::Check].iter().any(|knob| self.is_on(*knob));
        if !self.is_on(Knob::Profile) || decide || is_below_another() || self.ruled_out().is_some() {
            return None;
        }
        let file = program::find(&self.program[0], std::env::var_os("PATH").as_deref())?;
        Known::new(
            &file,
            &self.program,
            &[Knob::MallocThreshold, Knob::MmapThreshold].map(|knob| self.value(knob)),
        )
    }

    /// What the command line sets, the last of the same knob counting.
    pub fn flags(&self) -> Vec<Setting> {
        let switch = |is_given: bool, knob, value: &str| is_given.then(|| Setting { knob, value: value.into() });
        let named = [&self.budget, &self.malloc_threshold, &self.mmap_threshold, &self.skip];
        let switches = [
            switch(self.no_scrub, Knob::Scrub, "0"),
            switch(self.no_ahead, Knob::Ahead, "0"),
            switch(self.check, Knob::Check, "1"),
            switch(self.no_children, Knob::NoChildren, "1"),
            switch(self.quiet, Knob::Quiet, "1"),
            switch(self.no_profile, Knob::Profile, "0"),
        ];
        self.set.iter().chain(named.into_iter().flatten()).cloned().chain(switches.into_iter().flatten()).collect()
    }

    /// What `knob` is set to.
    pub fn value(&self, knob: Knob) -> OsString {
        settings::resolve(knob, &self.flags(), &self.file).0
    }

    /// Whether a switch is on.
    pub fn is_on(&self, knob: Knob) -> bool {
        settings::is_on(knob, &self.value(knob))
    }

    /// The variables that tell the library what the flags and the user's file say.
    fn environment(&self) -> Vec<(&'static str, OsString)> {
        let flags = self.flags();
        let all =
            Knob::ALL.iter().map(|knob| (knob.declared().variable, settings::resolve(*knob, &flags, &self.file)));
        all.filter(|(_, (_, origin))| matches!(origin, Origin::Flag | Origin::File))
            .map(|(name, (value, _))| (name, value))
            .collect()
    }

    /// What the settings themselves say against covering the program.
    pub fn ruled_out(&self) -> Option<String> {
        if self.is_known_plain {
            return Some("it made few large requests when it ran last, or none (`faultless profile`)".into());
        }
        if self.is_on(Knob::Disable) {
            return Some("it is switched off (FAULTLESS_DISABLE, or disable in the user's file)".into());
        }
        let budget = Knob::Budget.declared().nearest(self.value(Knob::Budget).as_encoded_bytes());
        if let Some(budget) = budget.filter(|budget| *budget < SLOT as u64) {
            return Some(format!("the budget of {} is less than 2 MiB", faultless_measure::figures::size(budget)));
        }
        if sys::limit(libc::RLIMIT_AS).is_some() {
            return Some("address space is limited (ulimit -v)".into());
        }
        if sys::limit(libc::RLIMIT_DATA).is_some() {
            return Some("data is limited (ulimit -d)".into());
        }
        if std::fs::read("/proc/sys/vm/overcommit_memory").is_ok_and(|mode| mode.first() == Some(&b'2')) {
            return Some("the kernel does not overcommit (vm.overcommit_memory is 2)".into());
        }
        if let Some(why) = filters::ruled_out() {
            return Some(why);
        }
        let name = self.skipped()?;
        Some(format!("{} is to be skipped", name.display()))
    }

    /// The name by which the program is one to be skipped. As the library tells: see `faultless_page::knobs::skip`.
    fn skipped(&self) -> Option<OsString> {
        let list = self.value(Knob::Skip);
        if list.is_empty() {
            return None;
        }
        let path = std::env::var_os("PATH");
        let file = program::find(&self.program[0], path.as_deref());
        let runs = program::inspect(&self.program[0], path.as_deref()).map(|program| program.path);
        let real = [&file, &runs].map(|path| path.as_deref().and_then(|path| path.canonicalize().ok()));
        let files = [file, runs].into_iter().chain(real).flatten().map(PathBuf::into_os_string);
        let argument = skip::argument(self.program.iter().map(|word| word.as_bytes()));
        let argument = argument.map(|word| OsStr::from_bytes(word).to_owned());
        let names: Vec<_> = [self.program[0].clone()].into_iter().chain(files).chain(argument).collect();
        let found = skip::named(list.as_bytes(), names.iter().map(|name| name.as_bytes()))?;
        Some(OsStr::from_bytes(skip::file_name(found)).to_owned())
    }

    /// Whether there are any.
    pub fn has_skips(&self) -> bool {
        !self.value(Knob::Skip).is_empty()
    }

    /// Whether the program of which the kernel shows this name in the end is one to be skipped.
    pub fn skips(&self, name: &str) -> bool {
        skip::shown(self.value(Knob::Skip).as_bytes(), name.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_comes_before_other_preloads() {
        let preload = |before: Option<&str>| preload(Path::new("/a/f.so"), before.map(OsString::from));
        assert_eq!(preload(None), "/a/f.so");
        assert_eq!(preload(Some("")), "/a/f.so");
        assert_eq!(preload(Some("/b.so /c.so")), "/a/f.so:/b.so /c.so");
        assert_eq!(preload(Some("/a/f.so:/b.so")), "/a/f.so:/b.so");
        assert_eq!(preload(Some("/a/f.so2")), "/a/f.so:/a/f.so2");
        let is_preloaded = |list: &str| is_preloaded(Path::new("/a/f.so"), OsStr::new(list));
        assert_eq!(["", "/a/f.so2", "/b.so /c/f.so", "f.so:"].map(is_preloaded), [false, false, true, true]);
    }

    #[test]
    fn the_program_is_found_behind_the_options() {
        use clap::CommandFactory;
        #[derive(clap::Parser)]
        struct Run {
            #[command(flatten)]
            args: Args,
        }
        for option in Run::command().get_arguments().filter(|option| !option.is_positional()) {
            let long = option.get_long_and_visible_aliases().unwrap_or_default();
            let names = long.into_iter().map(|name| format!("--{name}"));
            let names: Vec<_> = names.chain(option.get_short().map(|name| format!("-{name}"))).collect();
            let is_valued = option.get_action().takes_values();
            assert!(!names.is_empty());
            assert!(names.iter().all(|name| WITH_VALUE.contains(&name.as_str()) == is_valued), "{names:?}");
        }
        assert_eq!(program_in(&[c"--quiet", c"-s", c"budget=3M", c"sh", c"--", c"x"]), Some(3));
        assert_eq!(program_in(&[c"--json", c"a", c"--skip=x", c"--", c"-x"]), Some(4));
        assert_eq!((program_in(&[c"--help"]), program_in(&[c"--"]), program_in(&[])), (None, None, None));
    }

    #[test]
    fn options_become_settings_of_the_library() {
        assert!(Args::default().environment().is_empty());
        let set = |text| settings::assignment(text).unwrap();
        let args = Args {
            set: vec![set("budget=1G"), set("prefault_by=thread"), set("scrub=1")],
            budget: Some(set("budget=3M")),
            no_scrub: true,
            check: true,
            no_children: true,
            file: vec![set("prefault_by=area"), set("mmap_threshold=4M")],
            ..Args::default()
        };
        let expected = [
            ("FAULTLESS_BUDGET", "3M"),
            ("FAULTLESS_MMAP_THRESHOLD", "4M"),
            ("FAULTLESS_SCRUB", "0"),
            ("FAULTLESS_PREFAULT_BY", "thread"),
            ("FAULTLESS_CHECK", "1"),
            ("FAULTLESS_NO_CHILDREN", "1"),
        ];
        assert_eq!(args.environment(), expected.map(|(name, value)| (name, OsString::from(value))));
    }
}
