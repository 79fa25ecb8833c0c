//! What each thread does in the engine, and when the engine's system calls are over.
//!
//! A signal handler may interrupt the engine and call mmap or malloc. A word of each thread tells it to go to the kernel
//! instead of waiting for a lock that its own thread holds. It is a thread-local variable of the initial-exec
//! model, because the other models may allocate.
//!
//! A program that filters its system calls must not be ended for one of ours. So an operation makes all of its
//! system calls or none. From the first one on it is counted, and takes no signals until its end. A thread that
//! sets a filter says that they are over ([`end_calls`]), waits until no operation is counted, and only then makes
//! the call. An operation that had made none by then is refused all of them, in this thread, which a handler
//! interrupted, and in others. It ends as where the kernel refuses. One that begins later knows that the engine
//! has retired, and makes only such calls as the program would.
//!
//! Most operations make no system call, and pay nothing.

use core::sync::atomic::{AtomicBool, AtomicIsize, Ordering, compiler_fence};

use faultless_base::sys::raw::{self, NoSignals};

use crate::kernel::thread_pointer::{Pointer, Variables, variables};
use crate::runtime::variable::{below_pointer, thread_variable};
use crate::runtime::{confined, engine, retire};

thread_variable!(variable, Thread, "faultless_inside", 16);

/// The thread's variable.
#[repr(C)]
struct Thread {
    state: u32,
    /// The process of which it is the first thread; below 0: of which it is another one; 0: not known.
    first_in: i32,
    /// The signals that it held back before, while it is [`COUNTED`].
    mask: u64,
}

/// Values of `state`. The thread is not in the engine.
const OUTSIDE: u32 = 0;
/// It has made no system call yet.
const EARLY: u32 = 1;
/// It may make calls, and takes no signals.
const COUNTED: u32 = 2;
/// The same, and its caller holds the signals back.
const HELD: u32 = 5;
/// It makes no calls any more.
const REFUSED: u32 = 3;
/// It began after the end of calls, or brings that about.
const FREE: u32 = 4;
/// It is that of a child of vfork, which does without its parent's engine.
pub const CHILD: u32 = 6;

/// Threads that are [`COUNTED`], on a line of its own.
#[repr(align(128))]
struct Counted(AtomicIsize);

static THREADS: Counted = Counted(AtomicIsize::new(0));
static OVER: AtomicBool = AtomicBool::new(false);

/// Whether the calling thread has thread-local variables.
#[inline]
pub fn has_variables() -> bool {
    match variables() {
        Variables::Some => true,
        Variables::None => false,
        Variables::Unknown(pointer) => look_at(pointer),
    }
}

/// The first time that a thread comes here with this pointer. Behind a filter, and where nothing will be served, no call is
/// made for it.
#[cold]
#[inline(never)]
fn look_at(pointer: Pointer) -> bool {
    let Some(mask) = engine::may_run().then(count_in).flatten() else { return pointer.follow() };
    let has = pointer.look();
    count_out(mask);
    has
}

/// How far below a thread's pointer the variables lie that it uses in the engine, as the calling thread shows. In front of
/// them are those of the program itself, however large.
pub fn variables_below() -> usize {
    if !has_variables() {
        return 0;
    }
    // SAFETY: the address of the thread's error number.
    let error = unsafe { libc::__errno_location() };
    let places = [variable() as usize, confined::place(), error as usize];
    places.map(below_pointer).into_iter().max().unwrap_or(0)
}

/// The thread's variable; `None`: it has no such variables.
#[inline]
fn thread() -> Option<*mut Thread> {
    has_variables().then(variable)
}

/// A thread without the variable never enters, and its calls are its own, as those of a handler that interrupted the
/// engine.
fn state() -> u32 {
    // SAFETY: the variable is this thread's own; a signal handler leaves it as it found it, or refused.
    thread().map_or(FREE, |thread| unsafe { (&raw const (*thread).state).read_volatile() })
}

/// Where a child of vfork is marked as a [`CHILD`]; `None`: nowhere, because this thread does without the engine already.
pub fn state_word() -> Option<*mut u32> {
    // SAFETY: an address within the variable.
    thread().filter(|_| state() == OUTSIDE).map(|thread| unsafe { &raw mut (*thread).state })
}

/// As [`state`], where a mark of a child that has ended counts no more. A signal handler may come in its parent before the
/// mark is taken back, and may leave by a jump: then it never is.
fn state_here() -> u32 {
    match state() {
        CHILD if is_parent_again() => {
            set_state(OUTSIDE);
            OUTSIDE
        }
        state => state,
    }
}

