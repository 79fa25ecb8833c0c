//! The reader of a region's messages: what it does about each.
//!
//! | message | then |
//! |---|---|
//! | a fault | a handler serves it |
//! | fork | a region without a backing: the child's descriptor is closed, and the kernel brings zeroes, as it would. Else the child is known until it ends |
//! | remap | the old place is lost ([`faultless_base::sys::lost`]); at the new one the kernel brings zeroes, or handlers what the backing has; likewise at the old one, until a message says that nothing is there |
//! | unmap | it is lost |
//! | remove | nothing: pages are missing again, and `present` asks the page tables |
//!
//! When a handler has died, no thread serves memory that is not the region's own: each missing page of it becomes an
//! error.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use faultless_base::sys::raw;
use faultless_base::sys::uffd::message::{self, Message};
use faultless_base::sys::uffd::{BATCH, Event, State, Uffd, Wake};
use faultless_base::{Errno, PAGE, Span};
use faultless_mm::region::area::View;

use crate::error::Error;
use crate::events::children::{Child, Children};
use crate::events::moved_ranges::Pieces;
use crate::events::remote_fill::{self, Request, WINDOW, kept};
use crate::process::descriptors::{Poll, own_files};
use crate::shared::Shared;

/// How often the reader looks whether children have ended.
const LOOK_MS: i32 = 1000;
/// How long the reader rests while other threads change areas.
const LOCKED_NS: u64 = 20_000;
/// Parts that are moved away, of what one descriptor serves, before there has to be more room for them.
const MOVED: usize = 256;

/// Reads the messages of a region.
pub struct Reader {
    pub shared: Arc<Shared>,
    /// The descriptors of the region, and the pipes to their handlers.
    uffds: Vec<i32>,
    outboxes: Vec<i32>,
    /// Ranges that were moved away, and those left at the old place, by descriptor.
    moved: Vec<Pieces>,
    children: Children,
    poll: Poll,
    end: i32,
    /// The thread that started this, if it reads in a process apart.
    starter: Option<i32>,
    /// It waits, with nothing half done.
    rests: AtomicBool,
    looked: u64,
}

impl Reader {
    /// In the thread that is to read.
    pub fn new(shared: Arc<Shared>, outboxes: Vec<i32>, end: i32) -> Result<Self, Error> {
        let uffds: Vec<_> = shared.uffds().map(Uffd::number).collect();
        let keep: Vec<_> = uffds.iter().chain(&outboxes).copied().chain([end]).collect();
        own_files(&keep)?;
        let poll = Poll::new()?;
        let all = uffds.iter().chain([&end]).all(|fd| poll.add(*fd));
        let moved = uffds.iter().map(|_| Pieces::new(MOVED));
        let moved = moved.collect::<Option<Vec<_>>>().filter(|_| all).ok_or(Error::NoThread)?;
        let mut children = Children::new();
        children.make_spare(end);
        let (starter, rests, looked) = (None, AtomicBool::new(false), 0);
        Ok(Self { children, shared, uffds, outboxes, moved, poll, end, starter, rests, looked })
    }

    fn is_backed(&self) -> bool {
        self.shared.memory.backing().is_some()
    }

    /// Reads until the end of service, or of the thread that started this. It may be killed, so it has nothing that
    /// is counted.
    pub fn run(&mut self, shared: &Shared, starter: Option<i32>) {
        self.starter = starter.filter(|starter| self.poll.add(*starter));
        loop {
            let is_busy = self.children.has_refused() || shared.is_closed() && self.serves();
            self.rests.store(true, Ordering::Release);
            let mut ready = self.poll.wait(if is_busy { 1 } else { LOOK_MS }).peekable();
            self.rests.store(false, Ordering::Release);
            if ready.peek().is_some() {
                let (mut ended, mut left) = (false, false);
                shared.behind.reading(|| {
                    for fd in ready {
                        match fd {
                            _ if fd == self.end => ended = true,
                            _ if Some(fd) == self.starter => left = true,
                            _ => self.read(fd),
                        }
                    }
                });
                if left {
                    return self.leave();
                } else if ended {
                    return self.finish();
                }
            }
            if shared.ends() {
                // The program has closed what would have said so.
                return self.finish();
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
            Err(Errno::EAGAIN) => {}
            // For the descriptor of a child.
            Err(Errno::EMFILE) if self.forget_ended() || self.children.use_spare() => {}
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
                // The whole range, because the kernel has a limited number of areas.
                let all = found.map_or(page, |(span, _)| span);
                self.moved[i].remove(all);
                uffd.unregister_pieces(all)
            }
            Some((span, offset)) => {
                let to = Span::new(page.start, WINDOW).clip(span);
                let offset = offset + (to.start - span.start);
                message::send(self.outboxes[i], &Request::Bring { uffd: fd, to, offset }.message())
            }
            // The bytes of this page are not known, and zero would be wrong.
            None => uffd.poison(page, Wake::Now).is_ok(),
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
        let known = each_area(&self.shared, self.starter, from, |view| {
            for part in lost.kept(view.span.clip(from)) {
                let offset = view.offset + (part.start - view.span.start);
                moved.push(Span::new(to + (part.start - from.start), part.bytes()), offset);
                moved.push(part, offset);
            }
        });
        if !known {
            // Only to be made an error.
            moved.push(Span::new(to, from.bytes()), 0);
        }
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
            return remote_fill::close(child);
        }
        let (stripe, pieces) = match own {
            Some(i) => (i, self.now(i)),
            None => match self.children.get(fd) {
                Some(parent) => (parent.stripe, parent.pieces.as_ref().and_then(Pieces::copy)),
                None => return remote_fill::close(child),
            },
        };
        if pieces.is_none() {
            // No memory to note it: what the child misses is an error at once.
            self.refuse_at_once(fd, own, child);
            return remote_fill::close(child);
        }
        let is_refused = !self.poll.add(child) || !self.children.have_room();
        if !self.children.add(Child { uffd: child, stripe, pieces, is_refused }) {
            remote_fill::close(child);
        }
    }

