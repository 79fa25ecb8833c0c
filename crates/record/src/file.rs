//! The file of a recording. docs/record.md has its layout for others.
//!
//! A head of 16 bytes (magic, version), then chunks: kind, CPU, length, and that many bytes. It is written from front
//! to back and never changed, so that one that was cut off can be read up to there.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};

use crate::wire::Source;

/// The first bytes of a recording.
pub const MAGIC: &[u8; 8] = b"faultrec";
/// The version of the layout.
pub const VERSION: u32 = 1;
/// Bytes of a chunk before what it holds.
pub const CHUNK_HEAD: u64 = 16;
/// Bytes of a chunk at most: what claims to be longer is no chunk. The largest that is written has the names of 64 MiB.
const MOST: u64 = 128 << 20;

/// Kinds of chunks.
mod kind {
    pub const HEAD: u32 = 1;
    pub const RECORDS: u32 = 2;
    pub const ROUND: u32 = 3;
    pub const MAPS: u32 = 4;
    pub const NAMES: u32 = 5;
    pub const END: u32 = 6;
    pub const THREADS: u32 = 7;
    pub const COUNTED: u32 = 8;
}

/// What is known when a recording begins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Head {
    /// What is recorded.
    #[serde(flatten)]
    pub program: Program,
    /// When it begins, in seconds since 1970.
    pub unix_s: u64,
    /// What is to be added to that, in nanoseconds.
    pub unix_ns: u64,
    /// Nanoseconds of the records' clock at the beginning.
    pub start_ns: u64,
    /// One fault in this many has a record.
    pub period: u64,
    /// Whether faults in system calls are seen.
    pub system_calls: bool,
    /// Whether Python's functions are looked for.
    pub python: bool,
    /// Why faults are not sampled; then there are counts alone.
    pub refused: Option<String>,
    /// Where.
    #[serde(flatten)]
    pub machine: Machine,
    /// Bytes of memory of the machine.
    pub memory: u64,
    /// What a fault costs on this machine.
    pub cost: Option<Cost>,
    /// What the records come from.
    pub sources: Vec<Source>,
}

impl Head {
    /// The recording begins now.
    pub fn begin(&mut self) {
        let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        (self.unix_s, self.unix_ns) = (unix.as_secs(), u64::from(unix.subsec_nanos()));
        self.start_ns = crate::sys::now();
    }

    /// When it began, in nanoseconds since 1970.
    pub fn began_ns(&self) -> u64 {
        self.unix_s.saturating_mul(1_000_000_000).saturating_add(self.unix_ns)
    }
}

/// What is recorded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Program {
    /// The program and its arguments; those of the process, if it ran already.
    pub command: Vec<String>,
    /// The process, if it ran already.
    pub pid: Option<u32>,
    /// Whether it runs under faultless.
    pub covered: bool,
    /// Why it could not, if that was seen: its file, and what that is.
    pub not_covered: Option<String>,
}

/// The machine that it runs on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// The kernel.
    pub kernel: String,
    /// Processors that are online.
    pub cpus: usize,
    /// What the kernel does with huge pages: always, madvise, never.
    pub huge_pages: String,
}

/// What a fault costs, measured before the program began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cost {
    /// Nanoseconds of a first touch of 4 KiB.
    pub fault_ns: f64,
    /// Nanoseconds between the two records of the same, which have a cost of their own.
    pub between_records_ns: f64,
}

/// What is known when it ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct End {
    /// Nanoseconds from its beginning.
    pub wall_ns: u64,
    /// Faults that began, as the events counted them; 0: not counted.
    pub begun: u64,
    /// Faults without input that ended while ends were recorded.
    pub minor: u64,
    /// Faults with input.
    pub major: u64,
    /// What the kernel says that the program used; none: it was not started here.
    pub usage: Option<Usage>,
    /// How the program ended.
    pub status: String,
    /// Records that were not written, because the file had reached its limit.
    pub dropped: u64,
    /// Processes whose names of functions were not written, for the same reason.
    pub names_left_out: u64,
    /// The same, because all such files together were too large.
    pub names_too_large: u64,
    /// Why the recording ended early.
    pub failed: Option<String>,
}

