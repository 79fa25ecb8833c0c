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
use crate::runtime::inside::{Ending, Inside, wait_for_end};
use crate::runtime::settings::{self, Settings};
use crate::runtime::{confined, fork, inside, page, seen, worker};

struct Place(UnsafeCell<MaybeUninit<Engine>>);
// SAFETY: written once, by the thread that became the starter, before STARTER says so.
unsafe impl Sync for Place {}

static ENGINE: Place = Place(UnsafeCell::new(MaybeUninit::uninit()));
static STARTER: Starter = Starter::new();
static ARENA_START: AtomicUsize = AtomicUsize::new(0);
static ARENA_BYTES: AtomicUsize = AtomicUsize::new(0);
/// The bytes of the arena in which mappings are the engine's business: all of them, or none once it has retired.
static MANAGED_BYTES: AtomicUsize = AtomicUsize::new(0);

static RETIRED: AtomicBool = AtomicBool::new(false);

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
        tell_if_untold();
        return None;
    }
    enter_as(Inside::enter_together)
}

/// The service was called off before it began, and no page says so yet. A program that makes no large request leaves
/// none.
static UNTOLD: AtomicBool = AtomicBool::new(false);

#[inline]
fn tell_if_untold() {
    if UNTOLD.load(Ordering::Relaxed) {
        tell_ended();
    }
}

/// The first large request of a program whose service was called off.
#[cold]
fn tell_ended() {
    let Some(_inside) = Inside::enter() else { return };
    let may_tell = !confined::is_apart() && raw::may_call() && is_home() && !settings::is_confined();
    if may_tell && UNTOLD.swap(false, Ordering::Relaxed) {
        stack::with_room(|| open::apart(settings::tell_ended));
    }
}

