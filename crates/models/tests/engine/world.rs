//! The engine, the memory it works on, what the program has of it, and what must hold.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use faultless_base::sys::Sys;
use faultless_base::{PAGE, SLOT, SLOT_PAGES, Span};
use faultless_mm::{Need, Progress, Space};
use faultless_models::Stepped;
use faultless_page::knobs::{Knob, Values};
use faultless_page::stats::Block as Counters;
use shuttle::rand::{Rng, thread_rng};

/// Few enough that they run out.
const SLOTS: usize = 16;
/// See [`World::with_room`].
const MANY_SLOTS: usize = 64;
/// Pages between two that are looked at.
const EVERY: usize = 64;

/// What was counted in all runs.
pub static COUNTERS: [Counters; 2] = [const { Counters::new() }; 2];

/// Something that one call gave to the program. Every page that is looked at holds `byte`.
#[derive(Clone, Copy, Debug)]
pub struct Thing {
    pub at: usize,
    pub pages: usize,
    pub byte: u8,
    pub block: bool,
}

impl Thing {
    pub fn span(&self) -> Span {
        Span::new(self.at, self.pages * PAGE)
    }

    /// The pages that are written and looked at: more than the engine looks at, and the ends.
    fn marks(&self) -> impl Iterator<Item = usize> {
        let (first, last) = (self.at / PAGE, self.at / PAGE + self.pages - 1);
        (first..=last)
            .filter(move |page| page % EVERY == 0 || *page == first || *page == last)
            .map(|page| page * PAGE)
    }
}

/// Ranges of addresses. A thread that makes a call about one takes it out meanwhile. It is no lock of the model:
/// nothing happens while it is held.
#[derive(Default)]
pub struct Ranges(Mutex<Vec<Span>>);

impl Ranges {
    pub fn put(&self, span: Span) {
        self.0.lock().unwrap().push(span);
    }

    pub fn take(&self) -> Option<Span> {
        self.0.lock().unwrap().pop()
    }

    fn remove(&self, span: Span) {
        self.0.lock().unwrap().retain(|other| *other != span);
    }
}

pub struct World {
    pub space: Space<Stepped>,
    pub sys: Stepped,
    /// What the program has and no call is about. A thread that makes a call takes the thing out meanwhile. It is no
    /// lock of the model: nothing happens while it is held.
    things: Mutex<Vec<Thing>>,
    /// Mappings that some call is about: left by a thread that ends in it.
    meanwhile: Ranges,
    /// Unmapped; the kernel may map something there again.
    pub vacant: Ranges,
    /// Unmapped, moved or replaced without a word to the engine.
    pub unseen: Ranges,
    bytes: AtomicUsize,
    shards: usize,
    slots: usize,
    /// Whether threads may be left behind.
    pub leaves: bool,
}

impl World {
    /// With a budget of one of these numbers of slots.
    pub fn new(budgets: &[usize]) -> Self {
        Self::with(budgets, SLOTS)
    }

    fn with(budgets: &[usize], slots: usize) -> Self {
        let mut rng = thread_rng();
        let sys = Stepped::default();
        let shards = rng.gen_range(1..=2);
        let knobs: &'static Values = Box::leak(Box::default());
        knobs.set(Knob::Budget, (budgets[rng.gen_range(0..budgets.len())] * SLOT) as u64);
        knobs.set(Knob::Check, rng.gen_bool(0.5) as u64);
        knobs.set(Knob::Mapped, rng.gen_bool(0.5) as u64);
        let space = Space::new(sys.clone(), slots * SLOT, shards, &COUNTERS, knobs).unwrap();
        Self {
            space,
            sys,
            things: Mutex::default(),
            meanwhile: Ranges::default(),
            vacant: Ranges::default(),
            unseen: Ranges::default(),
            bytes: AtomicUsize::new(0),
            shards,
            slots,
            leaves: false,
        }
    }

    /// With so much room that most is left whatever threads took along that have stopped.
    pub fn with_room(budgets: &[usize]) -> Self {
        Self::with(budgets, MANY_SLOTS)
    }

    pub fn with_threads_left_behind(mut self) -> Self {
        self.leaves = true;
        self
    }

    pub fn background_step(&self) {
        match self.space.step() {
            Progress::Worked => {}
            Progress::Wait(us) => self.sys.step().advance_ms(us / 1000 + 1),
            Progress::Idle => self.sys.relax(0),
        }
    }

    pub fn take(&self, want: impl Fn(&Thing) -> bool) -> Option<Thing> {
        let mut things = self.things.lock().unwrap();
        let fitting: Vec<_> = (0..things.len()).filter(|&i| want(&things[i])).collect();
        (!fitting.is_empty()).then(|| things.swap_remove(fitting[thread_rng().gen_range(0..fitting.len())]))
    }

    pub fn put(&self, thing: Thing) {
        self.things.lock().unwrap().push(thing);
    }

    /// The program fills its memory with a byte of its own.
    pub fn fill(&self, mut thing: Thing) -> Thing {
        thing.byte = (self.bytes.fetch_add(1, Ordering::Relaxed) % 255) as u8 + 1;
        let fake = self.sys.step();
        thing.marks().for_each(|page| fake.write(Span::new(page, PAGE), thing.byte));
        thing
    }

    /// A page that another thread writes to, zeroes, closes or drops is no longer what it was.
    pub fn check(&self, thing: Thing) {
        self.check_moved(thing, thing.at, thing.pages);
    }

    /// The same where the first pages of it are at another place now.
    pub fn check_moved(&self, thing: Thing, at: usize, pages: usize) {
        let fake = self.sys.step();
        for page in thing.marks().map(|page| page - thing.at).filter(|offset| *offset < pages * PAGE) {
            assert_eq!(fake.read(at + page), Some(thing.byte), "{page:#x} in {thing:x?}, at {at:#x} now");
        }
    }

