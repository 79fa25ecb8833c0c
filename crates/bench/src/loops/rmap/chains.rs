//! Owners of pages as kernels kept them in 2002. Each page has a list of who maps it, under a lock of its own, kept up
//! at each map and unmap. Or a page has no list until its owners are asked for, and keeps it from then on. Here to be
//! measured beside owners that are computed.

use std::sync::atomic::{AtomicU32, Ordering};

/// What was done to the lists.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Counts {
    /// Owners added to a page that had none, one, and more.
    pub added: [u64; 3],
    /// Owners removed that were the first in the list, and others.
    pub removed: [u64; 2],
    /// Owners that came and went, of pages without a list.
    pub nope: [u64; 2],
    /// Times a lock was taken.
    pub locked: u64,
}

impl Counts {
    /// What was done since they were `before`.
    pub fn since(&self, before: &Self) -> Self {
        let less = |all: u64, before: u64| all - before;
        Self {
            added: std::array::from_fn(|i| less(self.added[i], before.added[i])),
            removed: std::array::from_fn(|i| less(self.removed[i], before.removed[i])),
            nope: std::array::from_fn(|i| less(self.nope[i], before.nope[i])),
            locked: less(self.locked, before.locked),
        }
    }
}

const NONE: u32 = u32::MAX;

struct Page {
    lock: AtomicU32,
    first: u32,
    has_list: bool,
}

#[derive(Clone, Copy)]
struct Link {
    owner: u32,
    next: u32,
}

/// The lists of all pages.
pub struct Chains {
    pages: Vec<Page>,
    links: Vec<Link>,
    free: u32,
    /// What was done so far.
    pub counts: Counts,
}

impl Chains {
    /// For that many pages, which one owner maps.
    pub fn new(pages: usize) -> Self {
        let mut chains = Self::empty(pages);
        chains.map(0);
        chains
    }

    /// For that many pages, which no owner maps.
    pub fn empty(pages: usize) -> Self {
        Self::of_pages(pages, true)
    }

    /// For that many pages, which have no lists until [`Chains::begin`].
    pub fn without_lists(pages: usize) -> Self {
        Self::of_pages(pages, false)
    }

    fn of_pages(pages: usize, has_list: bool) -> Self {
        let page = || Page { lock: AtomicU32::new(0), first: NONE, has_list };
        let pages = (0..pages).map(|_| page()).collect();
        Self { pages, links: Vec::new(), free: NONE, counts: Counts::default() }
    }

    /// Whether a page has a list.
    pub fn has_list(&self, page: usize) -> bool {
        self.pages[page].has_list
    }

    /// A page has a list from now on, of these owners. It had none.
    pub fn begin(&mut self, page: usize, owners: impl IntoIterator<Item = u32>) {
        self.pages[page].has_list = true;
        owners.into_iter().for_each(|owner| self.add(page, owner));
    }

    /// Calls `f` with each owner of a page.
    pub fn owners(&mut self, page: usize, mut f: impl FnMut(u32)) {
        self.lock(page);
        let mut at = self.pages[page].first;
        while at != NONE {
            f(self.links[at as usize].owner);
            at = self.links[at as usize].next;
        }
        self.unlock(page);
    }

    /// One more owner maps all pages.
    pub fn map(&mut self, owner: u32) {
        (0..self.pages.len()).for_each(|page| self.add(page, owner));
    }

    /// An owner goes.
    pub fn unmap(&mut self, owner: u32) {
        (0..self.pages.len()).for_each(|page| self.remove(page, owner));
    }

    fn lock(&mut self, page: usize) {
        self.counts.locked += 1;
        while self.pages[page].lock.swap(1, Ordering::Acquire) != 0 {
            std::hint::spin_loop();
        }
    }

    fn unlock(&self, page: usize) {
        self.pages[page].lock.store(0, Ordering::Release);
    }

    /// An owner maps a page.
    pub fn add(&mut self, page: usize, owner: u32) {
        if !self.pages[page].has_list {
            self.counts.nope[0] += 1;
            return;
        }
        // What is not needed under the lock is done before it.
        let link = self.take(owner);
        self.lock(page);
        let mut before = 0;
        let mut at = self.pages[page].first;
        while at != NONE && before < 2 {
            before += 1;
            at = self.links[at as usize].next;
        }
        self.links[link as usize].next = self.pages[page].first;
        self.pages[page].first = link;
        self.unlock(page);
        self.counts.added[before] += 1;
    }

    /// An owner does not map a page any more.
    pub fn remove(&mut self, page: usize, owner: u32) {
        if !self.pages[page].has_list {
            self.counts.nope[1] += 1;
            return;
        }
        self.lock(page);
        let (mut at, mut before) = (self.pages[page].first, NONE);
        while at != NONE && self.links[at as usize].owner != owner {
            (before, at) = (at, self.links[at as usize].next);
        }
        if at != NONE {
            let next = self.links[at as usize].next;
            match before {
                NONE => self.pages[page].first = next,
                before => self.links[before as usize].next = next,
            }
            self.counts.removed[(before != NONE) as usize] += 1;
        }
        self.unlock(page);
        if at != NONE {
            self.links[at as usize].next = self.free;
            self.free = at;
        }
    }

    fn take(&mut self, owner: u32) -> u32 {
        if self.free == NONE {
            self.links.push(Link { owner, next: NONE });
            return (self.links.len() - 1) as u32;
        }
        let link = self.free;
        self.free = self.links[link as usize].next;
        self.links[link as usize].owner = owner;
        link
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_knows_its_owners() {
        let mut chains = Chains::new(10);
        (1..4).for_each(|owner| chains.map(owner));
        chains.unmap(2);
        chains.unmap(3);
        chains.map(5);
        let owners = |page: usize| {
            let mut at = chains.pages[page].first;
            std::iter::from_fn(|| {
                let link = *chains.links.get(at as usize)?;
                at = link.next;
                Some(link.owner)
            })
            .collect::<Vec<_>>()
        };
        assert!((0..10).all(|page| owners(page) == [5, 1, 0]));
        assert_eq!(
            (chains.counts.added, chains.counts.removed, chains.counts.locked),
            ([10, 10, 30], [10, 10], 70)
        );
        assert_eq!(chains.links.len(), 40);
    }

    #[test]
    fn a_page_that_was_not_asked_for_has_no_list() {
        let mut chains = Chains::without_lists(3);
        chains.map(7);
        chains.begin(1, [7, 8]);
        chains.map(9);
        chains.unmap(7);
        let mut owners = [const { Vec::new() }; 3];
        (0..3).for_each(|page| chains.owners(page, |owner| owners[page].push(owner)));
        assert_eq!(owners, [vec![], vec![9, 8], vec![]]);
        assert_eq!((chains.counts.nope, chains.counts.added, chains.counts.removed), ([5, 2], [1, 1, 1], [0, 1]));
    }
}
