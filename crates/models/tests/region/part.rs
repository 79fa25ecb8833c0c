//! Threads that each change a part of a region, and know what must be there.

use std::sync::Arc;

use faultless_base::Span;
use faultless_base::sys::mmu::{Mmu, Rights};
use faultless_mm::region::area::Attributes;
use faultless_mm::region::change::Advice;
use shuttle::thread;

use super::{ATTRIBUTES, Memory, PART, access, chance, page};

/// What a thread knows of its part, page by page: nothing is mapped, or this byte is there.
struct Part {
    first: usize,
    pages: [Option<u8>; PART],
    rights: Rights,
}

impl Part {
    fn new(id: usize) -> Self {
        Self { first: id * PART, pages: [Some(0); PART], rights: Rights::Write }
    }

    fn span(&self) -> Span {
        page(self.first, PART)
    }

    fn check(&self, region: &Memory, i: usize) {
        let expected = self.pages[i].filter(|_| self.rights > Rights::None);
        assert_eq!(access(region, self.first + i, None), expected, "page {i} of {:x?}", self.span());
    }

    /// One call, or accesses.
    fn step(&mut self, region: &Memory) {
        let i = chance(PART);
        let n = 1 + chance(PART - i);
        let span = page(self.first + i, n);
        let whole = self.pages.iter().all(Option::is_some);
        let pages = &mut self.pages[i..i + n];
        match chance(9) {
            0 => {
                region.unmap(span).unwrap();
                pages.fill(None);
            }
            1 => {
                let free = pages.iter().all(Option::is_none);
                let rights = self.rights;
                let done = region.map(span, Attributes { rights, ..ATTRIBUTES }, 0);
                assert_eq!(done.is_ok(), free, "{done:?}");
                if free {
                    pages.fill(Some(0));
                }
            }
            2 if whole => {
                let rights = [Rights::None, Rights::Read, Rights::Write][chance(3)];
                region.protect(self.span(), rights).unwrap();
                self.rights = rights;
            }
            3 if pages.iter().all(Option::is_some) => {
                region.advise(span, Advice::DontNeed).unwrap();
                pages.fill(Some(0));
            }
            4 => {
                // Within the own part: to where nothing is.
                let to = chance(PART - n + 1);
                let target = page(self.first + to, n);
                if region.remap(span, target.start).is_ok() {
                    let moved: Vec<_> = pages.iter_mut().map(Option::take).collect();
                    self.pages[to..to + n].copy_from_slice(&moved);
                }
            }
            5 if self.rights > Rights::None && pages.iter().all(Option::is_some) => {
                region.populate(span).unwrap();
            }
            6 if self.rights == Rights::Write && self.pages[i].is_some() => {
                let byte = 1 + chance(250) as u8;
                assert_eq!(access(region, self.first + i, Some(byte)), self.pages[i]);
                self.pages[i] = Some(byte);
            }
            _ => self.check(region, i),
        }
    }
}

/// `threads` threads, each with its part and `steps` steps; and how many pages there are then.
pub fn run(region: &Arc<Memory>, threads: usize, steps: usize) {
    work(region, threads, steps);
    check(region);
}

/// The threads alone.
pub fn work(region: &Arc<Memory>, threads: usize, steps: usize) {
    let work = |id: usize| {
        let region = region.clone();
        thread::spawn(move || {
            let mut part = Part::new(id);
            (0..steps).for_each(|_| part.step(&region));
            (0..PART).for_each(|i| part.check(&region, i));
        })
    };
    let threads: Vec<_> = (0..threads).map(work).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// No thread uses the region.
pub fn check(region: &Memory) {
    region.areas().check();
    assert_eq!(region.present_pages(), region.present(region.span()), "pages");
}
