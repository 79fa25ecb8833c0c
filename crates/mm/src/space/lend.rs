//! Frames for regions, and for whatever else puts whole frames to use at addresses of its own.
//!
//! An idle frame of any shard serves, whoever left it: a block, a mapping, a region. Places for frames that are made
//! for regions, or that come back from them, are in a shard *apart*. No forked child has its memory, because the
//! kernel moves no page that two processes share. No block ever lies there.
//!
//! A program may ask for frames to be *reserved*. They are idle frames that wait in the free lists like others, but
//! the account counts them as the program's own: they stay beside the budget until a region takes them, or memory is
//! short.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use faultless_base::sync::Futex;
use faultless_base::sys::Sys;
use faultless_base::{SLOT, SLOT_PAGES, Span};

use crate::frame::arena::Extent;
use crate::frame::buddy::Kind;
use crate::frame::purpose::{Need, Purpose};
use crate::frame::slot::flag;
use crate::frame::store::{Frame, Store};
use crate::space::{Shard, Space};
use faultless_page::stats::Counter;

/// What users of frames wait for.
pub(crate) struct Requests {
    /// Frames that are to be ready.
    frames: AtomicUsize,
    /// 1 while there is news for the background thread; it may sleep here.
    bell: Futex,
}

impl Requests {
    pub(crate) fn new() -> Self {
        Self { frames: AtomicUsize::new(0), bell: Futex::new(0) }
    }

    fn ring(&self) {
        if self.bell.swap(1, Relaxed) == 0 {
            self.bell.wake_all();
        }
    }
}

impl<S: Sys> Space<S> {
    /// Reserves `bytes` of addresses for frames of regions. `None` when the kernel refuses.
    pub fn with_frames_apart(mut self, bytes: usize) -> Option<Self> {
        let span = self.sys.reserve_apart(bytes.next_multiple_of(SLOT))?;
        self.apart = Some(Shard::apart(span, self.shard(0).counters)?);
        Some(self)
    }

    /// The shard, and the slot, of a place that was handed out here.
    fn home(&self, at: usize) -> (&Shard, usize) {
        let is_there = |shard: &&Shard| Span::new(shard.base, shard.slots.len() * SLOT).contains(at);
        let apart = self.apart.as_ref().filter(is_there);
        apart.map_or_else(|| self.locate(at), |shard| (shard, (at - shard.base) / SLOT))
    }

    /// An idle frame in transit.
    fn take_idle(&self, kind: Kind) -> Option<(&Shard, Extent)> {
        let own = self.apart.as_ref();
        let others = self.all_shards().filter(|shard| own.is_none_or(|own| own.base != shard.base));
        own.into_iter().chain(others).find_map(|shard| Some((shard, shard.lock_soon()?.take_some(1, kind)?)))
    }

    /// Free slots of a kind, but for those of shards whose lock is taken.
    pub(crate) fn free_slots(&self, kind: Kind) -> usize {
        self.all_shards().filter_map(|shard| Some(shard.lock_soon()?.free().slots(kind))).sum()
    }

    /// Makes a frame of zeroes, `reserved` or idle; whether it could. One that the kernel makes of small pages is none.
    fn make_one(&self, reserved: bool) -> bool {
        let hole = self.apart.as_ref().and_then(|shard| {
            let mut arena = shard.lock_soon()?;
            Some((shard, arena.take_holes(1, 1, &self.sys)?))
        });
        let Some((shard, e)) = hole else { return false };
        self.make(shard, e);
        // Twice: a table may have been in the way, which goes with the small pages.
        let is_whole = || self.sys.present_pages(shard.span(e)) == SLOT_PAGES;
        if !is_whole() {
            let _ = self.sys.discard(shard.span(e));
            self.sys.touch(shard.span(e).start);
        }
        if !is_whole() {
            self.return_to_kernel(shard, e, self.now_ms());
            return false;
        }
        if reserved {
            self.budget.reserve(1);
        }
        self.put_back(shard, e, Kind::Zeroed, self.now_ms());
        true
    }

