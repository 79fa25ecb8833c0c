//! Page tables that are in the way.
//!
//! An access to a missing page leaves a table for its 2 MiB behind, even where the fault is delivered to this
//! program. A huge page that is moved there has to be split. A kernel that frees empty tables when memory is dropped
//! (Linux 6.14 and newer, `CONFIG_PT_RECLAIM`) leaves none behind where a change drops whole slots.
//!
//! A fault must not take its table away like that: no call drops memory only if it is empty and still the region's.
//! Another thread may have unmapped it since, and have memory of its own there.

use core::sync::atomic::{AtomicUsize, Ordering};

use super::raw::{self, Access, syscall};
use super::{Huge, Sys, linux::Linux};
use crate::{PAGE, SLOT, Span};

static KNOWN: AtomicUsize = AtomicUsize::new(UNKNOWN);
const UNKNOWN: usize = 0;
const KEEPS: usize = 1;
const FREES: usize = 2;

/// Tables that are tried with: enough to stand out against what other threads do meanwhile.
const TRIED: usize = 64;

/// Finds out what this kernel does.
pub fn probe() {
    if KNOWN.load(Ordering::Relaxed) == UNKNOWN {
        let frees = try_out().unwrap_or(false);
        KNOWN.store(if frees { FREES } else { KEEPS }, Ordering::Relaxed);
    }
}

/// Whether tables of slots that are dropped as a whole are gone then.
pub fn are_freed() -> bool {
    KNOWN.load(Ordering::Relaxed) == FREES
}

fn drop_pages(span: Span) -> bool {
    let args = [span.start, span.bytes(), libc::MADV_DONTNEED as usize, 0, 0, 0];
    // SAFETY: memory of the caller's, which is not needed.
    unsafe { syscall(libc::SYS_madvise, args) }.is_ok()
}

/// Makes tables, drops their pages, and sees whether the process has fewer tables then.
fn try_out() -> Option<bool> {
    let bytes = (TRIED + 1) * SLOT;
    let whole = raw::map_private(bytes, Access::Write)?;
    let slots = Span::new(whole.next_multiple_of(SLOT), TRIED * SLOT);
    Linux.huge(slots, Huge::Refused);
    for slot in (slots.start..slots.end).step_by(SLOT) {
        // SAFETY: fresh memory. A read takes none.
        unsafe { (slot as *const u8).read_volatile() };
    }
    let before = table_kib();
    let dropped = (slots.start..slots.end).step_by(SLOT).all(|slot| drop_pages(Span::new(slot, SLOT)));
    let after = table_kib();
    // SAFETY: mapped above.
    unsafe { raw::unmap(whole, bytes) };
    Some(dropped && before? >= after? + TRIED * PAGE / 1024 / 2)
}

/// Memory of the page tables of this process.
fn table_kib() -> Option<usize> {
    raw::status_number("VmPTE").map(|kib| kib as usize)
}
