//! Counters: declared once, here, with unit and meaning.
//!
//! A line names the counter, its name in the style of /proc/vmstat and its unit. If Linux counts the like, its name
//! for that follows, in brackets. A counter that is shown only when asked for has `detail`.
//!
//! A [`Block`] of counters lies on the process's shared page. Each shard of the arena has its own. So an increment is
//! a relaxed add to a line that few threads share; where the shard is locked anyway, it is no more than a store.
//! Readers add the blocks up.

use core::sync::atomic::{AtomicU64, Ordering};

use faultless_base::zero::Engine;
use faultless_base::{PAGE, SLOT};

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $variant:ident, $name:literal, $unit:ident $(($linux:literal))? $(, $part:ident)?;)+) => {
        /// What is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Counter { $($(#[doc = $doc])+ $variant,)+ }

        impl Counter {
            /// All of them, in their order.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];
        }

        /// Every counter: its name, its unit and its meaning, in the order of [`Counter`].
        pub const COUNTERS: &[Declared] = &[
            $(Declared {
                name: $name,
                unit: Unit::$unit,
                meaning: concat!($($doc),+),
                linux: concat!($($linux)?),
                is_detail: counters!(@detail $($part)?),
            },)+
        ];
    };
    (@detail) => { false };
    (@detail detail) => { true };
}

/// What a counter's number is a number of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Calls, or other events.
    Calls,
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Ns,
}

impl Unit {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Bytes => "bytes",
            Self::Ns => "ns",
        }
    }
}

/// How a counter shows itself.
#[derive(Clone, Copy, Debug)]
pub struct Declared {
    /// Its name, in the style of /proc/vmstat.
    pub name: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// What it counts.
    pub meaning: &'static str,
    /// Where Linux counts the like; empty if it does not.
    pub linux: &'static str,
    /// Whether it is shown only when it is named.
    pub is_detail: bool,
}

