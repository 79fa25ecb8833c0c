//! Delivery by SIGBUS: the thread that faults resolves the fault itself, in the signal handler.
//!
//! The process has one handler. It is there while there are regions of this kind, or files. The first one installs it,
//! over what is there by then, and the last one that goes puts that back. Other signals go to the handler that was
//! there before. If another part of the program has taken its place meanwhile, that handler may pass signals on to this
//! one. Then this one is not installed again, or both would pass on to each other for ever.
//!
//! A region is found in a table of fixed size without a lock. It stays until no reader of the table can have seen it,
//! and then until no handler resolves a fault of it. Handlers of other regions, which may wait for their backing for
//! long, do not keep it.

use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faultless_base::PAGE;
use faultless_base::sync::{Epoch, Pinned, Table};
use faultless_base::sys::mmu::Rights;
use faultless_base::sys::raw;
use faultless_mm::fault::{Fault, Outcome};

use crate::delivery::served::Served;
use crate::error::Error;
use crate::page;
use crate::process::masked::{self, Masked, change_mask};
use crate::process::owner::OfProcess;

/// Regions of this kind at a time.
const MOST: usize = 4096;

/// One that is served.
struct Entry(Arc<dyn Served>);

impl Entry {
    fn address(&self) -> *const () {
        Arc::as_ptr(&self.0).cast()
    }
}

struct Regions {
    all: Table<AtomicPtr<Entry>>,
    /// Places up to which there may be one: a fault looks at no others.
    used: AtomicUsize,
    epoch: Epoch,
    /// How many there are. Held while the handler comes or goes, with signals held back.
    count: Mutex<usize>,
}

/// That of this process: the threads that read its parent's stayed there, and so did the regions.
static REGIONS: OfProcess<Regions> = OfProcess::new();
/// What SIGBUS did before; null until that is known. It is never freed.
static BEFORE: AtomicPtr<Before> = AtomicPtr::new(null_mut());

/// What SIGBUS did, and what it did before that.
struct Before {
    action: libc::sigaction,
    /// It was to run once, and has.
    has_run: AtomicBool,
    /// It stays where it can be found: a look for memory that is lost counts it as used.
    _last: *mut Before,
}

/// Where the handler is, in this process or in one before it.
static STATE: AtomicU8 = AtomicU8::new(AWAY);
/// Not installed.
const AWAY: u8 = 0;
/// On its way. A thread sees this only in a child that was forked meanwhile: the handler may be there or not.
const CHANGES: u8 = 1;
/// Installed. Another one may have taken its place.
const THERE: u8 = 2;

impl Regions {
    fn new() -> Option<Self> {
        let all = Table::new(MOST, || AtomicPtr::new(null_mut()))?;
        let epoch = Epoch::new(page::places())?;
        Some(Self { all, used: AtomicUsize::new(0), epoch, count: Mutex::new(0) })
    }

