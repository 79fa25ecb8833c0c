//! Areas: ranges of a region with one set of attributes each, and their index.
//!
//! The index is a skip list by address in a table of words. [`Areas::find`] walks it with neither a lock nor an allocation,
//! in a signal handler too; it may miss an area that is being changed, and then says that there is none. Changes of the index
//! take the lock `shape` for some steps; no system call is made under it.
//!
//! | word | |
//! |---|---|
//! | `START`, `END`, `OFFSET`, `ATTRIBUTES` | what the area is: written with an odd sequence count and the lock |
//! | `SEQUENCE` | odd while a change is in progress, and another number after it |
//! | `USERS` | faults that use the area; its place is not reused while there are any |
//! | `EPOCH`, `LINK` | of an unlinked area: when that was, and the next one in the queue; with the lock |
//! | `NEXT`… | the next area on each level |
//!
//! States: free → linked (`insert`) → changing ⇄ linked (`begin`, `end`) → unlinked (`end`) → free, after a grace period and
//! when no fault uses it any more (`reclaim`).

use faultless_base::Span;
use faultless_base::sync::atomic::{AtomicUsize, Ordering, fence};
use faultless_base::sync::{Epoch, Guard, Lock, Words};
use faultless_base::sys::mmu::Rights;

const START: usize = 0;
const END: usize = 1;
const OFFSET: usize = 2;
const ATTRIBUTES: usize = 3;
const SEQUENCE: usize = 4;
const USERS: usize = 5;
const EPOCH: usize = 6;
const LINK: usize = 7;
const NEXT: usize = 8;
const LEVELS: usize = 8;
const WORDS: usize = NEXT + LEVELS;

/// The place before the first area; as a link it means "none".
const HEAD: usize = 0;
/// What stands in an area that is free. Nobody may ever see it.
const POISON: usize = 0xA5A5;
/// A walk that takes longer than this meets too many changes.
const MOST_STEPS: usize = 4096;

/// What is so all over an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// What it may be used for.
    pub rights: Rights,
    /// Missing pages come from the region's backing; else they are zero.
    pub backed: bool,
    /// Whole huge pages may be installed.
    pub huge: bool,
    /// Accesses follow no sequence: a fault brings one page.
    pub random: bool,
}

impl Attributes {
    fn pack(self) -> usize {
        self.rights as usize
            | (self.backed as usize) << 2
            | (self.huge as usize) << 3
            | (self.random as usize) << 4
    }

    fn unpack(word: usize) -> Self {
        let rights = [Rights::None, Rights::Read, Rights::Write][(word & 3).min(2)];
        Self { rights, backed: word & 4 != 0, huge: word & 8 != 0, random: word & 16 != 0 }
    }
}

/// An area as it was at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Its addresses.
    pub span: Span,
    /// What belongs at its start, as an offset of the backing.
    pub offset: usize,
    /// What is so all over it.
    pub attributes: Attributes,
}

/// There is no room for another area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// What the lock protects, besides the words.
struct Shape {
    /// The first place that was never used.
    fresh: usize,
    /// Free places, linked by `LINK`.
    free: usize,
    /// Unlinked areas, the oldest first.
    oldest: usize,
    newest: usize,
    count: usize,
}

/// The areas of one region.
pub struct Areas {
    words: Words,
    places: usize,
    epoch: Epoch,
    shape: Lock<Shape>,
}

/// An area that stays where it is until this is dropped; what it says may change.
pub struct AreaRef<'a> {
    areas: &'a Areas,
    id: usize,
}

impl Areas {
    /// Room for `places` areas at a time. `None` when there is no memory for that.
    pub fn new(places: usize) -> Option<Self> {
        let words = Words::new((places + 1) * WORDS)?;
        let shape = Lock::new(Shape { fresh: 1, free: HEAD, oldest: HEAD, newest: HEAD, count: 0 });
        Some(Self { words, places, epoch: Epoch::new(), shape })
    }

    fn word(&self, id: usize, word: usize) -> &AtomicUsize {
        &self.words[id * WORDS + word]
    }

    fn get(&self, id: usize, word: usize) -> usize {
        self.word(id, word).load(Ordering::Relaxed)
    }

