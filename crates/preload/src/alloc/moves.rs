//! What realloc does where the engine cannot make a block larger where it stands, nor move it.
//!
//! The C library moves a large block of its own by one call of the kernel. That takes its pages with all that the
//! program has done to them, and reads nothing. It copies where the kernel refuses: the block is several areas. So does
//! this.

use core::ffi::c_void;

use faultless_base::sys::linux::Linux;
use faultless_base::sys::{Sys, copy_past_guards, raw};
use faultless_base::units::round_up;
use faultless_base::{Errno, PAGE, SLOT, Span};
use faultless_mm::Need;
use faultless_mm::blocks::LARGEST_OF_HEAP;

use crate::alloc::beside::Beside;
use crate::alloc::{MALLOC_ALIGN, allocate, give_back, is_ours, is_small, is_special, large, next, once_more};
use crate::kernel::behind::{Function, is_foreign};
use crate::kernel::dispatch::syscall;
use crate::kernel::moved_ranges;
use crate::kernel::smaps::Mapping;
use crate::runtime::inside::{are_calls_over, aside};
use crate::runtime::seen;
use crate::runtime::{areas, engine};

/// The largest block of the C library's that is copied when it grows beyond the threshold; larger ones it moves by
/// page tables itself.
const LARGEST_COPY: usize = 1 << 20;

/// A page that no thread may touch, without an area of its own (Linux 6.13).
pub const MADV_GUARD_INSTALL: usize = 102;

/// Where the program has given memory beside the arena attributes, which a copy would lose.
static BESIDE: Beside = Beside::new();

/// It changes attributes of `span`.
pub fn note_beside(span: Span) {
    if !engine::owns(span.start) || !engine::owns(span.end.saturating_sub(1)) {
        BESIDE.note(span);
    }
}

/// It changes some, and where is not known.
pub fn note_anywhere() {
    BESIDE.note(Span { start: 0, end: usize::MAX });
}

/// Whether a block of the C library's may have attributes. Which of its blocks keep them when they grow is the C
/// library's to say: it moves those that are mappings, and copies the others.
unsafe fn is_special_beside(block: *mut c_void) -> bool {
    // SAFETY: the caller's promise.
    BESIDE.has_any()
        && unsafe { next::size(block) }.is_some_and(|bytes| BESIDE.holds(Span::new(block as usize, bytes)))
}

/// Resizes a block of the C library's, which may become one of ours.
pub unsafe fn adopt(block: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: the caller's promise; two different blocks of at least the copied size.
    unsafe {
        let is_special = is_special_beside(block);
        if !is_small(bytes)
            && !is_special
            && !seen::watches()
            && let Some(old) = next::size(block).filter(|old| *old <= LARGEST_COPY)
        {
            let new = large(bytes, MALLOC_ALIGN, Need::Any);
            if !new.is_null() {
                core::ptr::copy_nonoverlapping(block.cast::<u8>(), new.cast::<u8>(), old.min(bytes));
                next::free(block);
                return new;
            }
        }
        if is_special && let Some(new) = carried_again(block, bytes) {
            return new;
        }
        let new = match bytes {
            0 => next::realloc(block, 0),
            _ => once_more(|| next::realloc(block, bytes)),
        };
        if is_special && !new.is_null() && new != block && may_move_pages(new) {
            note_beside(Span::new(new as usize, bytes));
        }
        new
    }
}

/// Whether a block, new from realloc, may have the pages of the old one. Another allocator may move them for any.
unsafe fn may_move_pages(block: *mut c_void) -> bool {
    // SAFETY: the caller's promise.
    is_foreign(Function::Realloc) || unsafe { next::is_mapping(block) }
}

/// Enters the engine, also one that has retired, unless a filter may forbid its system calls.
pub fn enter_for_calls() -> Option<engine::Entered> {
    engine::enter().filter(|_| !are_calls_over())
}

