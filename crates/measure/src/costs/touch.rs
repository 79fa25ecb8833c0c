//! What touching memory costs, and giving it back.

use std::time::{Duration, Instant};

use faultless_base::sys::linux::Linux;
use faultless_base::sys::{Huge, Sys};
use faultless_base::{SLOT, SLOT_PAGES, Span};

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
        each("discard_small", &|slot| _ = Linux.discard(slot));
        each("small_fault", &|slot| area.touch(slot));
        each("touch", &|slot| area.touch(slot));
        Ok(())
    }))
}

/// Huge pages: moving by frames and by page tables, giving back, and the fault.
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
        let mut moves = |from: Span, to: Span| refused |= Linux.move_pages(from, to.start) != Some(SLOT);
        each("move", &mut |here, there| moves(here, there));
        each("move", &mut |here, there| moves(there, here));
        each("mremap", &mut |here, there| refused |= !Linux.migrate(here, there.start));
        each("mremap", &mut |here, there| refused |= !Linux.migrate(there, here.start));
        each("discard_huge", &mut |here, _| _ = Linux.discard(here));
        each("huge_fault", &mut |here, _| area.write(here.start));
        if refused { Err("the kernel refuses".into()) } else { Ok(()) }
    }))
}

/// The first touch of memory, and the second.
pub struct Twice {
    /// Bytes that were touched.
    pub bytes: usize,
    /// Nanoseconds for each 4 KiB of the first touch.
    pub first: f64,
    /// The same after the memory was given back.
    pub second: f64,
}

/// Touches memory twice, up to `bytes` or as much as is brought within `patience`: what a hypervisor has taken back is
/// brought by the first touch.
pub fn twice(bytes: usize, patience: Duration) -> Result<Twice, String> {
    let area = Area::new(bytes, Huge::Advised)?;
    let (start, mut slots, mut first) = (Instant::now(), 0, 0.0);
    while slots < bytes / SLOT && (slots == 0 || start.elapsed() < patience) {
        first += time(|| area.touch(area.piece(slots, SLOT)));
        slots += 1;
    }
    let touched = Span::new(area.span().start, slots * SLOT);
    Linux.discard(touched);
    let second = time(|| area.touch(touched));
    let pages = (slots * SLOT_PAGES) as f64;
    Ok(Twice { bytes: touched.bytes(), first: first / pages, second: second / pages })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_touch_that_takes_long_is_cut_short() {
        assert_eq!(twice(8 * SLOT, Duration::ZERO).unwrap().bytes, SLOT);
        assert_eq!(twice(8 * SLOT, Duration::MAX).unwrap().bytes, 8 * SLOT);
    }
}
