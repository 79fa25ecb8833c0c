//! What the cache of a file asks of the address space: one range for the whole file, which huge pages move into.

use super::linux::Linux;
use super::raw::syscall;
use super::uffd::Stopped;
use super::watch::{self, Watch, Writes};
use super::{Huge, Sys, frames, moves, pagemap, tables};
use crate::sync::Late;
use crate::{Errno, SLOT, Span};

/// Memory of a file. All spans are whole pages of a range that [`FileMemory::reserve`] gave, or frames of the owner of
/// all frames, and the caller's alone where their content changes.
pub trait FileMemory {
    /// Addresses for a file, at a multiple of 2 MiB: without access and memory, and in no forked child.
    fn reserve(&self, bytes: usize) -> Option<Span>;
    /// Lets a part of them be read and written, for the first time; whether it worked.
    fn open(&self, span: Span) -> bool;
    /// Gives them back, with all memory there.
    fn release(&self, span: Span);
    /// Makes a huge page of zeroes of a place for one; whether it is one.
    fn make_huge(&self, frame: usize) -> bool;
    /// Moves the huge page `frame` to the empty slot at `to`; whether all of it is there. If not, nothing is.
    fn move_in(&self, frame: usize, to: usize) -> bool;
    /// Moves the huge page at `slot` to the empty `frame`; false: it is gone.
    fn move_out(&self, slot: usize, frame: usize) -> bool;
    /// Whether all of a frame is there. If not, the rest is dropped.
    fn drop_unless_whole(&self, frame: usize) -> bool;
    /// Drops the memory of a frame.
    fn drop_frame(&self, frame: usize);
    /// Drops the memory of a span: it reads as zero.
    fn discard(&self, span: Span) -> bool;
    /// Whether a slot that was dropped has no page table any more, so that a huge page may come.
    fn frees_tables(&self) -> bool;
    /// Fills bytes with zeroes. Other threads may read and write there.
    fn zero(&self, bytes: Span);
    /// Whether all bytes of whole pages are zero. Other threads may write there.
    fn is_zero(&self, pages: Span) -> bool;
    /// Copies bytes; those of the target are the caller's, in a buffer or of a file. Other threads may read there.
    fn copy(&self, from: Span, to: usize);
    /// Has missing pages of open slots raise faults from now on, and writes noted; whether it worked.
    fn watch(&self, span: Span) -> bool;
    /// The same of memory to which watched pages may move: nothing there is noted.
    fn watch_aside(&self, span: Span) -> bool;
    /// Makes pages of an unwatched span that are missing present, as a read would; whether it worked.
    fn populate(&self, span: Span) -> bool;
    /// The same as a write would: each page has memory of its own afterwards, if the kernel can do that.
    fn populate_to_write(&self, span: Span);
    /// Fills missing pages of a watched span with the bytes at `from`, each at one moment.
    fn install(&self, from: usize, to: Span, writes: Writes) -> Result<(), Stopped>;
    /// The same with zeroes, which take no memory. Whether they were written to is not known.
    fn install_zeroes(&self, to: Span) -> Result<(), Stopped>;
    /// As [`FileMemory::move_in`], to a watched slot.
    fn move_in_watched(&self, frame: usize, to: usize) -> bool;
    /// Moves watched pages away, or back. They are missing where they were, each from one moment on.
    fn move_pages(&self, from: Span, to: usize) -> Result<(), Stopped>;
    /// Tells `f` of watched pages that may have been written to since the last call. False: it is not known of which.
    fn take_changes(&self, span: Span, f: &mut dyn FnMut(Span)) -> bool;
    /// Whether a write to a watched page that is protected waits until [`FileMemory::note_again`] lets it through. If not,
    /// the kernel lets it through.
    fn tells_writes(&self) -> bool;
    /// Has pages that are there be told of by [`FileMemory::take_changes`] as if they were written to; whether it could.
    fn note_again(&self, pages: Span) -> bool;
    /// Whether a page is there; true where that is not known.
    fn is_there(&self, page: usize) -> bool;
    /// Makes a missing watched page an error for each access, until it is dropped.
    fn poison(&self, page: usize) -> Result<(), Errno>;
    /// Whether all bytes of two spans are the same.
    fn is_same(&self, a: Span, b: usize) -> bool;
    /// Spends a moment waiting for another thread, the longer the higher `turn`.
    fn relax(&self, turn: u32);
}

