//! One program with its arguments, and its runs.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::counters::Counters;
use crate::library::library;
use crate::seen::Notes;
use crate::tools::{compile, scratch};
use faultless_base::sys::raw::status_number;
use tempfile::TempDir;

/// How often is looked whether a program has ended, and how many times: one that runs for two minutes hangs. Looks are counted, not time,
/// because this process may be stopped, too.
const LOOK: Duration = Duration::from_millis(5);
const LOOKS: usize = 24_000;

/// A program, its arguments and its surroundings.
#[derive(Clone)]
pub struct Case {
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(String, String)>,
    dir: Option<PathBuf>,
    yields: Vec<String>,
    user: Option<(u32, u32)>,
    succeeds: bool,
    /// Libraries that are preloaded behind ours.
    behind: Vec<String>,
    /// The program's own directory, if it was compiled for this case.
    _compiled: Option<Arc<TempDir>>,
}

/// What came of a run.
#[derive(Debug)]
pub struct Run {
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed.
    pub stdout: Vec<u8>,
    /// What it complained about.
    pub stderr: Vec<u8>,
    /// The files it was to write.
    pub files: Vec<Vec<u8>>,
    /// What the library did.
    pub counters: Counters,
}

impl Case {
    /// A program without arguments, run in a directory of its own, that ends with success.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        let env = vec![("PYTHONHASHSEED".into(), "0".into()), ("LC_ALL".into(), "C.UTF-8".into())];
        Self {
            program: program.into(),
            args: Vec::new(),
            env,
            dir: None,
            yields: Vec::new(),
            user: None,
            succeeds: true,
            behind: Vec::new(),
            _compiled: None,
        }
    }

    /// One of the C programs of this crate; `None` without a compiler.
    pub fn compiled(source: &str, flags: &[&str]) -> Option<Self> {
        let dir = scratch();
        let program = compile(dir.path(), source, flags)?;
        Some(Self { _compiled: Some(Arc::new(dir)), ..Self::new(program) })
    }

    /// Runs it with the arguments of each of these lines, as [`Case::same_and_served`].
    pub fn with_each(&self, lines: &[impl AsRef<str>]) {
        for line in lines {
            self.clone().args(line.as_ref().split_whitespace()).same_and_served();
        }
    }

    /// The program's path.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Adds arguments.
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Adds a variable of the environment.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Runs in `dir`.
    pub fn dir(mut self, dir: &Path) -> Self {
        self.dir = Some(dir.to_owned());
        self
    }

    /// The program writes this file in its directory; it is compared, and removed between runs.
    pub fn yields(mut self, file: &str) -> Self {
        self.yields.push(file.into());
        self
    }

    /// Runs as another user.
    pub fn user(mut self, uid: u32, gid: u32) -> Self {
        self.user = Some((uid, gid));
        self
    }

    /// The program ends with an error, or is killed.
    pub fn fails(mut self) -> Self {
        self.succeeds = false;
        self
    }

    /// Another library is preloaded, behind ours.
    pub fn behind(mut self, library: &str) -> Self {
        self.behind.push(library.into());
        self
    }

    /// Runs it plain, under the library, and under the library's checking mode with memory that moves ahead of it, and
    /// demands that they do the same. Returns the second run. Programs that were seen before are not checked: nothing is
    /// noted of those that are.
    pub fn same(&self) -> Run {
        let plain = self.plain();
        let under = self.under(&[]);
        self.compare(&plain, &under, "under the library");
        if Notes::asked().is_none() {
            let checked = self.under(&[("FAULTLESS_CHECK", "1"), ("FAULTLESS_MAPPED", "1")]);
            self.compare(&plain, &checked, "under the library's checks");
        }
        under
    }

    /// As [`same`](Self::same), for a program that the engine must have served.
    pub fn same_and_served(&self) -> Run {
        let under = self.same();
        assert!(under.counters.served() > 0, "nothing was served: {:?}", under.counters);
        under
    }

    fn compare(&self, plain: &Run, other: &Run, how: &str) {
        let complaint = String::from_utf8_lossy(&other.stderr);
        assert_eq!(plain.status, other.status, "{how}: exit status; {complaint}");
        assert!(
            plain.stdout == other.stdout,
            "{how}: output\n{}\ninstead of\n{}\n{complaint}",
            String::from_utf8_lossy(&other.stdout),
            String::from_utf8_lossy(&plain.stdout)
        );
        for (name, (a, b)) in self.yields.iter().zip(plain.files.iter().zip(&other.files)) {
            assert!(a == b, "{how}: {name} differs ({} and {} bytes)", a.len(), b.len());
        }
    }

    /// Runs it plain.
    pub fn plain(&self) -> Run {
        let behind = self.behind.join(":");
        let run = self.run(None, &[("LD_PRELOAD", &*behind)][..usize::from(!behind.is_empty())]);
        let complaint = String::from_utf8_lossy(&run.stderr);
        let output = String::from_utf8_lossy(&run.stdout);
        assert_eq!(run.status.success(), self.succeeds, "plain: {}; {output}{complaint}", run.status);
        assert_eq!(run.counters.processes, 0, "plain, and yet the library was there");
        run
    }

    /// Runs it under the library, with more variables.
    pub fn under(&self, knobs: &[(&str, &str)]) -> Run {
        // A copy, because another user may not get at the build directory.
        let dir = scratch();
        let copy = dir.path().join("libfaultless_preload.so");
        std::fs::copy(library(), &copy).expect("a copy of the library");
        let copy = copy.to_str().expect("a readable path");
        // Another library would be preloaded to the command, too.
        if let Some(notes) = Notes::asked().filter(|_| self.behind.is_empty()) {
            return self.seen_before(notes, dir.path(), &[&[("FAULTLESS_LIBRARY", copy)], knobs].concat());
        }
        let copy = [copy].into_iter().chain(self.behind.iter().map(String::as_str));
        let libraries = copy.collect::<Vec<_>>().join(":");
        // As `faultless run` sets it.
        let filters = status_number("Seccomp_filters").unwrap_or(0).to_string();
        self.run(None, &[&[("LD_PRELOAD", &*libraries), ("FAULTLESS_FILTERS", &filters)], knobs].concat())
    }

    /// Has the command run it twice, and returns the second run.
    fn seen_before(&self, notes: Notes, dir: &Path, env: &[(&str, &str)]) -> Run {
        let mut command = library().with_file_name("faultless");
        if self.user.is_some() {
            let copy = dir.join("faultless");
            std::fs::copy(&command, &copy).expect("a copy of the command");
            command = copy;
        }
        let run = || {
            notes.prepare();
            self.run(Some(&command), env)
        };
        let (first, again) = (run(), run());
        let complaint = String::from_utf8_lossy(&again.stderr);
        assert_eq!(first.status, again.status, "when it was seen before: {complaint}");
        again
    }

    /// Runs it, by this command or as it is.
    fn run(&self, by: Option<&Path>, env: &[(&str, &str)]) -> Run {
        let stats = scratch();
        let everyone = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(stats.path(), everyone).expect("permissions of a directory of our own");
        let io = scratch();
        let file = |name: &str| File::create(io.path().join(name)).expect("a file of our own");
        let dir = self.dir.as_deref().unwrap_or(io.path());
        for name in &self.yields {
            let _ = std::fs::remove_file(dir.join(name));
        }
        let json = stats.path().join("run.json");
        let mut command = Command::new(by.unwrap_or(&self.program));
        if by.is_some() {
            command.args(["run", "--quiet", "--json"]).arg(&json).arg("--").arg(&self.program);
        }
        command.args(&self.args).current_dir(dir);
        command.process_group(0).stdin(Stdio::null()).stdout(file("stdout")).stderr(file("stderr"));
        // Nothing of cargo's own, which some programs listen to, and no library but ours.
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_ours_to_set(name)) {
            command.env_remove(name);
        }
        if by.is_some() {
            command.env("FAULTLESS_WARM", std::env::var_os("FAULTLESS_WARM").unwrap_or_default());
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.env("FAULTLESS_STATS", stats.path()).envs(env.iter().copied());
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", self.program.display()));
        let status = wait(&mut child, &self.program);
        let read = |path: &Path| std::fs::read(path).unwrap_or_default();
        Run {
            status,
            stdout: read(&io.path().join("stdout")),
            stderr: read(&io.path().join("stderr")),
            files: self.yields.iter().map(|name| read(&dir.join(name))).collect(),
            counters: if by.is_some() { Counters::of_run(&json) } else { Counters::read(stats.path()) },
        }
    }
}

fn is_ours_to_set(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with("CARGO") || name.starts_with("FAULTLESS") || name.starts_with("LD_")
}

fn wait(child: &mut Child, program: &Path) -> ExitStatus {
    for _ in 0..LOOKS {
        if let Some(status) = child.try_wait().expect("a child of our own") {
            return status;
        }
        std::thread::sleep(LOOK);
    }
    // The whole group, because a shell leaves its servers behind.
    let _ = Command::new("kill").args(["-KILL", "--"]).arg(format!("-{}", child.id())).status();
    let _ = child.wait();
    panic!("{}: still running after {:?}", program.display(), LOOK * LOOKS as u32);
}
