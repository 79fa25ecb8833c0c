//! Virtual time: processors that act one after the other, in the order of their clocks, and cache lines that they
//! pass on.
//!
//! A processor is a coroutine. It runs until it spends time or comes to a shared word; then the next processor in
//! time runs. So the engine's code really meets what the others have done by then: an entry that another one has
//! locked, a page that another one has installed.
//!
//! A line serves one processor at a time, first come, first served. One that had it last has it at once, any other
//! waits for its transfer. Of a lock that others spin on, each of them makes the hand-over longer.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use generator::{Generator, Gn};
use serde::Serialize;

use crate::costs::Costs;
use crate::shared::{Mode, Shared, Taken};

/// Picoseconds.
pub type Ps = u64;

/// Words of stack of a processor.
const STACK: usize = 1 << 14;

/// A cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Line {
    /// Of counters: whose, and which.
    Counters(usize, usize),
    /// A signal handler's place while it looks for its region.
    Table(usize),
    /// Its place while it uses that.
    Handler(usize),
    /// A reader's place.
    Reader(usize),
    /// Of users of the area.
    Users(usize),
    /// A set of streams: its clock, at least.
    Streams(usize),
    /// What faults of the area cost and saved.
    Account,
    /// The pool of huge pages.
    Pool,
    /// Of how many pages the region has.
    Resident(usize),
    /// Of entries.
    Entries(usize),
    /// The lock on the index of areas.
    Index,
    /// The range lock's table.
    Ranges,
    /// The kernel's own, for the address space.
    Kernel,
    /// The lock of a whole address space in a kernel.
    Semaphore,
    /// The lock of its page tables.
    PageTables,
    /// Of an area in a kernel.
    Area(usize),
}

impl Line {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counters(..) => "counters",
            Self::Table(_) => "table of regions",
            Self::Handler(_) => "handlers",
            Self::Reader(_) => "readers",
            Self::Users(_) => "users",
            Self::Streams(_) => "streams",
            Self::Account => "account",
            Self::Pool => "pool",
            Self::Resident(_) => "pages of the region",
            Self::Entries(_) => "entries",
            Self::Index => "index lock",
            Self::Ranges => "range lock",
            Self::Kernel => "kernel's",
            Self::Semaphore => "address space lock",
            Self::PageTables => "page table lock",
            Self::Area(_) => "areas",
        }
    }
}

/// What is done to a word of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// One atomic operation.
    Atomic,
    /// A lock is taken and let go, for a few instructions.
    Lock,
    /// A lock is taken, and let go after this time.
    Held(Ps),
}

/// What a processor waits for.
#[derive(Clone, Copy, Debug)]
enum Wait {
    Time(Ps),
    Line(Line, Use),
    /// One of this many places.
    Place(usize),
    /// Nothing: it lets a place go.
    Left,
    /// The lock for readers and writers; one that slept for it takes this time to wake.
    Take(Mode, Ps),
    /// Nothing: it lets that lock go.
    Give(Mode),
    /// For ever: its program has ended.
    End,
}

/// How it went.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// When the last program ended.
    pub at: Ps,
    /// The line that was in use for longest, and for how long.
    pub busiest: Option<(Ps, Line)>,
}

/// The time as processors see it.
#[derive(Default)]
pub struct Clock {
    now: AtomicU64,
}

impl Clock {
    /// Now.
    pub fn now(&self) -> Ps {
        self.now.load(Relaxed)
    }

    /// Spends `ns` nanoseconds.
    pub fn spend(&self, ns: f64) {
        pause(Wait::Time((ns * 1000.0).round() as Ps));
    }

    /// Takes a lock, holds it for `ns` nanoseconds, and lets it go.
    pub fn hold(&self, line: Line, ns: f64) {
        pause(Wait::Line(line, Use::Held((ns * 1000.0).round() as Ps)));
    }

    /// Comes to a word.
    pub fn pass(&self, line: Line, how: Use) {
        pause(Wait::Line(line, how));
    }

    /// Waits for one of `places`.
    pub fn enter(&self, places: usize) {
        pause(Wait::Place(places));
    }

    /// Lets it go.
    pub fn leave(&self) {
        pause(Wait::Left);
    }

    /// Takes the lock for readers and writers. If that has to wait, waking it takes `wake` ns, in which it has the lock.
    pub fn take(&self, mode: Mode, wake: f64) {
        pause(Wait::Take(mode, (wake * 1000.0).round() as Ps));
    }

    /// Lets it go.
    pub fn give(&self, mode: Mode) {
        pause(Wait::Give(mode));
    }
}

#[expect(deprecated, reason = "what the replacement needs cannot be handed through the engine's code")]
fn pause(wait: Wait) {
    generator::yield_with(wait);
}

/// A processor and its program.
pub struct Cpu<'a>(Generator<'a, (), Wait>);

impl<'a> Cpu<'a> {
    /// One that runs `program`.
    pub fn new(program: impl FnOnce() + Send + 'a) -> Self {
        Self(Gn::new_opt(STACK, move || {
            program();
            Wait::End
        }))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Runs(usize),
    Served(usize, Line),
}

#[derive(Default)]
struct Queue {
    owner: Option<usize>,
    busy: bool,
    /// How long it was passed on or used.
    used: Ps,
    waiting: VecDeque<(usize, Use)>,
}

/// All processors, and what is going to happen.
pub struct Machine<'a> {
    clock: &'a Clock,
    costs: &'a Costs,
    cpus: Vec<Cpu<'a>>,
    events: BinaryHeap<Reverse<(Ps, u64, Event)>>,
    count: u64,
    lines: HashMap<Line, Queue>,
    inside: usize,
    outside: VecDeque<usize>,
    shared: Shared,
}

