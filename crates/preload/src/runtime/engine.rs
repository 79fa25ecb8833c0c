//! The one engine of this process: started by the first large request, never stopped.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ops::Deref;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};

use faultless_base::Span;
use faultless_base::sync::Starter;
use faultless_base::sys::linux::Linux;
use faultless_base::sys::raw::{self, NoSignals, syscall};
use faultless_base::sys::{open, stack, thread};
use faultless_mm::Space;
use faultless_page::layout::Page;
use faultless_page::stats::Counter;

use crate::kernel::call::pid;
use crate::runtime::inside::Inside;
use crate::runtime::settings::{self, Settings};
use crate::runtime::{confined, fork, page, seen, worker};

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
/// The process that this memory belongs to. A child of vfork has its parent's memory and a number of its own.
static HOME: AtomicI32 = AtomicI32::new(0);

/// Values of [`Engine::same_process`] besides 0.
const SETTLED: u32 = 1;
const ADOPTING: u32 = 2;

/// Shards of the arena at most; each processor uses one.
const SHARDS: usize = 8;

/// The engine with its settings.
pub struct Engine {
    pub space: Space<Linux>,
    pub settings: Settings,
    pub page: &'static Page,
    /// [`SETTLED`] here, 0 in a forked child until it is [`adopt`]ed.
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
        if self.engine.space.is_worker_wanted() {
            worker::wake(self.engine);
        }
    }
}

impl Engine {
    /// Whether it is this process's own, and not still that of the process it was forked from.
    fn is_settled(&self) -> bool {
        self.same_process.load(Ordering::Acquire) == SETTLED
    }

    /// Whether another thread is at making it this process's own.
    pub fn is_being_adopted(&self) -> bool {
        self.same_process.load(Ordering::Acquire) == ADOPTING
    }

    /// Whether new requests go to the kernel; see [`retire`].
    pub fn is_retired(&self) -> bool {
        is_retired()
    }

    /// Counts a request that is left to the kernel.
    pub fn count(&self, reason: Counter) {
        self.page.block[0].add(reason, 1);
    }
}

/// This memory belongs to this process from now on. Once the engine has retired, the answer is not needed, and the
/// system call for it may be forbidden.
pub fn note_home() {
    if !RETIRED.load(Ordering::Relaxed) {
        HOME.store(pid(), Ordering::Relaxed);
        open::be_guest(pid());
    }
}

/// Whether this process is not a child of vfork, which shares its parent's memory. Before this library's constructor
/// has run, no process is such a child.
pub fn is_home() -> bool {
    let home = HOME.load(Ordering::Relaxed);
    home == 0 || home == pid()
}

/// Before the engine has started, a child of vfork and one of a bare fork look alike: asks the kernel. Whether the
/// memory is this process's own.
fn comes_home() -> bool {
    const KCMP_VM: usize = 1;
    if !is_home() {
        let home = HOME.load(Ordering::Relaxed) as usize;
        if settings::is_confined() {
            return false;
        }
        // SAFETY: compares two processes.
        match unsafe { syscall(libc::SYS_kcmp, [pid() as usize, home, KCMP_VM, 0, 0, 0]) } {
            Ok(0) => return false,
            // A parent that waits for its child of vfork exists.
            Ok(_) | Err(libc::ESRCH) => note_home(),
            Err(_) => return false,
        }
    }
    true
}

/// The engine if it runs already.
#[inline]
pub fn running() -> Option<&'static Engine> {
    // SAFETY: it is on after the engine is complete.
    STARTER.is_on().then(|| unsafe { (*ENGINE.0.get()).assume_init_ref() })
}

/// Enters the engine for a large request, starting it if need be. `None`: this process runs plain, this thread
/// is inside already, or another one is about to start it.
pub fn enter() -> Option<Entered> {
    if STARTER.is_off() || !settings::are_read() || confined::is_apart() {
        return None;
    }
    let Some(inside) = Inside::enter() else {
        running()?.count(Counter::KernelNested);
        return None;
    };
    let engine = running().or_else(start)?;
    if !engine.is_settled() && !adopt(engine, &inside) {
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
    // A program that has confined itself may not even ask for that.
    if STARTER.is_off() || RETIRED.load(Ordering::Relaxed) || confined::is_apart() {
        return None;
    }
    let signals = NoSignals::new();
    let mut entered = enter()?;
    entered._signals = Some(signals);
    Some(entered)
}

/// The engine if it runs and may be used in this process, which may be a forked child.
#[inline]
pub fn settled() -> Option<&'static Engine> {
    running().filter(|engine| {
        !confined::is_apart()
            && (engine.is_settled() || Inside::enter().is_some_and(|inside| adopt(engine, &inside)))
    })
}

