//! The oracle: what every page of the program's own mappings holds and allows.
//!
//! A *region* is what one call mapped; its pages may be unmapped one by one, and are `None` then. An address is
//! looked up by region and page, never the other way round: where the kernel puts things is not known here, and
//! does not appear in the log. A hole in a region is touched only in the very step that made it, because another
//! mapping may lie there afterwards.

use std::fmt::Arguments;
use std::ops::Range;

use crate::block::Block;
use crate::call::{self, PAGE};
use crate::probe;
use crate::rng::{Rng, mix};

/// Pages of the file that mappings come from.
pub const FILE_PAGES: usize = 1024;
const WORDS: usize = PAGE / 8;

/// What stands behind a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Private memory.
    Anon,
    /// A page of the file, copied when written.
    Private(usize),
    /// A page of the file itself; never written.
    Shared(usize),
}

/// A mapped page.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// What it holds: this word, in all its words or in the first, the last and one between.
    pub word: u64,
    /// In all of them.
    pub full: bool,
    /// MADV_FREE: it may hold zeroes instead.
    pub lazy: bool,
    /// A guard page: every access faults.
    pub guard: bool,
    /// Locked in memory.
    pub locked: bool,
    /// Empty in a forked child.
    pub wiped: bool,
    /// Missing in a forked child.
    pub unforked: bool,
    /// Its protection.
    pub prot: i32,
    /// What stands behind it.
    pub kind: Kind,
    /// Neighbours with the same number are of one mapping of the kernel's.
    pub area: u32,
}

impl Page {
    /// A fresh page.
    pub fn fresh(kind: Kind, prot: i32, area: u32) -> Self {
        let mut page = Self {
            word: 0,
            full: true,
            lazy: false,
            guard: false,
            locked: false,
            wiped: false,
            unforked: false,
            prot,
            kind,
            area,
        };
        page.drop_content();
        page
    }

    /// Its content goes: it is what a fresh one would hold.
    pub fn drop_content(&mut self) {
        self.lazy = false;
        self.full = true;
        self.word = match self.kind {
            Kind::Anon => 0,
            Kind::Private(p) | Kind::Shared(p) => file_word(p),
        };
    }

    /// Whether it can be read.
    pub fn readable(&self) -> bool {
        self.prot & libc::PROT_READ != 0 && !self.guard
    }

    /// Whether the program writes to it.
    pub fn writable(&self) -> bool {
        self.prot & libc::PROT_WRITE != 0 && self.readable() && !matches!(self.kind, Kind::Shared(_))
    }
}

/// The word that page `p` of the file is full of.
pub fn file_word(p: usize) -> u64 {
    mix(p as u64 + 1) | 1
}

/// The word of a page that is written between its first and its last one.
fn middle(word: u64) -> usize {
    1 + (mix(word) % (WORDS as u64 - 2)) as usize
}

/// What one call mapped.
#[derive(Clone, Debug)]
pub struct Region {
    /// Its name in the log.
    pub id: u32,
    /// Its address.
    pub start: usize,
    /// Its pages.
    pub pages: Vec<Option<Page>>,
}

impl Region {
    /// The address of page `i`.
    pub fn at(&self, i: usize) -> usize {
        self.start + i * PAGE
    }

    /// The mapped pages around page `i`: all of them, or only those of its area.
    pub fn run(&self, i: usize, one_area: bool) -> Range<usize> {
        let area = self.pages[i].map(|p| p.area);
        let same = |p: &&Option<Page>| p.is_some() && (!one_area || p.map(|p| p.area) == area);
        let before = self.pages[..i].iter().rev().take_while(same).count();
        let after = self.pages[i..].iter().take_while(same).count();
        i - before..i + after
    }

    /// Calls `f` for each mapped page of a range.
    pub fn each(&mut self, range: Range<usize>, f: impl FnMut(&mut Page)) {
        self.pages[range].iter_mut().flatten().for_each(f);
    }
}

