//! The memory management unit that takes time: the one in ordinary memory, each operation charged to the processor
//! that makes it.

use std::sync::Mutex;

use faultless_base::sync::RANGE_PLACES;
use faultless_base::sync::per_cpu::places;
use faultless_base::sys::aside::Aside;
use faultless_base::sys::mmu::{Mmu, Rights, Source, Word};
use faultless_base::sys::uffd::Stopped;
use faultless_base::sys::user_mmu::SAMPLES;
use faultless_base::{Errno, PAGE, SLOT, Span};
use faultless_fake::Fake;
use faultless_fake::mmu::{FakeMmu, Found};
use serde::Serialize;

use crate::clock::{Clock, Line, Use};
use crate::costs::Costs;

/// How often each operation was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Operations {
    /// Accesses that faulted.
    pub faults: u64,
    /// Calls that install pages.
    pub calls: u64,
    /// Pages that those were for.
    pub pages: u64,
    /// Huge pages moved.
    pub moves: u64,
    /// Atomic operations on shared words.
    pub words: u64,
    /// Locks that all threads share, taken.
    pub locks: u64,
    /// Moments spent waiting for another thread.
    pub waits: u64,
}

/// The simulated one.
pub struct SimMmu<'a> {
    fake: FakeMmu,
    /// Where huge pages lie while they are not the region's.
    frames: Fake,
    clock: &'a Clock,
    costs: &'a Costs,
    /// What clearing a page takes.
    clear: f64,
    /// What making a huge page of zeroes takes.
    make_huge: f64,
    /// What dropping a page takes.
    discard: f64,
    base: usize,
    /// Lines of counters.
    lines: usize,
    /// Places over which threads are spread.
    places: usize,
    made: Mutex<Operations>,
}

impl<'a> SimMmu<'a> {
    /// For a region that begins at `base` and has `lines` lines of counters.
    pub fn new(clock: &'a Clock, costs: &'a Costs, base: usize, lines: usize) -> Self {
        let (clear, make_huge) = (costs.clear_near, costs.make_huge);
        let (frames, places) = (Fake::default(), places(lines));
        let fake = FakeMmu::new(|| {}).with_frames(frames.clone());
        Self {
            fake,
            frames,
            clock,
            costs,
            clear,
            make_huge,
            discard: 0.0,
            base,
            lines,
            places,
            made: Mutex::default(),
        }
    }

    /// What each page takes to be cleared, instead of what it takes on the own node.
    pub fn clearing(self, clear: f64) -> Self {
        Self { clear, ..self }
    }

    /// What dropping a page takes, instead of nothing.
    pub fn discarding(self, discard: f64) -> Self {
        Self { discard, ..self }
    }

    /// All frames were cleared before.
    pub fn prezeroed(self) -> Self {
        Self { clear: 0.0, make_huge: 0.0, ..self }
    }

    /// The memory in which huge pages lie while they are not the region's.
    pub fn frames(&self) -> Fake {
        self.frames.clone()
    }

    /// How often each operation was made.
    pub fn made(&self) -> Operations {
        *self.made.lock().expect("nobody panics")
    }

    /// The program writes to a page; whether it is there.
    pub fn write(&self, addr: usize) -> bool {
        match self.fake.write(addr, 1) {
            Found::Byte(_) => true,
            Found::Missing => false,
            Found::Forbidden | Found::Poisoned => panic!("the program may not write at {addr:#x}"),
        }
    }

    /// The way from the access to the fault function, and back; a signal handler announces itself
    /// to find the region, and to use it.
    pub fn enter(&self, cpu: usize) {
        self.count(|made| made.faults += 1);
        self.clock.spend(self.costs.entry);
        self.kernel();
        self.atomic(Line::Table(cpu % self.places));
        self.atomic(Line::Handler(cpu % self.places));
    }

    /// The handler is done.
    pub fn leave(&self, cpu: usize) {
        self.atomic(Line::Handler(cpu % self.places));
    }

    fn count(&self, add: impl FnOnce(&mut Operations)) {
        add(&mut self.made.lock().expect("nobody panics"));
    }

    fn kernel(&self) {
        (0..self.costs.kernel_words).for_each(|_| self.atomic(Line::Kernel));
    }

    fn atomic(&self, line: Line) {
        self.count(|made| made.words += 1);
        self.clock.pass(line, Use::Atomic);
    }

    fn lock(&self, line: Line) {
        self.count(|made| made.locks += 1);
        self.clock.pass(line, Use::Lock);
    }

    /// The line of the `i`th word of a table.
    fn line_of(&self, i: usize) -> usize {
        i * size_of::<usize>() / self.costs.line
    }
}

