//! The memory of one region, for tests.
//!
//! One byte stands for all of a page. It panics where a region breaks a rule: pages installed where no access is
//! allowed, moved to where some are, or taken from a buffer that is not there. Failures can be asked for, and a hook
//! is called before each operation, so that a checker switches threads there.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard};

use faultless_base::sys::mmu::Rights;
use faultless_base::{Errno, PAGE, SLOT, Span};

use crate::Fake;

mod aside;
mod fork;
mod operations;

/// In a row of errors: this call works.
pub const WORKS: Errno = Errno::new(0);

/// What an access finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// This byte.
    Byte(u8),
    /// No page: a fault.
    Missing,
    /// No right: a SIGSEGV.
    Forbidden,
    /// A page that cannot be had: a SIGBUS.
    Poisoned,
}

/// A page that is there.
#[derive(Clone, Copy)]
enum Page {
    /// The kernel's page of zeroes, which is never written.
    Zero,
    /// Its own.
    Own(u8),
    /// An error.
    Poison,
}

impl Page {
    fn byte(self) -> u8 {
        match self {
            Self::Zero | Self::Poison => 0,
            Self::Own(byte) => byte,
        }
    }
}

/// Rights of pages: from each of these on, up to the next.
#[derive(Clone, Default)]
struct Ranges(BTreeMap<usize, Option<Rights>>);

impl Ranges {
    /// `None` where there were never any.
    fn get(&self, page: usize) -> Option<Rights> {
        self.0.range(..=page).next_back().and_then(|(_, rights)| *rights)
    }

    fn set(&mut self, pages: std::ops::Range<usize>, rights: Rights) {
        let behind = self.get(pages.end);
        self.0.retain(|page, _| !pages.contains(page));
        self.0.extend([(pages.start, Some(rights)), (pages.end, behind)]);
    }
}

#[derive(Default)]
struct State {
    /// By their number; pages that are not here are missing, or may not be accessed.
    pages: BTreeMap<usize, Page>,
    /// Writes to these raise faults.
    protected: BTreeSet<usize>,
    /// The first write to each of these is noted: it is not one of them any more.
    noted: BTreeSet<usize>,
    /// Of these the kernel itself brings the missing pages.
    given: BTreeSet<usize>,
    /// Slots in which an access or a page has left a table behind.
    tables: BTreeSet<usize>,
    keeps_tables: bool,
    splits: usize,
    copied: usize,
    rights: Ranges,
    /// Memory reserved for buffers, slot by slot: what is in it.
    reserved: BTreeMap<usize, Option<Vec<u8>>>,
    next: usize,
    failures: VecDeque<Errno>,
    fills: usize,
    installs: usize,
    /// Where the backing ends, if it does.
    end: Option<usize>,
    /// Buffers that held zeroes when they were filled, and frames that were zeroed.
    zeroed_fills: usize,
    zeroed_frames: usize,
    no_huge: bool,
    no_copies: usize,
    /// Pages of the memory aside that are there.
    aside: BTreeSet<usize>,
    /// Pages for copies, which count as nothing.
    copies: std::ops::Range<usize>,
    /// The most pages that there ever were, in both.
    most: usize,
    /// What the store has, by the number of a page in the region.
    store: BTreeMap<usize, u8>,
    store_failures: VecDeque<Errno>,
    write_failures: VecDeque<Errno>,
    /// Pages that do not move.
    pinned: BTreeSet<usize>,
    /// The address space is locked for a fork, and this is what the child has so far.
    forking: Option<BTreeMap<usize, Page>>,
    /// Messages that were sent, and that were read.
    sent: usize,
    read: usize,
}

/// The memory of one region.
pub struct FakeMmu {
    state: Mutex<State>,
    step: fn(),
    at_any_time: bool,
    looks_in_faults: bool,
    sends_messages: bool,
    /// Where huge pages lie while they are not the region's.
    frames: Fake,
}

/// What is read of a page, which one byte stands for.
fn all_of(buffer: &mut [u8], byte: u8) {
    buffer.fill(byte);
}

/// The byte that the backing has at an offset.
pub fn backing_byte(offset: usize) -> u8 {
    (offset / PAGE % 251) as u8 + 1
}

impl FakeMmu {
    /// Nothing is there; `step` is called before each operation.
    pub fn new(step: fn()) -> Self {
        Self {
            state: Mutex::default(),
            step,
            at_any_time: true,
            looks_in_faults: true,
            sends_messages: false,
            frames: Fake::default(),
        }
    }

    /// With huge pages that lie in this memory while they are not the region's.
    pub fn with_frames(self, frames: Fake) -> Self {
        Self { frames, ..self }
    }

    /// With a backing that may not be read while the region changes.
    pub fn with_slow_backing(self) -> Self {
        Self { at_any_time: false, ..self }
    }

