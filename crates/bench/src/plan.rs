//! What a row of the tables is: a program, who runs it, what is compared, and what is aimed at.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::contender::Contender;
use super::machine::Machine;

/// The Python where no other is asked for.
pub const PYTHON: &str = "python3";

/// What the rows are made for.
pub struct Context {
    /// The command `faultless`.
    pub exe: PathBuf,
    /// This program.
    pub own: PathBuf,
    /// A folder for what the programs read and write.
    pub dir: PathBuf,
    /// CPUs.
    pub cpus: usize,
    /// Bytes of memory.
    pub memory: u64,
    /// The Python interpreter to use.
    pub python: String,
    /// Everything, not only what fits the default time.
    pub full: bool,
    /// Tiny sizes, to try the bench itself.
    pub quick: bool,
}

impl Context {
    /// On this machine, with inputs in `dir`: at the default size, with the usual Python.
    pub fn new(machine: &Machine, dir: &Path) -> io::Result<Self> {
        Ok(Self {
            exe: std::env::current_exe()?.with_file_name("faultless"),
            own: std::env::current_exe()?,
            dir: dir.to_owned(),
            cpus: machine.cpus,
            memory: machine.memory,
            python: PYTHON.into(),
            full: false,
            quick: false,
        })
    }

    /// A size, scaled.
    pub fn size(&self, bytes: u64) -> u64 {
        if self.quick { bytes / 16 } else { bytes }
    }

    /// A number of repetitions, scaled.
    pub fn count(&self, count: u64) -> u64 {
        if self.quick { (count / 16).max(2) } else { count }
    }

    /// The time that a loop measures, scaled.
    pub fn seconds(&self, seconds: f64) -> f64 {
        if self.quick { seconds / 16.0 } else { seconds }
    }
}

/// The table that a row stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Section {
    /// Allocation in a loop: how many times faster.
    Loops,
    /// What a program pays for nothing.
    Costs,
    /// Real programs: what part of the time is left.
    Programs,
    /// Programs that have nothing to gain.
    Quiet,
    /// Memory in use.
    Memory,
}

impl Section {
    /// In the order of printing.
    pub const ALL: [Section; 5] =
        [Section::Loops, Section::Costs, Section::Programs, Section::Quiet, Section::Memory];

    /// Its heading, with what the ratios mean.
    pub fn title(self) -> &'static str {
        match self {
            Section::Loops => "Loops (time a round; ratios: how many times faster than)",
            Section::Costs => "Fixed costs (ratios: faultless's time in parts of the other's)",
            Section::Programs => "Programs (ratios: faultless's time in parts of the other's)",
            Section::Quiet => "Programs that have nothing to gain (ratios as above)",
            Section::Memory => "Memory left in use (ratios: faultless's bytes in parts of the other's)",
        }
    }

    /// Whether its ratios are speeds.
    pub fn is_speed(self) -> bool {
        self == Section::Loops
    }
}

/// Who runs a row's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Plain, huge pages always, faultless.
    Kernel,
    /// Those and the allocators.
    Malloc,
    /// Plain and faultless.
    Pair,
    /// Plain, an empty library, faultless.
    Empty,
    /// faultless alone, to be compared with another row.
    Own,
    /// Plain, huge pages always, faultless, and faultless with frames that move.
    Moves,
}

impl Field {
    /// The contenders, in the order of the first round.
    pub fn contenders(self) -> Vec<Contender> {
        use Contender::*;
        match self {
            Field::Kernel => vec![Plain, Huge, Faultless],
            Field::Malloc => vec![Plain, Huge, Faultless, Mimalloc, Tcmalloc, Jemalloc],
            Field::Pair => vec![Plain, Faultless],
            Field::Empty => vec![Plain, Empty, Faultless],
            Field::Own => vec![Faultless],
            Field::Moves => vec![Plain, Huge, Faultless, Mapped],
        }
    }
}

/// How the program is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// One of our own loops, which prints its cost and its checksum.
    Loop,
    /// A program of another project; what it prints and writes is the checksum.
    Program,
    /// The same, but faultless by `faultless run` rather than by the library alone.
    Run,
}

/// What is compared. Each is better when smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// Seconds that a loop measured.
    Cost,
    /// Bytes that a loop measured.
    Bytes,
    /// Seconds from start to end.
    Wall,
    /// Seconds in the kernel.
    System,
    /// The most bytes that the processes of the run have together.
    Peak,
}

impl Metric {
    /// Whether it counts bytes and not seconds.
    pub fn is_bytes(self) -> bool {
        matches!(self, Metric::Bytes | Metric::Peak)
    }
}

/// Whom a target compares with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// One contender.
    One(Contender),
    /// The better of plain and huge pages always.
    BestKernel,
    /// The best allocator installed.
    BestRetaining,
    /// faultless in another row of the same group.
    Row(&'static str, &'static str),
}

impl Against {
    /// The kernel as found.
    pub const PLAIN: Against = Against::One(Contender::Plain);
    /// Huge pages always.
    pub const HUGE: Against = Against::One(Contender::Huge);
    /// An empty preload library.
    pub const EMPTY: Against = Against::One(Contender::Empty);

    /// As it stands in a target.
    pub fn name(self) -> &'static str {
        match self {
            Against::One(contender) => contender.name(),
            Against::BestKernel => "the best kernel setting",
            Against::BestRetaining => "the best allocator",
            Against::Row(_, name) => name,
        }
    }
}

/// How good faultless is to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// At least this many times as fast.
    Speed(f64),
    /// At most this part of the time; where the part is one or more, no loss beyond that.
    Share(f64),
    /// At most this many seconds more.
    Extra(f64),
    /// At most the budget more, and 1 MiB of tables for each process.
    Budget,
}

