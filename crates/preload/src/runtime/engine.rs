//! The one engine of this process: started by the first large request, never stopped.

use core::cell::{Cell, UnsafeCell};
use core::mem::MaybeUninit;
use core::ops::Deref;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use faultless_base::sync::Starter;
use faultless_base::sys::linux::Linux;
use faultless_base::sys::raw::{self, NoSignals, syscall};
use faultless_base::sys::{home, isolate, open, stack, thread};
use faultless_base::{Errno, Span};
use faultless_mm::Space;
use faultless_page::knobs::Sharer;
use faultless_page::layout::{Page, plain};
use faultless_page::stats::Counter;

use crate::kernel::call::pid;
use crate::runtime::inside::{Inside, REST_NS, WAIT_NS};
use crate::runtime::settings::{self, Settings};
use crate::runtime::{confined, fork, inside, page, retire, seen, worker};

struct Place(UnsafeCell<MaybeUninit<Engine>>);
// SAFETY: written once, by the thread that became the starter, before STARTER says so.
unsafe impl Sync for Place {}

static ENGINE: Place = Place(UnsafeCell::new(MaybeUninit::uninit()));
pub(super) static STARTER: Starter = Starter::new();
static ARENA_START: AtomicUsize = AtomicUsize::new(0);
static ARENA_BYTES: AtomicUsize = AtomicUsize::new(0);
/// The bytes of the arena in which mappings are the engine's business: all of them, or none once it has retired.
pub(super) static MANAGED_BYTES: AtomicUsize = AtomicUsize::new(0);

pub(super) static RETIRED: AtomicBool = AtomicBool::new(false);

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
    _inside: Inside,
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
    pub fn is_settled(&self) -> bool {
        self.same_process.load(Ordering::Acquire) == SETTLED
    }

    /// Whether another thread is at making it this process's own.
    pub fn is_being_adopted(&self) -> bool {
        self.same_process.load(Ordering::Acquire) == ADOPTING
    }

    /// Whether new requests go to the kernel; see [`retire`](super::retire::retire).
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
        open::be_guest(pid());
    }
}

/// Whether this process is not a child of vfork, which shares its parent's memory. Before this library's constructor
/// has run, no process is such a child.
pub fn is_home() -> bool {
    home::is(pid())
}

/// Before a child that shares this memory and has numbers of a namespace of its own: one of its children may have this
/// process's.
pub fn expect_namespace() {
    // A forked child has its own number first.
    let _ = settled();
    let _inside = Inside::enter_call();
    let serves = may_run() && !RETIRED.load(Ordering::Relaxed) && !confined::is_apart();
    // A filter may forbid the question, and whether one comes from its parents is asked when the engine starts.
    let is_sound = serves && !inside::are_calls_over() && raw::may_call();
    if is_sound && (running().is_some() || !settings::is_confined()) {
        home::expect_namespace(pid());
    }
}

/// Whether this process shares its parent's memory, and the engine in it. A forked child makes the engine its own at the
/// first call of it; one that has retired may be in any process.
pub fn is_shared() -> bool {
    let serves = || running().is_some_and(Engine::is_settled) && !RETIRED.load(Ordering::Relaxed);
    serves() && !is_home()
}

/// Whether this thread is the first one of this process, or of the parent that waits for it after vfork.
pub fn is_first_thread() -> bool {
    inside::is_first_thread(home::number())
}