/// Pages of the simulation stay where they are.
impl Aside for SimMmu<'_> {}

impl Mmu for SimMmu<'_> {
    fn install(&self, from: Source, to: Span) -> Result<(), Stopped> {
        self.kernel();
        let end = self.fake.install(from, to);
        // A call that meets a page that is there has brought those before it.
        let pages = end.as_ref().map_or_else(|stopped| stopped.done, |()| to.bytes()) / PAGE;
        self.count(|made| {
            made.calls += 1;
            made.pages += pages as u64;
        });
        self.clock.spend(self.costs.call + pages as f64 * (self.costs.install + self.clear));
        end
    }

    fn move_huge(&self, frame: usize, to: usize) -> bool {
        self.count(|made| made.moves += 1);
        self.kernel();
        self.clock.spend(self.costs.move_huge);
        self.fake.move_huge(frame, to)
    }

    fn frees_tables(&self) -> bool {
        self.fake.frees_tables()
    }

    fn leave_to_kernel(&self, span: Span) -> Result<(), Errno> {
        self.fake.leave_to_kernel(span)
    }

    fn take_from_kernel(&self, span: Span) -> Result<(), Errno> {
        self.fake.take_from_kernel(span)
    }

    fn present(&self, span: Span) -> usize {
        self.fake.present(span)
    }

    fn is_own(&self, page: usize) -> bool {
        self.fake.is_own(page)
    }

    /// Each look is a call.
    fn unused(&self, span: Span) -> usize {
        self.clock.spend(self.costs.call * SAMPLES.min(span.bytes() / PAGE) as f64);
        self.fake.unused(span)
    }

    fn drop_unless_whole(&self, frame: usize) -> bool {
        self.fake.drop_unless_whole(frame)
    }

    fn poison(&self, page: usize) -> Result<(), Errno> {
        self.fake.poison(page)
    }

    fn wake(&self, span: Span) {
        self.fake.wake(span);
    }

    fn protect(&self, span: Span, rights: Rights) -> Result<(), Errno> {
        self.fake.protect(span, rights)
    }

    fn discard(&self, span: Span) -> Result<(), Errno> {
        self.clock.spend(self.discard * (span.bytes() / PAGE) as f64);
        self.fake.discard(span)
    }

    fn relocate(&self, from: Span, to: usize) -> Result<(), Errno> {
        self.fake.relocate(from, to)
    }

    fn fills_at_any_time(&self) -> bool {
        self.fake.fills_at_any_time()
    }

    fn fill(&self, offset: u64, buffer: Span) -> Result<(), Errno> {
        self.fake.fill(offset, buffer)
    }

    fn raises_faults(&self) -> bool {
        true
    }

    fn touch(&self, span: Span) -> Result<(), Errno> {
        self.fake.touch(span)
    }

    fn reserve(&self, bytes: usize) -> Option<usize> {
        self.fake.reserve(bytes)
    }

    fn release(&self, span: Span) {
        self.fake.release(span);
    }

    fn make_huge(&self, frame: usize) -> bool {
        self.clock.spend(self.make_huge);
        self.fake.make_huge(frame)
    }

    /// The word is looked at again when its line has come back.
    fn relax(&self, _turn: u32) {
        self.count(|made| made.waits += 1);
        self.clock.spend(self.costs.transfer);
    }

    fn meets(&self, word: Word) {
        match word {
            // While a processor has a line it counts all that is on it.
            Word::Counters(cpu, first, last) => (self.line_of(first)..=self.line_of(last))
                .for_each(|line| self.atomic(Line::Counters(cpu % self.lines, line))),
            Word::Reader(cpu) => self.atomic(Line::Reader(cpu % self.places)),
            Word::Users(cpu) => self.atomic(Line::Users(cpu % self.places)),
            Word::Streams(hint) => self.atomic(Line::Streams(hint % self.places)),
            Word::Resident(cpu) => self.atomic(Line::Resident(cpu % self.places)),
            Word::Account => self.atomic(Line::Account),
            Word::Pool => self.atomic(Line::Pool),
            Word::Entry(addr) => self.atomic(Line::Entries(self.line_of((addr - self.base) / SLOT))),
            Word::Index => self.lock(Line::Index),
            // A place in the queue is taken, and then looked at.
            Word::RangeTaken => {
                self.clock.enter(RANGE_PLACES);
                self.lock(Line::Ranges);
                self.lock(Line::Ranges);
            }
            Word::RangeFreed => {
                self.lock(Line::Ranges);
                self.clock.leave();
            }
        }
    }
}
