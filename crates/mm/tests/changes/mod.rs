//! What a program does to the pages of a region, and what each page is then, by a naive oracle.

use faultless_base::PAGE;
use faultless_base::sys::mmu::Rights;
use faultless_fake::mmu::{FakeMmu, Found, backing_byte};
use faultless_mm::region::Region;
use faultless_mm::region::area::Attributes;
use faultless_mm::region::change::Advice;

use crate::access::{access, span};

/// One thing that it does.
#[derive(Clone, Debug)]
pub enum Change {
    /// Of this many pages from the first one on; of the backing, from that page of it on.
    Map(usize, usize, Option<usize>),
    Unmap(usize, usize),
    Protect(usize, usize, Rights),
    Remap(usize, usize, usize),
    Advise(usize, usize, Advice),
    Populate(usize, usize),
    Read(usize),
    Write(usize, u8),
}

/// What a page is, as a program without regions would have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    pub rights: Rights,
    pub byte: u8,
    /// What it is when it is dropped.
    fresh: u8,
}

/// All pages of a region.
pub struct Oracle {
    pub pages: Vec<Option<Expected>>,
    /// Mapped memory is like this.
    attributes: Attributes,
}

impl Oracle {
    /// Nothing is mapped.
    pub fn new(pages: usize, attributes: Attributes) -> Self {
        Self { pages: vec![None; pages], attributes }
    }

    fn part(&mut self, at: usize, n: usize) -> Option<&mut [Option<Expected>]> {
        self.pages.get_mut(at..at + n)
    }

    fn is_mapped(&mut self, at: usize, n: usize) -> bool {
        self.part(at, n).is_some_and(|part| part.iter().all(Option::is_some))
    }

    fn is_free(&mut self, at: usize, n: usize) -> bool {
        self.part(at, n).is_some_and(|part| part.iter().all(Option::is_none))
    }

    /// Does it to both, and compares what comes of it.
    pub fn step(&mut self, region: &Region<FakeMmu>, change: Change) {
        match change {
            Change::Map(at, n, backed) => {
                let attributes = Attributes { backed: backed.is_some(), ..self.attributes };
                let done = region.map(span(at, n), attributes, backed.unwrap_or(0) * PAGE);
                assert_eq!(done.is_ok(), self.is_free(at, n), "{done:?}");
                if done.is_ok() {
                    for (i, page) in self.part(at, n).unwrap().iter_mut().enumerate() {
                        let fresh = backed.map_or(0, |offset| backing_byte((offset + i) * PAGE));
                        *page = Some(Expected { rights: Rights::Write, byte: fresh, fresh });
                    }
                }
            }
            Change::Unmap(at, n) => {
                assert_eq!(region.unmap(span(at, n)).is_ok(), self.part(at, n).is_some());
                self.part(at, n).into_iter().flatten().for_each(|page| *page = None);
            }
            Change::Protect(at, n, rights) => {
                let done = region.protect(span(at, n), rights).is_ok();
                assert_eq!(done, self.is_mapped(at, n));
                if done {
                    self.part(at, n).unwrap().iter_mut().flatten().for_each(|page| page.rights = rights);
                }
            }
            Change::Remap(at, n, to) => {
                if region.remap(span(at, n), span(to, n).start).is_ok() {
                    assert!(self.is_mapped(at, n) && self.is_free(to, n));
                    let old: Vec<_> = self.part(at, n).unwrap().iter_mut().map(Option::take).collect();
                    self.part(to, n).unwrap().copy_from_slice(&old);
                }
            }
            Change::Advise(at, n, advice) => {
                let done = region.advise(span(at, n), advice).is_ok();
                assert_eq!(done, self.is_mapped(at, n));
                if done && advice == Advice::DontNeed {
                    self.part(at, n).unwrap().iter_mut().flatten().for_each(|page| page.byte = page.fresh);
                }
            }
            Change::Populate(at, n) => {
                let part = self.part(at, n);
                if part.is_some_and(|p| p.iter().all(|p| p.is_some_and(|p| p.rights > Rights::None))) {
                    region.populate(span(at, n)).unwrap();
                    assert!((at..at + n).all(|page| matches!(region.read(span(page, 1).start), Found::Byte(_))));
                }
            }
            Change::Read(at) => {
                let expected = self.pages[at].filter(|page| page.rights >= Rights::Read).map(|page| page.byte);
                assert_eq!(access(region, at, None).ok().map(|(byte, _)| byte), expected, "page {at}");
            }
            Change::Write(at, byte) => {
                let page = self.pages[at].as_mut().filter(|page| page.rights == Rights::Write);
                let found = access(region, at, Some(byte)).ok().map(|(byte, _)| byte);
                assert_eq!(found, page.as_ref().map(|page| page.byte), "page {at}");
                if let Some(page) = page {
                    page.byte = byte;
                }
            }
        }
    }
}
