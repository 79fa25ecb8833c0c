//! Faults where they are awkward: in signal handlers, on small stacks, beside the program's own handlers.

mod built;

use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fs::File, os::fd::AsRawFd};

use built::built;
use faultless::region::{Advice, Delivery, Error, Region, Rights};
use faultless_testkit::limit::limit;

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;

fn region(delivery: Delivery) -> Option<Region> {
    built(Region::builder(8 * MIB).delivery(delivery).windows(PAGE, PAGE))
}

/// What the handlers touch: the address of the next page, and how many there were.
static NEXT: AtomicPtr<u8> = AtomicPtr::new(null_mut());
static TOUCHED: AtomicUsize = AtomicUsize::new(0);
/// The tests share what the handlers use.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    limit();
    turn
}

extern "C" fn touch(_: i32) {
    let page = NEXT.load(Ordering::SeqCst);
    if !page.is_null() {
        // SAFETY: the tests give memory that is mapped for writing.
        unsafe { page.write_volatile(page.read_volatile().wrapping_add(1)) };
        NEXT.store(page.wrapping_add(PAGE), Ordering::SeqCst);
        TOUCHED.fetch_add(1, Ordering::SeqCst);
    }
}

fn install(signal: i32, flags: i32) {
    // SAFETY: zero bytes are a value; a handler of this program.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = touch as extern "C" fn(i32) as *const () as usize;
        action.sa_flags = flags;
        libc::sigaction(signal, &action, null_mut());
    }
}

/// Gives this thread an alternate stack that has room for two signals.
fn set_alternate_stack() {
    let stack = Box::leak(vec![0u8; 32 << 10].into_boxed_slice());
    let stack = libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: stack.len() };
    // SAFETY: memory that is never freed.
    assert_eq!(unsafe { libc::sigaltstack(&stack, null_mut()) }, 0);
}

#[test]
fn a_fault_inside_a_signal_handler_is_served() {
    let _turn = turn();
    set_alternate_stack();
    for (delivery, flags) in [(Delivery::Thread, 0), (Delivery::Signal, 0), (Delivery::Signal, libc::SA_ONSTACK)] {
        let Some(region) = region(delivery) else { continue };
        install(libc::SIGUSR1, flags);
        NEXT.store(region.as_ptr(), Ordering::SeqCst);
        let before = TOUCHED.load(Ordering::SeqCst);
        for _ in 0..100 {
            // SAFETY: the handler above, in this thread.
            unsafe { libc::raise(libc::SIGUSR1) };
        }
        NEXT.store(null_mut(), Ordering::SeqCst);
        assert_eq!(TOUCHED.load(Ordering::SeqCst) - before, 100);
        // SAFETY: mapped, and not written any more.
        assert!((0..100).all(|i| unsafe { region.as_ptr().add(i * PAGE).read() } == 1));
    }
}

/// A handler that interrupts a change of the region it touches waits for no lock of its own thread.
#[test]
fn a_handler_that_interrupts_a_change_is_served() {
    let _turn = turn();
    let Some(region) = region(Delivery::Signal) else { return };
    install(libc::SIGUSR2, 0);
    let before = TOUCHED.load(Ordering::SeqCst);
    // SAFETY: the handler above.
    let this = unsafe { libc::pthread_self() };
    // Once more, if all of them came before the first change.
    while TOUCHED.load(Ordering::SeqCst) == before {
        std::thread::scope(|scope| {
            let sender = scope.spawn(move || {
                for _ in 0..1000 {
                    // SAFETY: the thread lives as long as this one.
                    unsafe { libc::pthread_kill(this, libc::SIGUSR2) };
                    std::thread::yield_now();
                }
            });
            while !sender.is_finished() {
                NEXT.store(region.as_ptr(), Ordering::SeqCst);
                region.advise(0..MIB, Advice::DontNeed).unwrap();
                region.unmap(6 * MIB..8 * MIB).unwrap();
                region.map(6 * MIB..8 * MIB, Rights::Write).unwrap();
                region.populate(6 * MIB..6 * MIB + 64 * PAGE).unwrap();
            }
        });
        NEXT.store(null_mut(), Ordering::SeqCst);
    }
}