    /// Makes a frame of zeroes that is kept, beside the budget, until a region takes it or memory is short; whether it
    /// could.
    pub fn reserve_frame(&self) -> bool {
        self.make_one(true)
    }

    /// Frames of zeroes that wait.
    pub fn frames_ready(&self) -> usize {
        self.ready_now(Need::Zero)
    }

    fn ready_now(&self, need: Need) -> usize {
        let old = if need == Need::Any { self.free_slots(Kind::Dirty) } else { 0 };
        old + self.free_slots(Kind::Zeroed)
    }

    /// Makes a frame that was asked for; whether there is more to do.
    pub fn answer_requests(&self) -> bool {
        let frames = self.requests.frames.load(Relaxed);
        if frames > self.frames_ready() && self.budget.room() > 0 && self.make_one(false) {
            return true;
        }
        self.requests.frames.store(0, Relaxed);
        false
    }

    /// The background thread begins to look what there is to do: what is asked for from now on is new.
    pub fn take_requests(&self) {
        self.requests.bell.store(0, Relaxed);
    }

    /// The word that is 0 while nothing new was asked for: the background thread sleeps there.
    pub fn bell(&self) -> &Futex {
        &self.requests.bell
    }
}

impl<S: Sys + Sync> Store for Space<S> {
    fn take(&self, need: Need) -> Option<Frame> {
        if self.budget.idle() + self.budget.reserved() == 0 {
            return None;
        }
        let kinds = match need {
            Need::Zero => [Kind::Zeroed, Kind::Dirty],
            Need::Any => [Kind::Dirty, Kind::Zeroed],
        };
        let (shard, e, kind) = kinds.into_iter().find_map(|kind| {
            let (shard, e) = self.take_idle(kind)?;
            Some((shard, e, kind))
        })?;
        let ahead = self.zeroed_ahead(shard, e);
        let is_dirty = kind == Kind::Dirty;
        match need {
            Need::Any => self.note_unused(shard, ahead),
            Need::Zero => {
                if is_dirty {
                    self.zero_now(shard, e);
                }
                self.verify(shard, e);
                self.count_zeroes(shard, e, Purpose::Map, (!is_dirty as usize, ahead, is_dirty as usize));
            }
        }
        match kind {
            Kind::Dirty => self.budget.unkeep(1),
            _ => self.budget.unkeep_reserved(1),
        }
        let stocked = shard.slots.has(e.first, flag::FRESH);
        self.prefault_budget.note_used(stocked as usize);
        shard.slots.clear(e.first, flag::IN_USE);
        let kind = if need == Need::Zero { Kind::Zeroed } else { kind };
        Some(Frame { at: shard.span(e).start, kind })
    }

    fn place(&self) -> Option<usize> {
        let shard = self.apart.as_ref()?;
        let e = shard.lock_soon()?.take_holes(1, 1, &self.sys)?;
        // What the region grows by, idle memory makes room for.
        if self.budget.idle() > 0 {
            self.promise(SLOT_PAGES);
        }
        Some(shard.span(e).start)
    }

    fn place_to_keep(&self) -> Option<usize> {
        let shard = self.apart.as_ref()?;
        if self.budget.room() == 0 {
            self.look_around();
        }
        let e = (self.budget.room() > 0).then(|| shard.lock_soon()?.take_holes(1, 1, &self.sys)).flatten()?;
        Some(shard.span(e).start)
    }

    fn give(&self, at: usize, kind: Kind) {
        let (shard, slot) = self.home(at);
        let e = Extent { first: slot, n: 1 };
        if kind != Kind::Unbacked {
            self.budget.keep(1);
            shard.count(Counter::BytesKept, SLOT);
            self.requests.ring();
        }
        self.put_back(shard, e, kind, self.now_ms());
    }

    fn ready(&self, need: Need) -> usize {
        self.ready_now(need)
    }

    fn ask(&self, frames: usize) {
        if self.requests.frames.load(Relaxed) < frames && self.frames_ready() < frames {
            self.requests.frames.fetch_max(frames, Relaxed);
            self.requests.ring();
        }
    }
}
