//! Delivery by SIGBUS: the thread that faults resolves the fault itself, in the signal handler.
//!
//! The process has one handler, installed with its first region of this kind. Other signals go to the handler that
//! was there before. A region is found in a table of fixed size without a lock. It stays until no reader of the table
//! can have seen it, and then until no handler resolves a fault of it. Handlers of other regions, which may wait for
//! their backing for long, do not keep it.

use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use faultless_base::PAGE;
use faultless_base::sync::{Epoch, Pinned, Table};
use faultless_base::sys::mmu::Rights;
use faultless_base::sys::raw;
use faultless_mm::fault::{Fault, Outcome};

use crate::error::Error;
use crate::page;
use crate::process::masked::{self, change_mask};
use crate::process::owner::OfProcess;
use crate::shared::Shared;

/// Regions of this kind at a time.
const MOST: usize = 4096;

struct Regions {
    all: Table<AtomicPtr<Shared>>,
    /// Places up to which there may be one: a fault looks at no others.
    used: AtomicUsize,
    epoch: Epoch,
}

/// That of this process: the threads that read its parent's stayed there, and so did the regions.
static REGIONS: OfProcess<Regions> = OfProcess::new();
/// What SIGBUS did before; null until that is known. It is never freed.
static BEFORE: AtomicPtr<Before> = AtomicPtr::new(null_mut());

/// What SIGBUS did, and what it did before that.
struct Before {
    action: libc::sigaction,
    /// It stays where it can be found: a look for memory that is lost counts it as used.
    last: *mut Before,
}

/// The handler was installed, in this process or in one before it.
static IS_INSTALLED: AtomicBool = AtomicBool::new(false);

impl Regions {
    fn new() -> Option<Self> {
        let all = Table::new(MOST, || AtomicPtr::new(null_mut()))?;
        Some(Self { all, used: AtomicUsize::new(0), epoch: Epoch::new(page::places())? })
    }
}

/// Has faults of a region resolved by the signal handler.
pub fn serve(shared: &Arc<Shared>) -> Result<(), Error> {
    let regions = REGIONS.try_get(Regions::new).ok_or(Error::NoAddressSpace)?;
    install_handler();
    check_handler()?;
    let region = Arc::as_ptr(shared).cast_mut();
    let take = |place: &AtomicPtr<Shared>| {
        place.compare_exchange(null_mut(), region, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    let taken = regions.all.iter().position(take).ok_or(Error::TooManyRegions)?;
    // Before anything of it can fault.
    regions.used.fetch_max(taken + 1, Ordering::AcqRel);
    Ok(())
}

/// Ends that; when it returns no handler uses the region.
pub fn forget(shared: &Arc<Shared>) {
    let own = |place: &&AtomicPtr<Shared>| std::ptr::eq(place.load(Ordering::Relaxed), Arc::as_ptr(shared));
    let Some(regions) = REGIONS.known() else { return };
    let Some(place) = regions.all.iter().find(own) else { return };
    place.store(null_mut(), Ordering::Release);
    for epoch in [&regions.epoch, &shared.handlers] {
        let retired = epoch.retire();
        while epoch.oldest() <= retired {
            raw::sleep_ns(50_000);
        }
    }
}

/// Installs the handler, once: one that the program installs later stays. Any step may be the last one before a fork,
/// and several threads may come at a time. So the previous action is known before the handler is there, and each step
/// may be done again.
fn install_handler() {
    if IS_INSTALLED.load(Ordering::Acquire) {
        return;
    }
    let before = installed();
    if !is_ours(&before) {
        remember(before);
        // SAFETY: zero bytes are a value of the structure; a handler of the right kind, which calls nothing that a
        // signal handler may not.
        let before = unsafe {
            let (mut action, mut last): (libc::sigaction, libc::sigaction) = (zeroed(), zeroed());
            action.sa_sigaction = handle as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) as usize;
            // Whether calls that a signal interrupts go on is for the program's handler to say.
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | before.sa_flags & libc::SA_RESTART;
            // Another handler that faulted in the middle of this would wait for locks of its own thread.
            action.sa_mask = masked::others();
            libc::sigaction(libc::SIGBUS, &action, &mut last);
            last
        };
        // The program may have installed another one meanwhile.
        if !is_ours(&before) {
            remember(before);
        }
    }
    IS_INSTALLED.store(true, Ordering::Release);
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

/// Signals that are no region's go there. What was known before is not freed: a handler may have it.
fn remember(before: libc::sigaction) {
    let new = Box::into_raw(Box::new(Before { action: before, last: BEFORE.load(Ordering::Acquire) }));
    loop {
        // SAFETY: no other thread has it yet.
        let last = unsafe { (*new).last };
        match BEFORE.compare_exchange(last, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return,
            // SAFETY: the same.
            Err(now) => unsafe { (*new).last = now },
        }
    }
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
    let Some((shared, _pinned)) = find(addr, cpu) else { return false };
    if shared.memory.backing().is_read_here() {
        // It would wait for itself, or read for ever.
        return false;
    }
    match shared.resolve(Fault { addr, wants, hint, cpu }) {
        Outcome::Installed(_) => true,
        // Mostly a SIGSEGV at the next try.
        Outcome::Forbidden => !shared.memory.is_sigbus_of_others(addr & !(PAGE - 1), wants),
        Outcome::Failed(_) | Outcome::Lost(_) => false,
    }
}

/// The region around `addr`, which stays until it is let go.
fn find(addr: usize, cpu: usize) -> Option<(&'static Shared, Pinned<'static>)> {
    let all = REGIONS.known()?;
    loop {
        if let Some(_pinned) = all.epoch.enter(cpu) {
            let used = &all.all[..all.used.load(Ordering::Acquire)];
            // SAFETY: a region in the table outlives each thread that has pinned the epoch before it was taken out.
            let regions = used.iter().filter_map(|place| unsafe { place.load(Ordering::Acquire).as_ref() });
            let around = |shared: &&Shared| shared.memory.span().contains(addr) && shared.owner.is_here();
            let shared: &'static Shared = regions.into_iter().find(around)?;
            if let Some(pinned) = shared.handlers.enter(cpu) {
                return Some((shared, pinned));
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
    // SAFETY: the first 64 signals of a set, which are all that there are.
    let own = unsafe { (&raw const before.sa_mask).cast::<u64>().read() };
    let itself = if before.sa_flags & libc::SA_NODEFER == 0 { 1 << (signal - 1) } else { 0 };
    change_mask(libc::SIG_SETMASK, interrupted_mask(context) | own | itself, null_mut());
}

/// The handler that was there before, until it has run if it was to run once.
fn handler_before(before: &libc::sigaction) -> libc::sighandler_t {
    static HAS_RUN: AtomicBool = AtomicBool::new(false);
    let runs_once = before.sa_flags & libc::SA_RESETHAND != 0;
    if runs_once && HAS_RUN.swap(true, Ordering::Relaxed) { libc::SIG_DFL } else { before.sa_sigaction }
}

/// Does what would have been done without regions.
fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: null, or never freed; never null once this handler is installed.
    let Some(Before { action: before, .. }) = (unsafe { BEFORE.load(Ordering::Acquire).as_ref() }) else { return };
    match handler_before(before) {
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
