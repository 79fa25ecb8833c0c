//! The memory management unit of a region in this process: userfaultfd and ordinary system calls.

mod fresh;
mod gone;
mod protected;
mod relocate;
mod swap;
mod zeroes;

use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicBool, Ordering};

use super::linux::{self, Linux};
use super::looks::copy_by_kernel;
use super::lost::Lost;
use super::mmu::{Mmu, Protect, Rights, Source};
use super::raw::{self, syscall};
use super::uffd::{REGISTER_WP, Stopped, Uffd, Wake};
use super::{Huge, Sys, frames, moves, pagemap, policy, tables};
use crate::sync::Lock;
use crate::{Errno, PAGE, SLOT, Span};

pub use swap::SwapStore;

/// Pages that are looked at to see how much of a window was used.
pub const SAMPLES: usize = 8;
/// Descriptors of a region at most.
pub const STRIPES: usize = 16;

/// Where the bytes of a region come from that are not zero.
pub trait Backing: Send + Sync {
    /// Reads what is at `offset` into all of `buffer`, zeroes behind the end; or gives any error number. If a single
    /// page cannot be read, threads that need it get SIGBUS. Any thread may call this, in a signal handler if that is
    /// how faults are delivered. It must not use the region itself.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), i32>;

    /// Whether it may be read while parts of the region are unmapped or moved. If not, faults wait for that.
    fn is_read_at_any_time(&self) -> bool {
        true
    }
}

impl Backing for () {
    fn read(&self, _offset: u64, buffer: &mut [u8]) -> Result<(), i32> {
        buffer.fill(0);
        Ok(())
    }
}

/// A reservation of addresses, its descriptors and its backing. The reservation ends with it.
pub struct UserMmu<B: Backing + SwapStore> {
    span: Span,
    /// Each has an equal part of the span; none: the kernel serves all faults.
    uffds: ManuallyDrop<[Option<Uffd>; STRIPES]>,
    stripe: usize,
    /// Whether the kernel may be asked to read a page that is missing: it answers that it cannot. Otherwise it waits.
    looks_are_safe: bool,
    /// Whether forked children are without it.
    is_kept_from_children: bool,
    /// The advice that it has unless something else is said of a part.
    huge: Huge,
    /// 2 MiB that read as zero and take no memory: what [`Source::Zeroes`] is copied from. Behind them is a page that
    /// cannot be read.
    zeroes: usize,
    /// Parts that the program has taken, where that is known.
    lost: Option<Lost>,
    /// Parts that could not be reserved again after a move. It is shut then.
    gone: gone::Gone,
    /// Held while pages move.
    relocating: Lock<()>,
    /// No thread serves it any more.
    is_shut: AtomicBool,
    /// Writes to protected pages are delivered, too.
    watches_writes: AtomicBool,
    /// By what it is known which pages were written to, where it is.
    noted: Option<swap::Noted>,
    backing: B,
}

impl<B: Backing + SwapStore> UserMmu<B> {
    /// Reserves `bytes`, whole slots, without access. Each descriptor is enabled and serves an equal part of them.
    pub fn new(bytes: usize, uffds: [Option<Uffd>; STRIPES], backing: B) -> Result<Self, Errno> {
        let count = uffds.iter().flatten().count().max(1);
        let span = Linux.reserve(bytes, SLOT).ok_or(Errno::ENOMEM)?;
        // A core dump has the present pages of it.
        let args = [span.start, span.bytes(), libc::MADV_DODUMP as usize, 0, 0, 0];
        // SAFETY: the reservation just made.
        let _ = unsafe { syscall(libc::SYS_madvise, args) };
        let stripe = (bytes / SLOT).div_ceil(count) * SLOT;
        let mut mmu = Self {
            span,
            uffds: ManuallyDrop::new(uffds),
            stripe,
            looks_are_safe: false,
            is_kept_from_children: false,
            huge: Huge::Refused,
            zeroes: 0,
            lost: None,
            gone: gone::Gone::default(),
            relocating: Lock::new(()),
            is_shut: AtomicBool::new(false),
            watches_writes: AtomicBool::new(false),
            noted: None,
            backing,
        };
        mmu.zeroes = zeroes::map().ok_or(Errno::ENOMEM)?;
        if mmu.uffds().next().is_some() {
            // A huge page would be made for each fault, before it is delivered.
            Linux.huge(span, mmu.huge);
            tables::probe();
            policy::probe();
        }
        pagemap::open();
        Ok(mmu)
    }

    /// Has faults delivered from now on, and messages sent. Their reader is there already: threads wait for it.
    pub fn deliver(&self) -> Result<(), Errno> {
        self.register(self.span)
    }

