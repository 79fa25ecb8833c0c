//! Steps on mappings: mmap, munmap, mprotect, madvise, mlock and plain use.

use std::ops::Range;

use crate::call::{self, ANON, GUARD_INSTALL, GUARD_REMOVE, PAGE, RW};
use crate::world::{FILE_PAGES, Kind, Page, World};

const PROTS: [i32; 6] = [libc::PROT_NONE, libc::PROT_READ, RW, RW, RW, RW | libc::PROT_EXEC];

impl World {
    /// A number of pages as programs ask for them: few, about a multiple of 2 MiB, or just such a multiple.
    pub fn size(&mut self) -> usize {
        let huge = 512 * self.rng.weighted(&[0, 8, 6, 4, 3, 2, 2, 1, 1]);
        match self.rng.below(8) {
            0 => self.rng.within(1, 15),
            1 => self.rng.within(16, 511),
            2..=4 => huge,
            5 => huge + self.rng.within(1, 511),
            6 => huge + self.rng.within(1, 3) - 2,
            _ => self.rng.of(&[512 * 8, 512 * 13, 512 * 16, 512 * 16, 512 * 32]),
        }
    }

    /// Maps private anonymous memory somewhere.
    pub fn map(&mut self) {
        let n = self.size();
        if self.mapped() + n * PAGE > self.limit {
            return self.unmap_region();
        }
        let prot = self.rng.of(&[RW, RW, RW, RW, RW, RW, RW, libc::PROT_READ, libc::PROT_NONE]);
        let flags = ANON | self.rng.of(&[0, 0, libc::MAP_NORESERVE, libc::MAP_STACK]);
        let hint = match self.rng.below(4) {
            0 => 0x10_0000_0000 + (self.rng.below(1 << 20) << 21),
            1 if !self.regions.is_empty() => {
                let r = self.rng.below(self.regions.len());
                self.regions[r].at(self.regions[r].pages.len())
            }
            _ => 0,
        };
        let bytes = n * PAGE - self.rng.of(&[0, 0, 0, 1, PAGE - 1]);
        self.say(format_args!("map {n} pages, prot {prot}, flags {flags:#x}"));
        match call::mmap(hint, bytes, prot, flags, -1, 0) {
            Ok(at) => {
                let area = self.number();
                self.add(at, vec![Some(Page::fresh(Kind::Anon, prot, area)); n]);
                self.fresh();
            }
            Err(e) => self.wrong(format_args!("error {e}")),
        }
    }

    /// Verifies the newest region, whole, and writes to some of it.
    pub fn fresh(&mut self) {
        let r = self.regions.len() - 1;
        let n = self.regions[r].pages.len();
        if self.rng.one_in(2) {
            self.verify(r, 0..n, true);
        }
        if !self.rng.one_in(4) {
            let part = self.part(0..n);
            let every = self.rng.of(&[1, 1, 3, 512]);
            self.write(r, part, every);
        }
    }

    /// Maps a part of the file somewhere.
    pub fn map_file(&mut self) {
        let n = self.rng.within(1, FILE_PAGES);
        let from = self.rng.below(FILE_PAGES - n + 1);
        let shared = self.rng.one_in(3);
        let (kind, flags): (fn(usize) -> Kind, i32) =
            if shared { (Kind::Shared, libc::MAP_SHARED) } else { (Kind::Private, libc::MAP_PRIVATE) };
        self.say(format_args!("map {n} pages of the file, shared {shared}"));
        match call::mmap(0, n * PAGE, RW, flags, self.fd, from * PAGE) {
            Ok(at) => {
                let area = self.number();
                self.add(at, (0..n).map(|i| Some(Page::fresh(kind(from + i), RW, area))).collect());
                self.fresh();
            }
            Err(e) => self.wrong(format_args!("error {e}")),
        }
    }

    /// Puts a new mapping over a part of an old one.
    pub fn map_over(&mut self) {
        let Some((r, range)) = self.any_range(false) else { return };
        self.place(r, range, libc::MAP_FIXED);
    }

