//! The program's own handler of SIGBUS, which was there before a first region: it runs as if there were none.

mod apart;
mod built;

use std::fs::File;
use std::mem::zeroed;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

use apart::{apart, passes_apart};
use built::built;
use faultless::region::{Delivery, Error, Region};

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;

/// What the handler found: signals that were blocked (SIGBUS, SIGINT, SIGUSR1), and how often it ran.
static BLOCKED: AtomicU64 = AtomicU64::new(0);
static RUNS: AtomicUsize = AtomicUsize::new(0);
/// The file that it makes longer, so that the access can be made.
static FILE: AtomicI32 = AtomicI32::new(-1);
const WATCHED: [i32; 3] = [libc::SIGBUS, libc::SIGINT, libc::SIGUSR1];

extern "C" fn own(_: i32) {
    // SAFETY: zero bytes are a value; questions, and a file of the test's.
    unsafe {
        let mut now: libc::sigset_t = zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut now);
        let blocked = WATCHED.iter().enumerate().map(|(i, signal)| (libc::sigismember(&now, *signal) as u64) << i);
        BLOCKED.store(blocked.sum(), Ordering::SeqCst);
        RUNS.fetch_add(1, Ordering::SeqCst);
        libc::ftruncate(FILE.load(Ordering::SeqCst), PAGE as libc::off_t);
    }
}

fn install(flags: i32) {
    // SAFETY: zero bytes are a value; a handler of this program, which blocks SIGUSR1.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = own as extern "C" fn(i32) as *const () as usize;
        action.sa_flags = flags;
        libc::sigaddset(&mut action.sa_mask, libc::SIGUSR1);
        libc::sigaction(libc::SIGBUS, &action, null_mut());
    }
}

/// An access behind the end of a file.
fn fault(file: &File) -> u8 {
    file.set_len(0).unwrap();
    FILE.store(file.as_raw_fd(), Ordering::SeqCst);
    // SAFETY: a new mapping, which can be read as soon as the file is long enough.
    unsafe {
        let at = libc::mmap(null_mut(), PAGE, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0);
        at.cast::<u8>().read_volatile()
    }
}

/// What SIGBUS does.
fn installed() -> usize {
    // SAFETY: zero bytes are a value; a question.
    unsafe {
        let mut now: libc::sigaction = zeroed();
        libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut now);
        now.sa_sigaction
    }
}

fn region() -> Option<Region> {
    built(Region::builder(8 * MIB).delivery(Delivery::Signal))
}

#[test]
fn it_has_its_own_mask() {
    for flags in [0, libc::SA_NODEFER] {
        passes_apart(|| {
            install(flags);
            let file = tempfile::tempfile().unwrap();
            fault(&file);
            let alone = BLOCKED.swap(0, Ordering::SeqCst);
            let Some(region) = region() else { return };
            // SAFETY: mapped for writing.
            unsafe { region.as_ptr().write_volatile(1) };
            fault(&file);
            assert_eq!((BLOCKED.load(Ordering::SeqCst), RUNS.load(Ordering::SeqCst)), (alone, 2));
            assert_eq!(alone, if flags == 0 { 0b101 } else { 0b100 });
            // SAFETY: as above; and the thread blocks nothing.
            unsafe {
                let mut now: libc::sigset_t = zeroed();
                libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut now);
                assert!(WATCHED.iter().all(|signal| libc::sigismember(&now, *signal) == 0));
                region.as_ptr().add(MIB).write_volatile(1);
            }
        });
    }
}

/// With SA_RESETHAND the second signal of its kind ends the program.
#[test]
fn it_runs_once_if_it_is_to_run_once() {
    let status = apart(|| {
        install(libc::SA_RESETHAND);
        let Some(region) = region() else {
            // SAFETY: as if it had ended so.
            unsafe { libc::raise(libc::SIGBUS) };
            // SAFETY: the same.
            unsafe { libc::raise(libc::SIGBUS) };
            return;
        };
        let file = tempfile::tempfile().unwrap();
        fault(&file);
        assert_eq!(RUNS.load(Ordering::SeqCst), 1);
        // SAFETY: mapped for writing: not its business.
        unsafe { region.as_ptr().write_volatile(1) };
        fault(&file);
    });
    assert_eq!(status.signal(), Some(libc::SIGBUS), "{status}");
}

