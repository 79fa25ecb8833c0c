//! The address space of this process, by Linux system calls.

use core::sync::atomic::{AtomicBool, Ordering};

use super::looks::{self, signatures, somewhere};
use super::raw::{self, Access, syscall};
use super::{FileArea, Headroom, Huge, Job, Sys, Usage};
use super::{
    area, cgroup, frames, isolate, job, mapped_file, migrate, moves, open, pagemap, policy, pressure, proc_file,
    stack, thread, unwritten, usage, warm,
};
use super::{home, nodes};
use crate::Errno;
use crate::units::{PAGE, SLOT, Span};
use crate::zero::driver::Poll;
use crate::zero::{self, Choice, Engine};

/// Linux, as found. Its only state is where ranges are isolated (`isolate.rs`), and which engines zero best.
pub struct Linux;

/// Advice about huge pages was given to a range that begins or ends between slots. That is a mapping as the engine knows
/// it. To the kernel it may be a part of an area: the program had it grow since, or it touches another mapping.
static ADVISED_BETWEEN_SLOTS: AtomicBool = AtomicBool::new(false);

/// Whether advice of the engine's may end between slots.
pub fn has_advised_between_slots() -> bool {
    ADVISED_BETWEEN_SLOTS.load(Ordering::Relaxed)
}

/// Opens what the program's threads need: the process is about to have more than one.
pub fn keep_descriptors() {
    open::unseen(|| {
        moves::keep();
        area::keep();
        proc_file::keep();
    });
}

/// Whether some thread is in [`Sys::discard`].
static DISCARDING: AtomicBool = AtomicBool::new(false);

/// Waits a moment while another thread discards: two at a time make the kernel flush the translations of all
/// processors, even when nothing was mapped. False when that takes longer than the flush would.
fn take_turn() -> bool {
    const SPINS: u32 = 100;
    let taken = (0..SPINS).any(|_| {
        let taken = !DISCARDING.load(Ordering::Relaxed) && !DISCARDING.swap(true, Ordering::Acquire);
        if !taken {
            core::hint::spin_loop();
        }
        taken
    });
    if !taken {
        // The holder may have stayed with the parent of this process.
        DISCARDING.store(false, Ordering::Release);
    }
    taken
}

pub(super) fn madvise(span: Span, advice: i32) -> bool {
    // SAFETY: only called with advice that keeps bytes or is meant to drop them, on the engine's own spans.
    unsafe { syscall(libc::SYS_madvise, [span.start, span.bytes(), advice as usize, 0, 0, 0]) }.is_ok()
}

pub(super) fn mprotect(span: Span, prot: i32) -> bool {
    // SAFETY: the engine's own spans: no Rust reference points into them.
    unsafe { syscall(libc::SYS_mprotect, [span.start, span.bytes(), prot as usize, 0, 0, 0]) }.is_ok()
}

/// Puts a fresh mapping with these rights at a span; `place` says whether it may replace another one.
pub(super) fn map_at(span: Span, prot: i32, place: i32) -> bool {
    try_map_at(span, prot, place) == Ok(span.start)
}

fn try_map_at(span: Span, prot: i32, place: i32) -> Result<usize, Errno> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | place;
    let args = [span.start, span.bytes(), prot as usize, flags as usize, usize::MAX, 0];
    // SAFETY: replaces the engine's own spans, or (NOREPLACE) nothing at all.
    unsafe { syscall(libc::SYS_mmap, args) }
}

/// The same without rights: a reservation.
pub(super) fn reserve_at(span: Span, place: i32) -> bool {
    map_at(span, libc::PROT_NONE, place)
}

/// Puts one in the place of whatever is mapped in a span of the engine's own.
pub(super) fn replace_by_reservation(span: Span) -> Result<(), Errno> {
    try_map_at(span, libc::PROT_NONE, libc::MAP_FIXED).map(drop)
}

/// Bytes at `addr`; by a system call, which fails where an access would fault.
fn peek<const N: usize>(addr: usize) -> Option<[u8; N]> {
    let mut bytes = [0u8; N];
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: N };
    let remote = libc::iovec { iov_base: addr as *mut libc::c_void, iov_len: N };
    // SAFETY: the call writes to `bytes` alone, and reads memory of this process by the kernel's hand.
    let read = unsafe {
        let args = [raw::thread_number(), &raw const local as usize, 1, &raw const remote as usize, 1, 0];
        syscall(libc::SYS_process_vm_readv, args)
    };
    (read == Ok(N)).then_some(bytes)
}

