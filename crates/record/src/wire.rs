//! Records as the kernel writes them, read.
//!
//! Each begins with its type, flags and size, as numbers of 4, 2 and 2 bytes; numbers are little-endian. What stands in
//! a record follows from what `sys::event` asks for:
//!
//! | record | fields after the head |
//! |---|---|
//! | sample | event, ip, pid and tid, time, address, for [`What::Begin`] the call stack and, if asked for, the stack's memory, size of the page there |
//! | all others | their own, then pid and tid, time, event |
//!
//! Bytes that are no record end the row: [`Records`] says so by an error, and never panics.

use std::collections::HashSet;

use crate::sys::event::What;

/// An event of which records tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Source {
    /// The number in its records.
    pub id: u64,
    /// What it counts.
    pub what: What,
    /// One in this many of its faults has a record.
    pub period: u64,
    /// Whether there are call stacks.
    pub stacks: bool,
    /// Whether there is the stack's memory.
    #[serde(default)]
    pub memory: bool,
}

/// A fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Where it comes from.
    pub what: What,
    /// The instruction.
    pub ip: u64,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Nanoseconds.
    pub time: u64,
    /// The address that was touched.
    pub address: u64,
    /// How many faults it stands for.
    pub period: u64,
    /// Addresses of the calls that led here, the innermost first; without marks of the kernel's.
    pub stack: Vec<u64>,
    /// The stack's memory from its top on, in numbers; empty: not recorded.
    pub memory: Vec<u64>,
    /// Bytes of the page that is mapped at the address; 0: none.
    pub page: u64,
}

/// A mapping that was made, or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The process.
    pub pid: u32,
    /// Where it begins.
    pub start: u64,
    /// Bytes.
    pub bytes: u64,
    /// Where it begins in its file.
    pub offset: u64,
    /// The file's number; 0: no file.
    pub inode: u64,
    /// `PROT_…`.
    pub access: u32,
    /// `MAP_…`.
    pub flags: u32,
    /// The file's path, or what the kernel calls it: `//anon`, `[heap]`.
    pub name: String,
}

/// What a record tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// A fault.
    Sample(Sample),
    /// A mapping.
    Mapping(Mapping),
    /// A thread has this name now.
    Name {
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
        /// Its name.
        name: String,
        /// Whether it is that of a program that begins here.
        exec: bool,
    },
    /// A thread begins.
    Fork {
        /// Its process.
        pid: u32,
        /// It.
        tid: u32,
        /// The process that it comes from.
        parent: u32,
        /// The thread that it comes from.
        parent_tid: u32,
    },
    /// A thread ends.
    Exit {
        /// Its process.
        pid: u32,
        /// It.
        tid: u32,
    },
    /// How many records were dropped.
    Lost(u64),
    /// Something else.
    Other,
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Nanoseconds.
    pub time: u64,
    /// What it tells.
    pub told: Told,
}

/// Numbers of types, from the kernel's `perf_event_type`.
pub mod kind {
    /// Records were dropped.
    pub const LOST: u32 = 2;
    /// A name.
    pub const COMM: u32 = 3;
    /// An end.
    pub const EXIT: u32 = 4;
    /// A beginning.
    pub const FORK: u32 = 7;
    /// A fault.
    pub const SAMPLE: u32 = 9;
    /// A mapping.
    pub const MMAP2: u32 = 10;
}

/// The flag of a name that an exec gives.
pub const COMM_EXEC: u16 = 1 << 13;
/// Bytes of a record's head.
pub const HEAD: usize = 8;
/// Bytes at the end of each record that is no sample: pid, tid, time, event.
const TRAILER: usize = 24;
/// Numbers from here on are marks in a call stack, not addresses.
const MARKS: u64 = -4095i64 as u64;
/// The longest name that is read.
const MOST_NAME: usize = 4096;

/// The bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// Bytes, taken from the front.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Broken> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Broken)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u32(&mut self) -> Result<u32, Broken> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Broken> {
        self.take().map(u64::from_le_bytes)
    }

    /// The memory of a stack: the size of its field, the field, and how much of it is filled.
    fn memory(&mut self) -> Result<Vec<u64>, Broken> {
        let size = self.u64()? as usize;
        if size == 0 {
            return Ok(Vec::new());
        }
        let (field, rest) = self.0.split_at_checked(size).ok_or(Broken)?;
        self.0 = rest;
        let filled = field.get(..self.u64()? as usize).ok_or(Broken)?;
        let (numbers, _) = filled.as_chunks();
        Ok(numbers.iter().map(|number| u64::from_le_bytes(*number)).collect())
    }

    /// Text up to a zero, or to the end.
    fn text(&self) -> String {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len()).min(MOST_NAME);
        String::from_utf8_lossy(&self.0[..end]).into_owned()
    }
}

