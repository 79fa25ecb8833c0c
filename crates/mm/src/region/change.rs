//! Changes of a region: map, unmap, protect, remap, advise, populate.
//!
//! Each takes the range lock on what it changes, and marks the areas there as changing. Then it waits until no thread
//! installs pages there any more, and only then asks the kernel. Changes of different parts go on at the same time.

use faultless_base::sync::Access;
use faultless_base::sys::mmu::{Mmu, Rights, Source};
use faultless_base::{Errno, PAGE, SLOT, Span};

pub use crate::region::Refused;
use crate::region::area::{Attributes, View};

use crate::region::Region;
use crate::region::entry::Kind;
use crate::region::frames::{FaultContext, Version, Wait};
use crate::region::install::Met;

/// What the program says about a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// It is used from the front to the back.
    Normal,
    /// It is used in no order.
    Random,
    /// Huge pages are welcome.
    Huge,
    /// They are not.
    NoHuge,
    /// The content is not wanted any more: the part is as it was when it was mapped.
    DontNeed,
}

/// Bytes that populating brings at a time where pages go to a store.
const BROUGHT_AT_ONCE: usize = 64 * PAGE;

impl<M: Mmu> Region<M> {
    fn check(&self, span: Span) -> Result<(), Refused> {
        let inside = !span.is_empty() && self.span.clip(span) == span;
        if inside && span.start % PAGE == 0 && span.end % PAGE == 0 { Ok(()) } else { Err(Refused::Outside) }
    }

    /// Maps a part of the region where nothing is mapped. `offset` is what belongs there of the backing.
    pub fn map(&self, span: Span, attributes: Attributes, offset: usize) -> Result<(), Refused> {
        self.check(span)?;
        let _range = self.ranges.lock(span, Access::Exclusive);
        let mut free = true;
        self.areas.each(span, |_| free = false);
        if !free {
            return Err(Refused::Mapped);
        }
        self.areas.keep_room()?;
        let given = self.mmu.protect(span, attributes.rights);
        self.insert_or_not(given.map_err(Refused::Kernel), View { span, offset, attributes })
    }

    /// Inserts an area for which room is kept, if what came before has worked.
    fn insert_or_not(&self, before: Result<(), Refused>, view: View) -> Result<(), Refused> {
        match before {
            Ok(()) => Ok(self.with_room(|| self.areas.insert(view))?),
            Err(refused) => {
                self.areas.give_room();
                Err(refused)
            }
        }
    }

    /// Unmaps all areas in a part of the region. Its memory is gone, an access is an error, and what the program said of
    /// it to the kernel does not hold for what is mapped there next.
    pub fn unmap(&self, span: Span) -> Result<(), Refused> {
        self.check(span)?;
        let _range = self.ranges.lock(span, Access::Exclusive);
        let kernel = || {
            let moved = self.hand_over(span);
            // First, because pages without rights cannot be moved.
            let aside = self.set_aside(span);
            let renewed = self.drop_by(span, || self.mmu.renew(span));
            if renewed.is_err() {
                // A part may be closed, and pages move only between places of equal rights.
                self.restore_rights(span);
            }
            self.settle(&aside, renewed.is_ok());
            self.settle_handed_over(&moved, renewed.is_ok());
            renewed
        };
        self.change(span, kernel, |_| None)
    }

    /// Changes what a part may be used for; all of it is mapped.
    pub fn protect(&self, span: Span, rights: Rights) -> Result<(), Refused> {
        self.check(span)?;
        let _range = self.ranges.lock(span, Access::Exclusive);
        if !self.areas.covers(span) {
            return Err(Refused::NotMapped);
        }
        let kernel = || {
            if rights == Rights::None {
                self.preserve(span);
            }
            self.mmu.protect(span, rights)
        };
        self.change(span, kernel, |view| Some(Attributes { rights, ..view.attributes }))
    }

    /// Moves a part, all of which is mapped with one set of attributes, to where nothing is mapped.
    pub fn remap(&self, from: Span, to: usize) -> Result<(), Refused> {
        let target = Span::new(to, from.bytes());
        self.check(from)?;
        self.check(target)?;
        if self.has_swap() {
            return Err(Refused::Swapped);
        }
        let hull = Span { start: from.start.min(to), end: from.end.max(target.end) };
        // One lock around both: with two locks, one after the other, two threads could wait for each other.
        let _range = self.ranges.lock(hull, Access::Exclusive);
        let (mut first, mut pieces, mut free) = (None, 0, true);
        self.areas.each(target, |_| free = false);
        self.areas.each(from, |view| {
            first = first.or(Some(view));
            pieces += 1;
        });
        let (Some(view), true) = (first, self.areas.covers(from)) else { return Err(Refused::NotMapped) };
        if !free || pieces != 1 {
            return Err(if free { Refused::NotMapped } else { Refused::Mapped });
        }
        let offset = view.offset + (from.start - view.span.start);
        let rights = view.attributes.rights;
        self.areas.keep_room()?;
        let kernel = || {
            self.preserve(from);
            self.mmu.protect(from, Rights::None)?;
            let brought = self.left_to_kernel(from);
            if view.attributes.kernel {
                self.mmu.take_from_kernel(from)?;
            }
            self.entries.put(target, Kind::Pages, |turn| self.mmu.relax(turn));
            let mut moved = self.mmu.relocate(from, to);
            if moved.is_ok() {
                moved = self.mmu.protect(target, rights);
                let _ = moved.or_else(|_| self.mmu.relocate(target, from.start));
            }
            match moved {
                Ok(()) => {
                    self.count_more(brought);
                    self.note_brought(target);
                }
                Err(_) if view.attributes.kernel => _ = self.mmu.leave_to_kernel(from),
                Err(_) => {}
            }
            moved
        };
        // No fault finds the new place before the old one is gone.
        let moved = self.change(from, kernel, |_| None);
        let attributes = Attributes { kernel: false, ..view.attributes };
        self.insert_or_not(moved, View { span: target, offset, attributes })
    }

