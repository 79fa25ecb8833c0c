//! What a range must be right after it was unmapped: no access, and for every call an error.
//!
//! Only a program with a single thread may look: in others another thread may have got the addresses by now.

use std::ops::Range;

use crate::call::{self, PAGE, RW};
use crate::probe;
use crate::world::World;

/// Holes looked at again after a while; the background thread's own mappings do not fit below.
const LASTING: usize = 4096;

impl World {
    /// Looks at a hole that this step made in a region, and perhaps fills it.
    pub fn hole(&mut self, r: usize, range: Range<usize>) {
        if !self.solo || range.is_empty() {
            return;
        }
        self.closed(r, range.clone());
        if self.rng.one_in(6) && range.len() < LASTING {
            call::sleep_ms(self.rng.within(6, 20));
            self.closed(r, range.clone());
        }
        if self.rng.one_in(3) {
            self.calls_fail(r, range.clone());
            self.closed(r, range.clone());
        }
        match self.rng.below(8) {
            0 => {
                let part = self.part(range);
                self.place(r, part, libc::MAP_FIXED_NOREPLACE);
            }
            1 => {
                let part = self.part(range);
                self.place(r, part, libc::MAP_FIXED);
            }
            2 => self.place(r, range, libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE),
            3 => self.place_beyond(r, range),
            _ => {}
        }
    }

    /// Every access to a hole faults.
    pub(crate) fn closed(&mut self, r: usize, range: Range<usize>) {
        let every = (range.len() / 64).max(1);
        for i in range.clone().step_by(every).chain([range.end - 1]) {
            let (id, at) = (self.regions[r].id, self.regions[r].at(i));
            if probe::load(at).is_some() || probe::store(at, 0) {
                self.wrong(format_args!("r{id} page {i} is unmapped, but can be accessed"));
            }
        }
    }

    /// Calls about a hole, or about a range that ends in one.
    fn calls_fail(&mut self, r: usize, range: Range<usize>) {
        let (id, at, bytes) = (self.regions[r].id, self.regions[r].at(range.start), range.len() * PAGE);
        let advice = self.rng.of(&[libc::MADV_DONTNEED, libc::MADV_FREE, libc::MADV_POPULATE_WRITE]);
        let quiet = self.rng.of(&[libc::MADV_HUGEPAGE, libc::MADV_DONTFORK, libc::MADV_SEQUENTIAL]);
        let answers = [
            call::mprotect(at, bytes, RW),
            call::madvise(at, bytes, advice),
            call::madvise(at, bytes, quiet),
            call::mincore(at, bytes),
            call::msync(at, bytes),
            call::mlock(at, bytes),
            call::munlock(at, bytes),
            call::mremap(at, PAGE, 2 * PAGE, libc::MREMAP_MAYMOVE, 0),
            call::mremap(at, PAGE, PAGE, 0, 0),
            call::munmap(at, bytes),
        ];
        let shown = answers.map(|a| a.map(|_| ()));
        self.say(format_args!("calls in the hole r{id} {range:?}: {shown:?}"));
        let before = range.start.checked_sub(1).filter(|&i| self.regions[r].pages[i].is_some());
        if let Some(last) = before {
            self.calls_across(r, last, range);
        }
    }

    /// Calls about a range whose first page is mapped and whose others are not.
    fn calls_across(&mut self, r: usize, last: usize, range: Range<usize>) {
        let (id, at, bytes) = (self.regions[r].id, self.regions[r].at(last), (range.len() + 1) * PAGE);
        let Some(page) = self.regions[r].pages[last] else { return };
        let prot = self.rng.of(&[RW, libc::PROT_READ]);
        let dropped = call::madvise(at, bytes, libc::MADV_DONTNEED);
        let answers = [call::mprotect(at, bytes, prot), dropped, call::mincore(at, bytes), call::msync(at, bytes)];
        self.say(format_args!("calls across r{id} {last}, {range:?}: {answers:?}"));
        self.split(r, last..last + 1);
        self.regions[r].each(last..last + 1, |p| {
            p.prot = prot;
            if !page.locked {
                p.drop_content();
            }
        });
        self.verify(r, last..last + 1, true);
    }

    /// A mapping that must replace nothing, for the hole and the mapped page before it.
    fn place_beyond(&mut self, r: usize, range: Range<usize>) {
        let Some(before) = range.start.checked_sub(1).filter(|&i| self.regions[r].pages[i].is_some()) else {
            return;
        };
        let at = self.regions[r].at(before);
        let flags = call::ANON | libc::MAP_FIXED_NOREPLACE;
        let answer = call::mmap(at, (range.len() + 1) * PAGE, RW, flags, -1, 0);
        let id = self.regions[r].id;
        self.say(format_args!("not replace across r{id} {before}, {range:?}: {:?}", answer.map(|_| ())));
        self.verify(r, before..before + 1, true);
        self.closed(r, range);
    }
}