/// Makes sure that the service never begins, if it has not; whether that is so. Its own calls may go on or not.
fn call_off(calls: Calls) -> bool {
    let is_first = !STARTER.is_off();
    let done = STARTER.call_off();
    if done && is_first && calls == Calls::GoOn && is_home() {
        UNTOLD.store(true, Ordering::Relaxed);
    }
    done
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
        tell_if_untold();
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
fn adopt(engine: &'static Engine) -> bool {
    let word = engine.same_process;
    if raw::may_call() && word.compare_exchange(0, ADOPTING, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        note_home();
        // A retired engine hands nothing out, and this process may be allowed few system calls: what the arena has
        // stays as it is. Where a thread of the parent was about to retire it, this one will.
        if !is_over() && !inside::are_calls_over() {
            engine.space.fork_child();
            DUE.store(engine.is_retired(), Ordering::SeqCst);
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
    isolate::retire();
}

/// Where another thread makes the engine, waits until it has, or has undone what it made of one that was called off.
/// It takes a millisecond, and no signals; one that does not get on is not waited for longer than a second.
pub fn wait_while_made() {
    const WAIT_NS: u64 = 1_000_000_000;
    if !inside::are_calls_over() && STARTER.is_under_way(pid) {
        let start = raw::now_ns();
        while STARTER.is_under_way(pid) && raw::now_ns() - start < WAIT_NS {
            raw::sleep_ns(REST_NS);
        }
    }
}

/// How long a thread rests that waits for another.
const REST_NS: u64 = 50_000;

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
    let same_process = raw::word_wiped_on_fork()?;
    thread::prepare();
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

/// The engine's own system calls once its service has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    /// They may go on.
    GoOn,
    /// None is made that the program would not: it is about to filter them.
    End,
}

/// Serves no new request from now on, gives all that is free back, addresses included, and ends the background
/// thread. What the program has in the arena are ordinary mappings from then on. An engine that has not started never
/// will. A child that shares this memory may ask for it, too, unless it may make few system calls: then nothing is
/// given back.
pub fn retire() {
    if is_over() {
        return;
    }
    let is_filtered = matches!(confined::now(), confined::FILTERED | confined::STRICT);
    if call_off(Calls::GoOn) || is_filtered {
        RETIRED.store(true, Ordering::SeqCst);
        if !is_filtered {
            wait_while_made();
        }
        return;
    }
    confined::set(confined::FREE);
    retire_with(Calls::GoOn);
}

/// Whether all of it was done.
pub fn is_over() -> bool {
    is_retired()
        && !DUE.load(Ordering::Relaxed)
        && (running().is_none() || MANAGED_BYTES.load(Ordering::Relaxed) == 0)
}

/// Something of the arena is to be given back still: its lock was not to be had, perhaps because this was asked for by a
/// handler that interrupted its holder.
static DUE: AtomicBool = AtomicBool::new(false);

fn retire_with(calls: Calls) {
    let mut ending = Ending::new();
    if ending.is_late() {
        return wait_for_end();
    }
    let signals = NoSignals::new();
    // What was interrupted sees to a forked child's engine.
    let engine = running().filter(|engine| engine.is_settled() || !ending.is_nested() && adopt(engine));
    if engine.is_some_and(|engine| !engine.is_retired() && !ending.is_nested()) {
        page::after_fork();
    }
    RETIRED.store(true, Ordering::SeqCst);
    // No call: it is memory, which watchers read.
    engine.inspect(|engine| engine.page.header.plain.store(plain::ENDED, Ordering::Relaxed));
    let _stopped = engine.map(|_| worker::stop());
    if calls == Calls::End {
        running().into_iter().for_each(|engine| engine.space.close());
        if !ending.end_calls() {
            drop(signals);
            return ending.give_way();
        }
    }
    // It may have been started by another thread just now.
    let Some(engine) = engine.or_else(running).filter(|engine| engine.is_settled()) else {
        return DUE.store(calls == Calls::GoOn && running().is_some(), Ordering::SeqCst);
    };
    if MANAGED_BYTES.load(Ordering::Relaxed) != 0 {
        engine.count(Counter::KernelLimited);
    }
    let all = give_all_back(engine, ending.may_wait());
    MANAGED_BYTES.store(0, Ordering::Release);
    // A filter may forbid to do it later.
    DUE.store(calls == Calls::GoOn && !all, Ordering::SeqCst);
}

/// Gives back what is free; whether that was all. Waits for other threads' locks, if it may, as they are held for a moment
/// as a rule.
fn give_all_back(engine: &Engine, may_wait: bool) -> bool {
    const WAIT_NS: u64 = 100_000_000;
    let start = raw::now_ns();
    loop {
        if engine.space.retire() {
            return true;
        }
        if !may_wait || raw::now_ns() - start > WAIT_NS {
            return false;
        }
        raw::sleep_ns(REST_NS);
    }
}

/// Gives back what is due, after this thread has left the engine.
#[inline]
pub fn finish_if_due() {
    if DUE.load(Ordering::Relaxed) {
        finish();
    }
}

#[cold]
fn finish() {
    // Behind a filter the question might end the program.
    let is_home = || inside::are_calls_over() || is_home();
    if !confined::is_apart() && is_home() && DUE.swap(false, Ordering::SeqCst) {
        retire_with(Calls::GoOn);
    }
}

/// Before this process confines itself: the engine retires. A child that shares its parent's memory leaves the engine
/// to the parent, and does without.
pub fn confine(how: u32) {
    let calls = if how == confined::FILTERED { Calls::End } else { Calls::GoOn };
    if !retire_process(calls) {
        confine_child(how);
    }
}

/// The same unless this process shares its parent's memory, which is then told: the engine stays as it is.
pub fn retire_process(calls: Calls) -> bool {
    if calls == Calls::End {
        UNTOLD.store(false, Ordering::Relaxed);
    }
    if is_over() && (calls == Calls::GoOn || running().is_none() || inside::are_calls_over()) {
        wait_for_end();
        return true;
    }
    if confined::is_apart() {
        return false;
    }
    let is_home = is_home();
    match calls {
        Calls::GoOn if is_home && call_off(calls) => {
            RETIRED.store(true, Ordering::SeqCst);
            wait_while_made();
        }
        // A thread that makes the engine, or is about to, ends its calls first.
        _ if is_home => {
            call_off(calls);
            retire_with(calls);
        }
        _ => {}
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