/// That of this process.
pub struct UserMemory {
    watch: Late<Watch>,
}

impl UserMemory {
    /// Looks first what the kernel can do.
    pub fn new() -> Self {
        tables::probe();
        pagemap::open();
        Self { watch: Late::new() }
    }

    /// Has what it takes to watch slots from now on; false: it has that already.
    pub fn watch_with(&self, watch: Watch) -> bool {
        self.watch.set(watch)
    }

    /// What it watches with.
    pub fn watched_with(&self) -> Option<&Watch> {
        self.watch.get()
    }

    /// Has each access to a span be a SIGSEGV.
    pub fn close(&self, span: Span) {
        // SAFETY: memory of a file, whose users are told.
        let _ =
            unsafe { syscall(libc::SYS_mprotect, [span.start, span.bytes(), libc::PROT_NONE as usize, 0, 0, 0]) };
        if let Some(watch) = self.watch.get() {
            watch.wake(span);
        }
    }
}

impl Default for UserMemory {
    fn default() -> Self {
        Self::new()
    }
}

impl FileMemory for UserMemory {
    fn reserve(&self, bytes: usize) -> Option<Span> {
        let span = Span::new(frames::reserve_closed(bytes)?, bytes);
        // Small pages stay small: a huge page comes by a move alone.
        Linux.huge(span, Huge::Refused);
        // Where the program has all future memory locked, all of a file would come when it is opened.
        frames::unlock(span);
        Some(span)
    }

    fn open(&self, span: Span) -> bool {
        span.is_empty() || frames::allow(span.start, span.bytes())
    }

    fn release(&self, span: Span) {
        frames::release(span);
    }

    fn make_huge(&self, frame: usize) -> bool {
        frames::fill(frame)
    }

    fn move_in(&self, frame: usize, to: usize) -> bool {
        let moved = moves::move_or_wait(Span::new(frame, SLOT), to);
        if moved > 0 && moved < SLOT {
            frames::drop_pages(to);
            frames::drop_pages(frame);
        }
        moved == SLOT
    }

    fn move_out(&self, slot: usize, frame: usize) -> bool {
        let moved = moves::take_huge(slot, frame);
        if !moved {
            frames::drop_pages(slot);
        }
        moved
    }

    fn drop_unless_whole(&self, frame: usize) -> bool {
        frames::is_whole(frame) || {
            frames::drop_pages(frame);
            false
        }
    }

    fn drop_frame(&self, frame: usize) {
        frames::drop_pages(frame);
    }

    fn discard(&self, span: Span) -> bool {
        frames::discard(span)
    }

    fn frees_tables(&self) -> bool {
        tables::are_freed()
    }

    fn zero(&self, bytes: Span) {
        // An instruction, as for copies.
        #[cfg(target_arch = "x86_64")]
        // SAFETY: memory of this value's; the direction flag is clear, as it always is.
        unsafe {
            core::arch::asm!(
                "rep stosb",
                inout("rcx") bytes.bytes() => _,
                inout("rdi") bytes.start => _,
                in("al") 0_u8,
                options(nostack, preserves_flags)
            );
        }
        #[cfg(not(target_arch = "x86_64"))]
        for at in bytes.start..bytes.end {
            // SAFETY: memory of this value's.
            unsafe { (at as *mut u8).write_volatile(0) };
        }
    }

