//! Faults as signals: SIGBUS, resolved by the thread that met it.

use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use faultless_base::Span;
use faultless_base::sys::uffd::Uffd;

use super::area::serve;

/// What the handler serves: a descriptor that outlives the guard, and the range. Null: nothing.
static UFFD: AtomicPtr<Uffd> = AtomicPtr::new(null_mut());
static START: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);
/// Signals have one handler in a process: one guard at a time.
static TURN: Mutex<()> = Mutex::new(());

extern "C" fn handle(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel hands over a valid structure, of a fault; the descriptor lives while it is not null. System
    // calls alone, which are allowed here.
    unsafe {
        let address = (*info).si_addr() as usize;
        let span = Span { start: START.load(Ordering::Acquire), end: END.load(Ordering::Acquire) };
        match UFFD.load(Ordering::Acquire).as_ref() {
            Some(uffd) if span.contains(address) => {
                if !serve(uffd, address) {
                    // The kernel serves from here on; the access must not come back for ever.
                    let _ = uffd.unregister(span);
                }
            }
            // Another fault's: the program dies of it at the next try.
            _ => drop(libc::signal(libc::SIGBUS, libc::SIG_DFL)),
        }
    }
}

/// Runs `work` while SIGBUS inside `span` is resolved through `uffd`.
pub fn serving(uffd: &Uffd, span: Span, work: impl FnOnce()) {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    START.store(span.start, Ordering::Release);
    END.store(span.end, Ordering::Release);
    UFFD.store(std::ptr::from_ref(uffd).cast_mut(), Ordering::Release);
    // SAFETY: a handler of the right kind; zero bytes are values of the structures; the old action is put back.
    unsafe {
        let (mut action, mut before): (libc::sigaction, libc::sigaction) = (zeroed(), zeroed());
        action.sa_sigaction = handle as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGBUS, &action, &mut before);
        work();
        libc::sigaction(libc::SIGBUS, &before, null_mut());
    }
    UFFD.store(null_mut(), Ordering::Release);
}