/// What a program used, with all its children that it waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Seconds in its own code.
    pub user_s: f64,
    /// Seconds in the kernel.
    pub system_s: f64,
    /// Faults without input.
    pub minor: u64,
    /// Faults with input.
    pub major: u64,
    /// Most bytes of memory at once, of the largest process.
    pub peak: u64,
}

/// The version of [`Counted`].
pub const COUNTED_VERSION: u32 = 1;

/// What faultless counted in the processes of a program that ran under it, added up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counted {
    /// [`COUNTED_VERSION`]: names keep their meaning within it.
    pub version: u32,
    /// Processes that left counters.
    pub processes: u64,
    /// Those of them for which something was done.
    pub served: u64,
    /// Whether a process counted that could not leave its counters.
    pub lost: bool,
    /// What is wrong with counters that could not be read.
    pub unreadable: Vec<String>,
    /// The counters by their names, without those that are zero.
    pub counters: BTreeMap<String, u64>,
}

/// A part of a recording.
#[derive(Clone, Debug, PartialEq)]
pub enum Chunk {
    /// The first one.
    Head(Box<Head>),
    /// Records of one CPU, in the order of time.
    Records(Vec<u8>),
    /// Records of all CPUs were taken: all that come later are younger than those of the round before this one.
    Round,
    /// `/proc/PID/maps` of a process that ran already.
    Maps(u32, String),
    /// Names of functions that a process made itself: its `perf-PID.map`.
    Names(u32, String),
    /// Threads of a process that ran already: a line for each, its number and its name.
    Threads(u32, String),
    /// What faultless counted.
    Counted(Box<Counted>),
    /// The last one.
    End(Box<End>),
    /// One of a later version.
    Other,
}

/// What is wrong with a file.
#[derive(Debug)]
pub enum Fault {
    /// No recording.
    Foreign,
    /// A recording of another version.
    Version(u32),
    /// It ends in the midst of a chunk.
    Cut,
    /// It holds something that cannot be.
    Broken,
    /// It cannot be read.
    Io(io::Error),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Foreign => f.write_str("no recording of faultless"),
            Self::Version(version) => {
                write!(f, "a recording of layout {version}; this faultless reads layout {VERSION}")
            }
            Self::Cut => f.write_str("it ends in the midst of a chunk"),
            Self::Broken => f.write_str("a chunk of it is damaged"),
            Self::Io(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Fault {}

/// Writes a recording.
pub struct Writer<W> {
    to: W,
    written: u64,
}

impl<W: Write> Writer<W> {
    /// Begins one.
    pub fn new(mut to: W) -> io::Result<Self> {
        to.write_all(MAGIC)?;
        to.write_all(&VERSION.to_le_bytes())?;
        to.write_all(&[0; 4])?;
        Ok(Self { to, written: 16 })
    }

    fn chunk(&mut self, kind: u32, number: u32, parts: &[&[u8]]) -> io::Result<()> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.to.write_all(&kind.to_le_bytes())?;
        self.to.write_all(&number.to_le_bytes())?;
        self.to.write_all(&(length as u64).to_le_bytes())?;
        self.written += CHUNK_HEAD + length as u64;
        parts.iter().try_for_each(|part| self.to.write_all(part))
    }

    fn json(&mut self, kind: u32, value: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_vec(value)?;
        self.chunk(kind, 0, &[&text])
    }

    /// Writes the head.
    pub fn head(&mut self, head: &Head) -> io::Result<()> {
        self.json(kind::HEAD, head)
    }

    /// Writes records of a CPU, in two parts.
    pub fn records(&mut self, cpu: usize, one: &[u8], two: &[u8]) -> io::Result<()> {
        self.chunk(kind::RECORDS, cpu as u32, &[one, two])
    }

    /// Says that records of all CPUs were taken.
    pub fn round(&mut self) -> io::Result<()> {
        self.chunk(kind::ROUND, 0, &[])
    }

    /// Writes the mappings of a process.
    pub fn maps(&mut self, pid: u32, text: &[u8]) -> io::Result<()> {
        self.chunk(kind::MAPS, pid, &[text])
    }

    /// Writes the functions of a process.
    pub fn names(&mut self, pid: u32, text: &[u8]) -> io::Result<()> {
        self.chunk(kind::NAMES, pid, &[text])
    }

    /// Writes the threads of a process.
    pub fn threads(&mut self, pid: u32, text: &[u8]) -> io::Result<()> {
        self.chunk(kind::THREADS, pid, &[text])
    }

    /// Writes what faultless counted.
    pub fn counted(&mut self, counted: &Counted) -> io::Result<()> {
        self.json(kind::COUNTED, counted)
    }

    /// Writes the end.
    pub fn end(&mut self, end: &End) -> io::Result<()> {
        self.json(kind::END, end)?;
        self.to.flush()
    }

    /// Bytes so far.
    pub fn written(&self) -> u64 {
        self.written
    }
}

/// Reads a recording.
pub struct Reader<R> {
    from: R,
    is_over: bool,
    is_cut: bool,
}

impl<R: Read> Reader<R> {
    /// Begins with its first bytes.
    pub fn new(mut from: R) -> Result<Self, Fault> {
        let mut head = [0; 16];
        match fill(&mut from, &mut head)? {
            16 if head.starts_with(MAGIC) => {}
            got if got >= 1 && MAGIC.starts_with(&head[..got.min(8)]) => return Err(Fault::Cut),
            _ => return Err(Fault::Foreign),
        }
        match u32::from_le_bytes([head[8], head[9], head[10], head[11]]) {
            VERSION => Ok(Self { from, is_over: false, is_cut: false }),
            version => Err(Fault::Version(version)),
        }
    }

