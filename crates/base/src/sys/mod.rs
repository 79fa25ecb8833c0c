//! What the engine asks of an operating system.
//!
//! [`linux::Linux`] is the real thing. The crate `faultless-fake` has a whole address space in ordinary memory. It
//! checks every rule that the kernel would enforce and some that it would not, so that tests see a mistake at once.

use crate::Span;
pub use crate::raw;
use crate::zero::Engine;
use crate::zero::driver::{Cost, Picked, Poll, Processor};

mod area;
pub mod aside;
pub mod begun;
pub mod cgroup;
pub mod confined;
mod cpus;
pub mod descriptor;
pub mod file_memory;
pub mod frames;
mod helper;
pub mod home;
pub mod isolate;
mod job;
mod kept;
pub mod limits;
pub mod linux;
mod looks;
pub mod lost;
pub mod mapped_file;
mod migrate;
pub mod mmu;
pub mod moves;
mod nodes;
pub mod open;
pub mod page_file;
pub mod pagemap;
pub mod placement;
mod policy;
pub mod poll;
pub mod pressure;
pub mod proc_file;
pub mod stack;
pub mod tables;
pub mod thread;
pub mod uffd;
mod unwritten;
mod usage;
pub mod user_mmu;
pub mod warm;

pub use area::FileArea;
pub use looks::copy_past_guards;
pub use usage::Usage;
pub mod watch;

/// Whether the kernel should back a range with huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Huge {
    /// As soon as it is touched (`MADV_HUGEPAGE`).
    Advised,
    /// Never (`MADV_NOHUGEPAGE`).
    Refused,
}

/// What a control group may still take, and those that it is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headroom {
    /// It has no limit.
    Unlimited,
    /// This many bytes of its limit, reclaimable ones included; nothing where the group is too small.
    Left {
        /// Bytes that are left.
        left: usize,
        /// The limit.
        limit: usize,
    },
    /// That cannot be told now.
    Unknown,
}

/// Zeroing in the background, from [`Sys::scrub_start`] to [`Sys::scrub_end`].
#[derive(Debug)]
pub struct Job {
    /// What is zeroed.
    pub span: Span,
    /// Whether it has no memory yet: what it takes says nothing about the engine then.
    pub is_hole: bool,
    /// Bytes from its start that are zero by now.
    pub done: usize,
    /// Whether its engine is not used any more, because it was slower than promised.
    pub dropped: bool,
    /// Nanoseconds for which this thread slept because a device had the work.
    pub slept_ns: usize,
    driver: Picked,
    /// When its engine last got on, by the clock that counts for it.
    since_ns: u64,
}

impl Job {
    /// Zeroing that the caller does itself, piece by piece.
    pub fn by_hand(span: Span) -> Self {
        let driver = Picked::Processor(Processor::new(Engine::StringStore, Cost::default()));
        Self { span, is_hole: false, done: 0, dropped: false, slept_ns: 0, driver, since_ns: 0 }
    }

    /// What zeroes it.
    pub fn engine(&self) -> Engine {
        self.driver.engine()
    }
}

/// Signatures in a slot; see [`Sys::sign`].
pub const SIGNATURES: usize = 4;