    /// Takes advice about a part, all of which is mapped.
    pub fn advise(&self, span: Span, advice: Advice) -> Result<(), Refused> {
        self.check(span)?;
        let _range = self.ranges.lock(span, Access::Exclusive);
        if !self.areas.covers(span) {
            return Err(Refused::NotMapped);
        }
        let again = matches!(advice, Advice::Normal | Advice::DontNeed);
        let kernel = || {
            if advice == Advice::DontNeed {
                let moved = self.hand_over(span);
                self.keep_frames(span);
                let dropped = self.drop_pages(span);
                self.settle_handed_over(&moved, dropped.is_ok());
                dropped?;
            }
            if matches!(advice, Advice::Huge | Advice::NoHuge) {
                self.mmu.prefer_huge(span, advice == Advice::Huge);
            }
            if again { self.take_from_kernel(span) } else { Ok(()) }
        };
        self.change(span, kernel, |View { attributes, .. }| {
            let attributes = Attributes { kernel: attributes.kernel && !again, ..attributes };
            Some(match advice {
                Advice::Normal => Attributes { random: false, ..attributes },
                Advice::Random => Attributes { random: true, ..attributes },
                Advice::Huge => Attributes { huge: true, ..attributes },
                Advice::NoHuge => Attributes { huge: false, ..attributes },
                Advice::DontNeed => attributes,
            })
        })
    }

    /// Brings the missing pages of a part, all of which is mapped for some access; how many those were.
    pub fn populate(&self, span: Span) -> Result<usize, Refused> {
        self.check(span)?;
        let mut context = FaultContext::new(0);
        let populated = self.populate_with(span, &mut context);
        self.count_all(&context.stats);
        populated
    }

    fn populate_with<'a>(&'a self, span: Span, context: &mut FaultContext<'a>) -> Result<usize, Refused> {
        if !self.areas.covers(span) {
            return Err(Refused::NotMapped);
        }
        let (mut at, mut installed) = (span.start, 0);
        while at < span.end {
            // Changes and faults that have to wait do not wait for all of it.
            let slot = Span::new(at & !(SLOT - 1), SLOT).clip(span);
            installed += self.populate_on(slot, &mut at, context)?;
            // Not with the range lock: the holder of a buffer may wait for that lock.
            if at < slot.end {
                self.frames.take(context, Wait::Yes, &self.mmu).map_err(|_| Refused::Kernel(Errno::ENOMEM))?;
            }
        }
        Ok(installed)
    }

    /// Goes on with that from `at` to the end of a slot, as far as that needs no buffer which is not taken.
    fn populate_on<'a>(
        &'a self,
        span: Span,
        at: &mut usize,
        context: &mut FaultContext<'a>,
    ) -> Result<usize, Refused> {
        let _range = self.ranges.lock(span, Access::Shared);
        if !self.areas.covers(span) {
            return Err(Refused::NotMapped);
        }
        let mut installed = 0;
        while *at < span.end {
            let Some(area) = self.areas.find_locked(*at) else { return Err(Refused::NotMapped) };
            // No thread changes this part, but a neighbour may cut its own part off the area before it is read.
            let Some((view, sequence)) = area.read().filter(|(view, _)| view.span.contains(*at)) else {
                self.mmu.relax(0);
                continue;
            };
            if view.attributes.backed && self.frames.take(context, Wait::No, &self.mmu).is_err() {
                break;
            }
            let end = view.span.end.min(span.end).min((*at & !(SLOT - 1)) + SLOT);
            let version = Version { area: area.id(), sequence };
            installed += self.populate_piece(&view, version, Span { start: *at, end }, context)?;
            *at = end;
        }
        Ok(installed)
    }

    fn populate_piece(
        &self,
        view: &View,
        version: Version,
        piece: Span,
        context: &mut FaultContext<'_>,
    ) -> Result<usize, Refused> {
        let raises = self.mmu.raises_faults() && !view.attributes.kernel;
        match view.attributes.rights {
            Rights::None => return Err(Refused::Rights),
            Rights::Write if !raises => self.mmu.touch(piece).map_err(Refused::Kernel)?,
            _ => {}
        }
        if !raises {
            return Ok(piece.bytes() / PAGE);
        }
        let source = match view.attributes.backed {
            false => Source::Zeroes,
            true => {
                let offset = view.offset + (piece.start - view.span.start);
                self.fill(context, offset, piece.bytes(), version).map(Source::Buffer).map_err(Refused::Kernel)?
            }
        };
        // No more at once than there is room for.
        let most = if self.has_swap() { BROUGHT_AT_ONCE } else { piece.bytes() };
        let mut installed = 0;
        for at in (piece.start..piece.end).step_by(most) {
            let part = Span::new(at, most).clip(piece);
            let _coming = self.take_room_for(part);
            let entry = self.entries.lock(at, |turn| self.mmu.relax(turn));
            let brought = self.install(entry, source, view, part, Met::All, &mut context.stats);
            self.mmu.wake(part);
            installed += brought.map_err(Refused::Kernel)?.pages;
        }
        Ok(installed)
    }
}