    fn count(&self) -> MutexGuard<'_, usize> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has faults of a region resolved by the signal handler.
pub fn serve(served: Arc<dyn Served>) -> Result<(), Error> {
    let regions = REGIONS.try_get(Regions::new).ok_or(Error::NoAddressSpace)?;
    let _masked = Masked::new();
    let mut count = regions.count();
    if *count == 0 {
        install_handler();
    }
    check_handler()?;
    let entry = Box::into_raw(Box::new(Entry(served)));
    let take = |place: &AtomicPtr<Entry>| {
        place.compare_exchange(null_mut(), entry, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    let Some(taken) = regions.all.iter().position(take) else {
        // SAFETY: made above, and no other thread has seen it.
        drop(unsafe { Box::from_raw(entry) });
        return Err(Error::TooManyRegions);
    };
    // Before anything of it can fault.
    regions.used.fetch_max(taken + 1, Ordering::AcqRel);
    *count += 1;
    Ok(())
}

/// Ends that; when it returns no handler uses the region.
pub fn forget(served: &impl Served) {
    let Some(regions) = REGIONS.known() else { return };
    let own = |place: &&AtomicPtr<Entry>| {
        let _pinned = pin(&regions.epoch);
        // SAFETY: an entry in the table outlives each thread that has pinned the epoch before it was taken out.
        let entry = unsafe { place.load(Ordering::Acquire).as_ref() };
        entry.is_some_and(|entry| std::ptr::eq(entry.address(), std::ptr::from_ref(served).cast()))
    };
    let Some(place) = regions.all.iter().find(own) else { return };
    let entry = place.swap(null_mut(), Ordering::AcqRel);
    for epoch in [&regions.epoch, served.handlers()] {
        let retired = epoch.retire();
        while epoch.oldest() <= retired {
            raw::sleep_ns(50_000);
        }
    }
    // SAFETY: made by `serve`, and no thread has it any more.
    drop(unsafe { Box::from_raw(entry) });
    let _masked = Masked::new();
    let mut count = regions.count();
    *count -= 1;
    if *count == 0 {
        remove_handler();
    }
}

/// The number of threads that have an epoch at a time is limited.
fn pin(epoch: &Epoch) -> Pinned<'_> {
    loop {
        if let Some(pinned) = epoch.enter(raw::cpu()) {
            return pinned;
        }
        raw::sleep_ns(50_000);
    }
}

/// Installs the handler for a first region, unless another one took its place before. Any step may be the last one
/// before a fork. So the previous action is known before the handler is there, and each step may be done again.
fn install_handler() {
    let now = installed();
    let is_free = match STATE.load(Ordering::Acquire) {
        AWAY => true,
        CHANGES => before().is_some_and(|before| before.is(&now)),
        // Another handler took its place, and is gone. Nothing is left that could pass signals on.
        _ => matches!(now.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN),
    };
    if !is_ours(&now) && is_free {
        remember(now);
        STATE.store(CHANGES, Ordering::Release);
        // SAFETY: zero bytes are a value of the structure; a handler of the right kind, which calls nothing that a
        // signal handler may not.
        let last = unsafe {
            let mut action: libc::sigaction = zeroed();
            action.sa_sigaction = handle as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) as usize;
            // Whether calls that a signal interrupts go on is for the program's handler to say.
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | now.sa_flags & libc::SA_RESTART;
            // Another handler that faulted in the middle of this would wait for locks of its own thread.
            action.sa_mask = masked::others();
            exchange(&action)
        };
        // The program may have installed another one meanwhile.
        if !is_ours(&last) {
            remember(last);
        }
    }
    STATE.store(THERE, Ordering::Release);
}

/// Puts back what was there before, unless another one took the handler's place. That one may pass signals on to it.
fn remove_handler() {
    let Some(before) = before().filter(|_| is_ours(&installed())) else { return };
    STATE.store(CHANGES, Ordering::Release);
    let mut action = before.action;
    if before.has_run.load(Ordering::Relaxed) {
        action.sa_sigaction = libc::SIG_DFL;
    }
    let last = exchange(&action);
    if is_ours(&last) {
        STATE.store(AWAY, Ordering::Release);
    } else {
        // It was installed meanwhile.
        exchange(&last);
        STATE.store(THERE, Ordering::Release);
    }
}

/// Sets what SIGBUS does; what it did.
fn exchange(action: &libc::sigaction) -> libc::sigaction {
    // SAFETY: zero bytes are a value; the action is one that was there before, or this module's.
    unsafe {
        let mut last: libc::sigaction = zeroed();
        libc::sigaction(libc::SIGBUS, action, &mut last);
        last
    }
}

/// What SIGBUS does now.
fn installed() -> libc::sigaction {
    // SAFETY: zero bytes are a value; the call only reads the action.
    unsafe {
        let mut now: libc::sigaction = zeroed();
        libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut now);
        now
    }
}

fn is_ours(action: &libc::sigaction) -> bool {
    action.sa_sigaction == handle as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) as usize
}

/// What SIGBUS did before, if that is known.
fn before() -> Option<&'static Before> {
    // SAFETY: null, or never freed.
    unsafe { BEFORE.load(Ordering::Acquire).as_ref() }
}

/// The first 64 signals of a set, which are all that there are.
fn mask(action: &libc::sigaction) -> u64 {
    // SAFETY: the C library's sets have room for more.
    unsafe { (&raw const action.sa_mask).cast::<u64>().read() }
}

impl Before {
    /// Whether it is this action, which has not run if it is to run once.
    fn is(&self, action: &libc::sigaction) -> bool {
        self.action.sa_sigaction == action.sa_sigaction
            && self.action.sa_flags == action.sa_flags
            && mask(&self.action) == mask(action)
            && !self.has_run.load(Ordering::Relaxed)
    }

    /// The handler, until it has run if it was to run once.
    fn handler(&self) -> libc::sighandler_t {
        let runs_once = self.action.sa_flags & libc::SA_RESETHAND != 0;
        let has_run = runs_once && self.has_run.swap(true, Ordering::Relaxed);
        if has_run { libc::SIG_DFL } else { self.action.sa_sigaction }
    }
}

/// Signals that are no region's go there. What was known before is not freed: a handler may have it. So the same
/// action is not remembered twice: regions come and go without end.
fn remember(action: libc::sigaction) {
    if before().is_some_and(|before| before.is(&action)) {
        return;
    }
    let new = Box::new(Before { action, has_run: AtomicBool::new(false), _last: BEFORE.load(Ordering::Acquire) });
    // With the count held, no other thread of this process stores here.
    BEFORE.store(Box::into_raw(new), Ordering::Release);
}

