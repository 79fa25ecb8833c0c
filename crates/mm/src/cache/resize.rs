//! A file becomes longer, shorter, or gets holes.
//!
//! Pages behind the end are never present, so bytes that come there later are zeroes or the file's. A huge page whose
//! slot the end cuts keeps its memory: only its pages behind the end are gone.

use core::sync::atomic::Ordering::Relaxed;

use faultless_base::sys::file_memory::FileMemory;
use faultless_base::{Errno, PAGE, SLOT, SLOT_PAGES, Span};

use crate::cache::backing::Backing;
use crate::cache::evict::To;
use crate::cache::index::{Change, Entry, Part, flag};
use crate::cache::{Cache, Use};

/// Zeroes that came to a file when it became longer. They are its bytes for as long as no page has gone since: one that
/// has may have been written to.
#[derive(Clone, Copy)]
pub struct Zeroes {
    /// From this byte on.
    from: usize,
    /// How often pages had gone by then.
    gone: usize,
}

impl Zeroes {
    /// None are known.
    pub(super) const NONE: Self = Self { from: usize::MAX, gone: 0 };
}

/// A page that a backing reads into.
#[repr(align(4096))]
struct Scratch([u8; PAGE]);

impl<M: FileMemory, B: Backing> Cache<M, B> {
    /// Makes the file at least so long. EFBIG: its addresses end before. If it fails, its length is what it was.
    pub fn grow(&self, length: usize) -> Result<(), Errno> {
        self.grow_by_zeroes(length).map(drop)
    }

    /// The same for a write. The zeroes are for [`Cache::write_with`], of a caller that uses the file all the time.
    pub fn grow_for(&self, offset: usize, bytes: usize) -> Result<Zeroes, Errno> {
        let end = offset.checked_add(bytes).ok_or(Errno::EFBIG)?;
        if bytes == 0 { Ok(Zeroes::NONE) } else { self.grow_by_zeroes(end) }
    }

    /// Those of them that are pages of a part of a slot. The caller has its lock.
    pub(super) fn zeroes_in(&self, zeroes: Zeroes, slot: usize, part: Part) -> Part {
        match self.gone.load(Relaxed) == zeroes.gone {
            true => part.from(zeroes.from.saturating_sub(slot * SLOT) / PAGE),
            false => Part::NONE,
        }
    }

    fn grow_by_zeroes(&self, length: usize) -> Result<Zeroes, Errno> {
        // It does not become shorter while the caller uses it.
        if length <= self.length() {
            return Ok(Zeroes::NONE);
        }
        let _resizing = self.resizing.lock();
        let old = self.length();
        if length <= old {
            return Ok(Zeroes::NONE);
        }
        if length > self.span.bytes() {
            return Err(Errno::EFBIG);
        }
        let opened = |length: usize| self.address(length.next_multiple_of(SLOT));
        if !self.memory.open(Span { start: opened(old), end: opened(length) }) {
            return Err(Errno::ENOMEM);
        }
        // Another process may have made it longer, too: what it wrote is there.
        let before = self.backing.grow(length as u64)?;
        self.zero_tail(old);
        // Before another thread can write there.
        let gone = self.gone.load(Relaxed);
        self.length.store(length, Relaxed);
        let from = usize::try_from(before).unwrap_or(usize::MAX).max(old);
        Ok(Zeroes { from: from.checked_next_multiple_of(PAGE).unwrap_or(usize::MAX), gone })
    }

    /// The file has become longer by other means, and has bytes there. Where they are in a page that is in memory they
    /// come now. A file that ends behind its addresses keeps its length here.
    pub fn extend(&self, length: usize) -> Result<(), Errno> {
        let _resizing = self.resizing.lock();
        let old = self.length();
        if length <= old || length > self.span.bytes() {
            return Ok(());
        }
        let opened = |length: usize| self.address(length.next_multiple_of(SLOT));
        if !self.memory.open(Span { start: opened(old), end: opened(length) }) {
            return Err(Errno::ENOMEM);
        }
        let (slot, last) = (old / SLOT, Part { first: old % SLOT / PAGE, count: 1 });
        // A read of this page may be under way.
        let _change = self.change_to_take(slot, last);
        if old % PAGE != 0 && self.index.has(Entry::Present, slot, last) {
            let mut scratch = Scratch([0; PAGE]);
            let from = core::hint::black_box(scratch.0.as_mut_ptr()) as usize;
            let page = old / PAGE * PAGE;
            self.backing.read(page as u64, Span::new(from, PAGE))?;
            core::hint::black_box(&mut scratch);
            self.let_write(slot, last);
            self.memory.copy(Span { start: from + old % PAGE, end: from + PAGE }, self.address(old));
        }
        self.length.store(length, Relaxed);
        Ok(())
    }

    /// What lies behind the end in its page is not part of the file.
    fn zero_tail(&self, length: usize) {
        let tail = length.next_multiple_of(PAGE) - length;
        if tail > 0 {
            let (slot, last) = (length / SLOT, Part { first: length % SLOT / PAGE, count: 1 });
            let _change = self.change_to_take(slot, last);
            if self.index.has(Entry::Present, slot, last) {
                self.let_write(slot, last);
                self.memory.zero(Span::new(self.address(length), tail));
            }
        }
    }

    /// Makes the file no longer than that. The caller has it for itself, and no mapping reaches behind the new end.
    pub fn truncate(&self, length: usize) -> Result<(), Errno> {
        let old = self.length();
        if length < old {
            // Before: it may write back to make room.
            self.preserve_range(length / PAGE * PAGE, old - length / PAGE * PAGE)?;
        }
        self.cut(length, false)
    }

