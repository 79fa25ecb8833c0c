//! Pages that leave a region for a while, and the store that has them then.

use std::collections::VecDeque;

use faultless_base::sys::aside::Aside;
use faultless_base::sys::mmu::{Mmu, Rights};
use faultless_base::sys::uffd::Stopped;
use faultless_base::{Errno, PAGE, Span};

use super::{FakeMmu, Page, State, pages};

impl FakeMmu {
    /// These pages of the region stay where they are, as if a device used them.
    pub fn pin(&self, span: Span) {
        self.quietly().pinned.extend(pages(span));
    }

    /// The store brings another byte for the page at an offset, if it has one; whether it has.
    pub fn corrupt(&self, offset: usize) -> bool {
        self.quietly().store.get_mut(&(offset / PAGE)).map(|byte| *byte ^= 1).is_some()
    }

    /// The next reads and writes of the store fail with these error numbers, one each; 0: that one works.
    pub fn fail_store(&self, errors: &[Errno]) {
        self.quietly().store_failures.extend(errors);
    }

    /// The same of writes alone.
    pub fn fail_writes(&self, errors: &[Errno]) {
        self.quietly().write_failures.extend(errors);
    }

    /// They all work again.
    pub fn heal_store(&self) {
        let mut state = self.quietly();
        state.store_failures.clear();
        state.write_failures.clear();
    }

    /// How many pages lie aside.
    pub fn aside(&self) -> usize {
        self.quietly().aside.len()
    }

    /// The most pages that there were at any moment, in the region and aside.
    pub fn most(&self) -> usize {
        self.quietly().most
    }

    /// How many pages the store has.
    pub fn stored(&self) -> usize {
        self.quietly().store.len()
    }
}

fn fails(failures: &mut VecDeque<Errno>) -> Result<(), Errno> {
    match failures.pop_front() {
        None | Some(super::WORKS) => Ok(()),
        Some(error) => Err(error),
    }
}

impl State {
    /// Pages have come.
    pub(super) fn note_most(&mut self) {
        self.most = self.most.max(self.pages.len() + self.aside.len());
    }

    fn store_fails(&mut self) -> Result<(), Errno> {
        fails(&mut self.store_failures)
    }

    fn write_fails(&mut self) -> Result<(), Errno> {
        fails(&mut self.write_failures).and(self.store_fails())
    }

    fn aside_byte(&self, page: usize) -> u8 {
        assert!(self.aside.contains(&page) || self.copies.contains(&page), "a page that is not aside");
        self.read(page, "read").unwrap_or(0)
    }
}

impl Aside for FakeMmu {
    fn reserve_aside(&self, bytes: usize, copies: usize) -> Result<usize, Errno> {
        let at = self.reserve(bytes + copies).ok_or(Errno::ENOMEM)?;
        self.quietly().copies = pages(Span::new(at + bytes, copies));
        Ok(at)
    }

    fn take_out(&self, from: Span, to: usize) -> usize {
        let mut moved = 0;
        for (i, page) in pages(from).enumerate() {
            // The kernel moves one page after the other.
            let mut state = self.when(|_| false);
            let is_free = state.rights.get(page) == Some(Rights::Write) && !state.pinned.contains(&page);
            let Some(Page::Zero | Page::Own(_)) = state.pages.get(&page).filter(|_| is_free) else { break };
            let byte = state.pages.get(&page).map_or(0, |page| page.byte());
            let target = to / PAGE + i;
            assert!(state.aside.insert(target), "a page is aside already");
            state.write_reserved(target, byte);
            state.lose(page);
            moved += PAGE;
        }
        moved
    }

    fn put_back(&self, from: usize, to: Span) -> Result<(), Stopped> {
        let mut state = self.begin_bringing().map_err(|error| Stopped { done: 0, error })?;
        for (i, page) in pages(to).enumerate() {
            let stopped = |error| Err(Stopped { done: i * PAGE, error });
            if state.rights.get(page) != Some(Rights::Write) {
                return stopped(Errno::EINVAL);
            }
            if state.pages.contains_key(&page) {
                return stopped(Errno::EEXIST);
            }
            let byte = state.aside_byte(from / PAGE + i);
            state.aside.remove(&(from / PAGE + i));
            state.pages.insert(page, Page::Own(byte));
        }
        Ok(())
    }

    fn notes_writes(&self) -> bool {
        true
    }

    fn put_copy(&self, from: usize, to: Span) -> Result<(), Stopped> {
        let mut state = self.begin_bringing().map_err(|error| Stopped { done: 0, error })?;
        for (i, page) in pages(to).enumerate() {
            assert!(state.rights.get(page) > Some(Rights::None), "a page for nobody at {page:#x}");
            if state.pages.contains_key(&page) {
                return Err(Stopped { done: i * PAGE, error: Errno::EEXIST });
            }
            let byte = state.aside_byte(from / PAGE + i);
            state.pages.insert(page, Page::Own(byte));
            state.noted.insert(page);
        }
        state.note_most();
        Ok(())
    }

    fn first_unwritten(&self, span: Span) -> Option<Span> {
        let state = self.begin().ok()?;
        let end = pages(span).end;
        let first = pages(span).find(|page| state.noted.contains(page)).unwrap_or(end);
        let last = (first..end).find(|page| !state.noted.contains(page)).unwrap_or(end);
        Some(Span { start: first * PAGE, end: last * PAGE })
    }

    fn peek(&self, from: Span, to: usize) -> bool {
        for (i, page) in pages(from).enumerate() {
            // Writes go on meanwhile.
            let Ok(mut state) = self.begin() else { return false };
            let Some(byte) = state.pages.get(&page).map(|page| page.byte()) else { return false };
            state.write_reserved(to / PAGE + i, byte);
        }
        true
    }

    fn is_as_copy(&self, page: usize, copy: usize) -> bool {
        let state = self.quietly();
        state.aside_byte(page / PAGE) == state.read(copy / PAGE, "compared").unwrap_or(0)
    }

    fn digest(&self, page: usize) -> Option<u32> {
        match self.quietly().aside_byte(page / PAGE) {
            0 => None,
            byte => Some(byte.into()),
        }
    }

    fn write_out(&self, from: Span, offset: u64) -> Result<(), Errno> {
        let mut state = self.when(|_| false);
        let fails = state.write_fails();
        for (i, page) in pages(from).enumerate() {
            // Where it fails, the store has neither the old bytes nor the new.
            let byte = state.aside_byte(page) ^ if fails.is_err() { 0x80 } else { 0 };
            let kept = state.store.contains_key(&(offset as usize / PAGE + i));
            if fails.is_ok() || kept {
                state.store.insert(offset as usize / PAGE + i, byte);
            }
        }
        fails
    }

    fn read_in(&self, offset: u64, to: Span) -> Result<(), Errno> {
        let mut state = self.when(|_| false);
        // Memory comes for it, whether it works or not.
        for (i, page) in pages(to).enumerate() {
            let byte = state.store.get(&(offset as usize / PAGE + i)).copied();
            if !state.copies.contains(&page) {
                state.aside.insert(page);
            }
            state.write_reserved(page, byte.expect("read what was never written"));
        }
        state.note_most();
        state.store_fails()
    }

    fn forget_out(&self, offset: u64, bytes: u64) {
        let first = offset as usize / PAGE;
        let mut state = self.quietly();
        (first..first + bytes as usize / PAGE).for_each(|page| _ = state.store.remove(&page));
    }
}
