//! Many pages come at a time: their reads are under way together.
//!
//! A thread has the locks of the slots that it has reads under way for, but for reads into places beside the file
//! (`apart.rs`). So it waits for none: a part whose slot another thread changes is put off until more of its own
//! reads have ended. Nor does it wait for room while it has any. Afterwards each page that is still missing is brought
//! alone.

use core::iter::Peekable;
use core::sync::atomic::Ordering::Relaxed;

use faultless_base::sys::file_memory::FileMemory;
use faultless_base::{Errno, PAGE, SLOT, Span};

use crate::cache::Cache;
use crate::cache::apart::Apart;
use crate::cache::backing::{Backing, Reads, Request};
use crate::cache::evict::To;
use crate::cache::fill::{Run, Stage};
use crate::cache::group::{Room, Size};
use crate::cache::index::{Change, Entry, Part, Pin, flag};
use crate::cache::share::Share;
use crate::cache::staging::PLACE_PAGES;

/// Reads that are under way at most.
const DEPTH: usize = 128;
/// Parts that are put off at a time, because another thread changes their slot.
const PUT_OFF: usize = 128;
/// The bytes of all of them, at most, before one more begins.
const MOST_BYTES: usize = 16 << 20;

/// A slot that is locked, because it has reads under way.
struct Changing<'a> {
    slot: usize,
    change: Change<'a>,
    _pin: Pin<'a>,
    reads: usize,
    /// Small pages that are under way.
    coming: usize,
    /// Its pages that the owner of all frames was told of.
    counted: Share,
    /// What it had at first, and room for what is to come.
    before: Share,
    room: Option<Room<'a>>,
}

impl Changing<'_> {
    /// Pages of a read that are no huge page's, of which all is there.
    fn small(&self, run: Run) -> usize {
        if self.change.is(flag::HUGE) { 0 } else { run.part.count }
    }
}

struct Flight<'a, M: FileMemory, B: Backing> {
    slot: usize,
    run: Run,
    /// `None`: the slot is locked.
    apart: Option<(Apart<'a, M, B>, Room<'a>)>,
}