    /// As if faults were served by a thread of their own, which must not fault.
    pub fn with_handler(self) -> Self {
        Self { looks_in_faults: false, ..self }
    }

    /// The next operations fail with these error numbers, one each; 0: that one works.
    pub fn fail(&self, errors: &[Errno]) {
        self.state.lock().unwrap().failures.extend(errors);
    }

    /// There is no memory for the next copies of pages.
    pub fn refuse_copies(&self, copies: usize) {
        self.state.lock().unwrap().no_copies = copies;
    }

    /// The backing ends here from now on; zeroes are behind.
    pub fn truncate(&self, end: usize) {
        self.state.lock().unwrap().end = Some(end);
    }

    /// No huge page can be made.
    pub fn refuse_huge(&self) {
        self.state.lock().unwrap().no_huge = true;
    }

    /// How often the backing was read.
    pub fn fills(&self) -> usize {
        self.state.lock().unwrap().fills
    }

    /// How often pages were asked to be installed.
    pub fn installs(&self) -> usize {
        self.state.lock().unwrap().installs
    }

    /// How often it was read over pages that had been zeroed, and how many frames were zeroed.
    pub fn zeroed(&self) -> (usize, usize) {
        let state = self.state.lock().unwrap();
        (state.zeroed_fills, state.zeroed_frames)
    }

    /// The kernel does not free tables that are empty.
    pub fn keep_tables(&self) {
        self.state.lock().unwrap().keeps_tables = true;
    }

    /// How often a huge page met a table, and had to be split.
    pub fn splits(&self) -> usize {
        self.state.lock().unwrap().splits
    }

    /// How many pages take memory.
    pub fn resident(&self) -> usize {
        let state = self.state.lock().unwrap();
        state.pages.values().filter(|page| matches!(page, Page::Own(_))).count()
    }

    /// How often a write met the page of zeroes.
    pub fn copied(&self) -> usize {
        self.state.lock().unwrap().copied
    }

    /// How many are the kernel's page of zeroes.
    pub fn zero_pages(&self) -> usize {
        let state = self.state.lock().unwrap();
        state.pages.values().filter(|page| matches!(page, Page::Zero)).count()
    }

    /// The program has pages protected again, by which the kernel would note writes: those it has noted are lost.
    pub fn note_again(&self, span: Span) {
        let mut state = self.state.lock().unwrap();
        let there: Vec<_> = pages(span).filter(|page| state.pages.contains_key(page)).collect();
        state.noted.extend(there);
    }

    /// The program reads.
    pub fn read(&self, addr: usize) -> Found {
        self.access(addr, Rights::Read, None)
    }

    /// The program writes; what was there before.
    pub fn write(&self, addr: usize, byte: u8) -> Found {
        self.access(addr, Rights::Write, Some(byte))
    }

    fn access(&self, addr: usize, wants: Rights, byte: Option<u8>) -> Found {
        let page = addr / PAGE;
        // A present page can be used while the process forks; the kernel's own faults wait.
        let mut state = self.when(|state| match (state.pages.get(&page), byte) {
            (None, _) => !state.given.contains(&page),
            (Some(Page::Zero), Some(_)) => false,
            _ => true,
        });
        if state.rights.get(page).is_none_or(|rights| rights < wants) {
            return Found::Forbidden;
        }
        if !state.pages.contains_key(&page) {
            state.tables.insert(addr / SLOT);
        }
        let fresh = match byte {
            Some(_) => Page::Own(0),
            None => Page::Zero,
        };
        if state.given.contains(&page) {
            state.pages.entry(page).or_insert(fresh);
        }
        if byte.is_some() && state.pages.contains_key(&page) && state.protected.contains(&page) {
            return Found::Missing;
        }
        if byte.is_some() {
            state.noted.remove(&page);
        }
        let Some(held) = state.pages.get_mut(&page) else { return Found::Missing };
        if matches!(held, Page::Poison) {
            return Found::Poisoned;
        }
        let before = held.byte();
        if let Some(byte) = byte {
            // Of the page of zeroes, a page of its own is made.
            let copied = matches!(held, Page::Zero);
            *held = Page::Own(byte);
            state.copied += copied as usize;
            state.write_as_forking(page, byte);
        }
        Found::Byte(before)
    }

    /// Begins an operation that takes the lock of the address space.
    fn begin(&self) -> Result<MutexGuard<'_, State>, Errno> {
        let mut state = self.when(|_| false);
        match state.failures.pop_front() {
            None | Some(WORKS) => Ok(state),
            Some(error) => Err(error),
        }
    }

    /// Without a place for failures or other threads.
    fn quietly(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

fn pages(span: Span) -> std::ops::Range<usize> {
    assert!(span.start % PAGE == 0 && span.end % PAGE == 0, "{span:x?} is not whole pages");
    span.start / PAGE..span.end / PAGE
}
