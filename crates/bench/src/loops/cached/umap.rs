//! A file that is larger than memory, as UMap of the Lawrence Livermore National Laboratory pages it: the same way, anew.
//!
//! One thread takes faults off a userfaultfd. Fillers read a page past the kernel's page cache into a buffer of their
//! own, and copy it to its place, protected against writing. The buffer has a number of pages, of one size. Once 90 %
//! of them are used, evictors write back and drop the oldest ones, down to 70 %. These numbers, and a filler and an
//! evictor for each CPU, are those of UMap 2.1 where no variable says otherwise. One lock protects the buffer. The
//! threads end with the process.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use faultless_base::sys::uffd::message::{self, Message};
use faultless_base::sys::uffd::{Event, REGISTER_MISSING, REGISTER_WP, Uffd, Waited, Wake, feature};
use faultless_base::sys::{Huge, Sys, linux::Linux};
use faultless_base::{Errno, SLOT, Span};

use super::disk::Buffers;
use crate::loops::memory::Mapping;

/// Messages that are read at a time.
const EVENTS: usize = 256;

#[derive(Clone, Copy, PartialEq)]
enum State {
    /// A filler brings it, or lets writes to it.
    Filling,
    Present,
    /// An evictor has it.
    Leaving,
}

struct Page {
    state: State,
    /// Whether its bytes are there.
    is_filled: bool,
    is_dirty: bool,
}

/// Pages by their numbers.
#[derive(Default)]
struct Pages {
    all: HashMap<usize, Page>,
    /// In the order in which they came.
    oldest: VecDeque<usize>,
    to_fill: VecDeque<usize>,
    is_evicting: bool,
    /// Whether a thread waits until a page is present, or gone.
    is_waited_for: bool,
}

/// A file, and the memory that its pages come to.
pub(super) struct Umap {
    uffd: Uffd,
    file: File,
    span: Span,
    page: usize,
    most: usize,
    pages: Mutex<Pages>,
    /// What fillers, evictors, and others wait for.
    asked: Condvar,
    full: Condvar,
    changed: Condvar,
}

fn wait<'a>(until: &Condvar, pages: MutexGuard<'a, Pages>) -> MutexGuard<'a, Pages> {
    until.wait(pages).unwrap_or_else(PoisonError::into_inner)
}

fn os(error: Errno) -> io::Error {
    io::Error::from_raw_os_error(error.number())
}

