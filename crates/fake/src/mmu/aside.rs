//! Pages that leave a region for a while, and the store that has them then.

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

    /// They all work again.
    pub fn heal_store(&self) {
        self.quietly().store_failures.clear();
    }

    /// How many pages lie aside.
    pub fn aside(&self) -> usize {
        self.quietly().aside.len()
    }

    /// How many pages the store has.
    pub fn stored(&self) -> usize {
        self.quietly().store.len()
    }
}

impl State {
    fn store_fails(&mut self) -> Result<(), Errno> {
        match self.store_failures.pop_front() {
            None | Some(super::WORKS) => Ok(()),
            Some(error) => Err(error),
        }
    }

    fn aside_byte(&self, page: usize) -> u8 {
        assert!(self.aside.contains(&page), "a page that is not aside");
        self.read(page, "read").unwrap_or(0)
    }
}

impl Aside for FakeMmu {
    fn reserve_aside(&self, bytes: usize) -> Result<usize, Errno> {
        self.reserve(bytes).ok_or(Errno::ENOMEM)
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

    fn digest(&self, page: usize) -> Option<u32> {
        match self.quietly().aside_byte(page / PAGE) {
            0 => None,
            byte => Some(byte.into()),
        }
    }

    fn write_out(&self, from: Span, offset: u64) -> Result<(), Errno> {
        let mut state = self.when(|_| false);
        state.store_fails()?;
        for (i, page) in pages(from).enumerate() {
            let byte = state.aside_byte(page);
            state.store.insert(offset as usize / PAGE + i, byte);
        }
        Ok(())
    }

    fn read_in(&self, offset: u64, to: Span) -> Result<(), Errno> {
        let mut state = self.when(|_| false);
        // Memory comes for it, whether it works or not.
        for (i, page) in pages(to).enumerate() {
            let byte = state.store.get(&(offset as usize / PAGE + i)).copied();
            state.aside.insert(page);
            state.write_reserved(page, byte.expect("read what was never written"));
        }
        state.store_fails()
    }

    fn forget_out(&self, offset: u64, bytes: u64) {
        let first = offset as usize / PAGE;
        let mut state = self.quietly();
        (first..first + bytes as usize / PAGE).for_each(|page| _ = state.store.remove(&page));
    }
}