/// A new block with the bytes of `block`, one of ours, which is freed; null when there is no memory, and nothing
/// changed.
pub unsafe fn move_to(block: *mut c_void, old: usize, bytes: usize) -> *mut c_void {
    let copied = Span::new(block as usize, old.min(bytes));
    let is_special = is_special(copied.start);
    // Where the engine does not serve any more, larger blocks are not in memory twice.
    let is_over = bytes > LARGEST_OF_HEAP && (engine::is_retired() || are_calls_over());
    // The C library's blocks have a page of their own before the first one of the program's, if that was to begin a
    // page. What the program did to its own divides such a block.
    let is_aligned = || engine::running().is_some_and(|engine| engine.space.is_page_aligned(copied.start));
    // SAFETY: the caller's promise.
    unsafe {
        if (is_special && !is_aligned() || is_over && !is_special)
            && let Some(new) = carried(copied, bytes)
        {
            return new;
        }
        if seen::watches()
            && let Some(new) = present_moved_to(copied, bytes)
        {
            give_back(block);
            return new;
        }
        let new = allocate(bytes);
        if !new.is_null() {
            if is_special {
                copy_special(copied, new as usize);
            } else {
                copy_and_drop(copied, new as usize, old > SLOT);
            }
            give_back(block);
        }
        new
    }
}

/// Gives the pages of `block`, one of ours, to a new block of the C library's, as it gives those of its own to a larger
/// one. `None`: the C library would copy, too, or the kernel refuses; nothing changed.
unsafe fn carried(block: Span, bytes: usize) -> Option<*mut c_void> {
    // SAFETY: the caller's promise.
    unsafe {
        let Carried { new, is_moved } = carry(block, bytes)?;
        // The block's place is the arena's again once it is mapped. Where it cannot be, it is not used any more.
        if !is_moved || enter_for_calls().is_some_and(|engine| engine.space.map_again(block)) {
            give_back(block.start as *mut c_void);
        } else if let Some(engine) = engine::running() {
            engine.space.lose_block(block.start);
        }
        Some(new)
    }
}

/// The same of a block of the C library's that came so, and grows again. The C library would copy it: the page before
/// it belongs to it, and has other attributes.
unsafe fn carried_again(block: *mut c_void, bytes: usize) -> Option<*mut c_void> {
    // SAFETY: the caller's promise; what did not move is mapped still.
    unsafe {
        let old = Mark::read(block)?;
        let all = next::usable(block);
        if bytes <= all || old.bytes() > all {
            return None;
        }
        let Carried { new, is_moved } = carry(old, bytes)?;
        let rest = (old.end as *const u8, new.cast::<u8>().add(old.bytes()));
        core::ptr::copy_nonoverlapping(rest.0, rest.1, all - old.bytes());
        // The C library unmaps all of it. Where another thread has the place by now, the rest is not used any more.
        if !is_moved || moved_ranges::is_taken_again(old) {
            next::free(block);
        }
        Some(new)
    }
}

/// In the page before a carried block, which is the block's, and which the C library leaves alone but for its end.
struct Mark;

impl Mark {
    const WORD: usize = 0x6361_7272_6965_6431;

    fn of(block: *mut c_void) -> *mut [usize; 2] {
        block.cast::<u8>().wrapping_sub(PAGE / 2).cast()
    }

    /// Writes it: the pages from `place` on were moved there.
    unsafe fn write(place: Span) {
        let block = place.start as *mut c_void;
        // SAFETY: the caller's promise: a mapping that begins a page before the block.
        unsafe { Self::of(block).write([place.start ^ Self::WORD, place.bytes()]) };
    }

    /// What was moved there, where `block` is such a one.
    unsafe fn read(block: *mut c_void) -> Option<Span> {
        let start = block as usize;
        // SAFETY: a mapping whose block begins with a page has a page before it.
        let [word, bytes] =
            unsafe { (start % PAGE == 0 && next::is_mapping(block)).then(|| Self::of(block).read())? };
        (word == start ^ Self::WORD).then(|| Span::new(start, bytes))
    }
}

/// A new block of the C library's with the bytes of another one.
struct Carried {
    new: *mut c_void,
    /// Whether it has the pages of the other one, where nothing is mapped any more.
    is_moved: bool,
}

