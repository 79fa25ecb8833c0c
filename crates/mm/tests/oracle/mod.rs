//! What the program must see, page by page.

mod checks;

use std::collections::{BTreeMap, BTreeSet};

use faultless_base::sys::Sys;
use faultless_base::{PAGE, SLOT, SLOT_PAGES, Span};
use faultless_fake::{Failing, Fake};
use faultless_mm::mapping::Change;
use faultless_mm::{Need, Space};
use faultless_page::knobs::{Knob, Values};
use faultless_page::stats::Block as Counters;

use crate::calls;

/// Budgets, in slots.
pub const BUDGETS: [u64; 6] = [0, 1, 3, 8, 32, 1000];
/// Sizes of mappings, in pages.
pub const SLOT_SIZES: [usize; 8] = [512, 512, 1024, 1536, 513, 700, 2048 + 511, 8192];
const SLOTS: usize = 64;
/// All addresses.
pub const ALL: Span = Span { start: 0, end: usize::MAX & !(PAGE - 1) };

/// A page of the program's.
#[derive(Clone, Copy, Debug)]
struct Mine {
    owner: u32,
    byte: u8,
    /// It can be read and written.
    open: bool,
}

/// Something that one call gave to the program; its pages may be gone in part.
#[derive(Clone, Copy, Debug)]
struct Thing {
    id: u32,
    at: usize,
    pages: usize,
    block: bool,
}

/// Calls to the kernel about memory that the program has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    Protect,
    Drop,
    AskForHuge,
    Pin,
}

/// The engine, the memory it works on, and what must hold of it.
pub struct Oracle {
    pub space: Space<Fake>,
    pub fake: Fake,
    knobs: &'static Values,
    things: Vec<Thing>,
    mine: BTreeMap<usize, Mine>,
    /// Unmapped pages that must be out of reach.
    closed: BTreeSet<usize>,
    /// Ranges that were unmapped or replaced without a word to the engine.
    unseen: Vec<Span>,
    failing: Vec<Failing>,
    next: u32,
    /// Slots that may stay with the engine: each shard may keep one carved slot of which nothing is handed out.
    spare: usize,
}

fn pages(at: usize, n: usize) -> impl Iterator<Item = usize> + Clone {
    (at..at + n * PAGE).step_by(PAGE)
}

impl Oracle {
    /// An engine over an empty arena.
    pub fn new(settings: &[(Knob, u64)], shards: usize) -> Self {
        let knobs: &'static Values = Box::leak(Box::default());
        settings.iter().for_each(|(knob, value)| knobs.set(*knob, *value));
        let fake = Fake::default();
        let counters: &'static [Counters] = Box::leak((0..shards).map(|_| Counters::new()).collect());
        let space = Space::new(fake.clone(), SLOTS * SLOT, shards, counters, knobs).unwrap();
        let (things, mine, closed) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
        Self {
            space,
            fake,
            knobs,
            things,
            mine,
            closed,
            unseen: Vec::new(),
            failing: Vec::new(),
            next: 0,
            spare: shards,
        }
    }

    /// Turns a knob while everything goes on.
    pub fn turn(&mut self, a: usize, b: usize) {
        let knob = [Knob::Budget, Knob::Scrub, Knob::Ahead, Knob::Mapped][a % 4];
        self.knobs.set(knob, if knob == Knob::Budget { BUDGETS[b % BUDGETS.len()] << 21 } else { b as u64 % 2 });
    }

    fn pick(&self, n: usize, want: impl Fn(&Thing) -> bool) -> Option<Thing> {
        let fitting: Vec<_> = self.things.iter().copied().filter(want).collect();
        (!fitting.is_empty()).then(|| fitting[n % fitting.len()])
    }

    fn part(thing: Thing, b: usize, c: usize) -> (usize, usize) {
        let from = if b % 3 == 0 { 0 } else { b / 3 % thing.pages };
        let n = if c % 3 == 0 { thing.pages - from } else { c / 3 % (thing.pages - from) + 1 };
        (thing.at + from * PAGE, n)
    }

    /// New pages of the program: no other thing has them, and they hold zeroes if that was promised.
    fn own(&mut self, at: usize, n: usize, block: bool, zero: bool) -> Thing {
        self.next += 1;
        let thing = Thing { id: self.next, at, pages: n, block };
        for page in pages(at, n) {
            let found = self.fake.read(page);
            assert!(found.is_some(), "page {page:#x} of {thing:x?} is closed");
            assert!(!zero || found == Some(0), "page {page:#x} of {thing:x?} is not zero but {found:?}");
            let before = self.mine.insert(page, Mine { owner: self.next, byte: found.unwrap(), open: true });
            assert!(before.is_none(), "page {page:#x} of {thing:x?} belongs to {before:?}");
            self.closed.remove(&page);
        }
        self.things.push(thing);
        thing
    }

    /// Pages that the program has no longer.
    fn lose(&mut self, at: usize, n: usize, closed: bool) {
        for page in pages(at, n) {
            if self.mine.remove(&page).is_some() && closed {
                self.closed.insert(page);
            }
        }
    }

