//! Events: what the program does to a region's memory without its knowledge, as the kernel tells of it.
//!
//! Whoever forks, unmaps, moves or drops memory of the region waits in the kernel until the message about it was read, whatever locks
//! it holds: a range of this region, or the allocator's. So one thread reads all messages and does nothing that could make it wait for
//! such a thread: it takes no lock that is held across a system call, allocates nothing, and hands faults on to the handlers through
//! pipes. If a pipe is full, whoever faulted is woken and faults again.
//!
//! | message | then |
//! |---|---|
//! | a fault | a handler serves it |
//! | fork | a region without a backing: the child's descriptor is closed, and the kernel brings zeroes, as it would. Else the child is known until it ends |
//! | remap | the old place is lost ([`faultless_base::sys::lost`]); at the new one the kernel brings zeroes, or handlers what the backing has; likewise at the old one, until a message says that nothing is there |
//! | unmap | it is lost |
//! | remove | nothing: pages are missing again, and `present` asks the page tables |
//!
//! When a handler has died nobody serves what is not the region's own, and all of that which is missing becomes an error.

use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::{Builder, JoinHandle};

use faultless_base::sys::raw;
use faultless_base::sys::uffd::message::{self, Message};
use faultless_base::sys::uffd::{BATCH, Event, State, Uffd};
use faultless_base::{PAGE, Span};

use super::children::{Child, Children};
use super::elsewhere::{self, Files, Request, WINDOW, kept};
use super::error::Error;
use super::masked::Masked;
use super::pieces::Pieces;
use super::poll::{Poll, event_file, own_files, pipe};
use super::shared::Shared;

/// How often the reader looks whether children have ended.
const LOOK_MS: i32 = 1000;
/// Parts that are moved away, of what one descriptor serves, before there has to be more room for them.
const MOVED: usize = 256;

/// The reader of a region's messages; it ends with this, after the handlers.
pub struct Events {
    /// Of each handler: where it finds what it is to do.
    pub inboxes: Vec<OwnedFd>,
    /// For handlers of a backed region.
    pub files: Option<Arc<Files>>,
    _outboxes: Vec<OwnedFd>,
    end: OwnedFd,
    threads: Vec<JoinHandle<()>>,
}

