//! Frames for regions, and for whatever else puts whole frames to use at addresses of its own.
//!
//! They are taken from the pool and from the arena, where a region, a mapping or a block left them. Places for
//! frames that are made for regions, or that come back from them, are in the pool. Idle frames of both are one
//! account, and one budget.
//!
//! A program may ask for frames to be *reserved*. They wait like idle frames, but the account counts them as the
//! program's own: they stay beside the budget until a region takes them, or memory is short.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use faultless_base::sync::{Futex, Late};
use faultless_base::sys::{Huge, Sys};
use faultless_base::{Pages, SLOT, SLOT_PAGES, Span};

use crate::frame::buddy::Kind;
use crate::frame::extent::Extent;
use crate::frame::pool::Pool;
use crate::frame::purpose::{Need, Purpose};
use crate::frame::slot::flag;
use crate::frame::store::{Frame, Reclaim, Store};
use crate::space::nodes::Node;
use crate::space::transfer::HandedOut;
use crate::space::{Shard, Space};
use faultless_page::stats::Counter;

/// Frames of the pool that a thread looks at, most of which may lie on other nodes.
const FEW: usize = 8;

/// What regions have of the engine.
pub(crate) struct Lending {
    /// Frames apart from the arena, where there are regions; made before the engine is shared.
    pool: Option<Pool>,
    /// Frames that are to be ready. Any thread raises it, the background thread clears it.
    frames: AtomicUsize,
    /// Where they are to lie.
    pub(crate) node: Node,
    /// 1 while there is news for the background thread, which may sleep here.
    bell: Futex,
    /// Who has memory that can go back on request, beside idle frames.
    reclaim: Late<&'static dyn Reclaim>,
}

impl Lending {
    /// Without a pool.
    pub(crate) fn new() -> Self {
        Self {
            pool: None,
            frames: AtomicUsize::new(0),
            node: Node::default(),
            bell: Futex::new(0),
            reclaim: Late::new(),
        }
    }

    fn ring(&self) {
        if self.bell.swap(1, Relaxed) == 0 {
            self.bell.wake_all();
        }
    }
}

/// An idle frame in transit.
enum Idle<'a> {
    Pool(usize),
    Arena(&'a Shard, Extent),
}

impl<S: Sys> Space<S> {
    /// Has a pool for up to `bytes` of frames. `None` when the kernel refuses memory for its tables.
    pub fn with_pool(mut self, bytes: usize) -> Option<Self> {
        self.lending.pool = Some(Pool::new(bytes)?);
        Some(self)
    }

    /// Has the background thread ask `from` for memory, when what is kept exceeds the budget or memory is short. Once.
    pub fn reclaim_from(&self, from: &'static dyn Reclaim) {
        self.lending.reclaim.set(from);
    }

    /// Asks for that many slots; how many went.
    pub(crate) fn reclaim(&self, slots: usize) -> usize {
        match self.lending.reclaim.get() {
            Some(from) if slots > 0 => from.reclaim(slots),
            _ => 0,
        }
    }