/// Before the engine has started, a child of vfork and one of a bare fork look alike: asks the kernel. Whether the memory is
/// this process's own.
fn comes_home() -> bool {
    const KCMP_VM: usize = 1;
    if !is_home() {
        let (this, home) = (pid() as usize, home::number() as usize);
        // Numbers from before mean nothing to process 1 of a new namespace.
        if settings::is_confined() || this == 1 {
            return false;
        }
        // SAFETY: compares two processes.
        match unsafe { syscall(libc::SYS_kcmp, [this, home, KCMP_VM, 0, 0, 0]) } {
            Ok(0) => return false,
            // A parent that waits for its child of vfork exists.
            Ok(_) | Err(Errno::ESRCH) => note_home(),
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

/// Whether the engine runs, or may do so later.
pub fn may_run() -> bool {
    !STARTER.is_off()
}

/// Enters the engine for a large request, starting it if need be. `None`: this process runs plain, this thread
/// is inside already, or another one is about to start it.
pub fn enter() -> Option<Entered> {
    if STARTER.is_off() || !settings::are_read() {
        retire::tell_if_untold();
        return None;
    }
    enter_as(Inside::enter_together)
}

#[inline]
fn enter_as(make: impl FnOnce() -> Option<Inside>) -> Option<Entered> {
    let Some(inside) = make() else {
        running()?.count(Counter::KernelNested);
        return None;
    };
    let engine = running().or_else(start)?;
    if !engine.is_settled() && !adopt(engine) {
        return None;
    }
    // A program that has confined itself may not be allowed to open a file.
    if !engine.is_retired() {
        page::after_fork();
    }
    Some(Entered { engine, _inside: inside })
}

/// As [`enter`], beside a system call of the program's. No signal interrupts the kernel in a call about memory, and its
/// handler may leave by a jump. So none interrupts the engine here: it would stay inside, with its locks held.
pub fn enter_call() -> Option<Entered> {
    // A program that has confined itself may not even ask for that.
    if STARTER.is_off() || RETIRED.load(Ordering::Relaxed) || confined::is_apart() {
        retire::tell_if_untold();
        return None;
    }
    settings::are_read().then(|| enter_as(Inside::enter_call))?
}

/// The same where the caller holds all signals back.
pub fn enter_held(held: &NoSignals) -> Option<Entered> {
    if STARTER.is_off() || RETIRED.load(Ordering::Relaxed) || confined::is_apart() {
        return None;
    }
    settings::are_read().then(|| enter_as(|| Inside::enter_held(held)))?
}

/// The engine if it runs and may be used in this process, which may be a forked child.
#[inline]
pub fn settled() -> Option<&'static Engine> {
    running().filter(|engine| {
        !confined::is_apart() && (engine.is_settled() || Inside::enter().is_some_and(|_inside| adopt(engine)))
    })
}

/// This process was forked. Makes the engine its own, unless another thread is at that: then it goes without
/// meanwhile. A handler that interrupted the engine before the fork leaves it to what it interrupted.
#[cold]
pub(super) fn adopt(engine: &'static Engine) -> bool {
    let word = engine.same_process;
    if raw::may_call() && word.compare_exchange(0, ADOPTING, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        note_home();
        // A retired engine hands nothing out, and this process may be allowed few system calls: what the arena has
        // stays as it is. Where a thread of the parent was about to retire it, this one will.
        if !retire::is_over() && !inside::are_calls_over() {
            engine.space.fork_child();
            retire::be_due(engine.is_retired());
        }
        fork::become_child();
        word.store(SETTLED, Ordering::Release);
    }
    engine.is_settled()
}

/// Starts the engine, unless another thread is about to: then this request goes without.
#[cold]
fn start() -> Option<&'static Engine> {
    if raw::may_call() && comes_home() {
        // The program's thread may have little stack.
        // Whether it is confined is asked before there is another thread for it.
        let build = || if settings::is_confined() { None } else { open::apart(build).flatten() };
        let arena = Cell::new(None);
        let build = || {
            if !RETIRED.load(Ordering::SeqCst) {
                arena.set(stack::with_room(build).flatten());
            }
            arena.get().is_some()
        };
        STARTER.start(pid(), build, || arena.get().into_iter().for_each(undo));
    }
    running()
}

/// The engine was called off while it was made: its addresses would count towards the program's limits.
fn undo(arena: Span) {
    MANAGED_BYTES.store(0, Ordering::Release);
    ARENA_BYTES.store(0, Ordering::Release);
    // SAFETY: of the engine that will never be on.
    unsafe { raw::unmap(arena.start, arena.bytes()) };
    raw::end_together();
    isolate::retire();
}

/// Where another thread makes the engine, waits until it has, or has undone what it made of one that was called off.
/// It takes a millisecond, and no signals; one that does not get on is not waited for longer than a second.
pub fn wait_while_made() {
    if !inside::are_calls_over() && STARTER.is_under_way(pid) {
        let start = raw::now_ns();
        while STARTER.is_under_way(pid) && raw::now_ns() - start < WAIT_NS {
            raw::sleep_ns(REST_NS);
        }
    }
}

/// Addresses for tables, of which some 16 MiB are used.
const TABLES: usize = 1 << 30;

/// The frame that makes the engine has several copies of it.
const _: () = assert!(8 * size_of::<Engine>() < stack::BYTES);

/// Makes the engine; its arena.
fn build() -> Option<Span> {
    let settings = settings::read()?;
    let page = page::open(&settings.knobs);
    let made = build_on(settings, page);
    if made.is_none() {
        page.header.plain.store(plain::REFUSED, Ordering::Relaxed);
    }
    made
}

fn build_on(settings: settings::Settings, page: &'static Page) -> Option<Span> {
    raw::keep_together(TABLES);
    let same_process = raw::word_wiped_on_fork()?;
    thread::prepare(inside::variables_below());
    // SAFETY: no pointers.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.max(1) as usize;
    let bytes = settings.memory.next_power_of_two().saturating_mul(4);
    let space = Space::new(Linux, bytes, cpus.min(SHARDS), &page.block, &page.knobs)?;
    page.knobs.share_budget(Sharer::Run);
    isolate::reserve(bytes / 4);
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
    Some(span)
}

/// Whether the service has ended: see [`retire`](super::retire::retire).
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