#[test]
fn a_thread_with_a_small_stack_is_served() {
    let _turn = turn();
    for delivery in [Delivery::Thread, Delivery::Signal] {
        let Some(region) = region(delivery) else { continue };
        let at = region.as_ptr() as usize;
        // A thread of the C library's, which has no alternate stack, with nearly the least it allows.
        extern "C" fn work(at: *mut libc::c_void) -> *mut libc::c_void {
            for page in 0..64 {
                // SAFETY: mapped memory.
                unsafe { at.cast::<u8>().add(page * PAGE).write_volatile(1) };
            }
            null_mut()
        }
        // SAFETY: zero bytes are a value for both; the thread is joined.
        unsafe {
            let (mut attributes, mut thread): (libc::pthread_attr_t, libc::pthread_t) = (zeroed(), zeroed());
            libc::pthread_attr_init(&mut attributes);
            libc::pthread_attr_setstacksize(&mut attributes, libc::PTHREAD_STACK_MIN.max(16 << 10));
            assert_eq!(libc::pthread_create(&mut thread, &attributes, work, at as *mut _), 0);
            libc::pthread_join(thread, null_mut());
        }
        // SAFETY: mapped memory.
        assert!((0..64).all(|page| unsafe { *region.as_ptr().add(page * PAGE) } == 1));
    }
}

/// A SIGBUS that is no region's goes where it went before.
#[test]
fn the_program_s_own_sigbus_is_its_own() {
    static JUMPED: AtomicUsize = AtomicUsize::new(0);
    static MAPPED: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn own(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the kernel's structure; the page is this test's own and gets memory instead.
        unsafe {
            let at = (*info).si_addr() as usize & !(PAGE - 1);
            assert_eq!(at, MAPPED.load(Ordering::SeqCst));
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            libc::mmap(at as *mut _, PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        }
        JUMPED.fetch_add(1, Ordering::SeqCst);
    }
    // Before a first region: no test has one now.
    let first = Region::builder(MIB).delivery(Delivery::Direct).build().unwrap().check_thread();
    assert_eq!(first, Ok(()));
    let _turn = turn();
    // SAFETY: zero bytes are values; the old action comes back below.
    let before = unsafe {
        let (mut action, mut before): (libc::sigaction, libc::sigaction) = (zeroed(), zeroed());
        action.sa_sigaction =
            own as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGBUS, &action, &mut before);
        before
    };
    match Region::builder(MIB).delivery(Delivery::Signal).build() {
        // The handler was there first: the region's comes before it, and passes on.
        Ok(mut region) => region.as_mut_slice().unwrap()[5] = 1,
        Err(Error::NoUserfaultfd(_)) => {}
        Err(error) => panic!("{error}"),
    }
    let file: File = tempfile::tempfile().unwrap();
    // SAFETY: a mapping of an empty file: an access is a SIGBUS.
    unsafe {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let at = libc::mmap(null_mut(), PAGE, prot, libc::MAP_SHARED, file.as_raw_fd(), 0);
        MAPPED.store(at as usize, Ordering::SeqCst);
        assert_eq!(at.cast::<u8>().read_volatile(), 0);
        let mut now = zeroed();
        libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut now);
        let is_own = now.sa_sigaction
            == own as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) as *const () as usize;
        if is_own {
            libc::sigaction(libc::SIGBUS, &before, null_mut());
        }
    }
    assert_eq!(JUMPED.load(Ordering::SeqCst), 1);
}

#[test]
fn a_thread_that_blocks_sigbus_is_refused() {
    let _turn = turn();
    let Some(mut region) = region(Delivery::Signal) else { return };
    let (end, before) = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let before = region.check_thread();
            // SAFETY: this thread's mask alone.
            unsafe {
                let mut set = zeroed();
                libc::sigemptyset(&mut set);
                libc::sigaddset(&mut set, libc::SIGBUS);
                libc::pthread_sigmask(libc::SIG_BLOCK, &set, null_mut());
            }
            (region.as_mut_slice().err(), before)
        });
        thread.join().unwrap()
    });
    assert_eq!(before, Ok(()));
    assert_eq!(end, Some(Error::SigbusBlocked));
}