    fn is_zero(&self, pages: Span) -> bool {
        // SAFETY: memory of this value's, aligned; a word is an old or a new one.
        (pages.start..pages.end).step_by(8).all(|at| unsafe { (at as *const u64).read_volatile() } == 0)
    }

    fn copy(&self, from: Span, to: usize) {
        // SAFETY: by contract.
        unsafe { copy(from.start, to, from.bytes()) };
    }

    fn watch(&self, span: Span) -> bool {
        self.watch.get().is_some_and(|watch| watch.begin(span))
    }

    fn watch_aside(&self, span: Span) -> bool {
        self.watch.get().is_some_and(|watch| watch.begin_moves(span))
    }

    fn populate(&self, span: Span) -> bool {
        populate(span, libc::MADV_POPULATE_READ)
    }

    fn populate_to_write(&self, span: Span) {
        // A page that is missing afterwards comes when it is touched.
        let _ = populate(span, libc::MADV_POPULATE_WRITE);
    }

    fn install(&self, from: usize, to: Span, writes: Writes) -> Result<(), Stopped> {
        self.watch.get().map_or(Err(UNWATCHED), |watch| watch.install(from, to, writes))
    }

    fn install_zeroes(&self, to: Span) -> Result<(), Stopped> {
        self.watch.get().map_or(Err(UNWATCHED), |watch| watch.install_zeroes(to))
    }

    fn move_in_watched(&self, frame: usize, to: usize) -> bool {
        self.watch.get().is_some_and(|watch| watch.move_huge(frame, to))
    }

    fn move_pages(&self, from: Span, to: usize) -> Result<(), Stopped> {
        self.watch.get().map_or(Err(UNWATCHED), |watch| watch.move_pages(from, to))
    }

    fn take_changes(&self, span: Span, f: &mut dyn FnMut(Span)) -> bool {
        self.watch.get().is_some_and(|watch| watch.take_changes(span, f))
    }

    fn tells_writes(&self) -> bool {
        self.watch.get().is_some_and(Watch::tells_writes)
    }

    fn note_again(&self, pages: Span) -> bool {
        self.watch.get().is_some_and(|watch| watch.note_again(pages))
    }

    fn is_there(&self, page: usize) -> bool {
        watch::is_there(page)
    }

    fn poison(&self, page: usize) -> Result<(), Errno> {
        self.watch.get().map_or(Err(Errno::EINVAL), |watch| watch.poison(page))
    }

    fn is_same(&self, a: Span, b: usize) -> bool {
        let word = |at: usize| {
            // SAFETY: memory of the caller's alone, in whole pages.
            unsafe { (at as *const u64).read_volatile() }
        };
        (0..a.bytes()).step_by(8).all(|at| word(a.start + at) == word(b + at))
    }

    fn relax(&self, turn: u32) {
        Linux.relax(turn);
    }
}

fn populate(span: Span, how: libc::c_int) -> bool {
    // SAFETY: memory of the caller's; zeroes come where nothing is.
    unsafe { syscall(libc::SYS_madvise, [span.start, span.bytes(), how as usize, 0, 0, 0]) }.is_ok()
}

const UNWATCHED: Stopped = Stopped { done: 0, error: Errno::EINVAL };

/// Copies bytes that other threads may read and write meanwhile: each byte is an old or a new one.
///
/// # Safety
/// `from` is readable and `to` writable for that many bytes. They do not overlap.
pub unsafe fn copy(from: usize, to: usize, bytes: usize) {
    // An instruction, and no function of Rust's: to these a race is undefined behaviour.
    #[cfg(target_arch = "x86_64")]
    // SAFETY: by contract; the direction flag is clear, as it always is.
    unsafe {
        core::arch::asm!(
            "rep movsb",
            inout("rcx") bytes => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags)
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    for i in 0..bytes {
        // SAFETY: by contract.
        unsafe { ((to + i) as *mut u8).write_volatile(((from + i) as *const u8).read_volatile()) };
    }
}
