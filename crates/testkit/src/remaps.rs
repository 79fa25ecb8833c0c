//! Steps with mremap.
//!
//! A source lies in one area, because the kernel refuses others. What depends on where the kernel put things,
//! such as whether a mapping grows where it stands, is undone and not logged.

use std::ops::Range;

use crate::call::{self, PAGE};
use crate::world::{FILE_PAGES, Kind, Page, World};

const MAYMOVE: i32 = libc::MREMAP_MAYMOVE;
const FIXED: i32 = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;

impl World {
    /// Resizes, moves or copies a part of a region.
    pub fn remap(&mut self) {
        let Some((r, range)) = self.any_range(true) else { return };
        if self.regions[r].pages[range.clone()].iter().flatten().any(|p| p.locked) {
            return;
        }
        match self.rng.below(10) {
            0 | 1 => self.shrink(r, range),
            2..=4 => self.grow(r, range),
            5 => self.try_in_place(r, range),
            6 | 7 => self.move_onto(r, range),
            8 => self.leave_behind(r, range),
            _ => self.copy_shared(r, range),
        }
    }

    fn kind(&self, r: usize, i: usize) -> Option<Kind> {
        self.regions[r].pages[i].map(|p| p.kind)
    }

    fn shrink(&mut self, r: usize, range: Range<usize>) {
        let (id, at) = (self.regions[r].id, self.regions[r].at(range.start));
        let kept = self.rng.within(1, range.len());
        let flags = self.rng.of(&[0, MAYMOVE]);
        let answer = call::mremap(at, range.len() * PAGE, kept * PAGE, flags, 0);
        self.say(format_args!("shrink r{id} {range:?} to {kept}: {:?}", answer.map(|got| got == at)));
        let gone = range.start + kept..range.end;
        self.regions[r].pages[gone.clone()].fill(None);
        self.hole(r, gone);
        self.verify(r, range, false);
    }

    fn grow(&mut self, r: usize, range: Range<usize>) {
        let more = self.rng.of(&[1, 16, 511, 512, 512, 1024]);
        if self.kind(r, range.start) != Some(Kind::Anon) || self.mapped() + more * PAGE > self.limit {
            return;
        }
        let (id, at, n) = (self.regions[r].id, self.regions[r].at(range.start), range.len());
        // Made before the call: an allocation after it may land in the hole.
        let mut pages = self.regions[r].pages[range.clone()].to_vec();
        self.extend(&mut pages, more);
        let answer = call::mremap(at, n * PAGE, (n + more) * PAGE, MAYMOVE, 0);
        self.say(format_args!("grow r{id} {range:?} by {more}: {:?}", answer.map(|_| ())));
        let Ok(to) = answer else { return };
        self.regions[r].pages[range.clone()].fill(None);
        let new = self.number();
        pages.iter_mut().flatten().for_each(|p| p.area = new);
        self.add(to, pages);
        // Where it went is chance, so nothing here may depend on it but what is looked at.
        let start = self.regions[r].at(range.start);
        if self.solo && (to + (n + more) * PAGE <= start || start + n * PAGE <= to) {
            self.closed(r, range);
        }
        let last = self.regions.len() - 1;
        self.verify(last, 0..n + more, true);
        self.write(last, n..n + more, 3);
    }

    /// The pages that an anonymous mapping has when it grew: empty, otherwise like the last one.
    fn extend(&mut self, pages: &mut Vec<Option<Page>>, more: usize) {
        let Some(mut page) = pages.last().copied().flatten() else { return };
        page.drop_content();
        page.guard = false;
        pages.extend((0..more).map(|_| Some(page)));
    }

    fn try_in_place(&mut self, r: usize, range: Range<usize>) {
        let (at, n) = (self.regions[r].at(range.start), range.len());
        let more = self.rng.of(&[1, 512, 1024]);
        if range.end < self.regions[r].pages.len() || self.kind(r, range.start) != Some(Kind::Anon) {
            return;
        }
        let id = self.regions[r].id;
        self.say(format_args!("grow r{id} {range:?} in place if possible"));
        let prot = self.regions[r].pages[range.start].map_or(0, |p| p.prot);
        match call::mremap(at, n * PAGE, (n + more) * PAGE, 0, 0) {
            Ok(got) if got == at => {
                for i in (n..n + more).filter(|_| prot & libc::PROT_READ != 0) {
                    if crate::probe::load(at + i * PAGE) != Some(0) {
                        self.wrong(format_args!("page {i} of a mapping that grew in place is not zero"));
                    }
                }
                let back = call::mremap(at, (n + more) * PAGE, n * PAGE, 0, 0);
                if back != Ok(at) {
                    self.wrong(format_args!("it does not shrink again: {back:?}"));
                }
            }
            Ok(_) => self.wrong(format_args!("it moved")),
            Err(libc::ENOMEM) => {}
            Err(e) => self.wrong(format_args!("error {e}")),
        }
        self.verify(r, range, false);
    }