counters! {
    /// Mappings of the program that got memory of the arena.
    MmapServed, "mmap_served", Calls;
    /// Bytes of those mappings.
    MmapBytes, "mmap_bytes", Bytes;
    /// Large blocks of malloc and its family that got memory of the arena.
    MallocServed, "malloc_served", Calls;
    /// Bytes of those blocks.
    MallocBytes, "malloc_bytes", Bytes;
    /// Blocks and memory that came back while the lock for them was not to be had, and were taken in later.
    BackLater, "back_later", Calls, detail;
    /// Blocks resized where they stood.
    ReallocInPlace, "realloc_in_place", Calls;
    /// Blocks and mappings resized by moving page tables.
    ReallocMoved, "realloc_moved", Calls;
    /// Handed out from memory that was zero already.
    BytesZeroed, "bytes_zeroed", Bytes;
    /// Handed out with its old bytes, because the request was not for zeroes.
    BytesUnzeroed, "bytes_unzeroed", Bytes;
    /// Handed out after zeroing it in the program's own thread.
    BytesHotZeroed, "bytes_hot_zeroed", Bytes;
    /// Handed out without memory behind, for the kernel to fill at the first touch, with huge pages advised.
    BytesFreshHuge, "bytes_fresh_huge", Bytes ("thp_fault_alloc");
    /// Handed out without memory behind and without advice.
    BytesFreshSmall, "bytes_fresh_small", Bytes ("pgfault");
    /// First touched ahead of the program, in memory it already had or was about to get.
    BytesTouchedLent, "bytes_touched_lent", Bytes;
    /// First touched in the background, in memory kept ready for the program.
    BytesTouchedAhead, "bytes_touched_ahead", Bytes;
    /// Zeroed in the background.
    BytesScrubbed, "bytes_scrubbed", Bytes;
    /// Processor time that zeroing in the background took.
    ScrubNs, "scrub_ns", Ns;
    /// Times the scrubber began to zero.
    ScrubWakeups, "scrub_wakeups", Calls;
    /// Blocks zeroed in the background, each by one order.
    ScrubBlocks, "scrub_blocks", Calls;
    /// Blocks zeroed only in part, because a request wanted them meanwhile.
    ScrubRecalls, "scrub_recalls", Calls, detail;
    /// Zeroed in the background, and then not used for a request for zeroes.
    BytesZeroedUnused, "bytes_zeroed_unused", Bytes;
    /// Requests for zeroes that were served from memory that was zero already.
    ZeroHits, "zero_hits", Calls;
    /// Requests for zeroes for which some memory was zeroed first.
    ZeroHot, "zero_hot", Calls;
    /// Requests for zeroes that got some memory that the kernel zeroes at its first touch.
    ZeroMisses, "zero_misses", Calls;
    /// Zeroed, beforehand or at the hand-out, for mappings.
    ZeroedForMap, "zeroed_for_map", Bytes;
    /// The same for blocks of calloc.
    ZeroedForCalloc, "zeroed_for_calloc", Bytes;
    /// The same for blocks that need no zeroes: never.
    ZeroedForMalloc, "zeroed_for_malloc", Bytes, detail;
    /// Zeroed beforehand and handed to blocks that need no zeroes, because no other memory was free.
    ZeroedInstead, "zeroed_instead", Bytes;
    /// Zeroed, beforehand or at the hand-out, for the targets of moves and copies: never.
    ZeroedForCopy, "zeroed_for_copy", Bytes, detail;
    /// The same for the bytes of a file, or of a cache: never.
    ZeroedForFile, "zeroed_for_file", Bytes, detail;
    /// Zeroed in the background by the string store.
    ScrubbedString, "scrubbed_string", Bytes, detail;
    /// The same by memset.
    ScrubbedMemset, "scrubbed_memset", Bytes, detail;
    /// The same by stores of 16 bytes past the caches.
    ScrubbedSse2, "scrubbed_sse2", Bytes, detail;
    /// The same by stores of 32 bytes.
    ScrubbedAvx2, "scrubbed_avx2", Bytes, detail;
    /// The same by stores of 64 bytes.
    ScrubbedAvx512, "scrubbed_avx512", Bytes, detail;
    /// The same by clzero.
    ScrubbedClzero, "scrubbed_clzero", Bytes, detail;
    /// The same by the kernel.
    ScrubbedKernel, "scrubbed_kernel", Bytes, detail;
    /// The same by Intel's Data Streaming Accelerator.
    ScrubbedDsa, "scrubbed_dsa", Bytes, detail;
    /// Zeroing engines that are not used any more, because they failed or were slower than promised.
    EnginesDropped, "engines_dropped", Calls, detail;
    /// Of these, those that said that they failed.
    EnginesFailed, "engines_failed", Calls, detail;
    /// Those that did not get on.
    EnginesHung, "engines_hung", Calls, detail;
    /// Those that were slower than promised.
    EnginesSlow, "engines_slow", Calls, detail;
    /// Of the engines not used any more: the string store.
    DroppedString, "dropped_string", Calls, detail;
    /// The same: memset.
    DroppedMemset, "dropped_memset", Calls, detail;
    /// The same: stores of 16 bytes past the caches.
    DroppedSse2, "dropped_sse2", Calls, detail;
    /// The same: stores of 32 bytes.
    DroppedAvx2, "dropped_avx2", Calls, detail;
    /// The same: stores of 64 bytes.
    DroppedAvx512, "dropped_avx512", Calls, detail;
    /// The same: clzero.
    DroppedClzero, "dropped_clzero", Calls, detail;
    /// The same: the kernel.
    DroppedKernel, "dropped_kernel", Calls, detail;
    /// The same: Intel's Data Streaming Accelerator.
    DroppedDsa, "dropped_dsa", Calls, detail;
    /// Time of zeroing in the program's threads.
    HotZeroNs, "hot_zero_ns", Ns;
    /// Time of touching in the background.
    TouchNs, "touch_ns", Ns;
    /// Free memory kept for the program when it gave it back.
    BytesKept, "bytes_kept", Bytes;
    /// Memory returned to the kernel because keeping it would exceed the peak rule.
    BytesOverBudget, "bytes_over_budget", Bytes;
    /// Memory returned to the kernel because it was not wanted for a while.
    BytesDecayed, "bytes_decayed", Bytes;
    /// Memory returned to the kernel under memory pressure.
    BytesPressed, "bytes_pressed", Bytes;
    /// Memory returned to the kernel because the program had changed its attributes, or the kernel did not show that it had not.
    BytesTainted, "bytes_tainted", Bytes;
    /// Memory returned to the kernel because a fork had shared it.
    BytesForked, "bytes_forked", Bytes;
    /// Dropped by the program (MADV_DONTNEED) and zeroed where it stood, because it is soon used again.
    BytesRecycled, "bytes_recycled", Bytes;
    /// Huge pages advised in mappings that stay with the kernel.
    BytesAdvised, "bytes_advised", Bytes;
    /// Moved by page tables, not by copies: to a mapping when it is made or ahead of the program, and within the arena, to join idle
    /// memory for a block.
    BytesMoved, "bytes_moved", Bytes;
    /// The part of `bytes_moved` that are zeroes moved to the program's own addresses ahead of it.
    BytesMovedAhead, "bytes_moved_ahead", Bytes;
    /// The part of `bytes_moved_ahead` where the program had not come when that was last looked at.
    BytesMovedUnused, "bytes_moved_unused", Bytes;
    /// Memory touched ahead or moved, and looked at later: when the program dropped it, gave it back or ended, or did not
    /// come for it.
    BytesAheadSeen, "bytes_ahead_seen", Bytes;
    /// The part of `bytes_ahead_seen` that was full of zeroes, by samples: not used, or used for zeroes alone.
    BytesAheadUnused, "bytes_ahead_unused", Bytes;
    /// Windows that memory was moved to.
    MoveWindows, "move_windows", Calls;
    /// Windows for which no memory was ready, so that the kernel served them.
    MoveMisses, "move_misses", Calls;
    /// Processes that may not move pages: userfaultfd is refused, or the kernel too old.
    MovesRefused, "moves_refused", Calls, detail;
    /// Mappings of large files that the background thread looks after.
    MappedFiles, "mapped_files", Calls;
    /// Asked of the kernel ahead of the program in such mappings; read from the file, unless it was in memory.
    BytesReadAhead, "bytes_read_ahead", Bytes;
    /// The part of `bytes_read_ahead` where the program came by.
    BytesReadAheadUsed, "bytes_read_ahead_used", Bytes;
    /// The part of `bytes_read_ahead` where it had not come when the mapping ended or was left alone.
    BytesReadAheadUnused, "bytes_read_ahead_unused", Bytes;
    /// Such mappings left alone: the program gave advice of its own.
    ReadAheadAdvised, "read_ahead_advised", Calls, detail;
    /// The same: the program reads at random.
    ReadAheadRandom, "read_ahead_random", Calls, detail;
    /// The same: too much of what was asked for was left behind.
    ReadAheadWasted, "read_ahead_wasted", Calls, detail;
    /// The same: memory is short.
    ReadAheadPressed, "read_ahead_pressed", Calls, detail;
    /// The same: no file system of a local disk, or the kernel does not say what is mapped.
    ReadAheadRefused, "read_ahead_refused", Calls, detail;
    /// Forks seen.
    Forks, "forks", Calls ("processes (/proc/stat)");
    /// Times the background thread was started.
    WorkerStarts, "worker_starts", Calls, detail;
    /// Times the background work rested because it had been preempted.
    WorkerRests, "worker_rests", Calls ("nonvoluntary_ctxt_switches (/proc/PID/status)"), detail;
    /// Large requests left to the kernel or the C library: mappings from 2M on, but below the threshold of mmap.
    KernelSmall, "kernel_small", Calls;
    /// The same: shared, stack, locked or other anonymous mappings that the arena does not serve.
    KernelFlags, "kernel_flags", Calls;
    /// The same: not readable and writable.
    KernelProt, "kernel_prot", Calls;
    /// The same: no room in the arena.
    KernelNoSpace, "kernel_no_space", Calls;
    /// The same: the process limits its address space, or locks all memory.
    KernelLimited, "kernel_limited", Calls;
    /// The same: rounding up would waste more than the budget allows.
    KernelWaste, "kernel_waste", Calls;
    /// The same: called while already inside the engine, as from a signal handler.
    KernelNested, "kernel_nested", Calls;
    /// The same: the kernel refused to open or to move the memory.
    KernelRefused, "kernel_refused", Calls;
    /// Faults of mapped regions.
    RegionPgfault, "region_pgfault", Calls ("pgfault");
    /// Pages that those brought, and that were populated, windows included.
    RegionPages, "region_pages", Calls;
    /// Faults of mapped regions that came where a stream of faults expected them.
    RegionWindowHits, "region_window_hits", Calls;
    /// Those that no stream expected.
    RegionWindowMisses, "region_window_misses", Calls;
    /// Pages that faults brought beside their own.
    RegionPrefaulted, "region_prefaulted", Calls;
    /// Those of them that streams left behind unused when they ended, by samples.
    RegionUnused, "region_unused", Calls;
    /// Time that mapped regions took to resolve faults.
    RegionFaultNs, "region_fault_ns", Ns;
    /// Areas of mapped regions left to the kernel, because their faults followed no sequence.
    RegionGivenUp, "region_given_up", Calls;
    /// Read from the backings of regions, into memory that was not zeroed for it.
    RegionFilled, "region_filled", Bytes;
    /// Taken with old bytes by regions that need no zeroes, in huge pages that such regions had dropped.
    RegionUnzeroed, "region_unzeroed", Bytes;
    /// Faults of mapped regions that were resolved speculatively.
    SpeculativePgfault, "speculative_pgfault", Calls ("speculative_pgfault");
    /// Speculative faults given up: the area was being changed, or had changed.
    SpfVmaChanged, "spf_vma_changed", Calls ("pagefault:spf_vma_changed");
    /// The same: no buffer to fill from the backing was ready.
    SpfVmaNoanon, "spf_vma_noanon", Calls ("pagefault:spf_vma_noanon");
    /// The same: the area's backing may not be read while the region changes.
    SpfVmaNotsup, "spf_vma_notsup", Calls ("pagefault:spf_vma_notsup");
    /// The same: the area's rights do not suffice.
    SpfVmaAccess, "spf_vma_access", Calls ("pagefault:spf_vma_access");
    /// The same: the entry of the 2 MiB around changed, or another thread kept it.
    SpfPmdChanged, "spf_pmd_changed", Calls ("pagefault:spf_pmd_changed");
    /// Snapshots of regions and files that were taken.
    SnapshotTaken, "snapshot_taken", Calls;
    /// Areas of mapped regions in these: one step each, however many pages they have.
    SnapshotAreas, "snapshot_areas", Calls;
    /// Writes that waited because their page was protected for snapshots.
    SnapshotFault, "snapshot_fault", Calls;
    /// Copied for snapshots, before it was written to or went.
    SnapshotCopied, "snapshot_copied", Bytes;
    /// Moved to snapshots, because it was dropped.
    SnapshotMoved, "snapshot_moved", Bytes;
    /// The part of `snapshot_copied` that went to an older snapshot when a newer one was dropped.
    SnapshotPassed, "snapshot_passed", Bytes;
    /// Copies before a write for snapshots: of one page.
    SnapshotCopiesPage, "snapshot_copies_page", Calls;
    /// The same of more than a page, and less than 2 MiB.
    SnapshotCopiesPart, "snapshot_copies_part", Calls;
    /// The same of 2 MiB at once.
    SnapshotCopiesSlot, "snapshot_copies_slot", Calls;
    /// Snapshots that can no longer be read, because there was no memory for a copy.
    SnapshotIncomplete, "snapshot_incomplete", Calls;
    /// Questions which snapshot has a page, or needs one.
    OwnerComputed, "owner_computed", Calls;
    /// Snapshots that were looked at for that.
    OwnerWalked, "owner_walked", Calls;
    /// Those of them that cover the page, and were no answer.
    OwnerStale, "owner_stale", Calls;
    /// Taken out of mapped regions that are above their budget. A fault brings it back without a read, while it is in memory.
    SwapAside, "swap_aside", Bytes;
    /// Brought back to mapped regions after that, with what was read for it.
    SwapBack, "swap_back", Bytes;
    /// Written to the stores of mapped regions, and not in memory any more.
    SwapOut, "swap_out", Bytes ("pswpout");
    /// Not in memory any more without being written: the stores of mapped regions have it since it was read.
    SwapClean, "swap_clean", Bytes;
    /// Read from the stores of mapped regions.
    SwapIn, "swap_in", Bytes ("pswpin");
    /// Times that a fault of a mapped region had to let pages go first, because the background had not kept room.
    SwapDirect, "swap_direct", Calls ("allocstall_normal");
    /// Pages of mapped regions that were read from a store after they had gone.
    SwapRefaults, "swap_refaults", Calls ("workingset_refault_anon");
    /// What had gone after each of them, until it came back. With as much more memory it would have stayed.
    SwapRefaultDistance, "swap_refault_distance", Bytes;
    /// Reads and writes of stores that failed. Where a write fails, the pages stay in memory.
    SwapErrors, "swap_errors", Calls;
    /// Reads of stores that brought other bytes than were written: the pages are lost.
    SwapCorrupt, "swap_corrupt", Calls;
    /// Huge pages that came for files, each with all that its 2 MiB have.
    FileAlloc, "file_alloc", Calls ("thp_file_alloc");
    /// Times that small pages came instead, because no huge page could be had.
    FileFallback, "file_fallback", Calls ("thp_file_fallback");
    /// The same of those that came for a write.
    FileWriteAlloc, "file_write_alloc", Calls ("thp_write_alloc");
    /// Times that small pages came for a write instead.
    FileWriteFailed, "file_write_failed", Calls ("thp_write_failed");
    /// Huge pages that moved to where a file was touched.
    FileMapped, "file_mapped", Calls ("thp_file_mapped");
    /// Huge pages of files that became small, because a part of them went.
    FileSplit, "file_split", Calls ("thp_split_page");
    /// Times that small pages of a file became a huge page, because all of their 2 MiB were in memory.
    FileCollapsed, "file_collapsed", Calls ("thp_collapse_alloc");
    /// Accesses to lazy mappings of files for which a page had to come.
    FileFault, "file_fault", Calls;
    /// Read from files into memory that was not zeroed for it.
    FileFilled, "file_filled", Bytes;
    /// Reads and writes of files that went by the kernel's page cache, because O_DIRECT was refused.
    FileBuffered, "file_buffered", Calls;
    /// Reads of files that were under way together, by io_uring.
    FileQueued, "file_queued", Calls;
    /// Times that reads of files went one after the other, because io_uring was refused.
    FileUnqueued, "file_unqueued", Calls;
    /// Written back to files.
    FileWritten, "file_written", Bytes ("nr_written");
    /// The part of `file_written` that the background thread wrote.
    FileFlushed, "file_flushed", Bytes;
    /// Times that a thread that needed room wrote dirty pages of a file back itself, because there were no others.
    FileThrottled, "file_throttled", Calls;
    /// Dropped from the caches of files, in whole slots.
    FileEvicted, "file_evicted", Bytes, detail;
    /// The pages that were in memory of those that went to make room.
    FileGone, "file_gone", Bytes;
    /// Pages of files that came back after they had gone to make room.
    FileRefaults, "file_refaults", Calls ("workingset_refault_file");
    /// What had gone from all files after each of them, until it came back. With as much more memory it would have stayed.
    FileRefaultDistance, "file_refault_distance", Bytes;
}