/// The records in a row of bytes.
pub struct Records<'a> {
    rest: &'a [u8],
    sources: &'a [Source],
}

impl<'a> Records<'a> {
    /// Those in `bytes`, from these events.
    pub fn new(bytes: &'a [u8], sources: &'a [Source]) -> Self {
        Self { rest: bytes, sources }
    }

    fn sample(&self, mut body: Bytes) -> Result<Record, Broken> {
        let id = body.u64()?;
        let source = self.sources.iter().find(|source| source.id == id).ok_or(Broken)?;
        let ip = body.u64()?;
        let (pid, tid) = (body.u32()?, body.u32()?);
        let (time, address) = (body.u64()?, body.u64()?);
        let mut stack = Vec::new();
        if source.stacks {
            let frames = body.u64()?;
            if frames > (body.0.len() / 8) as u64 {
                return Err(Broken);
            }
            stack.reserve_exact(frames as usize);
            for _ in 0..frames {
                let frame = body.u64()?;
                if frame < MARKS {
                    stack.push(frame);
                }
            }
        }
        let memory = if source.memory { body.memory()? } else { Vec::new() };
        let page = body.u64()?;
        let (what, period) = (source.what, source.period);
        Ok(Record {
            time,
            told: Told::Sample(Sample { what, ip, pid, tid, time, address, period, stack, memory, page }),
        })
    }

    fn other(kind: u32, flags: u16, body: &[u8]) -> Result<Record, Broken> {
        let end = body.len().checked_sub(TRAILER).ok_or(Broken)?;
        let (mut body, mut trailer) = (Bytes(&body[..end]), Bytes(&body[end..]));
        trailer.u64()?;
        let time = trailer.u64()?;
        let told = match kind {
            kind::MMAP2 => {
                let pid = body.u32()?;
                body.u32()?;
                let (start, bytes, offset) = (body.u64()?, body.u64()?, body.u64()?);
                body.u64()?;
                let inode = body.u64()?;
                body.u64()?;
                let (access, flags) = (body.u32()?, body.u32()?);
                Told::Mapping(Mapping { pid, start, bytes, offset, inode, access, flags, name: body.text() })
            }
            kind::COMM => {
                let (pid, tid) = (body.u32()?, body.u32()?);
                Told::Name { pid, tid, name: body.text(), exec: flags & COMM_EXEC != 0 }
            }
            kind::FORK | kind::EXIT => {
                let (pid, parent, tid, parent_tid) = (body.u32()?, body.u32()?, body.u32()?, body.u32()?);
                match kind {
                    kind::FORK => Told::Fork { pid, tid, parent, parent_tid },
                    _ => Told::Exit { pid, tid },
                }
            }
            kind::LOST => {
                body.u64()?;
                Told::Lost(body.u64()?)
            }
            _ => Told::Other,
        };
        Ok(Record { time, told })
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Record, Broken>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let Some((kind, flags, body, rest)) = split(self.rest) else {
            self.rest = &[];
            return Some(Err(Broken));
        };
        self.rest = rest;
        let record = if kind == kind::SAMPLE { self.sample(Bytes(body)) } else { Self::other(kind, flags, body) };
        if record.is_err() {
            self.rest = &[];
        }
        Some(record)
    }
}

/// The first record of these bytes: its type, its flags, what follows its head, and what follows it.
fn split(bytes: &[u8]) -> Option<(u32, u16, &[u8], &[u8])> {
    let mut head = Bytes(bytes);
    let kind = head.u32().ok()?;
    let flags = u16::from_le_bytes(head.take().ok()?);
    let size = u16::from_le_bytes(head.take().ok()?) as usize;
    if size < HEAD || size > bytes.len() {
        return None;
    }
    Some((kind, flags, &bytes[HEAD..size], &bytes[size..]))
}

/// How many of these records are of faults: those from the events `ids`, and others.
pub fn faults(mut bytes: &[u8], ids: &HashSet<u64>) -> (u64, u64) {
    let (mut ours, mut others) = (0, 0);
    while let Some((kind, _, body, rest)) = split(bytes) {
        if kind == kind::SAMPLE {
            let is_ours = Bytes(body).u64().is_ok_and(|id| ids.contains(&id));
            *if is_ours { &mut ours } else { &mut others } += 1;
        }
        bytes = rest;
    }
    (ours, others)
}

/// How many records there are in these bytes.
pub fn count(mut bytes: &[u8]) -> u64 {
    let mut records = 0;
    while let Some((.., rest)) = split(bytes) {
        (bytes, records) = (rest, records + 1);
    }
    records
}
