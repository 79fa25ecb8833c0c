//! Events of page faults (`perf_event_open`).
//!
//! An [`Event`] counts exactly, and besides writes a record of every n-th fault to a ring. One is opened for each
//! CPU and [`What`]. With `inherit` it counts the children of its thread as well; their records go to its ring, and
//! their counts into its count.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// Faults as they begin: with the call stack. Also tells of mappings, processes and threads.
    Begin,
    /// Faults as they end that needed no input: all of them, but not all the time.
    #[serde(alias = "window")]
    Minor,
    /// Faults as they end that waited for input.
    Major,
}

impl What {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Begin, Self::Minor, Self::Major];

    fn number(self) -> u64 {
        match self {
            Self::Begin => 2,
            Self::Minor => 5,
            Self::Major => 6,
        }
    }
}

/// Whose faults.
#[derive(Clone, Copy, Debug)]
pub enum Whose {
    /// Those of children of this thread, from when they execute a program. This thread's own do not count.
    Children,
    /// Those of this thread or process from now on, once it is switched on, and of what it starts.
    Thread(i32),
}

/// How faults are sampled.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// One fault in this many has a record.
    pub period: u64,
    /// Whether faults in system calls count too (copies to and from untouched memory).
    pub kernel: bool,
    /// Whether records of beginnings have call stacks.
    pub stacks: bool,
    /// Whether they have the stack's memory too.
    pub memory: bool,
}

impl Sampling {
    /// One in this many of these has a record. Ends belong to beginnings only if all of them have one.
    pub fn of(&self, what: What) -> u64 {
        match what {
            What::Begin => self.period,
            What::Minor | What::Major => 1,
        }
    }

    /// Bytes of the stack's memory in a record of these.
    pub fn memory_of(&self, what: What) -> u32 {
        if what == What::Begin && self.memory { STACK_BYTES } else { 0 }
    }
}

/// `struct perf_event_attr` up to the fields of Linux 5.13.
#[repr(C)]
#[derive(Default)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved_2: u16,
    aux_sample_size: u32,
    reserved_3: u32,
    sig_data: u64,
}

const SOFTWARE: u32 = 1;

/// Bits of `Attr::flags`, by their places in the bit field.
mod flag {
    pub const DISABLED: u64 = 1 << 0;
    pub const INHERIT: u64 = 1 << 1;
    pub const EXCLUDE_KERNEL: u64 = 1 << 5;
    pub const EXCLUDE_HV: u64 = 1 << 6;
    pub const MMAP: u64 = 1 << 8;
    pub const COMM: u64 = 1 << 9;
    pub const ENABLE_ON_EXEC: u64 = 1 << 12;
    pub const TASK: u64 = 1 << 13;
    pub const WATERMARK: u64 = 1 << 14;
    pub const MMAP_DATA: u64 = 1 << 17;
    pub const SAMPLE_ID_ALL: u64 = 1 << 18;
    pub const EXCLUDE_CALLCHAIN_KERNEL: u64 = 1 << 21;
    pub const MMAP2: u64 = 1 << 23;
    pub const COMM_EXEC: u64 = 1 << 24;
    pub const USE_CLOCKID: u64 = 1 << 25;
}

/// Bits of `Attr::sample_type`. The layout of records follows from them: see `crate::wire`. PERIOD is not among them:
/// with it, the kernel writes a record of every event of a software counter, whatever the period.
mod sample {
    pub const IP: u64 = 1 << 0;
    pub const TID: u64 = 1 << 1;
    pub const TIME: u64 = 1 << 2;
    pub const ADDR: u64 = 1 << 3;
    pub const CALLCHAIN: u64 = 1 << 5;
    pub const STACK_USER: u64 = 1 << 13;
    pub const IDENTIFIER: u64 = 1 << 16;
    pub const DATA_PAGE_SIZE: u64 = 1 << 22;
}

/// Requests of `ioctl`.
mod request {
    pub const ENABLE: libc::c_ulong = 0x2400;
    pub const DISABLE: libc::c_ulong = 0x2401;
    pub const SET_OUTPUT: libc::c_ulong = 0x2405;
    pub const ID: libc::c_ulong = 0x8008_2407;
}