impl Umap {
    /// Maps all of a file, which is open for direct reads, with memory for `memory` bytes of it.
    pub(super) fn new(file: File, bytes: usize, page: usize, memory: usize) -> io::Result<Arc<Self>> {
        let (uffd, _) = Uffd::open_best().map_err(os)?;
        uffd.enable(feature::WP).map_err(os)?;
        let mapping = Mapping::new(bytes + SLOT)?;
        let span = Span::new(mapping.place().start().next_multiple_of(SLOT), bytes);
        Linux.huge(span, Huge::Refused);
        // SAFETY: each touch from now on reckons with faults.
        unsafe { uffd.register(span, REGISTER_MISSING | REGISTER_WP) }.map_err(os)?;
        // It lives as long as the process.
        std::mem::forget(mapping);
        let [asked, full, changed] = [Condvar::new(), Condvar::new(), Condvar::new()];
        let (pages, most) = (Mutex::default(), memory / page);
        let umap = Arc::new(Self { uffd, file, span, page, most, pages, asked, full, changed });
        let start = |work: fn(&Self) -> io::Result<()>| {
            let umap = Arc::clone(&umap);
            thread::spawn(move || {
                if let Err(error) = work(&umap) {
                    // Threads wait for its pages.
                    eprintln!("faultless: as UMap does it: {error}");
                    std::process::exit(1);
                }
            });
        };
        start(Self::take_faults);
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            start(Self::bring);
            start(Self::evict);
        }
        Ok(umap)
    }

    /// Where its bytes are.
    pub(super) fn start(&self) -> usize {
        self.span.start
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, mut pages: MutexGuard<'a, Pages>) -> MutexGuard<'a, Pages> {
        pages.is_waited_for = true;
        wait(&self.changed, pages)
    }

    /// A page is present, or gone.
    fn tell(&self, pages: &mut Pages) {
        if std::mem::take(&mut pages.is_waited_for) {
            self.changed.notify_all();
        }
    }

    fn place(&self, number: usize) -> Span {
        Span::new(self.span.start + number * self.page, self.page)
    }

    fn take_faults(&self) -> io::Result<()> {
        let mut messages: Vec<Message> = vec![[0; 4]; EVENTS];
        loop {
            let waited = message::receive(self.uffd.number(), None, u32::MAX, &mut messages).map_err(os)?;
            let Waited::Messages(n) = waited else { continue };
            for message in &messages[..n] {
                if let Event::Fault { address, flags, .. } = Event::from(*message) {
                    self.ask_for((address - self.span.start) / self.page, flags != 0)?;
                }
            }
        }
    }

    /// Has a filler bring a page, or let writes to it.
    fn ask_for(&self, number: usize, is_write: bool) -> io::Result<()> {
        let mut pages = self.pages();
        loop {
            let has_room = pages.all.len() < self.most;
            match pages.all.get_mut(&number) {
                None if has_room => break,
                Some(page) if page.state == State::Present => {
                    if !is_write || page.is_dirty {
                        // It came meanwhile.
                        return self.uffd.wake(self.place(number)).map_err(os);
                    }
                    (page.state, page.is_dirty) = (State::Filling, true);
                    pages.to_fill.push_back(number);
                    self.asked.notify_one();
                    return Ok(());
                }
                _ => pages = self.wait(pages),
            }
        }
        pages.all.insert(number, Page { state: State::Filling, is_filled: false, is_dirty: is_write });
        pages.oldest.push_back(number);
        pages.to_fill.push_back(number);
        self.asked.notify_one();
        if !pages.is_evicting && pages.all.len() * 10 >= self.most * 9 {
            pages.is_evicting = true;
            self.full.notify_all();
        }
        Ok(())
    }

    /// A filler.
    fn bring(&self) -> io::Result<()> {
        let mut buffers = Buffers::new(1, self.page);
        let buffer = buffers.get(0);
        let mut pages = self.pages();
        loop {
            let Some(number) = pages.to_fill.pop_front() else {
                pages = wait(&self.asked, pages);
                continue;
            };
            let page = &pages.all[&number];
            let (is_filled, is_dirty, to) = (page.is_filled, page.is_dirty, self.place(number));
            drop(pages);
            if !is_filled {
                self.file.read_exact_at(buffer, (number * self.page) as u64)?;
            }
            // SAFETY: a page that was read; of the memory of the file.
            let done = unsafe {
                match (is_filled, is_dirty) {
                    (true, _) => self.uffd.write_protect(to, false),
                    (false, true) => {
                        self.uffd.copy(buffer.as_ptr() as usize, to, Wake::Later).map_err(|e| e.error)
                    }
                    (false, false) => self.uffd.copy_protected(buffer.as_ptr() as usize, to).map_err(|e| e.error),
                }
            };
            done.and_then(|()| self.uffd.wake(to)).map_err(os)?;
            pages = self.pages();
            if let Some(page) = pages.all.get_mut(&number) {
                (page.state, page.is_filled) = (State::Present, true);
            }
            if pages.is_evicting {
                self.full.notify_one();
            }
            self.tell(&mut pages);
        }
    }

    /// An evictor.
    fn evict(&self) -> io::Result<()> {
        let mut pages = self.pages();
        loop {
            pages.is_evicting &= pages.all.len() * 10 > self.most * 7;
            let is_present = |number: &usize| pages.all[number].state == State::Present;
            let found = if pages.is_evicting { pages.oldest.iter().position(is_present) } else { None };
            let Some(number) = found.and_then(|at| pages.oldest.remove(at)) else {
                pages = wait(&self.full, pages);
                continue;
            };
            let mut is_dirty = false;
            if let Some(page) = pages.all.get_mut(&number) {
                (page.state, is_dirty) = (State::Leaving, page.is_dirty);
            }
            drop(pages);
            if is_dirty {
                self.write(number)?;
            }
            let at = self.place(number);
            // SAFETY: memory of the file, which is written; who needs it again asks for it.
            if unsafe { libc::madvise(at.start as *mut _, at.bytes(), libc::MADV_DONTNEED) } != 0 {
                return Err(io::Error::last_os_error());
            }
            pages = self.pages();
            pages.all.remove(&number);
            self.tell(&mut pages);
        }
    }

    /// Writes a page that is present, which no thread changes from now on.
    fn write(&self, number: usize) -> io::Result<()> {
        let at = self.place(number);
        // SAFETY: memory of the file; a thread that writes to it asks first. It is there.
        let bytes = unsafe {
            self.uffd.write_protect(at, true).map_err(os)?;
            std::slice::from_raw_parts(at.start as *const u8, at.bytes())
        };
        self.file.write_all_at(bytes, (number * self.page) as u64)
    }

    /// Brings the first bytes of the file, until evictors are about to begin.
    pub(super) fn fill(&self) -> io::Result<()> {
        let mut buffers = Buffers::new(1, self.page);
        let buffer = buffers.get(0);
        for number in 0..self.most * 8 / 10 {
            self.file.read_exact_at(buffer, (number * self.page) as u64)?;
            // SAFETY: a page that was read; of the memory of the file.
            let copied = unsafe { self.uffd.copy_protected(buffer.as_ptr() as usize, self.place(number)) };
            copied.map_err(|stopped| os(stopped.error))?;
            let mut pages = self.pages();
            pages.all.insert(number, Page { state: State::Present, is_filled: true, is_dirty: false });
            pages.oldest.push_back(number);
        }
        Ok(())
    }

    /// Writes all that has changed, and waits until it is durable. No thread uses the file meanwhile.
    pub(super) fn sync(&self) -> io::Result<()> {
        let mut pages = self.pages();
        while pages.all.values().any(|page| page.state != State::Present) {
            pages = self.wait(pages);
        }
        for (number, page) in pages.all.iter_mut().filter(|(_, page)| page.is_dirty) {
            self.write(*number)?;
            page.is_dirty = false;
        }
        self.file.sync_data()
    }
}