impl Counter {
    /// How it shows itself.
    pub const fn declared(self) -> &'static Declared {
        &COUNTERS[self as usize]
    }

    /// What counts the bytes that an engine zeroes in the background.
    pub const fn scrubbed_by(engine: Engine) -> Self {
        match engine {
            Engine::StringStore => Self::ScrubbedString,
            Engine::Memset => Self::ScrubbedMemset,
            Engine::Stream16 => Self::ScrubbedSse2,
            Engine::Stream32 => Self::ScrubbedAvx2,
            Engine::Stream64 => Self::ScrubbedAvx512,
            Engine::LineZero => Self::ScrubbedClzero,
            Engine::Kernel => Self::ScrubbedKernel,
            Engine::Dsa => Self::ScrubbedDsa,
        }
    }

    /// What counts a copy of this length, before a write.
    pub const fn snapshot_copies(bytes: usize) -> Self {
        match bytes {
            ..=PAGE => Self::SnapshotCopiesPage,
            SLOT.. => Self::SnapshotCopiesSlot,
            _ => Self::SnapshotCopiesPart,
        }
    }

    /// What counts that an engine is not used any more.
    pub const fn dropped(engine: Engine) -> Self {
        match engine {
            Engine::StringStore => Self::DroppedString,
            Engine::Memset => Self::DroppedMemset,
            Engine::Stream16 => Self::DroppedSse2,
            Engine::Stream32 => Self::DroppedAvx2,
            Engine::Stream64 => Self::DroppedAvx512,
            Engine::LineZero => Self::DroppedClzero,
            Engine::Kernel => Self::DroppedKernel,
            Engine::Dsa => Self::DroppedDsa,
        }
    }
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
        if !cfg!(feature = "no-counters") {
            self.values[counter as usize].fetch_add(n, Ordering::Relaxed);
        }
    }

    /// The same for a counter to which no other thread adds meanwhile.
    #[inline]
    pub fn add_alone(&self, counter: Counter, n: u64) {
        if !cfg!(feature = "no-counters") {
            let value = &self.values[counter as usize];
            value.store(value.load(Ordering::Relaxed) + n, Ordering::Relaxed);
        }
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

/// Blocks of counters on a page: one for each shard that an arena can have.
pub const BLOCKS: usize = 8;