/// Whether the page at `addr` is present; `None` where nothing is mapped.
fn in_core(addr: usize) -> Option<bool> {
    let mut vec = 0u8;
    // SAFETY: one page, one byte for the answer.
    let answer = unsafe { syscall(libc::SYS_mincore, [addr & !(PAGE - 1), PAGE, &raw mut vec as usize, 0, 0, 0]) };
    answer.is_ok().then_some(vec & 1 == 1)
}

/// Whether something else than zero stands in one of a few places of a page. With little stack, for signal handlers.
pub(super) fn peek_written(page: usize) -> bool {
    (page..page + PAGE)
        .step_by(PAGE / 4)
        .any(|at| peek::<64>(at).is_some_and(|bytes| bytes.iter().any(|b| *b != 0)))
}

/// A reservation at a multiple of `align`.
pub(super) fn reserve(bytes: usize, align: usize) -> Option<Span> {
    let whole = bytes.checked_add(align)?;
    let at = raw::map_private(whole, Access::Reserve)?;
    let start = at.next_multiple_of(align);
    let kept = Span::new(start, bytes);
    for cut in [Span { start: at, end: start }, Span { start: kept.end, end: at + whole }] {
        if !cut.is_empty() {
            // SAFETY: the ends of the mapping just made.
            let _ = unsafe { syscall(libc::SYS_munmap, [cut.start, cut.bytes(), 0, 0, 0, 0]) };
        }
    }
    Some(kept)
}

impl Sys for Linux {
    fn reserve(&self, bytes: usize, align: usize) -> Option<Span> {
        let kept = reserve(bytes, align)?;
        // A reservation has nothing to show in a core dump; its used parts are opened to dumps again.
        madvise(kept, libc::MADV_DONTDUMP);
        home::note(raw::process_number() as i32);
        Some(kept)
    }

    fn reserve_apart(&self, bytes: usize) -> Option<Span> {
        home::note(raw::process_number() as i32);
        Some(Span::new(frames::reserve_huge(bytes)?, bytes))
    }

    fn has_nodes(&self) -> bool {
        nodes::are_several()
    }

    fn node_of_cpu(&self, cpu: usize) -> usize {
        nodes::of_cpu(cpu)
    }

    fn home(&self) -> Option<usize> {
        nodes::home()
    }

    fn prefer_node(&self, node: Option<usize>) {
        policy::prefer(node);
    }

    fn has_policy(&self, addr: usize) -> bool {
        !policy::any_page_will_do(addr)
    }

    fn node_of(&self, slot: Span) -> Option<usize> {
        nodes::of_slot(slot)
    }

    fn unclaimed(&self, rest: Span) -> usize {
        migrate::last_area(rest)
    }

    fn open_first(&self, span: Span) -> bool {
        madvise(span, libc::MADV_DODUMP);
        mprotect(span, libc::PROT_READ | libc::PROT_WRITE)
    }

    fn reset(&self, span: Span) -> bool {
        let open = libc::PROT_READ | libc::PROT_WRITE;
        // At the limit of areas no mapping can be made. But closing makes one area of many, and then one may be.
        let replace = || map_at(span, open, libc::MAP_FIXED);
        let done = replace() || mprotect(span, libc::PROT_NONE) && replace();
        if !done {
            mprotect(span, open);
        }
        done
    }

    fn map_again(&self, span: Span) -> bool {
        map_at(span, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_FIXED_NOREPLACE)
    }

    fn release(&self, span: Span) -> bool {
        // SAFETY: the engine's own spans, which it will not use again.
        unsafe { syscall(libc::SYS_munmap, [span.start, span.bytes(), 0, 0, 0, 0]) }.is_ok()
    }

    fn retire(&self) {
        isolate::retire();
    }

    fn discard(&self, span: Span) -> bool {
        let alone = take_turn();
        let dropped = madvise(span, libc::MADV_DONTNEED);
        if alone {
            DISCARDING.store(false, Ordering::Release);
        }
        // Locked memory cannot be dropped, but replaced.
        dropped || self.reset(span)
    }