    /// Puts a new mapping at a range of a region, with the given flag of the fixed kind.
    pub fn place(&mut self, r: usize, range: Range<usize>, fixed: i32) {
        let (id, at, n) = (self.regions[r].id, self.regions[r].at(range.start), range.len());
        let prot = self.rng.of(&PROTS);
        let from = self.rng.below(FILE_PAGES);
        let in_file = from + n <= FILE_PAGES;
        let area = self.number();
        let (flags, fd, kind): (i32, i32, fn(usize) -> Kind) = match self.rng.below(6) {
            0 | 1 if in_file => (libc::MAP_PRIVATE, self.fd, Kind::Private),
            2 if in_file => (libc::MAP_SHARED, self.fd, Kind::Shared),
            3 => (ANON | libc::MAP_NORESERVE, -1, |_| Kind::Anon),
            _ => (ANON, -1, |_| Kind::Anon),
        };
        let prot = if fd >= 0 { prot & RW } else { prot };
        let offset = if fd >= 0 { from * PAGE } else { 0 };
        let bytes = n * PAGE - self.rng.of(&[0, 0, 0, PAGE / 2]);
        let answer = call::mmap(at, bytes, prot, flags | fixed, fd, offset);
        let shown = answer.map(|got| got == at);
        self.say(format_args!("place r{id} {range:?} flags {:#x} prot {prot}: {shown:?}", flags | fixed));
        if answer.is_ok() {
            for i in range.clone() {
                self.regions[r].pages[i] = Some(Page::fresh(kind(from + i - range.start), prot, area));
            }
        }
        self.verify(r, range.clone(), false);
        if self.rng.one_in(2) {
            self.write(r, range, 2);
        }
    }

    /// A new mapping must not replace an old one with MAP_FIXED_NOREPLACE.
    pub fn map_beside(&mut self) {
        let Some((r, range)) = self.any_range(false) else { return };
        let (id, at) = (self.regions[r].id, self.regions[r].at(range.start));
        let flags = ANON | libc::MAP_FIXED_NOREPLACE | self.rng.of(&[0, libc::MAP_FIXED]);
        let answer = call::mmap(at, range.len() * PAGE, RW, flags, -1, 0);
        self.say(format_args!("not replace r{id} {range:?}: {:?}", answer.map(|_| ())));
        self.verify(r, range, false);
    }

    /// Reads and writes.
    pub fn use_pages(&mut self) {
        let Some((r, range)) = self.any_range(false) else { return };
        let every = self.rng.of(&[1, 1, 1, 7, 512]);
        let id = self.regions[r].id;
        self.say(format_args!("use r{id} {range:?}"));
        self.verify(r, range.clone(), false);
        self.write(r, range, every);
    }

    /// Unmaps a part of a region.
    pub fn unmap(&mut self) {
        let Some((r, range)) = self.any_range(false) else { return };
        self.unmap_range(r, range);
    }

    /// Unmaps all of a region, run by run.
    pub fn unmap_region(&mut self) {
        let Some((r, _)) = self.any_page() else { return };
        while let Some(i) = self.regions[r].pages.iter().position(Option::is_some) {
            let run = self.regions[r].run(i, false);
            self.unmap_range(r, run);
        }
    }

    fn unmap_range(&mut self, r: usize, range: Range<usize>) {
        let region = &self.regions[r];
        let (id, at) = (region.id, region.at(range.start));
        let bytes = range.len() * PAGE - self.rng.of(&[0, 0, 0, 1, PAGE - 1]);
        let answer = call::munmap(at, bytes);
        self.say(format_args!("unmap r{id} {range:?}: {answer:?}"));
        self.regions[r].pages[range.clone()].fill(None);
        self.hole(r, range);
    }

