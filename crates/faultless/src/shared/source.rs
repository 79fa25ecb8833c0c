//! The backing of a region, and what of it is being read.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use faultless_base::sys::raw;
use faultless_base::sys::user_mmu::{Backing, SwapStore};

use crate::process::masked::Unblocked;
use crate::shared::swap::Store;

/// Reads at a time that are noted: more than there are buffers.
const MOST: usize = 32;

/// How often a read that a signal has interrupted is done again. One that says so for ever fails.
const INTERRUPTIONS: usize = 1000;

/// A read that is under way.
#[derive(Default)]
struct Reading {
    /// Since when, in ns; 0: there is none.
    since: AtomicU64,
    offset: AtomicU64,
    /// By which thread.
    thread: AtomicI32,
}

/// The backing, which notes what it is doing.
pub struct Source {
    backing: Option<Box<dyn Backing>>,
    /// Where its pages go that are above its budget.
    store: Option<Store>,
    reads: [Reading; MOST],
}

impl Source {
    pub fn new(backing: Option<Box<dyn Backing>>, store: Option<Store>) -> Self {
        Self { backing, store, reads: Default::default() }
    }

    /// Whether there is one.
    pub fn is_some(&self) -> bool {
        self.backing.is_some()
    }

    /// Whether its pages go to a file of this library's.
    pub fn has_own_file(&self) -> bool {
        matches!(self.store, Some(Store::File(_)))
    }

    /// What is being read: since when, in ns, and where.
    pub fn reads(&self) -> impl Iterator<Item = (u64, u64)> {
        let read = |reading: &Reading| {
            let since = reading.since.load(Ordering::Acquire);
            (since != 0).then(|| (since, reading.offset.load(Ordering::Relaxed)))
        };
        self.reads.iter().filter_map(read)
    }

    /// Whether this thread is reading it.
    pub fn is_read_here(&self) -> bool {
        let is_under_way = |reading: &&Reading| reading.since.load(Ordering::Acquire) != 0;
        let mut reads = self.reads.iter().filter(is_under_way).peekable();
        self.backing.is_some() && reads.peek().is_some() && {
            let here = this_thread();
            reads.any(|reading| reading.thread.load(Ordering::Relaxed) == here)
        }
    }
}

fn this_thread() -> i32 {
    // SAFETY: a question.
    unsafe { libc::gettid() }
}

impl Backing for Source {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), i32> {
        let Some(backing) = &self.backing else { return Err(libc::EIO) };
        let now = raw::now_ns();
        let take = |reading: &&Reading| {
            reading.since.compare_exchange(0, now, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let noted = self.reads.iter().find(take);
        noted.inspect(|reading| {
            reading.offset.store(offset, Ordering::Relaxed);
            reading.thread.store(this_thread(), Ordering::Relaxed);
        });
        let read = {
            // It may meet faults of other regions, or have handlers of its own for what it does.
            let _unblocked = Unblocked::own();
            let mut read = backing.read(offset, buffer);
            for _ in 0..INTERRUPTIONS {
                if read != Err(libc::EINTR) {
                    break;
                }
                read = backing.read(offset, buffer);
            }
            read
        };
        noted.inspect(|reading| {
            reading.thread.store(0, Ordering::Relaxed);
            reading.since.store(0, Ordering::Release);
        });
        read
    }

    fn is_read_at_any_time(&self) -> bool {
        self.backing.as_ref().is_none_or(|backing| backing.is_read_at_any_time())
    }
}

impl SwapStore for Source {
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), i32> {
        self.store.as_ref().ok_or(libc::ENOSYS)?.write(offset, bytes)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), i32> {
        self.store.as_ref().ok_or(libc::ENOSYS)?.read(offset, buffer)
    }

    fn forget(&self, offset: u64, bytes: u64) {
        self.store.iter().for_each(|store| store.forget(offset, bytes));
    }
}