#[test]
fn it_may_come_after_the_last_region_and_before_the_next() {
    passes_apart(|| {
        let (own, before) = (own as extern "C" fn(i32) as *const () as usize, installed());
        let Some(first) = region() else { return };
        assert_ne!(installed(), before);
        drop(first);
        assert_eq!(installed(), before);
        install(0);
        let file = tempfile::tempfile().unwrap();
        for runs in 1..10 {
            let regions = [region().unwrap(), region().unwrap()];
            for region in &regions {
                // SAFETY: mapped for writing.
                unsafe { region.as_ptr().write_volatile(1) };
            }
            fault(&file);
            assert_eq!(RUNS.load(Ordering::SeqCst), 2 * runs - 1);
            let [one, other] = regions;
            drop(one);
            assert_ne!(installed(), own);
            drop(other);
            assert_eq!(installed(), own);
            fault(&file);
            assert_eq!(RUNS.load(Ordering::SeqCst), 2 * runs);
        }
    });
}

/// It may pass signals on to the library's, which must not pass them back.
#[test]
fn one_that_takes_the_place_of_the_library_s_stays() {
    passes_apart(|| {
        let before = installed();
        let Some(first) = region() else { return };
        let library_s = installed();
        install(0);
        drop(first);
        let own = own as extern "C" fn(i32) as *const () as usize;
        assert_eq!(installed(), own);
        let again = || Region::builder(8 * MIB).delivery(Delivery::Signal).build();
        assert_eq!(again().err(), Some(Error::SigbusTaken));
        // So it is in a child, which has no region yet.
        passes_apart(|| assert_eq!(again().err(), Some(Error::SigbusTaken)));
        // SAFETY: zero bytes are a value; the library's handler comes back, as the last one's owner would have it.
        unsafe {
            let mut action: libc::sigaction = zeroed();
            action.sa_sigaction = library_s;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGBUS, &action, null_mut());
        }
        drop(again().unwrap());
        assert_eq!(installed(), before);
    });
}

/// A child has the table of regions for its own.
#[test]
fn a_child_has_as_many_regions_as_its_parent() {
    passes_apart(|| {
        let few = || (0..150).map_while(|_| region()).collect::<Vec<_>>();
        let parent = few();
        if parent.is_empty() {
            return;
        }
        assert_eq!(parent.len(), 150);
        passes_apart(|| {
            let own = few();
            assert_eq!(own.len(), 150);
            for region in &own {
                // SAFETY: mapped for writing.
                unsafe { region.as_ptr().write_volatile(1) };
            }
            // The parent's are as they were, and can be dropped.
            // SAFETY: the child's own copy of it, which is not used again.
            parent.iter().for_each(|region| drop(unsafe { std::ptr::read(region) }));
        });
        // SAFETY: mapped for writing.
        parent.iter().for_each(|region| unsafe { region.as_ptr().write_volatile(1) });
    });
}

/// It takes the place of ours while a region is there, and is gone when the next one comes.
#[test]
fn it_may_be_gone_again() {
    passes_apart(|| {
        let Some(first) = region() else { return };
        install(0);
        drop(first);
        assert!(Region::builder(8 * MIB).delivery(Delivery::Signal).build().is_err());
        // SAFETY: what it is without any handler.
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
        let next = Region::builder(8 * MIB).delivery(Delivery::Signal).build().unwrap();
        // SAFETY: mapped for writing.
        unsafe { next.as_ptr().add(MIB).write_volatile(1) };
        drop(next);
        assert_eq!(installed(), libc::SIG_DFL);
    });
}
