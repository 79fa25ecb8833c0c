//! An address space in ordinary memory, for tests and simulations.
//!
//! It knows, page by page, whether it may be accessed, whether it is present and what it holds (one byte stands for
//! all 4096). It panics where a real program would be killed or its data spoilt: at a write to closed memory, or a
//! touch of unmapped memory. Failures of single operations can be asked for.

mod memory;
pub mod mmu;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use faultless_base::sys::{Headroom, Huge, Job, SIGNATURES, Sys, Usage};
use faultless_base::zero::Engine;
use faultless_base::zero::driver::Poll;
use faultless_base::{PAGE, SLOT, SLOT_PAGES, Span};

/// One page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Readable and writable.
    pub open: bool,
    /// Has memory behind it.
    pub present: bool,
    /// Every byte of it.
    pub byte: u8,
    /// Huge pages advised.
    pub huge: bool,
    /// Whether the program changed other attributes of it, by a call that was not seen.
    pub altered: bool,
    /// Cannot move: it has another reference.
    pub pinned: bool,
    /// The node that its memory is of; see [`Fake::run_on`].
    pub node: usize,
    /// Given back, address and all: whatever is there is not the engine's.
    pub released: bool,
}

/// An operation that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failing {
    /// [`Sys::open_first`].
    Open,
    /// [`Sys::migrate`].
    Migrate,
    /// [`Sys::scrub_poll`]: the engine says so.
    Engine,
    /// The same: the engine says nothing, ever.
    Stall,
    /// [`Sys::reserve`].
    Reserve,
    /// Memory is short.
    Memory,
    /// [`Sys::move_pages`].
    Moves,
    /// The same, in this thread: [`Sys::may_move`].
    MovesHere,
    /// [`Sys::isolate`].
    Isolate,
    /// [`Sys::reset`] and [`Sys::discard`]: no more areas, and what it was about is closed.
    Areas,
}

/// A page has one byte here, so a signature is one byte too.
fn signatures(slot: Span) -> impl Iterator<Item = (usize, u8)> {
    const APART: usize = SLOT / SIGNATURES;
    (0..SIGNATURES).map(move |i| (slot.start + APART / 2 + i * APART, (slot.start / SLOT) as u8 | 0x80))
}

#[derive(Default)]
struct State {
    /// By the number of their slot.
    slots: BTreeMap<usize, Box<[Page; SLOT_PAGES]>>,
    next: usize,
    now_ns: u64,
    /// What the first touch of a huge page takes.
    huge_ns: u64,
    load: u64,
    /// What the warm reserve was told.
    announced: usize,
    usage: Option<Usage>,
    failing: Vec<Failing>,
    /// Taken away from the program, and not dropped yet.
    isolated: Vec<Span>,
    /// The program watches memory.
    looks_ended: bool,
    /// How many nodes there are, 0 for one; where the thread that calls runs, and whether it has a policy of its own.
    nodes: usize,
    here: usize,
    has_policy: bool,
    /// Where its memory is to come from instead.
    preferred: Option<usize>,
}

/// The address space; a clone is another handle of the same one. Pages that were never spoken of are closed and
/// absent.
#[derive(Clone, Default)]
pub struct Fake {
    state: Arc<Mutex<State>>,
    at_touch: Arc<Mutex<Option<Event>>>,
}

/// What happens meanwhile.
type Event = Box<dyn FnOnce() + Send>;

impl Sys for Fake {
    fn reserve(&self, bytes: usize, align: usize) -> Option<Span> {
        if self.fails(Failing::Reserve) {
            return None;
        }
        let mut state = self.state.lock().unwrap();
        let start = (state.next.max(1 << 40)).next_multiple_of(align.max(SLOT));
        state.next = start + bytes;
        Some(Span::new(start, bytes))
    }

    fn has_nodes(&self) -> bool {
        self.state.lock().unwrap().nodes > 1
    }

    fn node_of_cpu(&self, cpu: usize) -> usize {
        cpu % self.state.lock().unwrap().nodes
    }

    fn home(&self) -> Option<usize> {
        let state = self.state.lock().unwrap();
        (!state.has_policy).then_some(state.here)
    }

    fn prefer_node(&self, node: Option<usize>) {
        self.state.lock().unwrap().preferred = node;
    }

    fn announce(&self, bytes: usize) {
        self.state.lock().unwrap().announced = bytes;
    }

    fn has_policy(&self, _addr: usize) -> bool {
        self.state.lock().unwrap().has_policy
    }

    fn node_of(&self, slot: Span) -> Option<usize> {
        let pages = [slot.start, slot.start + SLOT / 2, slot.end - PAGE].map(|at| self.page(at));
        let is_one = pages.iter().all(|page| page.present && page.node == pages[0].node);
        is_one.then_some(pages[0].node)
    }

    fn reserve_apart(&self, bytes: usize) -> Option<Span> {
        let span = self.reserve(bytes, SLOT)?;
        self.open(span);
        self.huge(span, Huge::Advised);
        Some(span)
    }