/// Operations on the address space of this process. All spans are page-aligned and lie in memory that came from
/// [`Sys::reserve`]. That makes them safe to call: no references into it exist elsewhere.
pub trait Sys {
    /// Reserves `bytes` of address space at a multiple of `align`, without access; `None` when refused.
    fn reserve(&self, bytes: usize, align: usize) -> Option<Span>;
    /// The same for memory that no forked child has, at a multiple of a slot, which may be accessed, and has huge pages
    /// advised.
    fn reserve_apart(&self, bytes: usize) -> Option<Span>;
    /// Where the untouched end of a reservation begins. That is behind the last slot into which the program has
    /// mapped something of its own.
    fn unclaimed(&self, rest: Span) -> usize;
    /// Allows reading and writing of a part of the reservation for the first time; whether it worked.
    fn open_first(&self, span: Span) -> bool;
    /// Replaces whatever is mapped there by a fresh mapping, readable and writable. False: at the limit of areas
    /// nothing is sure of what is there, and it must not be handed out.
    fn reset(&self, span: Span) -> bool;
    /// The same where nothing is mapped. False: something is, and stays.
    fn map_again(&self, span: Span) -> bool {
        self.reset(span)
    }
    /// Ends the reservation of a part, with all that is mapped there; whether it worked.
    fn release(&self, span: Span) -> bool;
    /// Gives back what these operations use beside the reservation.
    fn retire(&self);
    /// Gives the memory back to the kernel; the next read finds zeroes. False as for [`reset`](Self::reset).
    fn discard(&self, span: Span) -> bool;
    /// The same for memory that [`reserve_apart`](Self::reserve_apart) gave, which keeps its attributes. False: it may
    /// still have its memory.
    fn discard_apart(&self, span: Span) -> bool;
    /// Advises about huge pages.
    fn huge(&self, span: Span, huge: Huge);
    /// Fills an open span with zeroes that are wanted at once (through the caches).
    fn zero_hot(&self, span: Span);
    /// The most bytes that one job of zeroing in the background takes.
    fn scrub_largest(&self) -> usize;
    /// Starts filling a span with zeroes that are wanted later. One job at a time. `None`: not started; the content is
    /// unknown.
    fn scrub_start(&self, span: Span) -> Option<Job>;
    /// Lets it go on.
    fn scrub_poll(&self, job: &mut Job) -> Poll;
    /// Ends it, finished or not: what [`Job::done`] says is zero, the rest is unknown.
    fn scrub_end(&self, job: Job);
    /// An engine does not work: others are used from now on.
    fn drop_engine(&self, engine: Engine);
    /// Moves the pages of `from` to the equally large span at `to`, replacing what is there, by page tables.
    /// `from` stays mapped and reads as zero. Whether it worked; if not, nothing moved.
    fn migrate(&self, from: Span, to: usize) -> bool;
    /// Moves the pages of `from`, whole huge pages where both sides are such, to where those at `to` are missing. One
    /// of the two is memory of the program. Never replaces a page. Ends where that is not possible: the bytes moved,
    /// whose old place is empty. `None`: this process cannot do that now.
    fn move_pages(&self, from: Span, to: usize) -> Option<usize>;
    /// Whether this thread has what a move takes now. If not, none of its moves works.
    fn may_move(&self) -> bool;
    /// Whether the kernel would drop the content of all of a range of the program's, as far as it says beforehand.
    fn can_drop(&self, span: Span) -> bool;
    /// Drops a slot of the program's if it is all zero; whether that was done. Another thread may write to it
    /// meanwhile: that is not lost. `room`, a slot of the engine's own, is for a look. `None`: the kernel cannot do
    /// that here, or not now: it holds a page itself for a moment, or a device does.
    fn drop_zero(&self, slot: Span, room: Span) -> Option<bool>;
    /// Copies the present pages of a range of the program's to memory of the engine's that is zero elsewhere. False:
    /// some of it is not readable, or swapped out. Works after [`end_looks`](Self::end_looks) too: the caller's range
    /// is not watched yet.
    fn copy_from_program(&self, from: Span, to: usize) -> bool;
    /// Unmaps a range of the program's, but has its memory at another address still, until [`Sys::drop_isolated`].
    /// `None`: nothing has happened. An empty span: it is unmapped, and nothing is left of it.
    fn isolate(&self, span: Span) -> Option<Span>;
    /// Ends that: the rest of the memory goes.
    fn drop_isolated(&self, span: Span);
    /// In a forked child: what belongs to threads or memory of the parent goes.
    fn forked(&self);
    /// Makes the page at `addr` present by an atomic OR of zero, which changes no byte.
    fn touch(&self, addr: usize);
    /// Makes the page at `addr` of the program's present where that may be written to; whether it worked. Never
    /// faults, and does nothing after [`end_looks`](Self::end_looks).
    fn touch_if_open(&self, addr: usize) -> bool;
    /// Fills an open span with a byte pattern that is not zero (debugging aid).
    fn poison(&self, span: Span);
    /// The first address of an open span that does not hold zero.
    fn first_nonzero(&self, span: Span) -> Option<usize>;
    /// Of the pages of an open span, looks at `samples` evenly spread ones, and counts those that hold a byte
    /// other than zero.
    fn nonzero_pages(&self, span: Span, samples: usize) -> usize;
    /// The same for memory of at most a slot that is the program's, which may unmap, close or watch it: a look
    /// changes nothing. Pages that are missing or cannot be read count as zero; so do all pages after
    /// [`end_looks`](Self::end_looks).
    fn peek_nonzero_pages(&self, span: Span, samples: usize) -> usize;
    /// Writes signatures into a few pages of an open span whose content means nothing. These are words that depend on
    /// their address: they show later how much of the span was written to.
    fn sign(&self, slot: Span);
    /// Of [`SIGNATURES`] in a slot that was signed, how many were overwritten.
    fn overwritten(&self, slot: Span) -> usize;
    /// The same for memory that is the program's: signatures that are missing or cannot be read count as overwritten;
    /// none do after [`end_looks`](Self::end_looks).
    fn peek_overwritten(&self, slot: Span) -> usize;
    /// The program is about to watch memory: no look at it is under way when this returns, nor a touch, and none
    /// begins.
    fn end_looks(&self);
    /// The addresses around `addr` whose attributes are the same to the kernel, whatever these are; empty where
    /// nothing is mapped, or where it does not say now. `None`: it never says.
    fn area(&self, addr: usize) -> Option<Span>;
    /// Whether the page at `addr` is present in memory.
    fn present(&self, addr: usize) -> bool;
    /// Whether the page at `addr` is mapped, but not present in memory.
    fn missing(&self, addr: usize) -> bool;
    /// How many pages of a slot are present in memory.
    fn present_pages(&self, slot: Span) -> usize;
    /// Whether the machine, or what this process may use of it, is short of memory.
    fn is_short_of_memory(&self) -> bool;
    /// Bytes that this process has in memory; `None` where the kernel does not say.
    fn resident_bytes(&self) -> Option<usize>;
    /// What the control group may still take.
    fn headroom(&self) -> Headroom;
    /// Nanoseconds of a clock that never goes back.
    fn now_ns(&self) -> u64;
    /// Nanoseconds for which this thread had a processor.
    fn thread_ns(&self) -> u64;
    /// Nanoseconds for which threads of this process had a processor, all together.
    fn process_ns(&self) -> u64;
    /// The load average of the last minute, rounded down.
    fn load(&self) -> u64;
    /// Whether this process may have memory of several nodes (NUMA).
    fn has_nodes(&self) -> bool {
        false
    }
    /// The node of a processor.
    fn node_of_cpu(&self, _cpu: usize) -> usize {
        0
    }
    /// The node that new memory of the calling thread comes from; `None` where it has a policy of its own.
    fn home(&self) -> Option<usize> {
        Some(0)
    }
    /// Has new memory of the calling thread, which has no policy, come from this node where that has some; `None`: from
    /// where the thread runs.
    fn prefer_node(&self, _node: Option<usize>) {}
    /// Whether the program gave a policy to the memory at `addr`, or to this thread's.
    fn has_policy(&self, _addr: usize) -> bool {
        false
    }
    /// The node on which all of a slot lies, as far as three looks tell.
    fn node_of(&self, _slot: Span) -> Option<usize> {
        Some(0)
    }
    /// Tells the warm reserve, if there is one, that the program has taken that many bytes of new memory, or is about
    /// to.
    fn announce(&self, _bytes: usize) {}
    /// What the kernel counts of this process; `None` where it does not say.
    fn usage(&self) -> Option<Usage> {
        None
    }
    /// The area of an address where a file is mapped that is not written to by it; see [`area`](Self::area).
    fn file_area(&self, _addr: usize) -> Option<FileArea> {
        None
    }
    /// The first runs of pages of a range of the program's that are in its page tables, into `runs`; how many, and up
    /// to where this looked. `None`: that cannot be told.
    fn present_runs(&self, _span: Span, _runs: &mut [Span]) -> Option<(usize, usize)> {
        None
    }
    /// Bytes that one call of [`read_ahead`](Self::read_ahead) may ask for of a file on this device, 0 if it is not to
    /// be used there.
    fn read_ahead_bytes(&self, _device: (u32, u32)) -> usize {
        0
    }
    /// Has the kernel begin to read what is mapped there. Changes no byte, and no page table.
    fn read_ahead(&self, _span: Span) {}
    /// The most bytes of files that may be asked for ahead of the program now; 0 where memory is short.
    fn read_ahead_room(&self) -> usize {
        0
    }
    /// Keeps this thread off a processor, on the most idle of the others, or lets it run on all that the process may
    /// use. Best effort.
    fn avoid_cpu(&self, cpu: Option<usize>);
    /// Spends a moment waiting for another thread, the longer the higher `turn`.
    fn relax(&self, turn: u32);
}