    fn fill(&self, at: usize, n: usize, byte: u8) {
        self.fake.write(Span::new(at, n * PAGE), byte);
    }

    fn byte(&mut self) -> u8 {
        self.next += 1;
        (self.next % 255) as u8 + 1
    }

    pub fn write(&mut self, a: usize, b: usize, c: usize) {
        let Some(thing) = self.pick(a, |_| true) else { return };
        let (at, n) = Self::part(thing, b, c);
        let byte = self.byte();
        for page in pages(at, n) {
            if let Some(mine) = self.mine.get_mut(&page)
                && mine.owner == thing.id
                && mine.open
            {
                mine.byte = byte;
                self.fill(page, 1, byte);
            }
        }
    }

    /// The kernel maps, at a multiple of the slot size or not.
    pub fn map(&mut self, cpu: usize, n: usize, off: usize) {
        let whole = self.fake.map((n + off) * PAGE);
        let span = Span { start: whole.start + off * PAGE, end: whole.end };
        self.fake.unmap(Span { start: whole.start, end: span.start });
        self.space.mapped(cpu, span);
        self.own(span.start, n, false, true);
    }

    pub fn unmap(&mut self, a: usize, b: usize, c: usize) {
        let Some(thing) = self.pick(a, |t| !t.block) else { return };
        let (at, mut n) = Self::part(thing, b, c);
        // Beyond its end too.
        let beyond = b % 700;
        if c % 5 == 0 && pages(at, n + beyond).all(|p| !self.is_in_block(p)) {
            n += beyond;
        }
        let span = Span::new(at, n * PAGE);
        if c % 7 == 0 {
            self.fake.unmap(span);
            self.unseen.push(span);
        } else {
            calls::unmap(&self.space, &self.fake, a, span);
        }
        self.lose(at, n, true);
    }

    fn is_in_block(&self, page: usize) -> bool {
        self.mine.get(&page).is_some_and(|m| self.things.iter().any(|t| t.id == m.owner && t.block))
    }

    pub fn allocate(&mut self, cpu: usize, b: usize, c: usize, need: Need) {
        let bytes = match b % 4 {
            0 => b / 4 % SLOT + 1,
            1 => (b / 4 % 5 + 1) * SLOT,
            2 => b / 4 % (9 * SLOT) + 1,
            _ => (64 << 10) * (b / 4 % 40 + 1),
        };
        let align = [16, 16, 4096, 1 << 16, SLOT, 2 * SLOT][c / 2 % 6];
        let Some(got) = self.space.allocate(cpu, bytes, align, need) else { return };
        let usable = self.space.usable(got.addr);
        assert!(usable >= bytes && got.addr % align == 0, "{usable} of {bytes} bytes at {got:x?}");
        let altered = |page: usize| self.fake.page(got.addr + page * PAGE).altered;
        assert!(!(0..usable / PAGE).any(altered), "{got:x?} is as another block was");
        let thing = self.own(got.addr, usable / PAGE, true, got.zero);
        self.note_block(thing);
    }

    /// Writes to some of a new block, so that its content is known.
    fn note_block(&mut self, thing: Thing) {
        let byte = self.byte();
        self.fill(thing.at, thing.pages, byte);
        pages(thing.at, thing.pages).for_each(|p| self.mine.get_mut(&p).unwrap().byte = byte);
    }

    fn remove(&mut self, thing: Thing) {
        self.things.retain(|t| t.id != thing.id);
    }

    pub fn free(&mut self, a: usize) {
        let Some(thing) = self.pick(a, |t| t.block) else { return };
        assert_eq!(self.space.usable(thing.at), thing.pages * PAGE);
        assert!(self.space.free(thing.at), "{thing:x?}");
        self.lose(thing.at, thing.pages, false);
        self.remove(thing);
    }

    pub fn resize(&mut self, a: usize, b: usize, c: usize) {
        let Some(thing) = self.pick(a, |t| t.block) else { return };
        let bytes = match b % 3 {
            0 => c % (thing.pages * PAGE) + 1,
            1 => thing.pages * PAGE + c % (4 * SLOT),
            _ => c % (8 * SLOT) + 1,
        };
        let Some(at) = self.space.resize(a, thing.at, bytes) else { return };
        let usable = self.space.usable(at) / PAGE;
        assert!(usable * PAGE >= bytes);
        let old: Vec<_> = pages(thing.at, thing.pages).map(|p| self.mine[&p].byte).collect();
        self.lose(thing.at, thing.pages, false);
        self.remove(thing);
        let new = self.own(at, usable, true, false);
        for (page, byte) in pages(at, usable).zip(old) {
            assert_eq!(self.fake.read(page), Some(byte), "page {page:#x} of {new:x?} was {thing:x?}");
        }
    }

