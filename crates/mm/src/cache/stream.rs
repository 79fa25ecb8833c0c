//! A file that is read in order: what comes next is read into frames aside, while the program uses what it has.
//!
//! Reads go on between calls, without a thread ([`Backing::begin_read`]). A frame moves to its slot when the program
//! gets there. What holds:
//!
//! - A slot of which nothing is there is marked ([`flag::STREAMED`]) with its lock, before its read begins. Who is about
//!   to write bytes of it to the file, or takes some away, ends the mark with the lock, too. So what was read is what the
//!   file has for as long as the mark is there. Else, and where the slot has come by other means, the frame goes back.
//! - One reader of a file has such reads at a time. Others read as they do without.
//! - Frames under way count as memory of the file that can go.

use faultless_base::sys::file_memory::FileMemory;
use faultless_base::{Errno, SLOT, SLOT_PAGES, Span};

use crate::cache::Cache;
use crate::cache::backing::{BEGUN, Backing, Request};
use crate::cache::evict::To;
use crate::cache::fill::Run;
use crate::cache::index::{Entry, flag};
use crate::cache::share::Share;
use crate::frame::buddy::Kind;
use crate::frame::purpose::Need;

/// For so long, in ms, a reader that does not get on keeps others off.
const PATIENCE_MS: u32 = 100;

/// After so many frames in a row that do not move there is no use in more: a program that locks its memory, say.
const MOST_STAYED: u32 = 3;

/// What a frame under way counts as.
const COMING: Share = Share { free: SLOT_PAGES, held: 0, huge: SLOT_PAGES, mapped: 0 };

/// What is under way.
#[derive(Default)]
pub(super) struct Stream {
    reader: usize,
    /// When that has read last.
    since_ms: u32,
    /// How many frames in a row did not move to their place.
    stayed: u32,
    coming: [Option<Coming>; BEGUN],
}

/// A slot that is read into a frame aside.
#[derive(Clone, Copy)]
struct Coming {
    slot: usize,
    run: Run,
}

impl Stream {
    fn is_idle(&self) -> bool {
        self.coming.iter().all(Option::is_none)
    }

    fn find(&self, slot: usize) -> Option<usize> {
        self.coming.iter().position(|coming| coming.is_some_and(|coming| coming.slot == slot))
    }
}

/// Whether a slot comes in time.
#[derive(PartialEq, Eq)]
enum Comes {
    Yes,
    /// Not now: no memory is left for it.
    Later,
    /// Not so: it has small pages, say.
    No,
}

impl<M: FileMemory, B: Backing> Cache<M, B> {
    /// A reader, which has a number of its own, is about to read bytes of one slot, and what follows. They come, and up
    /// to `most` slots behind them are under way. `false`: they have to come by other means.
    pub fn stream(&self, reader: usize, at: usize, bytes: usize, most: usize) -> bool {
        if self.backing.group().is_some() || !self.backing.can_begin() || !self.is_huge() {
            return false;
        }
        let Some(mut stream) = self.stream.try_lock() else { return false };
        if stream.stayed >= MOST_STAYED {
            self.leave_aside(&mut stream, |_| true, To::Store);
            self.backing.end_begun();
            return false;
        }
        let now = self.store.now_ms();
        if stream.reader != reader && !stream.is_idle() && now.wrapping_sub(stream.since_ms) < PATIENCE_MS {
            return false;
        }
        (stream.reader, stream.since_ms) = (reader, now);
        let (slot, slots) = (at / SLOT, self.length().div_ceil(SLOT));
        let next = slot + 1..slots.min(slot + 1 + most);
        if let Some(tag) = stream.find(slot) {
            self.arrive(&mut stream, tag);
        }
        self.leave_aside(&mut stream, |slot| !next.contains(&slot), To::Store);
        for slot in next.clone() {
            match self.begin_aside(&mut stream, slot) {
                Comes::Yes => {}
                Comes::Later => break,
                Comes::No => {
                    self.leave_aside(&mut stream, |_| true, To::Store);
                    self.backing.end_begun();
                    return false;
                }
            }
        }
        if next.is_empty() {
            self.backing.end_begun();
        }
        drop(stream);
        // While the others are under way.
        self.bring_many(&mut self.parts(at, bytes), SLOT_PAGES);
        true
    }

    /// Nothing is under way any more.
    pub fn end_stream(&self) {
        let mut stream = self.stream.lock();
        self.leave_aside(&mut stream, |_| true, To::Store);
        // With the lock: no reader may begin any in between.
        self.backing.end_begun();
    }

    /// Of slots, nothing is under way any more; how many were.
    pub(super) fn evict_stream(&self, goes: impl Fn(usize) -> bool, to: To) -> usize {
        self.leave_aside(&mut self.stream.lock(), goes, to)
    }