    fn set(&self, id: usize, word: usize, value: usize) {
        self.word(id, word).store(value, Ordering::Relaxed);
    }

    fn next(&self, id: usize, level: usize) -> usize {
        self.word(id, NEXT + level).load(Ordering::Acquire)
    }

    fn link(&self, id: usize, level: usize, to: usize) {
        self.word(id, NEXT + level).store(to, Ordering::Release);
    }

    /// The last area on each level that begins at `addr` or before it. `None` when the walk met too many changes.
    fn walk(&self, addr: usize) -> Option<[usize; LEVELS]> {
        let mut before = [HEAD; LEVELS];
        let (mut at, mut steps) = (HEAD, 0);
        for level in (0..LEVELS).rev() {
            loop {
                let next = self.next(at, level);
                if next == HEAD || self.get(next, START) > addr {
                    break;
                }
                at = next;
                steps += 1;
                if steps > MOST_STEPS {
                    return None;
                }
            }
            before[level] = at;
        }
        Some(before)
    }

    /// Finds the area around `addr` without a lock; `hint` tells threads apart.
    pub fn find(&self, addr: usize, hint: usize) -> Option<AreaRef<'_>> {
        let _pinned = self.epoch.enter(hint)?;
        let id = self.walk(addr)?[0];
        if id == HEAD || addr >= self.get(id, END) {
            return None;
        }
        // Before the grace period can end, so that whoever frees places sees it.
        self.word(id, USERS).fetch_add(1, Ordering::Acquire);
        Some(AreaRef { areas: self, id })
    }

    /// Finds it for certain. Changes in progress are seen as they will be.
    pub fn find_locked(&self, addr: usize) -> Option<AreaRef<'_>> {
        let _shape = self.shape.lock();
        let id = self.covering(addr)?;
        self.word(id, USERS).fetch_add(1, Ordering::Acquire);
        Some(AreaRef { areas: self, id })
    }

    /// How many areas there are.
    pub fn count(&self) -> usize {
        self.shape.lock().count
    }

    /// Calls `f` for each area that `span` meets, in order.
    pub fn each(&self, span: Span, mut f: impl FnMut(View)) {
        let _shape = self.shape.lock();
        self.ids(span).for_each(|id| f(self.view(id)));
    }

    /// Whether there are areas all over `span`.
    pub fn covers(&self, span: Span) -> bool {
        let mut at = span.start;
        self.each(span, |view| {
            if view.span.start <= at {
                at = view.span.end;
            }
        });
        at >= span.end
    }

    // What follows is with the lock held.

    fn view(&self, id: usize) -> View {
        View {
            span: Span { start: self.get(id, START), end: self.get(id, END) },
            offset: self.get(id, OFFSET),
            attributes: Attributes::unpack(self.get(id, ATTRIBUTES)),
        }
    }

    /// The last areas that begin at `addr` or before it. The lock keeps changes away, so the walk ends.
    fn before(&self, addr: usize) -> [usize; LEVELS] {
        let mut before = [HEAD; LEVELS];
        let mut at = HEAD;
        for level in (0..LEVELS).rev() {
            while let next = self.next(at, level)
                && next != HEAD
                && self.get(next, START) <= addr
            {
                at = next;
            }
            before[level] = at;
        }
        before
    }

    fn covering(&self, addr: usize) -> Option<usize> {
        let id = self.before(addr)[0];
        (id != HEAD && addr < self.get(id, END)).then_some(id)
    }

    /// The areas that `span` meets.
    fn ids(&self, span: Span) -> impl Iterator<Item = usize> {
        let last = self.before(span.start)[0];
        let meets = last != HEAD && self.get(last, END) > span.start;
        let first = if meets { last } else { self.next(last, 0) };
        let next = |id: &usize| Some(self.next(*id, 0)).filter(|id| *id != HEAD);
        let ids = core::iter::successors(Some(first).filter(|id| *id != HEAD), next);
        ids.take_while(move |id| self.get(*id, START) < span.end)
    }

    /// Changes what an area says, under an odd count if none is in progress.
    fn write(&self, id: usize, view: View) {
        let sequence = self.word(id, SEQUENCE);
        let alone = sequence.load(Ordering::Relaxed) % 2 == 0;
        if alone {
            sequence.fetch_add(1, Ordering::AcqRel);
        }
        // Pairs with the one in `AreaRef::read`.
        fence(Ordering::Release);
        self.set(id, START, view.span.start);
        self.set(id, END, view.span.end);
        self.set(id, OFFSET, view.offset);
        self.set(id, ATTRIBUTES, view.attributes.pack());
        if alone {
            sequence.fetch_add(1, Ordering::Release);
        }
    }

    /// A free place.
    fn place(&self, shape: &mut Shape) -> Option<usize> {
        self.reclaim(shape);
        if shape.free != HEAD {
            let id = shape.free;
            shape.free = self.get(id, LINK);
            return Some(id);
        }
        (shape.fresh <= self.places).then(|| {
            shape.fresh += 1;
            shape.fresh - 1
        })
    }

    /// Frees the places of areas that nobody can see or uses any more.
    fn reclaim(&self, shape: &mut Shape) {
        let oldest = self.epoch.oldest();
        while shape.oldest != HEAD {
            let id = shape.oldest;
            if self.get(id, EPOCH) >= oldest || self.word(id, USERS).load(Ordering::Acquire) > 0 {
                break;
            }
            shape.oldest = self.get(id, LINK);
            self.set(id, ATTRIBUTES, POISON);
            self.set(id, LINK, shape.free);
            shape.free = id;
        }
    }

    fn link_in(&self, shape: &mut Shape, id: usize, view: View) {
        self.write(id, view);
        // An area that was unlinked kept an odd count.
        let sequence = self.word(id, SEQUENCE);
        sequence.fetch_add(sequence.load(Ordering::Relaxed) % 2, Ordering::Release);
        let before = self.before(view.span.start);
        let height = height(id);
        for (level, before) in before.iter().enumerate().take(height) {
            self.link(id, level, self.next(*before, level));
        }
        // From below, so that whoever finds it on one level finds it on those below.
        for (level, before) in before.iter().enumerate().take(height) {
            self.link(*before, level, id);
        }
        shape.count += 1;
    }

    /// Whoever is on its way through the area goes on from it as before. Its count is odd for good, so that a fault that
    /// still finds it takes it for one that changes.
    fn unlink(&self, shape: &mut Shape, id: usize) {
        let before = self.before(self.get(id, START) - 1);
        for level in (0..height(id)).rev() {
            self.link(before[level], level, self.next(id, level));
        }
        shape.count -= 1;
        self.set(id, EPOCH, self.epoch.retire());
        self.set(id, LINK, HEAD);
        match shape.oldest {
            HEAD => shape.oldest = id,
            _ => self.set(shape.newest, LINK, id),
        }
        shape.newest = id;
    }

    /// Cuts the area around `at` in two, unless it begins there.
    fn cut(&self, shape: &mut Shape, at: usize) -> Result<(), Full> {
        let Some(id) = self.covering(at) else { return Ok(()) };
        let view = self.view(id);
        if view.span.start == at {
            return Ok(());
        }
        let new = self.place(shape).ok_or(Full)?;
        self.write(id, View { span: Span { end: at, ..view.span }, ..view });
        let offset = view.offset + (at - view.span.start);
        self.link_in(shape, new, View { span: Span { start: at, ..view.span }, offset, ..view });
        Ok(())
    }

    /// Joins the area that begins at `at` to the one before, if nothing tells them apart and nobody changes either.
    fn join(&self, shape: &mut Shape, at: usize) {
        let (Some(left), Some(right)) = (self.covering(at - 1), self.covering(at)) else { return };
        let (a, b) = (self.view(left), self.view(right));
        let quiet = |id| self.get(id, SEQUENCE) % 2 == 0;
        let follows = !a.attributes.backed || a.offset + a.span.bytes() == b.offset;
        if left != right && a.attributes == b.attributes && follows && quiet(left) && quiet(right) {
            // First, so that no moment has two areas at one address.
            self.word(right, SEQUENCE).fetch_add(1, Ordering::AcqRel);
            self.unlink(shape, right);
            self.write(left, View { span: Span { end: b.span.end, ..a.span }, ..a });
        }
    }
}