    fn unclaimed(&self, rest: Span) -> usize {
        let state = self.state.lock().unwrap();
        let is_claimed = |pages: &[Page; SLOT_PAGES]| pages.iter().any(|page| page.open || page.altered);
        let slots = state.slots.range(rest.start / SLOT..rest.end.div_ceil(SLOT));
        slots.rev().find(|(_, pages)| is_claimed(pages)).map_or(rest.start, |(slot, _)| (slot + 1) * SLOT)
    }

    fn open_first(&self, span: Span) -> bool {
        let works = !self.fails(Failing::Open);
        if works {
            self.open(span);
        }
        works
    }

    fn reset(&self, span: Span) -> bool {
        let works = !self.fails(Failing::Areas);
        match works {
            true => self.each(span, |_, page| *page = Page { open: true, ..Page::default() }),
            false => self.close(span),
        }
        works
    }

    fn release(&self, span: Span) -> bool {
        self.each(span, |_, page| *page = Page { released: true, ..Page::default() });
        true
    }

    fn retire(&self) {}

    fn discard(&self, span: Span) -> bool {
        if self.fails(Failing::Areas) {
            self.close(span);
            return false;
        }
        self.empty(span);
        true
    }

    fn discard_apart(&self, span: Span) -> bool {
        self.empty(span);
        true
    }

    fn huge(&self, span: Span, huge: Huge) {
        self.each(span, |_, page| page.huge = huge == Huge::Advised);
    }

    fn zero_hot(&self, span: Span) {
        self.write(span, 0);
    }

    fn scrub_largest(&self) -> usize {
        8 * SLOT
    }

    fn scrub_start(&self, span: Span) -> Option<Job> {
        Some(Job::by_hand(span))
    }

    /// A slot at a time.
    fn scrub_poll(&self, job: &mut Job) -> Poll {
        if self.fails(Failing::Stall) {
            return Poll::Working;
        }
        let rest = Span { start: job.span.start + job.done, end: job.span.end };
        let piece = Span::new(rest.start, rest.bytes().min(SLOT));
        let failed = self.fails(Failing::Engine);
        // One that fails has done half of it.
        let part = if failed { Span::new(piece.start, piece.bytes() / 2) } else { piece };
        self.each(part, |addr, page| {
            assert!(page.open, "at {addr:#x}");
            page.byte = 0;
            page.present = true;
        });
        if failed {
            return Poll::Failed;
        }
        job.done += piece.bytes();
        if job.done == job.span.bytes() { Poll::Done } else { Poll::Working }
    }

    fn scrub_end(&self, _job: Job) {}

    fn drop_engine(&self, _engine: Engine) {}

    fn migrate(&self, from: Span, to: usize) -> bool {
        if self.fails(Failing::Migrate) {
            return false;
        }
        let mut moved = Vec::new();
        self.each(from, |_, page| {
            moved.push(*page);
            page.present = false;
            page.byte = 0;
        });
        let mut pages = moved.into_iter();
        self.each(Span::new(to, from.bytes()), |_, page| *page = pages.next().unwrap());
        true
    }

    fn may_move(&self) -> bool {
        !self.fails(Failing::MovesHere)
    }

    fn move_pages(&self, from: Span, to: usize) -> Option<usize> {
        if self.fails(Failing::MovesHere) {
            return Some(0);
        }
        if self.fails(Failing::Moves) {
            return None;
        }
        let mut done = 0;
        while done < from.bytes() {
            let (old, new) = (self.page(from.start + done), self.page(to + done));
            if new.present || !old.present || !new.open || !old.open || new.pinned || old.pinned {
                break;
            }
            self.empty(Span::new(from.start + done, PAGE));
            self.each(Span::new(to + done, PAGE), |_, page| {
                page.present = true;
                page.byte = old.byte;
                page.node = old.node;
            });
            done += PAGE;
        }
        Some(done)
    }

    fn can_drop(&self, span: Span) -> bool {
        self.all(span, |page| page.open)
    }

    fn drop_zero(&self, slot: Span, _room: Span) -> Option<bool> {
        let zero = self.all(slot, |page| page.open && page.byte == 0);
        if zero {
            self.empty(slot);
        }
        Some(zero)
    }

    fn copy_from_program(&self, from: Span, to: usize) -> bool {
        for at in (0..from.bytes()).step_by(PAGE) {
            let Some(byte) = self.read(from.start + at) else { return false };
            self.write(Span::new(to + at, PAGE), byte);
        }
        true
    }

    fn isolate(&self, span: Span) -> Option<Span> {
        let moves = !self.fails(Failing::Isolate) && self.all(span, |page| page.open);
        moves.then(|| {
            let mut state = self.state.lock().unwrap();
            let start = state.next.max(1 << 40).next_multiple_of(SLOT) + span.start % SLOT;
            state.next = start + span.bytes() + SLOT;
            let there = Span::new(start, span.bytes());
            state.isolated.push(there);
            drop(state);
            self.migrate(span, start);
            self.unmap(span);
            there
        })
    }

