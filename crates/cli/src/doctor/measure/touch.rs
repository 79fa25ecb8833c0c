//! What touching memory costs, and giving it back.

use faultless_base::sys::linux::Linux;
use faultless_base::sys::{Huge, Sys};
use faultless_base::{PAGE, SLOT, SLOT_PAGES, Span};

use super::area::{Area, time};
use super::{Probe, Samples};

/// Small pages: giving back, the fault, and the touch of what is there. The memory stays in use between the rounds:
/// what lies idle may be taken by the hypervisor.
pub fn small(bytes: usize) -> Result<Probe, String> {
    let area = Area::new(bytes, Huge::Refused)?;
    area.touch(area.span());
    Ok(Box::new(move |samples: &mut Samples| {
        // One sample for each slot: a short one is seldom disturbed.
        let mut each = |id, work: &dyn Fn(Span)| {
            for i in 0..bytes / SLOT {
                let slot = area.piece(i, SLOT);
                samples.add(id, time(|| work(slot)) / SLOT_PAGES as f64);
            }
        };
        each("discard_small", &|slot| Linux.discard(slot));
        each("small_fault", &|slot| area.touch(slot));
        each("touch", &|slot| area.touch(slot));
        Ok(())
    }))
}

/// Huge pages: closing and opening, moving by page tables, giving back, and the fault.
pub fn huge(bytes: usize) -> Result<Probe, String> {
    let area = Area::new(bytes, Huge::Advised)?;
    if !area.has_huge_pages() {
        return Err("the kernel gives no huge pages here".into());
    }
    area.touch(area.span());
    let other = Area::new(bytes, Huge::Advised)?;
    Ok(Box::new(move |samples: &mut Samples| {
        let mut refused = false;
        let mut each = |id, work: &mut dyn FnMut(Span, Span)| {
            for i in 0..bytes / SLOT {
                let (here, there) = (area.piece(i, SLOT), other.piece(i, SLOT));
                samples.add(id, time(|| work(here, there)));
            }
        };
        each("close", &mut |here, _| refused |= !Linux.close(here));
        each("open", &mut |here, _| refused |= !Linux.open(here));
        each("mremap", &mut |here, there| refused |= !Linux.migrate(here, there.start));
        each("mremap", &mut |here, there| refused |= !Linux.migrate(there, here.start));
        each("discard_huge", &mut |here, _| Linux.discard(here));
        each("huge_fault", &mut |here, _| area.write(here.start));
        if refused { Err("the kernel refuses".into()) } else { Ok(()) }
    }))
}

/// What the first touch of `bytes` costs, and the second, in nanoseconds for each 4 KiB: memory that a hypervisor has
/// taken back is brought by the first.
pub fn twice(bytes: usize) -> Result<(f64, f64), String> {
    let area = Area::new(bytes, Huge::Advised)?;
    let pages = (bytes / PAGE) as f64;
    let first = time(|| area.touch(area.span())) / pages;
    Linux.discard(area.span());
    Ok((first, time(|| area.touch(area.span())) / pages))
}