impl<'a> Machine<'a> {
    /// No processor has run yet.
    pub fn new(clock: &'a Clock, costs: &'a Costs, cpus: Vec<Cpu<'a>>) -> Self {
        let (events, lines, outside) = (BinaryHeap::new(), HashMap::new(), VecDeque::new());
        let mut machine =
            Self { clock, costs, cpus, events, count: 0, lines, inside: 0, outside, shared: Shared::default() };
        (0..machine.cpus.len()).for_each(|cpu| machine.after(0, Event::Runs(cpu)));
        machine
    }

    /// Runs all programs to their ends.
    pub fn run(mut self) -> End {
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            self.clock.now.store(at, Relaxed);
            match event {
                Event::Runs(cpu) => self.resume(cpu),
                Event::Served(cpu, line) => {
                    self.serve(line);
                    self.resume(cpu);
                }
            }
        }
        let busiest = self.lines.iter().map(|(line, queue)| (queue.used, *line)).max();
        End { at: self.clock.now(), busiest }
    }

    /// Of events at one time, the first to be planned comes first.
    fn after(&mut self, ps: Ps, event: Event) {
        self.count += 1;
        self.events.push(Reverse((self.clock.now() + ps, self.count, event)));
    }

    fn resume(&mut self, cpu: usize) {
        let Some(wait) = self.cpus[cpu].0.resume() else { return };
        match wait {
            Wait::End => {}
            Wait::Time(ps) => self.after(ps, Event::Runs(cpu)),
            Wait::Line(line, how) => {
                let queue = self.lines.entry(line).or_default();
                queue.waiting.push_back((cpu, how));
                if !queue.busy {
                    self.serve(line);
                }
            }
            Wait::Place(places) if self.inside < places => {
                self.inside += 1;
                self.after(0, Event::Runs(cpu));
            }
            Wait::Place(_) => self.outside.push_back(cpu),
            Wait::Take(mode, wake) => match self.shared.take(cpu, mode, wake) {
                Taken::Now => self.after(0, Event::Runs(cpu)),
                Taken::Later => {}
            },
            Wait::Give(mode) => {
                self.shared.give(mode);
                self.after(0, Event::Runs(cpu));
                self.admit();
            }
            Wait::Left => {
                match self.outside.pop_front() {
                    Some(next) => self.after(0, Event::Runs(next)),
                    None => self.inside -= 1,
                }
                self.after(0, Event::Runs(cpu));
            }
        }
    }

    /// Those whose turn it is have the lock for readers and writers. They are woken one after the other.
    fn admit(&mut self) {
        let mut woken = 0;
        while let Some((cpu, wake)) = self.shared.admit() {
            woken += wake;
            self.after(woken, Event::Runs(cpu));
        }
    }

    /// The next one that waits for a line gets it.
    fn serve(&mut self, line: Line) {
        let queue = self.lines.entry(line).or_default();
        let Some((cpu, how)) = queue.waiting.pop_front() else {
            queue.busy = false;
            return;
        };
        queue.busy = true;
        let mut ns = if queue.owner.replace(cpu).is_none_or(|owner| owner == cpu) {
            self.costs.local
        } else {
            self.costs.transfer
        };
        if how != Use::Atomic {
            // A processor that found no place looks at the table of places again and again.
            let outside = if line == Line::Ranges { self.outside.len() } else { 0 };
            ns += self.costs.waiter * (queue.waiting.len() + outside) as f64;
        }
        let held = if let Use::Held(ps) = how { ps } else { 0 };
        let ps = (ns * 1000.0).round() as Ps + held;
        queue.used += ps;
        self.after(ps, Event::Served(cpu, line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::MACHINE;

    const WORD: Line = Line::Kernel;

    fn costs() -> Costs {
        Costs { local: 1.0, transfer: 10.0, waiter: 2.0, ..MACHINE }
    }

    type Program = Box<dyn Fn(&Clock) + Sync>;

    fn run(programs: Vec<Program>) -> Ps {
        let (clock, costs) = (Clock::default(), costs());
        let cpus = programs.iter().map(|program| Cpu::new(|| program(&clock))).collect();
        Machine::new(&clock, &costs, cpus).run().at / 1000
    }

    #[test]
    fn processors_run_at_once() {
        assert_eq!(run(vec![Box::new(|c| c.spend(7.0)), Box::new(|c| c.spend(5.0))]), 7);
    }

    #[test]
    fn a_line_is_passed_on_and_a_lock_the_slower_the_more_wait() {
        let twice = |how| move |clock: &Clock| (0..2).for_each(|_| clock.pass(WORD, how));
        let many = |how, n| run((0..n).map(|_| Box::new(twice(how)) as Program).collect());
        // The first one waits for no transfer.
        assert_eq!(many(Use::Atomic, 1), 1 + 1);
        // The two take turns.
        assert_eq!(many(Use::Atomic, 2), 1 + 3 * 10);
        // Of two, a holder finds no other one waiting. Of three, it finds one, but for the first and the last.
        assert_eq!(many(Use::Lock, 2), many(Use::Atomic, 2));
        assert_eq!(many(Use::Lock, 3), 1 + 4 * (10 + 2) + 10);
    }

    #[test]
    fn a_lock_that_is_held_keeps_others_waiting() {
        let holds = |clock: &Clock| clock.hold(WORD, 100.0);
        // One that waits behind the first, and then has it from another processor.
        assert_eq!(run((0..2).map(|_| Box::new(holds) as Program).collect()), 1 + 100 + 10 + 100);
    }

    #[test]
    fn whoever_finds_no_place_waits_for_one() {
        let inside = |clock: &Clock| {
            clock.enter(2);
            clock.spend(5.0);
            clock.leave();
        };
        assert_eq!(run((0..6).map(|_| Box::new(inside) as Program).collect()), 15);
    }
}