    /// The kernel moves a mapping.
    pub fn move_mapping(&mut self, a: usize, b: usize, c: usize) {
        let intact = |t: &Thing| pages(t.at, t.pages).all(|p| self.mine.get(&p).is_some_and(|m| m.owner == t.id));
        let Some(thing) = self.pick(a, |t| !t.block).filter(intact) else { return };
        let (from, more) = (Span::new(thing.at, thing.pages * PAGE), b % 3 * SLOT_PAGES);
        let off = [0, thing.at % SLOT][c % 2];
        let whole = self.fake.map(from.bytes() + more * PAGE + off);
        let to = Span { start: whole.start + off, end: whole.end };
        let old: Vec<_> = pages(thing.at, thing.pages).map(|p| self.mine[&p]).collect();
        if !self.fake.migrate(from, to.start) {
            return self.fake.unmap(whole);
        }
        self.fake.unmap(Span { start: whole.start, end: to.start });
        self.fake.unmap(from);
        match c % 5 {
            0 => self.unseen.push(from),
            _ => self.space.moved(from, to),
        }
        self.lose(thing.at, thing.pages, true);
        self.remove(thing);
        let new = self.own_after(to.start, thing.pages + more, &old);
        for (page, mine) in pages(to.start, thing.pages).zip(&old) {
            let expected = mine.open.then_some(mine.byte);
            assert_eq!(self.fake.read(page), expected, "page {page:#x} of {new:x?} moved from {thing:x?}");
        }
    }

    /// Takes note of pages that may be closed.
    fn own_after(&mut self, at: usize, n: usize, old: &[Mine]) -> Thing {
        self.next += 1;
        let thing = Thing { id: self.next, at, pages: n, block: false };
        for (k, page) in pages(at, n).enumerate() {
            let fresh = Mine { owner: self.next, byte: 0, open: true };
            let mine = old.get(k).map_or(fresh, |mine| Mine { owner: self.next, ..*mine });
            self.mine.insert(page, mine);
        }
        self.things.push(thing);
        thing
    }

    /// The program changes pages by a call to the kernel, of which the engine may hear nothing.
    pub fn change(&mut self, a: usize, b: usize, c: usize, what: Calls) {
        let Some(thing) = self.pick(a, |t| !t.block) else { return };
        let (at, n) = Self::part(thing, b, c);
        if !pages(at, n).all(|p| self.mine.get(&p).is_some_and(|m| m.owner == thing.id)) {
            return;
        }
        let span = Span::new(at, n * PAGE);
        match what {
            Calls::Protect if !self.failing.is_empty() => {}
            Calls::Protect => {
                let open = c % 2 == 0;
                if open {
                    self.fake.open(span)
                } else {
                    self.fake.close(span)
                }
                pages(at, n).for_each(|p| self.mine.get_mut(&p).unwrap().open = open);
            }
            Calls::Drop => {
                match c % 9 {
                    8 => self.fake.empty(span),
                    _ => self.space.recycle(a, span, |part| {
                        self.fake.empty(part);
                        true
                    }),
                }
                pages(at, n).for_each(|p| self.mine.get_mut(&p).unwrap().byte = 0);
            }
            Calls::AskForHuge => {
                self.space.change(span, Change::HugeAdvised);
                self.fake.huge(span, faultless_base::sys::Huge::Advised);
            }
            Calls::Pin => pages(at, n).for_each(|p| self.fake.pin(p, c % 2 == 0)),
        }
    }

    /// The program uses all of something it has and drops it, again and again, as a rule whole.
    pub fn drop_again(&mut self, a: usize, b: usize, c: usize) {
        for _ in 0..6 {
            self.write(a, 0, 0);
            self.change(a, if c % 4 == 0 { b } else { 0 }, 0, Calls::Drop);
        }
    }

    /// The program puts a mapping over its own pages.
    pub fn replace(&mut self, a: usize, b: usize, c: usize) {
        let Some(thing) = self.pick(a, |t| !t.block) else { return };
        let (at, n) = Self::part(thing, b, c);
        let span = Span::new(at, n * PAGE);
        if !pages(at, n).all(|p| self.mine.get(&p).is_some_and(|m| m.owner == thing.id))
            || !self.failing.is_empty()
        {
            return;
        }
        self.fake.unmap(span);
        self.fake.open(span);
        match c % 2 {
            0 => self.space.forget(span),
            _ => self.unseen.push(span),
        }
        self.lose(at, n, false);
        self.own(at, n, false, true);
    }

    /// Attributes of a block change.
    pub fn taint(&mut self, a: usize, b: usize, c: usize) {
        let Some(thing) = self.pick(a, |t| t.block) else { return };
        let (at, n) = Self::part(thing, b, c);
        let span = Span::new(at, n * PAGE);
        // Of blocks of whole slots the kernel's account is asked for.
        if b % 3 == 0 && thing.pages > SLOT_PAGES {
            self.fake.alter(span);
        } else {
            self.space.taint(span);
        }
    }

    pub fn fail(&mut self, what: Failing) {
        if what == Failing::Areas {
            // What the engine gives up then stays as it is.
            self.spare = SLOTS;
        }
        self.fake.fail(what);
        self.failing.push(what);
    }

    pub fn heal(&mut self) {
        self.fake.heal();
        self.failing.clear();
    }
}