    fn discard_apart(&self, span: Span) -> bool {
        frames::discard(span)
    }

    fn huge(&self, span: Span, huge: Huge) {
        if (span.start | span.end) % SLOT != 0 {
            ADVISED_BETWEEN_SLOTS.store(true, Ordering::Relaxed);
        }
        let advice = match huge {
            Huge::Advised => libc::MADV_HUGEPAGE,
            Huge::Refused => libc::MADV_NOHUGEPAGE,
        };
        madvise(span, advice);
    }

    fn zero_hot(&self, span: Span) {
        let choice = zero::hot(span.bytes());
        let engine = choice.map_or_else(|| zero::COLD.fastest(), Choice::pick);
        let start = raw::now_ns();
        // SAFETY: an open span of the engine's own, of whole pages.
        let done = unsafe { engine.zero(span.start as *mut u8, span.bytes()) };
        if !done {
            // SAFETY: as above.
            unsafe { zero::string_store(span.start as *mut u8, span.bytes()) }
        } else if let Some(choice) = choice {
            choice.took(engine, span.bytes(), raw::now_ns() - start);
        }
    }

    fn scrub_largest(&self) -> usize {
        job::BYTES
    }

    fn scrub_start(&self, span: Span) -> Option<Job> {
        job::start(span)
    }

    fn scrub_poll(&self, job: &mut Job) -> Poll {
        job::poll(job)
    }

    fn scrub_end(&self, job: Job) {
        job::end(job);
    }

    fn drop_engine(&self, engine: Engine) {
        zero::COLD.failed(engine);
    }

    fn migrate(&self, from: Span, to: usize) -> bool {
        migrate::migrate(from, to)
    }

    fn move_pages(&self, from: Span, to: usize) -> Option<usize> {
        moves::move_pages(from, to)
    }

    fn may_move(&self) -> bool {
        moves::is_open()
    }

    fn can_drop(&self, span: Span) -> bool {
        // It refuses what `MADV_DONTNEED` refuses: locked and unmapped memory. It changes no byte.
        madvise(span, libc::MADV_COLD)
    }

    fn drop_zero(&self, slot: Span, room: Span) -> Option<bool> {
        unwritten::drop_zero(slot, room)
    }

    fn copy_from_program(&self, from: Span, to: usize) -> bool {
        looks::copy(from, to)
    }

    fn isolate(&self, span: Span) -> Option<Span> {
        isolate::isolate(span)
    }

    fn drop_isolated(&self, span: Span) {
        isolate::drop_isolated(span);
    }

    fn forked(&self) {
        home::note(raw::process_number() as i32);
        stack::forget();
        thread::forget();
        moves::forget();
        looks::forget();
        area::forget();
        proc_file::forget();
        cgroup::forget();
        isolate::forget();
    }