    /// Changes the protection of a part of a region.
    pub fn protect(&mut self) {
        let Some((r, range)) = self.any_range(false) else { return };
        let (id, at) = (self.regions[r].id, self.regions[r].at(range.start));
        let prot = self.rng.of(&PROTS);
        let answer = call::mprotect(at, range.len() * PAGE, prot);
        self.say(format_args!("protect r{id} {range:?} {prot}: {answer:?}"));
        if answer.is_ok() {
            self.split(r, range.clone());
            self.regions[r].each(range.clone(), |p| p.prot = prot);
        }
        self.verify(r, range, false);
    }

    /// Gives advice about a part of a region.
    pub fn advise(&mut self) {
        let Some((r, range)) = self.any_range(true) else { return };
        let (id, at) = (self.regions[r].id, self.regions[r].at(range.start));
        let advice = self.rng.of(&[
            libc::MADV_DONTNEED,
            libc::MADV_DONTNEED,
            libc::MADV_DONTNEED,
            libc::MADV_FREE,
            libc::MADV_HUGEPAGE,
            libc::MADV_NOHUGEPAGE,
            libc::MADV_WIPEONFORK,
            libc::MADV_KEEPONFORK,
            libc::MADV_DONTFORK,
            libc::MADV_DOFORK,
            libc::MADV_DONTDUMP,
            libc::MADV_SEQUENTIAL,
            libc::MADV_NORMAL,
            libc::MADV_WILLNEED,
            libc::MADV_POPULATE_WRITE,
            libc::MADV_COLLAPSE,
            GUARD_INSTALL,
            GUARD_INSTALL,
            GUARD_REMOVE,
        ]);
        let pages = || self.regions[r].pages[range.clone()].iter().flatten();
        // A child's copy of guard pages in wiped memory is the kernel's own affair.
        let odd = match advice {
            GUARD_INSTALL => pages().any(|p| p.wiped || p.kind != Kind::Anon),
            libc::MADV_WIPEONFORK => pages().any(|p| p.guard),
            _ => false,
        };
        if odd {
            return;
        }
        let answer = call::madvise(at, range.len() * PAGE, advice);
        // Whether a collapse works depends on where the kernel put the mapping.
        let shown = if advice == libc::MADV_COLLAPSE { Ok(0) } else { answer };
        self.say(format_args!("advise r{id} {range:?} {advice}: {shown:?}"));
        if answer.is_ok() {
            if !matches!(
                advice,
                libc::MADV_DONTNEED | libc::MADV_FREE | GUARD_INSTALL | GUARD_REMOVE | libc::MADV_COLLAPSE
            ) {
                self.split(r, range.clone());
            }
            self.regions[r].each(range.clone(), |p| heed(p, advice));
        }
        self.verify(r, range, false);
    }

    /// Locks or unlocks a few pages.
    pub fn lock(&mut self) {
        let Some((r, range)) = self.any_range(false) else { return };
        let range = range.start..range.end.min(range.start + 32);
        let (id, at) = (self.regions[r].id, self.regions[r].at(range.start));
        let lock = self.rng.one_in(2);
        let refused = self.regions[r].pages[range.clone()].iter().flatten().any(|p| !p.readable());
        if lock && refused {
            return;
        }
        let bytes = range.len() * PAGE;
        let answer = if lock { call::mlock(at, bytes) } else { call::munlock(at, bytes) };
        self.say(format_args!("lock r{id} {range:?} {lock}: {answer:?}"));
        if answer.is_ok() {
            self.split(r, range.clone());
            self.regions[r].each(range.clone(), |p| p.locked = lock);
        }
        self.verify(r, range, false);
    }
}

/// What an advice that was taken does to a page.
fn heed(page: &mut Page, advice: i32) {
    match advice {
        libc::MADV_DONTNEED => page.drop_content(),
        libc::MADV_FREE if page.word != 0 => page.lazy = true,
        libc::MADV_WIPEONFORK => page.wiped = true,
        libc::MADV_KEEPONFORK => page.wiped = false,
        libc::MADV_DONTFORK => page.unforked = true,
        libc::MADV_DOFORK => page.unforked = false,
        GUARD_INSTALL => {
            page.drop_content();
            page.guard = true;
        }
        GUARD_REMOVE => page.guard = false,
        _ => {}
    }
}
