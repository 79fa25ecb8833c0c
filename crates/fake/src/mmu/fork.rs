//! Forking, and messages about what changes.
//!
//! As in the kernel, a fork has the address space to itself: no thread installs, drops or moves pages meanwhile. It
//! copies tables part by part, and present pages may be read and written to all the time. The child also has bytes
//! that are written before the fork's end, because translations are only forgotten then. With messages, a thread that
//! forks or changes anything goes on when its message was read, and nothing is installed before.

use std::collections::BTreeMap;
use std::mem::take;
use std::sync::{Mutex, MutexGuard};

use super::{FakeMmu, Found, Page, State};
use faultless_base::sys::mmu::Rights;
use faultless_base::{Errno, PAGE};

/// Pages that are copied at a time.
const COPIED_AT_ONCE: usize = 4;

impl State {
    /// A write while the process forks also goes to the child's page, if that was copied.
    pub(super) fn write_as_forking(&mut self, page: usize, byte: u8) {
        if let Some(copied) = self.forking.as_mut().and_then(|pages| pages.get_mut(&page)) {
            *copied = Page::Own(byte);
        }
    }
}

impl FakeMmu {
    /// Sends messages about forks, and about what is dropped or moved.
    pub fn with_messages(self) -> Self {
        Self { sends_messages: true, ..self }
    }

    /// The state, when no fork has the address space to itself or `regardless` says that this does not matter.
    pub(super) fn when(&self, regardless: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        loop {
            (self.step)();
            let state = self.state.lock().unwrap();
            if state.forking.is_none() || regardless(&state) {
                return state;
            }
        }
    }

    /// Begins to install something: not while a message waits.
    pub(super) fn begin_bringing(&self) -> Result<MutexGuard<'_, State>, Errno> {
        let state = self.begin()?;
        if state.sent > state.read { Err(Errno::EAGAIN) } else { Ok(state) }
    }

    /// Sends a message, and waits until it was read.
    pub(super) fn tell(&self, mut state: MutexGuard<'_, State>) {
        if self.sends_messages {
            state.sent += 1;
            let own = state.sent;
            drop(state);
            while self.quietly().read < own {
                (self.step)();
            }
        }
    }

    /// Reads a message; whether there was one.
    pub fn read_message(&self) -> bool {
        (self.step)();
        let mut state = self.quietly();
        let waits = state.sent > state.read;
        state.read += waits as usize;
        waits
    }

    /// The process forks: its child.
    pub fn fork(&self) -> Self {
        let mut state = self.when(|_| false);
        state.forking = Some(BTreeMap::new());
        let (rights, given) = (state.rights.clone(), state.given.clone());
        drop(state);
        let mut from = 0;
        let mut state = loop {
            (self.step)();
            let mut state = self.quietly();
            let part = state.pages.range(from..).take(COPIED_AT_ONCE).map(|(at, page)| (*at, *page));
            let part: Vec<_> = part.collect();
            let Some((last, _)) = part.last() else { break state };
            from = last + 1;
            state.forking.iter_mut().for_each(|pages| pages.extend(part.iter().copied()));
        };
        let pages = take(&mut state.forking).unwrap_or_default();
        self.tell(state);
        let state = State { pages, rights, given, ..State::default() };
        Self { state: Mutex::new(state), frames: self.frames.clone(), ..*self }
    }

    /// What is at an address, whatever may be done with it.
    pub fn content(&self, addr: usize) -> Found {
        let state = self.quietly();
        state.pages.get(&(addr / PAGE)).map_or(Found::Missing, |page| Found::Byte(page.byte()))
    }

    /// What may be done with an address.
    pub fn rights(&self, addr: usize) -> Rights {
        self.quietly().rights.get(addr / PAGE).unwrap_or(Rights::None)
    }
}
