//! The one engine of this process: started by the first large request, never stopped.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ops::Deref;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use faultless_base::Span;
use faultless_base::sync::Starter;
use faultless_base::sys::linux::Linux;
use faultless_base::sys::raw::{self, NoSignals};
use faultless_mm::Space;
use faultless_mm::page::Page;
use faultless_mm::stats::Counter;

use crate::inside::Inside;
use crate::settings::{self, Settings};
use crate::{early, fork, page, pinned, worker};

struct Cell(UnsafeCell<MaybeUninit<Engine>>);
// SAFETY: written once, by the thread that became the starter, before STARTER says so.
unsafe impl Sync for Cell {}

static ENGINE: Cell = Cell(UnsafeCell::new(MaybeUninit::uninit()));
static STARTER: Starter = Starter::new();
static ARENA_START: AtomicUsize = AtomicUsize::new(0);
static ARENA_BYTES: AtomicUsize = AtomicUsize::new(0);
/// The bytes of the arena in which mappings are the engine's business: all of them, or none once it has retired.
static MANAGED_BYTES: AtomicUsize = AtomicUsize::new(0);

static RETIRED: AtomicBool = AtomicBool::new(false);
/// Set where the engine can be looked at, but no longer used; see [`adopt`].
static FROZEN: AtomicBool = AtomicBool::new(false);

/// Values of [`Engine::same_process`] besides 0.
const SETTLED: u32 = 1;
const ADOPTING: u32 = 2;
/// Between looks at what another thread is about to finish.
const MOMENT_NS: u64 = 50_000;

/// No request below this can be a large one; checked before anything else.
pub const SMALLEST: usize = faultless_base::UNIT;
/// The alignment that malloc guarantees.
pub const MALLOC_ALIGN: usize = 16;
/// Shards of the arena at most; each processor uses one.
const SHARDS: usize = 8;

/// The engine with its settings.
pub struct Engine {
    pub space: Space<Linux>,
    pub settings: Settings,
    pub page: &'static Page,
    /// [`SETTLED`] here, 0 in a child that was forked without our hooks, until it is [`adopt`]ed.
    same_process: &'static AtomicU32,
}

/// The right to call the engine; this thread is inside while it exists.
pub struct Entered {
    engine: &'static Engine,
    // Left before signals are taken again.
    _inside: Inside,
    _signals: Option<NoSignals>,
}

impl Deref for Entered {
    type Target = Engine;
    fn deref(&self) -> &Engine {
        self.engine
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if self.engine.space.worker_wanted() {
            worker::wake(self.engine);
        }
    }
}

impl Engine {
    /// Whether the engine may only be looked at; see [`adopt`].
    pub fn is_frozen(&self) -> bool {
        FROZEN.load(Ordering::Relaxed)
    }

    /// Whether new requests go to the kernel; see [`retire`].
    pub fn is_retired(&self) -> bool {
        RETIRED.load(Ordering::Relaxed)
    }

    /// Counts a request that is left to the kernel.
    pub fn count(&self, reason: Counter) {
        self.page.block[0].add(reason, 1);
    }
}

/// This process.
pub fn pid() -> i32 {
    // SAFETY: no arguments.
    unsafe { libc::getpid() }
}

/// The engine if it runs already.
#[inline]
pub fn running() -> Option<&'static Engine> {
    // SAFETY: it is on after the engine is complete.
    STARTER.is_on().then(|| unsafe { (*ENGINE.0.get()).assume_init_ref() })
}

/// Enters the engine for a large request, starting it if need be. `None`: this process runs plain, or this thread
/// is inside already.
pub fn enter() -> Option<Entered> {
    if STARTER.is_off() || FROZEN.load(Ordering::Relaxed) || !early::is_linked() {
        return None;
    }
    let Some(inside) = Inside::enter() else {
        running()?.count(Counter::KernelNested);
        return None;
    };
    let engine = running().or_else(start)?;
    if engine.same_process.load(Ordering::Acquire) != SETTLED && !adopt(engine) {
        return None;
    }
    // A program that has confined itself may not be allowed to open a file.
    if !engine.is_retired() {
        page::after_fork();
    }
    Some(Entered { engine, _inside: inside, _signals: None })
}