/// One aim of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// How good.
    pub bound: Bound,
    /// Compared with whom.
    pub against: Against,
}

/// One line of a table.
pub struct Line {
    /// What is compared.
    pub metric: Metric,
    /// What is aimed at.
    pub targets: Vec<Target>,
}

/// A program and its arguments.
#[derive(Default)]
pub struct Launch {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Where it runs.
    pub dir: Option<PathBuf>,
    /// What it writes, part of the checksum.
    pub outputs: Vec<PathBuf>,
    /// What it really is, when that depends on the machine.
    pub note: Option<String>,
    /// An unnamed file, its last argument: it opens our descriptor.
    pub input: Option<File>,
}

impl Launch {
    /// Of a program with these arguments.
    pub fn new<A: Into<OsString>>(program: impl Into<PathBuf>, args: impl IntoIterator<Item = A>) -> Launch {
        Launch { program: program.into(), args: args.into_iter().map(Into::into).collect(), ..Launch::default() }
    }

    /// It under `run`, which keeps its notes in this folder. Notes are kept where `run` has something to say at the end:
    /// there it writes what it counted, to [`COUNTED`].
    pub fn noted(&self, exe: &Path, notes: &Path) -> Command {
        let mut command = Command::new(exe);
        command.args(["run", "--quiet", "--json"]).arg(notes.join(COUNTED)).arg("--").arg(&self.program);
        command.env("XDG_CACHE_HOME", notes).env_remove("FAULTLESS_PROFILE");
        self.begun(command)
    }

    /// It as it is.
    pub fn plain(&self) -> Command {
        self.begun(Command::new(&self.program))
    }

    fn begun(&self, mut command: Command) -> Command {
        command.args(&self.args).env_remove("LD_PRELOAD").env("LC_ALL", "C").env("FAULTLESS_WARM", "");
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        command
    }
}

/// The file of what `run` counted, beside the notes.
pub const COUNTED: &str = "run.json";

/// Makes what the program needs; the error says what is not installed.
pub type Prepare = Box<dyn Fn(&Context) -> Result<Launch, String>>;

/// A program, who runs it, and what is compared.
pub struct Row {
    /// Its name for `--only`.
    pub id: String,
    /// Rows of one group take turns.
    pub group: String,
    /// Its table.
    pub section: Section,
    /// What it does.
    pub title: String,
    /// Who runs it.
    pub field: Field,
    /// How it is started.
    pub start: Start,
    /// Settings for faultless.
    pub env: &'static [(&'static str, &'static str)],
    /// Whether what faultless counts is read.
    pub is_counted: bool,
    /// Whether memory lies idle for 15 s before each run.
    pub is_cold: bool,
    /// Bytes touched once before the group, so that memory is warm.
    pub warm: u64,
    /// Rounds wanted.
    pub rounds: usize,
    /// Its share of the time, in seconds.
    pub seconds: f64,
    /// When a run counts as hung.
    pub limit: Duration,
    /// What is printed.
    pub lines: Vec<Line>,
    /// How the program is made ready.
    pub prepare: Prepare,
}

impl Row {
    /// A row with the usual settings.
    pub fn new(id: &str, section: Section, title: impl Into<String>) -> Row {
        Row {
            id: id.to_owned(),
            group: id.to_owned(),
            section,
            title: title.into(),
            field: Field::Kernel,
            start: Start::Program,
            env: &[],
            is_counted: false,
            is_cold: false,
            warm: 0,
            rounds: 5,
            seconds: 8.0,
            limit: Duration::from_secs(60),
            lines: Vec::new(),
            prepare: Box::new(|_| Err("no program".into())),
        }
    }

    /// Takes turns with the other rows of this group.
    pub fn group(self, group: &str) -> Row {
        Row { group: group.to_owned(), ..self }
    }

    /// Who runs it.
    pub fn field(self, field: Field) -> Row {
        Row { field, ..self }
    }

    /// Settings for faultless.
    pub fn env(self, env: &'static [(&'static str, &'static str)]) -> Row {
        Row { env, ..self }
    }

    /// What faultless counts is read.
    pub fn counted(self) -> Row {
        Row { is_counted: true, ..self }
    }

    /// Memory lies idle before each run.
    pub fn cold(self) -> Row {
        Row { is_cold: true, ..self }
    }

    /// Memory is warm before the first.
    pub fn warm(self, bytes: u64) -> Row {
        Row { warm: bytes, ..self }
    }

    /// Rounds wanted, and the time they may take by default.
    pub fn rounds(self, rounds: usize, seconds: f64) -> Row {
        Row { rounds, seconds, ..self }
    }

    /// Another line to print.
    pub fn line(mut self, metric: Metric, targets: &[(Bound, Against)]) -> Row {
        let targets = targets.iter().map(|(bound, against)| Target { bound: *bound, against: *against }).collect();
        self.lines.push(Line { metric, targets });
        self
    }

    /// One of our loops.
    pub fn looping(self, args: impl Fn(&Context) -> String + 'static) -> Row {
        let prepare = move |context: &Context| {
            let words = format!("loop {}", args(context));
            Ok(Launch::new(&context.own, words.split_whitespace()))
        };
        Row { start: Start::Loop, prepare: Box::new(prepare), ..self }
    }

    /// How it is started.
    pub fn starting(self, start: Start) -> Row {
        Row { start, ..self }
    }

    /// A program.
    pub fn program(self, prepare: impl Fn(&Context) -> Result<Launch, String> + 'static) -> Row {
        Row { prepare: Box::new(prepare), ..self }
    }
}