    fn touch(&self, addr: usize) {
        // Not `fetch_or`: the compiler knows that it changes nothing, and makes it a read.
        // SAFETY: an atomic OR of zero changes nothing; the caller keeps the page mapped meanwhile.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            core::arch::asm!("lock or byte ptr [{}], 0", in(reg) addr, options(nostack));
        }
        // SAFETY: as above; an exclusive store of what was just loaded.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            core::arch::asm!("2: ldxrb {v:w}, [{a}]", "stxrb {s:w}, {v:w}, [{a}]", "cbnz {s:w}, 2b",
                a = in(reg) addr, v = out(reg) _, s = out(reg) _, options(nostack));
        }
    }

    fn touch_if_open(&self, addr: usize) -> bool {
        looks::unless_ended(|| madvise(Span::new(addr & !(PAGE - 1), PAGE), libc::MADV_POPULATE_WRITE))
    }

    fn poison(&self, span: Span) {
        // SAFETY: an open span of the engine's own without an owner.
        unsafe { core::ptr::write_bytes(span.start as *mut u8, 0xA5, span.bytes()) }
    }

    fn first_nonzero(&self, span: Span) -> Option<usize> {
        // SAFETY: an open span, aligned for u64.
        let words = unsafe { core::slice::from_raw_parts(span.start as *const u64, span.bytes() / 8) };
        words.iter().position(|&w| w != 0).map(|i| span.start + i * 8)
    }

    fn nonzero_pages(&self, span: Span, samples: usize) -> usize {
        let pages = span.bytes() / PAGE;
        let step = (pages / samples.max(1)).max(1);
        (0..pages)
            .step_by(step)
            .filter(|i| {
                let page = somewhere(span.start + i * PAGE, step) as *const u64;
                // SAFETY: inside an open span; the program may write meanwhile, hence volatile.
                (0..PAGE / 8).any(|w| unsafe { page.add(w).read_volatile() } != 0)
            })
            .count()
    }

    fn peek_nonzero_pages(&self, span: Span, samples: usize) -> usize {
        looks::nonzero_pages(span, samples)
    }

    fn sign(&self, slot: Span) {
        for (at, word) in signatures(slot) {
            // SAFETY: inside an open span of the engine's own, aligned.
            unsafe { (at as *mut u64).write(word) };
        }
    }

    fn overwritten(&self, slot: Span) -> usize {
        // SAFETY: inside an open span; the program may write meanwhile, hence volatile.
        signatures(slot).filter(|&(at, word)| unsafe { (at as *const u64).read_volatile() } != word).count()
    }

    fn peek_overwritten(&self, slot: Span) -> usize {
        looks::overwritten(slot)
    }

    fn end_looks(&self) {
        looks::end();
    }

    fn area(&self, addr: usize) -> Option<Span> {
        area::area(addr)
    }

    fn present(&self, addr: usize) -> bool {
        in_core(addr) == Some(true)
    }

    fn missing(&self, addr: usize) -> bool {
        in_core(addr) == Some(false)
    }

    fn present_pages(&self, slot: Span) -> usize {
        looks::present_pages(slot)
    }

    fn is_short_of_memory(&self) -> bool {
        pressure::is_short()
    }

    fn resident_bytes(&self) -> Option<usize> {
        pressure::resident()
    }

    fn headroom(&self) -> Headroom {
        cgroup::headroom()
    }

    fn now_ns(&self) -> u64 {
        raw::now_ns()
    }

    fn thread_ns(&self) -> u64 {
        raw::thread_ns()
    }

    fn process_ns(&self) -> u64 {
        raw::process_ns()
    }

    fn load(&self) -> u64 {
        raw::load()
    }

    fn announce(&self, bytes: usize) {
        warm::announce(bytes);
    }

    fn usage(&self) -> Option<Usage> {
        usage::usage()
    }

    fn file_area(&self, addr: usize) -> Option<FileArea> {
        area::of_file(addr)
    }

    fn present_runs(&self, span: Span, runs: &mut [Span]) -> Option<(usize, usize)> {
        pagemap::present_runs(span, runs)
    }

    fn read_ahead_bytes(&self, device: (u32, u32)) -> usize {
        mapped_file::piece(device)
    }

    fn read_ahead(&self, span: Span) {
        mapped_file::ask(span);
    }

    fn read_ahead_room(&self) -> usize {
        mapped_file::room()
    }

    fn avoid_cpu(&self, cpu: Option<usize>) {
        // Where a thread of the program's does the work, it stays where the program wants it.
        if thread::is_this() {
            thread::avoid_cpu(cpu);
        }
    }

    fn relax(&self, turn: u32) {
        // The other thread may be of idle priority and wait for this very processor: spin briefly, then sleep.
        if turn < 200 {
            core::hint::spin_loop();
        } else {
            if turn == 200 {
                thread::hurry();
            }
            raw::sleep_ns(50_000);
        }
    }
}

/// Memory for a test, open, with what is said of huge pages.
#[cfg(test)]
pub(super) fn memory_with(slots: usize, huge: Huge) -> Span {
    let span = reserve(slots * SLOT, SLOT).unwrap();
    assert!(Linux.open_first(span));
    Linux.huge(span, huge);
    span
}

/// The same, with huge pages.
#[cfg(test)]
pub(super) fn memory(slots: usize) -> Span {
    memory_with(slots, Huge::Advised)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_that_ends_between_slots_is_remembered() {
        let memory = memory_with(2, Huge::Refused);
        Linux.huge(Span::new(memory.start, SLOT + PAGE), Huge::Advised);
        assert!(has_advised_between_slots());
    }
}
