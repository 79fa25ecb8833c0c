//! Counters: declared once, here, with unit and meaning.
//!
//! A [`Block`] of counters lies on the process's shared page; each shard of the arena has its own, so that an
//! increment is a relaxed add to a line that few threads share. Readers add the blocks up.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $variant:ident, $name:literal, $unit:literal;)+) => {
        /// What is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Counter { $($(#[doc = $doc])+ $variant,)+ }

        /// Every counter: its name, its unit and its meaning, in the order of [`Counter`].
        pub const COUNTERS: &[Declared] = &[
            $(Declared { name: $name, unit: $unit, meaning: concat!($($doc),+) },)+
        ];
    };
}

/// How a counter shows itself.
#[derive(Clone, Copy, Debug)]
pub struct Declared {
    /// Its name, in the style of /proc/vmstat.
    pub name: &'static str,
    /// Its unit: `calls`, `bytes`, `ns`.
    pub unit: &'static str,
    /// What it counts.
    pub meaning: &'static str,
}

counters! {
    /// Mappings of the program that got memory of the arena.
    MmapServed, "mmap_served", "calls";
    /// Bytes of those mappings.
    MmapBytes, "mmap_bytes", "bytes";
    /// Large blocks of malloc and its family that got memory of the arena.
    MallocServed, "malloc_served", "calls";
    /// Bytes of those blocks.
    MallocBytes, "malloc_bytes", "bytes";
    /// Blocks resized where they stood.
    ReallocInPlace, "realloc_in_place", "calls";
    /// Blocks and mappings resized by moving page tables.
    ReallocMoved, "realloc_moved", "calls";
    /// Handed out from memory that was zero already.
    BytesZeroed, "bytes_zeroed", "bytes";
    /// Handed out as it was, because nobody asked for zeroes.
    BytesUnzeroed, "bytes_unzeroed", "bytes";
    /// Handed out after zeroing it in the program's own thread.
    BytesHotZeroed, "bytes_hot_zeroed", "bytes";
    /// Handed out without memory behind, for the kernel to fill at the first touch, with huge pages advised.
    BytesFreshHuge, "bytes_fresh_huge", "bytes";
    /// Handed out without memory behind and without advice.
    BytesFreshSmall, "bytes_fresh_small", "bytes";
    /// First touched in the background, ahead of the program, in memory it already had.
    BytesTouchedLent, "bytes_touched_lent", "bytes";
    /// First touched in the background, in memory kept ready for the program.
    BytesTouchedAhead, "bytes_touched_ahead", "bytes";
    /// Zeroed in the background.
    BytesScrubbed, "bytes_scrubbed", "bytes";
    /// Time of that zeroing.
    ScrubNs, "scrub_ns", "ns";
    /// Time of zeroing in the program's threads.
    HotZeroNs, "hot_zero_ns", "ns";
    /// Time of touching in the background.
    TouchNs, "touch_ns", "ns";
    /// Free memory kept for the program when it gave it back.
    BytesKept, "bytes_kept", "bytes";
    /// Memory returned to the kernel because keeping it would exceed the peak rule.
    BytesOverBudget, "bytes_over_budget", "bytes";
    /// Memory returned to the kernel because it was not wanted for a while.
    BytesDecayed, "bytes_decayed", "bytes";
    /// Memory returned to the kernel under memory pressure.
    BytesPressed, "bytes_pressed", "bytes";
    /// Memory returned to the kernel because the program had changed its attributes.
    BytesTainted, "bytes_tainted", "bytes";
    /// Memory returned to the kernel because a fork had shared it.
    BytesForked, "bytes_forked", "bytes";
    /// Huge pages advised in mappings that stay with the kernel.
    BytesAdvised, "bytes_advised", "bytes";
    /// Forks seen.
    Forks, "forks", "calls";
    /// Times the background thread was started.
    WorkerStarts, "worker_starts", "calls";
    /// Times the background work rested because it had been preempted.
    WorkerRests, "worker_rests", "calls";
    /// Requests left to the kernel or the C library: smaller than the threshold of mmap.
    KernelSmall, "kernel_small", "calls";
    /// The same: file, shared, stack, locked, fixed or other mappings that the arena does not serve.
    KernelFlags, "kernel_flags", "calls";
    /// The same: not readable and writable.
    KernelProt, "kernel_prot", "calls";
    /// The same: no room in the arena.
    KernelNoSpace, "kernel_no_space", "calls";
    /// The same: the process limits its address space, or locks all memory.
    KernelLimited, "kernel_limited", "calls";
    /// The same: rounding up would waste more than the budget allows.
    KernelWaste, "kernel_waste", "calls";
    /// The same: called while already inside the engine, as from a signal handler.
    KernelNested, "kernel_nested", "calls";
    /// The same: the kernel refused to open or to move the memory.
    KernelRefused, "kernel_refused", "calls";
}

/// How many counters there are.
pub const COUNT: usize = COUNTERS.len();

/// One set of counters, on cache lines of its own.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Block {
    values: [AtomicU64; COUNT],
}

impl Block {
    /// A set of zeroes.
    pub const fn new() -> Self {
        Self { values: [const { AtomicU64::new(0) }; COUNT] }
    }

    /// Adds `n` to a counter.
    #[inline]
    pub fn add(&self, counter: Counter, n: u64) {
        self.values[counter as usize].fetch_add(n, Ordering::Relaxed);
    }

    /// A counter's value.
    pub fn get(&self, counter: usize) -> u64 {
        self.values[counter].load(Ordering::Relaxed)
    }
}

impl Default for Block {
    fn default() -> Self {
        Self::new()
    }
}

/// First bytes of a counters page.
pub const MAGIC: u64 = u64::from_le_bytes(*b"fltless1");
/// Version of the layout of [`Page`] and of the list [`COUNTERS`].
pub const VERSION: u32 = 1;
/// Blocks of counters on a page: one for each shard that an arena can have.
pub const BLOCKS: usize = 8;

/// The page that a process shares with those who watch it: a header of 64 bytes, then [`BLOCKS`] blocks of
/// [`COUNT`] counters, each on a multiple of 64 bytes.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Page {
    /// [`MAGIC`] once everything else is filled in.
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// The process.
    pub pid: AtomicU32,
    /// [`COUNT`].
    pub counters: AtomicU32,
    /// [`BLOCKS`].
    pub blocks: AtomicU32,
    /// The counters.
    pub block: [Block; BLOCKS],
}

impl Page {
    /// A page of zeroes without a process.
    pub const fn new() -> Self {
        Self {
            magic: AtomicU64::new(0),
            version: AtomicU32::new(VERSION),
            pid: AtomicU32::new(0),
            counters: AtomicU32::new(COUNT as u32),
            blocks: AtomicU32::new(BLOCKS as u32),
            block: [const { Block::new() }; BLOCKS],
        }
    }

    /// A counter, over all blocks.
    pub fn sum(&self, counter: Counter) -> u64 {
        self.block.iter().map(|block| block.get(counter as usize)).sum()
    }

    /// Fills in the header for process `pid`.
    pub fn start(&self, pid: u32) {
        self.version.store(VERSION, Ordering::Relaxed);
        self.pid.store(pid, Ordering::Relaxed);
        self.counters.store(COUNT as u32, Ordering::Relaxed);
        self.blocks.store(BLOCKS as u32, Ordering::Relaxed);
        self.magic.store(MAGIC, Ordering::Release);
    }
}

impl Default for Page {
    fn default() -> Self {
        Self::new()
    }
}
