//! Changes of the index. All of it is with the lock `shape` held.

use faultless_base::Span;
use faultless_base::sync::Guard;
use faultless_base::sync::atomic::{Ordering, fence};

use super::{
    ATTRIBUTES, Areas, Attributes, END, EPOCH, Full, HEAD, LEVELS, LINK, OFFSET, POISON, SEQUENCE, START, Shape,
    View,
};

impl Areas {
    pub(super) fn view(&self, id: usize) -> View {
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

    pub(super) fn covering(&self, addr: usize) -> Option<usize> {
        let id = self.before(addr)[0];
        (id != HEAD && addr < self.get(id, END)).then_some(id)
    }

    /// The areas that `span` meets; an empty one meets none.
    pub(super) fn ids(&self, span: Span) -> impl Iterator<Item = usize> {
        let last = self.before(span.start)[0];
        let meets = last != HEAD && self.get(last, END) > span.start;
        let first = if meets { last } else { self.next(last, 0) };
        let next = |id: &usize| Some(self.next(*id, 0)).filter(|id| *id != HEAD);
        let first = Some(first).filter(|id| *id != HEAD && !span.is_empty());
        let ids = core::iter::successors(first, next);
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

    /// What to say when there is no place for one of `more` areas.
    fn full(&self, shape: &Shape, more: usize) -> Full {
        Full { passes: shape.count + more <= self.places }
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

    /// Frees the places of areas that no thread can see or use any more.
    fn reclaim(&self, shape: &mut Shape) {
        let oldest = self.epoch.oldest();
        while shape.oldest != HEAD {
            let id = shape.oldest;
            if self.get(id, EPOCH) >= oldest || self.is_used(id) {
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
        // From below, so that a walk that finds it on one level finds it on those below.
        for (level, before) in before.iter().enumerate().take(height) {
            self.link(*before, level, id);
        }
        shape.count += 1;
    }

    /// A walk that is on its way through the area goes on from it as before. The count of the area stays odd for
    /// good: a fault that still finds the area takes it for one that changes.
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

    /// The area around `at`, unless it begins there.
    fn across(&self, at: usize) -> Option<usize> {
        self.covering(at).filter(|id| self.get(*id, START) < at)
    }

    /// Cuts the area around `at` in two, unless it begins there. `None` when there is no place.
    fn cut(&self, shape: &mut Shape, at: usize) -> Option<()> {
        let Some(id) = self.across(at) else { return Some(()) };
        let view = self.view(id);
        let new = self.place(shape)?;
        self.write(id, View { span: Span { end: at, ..view.span }, ..view });
        let offset = view.offset + (at - view.span.start);
        self.link_in(shape, new, View { span: Span { start: at, ..view.span }, offset, ..view });
        Some(())
    }

    /// Joins the area that begins at `at` to the one before, if nothing tells them apart and no thread changes
    /// either.
    fn join(&self, shape: &mut Shape, at: usize) {
        let Some(left) = self.covering(at - 1) else { return };
        let (right, a) = (self.next(left, 0), self.view(left));
        if right == HEAD || a.span.end != at || self.get(right, START) != at {
            return;
        }
        let b = self.view(right);
        let quiet = |id| self.get(id, SEQUENCE) % 2 == 0;
        let follows = !a.attributes.backed || a.offset + a.span.bytes() == b.offset;
        if a.attributes == b.attributes && follows && quiet(left) && quiet(right) {
            // First, so that two areas never cover one address.
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

/// Changes. The caller holds the range lock on `span` until the end of the change, and makes its system calls between
/// [`Areas::begin`] and [`Areas::end`].
impl Areas {
    /// Cuts areas where `span` begins and ends, and marks those inside as changing.
    pub fn begin(&self, span: Span) -> Result<(), Full> {
        let mut shape = self.shape.lock();
        let cuts = [span.start, span.end].into_iter().filter_map(|at| self.across(at)).count();
        let full = self.full(&shape, cuts);
        if self.cut(&mut shape, span.start).and_then(|()| self.cut(&mut shape, span.end)).is_none() {
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

    /// Keeps room for one area, until [`Self::give_room`].
    pub fn keep_room(&self) -> Result<(), Full> {
        let mut shape = self.shape.lock();
        let full = self.full(&shape, 1);
        shape.count += full.passes as usize;
        if full.passes { Ok(()) } else { Err(full) }
    }

    /// Ends that.
    pub fn give_room(&self) {
        self.shape.lock().count -= 1;
    }

    /// A new area, where there is none; the room for it is kept. An error passes.
    pub fn insert(&self, view: View) -> Result<(), Full> {
        let mut shape = self.shape.lock();
        let id = self.place(&mut shape).ok_or(Full { passes: true })?;
        self.link_in(&mut shape, id, view);
        shape.count -= 1;
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