    /// The addresses.
    pub fn span(&self) -> Span {
        self.span
    }

    /// The descriptors.
    pub fn uffds(&self) -> impl Iterator<Item = &Uffd> {
        self.uffds.iter().flatten()
    }

    /// Faults of the kernel itself are not delivered to a thread that would have to be waited for.
    pub fn allow_looks(&mut self) {
        self.looks_are_safe = true;
    }

    /// From now on a caller notes which parts of the region the program takes.
    pub fn note_losses(&mut self) -> Result<(), Errno> {
        self.lost = Some(Lost::new(self.span).ok_or(Errno::ENOMEM)?);
        Ok(())
    }

    /// Parts that the program has taken, where that is known.
    pub fn lost(&self) -> Option<&Lost> {
        self.lost.as_ref()
    }

    /// 2 MiB of zeroes, to copy from.
    pub fn zeroes(&self) -> usize {
        self.zeroes
    }

    /// Its backing.
    pub fn backing(&self) -> &B {
        &self.backing
    }

    /// What descriptor `i` serves.
    pub fn part(&self, i: usize) -> Span {
        Span::new(self.span.start + i * self.stripe, self.stripe).clip(self.span)
    }

    fn uffd(&self, addr: usize) -> Option<&Uffd> {
        self.uffds[(addr - self.span.start) / self.stripe].as_ref()
    }