/// As [`enter`], beside a system call of the program's. No signal interrupts the kernel in a call about memory, and its
/// handler may leave by a jump. So none interrupts the engine here: it would stay inside, with its locks held.
pub fn enter_call() -> Option<Entered> {
    let signals = (!STARTER.is_off()).then(NoSignals::new)?;
    let mut entered = enter()?;
    entered._signals = Some(signals);
    Some(entered)
}

/// The engine if it runs and may be used in this process, which may be the child of a bare fork.
#[inline]
pub fn settled() -> Option<&'static Engine> {
    running().filter(|engine| engine.same_process.load(Ordering::Acquire) == SETTLED || adopt(engine))
}

/// Enters a running engine to look at it, even where it must not be used any more; `None`: this thread is inside.
pub fn enter_anyway() -> Option<Entered> {
    let engine = running()?;
    let _ = settled();
    Some(Entered { engine, _inside: Inside::enter()?, _signals: None })
}

/// This process was forked by a bare system call. Takes the engine over, or, if that cannot be done, runs plain.
#[cold]
fn adopt(engine: &'static Engine) -> bool {
    let word = engine.same_process;
    if word.compare_exchange(0, ADOPTING, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        if engine.space.fork_orphan() {
            fork::become_child();
        } else {
            FROZEN.store(true, Ordering::Release);
            worker::forget();
        }
        word.store(SETTLED, Ordering::Release);
    }
    while word.load(Ordering::Acquire) == ADOPTING {
        raw::sleep_ns(MOMENT_NS);
    }
    !FROZEN.load(Ordering::Acquire)
}

impl Engine {
    /// In a forked child whose hooks ran: this is the process now.
    pub fn settle_in(&self) {
        self.same_process.store(SETTLED, Ordering::Release);
    }
}

/// Starts the engine, or waits until another thread has done so.
#[cold]
fn start() -> Option<&'static Engine> {
    STARTER.start(pid(), || !RETIRED.load(Ordering::SeqCst) && build().is_some(), || raw::sleep_ns(MOMENT_NS));
    running()
}

fn build() -> Option<()> {
    let settings = settings::read()?;
    let page = page::open(&settings.knobs);
    let same_process = raw::word_wiped_on_fork()?;
    // SAFETY: no pointers.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.max(1) as usize;
    let bytes = settings.memory.next_power_of_two().saturating_mul(4);
    let space = Space::new(Linux, bytes, cpus.min(SHARDS), &page.block, &page.knobs)?;
    if pinned::looks() {
        space.note_look();
    }
    let span = space.span();
    // SAFETY: by the one thread that is the starter, before it is on.
    unsafe { (*ENGINE.0.get()).write(Engine { space, settings, page, same_process }) };
    ARENA_START.store(span.start, Ordering::Relaxed);
    MANAGED_BYTES.store(span.bytes(), Ordering::Relaxed);
    ARENA_BYTES.store(span.bytes(), Ordering::Release);
    fork::watch();
    Some(())
}

/// Serves no new request from now on, gives all that is free back, addresses included, and ends the background
/// thread. What the program has in the arena are ordinary mappings from then on. An engine that has not started never
/// will.
pub fn retire() {
    if STARTER.call_off() {
        return RETIRED.store(true, Ordering::SeqCst);
    }
    let entered = enter();
    // A child of vfork has limits of its own, but its memory is the parent's.
    if entered.as_ref().is_some_and(|engine| engine.page.header.pid.load(Ordering::Relaxed) != pid() as u32) {
        return;
    }
    RETIRED.store(true, Ordering::SeqCst);
    if let Some(engine) = entered {
        engine.count(Counter::KernelLimited);
        let _stopped = worker::stop();
        engine.space.retire();
        MANAGED_BYTES.store(0, Ordering::Release);
    }
}

/// Whether `addr` lies in the arena.
#[inline]
pub fn owns(addr: usize) -> bool {
    addr.wrapping_sub(ARENA_START.load(Ordering::Relaxed)) < ARENA_BYTES.load(Ordering::Relaxed)
}

/// Whether a byte of `span` lies where mappings are the engine's business.
#[inline]
pub fn touches(span: Span) -> bool {
    let start = ARENA_START.load(Ordering::Relaxed);
    let bytes = MANAGED_BYTES.load(Ordering::Relaxed);
    bytes != 0 && span.start < start + bytes && span.end > start
}

/// Sets the calling thread's error number.
pub fn set_errno(error: i32) {
    // SAFETY: the C library's per-thread variable.
    unsafe { *libc::__errno_location() = error }
}