    /// New memory, which is open, and zero if that was promised.
    pub fn own(&self, at: usize, pages: usize, block: bool, zero: bool) {
        let thing = Thing { at, pages, byte: 0, block };
        if zero {
            assert_eq!(self.sys.first_nonzero(thing.span()), None, "{thing:x?} is not zero");
        }
        self.put(self.fill(thing));
    }

    /// A mapping of the program's own in the part of the arena with that number, of three slots each.
    pub fn lay(&self, part: usize) -> Thing {
        let halves = 6 * part + thread_rng().gen_range(0..4);
        let span = Span::new(self.space.span().start + halves * SLOT / 2, SLOT);
        match thread_rng().gen_bool(0.7) {
            true => self.space.give_up(span),
            false => self.space.give_up_inside(span),
        }
        let fake = self.sys.step();
        fake.unmap(span);
        fake.open(span);
        self.fill(Thing { at: span.start, pages: span.bytes() / PAGE, byte: 0, block: false })
    }

    /// A call about a mapping, in which its thread may end.
    pub fn call_about<R>(&self, span: Span, call: impl FnOnce() -> R) -> R {
        self.meanwhile.put(span);
        let result = call();
        self.meanwhile.remove(span);
        result
    }

    /// mmap: somewhere new, or where something was unmapped.
    pub fn map(&self, cpu: usize, pages: usize) -> Span {
        let reused = self.vacant.take().filter(|span| span.bytes() <= pages * PAGE);
        let span = match reused {
            Some(span) => {
                self.sys.step().open(span);
                span
            }
            None => self.sys.step().map(pages * PAGE),
        };
        self.call_about(span, || {
            self.space.uncommitted(span);
            self.space.mapped(cpu, span);
        });
        span
    }

    /// munmap.
    pub fn unmap(&self, cpu: usize, span: Span) {
        self.call_about(span, || self.unmap_now(cpu, span));
        self.vacant.put(span);
    }

    /// munmap of what a call of another thread is about.
    pub fn unmap_under_way(&self, cpu: usize) {
        let Some(span) = self.meanwhile.take() else { return };
        self.unmap_now(cpu, span);
    }

    fn unmap_now(&self, cpu: usize, span: Span) {
        let by_kernel = || {
            self.sys.step().unmap(span);
            true
        };
        if !self.space.unmap(cpu, span, by_kernel) {
            self.sys.step().unmap(span);
            self.space.forget(span);
        }
        self.space.uncommitted(span);
    }

    /// The same by a call that the engine does not see.
    pub fn unmap_unseen(&self, span: Span) {
        self.unseen.put(span);
        self.sys.step().unmap(span);
        self.vacant.put(span);
    }

    pub fn give_back(&self, thing: Thing) {
        self.check(thing);
        if thing.block {
            assert_eq!(self.space.usable(thing.at), thing.pages * PAGE, "{thing:x?}");
            assert!(self.space.free(thing.at), "{thing:x?}");
        } else {
            self.unmap(0, thing.span());
        }
    }

    /// The program gives everything back: then every slot is free, but one carved slot for each shard, and can be
    /// handed out.
    pub fn end(&self) {
        while let Some(thing) = self.take(|_| true) {
            self.give_back(thing);
        }
        while let Some(span) = self.meanwhile.take() {
            self.unmap_unseen(span);
        }
        // What was unmapped without notice stays on the account until a look.
        while let Some(span) = self.unseen.take() {
            self.space.forget(span);
        }
        // Advice is not ended where another thread has its table.
        self.space.uncommitted(Span { start: 0, end: usize::MAX });
        self.space.press();
        assert_eq!(self.space.budget().idle(), 0, "idle");
        let resident = self.sys.step().resident();
        assert!(resident <= self.shards * SLOT_PAGES, "{resident} pages are left");
        let block = |shard| std::iter::from_fn(move || self.space.allocate(shard, SLOT, SLOT, Need::Zero));
        let all: Vec<_> = (0..self.shards).flat_map(block).collect();
        let mut places: Vec<_> = all.iter().map(|got| got.addr).collect();
        places.sort_unstable();
        places.dedup();
        assert!(places.len() + self.shards >= self.slots, "{} of {} slots are left", places.len(), self.slots);
        assert_eq!(places.len(), all.len(), "handed out twice");
        for got in all {
            let is_zero = self.sys.first_nonzero(Span::new(got.addr, SLOT)).is_none();
            assert!(is_zero || !got.zero, "{got:x?} is not zero");
            assert!(self.space.free(got.addr));
        }
        self.space.press();
    }

    /// The program goes on as a child of which threads were left behind, in the middle of anything. It has its memory
    /// as before. All else that it gets is zero where it must be, and has no other owner.
    pub fn go_on_alone(&self) {
        let pair = |shard| self.space.allocate(shard, 2 * SLOT, 16, Need::Zero);
        let all: Vec<_> = (0..self.shards).flat_map(|shard| std::iter::from_fn(move || pair(shard))).collect();
        assert!(all.len() * 2 >= MANY_SLOTS / 2, "{} of {MANY_SLOTS} slots are left", all.len() * 2);
        for got in all {
            self.own(got.addr, 2 * SLOT_PAGES, true, got.zero);
        }
        while let Some(thing) = self.take(|_| true) {
            self.give_back(thing);
        }
        self.space.press();
        assert_eq!(self.space.budget().idle(), 0, "idle");
    }

    /// The account is even, but for the carved slots.
    pub fn check_account(&self) {
        let account = self.space.budget();
        assert_eq!(account.idle(), 0, "{account:?}");
        assert!(account.charged() + account.used() <= self.shards, "{account:?}");
    }
}