/// Levels of the area at a place: of four on one level one is on the next.
fn height(id: usize) -> usize {
    let mixed = (id as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    (1 + mixed.trailing_zeros() as usize / 2).min(LEVELS)
}

/// Changes. Whoever makes one holds the range lock on `span` until its end, and does what it asks of the kernel
/// between [`Areas::begin`] and [`Areas::end`].
impl Areas {
    /// Cuts areas where `span` begins and ends, and marks those inside as changing.
    pub fn begin(&self, span: Span) -> Result<(), Full> {
        let mut shape = self.shape.lock();
        let cut = self.cut(&mut shape, span.start).and_then(|()| self.cut(&mut shape, span.end));
        if let Err(full) = cut {
            self.join(&mut shape, span.start);
            return Err(full);
        }
        for id in self.ids(span) {
            let before = self.word(id, SEQUENCE).fetch_add(1, Ordering::AcqRel);
            debug_assert!(before % 2 == 0, "two change one area");
        }
        Ok(())
    }

    /// Ends that: each area inside has the attributes that `new` gives, or is gone.
    pub fn end(&self, span: Span, mut new: impl FnMut(View) -> Option<Attributes>) {
        let mut shape = self.shape.lock();
        let mut at = span.start;
        while let Some(id) = self.ids(Span { start: at, ..span }).next() {
            let view = self.view(id);
            at = view.span.end;
            match new(view) {
                Some(attributes) => {
                    self.write(id, View { attributes, ..view });
                    self.word(id, SEQUENCE).fetch_add(1, Ordering::AcqRel);
                    self.join(&mut shape, view.span.start);
                }
                None => self.unlink(&mut shape, id),
            }
        }
        self.join(&mut shape, span.end);
    }

    /// A new area, where there is none.
    pub fn insert(&self, view: View) -> Result<(), Full> {
        let mut shape = self.shape.lock();
        let id = self.place(&mut shape).ok_or(Full)?;
        self.link_in(&mut shape, id, view);
        self.join(&mut shape, view.span.start);
        self.join(&mut shape, view.span.end);
        Ok(())
    }

    /// For the checks of tests: the words agree with each other.
    pub fn check(&self) {
        let shape: Guard<'_, Shape> = self.shape.lock();
        let (mut at, mut end, mut count) = (self.next(HEAD, 0), 0, 0);
        while at != HEAD {
            let view = self.view(at);
            assert!(view.span.start >= end && !view.span.is_empty(), "{view:x?} after {end:#x}");
            assert_eq!(self.before(view.span.start)[0], at, "an area that is not found");
            (end, count, at) = (view.span.end, count + 1, self.next(at, 0));
        }
        assert_eq!(count, shape.count);
    }
}

impl AreaRef<'_> {
    /// The sequence count.
    pub fn sequence(&self) -> usize {
        self.areas.word(self.id, SEQUENCE).load(Ordering::Acquire)
    }

    /// What it says, with the count that it said it at. `None` while it is being changed.
    pub fn read(&self) -> Option<(View, usize)> {
        let before = self.sequence();
        debug_assert_ne!(self.areas.get(self.id, ATTRIBUTES), POISON, "an area is free while it is used");
        if before % 2 != 0 {
            return None;
        }
        let word = |word| self.areas.get(self.id, word);
        let (start, end, offset, attributes) = (word(START), word(END), word(OFFSET), word(ATTRIBUTES));
        // Pairs with the one in `Areas::write`.
        fence(Ordering::Acquire);
        if self.areas.get(self.id, SEQUENCE) != before {
            return None;
        }
        Some((View { span: Span { start, end }, offset, attributes: Attributes::unpack(attributes) }, before))
    }

    /// Which area it is, to tell areas apart.
    pub fn id(&self) -> usize {
        self.id
    }
}

impl Drop for AreaRef<'_> {
    fn drop(&mut self) {
        // What the fault did comes before the place is reused.
        self.areas.word(self.id, USERS).fetch_sub(1, Ordering::Release);
    }
}