    /// The next chunk; none at the end. After an error there is no other one.
    pub fn chunk(&mut self) -> Result<Option<Chunk>, Fault> {
        if self.is_over {
            return Ok(None);
        }
        if self.is_cut {
            self.is_over = true;
            return Err(Fault::Cut);
        }
        let read = self.read();
        self.is_over = !matches!(read, Ok(Some(_)));
        read
    }

    fn read(&mut self) -> Result<Option<Chunk>, Fault> {
        let mut head = [0; 16];
        match fill(&mut self.from, &mut head)? {
            0 => return Ok(None),
            16 => {}
            _ => return Err(Fault::Cut),
        }
        let [kind, number] = [0, 4].map(|at| u32::from_le_bytes(head[at..at + 4].try_into().unwrap_or_default()));
        let length = u64::from_le_bytes(head[8..].try_into().unwrap_or_default());
        if length > MOST {
            return Err(Fault::Broken);
        }
        let mut body = Vec::new();
        // No more memory than there are bytes: the length may be wrong.
        (&mut self.from).take(length).read_to_end(&mut body).map_err(Fault::Io)?;
        if (body.len() as u64) < length {
            // Of records, those before the cut are good.
            self.is_cut = true;
            return if kind == kind::RECORDS { Ok(Some(Chunk::Records(body))) } else { Err(Fault::Cut) };
        }
        let text = |body: Vec<u8>| String::from_utf8_lossy(&body).into_owned();
        Ok(Some(match kind {
            kind::HEAD => Chunk::Head(serde_json::from_slice(&body).map_err(|_| Fault::Broken)?),
            kind::RECORDS => Chunk::Records(body),
            kind::ROUND => Chunk::Round,
            kind::MAPS => Chunk::Maps(number, text(body)),
            kind::NAMES => Chunk::Names(number, text(body)),
            kind::THREADS => Chunk::Threads(number, text(body)),
            kind::COUNTED => Chunk::Counted(serde_json::from_slice(&body).map_err(|_| Fault::Broken)?),
            kind::END => Chunk::End(serde_json::from_slice(&body).map_err(|_| Fault::Broken)?),
            _ => Chunk::Other,
        }))
    }
}

/// Reads as many bytes as there are.
fn fill(from: &mut impl Read, to: &mut [u8]) -> Result<usize, Fault> {
    let mut got = 0;
    while got < to.len() {
        match from.read(&mut to[got..]) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Fault::Io(error)),
        }
    }
    Ok(got)
}