/// The memory of one thread, and its log.
pub struct World {
    /// Chance.
    pub rng: Rng,
    /// The mappings.
    pub regions: Vec<Region>,
    /// The blocks of malloc.
    pub blocks: Vec<Block>,
    /// The file behind file mappings.
    pub fd: i32,
    /// Whether no other thread of the program maps anything meanwhile.
    pub solo: bool,
    /// Bytes that mappings, and blocks, may have.
    pub limit: usize,
    /// Where lines of the log go; -1: into `log`.
    pub out: i32,
    /// The log, if it is kept.
    pub log: Vec<u8>,
    /// The number of the present step.
    pub step: usize,
    next: u32,
}

impl World {
    /// An empty world.
    pub fn new(seed: u64, fd: i32, out: i32) -> Self {
        Self {
            rng: Rng::new(seed),
            regions: Vec::new(),
            blocks: Vec::new(),
            fd,
            solo: true,
            limit: 160 << 20,
            out,
            log: Vec::new(),
            step: 0,
            next: 0,
        }
    }

    /// Writes a line of the log.
    pub fn say(&mut self, line: Arguments<'_>) {
        let line = format!("{:4} {line}\n", self.step);
        if self.out < 0 {
            self.log.extend_from_slice(line.as_bytes());
        } else {
            // SAFETY: a valid buffer.
            unsafe { libc::write(self.out, line.as_ptr().cast(), line.len()) };
        }
    }