    fn drop_isolated(&self, span: Span) {
        self.unmap(span);
        self.state.lock().unwrap().isolated.retain(|other| *other != span);
    }

    fn forked(&self) {
        let isolated = std::mem::take(&mut self.state.lock().unwrap().isolated);
        isolated.into_iter().for_each(|span| self.unmap(span));
    }

    fn touch(&self, addr: usize) {
        assert!(self.page(addr).open, "touch of closed memory at {addr:#x}");
        self.fault(addr);
    }

    fn touch_if_open(&self, addr: usize) -> bool {
        let open = self.page(addr).open && !self.looks_ended();
        if open {
            let event = self.at_touch.lock().unwrap().take();
            event.into_iter().for_each(|event| event());
            self.fault(addr);
        }
        open
    }

    fn poison(&self, span: Span) {
        self.write(span, 0xA5);
    }

    fn first_nonzero(&self, span: Span) -> Option<usize> {
        let mut found = None;
        self.each(span, |addr, page| {
            assert!(page.open, "read of closed memory at {addr:#x}");
            if page.byte != 0 {
                found = found.or(Some(addr));
            }
        });
        found
    }

    fn nonzero_pages(&self, span: Span, samples: usize) -> usize {
        assert!(self.page(span.start).open, "read of closed memory at {:#x}", span.start);
        self.nonzero(span, samples)
    }

    fn peek_nonzero_pages(&self, span: Span, samples: usize) -> usize {
        if self.looks_ended() { 0 } else { self.nonzero(span, samples) }
    }

    fn sign(&self, slot: Span) {
        signatures(slot).for_each(|(at, byte)| self.write(Span::new(at, PAGE), byte));
    }

    fn overwritten(&self, slot: Span) -> usize {
        assert!(self.page(slot.start).open, "read of closed memory at {:#x}", slot.start);
        signatures(slot).filter(|&(at, byte)| self.page(at).byte != byte).count()
    }

    fn peek_overwritten(&self, slot: Span) -> usize {
        let stands = |at: usize, byte: u8| self.page(at).present && self.page(at).byte == byte;
        if self.looks_ended() { 0 } else { signatures(slot).filter(|&(at, byte)| !stands(at, byte)).count() }
    }

    fn end_looks(&self) {
        self.state.lock().unwrap().looks_ended = true;
    }

    fn area(&self, addr: usize) -> Option<Span> {
        let state = self.state.lock().unwrap();
        let of = |page: &Page| (page.open, page.huge, page.altered);
        let pages = |slot: usize| state.slots.get(&slot);
        let like = of(&pages(addr / SLOT)?[addr / PAGE % SLOT_PAGES]);
        let is_like = |at: usize| pages(at / SLOT).is_some_and(|pages| of(&pages[at / PAGE % SLOT_PAGES]) == like);
        let slot_is_like =
            |at: usize| pages(at / SLOT).is_some_and(|pages| pages.iter().all(|page| of(page) == like));
        let (mut start, mut end) = (addr & !(PAGE - 1), (addr & !(PAGE - 1)) + PAGE);
        while is_like(end) {
            end += if end % SLOT == 0 && slot_is_like(end) { SLOT } else { PAGE };
        }
        while is_like(start - PAGE) {
            start -= if start % SLOT == 0 && slot_is_like(start - SLOT) { SLOT } else { PAGE };
        }
        Some(Span { start, end })
    }

    fn present(&self, addr: usize) -> bool {
        self.page(addr).present
    }

    fn missing(&self, addr: usize) -> bool {
        !self.page(addr).present
    }

    fn present_pages(&self, slot: Span) -> usize {
        (slot.start..slot.end).step_by(PAGE).filter(|&at| self.page(at).present).count()
    }

    fn is_short_of_memory(&self) -> bool {
        self.fails(Failing::Memory)
    }

    fn resident_bytes(&self) -> Option<usize> {
        Some(Fake::resident(self) * PAGE)
    }

    fn headroom(&self) -> Headroom {
        Headroom::Unlimited
    }

    fn now_ns(&self) -> u64 {
        self.state.lock().unwrap().now_ns
    }

    fn thread_ns(&self) -> u64 {
        self.now_ns()
    }

    fn process_ns(&self) -> u64 {
        self.now_ns()
    }

    fn load(&self) -> u64 {
        self.state.lock().unwrap().load
    }

    fn usage(&self) -> Option<Usage> {
        self.state.lock().unwrap().usage
    }

    fn avoid_cpu(&self, _cpu: Option<usize>) {}

    fn relax(&self, _turn: u32) {
        std::thread::yield_now();
        // Much: on a machine with other work each turn may take some milliseconds indeed, and a thread waits for the
        // time to pass.
        self.state.lock().unwrap().now_ns += 1_000_000;
    }
}