/// Frames of a call stack at most.
const MOST_FRAMES: u16 = 64;
/// Bytes of a stack's memory in a record: some twenty calls of an interpreter. More would fill the ring too fast.
const STACK_BYTES: u32 = 8 << 10;

/// One that is open.
#[derive(Debug)]
pub struct Event {
    file: File,
    /// The number that its records have.
    pub id: u64,
}

impl Event {
    /// Opens one on `cpu`. A ring of it wakes its reader once it holds `wake` bytes.
    pub fn open(what: What, whose: Whose, cpu: usize, sampling: Sampling, wake: usize) -> io::Result<Self> {
        let mut flags = flag::DISABLED
            | flag::INHERIT
            | flag::EXCLUDE_HV
            | flag::WATERMARK
            | flag::SAMPLE_ID_ALL
            | flag::EXCLUDE_CALLCHAIN_KERNEL
            | flag::USE_CLOCKID;
        if !sampling.kernel {
            flags |= flag::EXCLUDE_KERNEL;
        }
        let mut sample_type =
            sample::IDENTIFIER | sample::IP | sample::TID | sample::TIME | sample::ADDR | sample::DATA_PAGE_SIZE;
        if what == What::Begin {
            flags |= flag::MMAP | flag::MMAP_DATA | flag::MMAP2 | flag::COMM | flag::COMM_EXEC | flag::TASK;
            if sampling.stacks {
                sample_type |= sample::CALLCHAIN;
            }
            if sampling.memory {
                sample_type |= sample::STACK_USER;
            }
        }
        let pid = match whose {
            Whose::Children => {
                flags |= flag::ENABLE_ON_EXEC;
                0
            }
            Whose::Thread(tid) => tid,
        };
        let attr = Attr {
            kind: SOFTWARE,
            size: size_of::<Attr>() as u32,
            config: what.number(),
            period: sampling.of(what),
            sample_type,
            flags,
            sample_stack_user: sampling.memory_of(what),
            wakeup: wake as u32,
            clockid: libc::CLOCK_MONOTONIC,
            sample_max_stack: if what == What::Begin && sampling.stacks { MOST_FRAMES } else { 0 },
            ..Attr::default()
        };
        const CLOEXEC: libc::c_ulong = 8;
        // SAFETY: the structure is valid and says its own size; the call gives a new descriptor or an error.
        let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &attr, pid, cpu as i32, -1, CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that is this process's, and has no other owner.
        let file = unsafe { File::from_raw_fd(fd as i32) };
        let mut id = 0u64;
        // SAFETY: the request writes 8 bytes to its argument.
        if unsafe { libc::ioctl(fd as i32, request::ID, &mut id) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { file, id })
    }

    /// Has its records written to the ring of `other`, which is on the same CPU.
    pub fn write_to(&self, other: &Self) -> io::Result<()> {
        self.ask(request::SET_OUTPUT, other.fd() as libc::c_ulong)
    }

    /// Begins to count, in all that has inherited it too.
    pub fn enable(&self) -> io::Result<()> {
        self.ask(request::ENABLE, 0)
    }

    /// Ends counting.
    pub fn disable(&self) -> io::Result<()> {
        self.ask(request::DISABLE, 0)
    }

    /// What it has counted so far, with what all that inherited it counted.
    pub fn count(&self) -> io::Result<u64> {
        let mut value = [0; 8];
        (&self.file).read_exact(&mut value)?;
        Ok(u64::from_ne_bytes(value))
    }

    /// Its descriptor.
    pub fn fd(&self) -> i32 {
        self.file.as_raw_fd()
    }

    fn ask(&self, request: libc::c_ulong, argument: libc::c_ulong) -> io::Result<()> {
        // SAFETY: these requests take a number, and touch no memory of this process.
        let done = unsafe { libc::ioctl(self.fd(), request, argument) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structure_has_the_layout_of_the_kernel() {
        assert_eq!(size_of::<Attr>(), 128);
        assert_eq!(std::mem::offset_of!(Attr, flags), 40);
        assert_eq!(std::mem::offset_of!(Attr, clockid), 92);
        assert_eq!(std::mem::offset_of!(Attr, sample_max_stack), 108);
    }
}