#[cold]
fn is_parent_again() -> bool {
    // A filter may forbid the question.
    !are_calls_over() && confined::now() == confined::FREE && engine::is_home()
}

fn set_state(state: u32) {
    if let Some(thread) = thread() {
        // SAFETY: as above.
        unsafe { (&raw mut (*thread).state).write_volatile(state) };
    }
}

/// Counts this thread. False: calls are over.
fn count() -> bool {
    THREADS.0.fetch_add(1, Ordering::SeqCst);
    let goes_on = !OVER.load(Ordering::SeqCst);
    if !goes_on {
        THREADS.0.fetch_sub(1, Ordering::SeqCst);
    }
    goes_on
}

/// Counts this thread and holds signals back: those that were held back before. `None`: calls are over.
fn count_in() -> Option<u64> {
    if OVER.load(Ordering::SeqCst) {
        return None;
    }
    // First, so that no handler of this thread waits for it.
    let mask = raw::hold_signals_back(raw::HELD_BACK);
    if !count() {
        raw::set_signal_mask(mask);
        return None;
    }
    Some(mask)
}

/// The same unless this process shares its parent's memory: it may be killed, and would be counted for ever.
fn count_in_at_home() -> Option<u64> {
    let mask = count_in()?;
    let is_home = !engine::is_shared();
    if !is_home {
        count_out(mask);
    }
    is_home.then_some(mask)
}

fn count_out(mask: u64) {
    THREADS.0.fetch_sub(1, Ordering::SeqCst);
    raw::set_signal_mask(mask);
}

/// Whether this thread is the first one of the process `home`. Asks the kernel once.
pub fn is_first_thread(home: i32) -> bool {
    // SAFETY: this thread's own variable.
    let Some(first_in) = thread().map(|thread| unsafe { &mut (*thread).first_in }) else {
        return raw::thread_number() as i32 == home;
    };
    if first_in.abs() != home {
        *first_in = match raw::thread_number() as i32 {
            0 => 0,
            number => {
                if number == home {
                    home
                } else {
                    -home
                }
            }
        };
    }
    *first_in == home
}

/// Before a system call of the engine's: whether this thread may make it. The background thread is outside, and ends before.
pub fn may_call() -> bool {
    match state() {
        EARLY => first_call(),
        state => state != REFUSED,
    }
}

fn keep_mask(mask: u64) {
    // SAFETY: this thread's own variable, which it has: it is inside, or about to be.
    unsafe { (*variable()).mask = mask };
}

#[cold]
fn first_call() -> bool {
    let mask = count_in_at_home();
    if let Some(mask) = mask {
        keep_mask(mask);
    }
    set_state(if mask.is_some() { COUNTED } else { REFUSED });
    mask.is_some()
}

/// This thread is inside the engine until this is dropped.
pub struct Inside(());

impl Inside {
    /// Enters; `None` when this thread is inside already.
    #[inline]
    pub fn enter() -> Option<Self> {
        Self::enter_if(|| true)
    }

    /// The same unless this is a child that has to do without its parent's engine.
    #[inline]
    pub fn enter_together() -> Option<Self> {
        Self::enter_if(|| !confined::is_thread_apart())
    }

    #[inline]
    fn enter_if(may: impl FnOnce() -> bool) -> Option<Self> {
        let thread = thread().filter(|_| may())?;
        // SAFETY: this thread's own variable; a signal handler leaves it as it found it, or refused.
        let state = unsafe { &raw mut (*thread).state };
        let next = if OVER.load(Ordering::SeqCst) { FREE } else { EARLY };
        // SAFETY: as above.
        unsafe {
            if state.read_volatile() != OUTSIDE && state_here() != OUTSIDE {
                return None;
            }
            state.write_volatile(next);
        }
        Some(Self(()))
    }

    /// Enters as for a system call; `None` also when these are over. No signal is taken before this thread is inside.
    pub fn enter_call() -> Option<Self> {
        if state_here() != OUTSIDE {
            return None;
        }
        keep_mask(count_in_at_home()?);
        set_state(COUNTED);
        Some(Self(()))
    }