    fn refuse_at_once(&mut self, fd: i32, own: Option<usize>, child: i32) {
        if let Some(i) = own {
            remote_fill::poison(&kept(child), self.shared.memory.part(i));
            poisoned(child, &self.moved[i]);
        } else if let Some(pieces) = self.children.get(fd).and_then(|parent| parent.pieces.as_ref()) {
            poisoned(child, pieces);
        }
    }

    /// Which bytes belong where, of the part of descriptor `i`.
    fn now(&self, i: usize) -> Option<Pieces> {
        let mut pieces = Pieces::new(2 * MOVED)?;
        let part = self.shared.memory.part(i);
        let known = each_area(&self.shared, self.starter, part, |view| {
            let own = view.span.clip(part);
            pieces.push(own, view.offset + (own.start - view.span.start));
        });
        if !known {
            pieces.push(part, 0);
        }
        self.moved[i].all().for_each(|(span, offset)| pieces.push(span, offset));
        Some(pieces)
    }

    /// Has descriptors of children closed that have ended; whether there are some.
    fn forget_ended(&mut self) -> bool {
        let page = Span::new(self.shared.memory.span().start, PAGE);
        let (poll, outboxes) = (&self.poll, &self.outboxes);
        let mut some = false;
        self.children.retain(|child| {
            // After all earlier requests: a number is used again.
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

    /// Whether handlers may be asked for memory that is not the region's own.
    fn serves(&self) -> bool {
        self.moved.iter().any(|moved| moved.count() > 0) || self.children.have_pieces()
    }

    /// Pages that a handler would bring are an error from now on.
    fn give_up(&mut self) {
        let is_backed = self.is_backed();
        // The thread that closed it may not have had these descriptors.
        self.uffds.iter().for_each(|uffd| _ = kept(*uffd).wake(self.shared.memory.span()));
        for (uffd, moved) in self.uffds.iter().zip(&mut self.moved) {
            if !is_backed || poisoned(*uffd, moved) {
                moved.all().for_each(|(span, _)| _ = kept(*uffd).unregister_pieces(span));
                moved.clear();
            }
        }
        // Their descriptors stay open, because a handler may still have one.
        self.children.forget_pieces(poisoned);
    }

    /// Ends service in place of a process that was killed, or of work that went wrong.
    pub fn take_over(&mut self) {
        self.starter = None;
        self.shared.behind.end();
        if self.rests.load(Ordering::Acquire) { self.finish() } else { self.shared.memory.let_go() }
    }

    /// Ends service for the children of a program that was killed, or is another one now. Locks may be held for ever.
    fn leave(&mut self) {
        // Another process may wait for the end of all that the program writes.
        remote_fill::close(libc::STDERR_FILENO);
        // For others that have this memory, as after vfork.
        self.shared.memory.shut();
        self.uffds.iter().chain(&self.starter).for_each(|fd| self.poll.remove(*fd));
        loop {
            self.children.refuse_all();
            self.end_refused();
            if self.children.is_empty() {
                break;
            }
            self.read_on();
        }
    }

    /// Ends service. Pages that could be read as zero and are not zero are an error from now on, and no thread waits
    /// any more.
    fn finish(&mut self) {
        self.poll.remove(self.end);
        let page = Span::new(self.shared.memory.span().start, PAGE);
        self.shared.memory.let_go();
        loop {
            self.read_on();
            self.give_up();
            self.children.refuse_all();
            self.end_refused();
            // A thread is about to tell of a change, and will wait until the message was read.
            let is_changing = self.uffds.iter().any(|uffd| kept(*uffd).state(page) == State::Changing);
            if !is_changing && !self.serves() && self.children.is_empty() {
                break;
            }
        }
    }

    /// Reads what there is of any descriptor. A thread that forks tells of it one descriptor after the other. No page
    /// of any can be poisoned until all these messages were read.
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
                remote_fill::close(uffd);
                self.children.make_spare(self.end);
            } else {
                self.read(uffd);
                i += 1;
            }
        }
    }
}

/// Calls `f` for each area of a span; false if that cannot be, because the holder of their lock is gone with
/// `starter`.
fn each_area(shared: &Shared, starter: Option<i32>, span: Span, mut f: impl FnMut(View)) -> bool {
    while !shared.memory.areas().try_each(span, &mut f) {
        if starter.is_some_and(message::is_waiting) {
            return false;
        }
        raw::sleep_ns(LOCKED_NS);
    }
    true
}

/// Whether all that a descriptor's process may miss is an error now. Not yet: it tells of something.
fn poisoned(uffd: i32, pieces: &Pieces) -> bool {
    pieces.all().all(|(span, _)| remote_fill::poison(&kept(uffd), span))
}