    fn take_idle(&self, kind: Kind) -> Option<Idle<'_>> {
        self.take_near_from_pool(kind).map(Idle::Pool).or_else(|| {
            let take = |shard: &Shard| shard.lock_soon()?.take_some(1, kind);
            self.all_shards()
                .filter(|shard| self.may_use(shard))
                .find_map(|shard| Some(Idle::Arena(shard, take(shard)?)))
        })
    }

    /// Free slots of a kind, but for those of shards whose lock is taken.
    pub(crate) fn free_slots(&self, kind: Kind) -> usize {
        let of_shard = |shard: &Shard| Some(shard.lock_soon()?.free().slots(kind));
        self.free_in_pool(kind) + self.all_shards().filter_map(of_shard).sum::<usize>()
    }

    pub(crate) fn free_in_pool(&self, kind: Kind) -> usize {
        self.lending.pool.as_ref().map_or(0, |pool| pool.free(kind))
    }

    /// A free frame for the calling thread: one that lies where its memory is to lie, among the first few.
    pub(crate) fn take_near_from_pool(&self, kind: Kind) -> Option<usize> {
        self.lending.pool.as_ref()?.take_if(kind, FEW, |at| self.is_home(Span::new(at, SLOT)))
    }

    /// The frame of the pool that has been idle for longest, if that is `age_ms` or more.
    pub(crate) fn older_in_pool(&self, kind: Kind, now_ms: u32, age_ms: u32) -> Option<usize> {
        self.lending.pool.as_ref()?.take_older(kind, now_ms, age_ms)
    }

    /// A frame or a place in transit is the pool's again.
    pub(crate) fn give_to_pool(&self, at: usize, kind: Kind) {
        if let Some(pool) = &self.lending.pool
            && let Some(place) = pool.place(at)
        {
            pool.give(place, kind, self.now_ms(), |span| _ = self.sys.release(span));
        }
    }

    /// The same without its memory. A place that keeps it all the same is not used again.
    pub(crate) fn empty_in_pool(&self, at: usize) {
        if self.sys.discard_apart(Span::new(at, SLOT)) {
            self.give_to_pool(at, Kind::Unbacked);
        }
    }

    /// Gives a frame back to the kernel that was idle in the pool for `age_ms` or longer; whether there was one.
    pub(crate) fn drop_from_pool(&self, now_ms: u32, age_ms: u32, counter: Counter) -> bool {
        let oldest = |kind| self.older_in_pool(kind, now_ms, age_ms);
        let Some(at) = [Kind::Dirty, Kind::Zeroed].into_iter().find_map(oldest) else { return false };
        self.empty_in_pool(at);
        self.budget.unkeep(1);
        self.program().count(counter, SLOT);
        true
    }

    /// A place of the pool, which has huge pages advised.
    fn hole_in_pool(&self) -> Option<usize> {
        let reserve = |bytes: usize| self.sys.reserve_apart(bytes).map(|span| span.start);
        self.lending.pool.as_ref()?.hole(reserve)
    }

    /// Makes a frame of zeroes, `reserved` or idle; whether it could. One that the kernel makes of small pages is none.
    fn make_one(&self, reserved: bool) -> bool {
        let Some(at) = self.hole_in_pool() else { return false };
        let frame = Span::new(at, SLOT);
        let is_whole = || self.sys.present_pages(frame) == SLOT_PAGES;
        // Before there is one, as what it will be: another thread may drop one of the others meanwhile.
        match reserved {
            true => self.budget.reserve(1),
            false => self.budget.keep(1),
        }
        self.touch_new(self.program(), at, Huge::Advised);
        if !is_whole() {
            // A table may have been in the way, which goes with the small pages.
            let _ = self.sys.discard_apart(frame);
            self.sys.touch(at);
        }
        let made = is_whole();
        match made {
            true => self.give_to_pool(at, Kind::Zeroed),
            false => {
                self.empty_in_pool(at);
                match reserved {
                    true => self.budget.unkeep_reserved(1),
                    false => self.budget.unkeep(1),
                }
            }
        }
        made
    }

    /// Makes a frame of zeroes that is kept, beside the budget, until a region takes it or memory is short; whether it
    /// could.
    pub fn reserve_frame(&self) -> bool {
        self.make_one(true)
    }

    /// Frames of zeroes that wait.
    pub fn frames_ready(&self) -> usize {
        self.ready(Need::Zero)
    }

    fn ready(&self, need: Need) -> usize {
        let old = if need == Need::Any { self.free_slots(Kind::Dirty) } else { 0 };
        old + self.free_slots(Kind::Zeroed)
    }

    /// Makes a frame that was asked for; whether there is more to do.
    pub fn answer_requests(&self) -> bool {
        let frames = self.lending.frames.load(Relaxed);
        let make = || self.on_asked_node(|| self.make_one(false)) == Some(true);
        if frames > self.frames_ready() && self.budget.room() > 0 && make() {
            return true;
        }
        self.lending.frames.store(0, Relaxed);
        false
    }

    /// Tells the background thread that there is something to do.
    pub fn ring(&self) {
        self.lending.ring();
    }

    /// The background thread begins to look what there is to do: what is asked for from now on is new.
    pub fn take_requests(&self) {
        self.lending.bell.store(0, Relaxed);
    }

    /// The word that is 0 while nothing new was asked for: the background thread sleeps there.
    pub fn bell(&self) -> &Futex {
        &self.lending.bell
    }

    /// The content of an idle frame that a region takes: zeroes where it needs them.
    fn lend(&self, shard: &Shard, span: Span, need: Need, kind: Kind, ahead: usize) -> Kind {
        let is_dirty = kind == Kind::Dirty;
        match need {
            Need::Any => {
                self.note_unused(shard, ahead);
                return kind;
            }
            Need::Zero if is_dirty => self.zero_now(shard, span),
            Need::Zero => {}
        }
        self.verify(span);
        self.count_zeroes(
            shard,
            span,
            Purpose::Map,
            HandedOut { ready: !is_dirty as usize, ahead, dirty: is_dirty as usize },
        );
        Kind::Zeroed
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
        let (idle, kind) = kinds.into_iter().find_map(|kind| Some((self.take_idle(kind)?, kind)))?;
        // In this order: at no time does it look like the region's own.
        let frame = match idle {
            Idle::Pool(at) => Frame { at, kind: self.lend(self.program(), Span::new(at, SLOT), need, kind, 0) },
            Idle::Arena(shard, e) => {
                let ahead = self.zeroed_ahead(shard, e);
                let stocked = shard.slots.has(e.first, flag::FRESH);
                self.ahead.prefault_budget.note_used(stocked as usize);
                let kind = self.lend(shard, shard.span(e), need, kind, ahead);
                shard.slots.clear(e.first, flag::IN_USE);
                Frame { at: shard.span(e).start, kind }
            }
        };
        // It is the region's from now on, also before the kernel is asked again.
        self.budget.promise(Pages::of_slots(1));
        match kind {
            Kind::Dirty => self.budget.unkeep(1),
            _ => self.budget.unkeep_reserved(1),
        }
        Some(frame)
    }

    fn place(&self) -> Option<usize> {
        let place = self.hole_in_pool();
        // What the region grows by, idle memory makes room for.
        if place.is_some() && self.budget.idle() > 0 {
            self.promise(Pages::of_slots(1));
        }
        place
    }

    fn place_to_keep(&self) -> Option<usize> {
        if self.budget.room() == 0 {
            self.look_around();
        }
        (self.budget.room() > 0).then(|| self.hole_in_pool()).flatten()
    }

    fn give(&self, at: usize, kind: Kind) {
        let (keeper, frame) = (self.span().contains(at).then(|| self.locate(at)), Span::new(at, SLOT));
        if let Some((shard, first)) = keeper
            && kind != Kind::Unbacked
            && !self.is_near(shard, frame)
        {
            return self.put_back_empty(shard, Extent::one(first), self.now_ms());
        }
        if kind != Kind::Unbacked {
            self.budget.keep(1);
            self.program().count(Counter::BytesKept, SLOT);
        }
        match keeper {
            None => self.give_to_pool(at, kind),
            Some((shard, first)) => self.put_back(shard, Extent::one(first), kind, self.now_ms()),
        }
        if kind != Kind::Unbacked {
            self.ring();
        }
    }

    fn ready(&self, need: Need) -> usize {
        self.ready(need)
    }

    fn room(&self) -> usize {
        self.budget.room()
    }

    fn idle(&self) -> usize {
        self.ready(Need::Any).saturating_sub(self.budget.reserved())
    }

    fn drop_idle(&self) -> bool {
        Store::idle(self) > 0 && self.give_back_idle(1, Counter::BytesOverBudget) > 0
    }

    fn cached(&self, from: usize, to: usize) {
        match to >= from {
            true => self.budget.keep(to - from),
            false => self.budget.unkeep(from - to),
        }
        if to > from {
            self.ring();
        }
    }

    fn now_ms(&self) -> u32 {
        self.now_ms()
    }

    fn ask(&self, frames: usize) {
        let is_news = self.lending.frames.load(Relaxed) < frames && self.frames_ready() < frames;
        if is_news && self.note_asked() {
            self.lending.frames.fetch_max(frames, Relaxed);
            self.ring();
        }
    }
}