    fn parts<'a>(&'a self, span: Span) -> impl Iterator<Item = (&'a Uffd, Span)> {
        let part = move |(i, uffd): (usize, &'a Option<Uffd>)| Some((uffd.as_ref()?, self.part(i).clip(span)));
        let parts = self.uffds.iter().enumerate().filter_map(part);
        parts.filter(|(_, part)| !part.is_empty())
    }

    /// The runs of a span that others have not taken, as far as that is known.
    fn kept(&self, span: Span) -> impl Iterator<Item = Span> {
        let all = self.lost.is_none().then_some(span);
        let runs = all.into_iter().chain(self.lost.iter().flat_map(move |lost| lost.kept(span)));
        runs.flat_map(|run| self.gone.kept(run))
    }

    /// Copies bytes that are there. Those of the region the kernel reads, because the program may close them at any time.
    fn copy(&self, from: Span, to: usize) -> bool {
        let mut done = 0;
        while self.span.contains(from.start) && done < from.bytes() {
            match copy_by_kernel(Span { start: from.start + done, ..from }, to + done) {
                Ok(0) | Err(Errno::EFAULT) => return false,
                Ok(copied) => done += copied,
                // A filter of system calls forbids that.
                Err(_) => break,
            }
        }
        let left = from.bytes() - done;
        // SAFETY: pages that are there and may be read, and memory that is the caller's alone. Another thread may write
        // to a page of the region meanwhile; the caller does not use its bytes then.
        unsafe { core::ptr::copy_nonoverlapping((from.start + done) as *const u8, (to + done) as *mut u8, left) };
        true
    }

    /// Closes all of it for good, whatever is mapped: an access is a SIGSEGV. For when faults cannot be served any
    /// more.
    pub fn shut(&self) {
        // First: a thread that opens a part meanwhile sees the flag then, or its part is closed here.
        self.is_shut.store(true, Ordering::SeqCst);
        for run in self.kept(self.span) {
            let _ = self.protect(run, Rights::None);
        }
        self.wake(self.span);
    }

    /// Whether that was done.
    pub fn is_shut(&self) -> bool {
        self.is_shut.load(Ordering::SeqCst)
    }

    /// From now on no thread delivers faults, or tells of changes: the region is shut before.
    pub fn let_go(&self) {
        self.shut();
        for (uffd, part) in self.parts(self.span) {
            for run in self.kept(part) {
                let _ = uffd.unregister_pieces(run);
            }
        }
    }

    /// Whether an access to memory that is not the region's any more is a SIGBUS for good, as behind the end of a
    /// foreign file mapping. The kernel makes that access here. If the access is made again and is no error, or
    /// another one, that counts.
    pub fn is_sigbus_of_others(&self, page: usize, wants: Rights) -> bool {
        let advice = if wants == Rights::Write { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
        let args = [page, PAGE, advice as usize, 0, 0, 0];
        // SAFETY: it brings a page, as the access does.
        !self.serves(page) && unsafe { syscall(libc::SYS_madvise, args) } == Err(Errno::EFAULT)
    }
}

impl<B: Backing + SwapStore> Drop for UserMmu<B> {
    fn drop(&mut self) {
        // First the memory: so no thread reads false zeroes while a descriptor is open.
        // SAFETY: this value's own, and no longer used.
        unsafe {
            if self.lost.is_some() {
                // No thread reads messages any more, so a thread that causes one would wait for ever. So the memory
                // is shut first, and then unmapped.
                self.shut();
                ManuallyDrop::drop(&mut self.uffds);
            }
            for run in self.kept(self.span) {
                raw::unmap(run.start, run.bytes());
            }
            if self.lost.is_none() {
                ManuallyDrop::drop(&mut self.uffds);
            }
            if self.zeroes != 0 {
                raw::unmap(self.zeroes, zeroes::BYTES);
            }
        }
    }
}

impl<B: Backing + SwapStore> Mmu for UserMmu<B> {
    fn install(&self, from: Source, to: Span) -> Result<(), Stopped> {
        let Some(uffd) = self.uffd(to.start) else { return Err(Stopped { done: 0, error: Errno::ENOENT }) };
        let at = match from {
            // SAFETY: the span is registered.
            Source::ZeroPage => return unsafe { uffd.zero_pages(to, Wake::Later) },
            Source::Zeroes => self.zeroes,
            Source::Buffer(at) => at,
        };
        // SAFETY: both are at most 2 MiB of this value's own memory, and the buffer is the caller's alone.
        unsafe { uffd.copy(at, to, Wake::Later) }
    }

    fn move_huge(&self, frame: usize, to: usize) -> bool {
        let moved = |uffd: &Uffd| {
            // SAFETY: private anonymous memory of the caller's; the target is registered.
            unsafe { uffd.move_pages(frame, Span::new(to, SLOT), Wake::Later) }
        };
        if !policy::any_page_will_do(to) {
            return false;
        }
        match self.uffd(to).map(moved) {
            Some(Ok(())) => true,
            // Pages of it may have moved. The rest is not whole any more.
            Some(Err(stopped)) if stopped.done > 0 => {
                frames::drop_pages(frame);
                false
            }
            _ => false,
        }
    }

    fn take_huge(&self, slot: usize, frame: usize) -> bool {
        // A foreign mapping may be there now.
        !self.lost.as_ref().is_some_and(|lost| lost.meets(Span::new(slot, SLOT))) && moves::take_huge(slot, frame)
    }

    fn frees_tables(&self) -> bool {
        tables::are_freed()
    }

    fn leave_to_kernel(&self, span: Span) -> Result<(), Errno> {
        self.parts(span).try_for_each(|(uffd, part)| match self.lost {
            None => uffd.unregister(part),
            // The kernel tells of changes of memory as long as it is registered. Here it is registered for write
            // protection, which is never used.
            // SAFETY: nothing is ever write-protected, so no access waits.
            Some(_) => unsafe { uffd.register(part, REGISTER_WP) }.map(drop),
        })
    }

    fn take_from_kernel(&self, span: Span) -> Result<(), Errno> {
        self.register(span)
    }

    fn present(&self, span: Span) -> usize {
        let by_slot = |slot: usize| Linux.present_pages(Span::new(slot, SLOT).clip(span));
        let by_core = || (span.start..span.end).step_by(SLOT).map(by_slot).sum();
        pagemap::count(span, pagemap::PRESENT, 0).unwrap_or_else(by_core)
    }

    fn is_own(&self, page: usize) -> bool {
        pagemap::first(Span::new(page, PAGE), pagemap::PRESENT, pagemap::ZERO).is_some_and(|run| !run.is_empty())
    }

    fn unused(&self, span: Span) -> usize {
        let pages = span.bytes() / PAGE;
        // A missing page, or the kernel's page of zeroes, was not written to.
        let is_written = |page: &usize| (self.looks_are_safe || self.is_own(*page)) && linux::peek_written(*page);
        let step = (pages / SAMPLES).max(1) * PAGE;
        let samples = || (span.start..span.end).step_by(step);
        let unused = samples().filter(|page| !is_written(page)).count();
        pages * unused / samples().count().max(1)
    }

    fn looks_in_faults(&self) -> bool {
        self.looks_are_safe
    }

    fn poison(&self, page: usize) -> Result<(), Errno> {
        let uffd = self.uffd(page).ok_or(Errno::EINVAL)?;
        uffd.poison(Span::new(page, PAGE), Wake::Later).map_err(|stopped| stopped.error)
    }

    /// The kernel first looks whether the page is registered, then whether it is missing, and last at the bytes to
    /// copy: there are none.
    fn serves(&self, page: usize) -> bool {
        let nothing = self.zeroes + zeroes::NOTHING;
        // SAFETY: nothing can be read there, so nothing is copied.
        let answer = self.uffd(page).map(|uffd| unsafe { uffd.copy(nothing, Span::new(page, PAGE), Wake::Later) });
        answer.is_some_and(|answer| answer.is_err_and(|stopped| stopped.error != Errno::ENOENT))
    }

    fn wake(&self, span: Span) {
        for (uffd, part) in self.parts(span) {
            let _ = uffd.wake(part);
        }
    }

    fn protect(&self, span: Span, rights: Rights) -> Result<(), Errno> {
        let prot = match rights {
            Rights::None => libc::PROT_NONE,
            Rights::Read => libc::PROT_READ,
            Rights::Write => libc::PROT_READ | libc::PROT_WRITE,
        };
        let protect = |prot: i32| {
            let args = [span.start, span.bytes(), prot as usize, 0, 0, 0];
            // SAFETY: a part of the reservation.
            unsafe { syscall(libc::SYS_mprotect, args) }.map(drop)
        };
        protect(prot)?;
        if rights != Rights::None && self.is_shut() {
            // It was opened after it was shut.
            let _ = protect(libc::PROT_NONE);
            return Err(Errno::EIO);
        }
        Ok(())
    }

    fn renew(&self, span: Span) -> Result<(), Errno> {
        self.renew_pages(span)
    }

    fn discard(&self, span: Span) -> Result<(), Errno> {
        let args = [span.start, span.bytes(), frames::DONTNEED_LOCKED, 0, 0, 0];
        // SAFETY: a part of the reservation whose content is not wanted any more.
        unsafe { syscall(libc::SYS_madvise, args) }.map(drop)
    }

    fn relocate(&self, from: Span, to: usize) -> Result<(), Errno> {
        self.relocate_pages(from, to)
    }

    fn fills_at_any_time(&self) -> bool {
        self.backing.is_read_at_any_time()
    }

    fn fill(&self, offset: u64, buffer: Span) -> Result<(), Errno> {
        // SAFETY: memory of [`Mmu::reserve`], which is the caller's alone, and readable and writable.
        let bytes = unsafe { core::slice::from_raw_parts_mut(buffer.start as *mut u8, buffer.bytes()) };
        Backing::read(&self.backing, offset, bytes).map_err(Errno::new)
    }

    fn raises_faults(&self) -> bool {
        self.uffds().next().is_some()
    }

    fn prefer_huge(&self, span: Span, huge: bool) {
        if !self.raises_faults() {
            Linux.huge(span, if huge { Huge::Advised } else { Huge::Refused });
        }
    }

    fn touch(&self, span: Span) -> Result<(), Errno> {
        let populate = |bytes: usize| {
            let args = [span.start, bytes, libc::MADV_POPULATE_WRITE as usize, 0, 0, 0];
            // SAFETY: it brings pages, as accesses do, and fails where one would.
            unsafe { syscall(libc::SYS_madvise, args) }.map(drop)
        };
        match populate(span.bytes()) {
            // The kernel does not know that advice.
            Err(_) if populate(0).is_err() => {
                (span.start..span.end).step_by(PAGE).for_each(|page| Linux.touch(page))
            }
            answer => return answer,
        }
        Ok(())
    }

    fn reserve(&self, bytes: usize) -> Option<usize> {
        frames::reserve_unlocked(bytes)
    }

    fn release(&self, span: Span) {
        frames::release(span);
    }

    fn make_huge(&self, frame: usize) -> bool {
        // Advice takes a lock that others wait for: once for each place is enough.
        frames::fill(frame) || {
            Linux.huge(Span::new(frame, SLOT), Huge::Advised);
            frames::fill(frame)
        }
    }

    fn drop_unless_whole(&self, frame: usize) -> bool {
        frames::is_whole(frame) || {
            // A part of one, of which the rest was swapped out or has moved, is of no use and in the way.
            frames::drop_pages(frame);
            false
        }
    }

    fn protect_writes(&self, span: Span, protect: Protect) -> Result<(), Errno> {
        if protect == Protect::Lift {
            return self.write_protect(span, false);
        }
        self.watches_writes.store(true, Ordering::Release);
        self.register(span)?;
        if protect == Protect::All { self.write_protect(span, true) } else { self.protect_the_rest(span) }
    }

    fn first_there(&self, span: Span) -> Option<Span> {
        pagemap::first(span, pagemap::PRESENT | pagemap::SWAPPED, 0)
    }

    fn copy_pages(&self, from: Span, to: usize) -> bool {
        self.copy(from, to)
    }

    fn read_bytes(&self, from: usize, buffer: &mut [u8]) -> bool {
        self.copy(Span::new(from, buffer.len()), buffer.as_mut_ptr() as usize)
    }

    fn drop_reserved(&self, span: Span) {
        frames::discard(span);
    }

    fn relax(&self, turn: u32) {
        Linux.relax(turn);
    }
}