    /// The memory is not what it must be: says so and ends the process.
    pub fn wrong(&mut self, what: Arguments<'_>) -> ! {
        if self.out < 0 {
            self.out = 1;
        }
        self.say(format_args!("WRONG: {what}"));
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(1) }
    }

    /// A number that no other area or region has.
    pub fn number(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    /// Bytes of all mappings.
    pub fn mapped(&self) -> usize {
        self.regions.iter().map(|r| r.pages.iter().flatten().count() * PAGE).sum()
    }

    /// Adds a region.
    pub fn add(&mut self, start: usize, pages: Vec<Option<Page>>) -> u32 {
        let id = self.number();
        self.regions.push(Region { id, start, pages });
        id
    }

    /// A random region and a random mapped page of it.
    pub fn any_page(&mut self) -> Option<(usize, usize)> {
        self.regions.retain(|r| r.pages.iter().any(Option::is_some));
        if self.regions.is_empty() {
            return None;
        }
        let r = self.rng.below(self.regions.len());
        let mapped = self.regions[r].pages.iter().flatten().count();
        let nth = self.rng.below(mapped);
        let pages = self.regions[r].pages.iter().enumerate();
        pages.filter(|(_, p)| p.is_some()).nth(nth).map(|(i, _)| (r, i))
    }

    /// A random region and a random range of its mapped pages.
    pub fn any_range(&mut self, one_area: bool) -> Option<(usize, Range<usize>)> {
        let (r, i) = self.any_page()?;
        let run = self.regions[r].run(i, one_area);
        Some((r, self.part(run)))
    }

    /// A random part of a range: all of it, an end, or a piece, often at multiples of 2 MiB.
    pub fn part(&mut self, run: Range<usize>) -> Range<usize> {
        let n = run.len();
        let unit = self.rng.of(&[1, 1, 16, 512]);
        let cut = |rng: &mut Rng, most: usize| (rng.within(1, most) / unit * unit).max(1);
        match self.rng.below(5) {
            0 | 1 => run,
            2 => run.start..run.start + cut(&mut self.rng, n),
            3 => run.end - cut(&mut self.rng, n)..run.end,
            _ => {
                let at = self.rng.below(n) / unit * unit;
                let most = (n - at).min(self.rng.of(&[1, 4, 64, 1024]));
                run.start + at..run.start + at + self.rng.within(1, most)
            }
        }
    }

    /// Gives a range of a region new areas: attributes of just that range changed.
    pub fn split(&mut self, r: usize, range: Range<usize>) {
        let mut known: Vec<(u32, u32)> = Vec::new();
        for i in range {
            let Some(old) = self.regions[r].pages[i].map(|p| p.area) else { continue };
            let new = match known.last() {
                Some(&(from, to)) if from == old => to,
                _ => self.number(),
            };
            known.push((old, new));
            self.regions[r].each(i..i + 1, |p| p.area = new);
        }
    }

    /// Writes pages that can be written, one in `every`.
    pub fn write(&mut self, r: usize, range: Range<usize>, every: usize) {
        let word = self.rng.word() | 1;
        let full = self.rng.one_in(4);
        for i in range.step_by(every) {
            let at = self.regions[r].at(i);
            let Some(mut page) = self.regions[r].pages[i].filter(Page::writable) else { continue };
            page.word = mix(word ^ i as u64) | 1;
            page.full = full;
            page.lazy = false;
            let all = 0..WORDS;
            let some = [0, middle(page.word), WORDS - 1];
            let stored = match full {
                true => all.into_iter().all(|w| probe::store(at + w * 8, page.word)),
                false => some.into_iter().all(|w| probe::store(at + w * 8, page.word)),
            };
            if !stored {
                let id = self.regions[r].id;
                self.wrong(format_args!("r{id} page {i}: a write faults"));
            }
            self.regions[r].pages[i] = Some(page);
        }
    }

    /// Verifies a range of a region: contents and access; every word if `deep`.
    pub fn verify(&mut self, r: usize, range: Range<usize>, deep: bool) {
        for i in range {
            let region = &self.regions[r];
            let (id, at) = (region.id, region.at(i));
            let Some(page) = region.pages[i] else { continue };
            let problem = if !page.readable() {
                probe::load(at + 8 * (i % WORDS)).map(|_| "a read does not fault".to_string())
            } else {
                let read_only = page.prot & libc::PROT_WRITE == 0;
                let written = read_only && i % 8 == 0 && probe::store(at, page.word);
                if written { Some("a write does not fault".to_string()) } else { content(at, &page, deep) }
            };
            if let Some(problem) = problem {
                self.wrong(format_args!("r{id} page {i} of {}: {problem}; {page:?}", self.regions[r].pages.len()));
            }
        }
    }

    /// Verifies everything: what was written, and a sample of what was not.
    pub fn verify_all(&mut self) {
        for r in 0..self.regions.len() {
            let n = self.regions[r].pages.len();
            let skip = self.rng.below(16);
            for i in 0..n {
                let sampled = i % 16 == skip || i == 0 || i == n - 1;
                if sampled || self.regions[r].pages[i].is_some_and(|p| p.word != 0 && p.readable()) {
                    self.verify(r, i..i + 1, i % 64 == skip);
                }
            }
        }
        for b in 0..self.blocks.len() {
            self.verify_block(b);
        }
    }

    /// What a forked child has of all this.
    pub fn become_child(&mut self) {
        self.solo = true;
        for region in &mut self.regions {
            for slot in &mut region.pages {
                if let Some(page) = slot {
                    page.locked = false;
                    if page.wiped {
                        page.drop_content();
                    }
                    if page.unforked {
                        *slot = None;
                    }
                }
            }
        }
    }

    /// Waits for some milliseconds, sometimes.
    pub fn pause(&mut self, one_in: usize) {
        if self.rng.one_in(one_in) {
            call::sleep_ms(self.rng.within(6, 20));
        }
    }
}

/// What is wrong with the content of a page.
fn content(at: usize, page: &Page, deep: bool) -> Option<String> {
    let word = |w: usize| probe::load(at + w * 8);
    let step = if deep { 1 } else { 73 };
    let some = [0, middle(page.word), WORDS - 1];
    let every = (0..WORDS).step_by(step).filter(|_| page.full);
    for w in some.into_iter().chain(every) {
        match word(w) {
            None => return Some("a read faults".to_string()),
            Some(found) if found == page.word || (page.lazy && found == 0) => {}
            Some(found) => return Some(format!("word {w} is {found:#x}, not {:#x}", page.word)),
        }
    }
    None
}