impl Events {
    /// Starts it.
    pub fn start(shared: &Arc<Shared>) -> Result<Self, Error> {
        let pipes = shared.uffds().map(|_| pipe()).collect::<Result<Vec<_>, _>>()?;
        let (inboxes, outboxes): (Vec<_>, Vec<_>) = pipes.into_iter().unzip();
        let end = event_file()?;
        let (files, jobs) = Files::new();
        let (started, start) = sync_channel(1);
        let numbers: Vec<_> = outboxes.iter().map(AsRawFd::as_raw_fd).collect();
        let (shared, end_number) = (shared.clone(), end.as_raw_fd());
        let is_backed = shared.memory.backing().is_some();
        let jobs = move || {
            let _masked = Masked::new();
            jobs.iter().for_each(|job| job());
        };
        let work = move || {
            let _masked = Masked::new();
            let reader = Reader::new(shared, numbers, end_number).and_then(|reader| {
                // It has the descriptors of the thread that starts it.
                let jobs = is_backed.then(|| Builder::new().name("faultless-files".into()).spawn(jobs));
                Ok((reader, jobs.transpose().map_err(|_| Error::NoThread)?))
            });
            match reader {
                Ok((reader, jobs)) => {
                    let _ = started.send(Ok(jobs));
                    let shared = reader.shared.clone();
                    if catch_unwind(AssertUnwindSafe(|| reader.run())).is_err() {
                        shared.close("the reader of events has died");
                        shared.memory.let_go();
                    }
                }
                Err(error) => drop(started.send(Err(error))),
            }
        };
        let reader = Builder::new().name("faultless-events".into()).spawn(work).map_err(|_| Error::NoThread)?;
        let jobs: Option<JoinHandle<()>> = start.recv().unwrap_or(Err(Error::NoThread))?;
        let files = is_backed.then(|| Arc::new(files));
        let threads = std::iter::once(reader).chain(jobs).collect();
        Ok(Self { inboxes, files, _outboxes: outboxes, end, threads })
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let one = 1u64;
        // SAFETY: the eight bytes of a number.
        unsafe { libc::write(self.end.as_raw_fd(), (&raw const one).cast(), size_of_val(&one)) };
        self.files.take();
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

struct Reader {
    shared: Arc<Shared>,
    /// The descriptors of the region, and the pipes to their handlers.
    uffds: Vec<i32>,
    outboxes: Vec<i32>,
    /// What was moved away, and what is left where it was, by descriptor.
    moved: Vec<Pieces>,
    children: Children,
    poll: Poll,
    end: i32,
    looked: u64,
}

impl Reader {
    /// In the thread that is to read.
    fn new(shared: Arc<Shared>, outboxes: Vec<i32>, end: i32) -> Result<Self, Error> {
        let uffds: Vec<_> = shared.uffds().map(Uffd::number).collect();
        let keep: Vec<_> = uffds.iter().chain(&outboxes).copied().chain([end]).collect();
        own_files(&keep)?;
        let poll = Poll::new()?;
        let all = uffds.iter().chain([&end]).all(|fd| poll.add(*fd));
        let moved = uffds.iter().map(|_| Pieces::new(MOVED));
        let moved = moved.collect::<Option<Vec<_>>>().filter(|_| all).ok_or(Error::NoThread)?;
        let mut children = Children::new();
        children.make_spare(end);
        Ok(Self { children, shared, uffds, outboxes, moved, poll, end, looked: 0 })
    }

    fn is_backed(&self) -> bool {
        self.shared.memory.backing().is_some()
    }

    /// Reads until the end of service.
    fn run(mut self) {
        let shared = self.shared.clone();
        loop {
            let is_busy = self.children.has_refused() || shared.is_closed() && self.serves();
            let mut ready = self.poll.wait(if is_busy { 1 } else { LOOK_MS }).peekable();
            if ready.peek().is_some() {
                let mut ended = false;
                shared.behind.reading(|| {
                    for fd in ready {
                        if fd == self.end { ended = true } else { self.read(fd) }
                    }
                });
                if ended {
                    return self.finish();
                }
            }
            self.end_refused();
            if shared.is_closed() {
                self.give_up();
            }
            let now = raw::now_ns();
            if now - self.looked > LOOK_MS as u64 * 1_000_000 {
                self.looked = now;
                self.forget_ended();
            }
        }
    }

    /// Reads what messages a descriptor has, and does what they ask for.
    fn read(&mut self, fd: i32) {
        let mut messages = [[0; 4]; BATCH];
        match message::read(fd, &mut messages) {
            Ok(n) => messages[..n].iter().for_each(|message| self.take(fd, message)),
            // It was woken meanwhile.
            Err(libc::EAGAIN) => {}
            // For the descriptor of a child.
            Err(libc::EMFILE) if self.forget_ended() || self.children.use_spare() => {}
            // The same, and it has to wait until one is to be had.
            Err(_) => raw::sleep_ns(1_000_000),
        }
    }

    fn take(&mut self, fd: i32, message: &Message) {
        let own = self.uffds.iter().position(|uffd| *uffd == fd);
        match (Event::from(*message), own) {
            (Event::Fault { address, .. }, Some(i)) => {
                let page = Span::new(address & !(PAGE - 1), PAGE);
                let inside = self.shared.memory.span().contains(address);
                let moved = self.moved[i].find(address);
                if !inside || moved.is_some() || self.shared.memory.lost().is_some_and(|lost| lost.meets(page)) {
                    self.bring(fd, i, page, moved);
                } else if !message::send(self.outboxes[i], message) {
                    let _ = kept(fd).wake(page);
                }
            }
            (Event::Fault { address, .. }, None) => {
                let Some(child) = self.children.get(fd) else { return };
                let pieces = child.pieces.as_ref().filter(|_| !child.is_refused);
                let found = pieces.and_then(|pieces| pieces.find(address));
                let stripe = child.stripe;
                self.bring(fd, stripe, Span::new(address & !(PAGE - 1), PAGE), found);
            }
            (Event::Fork(child), _) => self.add(fd, own, child as i32),
            (Event::Remap(from, to), Some(i)) if !self.shared.behind.is_own(from) => self.remapped(i, from, to),
            (Event::Unmap(span), Some(i)) if !self.shared.behind.is_own(span) => {
                self.shared.memory.lost().inspect(|lost| lost.mark(span));
                self.moved[i].remove(span);
            }
            (Event::Remap(from, to), None) => self.pieces_of(fd, |pieces| pieces.moved(from, to, pieces.count())),
            (Event::Unmap(span), None) => self.pieces_of(fd, |pieces| pieces.remove(span)),
            _ => {}
        }
    }

    fn pieces_of(&mut self, child: i32, change: impl FnOnce(&mut Pieces)) {
        self.children.get(child).and_then(|child| child.pieces.as_mut()).map(change);
    }

    /// A fault where no area of the region is.
    fn bring(&mut self, fd: i32, i: usize, page: Span, found: Option<(Span, usize)>) {
        let uffd = kept(fd);
        let done = match found.filter(|_| !self.shared.is_closed()) {
            _ if !self.is_backed() => {
                // All of it, because the kernel has only so many areas.
                let all = found.map_or(page, |(span, _)| span);
                self.moved[i].remove(all);
                uffd.unregister_pieces(all)
            }
            Some((span, offset)) => {
                let to = Span::new(page.start, WINDOW).clip(span);
                let offset = offset + (to.start - span.start);
                message::send(self.outboxes[i], &Request::Bring { uffd: fd, to, offset }.message())
            }
            // What belongs there is not known, and not zero.
            None => uffd.poison(page).is_ok(),
        };
        if !done {
            let _ = uffd.wake(page);
        }
    }

    fn remapped(&mut self, i: usize, from: Span, to: usize) {
        let Some(lost) = self.shared.memory.lost() else { return };
        let is_backed = self.is_backed();
        let moved = &mut self.moved[i];
        let before = moved.count();
        self.shared.memory.areas().each(from, |view| {
            for part in lost.kept(view.span.clip(from)) {
                let offset = view.offset + (part.start - view.span.start);
                moved.push(Span::new(to + (part.start - from.start), part.bytes()), offset);
                moved.push(part, offset);
            }
        });
        moved.moved(from, to, before);
        lost.mark(from);
        let to = Span::new(to, from.bytes());
        if !is_backed && kept(self.uffds[i]).unregister_pieces(to) {
            moved.remove(to);
        }
    }

    /// The process behind `fd` has forked.
    fn add(&mut self, fd: i32, own: Option<usize>, child: i32) {
        if !self.is_backed() {
            return elsewhere::close(child);
        }
        let (stripe, pieces) = match own {
            Some(i) => (i, self.now(i)),
            None => match self.children.get(fd) {
                Some(parent) => (parent.stripe, parent.pieces.as_ref().and_then(Pieces::copy)),
                None => return elsewhere::close(child),
            },
        };
        let is_refused = !self.poll.add(child) || !self.children.have_room();
        if !self.children.add(Child { uffd: child, stripe, pieces, is_refused }) {
            elsewhere::close(child);
        }
    }

    /// What belongs where, of the part of descriptor `i`.
    fn now(&self, i: usize) -> Option<Pieces> {
        let areas = self.shared.memory.areas();
        let mut pieces = Pieces::new(areas.count() + 2 * MOVED)?;
        let part = self.shared.memory.part(i);
        areas.each(part, |view| {
            let own = view.span.clip(part);
            pieces.push(own, view.offset + (own.start - view.span.start));
        });
        self.moved[i].all().for_each(|(span, offset)| pieces.push(span, offset));
        Some(pieces)
    }

    /// Has descriptors of children closed that have ended; whether there are some.
    fn forget_ended(&mut self) -> bool {
        let page = Span::new(self.shared.memory.span().start, PAGE);
        let (poll, outboxes) = (&self.poll, &self.outboxes);
        let mut some = false;
        self.children.retain(|child| {
            // After what was asked for before: a number is used again.
            let is_asked =
                || message::send(outboxes[child.stripe], &Request::Close { uffd: child.uffd }.message());
            let ended = kept(child.uffd).state(page) == State::Gone && is_asked();
            if ended {
                poll.remove(child.uffd);
            }
            some |= ended;
            !ended
        });
        some
    }

    /// Whether handlers may be asked for what is not the region's own.
    fn serves(&self) -> bool {
        self.moved.iter().any(|moved| moved.count() > 0) || self.children.have_pieces()
    }

    /// What a handler would bring is an error from now on.
    fn give_up(&mut self) {
        let is_backed = self.is_backed();
        for (uffd, moved) in self.uffds.iter().zip(&mut self.moved) {
            if !is_backed || poisoned(*uffd, moved) {
                moved.all().for_each(|(span, _)| _ = kept(*uffd).unregister_pieces(span));
                moved.clear();
            }
        }
        // Their descriptors stay open, because a handler may still have one.
        self.children.forget_pieces(poisoned);
    }

    /// Ends service: what could be read as zero and is not is an error from now on, and nobody waits any more.
    fn finish(mut self) {
        self.poll.remove(self.end);
        let page = Span::new(self.shared.memory.span().start, PAGE);
        self.shared.memory.let_go();
        loop {
            self.read_on();
            self.give_up();
            self.children.refuse_all();
            self.end_refused();
            // Somebody is about to tell of something, and will wait until it was read.
            let is_changing = self.uffds.iter().any(|uffd| kept(*uffd).state(page) == State::Changing);
            if !is_changing && !self.serves() && self.children.is_empty() {
                break;
            }
        }
    }

    /// Reads what there is of any descriptor. Who forks tells of it one descriptor after the other, and no page of any can be poisoned
    /// until all of that was read.
    fn read_on(&mut self) {
        self.poll.wait(1).for_each(|fd| self.read(fd));
    }

    /// Lets go of the children that are refused: what they miss is an error.
    fn end_refused(&mut self) {
        let mut i = 0;
        while let Some(child) = self.children.at(i) {
            let uffd = child.uffd;
            if !child.is_refused {
                i += 1;
            } else if child.pieces.as_ref().is_none_or(|pieces| poisoned(uffd, pieces)) {
                self.children.remove(i);
                elsewhere::close(uffd);
                self.children.make_spare(self.end);
            } else {
                self.read(uffd);
                i += 1;
            }
        }
    }
}

/// Whether all that a descriptor's process may miss is an error now. Not yet: it tells of something.
fn poisoned(uffd: i32, pieces: &Pieces) -> bool {
    pieces.all().all(|(span, _)| elsewhere::poison(&kept(uffd), span))
}
