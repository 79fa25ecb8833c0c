//! Random operations of several threads on one region, each in a part of its own, beside ordinary memory: every byte
//! that is looked at is what it is there.

mod chance;

use std::ops::Range;
use std::thread;

use chance::Chance;
use faultless::region::{Advice, Delivery, Error, Region, Rights};
use faultless_testkit::limit::limit;

const PAGE: usize = 4096;
/// Pages of a thread's part. Parts begin inside huge pages.
const PART: usize = 900;
const THREADS: usize = 3;
const STEPS: usize = 400;

/// A part as it must be: for each page its first byte, if it is mapped.
struct Part<'a> {
    region: &'a Region,
    first: usize,
    pages: Vec<Option<u8>>,
    chance: Chance,
}

impl Part<'_> {
    fn range(&self, from: usize, n: usize) -> Range<usize> {
        (self.first + from) * PAGE..(self.first + from + n) * PAGE
    }

    fn at(&self, i: usize) -> *mut u8 {
        self.region.as_ptr().wrapping_add((self.first + i) * PAGE)
    }

    fn check(&self, i: usize) {
        if let Some(byte) = self.pages[i] {
            // SAFETY: mapped for reading, and this thread's own.
            let page = unsafe { std::slice::from_raw_parts(self.at(i), PAGE) };
            assert_eq!(page[0], byte, "page {i} of the part at {}", self.first);
            assert!(page[1..].iter().all(|rest| *rest == 0), "page {i}: not zero behind its first byte");
        }
    }

    fn step(&mut self) {
        let i = self.chance.below(PART);
        let n = 1 + self.chance.below((PART - i).min([3, 40, 600][i % 3]));
        let range = self.range(i, n);
        let all = self.pages[i..i + n].iter().all(Option::is_some);
        let none = self.pages[i..i + n].iter().all(Option::is_none);
        match self.chance.below(12) {
            0 => {
                self.region.unmap(range).unwrap();
                self.pages[i..i + n].fill(None);
            }
            1 | 2 => match self.region.map(range, Rights::Write) {
                Ok(()) => {
                    assert!(none);
                    self.pages[i..i + n].fill(Some(0));
                }
                Err(error) => assert!(error == Error::Mapped && !none, "{error}"),
            },
            3 if all => {
                self.region.advise(range, Advice::DontNeed).unwrap();
                self.pages[i..i + n].fill(Some(0));
            }
            4 => {
                let to = self.chance.below(PART - n + 1);
                if self.region.remap(range, (self.first + to) * PAGE).is_ok() {
                    assert!(all);
                    let moved: Vec<_> = self.pages[i..i + n].iter_mut().map(Option::take).collect();
                    self.pages[to..to + n].copy_from_slice(&moved);
                }
            }
            5 if all => {
                self.region.protect(range.clone(), Rights::Read).unwrap();
                self.check(i);
                self.region.protect(range, Rights::Write).unwrap();
            }
            6 if all => self.region.populate(range).unwrap(),
            7 if all => {
                let advice = [Advice::Random, Advice::Normal, Advice::Huge, Advice::NoHuge][n % 4];
                self.region.advise(range, advice).unwrap();
            }
            _ => {
                // A walk, so that windows grow.
                for page in i..i + n {
                    self.check(page);
                    if let Some(byte) = &mut self.pages[page] {
                        *byte = byte.wrapping_add(page as u8 | 1);
                        // SAFETY: mapped for writing, and this thread's own.
                        unsafe { self.region.as_ptr().add((self.first + page) * PAGE).write(*byte) };
                    }
                }
            }
        }
    }
}

#[test]
fn threads_find_what_ordinary_memory_would_hold() {
    limit();
    for (seed, delivery) in [(1, Delivery::Direct), (2, Delivery::Thread), (3, Delivery::Signal)] {
        let length = THREADS * PART * PAGE;
        let builder =
            Region::builder(length).delivery(delivery).huge_pages(true).handlers(2).windows(PAGE, 4 << 20);
        let region = match builder.build() {
            Ok(region) => region,
            Err(Error::NoUserfaultfd(error)) => {
                faultless_testkit::skip(format_args!("{delivery:?}, error {error}"));
                continue;
            }
            Err(error) => panic!("{delivery:?}: {error}"),
        };
        thread::scope(|scope| {
            for id in 0..THREADS {
                let region = &region;
                scope.spawn(move || {
                    let chance = Chance(seed * 1000 + id as u64 + 1);
                    let mut part = Part { region, first: id * PART, pages: vec![Some(0); PART], chance };
                    (0..STEPS).for_each(|_| part.step());
                    (0..PART).for_each(|i| part.check(i));
                });
            }
        });
    }
}