/// Parts of slots that come, and what of them is under way.
struct Bringing<'a, M: FileMemory, B: Backing, I: Iterator<Item = (usize, Span, Part)>> {
    cache: &'a Cache<M, B>,
    parts: Peekable<I>,
    /// What is left of a part whose first pages are under way.
    rest: Option<(usize, Part)>,
    put_off: [Option<(usize, Part)>; PUT_OFF],
    changing: [Option<Changing<'a>>; DEPTH],
    flights: [Option<Flight<'a, M, B>>; DEPTH],
    bytes: usize,
    /// Bytes of parts that were looked at.
    taken: usize,
    /// Pages that came for no mapping, and how many of them may.
    came: usize,
    most: usize,
}

impl<'a, M: FileMemory, B: Backing, I: Iterator<Item = (usize, Span, Part)>> Bringing<'a, M, B, I> {
    fn is_idle(&self) -> bool {
        self.flights.iter().all(Option::is_none)
    }

    fn find(&self, slot: usize) -> Option<usize> {
        self.changing.iter().position(|changing| changing.as_ref().is_some_and(|changing| changing.slot == slot))
    }

    /// Whether some page of a part is under way.
    fn is_coming(&self, slot: usize, part: Part) -> bool {
        let meets = |run: Part| run.first < part.first + part.count && part.first < run.first + run.count;
        self.flights.iter().flatten().any(|flight| flight.slot == slot && meets(flight.run.part))
    }

    /// The lock of a slot; `None` while another thread has it.
    fn lock(&mut self, slot: usize) -> Option<usize> {
        if let Some(at) = self.find(slot) {
            return Some(at);
        }
        let free = self.changing.iter().position(Option::is_none)?;
        let change = self.cache.index.try_change(slot)?;
        let pin = self.cache.pin(slot);
        let counted = self.cache.share(slot);
        let (reads, coming, before, room) = (0, 0, counted, None);
        self.changing[free] = Some(Changing { slot, change, _pin: pin, reads, coming, counted, before, room });
        Some(free)
    }

    /// Tells the owner of all frames what a slot has now, and unlocks it if it has no reads.
    fn settle(&mut self, at: usize) {
        let Some(changing) = &mut self.changing[at] else { return };
        let is_held = self.cache.holds[changing.slot].load(Relaxed) > 0;
        let now = self.cache.share(changing.slot).coming(changing.coming, is_held);
        self.cache.tell(changing.counted, now);
        self.came += now.free.saturating_sub(changing.counted.free);
        changing.counted = now;
        if changing.reads == 0 {
            if let Some(mut room) = changing.room.take() {
                room.settle(changing.before, now);
                self.cache.keep_promise(changing.slot, now);
            }
            self.changing[at] = None;
        }
    }

    /// Unlocks a slot of which pages are being read into a place, and that has no other reads under way.
    fn let_read(&mut self, at: usize, run: Run) -> Option<(Apart<'a, M, B>, Room<'a>)> {
        let Changing { slot, change, counted, before, room, .. } = self.changing[at].take()?;
        let (cache, mut room) = (self.cache, room?);
        let now = cache.share(slot);
        cache.tell(counted, now);
        room.use_for(before, now);
        let apart = cache.read_apart(change, slot, run);
        self.came += (now + apart.coming).free.saturating_sub(counted.free);
        Some((apart, room))
    }

    /// What of a part comes by the next read at most, where each of them takes room: a watched slot comes by places.
    fn first(&self, slot: usize, part: Part) -> Part {
        if self.cache.backing.group().is_none() || self.cache.index.state(slot) & flag::WATCHED == 0 {
            return part;
        }
        Part { count: part.count.min(PLACE_PAGES), ..part }
    }

    /// Locks a slot of which `first` is to come, and takes room in its group for that; `None`: it is left to who brings
    /// it alone, or `part` comes later where that is `rest`.
    fn lock_with_room(&mut self, slot: usize, part: Part, first: Part) -> Option<usize> {
        let cache = self.cache;
        let Some(mut room) = cache.try_room(cache.need(slot, first, Size::Any)) else {
            if !self.is_idle() {
                self.rest = Some((slot, part));
            }
            return None;
        };
        let at = self.lock(slot)?;
        let changing = self.changing[at].as_mut()?;
        if !cache.fits(&changing.change, slot, first, &mut room) {
            self.settle(at);
            return None;
        }
        match &mut changing.room {
            Some(other) => other.add(room),
            none => *none = Some(room),
        }
        Some(at)
    }

    /// Whether the memory of one more slot may come. It does not wait while reads are under way.
    fn has_room(&self, slot: usize, part: Part) -> bool {
        let cache = self.cache;
        let is_there = !cache.takes_room(slot, part) || self.find(slot).is_some();
        if is_there || cache.holds[slot].load(Relaxed) > 0 || cache.has_room() {
            return true;
        }
        if self.is_idle() {
            cache.make_room();
            return true;
        }
        cache.evict(1, To::Store) > 0
    }

    /// The next part, unless there is no more room for it.
    fn next_part(&mut self, tried: &mut usize) -> Option<(usize, Part)> {
        if self.came >= self.most {
            return None;
        }
        if let Some(rest) = self.rest.take() {
            return Some(rest);
        }
        if let Some((slot, bytes, part)) = self.parts.next() {
            self.taken += bytes.bytes();
            return Some((slot, part));
        }
        // Each of them once: this is asked again after more reads have ended.
        let at = self.put_off.get(*tried..)?.iter().position(Option::is_some)? + *tried;
        *tried = at + 1;
        self.put_off[at].take()
    }

    /// Has a part come later. Where no read is under way it is left to who brings it alone, and may wait.
    fn put_off(&mut self, slot: usize, part: Part) {
        if !self.is_idle()
            && let Some(free) = self.put_off.iter_mut().find(|part| part.is_none())
        {
            *free = Some((slot, part));
        }
    }

    fn is_over(&mut self) -> bool {
        let is_left =
            self.rest.is_some() || self.parts.peek().is_some() || self.put_off.iter().any(Option::is_some);
        self.came >= self.most || !is_left
    }

    /// The next part of which a page is missing.
    fn missing(&mut self, tried: &mut usize) -> Option<(usize, Part)> {
        loop {
            let (slot, part) = self.next_part(tried)?;
            let is_there = self.cache.index.has(Entry::Present, slot, part);
            if !is_there && !self.is_coming(slot, part) {
                return Some((slot, part));
            }
        }
    }
}

impl<M: FileMemory, B: Backing, I: Iterator<Item = (usize, Span, Part)>> Reads for Bringing<'_, M, B, I> {
    fn next(&mut self) -> Option<Request> {
        if self.bytes >= MOST_BYTES {
            return None;
        }
        let tag = self.flights.iter().position(Option::is_none)?;
        let mut tried = 0;
        loop {
            let (slot, part) = self.missing(&mut tried)?;
            if !self.has_room(slot, part) {
                self.rest = Some((slot, part));
                return None;
            }
            let first = self.first(slot, part);
            let end = part.first + part.count;
            let behind = |next: usize| (next < end).then(|| (slot, Part { first: next, count: end - next }));
            let Some(at) = self.lock_with_room(slot, part, first) else {
                if self.rest.is_some() {
                    return None;
                }
                self.put_off(slot, part);
                continue;
            };
            let changing = self.changing[at].as_mut()?;
            let begun = self.cache.begin(&changing.change, slot, first);
            let mut apart = None;
            match begun {
                Ok(Some(run)) if run.stage == Stage::Place && changing.reads == 0 => {
                    apart = self.let_read(at, run);
                }
                Ok(Some(run)) => {
                    changing.reads += 1;
                    changing.coming += changing.small(run);
                }
                _ => {}
            }
            self.settle(at);
            let run = match begun {
                Ok(Some(run)) => run,
                // All places are taken: by others, where this has none.
                Err(Errno::EAGAIN) => {
                    self.rest = Some((slot, part));
                    if self.is_idle() {
                        self.cache.memory.relax(1);
                    }
                    return None;
                }
                // Another thread reads these pages.
                Err(Errno::EBUSY) => {
                    self.put_off(slot, part);
                    continue;
                }
                // What could not be had is tried again alone.
                Ok(None) | Err(_) => {
                    self.rest = behind(first.first + first.count);
                    continue;
                }
            };
            self.rest = behind(run.part.first + run.part.count);
            self.bytes += run.to.bytes();
            self.flights[tag] = Some(Flight { slot, run, apart });
            return Some(Request { offset: run.offset, to: run.to, tag });
        }
    }

    fn done(&mut self, request: Request, read: Result<usize, Errno>) {
        let Some(Flight { slot, run, apart }) = self.flights[request.tag].take() else { return };
        self.bytes -= run.to.bytes();
        if let Some((apart, mut room)) = apart {
            let _ = apart.end(read, &mut room);
            return;
        }
        let Some(at) = self.find(slot) else { return };
        if let Some(changing) = &mut self.changing[at] {
            // What could not be read is tried again alone, by who needs it.
            changing.coming -= changing.small(run);
            let _ = self.cache.end(&changing.change, slot, run, read);
            changing.reads -= 1;
        }
        self.settle(at);
    }
}

