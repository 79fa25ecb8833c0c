//! Areas: ranges of a region with one set of attributes each, and their index.
//!
//! The index is a skip list by address in a table of words. [`Areas::find`] walks it with neither a lock nor an
//! allocation, in a signal handler too. It may miss an area that is being changed, and then says that there is none.
//! Changes of the index take the lock `shape` for some steps; no system call is made under it.
//!
//! | word | |
//! |---|---|
//! | `START`, `END`, `OFFSET`, `ATTRIBUTES` | what the area is: written with an odd sequence count and the lock |
//! | `SEQUENCE` | odd while a change is in progress, and another number after it |
//! | `EPOCH`, `LINK` | of an unlinked area: when that was, and the next one in the queue; with the lock |
//! | `NEXT`… | the next area on each level |
//!
//! Faults that use an area are counted in a table of its own, in several places for each area. So a fault writes to
//! no line that all others read. The place of an area is not reused while a fault is counted.
//!
//! States: free → linked (`insert`) → changing ⇄ linked (`begin`, `end`) → unlinked (`end`) → free, after a grace
//! period and when no fault uses it any more (`reclaim`).

mod index;

use faultless_base::Span;
use faultless_base::sync::atomic::{AtomicUsize, Ordering, fence};
use faultless_base::sync::{Epoch, Lock, Words};
use faultless_base::sys::mmu::Rights;

const START: usize = 0;
const END: usize = 1;
const OFFSET: usize = 2;
const ATTRIBUTES: usize = 3;
const SEQUENCE: usize = 4;
const EPOCH: usize = 5;
const LINK: usize = 6;
const NEXT: usize = 7;
const LEVELS: usize = 8;
const WORDS: usize = (NEXT + LEVELS).next_multiple_of(8);

/// Words of a line. Those of one processor and different areas share lines.
const LINE: usize = 8;

/// The place before the first area; as a link it means "none".
const HEAD: usize = 0;
/// The attributes of a free place. No thread may ever see it.
const POISON: usize = 0xA5A5;
/// A walk that takes longer than this meets too many changes.
const MOST_STEPS: usize = 4096;

/// Attributes of every page of an area.
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
    /// The kernel itself brings missing pages.
    pub kernel: bool,
}

impl Attributes {
    fn pack(self) -> usize {
        self.rights as usize
            | (self.backed as usize) << 2
            | (self.huge as usize) << 3
            | (self.random as usize) << 4
            | (self.kernel as usize) << 5
    }

    fn unpack(word: usize) -> Self {
        let rights = [Rights::None, Rights::Read, Rights::Write][(word & 3).min(2)];
        Self { rights, backed: word & 4 != 0, huge: word & 8 != 0, random: word & 16 != 0, kernel: word & 32 != 0 }
    }
}

/// An area as it was at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Its addresses.
    pub span: Span,
    /// What belongs at its start, as an offset of the backing.
    pub offset: usize,
    /// Its attributes.
    pub attributes: Attributes,
}

/// There is no room for another area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// Only because a fault may still use areas that were unlinked.
    pub passes: bool,
}

/// What the lock protects, besides the words.
struct Shape {
    /// The first place that was never used.
    fresh: usize,
    /// Free places, linked by `LINK`.
    free: usize,
    /// Unlinked areas, the oldest first.
    oldest: usize,
    newest: usize,
    /// Areas that are linked, and those that will be for certain.
    count: usize,
}

/// The areas of one region.
pub struct Areas {
    words: Words,
    users: Words,
    /// Places of users of an area, less one.
    mask: usize,
    places: usize,
    epoch: Epoch,
    shape: Lock<Shape>,
}

/// An area that stays where it is until this is dropped; what it says may change.
pub struct AreaRef<'a> {
    areas: &'a Areas,
    id: usize,
    /// Where it is counted.
    users: &'a AtomicUsize,
}

impl Areas {
    /// Room for `places` areas at a time. Faults that use one are counted in `users` places, a power of two. `None`
    /// when there is no memory for that.
    pub fn new(places: usize, users: usize) -> Option<Self> {
        let (mask, epoch) = (users - 1, Epoch::new(users)?);
        let all = places.checked_add(1)?;
        let words = Words::new(all.checked_mul(WORDS)?)?;
        let users = Words::new(all.checked_next_multiple_of(LINE)?.checked_mul(users)?)?;
        let shape = Lock::new(Shape { fresh: 1, free: HEAD, oldest: HEAD, newest: HEAD, count: 0 });
        Some(Self { words, users, mask, places, epoch, shape })
    }

    fn word(&self, id: usize, word: usize) -> &AtomicUsize {
        &self.words[id * WORDS + word]
    }

    /// Where users on a processor are counted.
    fn users(&self, id: usize, cpu: usize) -> &AtomicUsize {
        &self.users[(cpu & self.mask) * (self.places + 1).next_multiple_of(LINE) + id]
    }

    /// Whether a fault uses the area. Once no thread sees the area any more, a `false` holds for good: each place can
    /// only go down.
    fn is_used(&self, id: usize) -> bool {
        (0..=self.mask).any(|i| self.users(id, i).load(Ordering::Acquire) > 0)
    }

    fn use_it(&self, id: usize, cpu: usize) -> AreaRef<'_> {
        let users = self.users(id, cpu);
        users.fetch_add(1, Ordering::Acquire);
        AreaRef { areas: self, id, users }
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

    /// Finds the area around `addr` without a lock, on this processor.
    pub fn find(&self, addr: usize, cpu: usize) -> Option<AreaRef<'_>> {
        let _pinned = self.epoch.enter(cpu)?;
        let id = self.walk(addr)?[0];
        if id == HEAD || addr >= self.get(id, END) {
            return None;
        }
        // Before the grace period can end, so that a thread that frees places sees it.
        Some(self.use_it(id, cpu))
    }

    /// Finds it for certain. Changes in progress are seen as they will be.
    pub fn find_locked(&self, addr: usize) -> Option<AreaRef<'_>> {
        let _shape = self.shape.lock();
        let id = self.covering(addr)?;
        Some(self.use_it(id, 0))
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

    /// The same, if no thread is changing which areas there are; whether it did. For callers that must not wait for a
    /// change.
    pub fn try_each(&self, span: Span, f: impl FnMut(View)) -> bool {
        let shape = self.shape.try_lock();
        shape.map(|_shape| self.ids(span).map(|id| self.view(id)).for_each(f)).is_some()
    }

    /// The first of them.
    pub fn first(&self, span: Span) -> Option<View> {
        let _shape = self.shape.lock();
        self.ids(span).next().map(|id| self.view(id))
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
}

impl AreaRef<'_> {
    /// The sequence count.
    pub fn sequence(&self) -> usize {
        self.areas.word(self.id, SEQUENCE).load(Ordering::Acquire)
    }

    /// The area as it is now, with its sequence count. `None` while it is being changed.
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
        // The fault's accesses come before the place is reused.
        self.users.fetch_sub(1, Ordering::Release);
    }
}