/// Whether SIGBUS still comes here.
pub fn check_handler() -> Result<(), Error> {
    if is_ours(&installed()) { Ok(()) } else { Err(Error::SigbusTaken) }
}

extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands over a valid structure. It names an address where an access was the cause.
    let (addr, code) = unsafe { ((*info).si_addr() as usize, (*info).si_code) };
    // SAFETY: this thread's own; a backing or a message may change it.
    let errno = unsafe { &mut *libc::__errno_location() };
    let before = *errno;
    // Another code is that of memory that is broken, for good.
    let resolved = code == libc::BUS_ADRERR && resolve(addr, access(context));
    *errno = before;
    if !resolved {
        pass_on(signal, info, context);
    }
}

/// What the access was for: [`Rights::Read`] too where the processor does not say.
fn access(context: *mut libc::c_void) -> Rights {
    #[cfg(target_arch = "x86_64")]
    {
        /// The bit of the error code of a page fault that stands for a write.
        const WRITE: i64 = 1 << 1;
        let context = context.cast::<libc::ucontext_t>();
        // SAFETY: what the kernel hands over with a signal.
        let error = unsafe { (*context).uc_mcontext.gregs[libc::REG_ERR as usize] };
        if error & WRITE != 0 { Rights::Write } else { Rights::Read }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = context;
        Rights::Read
    }
}

/// Whether the access may be made again.
fn resolve(addr: usize, wants: Rights) -> bool {
    // The stack tells threads apart.
    let (hint, cpu) = ((&raw const addr as usize) >> 12, raw::cpu());
    let Some((served, _pinned)) = find(addr, cpu) else { return false };
    if served.is_read_here() {
        // It would wait for itself, or read for ever.
        return false;
    }
    match served.resolve(Fault { addr, wants, hint, cpu }) {
        Outcome::Installed(_) => true,
        // Mostly a SIGSEGV at the next try.
        Outcome::Forbidden => !served.is_sigbus_of_others(addr & !(PAGE - 1), wants),
        Outcome::Failed(_) | Outcome::Lost(_) => false,
    }
}

/// What is around `addr`, which stays until it is let go.
fn find(addr: usize, cpu: usize) -> Option<(&'static dyn Served, Pinned<'static>)> {
    let all = REGIONS.known()?;
    loop {
        if let Some(_pinned) = all.epoch.enter(cpu) {
            let used = &all.all[..all.used.load(Ordering::Acquire)];
            // SAFETY: a region in the table outlives each thread that has pinned the epoch before it was taken out.
            let entries = used.iter().filter_map(|place| unsafe { place.load(Ordering::Acquire).as_ref() });
            let mut served = entries.map(|entry: &'static Entry| &*entry.0);
            let served = served.find(|served| served.span().contains(addr) && served.owner().is_here())?;
            if let Some(pinned) = served.handlers().enter(cpu) {
                return Some((served, pinned));
            }
        }
        // The number of handlers at a time is limited.
        raw::sleep_ns(50_000);
    }
}

/// The signal mask of the interrupted code.
fn interrupted_mask(context: *mut libc::c_void) -> u64 {
    // SAFETY: what the kernel hands over with a signal. Its masks have 64 bits, the C library's have room for more.
    unsafe { (&raw const (*context.cast::<libc::ucontext_t>()).uc_sigmask).cast::<u64>().read() }
}

/// Blocks what the kernel would block while the handler that was there before runs. At its return the kernel restores
/// what was before.
fn mask_as_for(before: &libc::sigaction, signal: i32, context: *mut libc::c_void) {
    let own = mask(before);
    let itself = if before.sa_flags & libc::SA_NODEFER == 0 { 1 << (signal - 1) } else { 0 };
    change_mask(libc::SIG_SETMASK, interrupted_mask(context) | own | itself, null_mut());
}

/// Does what would have been done without regions.
fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // Known once this handler is installed.
    let Some(known) = before() else { return };
    let before = &known.action;
    match known.handler() {
        // SAFETY: what the kernel hands over with a signal.
        libc::SIG_IGN if unsafe { (*info).si_code } <= 0 => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: the default action, which ends the process when the access is made again, or the signal sent.
            unsafe {
                libc::signal(signal, libc::SIG_DFL);
                if (*info).si_code <= 0 {
                    libc::raise(signal);
                }
            }
        }
        // SAFETY: a handler that the program had installed for this signal, called as its flags say.
        handler => unsafe {
            mask_as_for(before, signal, context);
            if before.sa_flags & libc::SA_SIGINFO != 0 {
                let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                    std::mem::transmute(handler);
                handler(signal, info, context);
            } else {
                let handler: extern "C" fn(i32) = std::mem::transmute(handler);
                handler(signal);
            }
        },
    }
}