    /// The same where the caller holds all signals back until this is dropped.
    pub fn enter_held(_held: &NoSignals) -> Option<Self> {
        if state_here() != OUTSIDE || !count() {
            return None;
        }
        if engine::is_shared() {
            THREADS.0.fetch_sub(1, Ordering::SeqCst);
            return None;
        }
        set_state(HELD);
        Some(Self(()))
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        let thread = variable();
        // SAFETY: this thread's own variable, which it has: it was inside. A signal handler leaves it as it found it, or
        // refused.
        let (was, mask) = unsafe { ((&raw const (*thread).state).read_volatile(), (*thread).mask) };
        // Left before signals are taken again. SAFETY: as above.
        unsafe { (&raw mut (*thread).state).write_volatile(OUTSIDE) };
        match was {
            COUNTED => count_out(mask),
            HELD => _ = THREADS.0.fetch_sub(1, Ordering::SeqCst),
            _ => {}
        }
        // A handler that came before found the thread inside.
        compiler_fence(Ordering::SeqCst);
        retire::finish_if_due();
    }
}

/// Whether this is a signal handler that interrupted the engine, or what it called.
pub fn has_interrupted() -> bool {
    state() == EARLY
}

/// Calls `f`, which does something for the program beside the engine, perhaps in a handler that interrupted the engine:
/// its calls are not those of the operation that was interrupted.
pub fn aside<R>(f: impl FnOnce() -> R) -> R {
    let before = state();
    if before != EARLY {
        return f();
    }
    set_state(FREE);
    let result = f();
    set_state(before);
    result
}

/// A thread brings the end of calls about, or has.
static ENDER: AtomicBool = AtomicBool::new(false);
/// It has.
static ENDED: AtomicBool = AtomicBool::new(false);

/// How long one thread waits for another, which may be stopped.
pub(super) const WAIT_NS: u64 = 1_000_000_000;
/// How long it rests meanwhile, each time.
pub(super) const REST_NS: u64 = 50_000;

/// This thread ends the engine's service until this is dropped. A handler may have interrupted the engine.
pub struct Ending {
    before: u32,
    counted: bool,
    ender: bool,
}

impl Ending {
    /// It may make any call meanwhile, and is counted.
    pub fn new() -> Self {
        let before = state_here();
        set_state(FREE);
        Self { before, counted: count(), ender: false }
    }

    /// Whether another thread had ended all calls before.
    pub fn is_late(&self) -> bool {
        !self.counted
    }

    /// Whether it interrupted the engine.
    pub fn is_nested(&self) -> bool {
        self.before != OUTSIDE
    }

    /// Whether another thread's lock may be waited for: this one holds none. A child of vfork is outside, too.
    pub fn may_wait(&self) -> bool {
        matches!(self.before, OUTSIDE | CHILD)
    }

    /// The engine makes no more calls than the program would from now on, and none is under way in other threads, unless
    /// one of them does not get on. False: another thread brings that about. This one is to [`give_way`](Self::give_way).
    pub fn end_calls(&mut self) -> bool {
        OVER.store(true, Ordering::SeqCst);
        if self.before == EARLY {
            self.before = REFUSED;
        }
        self.ender = !ENDER.swap(true, Ordering::SeqCst);
        if self.ender {
            let own = isize::from(self.counted) + isize::from(matches!(self.before, COUNTED | HELD));
            let start = raw::now_ns();
            while THREADS.0.load(Ordering::SeqCst) > own && raw::now_ns() - start < WAIT_NS {
                raw::sleep_ns(REST_NS);
            }
        }
        self.ender
    }

    /// Makes no more calls, and waits for the thread that ends them.
    pub fn give_way(mut self) {
        self.count_out();
        wait_for_end();
    }

    fn count_out(&mut self) {
        if core::mem::take(&mut self.counted) {
            THREADS.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.count_out();
        if self.ender {
            ENDED.store(true, Ordering::SeqCst);
        }
        set_state(self.before);
    }
}

/// Where another thread ends all calls: until it has. Without a system call, which that thread's filter may forbid.
pub fn wait_for_end() {
    if !are_calls_over() || ENDED.load(Ordering::SeqCst) {
        return;
    }
    let start = raw::now_ns();
    while !ENDED.load(Ordering::SeqCst) && raw::now_ns() - start < WAIT_NS {
        core::hint::spin_loop();
    }
}

/// Whether calls are over.
pub fn are_calls_over() -> bool {
    OVER.load(Ordering::SeqCst)
}

/// A child of vfork has forked: this one has memory of its own.
pub fn leave_vfork() {
    if state() == CHILD {
        set_state(OUTSIDE);
    }
}

/// In a forked child: the others are not here.
pub fn forget() {
    THREADS.0.store(matches!(state(), COUNTED | HELD) as isize, Ordering::SeqCst);
    leave_vfork();
    if ENDER.load(Ordering::SeqCst) {
        ENDED.store(true, Ordering::SeqCst);
    }
}