    fn move_onto(&mut self, r: usize, range: Range<usize>) {
        let Some((t, mut target)) = self.any_range(false) else { return };
        let anon = self.kind(r, range.start) == Some(Kind::Anon);
        let n = range.len();
        target.end = target.end.min(target.start + if anon { n + 600 } else { n });
        let m = target.len();
        let (id, at) = (self.regions[r].id, self.regions[r].at(range.start));
        let (to_id, to) = (self.regions[t].id, self.regions[t].at(target.start));
        let overlap = at < to + m * PAGE && to < at + n * PAGE;
        let flags = if self.rng.one_in(8) { libc::MREMAP_FIXED } else { FIXED };
        // Made before the call: an allocation after it may land in the hole.
        let mut pages = self.regions[r].pages[range.clone()].to_vec();
        pages.truncate(m);
        self.extend(&mut pages, m.saturating_sub(n));
        let answer = call::mremap(at, n * PAGE, m * PAGE, flags, to);
        let shown = answer.map(|got| got == to);
        self.say(format_args!("move r{id} {range:?} onto r{to_id} {target:?} flags {flags}: {shown:?}"));
        if answer.is_ok() && !overlap {
            self.regions[r].pages[range.clone()].fill(None);
            let new = self.number();
            pages.iter_mut().flatten().for_each(|p| p.area = new);
            self.regions[t].pages[target.clone()].copy_from_slice(&pages);
            self.hole(r, range.clone());
        }
        self.verify(t, target, false);
        self.verify(r, range, false);
    }

    /// MREMAP_DONTUNMAP: the pages go, the mapping stays and is empty.
    fn leave_behind(&mut self, r: usize, range: Range<usize>) {
        if self.kind(r, range.start) != Some(Kind::Anon) || self.mapped() + range.len() * PAGE > self.limit {
            return;
        }
        let (id, at, bytes) = (self.regions[r].id, self.regions[r].at(range.start), range.len() * PAGE);
        let answer = call::mremap(at, bytes, bytes, MAYMOVE | libc::MREMAP_DONTUNMAP, 0);
        self.say(format_args!("move r{id} {range:?} and leave it mapped: {:?}", answer.map(|_| ())));
        let Ok(to) = answer else { return };
        let mut pages = self.regions[r].pages[range.clone()].to_vec();
        let new = self.number();
        pages.iter_mut().flatten().for_each(|p| p.area = new);
        self.regions[r].each(range.clone(), |p| {
            p.drop_content();
            p.guard = false;
        });
        self.split(r, range.clone());
        self.add(to, pages);
        self.verify(r, range.clone(), true);
        let last = self.regions.len() - 1;
        self.verify(last, 0..range.len(), true);
        self.write(r, range, 5);
    }

    /// An old size of 0 makes a second mapping of shared memory, and is an error for private memory.
    fn copy_shared(&mut self, r: usize, range: Range<usize>) {
        let (id, at, n) = (self.regions[r].id, self.regions[r].at(range.start), range.len());
        let Some(page) = self.regions[r].pages[range.start] else { return };
        let target = self.any_range(false).filter(|_| self.rng.one_in(2));
        let n = target.as_ref().map_or(n, |(_, t)| n.min(t.len()));
        let (flags, to) = match &target {
            Some((t, part)) => (FIXED, self.regions[*t].at(part.start)),
            None => (MAYMOVE, 0),
        };
        if target.is_some() && at < to + n * PAGE && to <= at {
            return;
        }
        let answer = call::mremap(at, 0, n * PAGE, flags, to);
        self.say(format_args!("copy r{id} {range:?}, {n} pages, flags {flags}: {:?}", answer.map(|_| ())));
        let (Ok(got), Kind::Shared(first)) = (answer, page.kind) else { return };
        let area = self.number();
        let copy = (0..n).map(|i| {
            let kind = Kind::Shared((first + i).min(FILE_PAGES));
            Some(Page { kind, area, ..page }).map(|mut p| {
                p.drop_content();
                p
            })
        });
        let copy: Vec<_> = copy.collect();
        match target {
            Some((t, part)) => {
                self.regions[t].pages[part.start..part.start + n].copy_from_slice(&copy);
                self.verify(t, part, false);
            }
            None => {
                self.add(got, copy);
                let last = self.regions.len() - 1;
                self.verify(last, 0..n, false);
            }
        }
    }
}