    /// Gives the memory of what was read and is not yet used back to the kernel, unless a reader is at it; how many
    /// slots. It does not wait for the device.
    pub(super) fn try_evict_stream(&self) -> usize {
        let Some(mut stream) = self.stream.try_lock() else { return 0 };
        let mut gone = 0;
        for tag in 0..BEGUN {
            let slot = stream.coming[tag].filter(|_| self.backing.has_ended(tag)).map(|coming| coming.slot);
            gone += slot.map_or(0, |slot| self.leave_aside(&mut stream, |other| other == slot, To::Kernel));
        }
        gone
    }

    /// Begins to read a slot, if it is not under way yet.
    fn begin_aside(&self, stream: &mut Stream, slot: usize) -> Comes {
        let part = self.inside(slot);
        if stream.find(slot).is_some() || self.index.has(Entry::Present, slot, part) {
            return Comes::Yes;
        }
        const NOT_EMPTY: usize = flag::FILLED | flag::TABLE | flag::HUGE | flag::WATCHED;
        if self.index.state(slot) & NOT_EMPTY != 0 || !self.is_huge_at(slot) {
            return Comes::No;
        }
        if self.is_hole(slot, part) {
            return Comes::Yes;
        }
        let Some(tag) = stream.coming.iter().position(Option::is_none) else { return Comes::Later };
        if !self.has_room() && self.evict(1, To::Store) == 0 {
            return Comes::Later;
        }
        let Some(frame) = self.take_frame(Need::Any) else { return Comes::Later };
        let run = self.to_read(slot, part);
        let run = Run { to: Span::new(frame.at, run.to.bytes()), ..run };
        self.tell(Share::default(), COMING);
        let is_marked = self.index.try_change(slot).is_some_and(|change| {
            let is_empty = !change.is(NOT_EMPTY);
            if is_empty {
                change.set(flag::STREAMED);
            }
            is_empty
        });
        if is_marked && self.backing.begin_read(Request { offset: run.offset, to: run.to, tag }) {
            stream.coming[tag] = Some(Coming { slot, run });
            return Comes::Yes;
        }
        self.put_aside(frame.at, To::Store);
        if is_marked { Comes::No } else { Comes::Later }
    }

    /// A slot is there, if all has gone well.
    fn arrive(&self, stream: &mut Stream, tag: usize) {
        let Some(Coming { slot, run }) = stream.coming[tag].take() else { return };
        let read = self.backing.end_read(Request { offset: run.offset, to: run.to, tag });
        match self.move_there(slot, run, read) {
            Some(true) => stream.stayed = 0,
            stays => {
                stream.stayed += u32::from(stays.is_some());
                self.put_aside(run.to.start, To::Store);
            }
        }
    }

    /// Whether the frame has moved. `None`: there was no use in that.
    fn move_there(&self, slot: usize, run: Run, read: Result<usize, Errno>) -> Option<bool> {
        let change = self.change(slot);
        let is_same = change.is(flag::STREAMED) && self.is_huge_at(slot);
        change.unset(flag::STREAMED);
        // The file may have become longer: what it has there now was not read.
        let here = self.to_read(slot, run.part);
        let is_whole = read.is_ok_and(|read| read >= run.expected) && here.expected == run.expected;
        if !is_same || !is_whole || change.is(flag::FILLED | flag::TABLE | flag::HUGE | flag::WATCHED) {
            return None;
        }
        let before = self.share(slot);
        if !self.memory.move_in(run.to.start, self.slot_span(slot).start) {
            return Some(false);
        }
        change.set(flag::HUGE | flag::USED);
        // That it is whole was looked at.
        let _ = self.end(&change, slot, here, read);
        self.tell(before + COMING, self.share(slot));
        self.store.give(run.to.start, Kind::Unbacked);
        Some(true)
    }

    /// What is under way of slots is waited for, and goes; how many.
    fn leave_aside(&self, stream: &mut Stream, goes: impl Fn(usize) -> bool, to: To) -> usize {
        let mut gone = 0;
        for (tag, coming) in stream.coming.iter_mut().enumerate() {
            let Some(Coming { slot, run }) = coming.take_if(|coming| goes(coming.slot)) else { continue };
            let _ = self.backing.end_read(Request { offset: run.offset, to: run.to, tag });
            self.change(slot).unset(flag::STREAMED);
            self.put_aside(run.to.start, to);
            gone += 1;
        }
        gone
    }

    /// A frame that was to come is not needed.
    fn put_aside(&self, frame: usize, to: To) {
        // Before it is kept by the owner: no memory counts twice.
        self.tell(COMING, Share::default());
        if to == To::Store {
            return self.return_frame(frame);
        }
        self.memory.drop_frame(frame);
        self.store.give(frame, Kind::Unbacked);
    }
}