    /// The same where others have made it so short: snapshots keep what is in memory of the bytes that went.
    pub fn notice_end(&self, length: usize) -> Result<(), Errno> {
        if length < self.length() {
            self.preserve_cut(length);
        }
        self.cut(length, true)
    }

    /// Whether the page of a byte is clean, and becomes dirty by any write: others may have changed its bytes, which must
    /// not be written back.
    fn is_clean_where_told(&self, at: usize) -> bool {
        let (slot, page) = (at / SLOT, Part { first: at % SLOT / PAGE, count: 1 });
        if !self.is_tracked(slot) {
            return false;
        }
        let _change = self.change(slot);
        self.find_changes(slot, page);
        !self.index.has(Entry::Dirty, slot, page)
    }

    fn cut(&self, length: usize, is_by_others: bool) -> Result<(), Errno> {
        // A fault that needs room may write back at any time: no page goes while it is written.
        let _syncing = self.syncing.lock();
        let _resizing = self.resizing.lock();
        let old = self.length();
        if length >= old {
            return Ok(());
        }
        // What others have appended since stays.
        if !is_by_others {
            self.backing.truncate(length as u64)?;
        }
        self.length.store(length, Relaxed);
        let gone = length.next_multiple_of(PAGE);
        for (slot, _, part) in self.parts(gone, old.next_multiple_of(PAGE) - gone) {
            // Also where nothing is present: a fault may be bringing bytes from before.
            let change = self.change_to_take(slot, part);
            self.forget_gone(slot, part);
            if change.is(flag::FILLED | flag::WATCHED) {
                self.forget(change, slot, part);
            }
        }
        if !is_by_others || !self.is_clean_where_told(length) {
            self.zero_tail(length);
        }
        Ok(())
    }

    /// Whether no other pages of a slot are present.
    fn is_all(&self, slot: usize, part: Part) -> bool {
        let end = part.first + part.count;
        let others = [Part { first: 0, count: part.first }, Part { first: end, count: SLOT_PAGES - end }];
        others.iter().all(|other| self.index.run(Entry::Present, slot, *other, true) == Part::NONE)
    }

    /// Pages of a slot are not the file's any more. No thread needs their bytes.
    fn forget(&self, change: Change<'_>, slot: usize, part: Part) {
        self.index.unset(Entry::Dirty, slot, part);
        self.open_to_writes(slot, part);
        if self.is_all(slot, part) && change.leave() {
            return self.let_go(change, slot, To::Store);
        }
        let before = self.share(slot);
        self.index.unset(Entry::Present, slot, part);
        self.index.unset(Entry::Hole, slot, part);
        if change.is(flag::WATCHED) {
            // What is not present has no memory, and what could not be had may be there now.
            self.is_small_now(&change);
        }
        if !change.is(flag::HUGE) {
            self.empty(self.pages(slot, part));
        }
        self.count(before, self.share(slot));
        change.stay();
    }

    /// Has bytes inside the file read as zero, and its backing keep no room for them, as far as it can. The caller has
    /// the file for itself. Mappings see the zeroes. After an error some of the bytes may be zero.
    pub fn punch(&self, offset: usize, bytes: usize) -> Result<(), Errno> {
        let end = offset + bytes;
        let whole = Span { start: offset.next_multiple_of(PAGE).min(end), end: (end / PAGE * PAGE).max(offset) };
        // The last page of a file is whole.
        let whole = if end == self.length() { Span { end: end.max(whole.start), ..whole } } else { whole };
        if whole.start >= whole.end {
            return self.write_zeroes(offset, bytes);
        }
        // Before: these may write back what is dirty to make room, and nothing may be written to the hole.
        self.write_zeroes(offset, whole.start - offset)?;
        self.write_zeroes(whole.end, end - whole.end)?;
        self.preserve_range(whole.start, whole.bytes())?;
        // As in `truncate`. What is written after the hole is made would fill it.
        let syncing = self.syncing.lock();
        if !self.backing.punch(whole.start as u64, whole.bytes())? {
            drop(syncing);
            return self.write_zeroes(whole.start, whole.bytes());
        }
        for (slot, span, part) in self.parts(whole.start, whole.bytes()) {
            // As in `truncate`.
            let change = self.change_to_take(slot, part);
            self.forget_gone(slot, part);
            if !change.is(flag::FILLED | flag::WATCHED) {
                continue;
            }
            let is_free = self.holds[slot].load(Relaxed) == 0;
            let can_go = is_free && (self.is_all(slot, part) || !change.is(flag::HUGE));
            // A fault of a copy may be reading a page, which then may not be missing.
            if can_go && (!change.is(flag::WATCHED) || change.leave()) {
                self.forget(change, slot, part);
            } else {
                // The file has zeroes there, too.
                self.index.unset(Entry::Dirty, slot, part);
                self.zero_present(slot, part, span);
            }
        }
        Ok(())
    }

    /// Fills the pages of a part that are present with zeroes, as far as `bytes` go. They are holes of the file.
    fn zero_present(&self, slot: usize, part: Part, bytes: Span) {
        let mut rest = part;
        loop {
            let run = self.index.run(Entry::Present, slot, rest, true);
            if run == Part::NONE {
                return;
            }
            self.let_write(slot, run);
            self.memory.zero(self.pages(slot, run).clip(bytes));
            self.index.set(Entry::Hole, slot, run);
            let next = run.first + run.count;
            rest = Part { first: next, count: part.first + part.count - next };
        }
    }

    fn write_zeroes(&self, offset: usize, bytes: usize) -> Result<(), Errno> {
        let mut done = 0;
        while done < bytes {
            done += self.with(offset + done, bytes - done, Use::Write, |span| self.memory.zero(span))?;
        }
        Ok(())
    }
}