/// This process was forked. Makes the engine its own, unless another thread is at that: then it goes without
/// meanwhile. A handler that interrupted the engine before the fork leaves it to what it interrupted.
#[cold]
fn adopt(engine: &'static Engine, _inside: &Inside) -> bool {
    let word = engine.same_process;
    if word.compare_exchange(0, ADOPTING, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        note_home();
        // A retired engine hands nothing out, and this process may be allowed few system calls: what the arena has
        // stays as it is.
        if !engine.is_retired() {
            engine.space.fork_child();
        }
        fork::become_child();
        word.store(SETTLED, Ordering::Release);
    }
    engine.is_settled()
}

/// Starts the engine, unless another thread is about to: then this request goes without.
#[cold]
fn start() -> Option<&'static Engine> {
    if comes_home() {
        // The program's thread may have little stack.
        // Whether it is confined is asked before there is another thread for it.
        let build = || if settings::is_confined() { None } else { open::apart(build).flatten() };
        let build = || stack::with_room(build).flatten();
        STARTER.start(pid(), || !RETIRED.load(Ordering::SeqCst) && build().is_some());
    }
    running()
}

fn build() -> Option<()> {
    let settings = settings::read()?;
    let page = page::open(&settings.knobs);
    let same_process = raw::word_wiped_on_fork()?;
    thread::prepare();
    // SAFETY: no pointers.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.max(1) as usize;
    let bytes = settings.memory.next_power_of_two().saturating_mul(4);
    let space = Space::new(Linux, bytes, cpus.min(SHARDS), &page.block, &page.knobs)?;
    if seen::references() {
        space.reference_all();
    }
    if seen::watches() {
        space.note_watch();
    }
    let span = space.span();
    // SAFETY: by the one thread that is the starter, before it is on.
    unsafe { (*ENGINE.0.get()).write(Engine { space, settings, page, same_process }) };
    ARENA_START.store(span.start, Ordering::Relaxed);
    MANAGED_BYTES.store(span.bytes(), Ordering::Relaxed);
    ARENA_BYTES.store(span.bytes(), Ordering::Release);
    Some(())
}

/// Serves no new request from now on, gives all that is free back, addresses included, and ends the background
/// thread. What the program has in the arena are ordinary mappings from then on. An engine that has not started never
/// will. A child that shares this memory may ask for it, too, unless it may make few system calls: then nothing is
/// given back.
pub fn retire() {
    if is_over() {
        return;
    }
    if STARTER.call_off() || matches!(confined::now(), confined::FILTERED | confined::STRICT) {
        return RETIRED.store(true, Ordering::SeqCst);
    }
    confined::set(confined::FREE);
    retire_with(enter());
}

/// Whether the whole retirement is done.
fn is_over() -> bool {
    is_retired() && (running().is_none() || MANAGED_BYTES.load(Ordering::Relaxed) == 0)
}

fn retire_with(entered: Option<Entered>) {
    RETIRED.store(true, Ordering::SeqCst);
    if let Some(engine) = entered.filter(|_| !is_over()) {
        engine.count(Counter::KernelLimited);
        let _stopped = worker::stop();
        engine.space.retire();
        MANAGED_BYTES.store(0, Ordering::Release);
    }
}

/// Before this process confines itself: the engine retires. A child that shares its parent's memory leaves the engine
/// to the parent, and does without.
pub fn confine(how: u32) {
    if !retire_process() {
        confine_child(how);
    }
}

/// The same unless this process shares its parent's memory, which is then told: the engine stays as it is.
pub fn retire_process() -> bool {
    if is_over() {
        return true;
    }
    if confined::is_apart() {
        return false;
    }
    if is_home() && STARTER.call_off() {
        RETIRED.store(true, Ordering::SeqCst);
        return true;
    }
    let entered = enter();
    let is_home = is_home();
    if is_home {
        retire_with(entered);
    }
    is_home
}

/// A child of vfork has limits of its own, but its memory is the parent's.
fn confine_child(how: u32) {
    match confined::now() {
        confined::FREE if confined::ends_with_process() => confined::set(how),
        confined::FREE => retire(),
        confined::LIMITED => confined::set(how),
        _ => {}
    }
}

/// Whether that was done.
pub fn is_retired() -> bool {
    RETIRED.load(Ordering::Relaxed)
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