/// Gives the pages of `block` to a new block of the C library's. Where the new one is not a mapping of its own, it gets a
/// copy. `None`: the C library would copy, too, or the kernel refuses; nothing changed.
unsafe fn carry(block: Span, bytes: usize) -> Option<Carried> {
    let length = round_up(bytes, PAGE)?;
    let is_one = is_one_area(block);
    let may_move = match enter_for_calls() {
        // Advice of ours may divide it, and how its pages came. The C library writes to the begin of its blocks, and so
        // moves none that is closed.
        Some(_engine) => matches!(areas::look_up(block), Mapping::Plain | Mapping::One),
        None => is_one,
    };
    if !may_move {
        return None;
    }
    // SAFETY: asks for a new block, and frees it where it is of no use. What is moved or copied there is the caller's.
    unsafe {
        let new = next::memalign(PAGE, bytes);
        if new.is_null() {
            return None;
        }
        if !next::is_mapping(new) {
            // To free it again could take calls of the C library's that a plain program would not make.
            copy_special(block, new as usize);
            return Some(Carried { new, is_moved: false });
        }
        // What grows has the same attributes. The new block has that many whole pages: it begins with one, and ends
        // with one.
        let place = Span::new(new as usize, length);
        let is_lost = match is_one {
            true => {
                let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
                let args = [block.start, block.bytes(), length, flags as usize, place.start, 0];
                syscall(libc::SYS_mremap, args).err().map(|_| !moved_ranges::is_kept(place))
            }
            false => {
                let moved = aside(|| moved_ranges::move_onto(block, length, place.start));
                moved.err().map(|error| error == Errno::EEXIST)
            }
        };
        if let Some(is_lost) = is_lost {
            // Otherwise another thread has memory in its midst, and it is not used any more.
            if !is_lost {
                next::free(new);
            }
            return None;
        }
        // It grows again with what it has.
        Mark::write(place);
        note_beside(place);
        Some(Carried { new, is_moved: true })
    }
}

/// Whether all of a block is one area of the kernel's.
fn is_one_area(block: Span) -> bool {
    // To grow a part of the arena by a page fails; with another error where the kernel has several areas.
    let args = [block.start, block.bytes(), block.bytes() + PAGE, 0, 0, 0];
    // SAFETY: what is behind the block is mapped: nothing changes.
    match unsafe { syscall(libc::SYS_mremap, args) } {
        Err(error) => error != Errno::EFAULT,
        Ok(_) => {
            // SAFETY: nothing was there.
            let _ = unsafe { syscall(libc::SYS_munmap, [block.end, PAGE, 0, 0, 0, 0]) };
            true
        }
    }
}

/// Copies a block that the program may have closed or guarded in part. A copy of a closed part faults by the program's
/// own doing; the C library copies such a block, too. Guards alone do not divide a block: they are guards in the new
/// one, or zeroes where that is not ours.
unsafe fn copy_special(from: Span, to: usize) {
    let Some(engine) = enter_for_calls() else {
        // SAFETY: the caller's promise.
        return unsafe { core::ptr::copy_nonoverlapping(from.start as *const u8, to as *mut u8, from.bytes()) };
    };
    copy_past_guards(from, to, |page| {
        // SAFETY: a page of the new block.
        unsafe {
            if is_ours(to as *mut c_void) {
                engine.space.taint(page);
                let _ = syscall(libc::SYS_madvise, [page.start, page.bytes(), MADV_GUARD_INSTALL, 0, 0, 0]);
            } else {
                core::ptr::write_bytes(page.start as *mut u8, 0, page.bytes());
            }
        }
    });
}

/// Copies a block. A large one is not in memory twice: where the kernel refuses, or a filter may, it is until the end.
unsafe fn copy_and_drop(from: Span, to: usize, is_large: bool) {
    for start in (from.start..from.end).step_by(SLOT) {
        let part = Span::new(start, SLOT).clip(from);
        // SAFETY: the caller's promise; a part of a block that is about to be freed.
        unsafe {
            let to = (to + (start - from.start)) as *mut u8;
            core::ptr::copy_nonoverlapping(start as *const u8, to, part.bytes());
            if is_large && part.bytes() == SLOT && enter_for_calls().is_some() {
                let _ = raw::syscall(libc::SYS_madvise, [start, SLOT, libc::MADV_DONTNEED as usize, 0, 0, 0]);
            }
        }
    }
}

/// A new block with the bytes of `copied` that are there, and zeroes elsewhere. The program may watch the missing
/// pages, and the thread that brings them may be this one.
fn present_moved_to(copied: Span, bytes: usize) -> Option<*mut c_void> {
    // SAFETY: asks for a new block.
    let new = unsafe { next::calloc(1, bytes) };
    let may_look = !new.is_null() && !are_calls_over();
    let done = may_look && aside(|| Linux.copy_from_program(copied, new as usize));
    if !done && !new.is_null() {
        // SAFETY: the new block.
        unsafe { next::free(new) };
    }
    done.then_some(new)
}