impl<M: FileMemory, B: Backing, I: Iterator<Item = (usize, Span, Part)>> Drop for Bringing<'_, M, B, I> {
    fn drop(&mut self) {
        // A backing that panics has ended its reads, and said nothing of them.
        for tag in 0..DEPTH {
            if let Some(run) = self.flights[tag].as_ref().map(|flight| flight.run) {
                self.done(Request { offset: run.offset, to: run.to, tag }, Err(Errno::EIO));
            }
        }
    }
}

impl<M: FileMemory, B: Backing> Cache<M, B> {
    /// Brings pages that are missing, many at a time, and up to `most` for no mapping. It may leave some: what could
    /// not be read, and what another thread is about to bring. How many bytes of the parts it has looked at.
    pub(super) fn bring_many(&self, parts: &mut dyn Iterator<Item = (usize, Span, Part)>, most: usize) -> usize {
        let mut bringing = Bringing {
            cache: self,
            parts: parts.peekable(),
            rest: None,
            put_off: [const { None }; PUT_OFF],
            changing: [const { None }; DEPTH],
            flights: [const { None }; DEPTH],
            bytes: 0,
            taken: 0,
            came: 0,
            most,
        };
        while !bringing.is_over() {
            self.backing.read_many(&mut bringing);
        }
        bringing.taken
    }

    /// Bytes of this file that may be in memory without a mapping: what there are, and the room for others.
    pub fn capacity(&self) -> usize {
        let most = (self.account.lock().slots + self.store.room() + self.store.idle()).max(1) * SLOT;
        self.backing.group().map_or(most, |group| most.min(group.budget().free_bytes()).max(PAGE))
    }

    /// Brings ranges of bytes inside the file, in their order, many parts at a time. How many bytes of them are there:
    /// fewer than asked for where no more fit. An error if some cannot be read; the others are there all the same.
    pub fn prefetch(&self, ranges: impl Iterator<Item = (usize, usize)> + Clone) -> Result<usize, Errno> {
        let parts = || ranges.clone().flat_map(|(offset, bytes)| self.parts(offset, bytes));
        let taken = self.bring_many(&mut parts(), self.capacity() / PAGE);
        let missing = || {
            let seen = parts().scan(0, |seen, part| {
                let is_taken = *seen < taken;
                *seen += part.1.bytes();
                is_taken.then_some(part)
            });
            seen.filter(|(slot, _, part)| !self.index.has(Entry::Present, *slot, *part))
        };
        let mut result = Ok(taken);
        for (slot, bytes, part) in missing() {
            result = match self.bring(slot, part).map(drop) {
                // Mappings have the rest of the group's budget, or what is read beside the file does not fit.
                Err(Errno::ENOMEM) if self.backing.group().is_some() => result.map(|all| all - bytes.bytes()),
                brought => brought.and(result),
            };
        }
        result
    }
}
