//! The faults of a region in signal mode without a region: the same system calls, and a handler that knows where its memory
//! is. What a region adds to these is what it costs.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use faultless_base::sys::uffd::{REGISTER_MISSING, Uffd, Wake, feature};
use faultless_base::sys::{Huge, Sys, linux::Linux};
use faultless_base::{Errno, SLOT, Span};

use super::field::PART;
use super::samples::Samples;
use super::{Reached, Spf, Work};
use crate::loops::memory::{Mapping, PAGE};

struct Memory {
    uffd: Uffd,
    span: Span,
    zeroes: usize,
    window: usize,
}

static MEMORIES: OnceLock<Vec<Memory>> = OnceLock::new();

extern "C" fn handle(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel's structure.
    let addr = unsafe { (*info).si_addr() as usize };
    let memory = MEMORIES.get().and_then(|all| all.iter().find(|memory| memory.span.contains(addr)));
    let copied = memory.is_some_and(|memory| {
        let window = Span::new(addr & !(PAGE - 1), memory.window * PAGE).clip(memory.span);
        // SAFETY: the zeroes are as long as a window; the target is registered.
        unsafe { memory.uffd.copy(memory.zeroes, window, Wake::Later) }.is_ok()
    });
    if !copied {
        std::process::abort();
    }
}

/// Memory of 2 MiB that reads as zero, a region of `PART` bytes for each thread, and the handler.
fn prepare(what: &Spf) -> io::Result<&'static [Memory]> {
    let os = |error: Errno| io::Error::from_raw_os_error(error.number());
    let mut memories = Vec::new();
    for _ in 0..what.threads {
        let (uffd, _) =
            Uffd::open_best().map_err(|error| io::Error::new(io::ErrorKind::PermissionDenied, os(error)))?;
        uffd.enable(feature::SIGBUS).map_err(os)?;
        let mapping = Mapping::new(PART + SLOT)?;
        let start = (mapping.place().start() + SLOT - 1) & !(SLOT - 1);
        let span = Span::new(start, PART);
        Linux.huge(span, Huge::Refused);
        // SAFETY: each touch from now on reckons with faults.
        unsafe { uffd.register(span, REGISTER_MISSING) }.map_err(os)?;
        let zeroes = Mapping::new(SLOT)?;
        (0..SLOT).step_by(PAGE).for_each(|offset| _ = zeroes.place().read(offset));
        memories.push(Memory { uffd, span, zeroes: zeroes.place().start(), window: what.window });
        // They live as long as the process.
        std::mem::forget((mapping, zeroes));
    }
    // SAFETY: zero bytes are a value; a handler that calls nothing a signal handler may not.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigfillset(&mut action.sa_mask);
        libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
    }
    Ok(MEMORIES.get_or_init(|| memories))
}

/// Runs it: pages a second, and times.
pub fn run(what: &Spf) -> io::Result<Reached> {
    if what.work != Work::Touch {
        return Err(io::Error::other("system calls alone: only for the touching of memory"));
    }
    let pages = AtomicU64::new(0);
    let memories = prepare(what)?;
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(what.seconds);
    let samples = thread::scope(|scope| {
        let workers: Vec<_> =
            memories.iter().map(|memory| scope.spawn(|| touch(memory, what, end, &pages))).collect();
        workers.into_iter().try_fold(Samples::default(), |mut all, worker| {
            all.merge(worker.join().expect("it does not panic")?);
            io::Result::Ok(all)
        })
    })?;
    let rate = pages.into_inner() as f64 / start.elapsed().as_secs_f64();
    Ok(Reached { rate, latency: samples.latency(), ..Reached::default() })
}

fn touch(memory: &Memory, what: &Spf, end: Instant, pages: &AtomicU64) -> io::Result<Samples> {
    let mut samples = Samples::default();
    loop {
        for at in (memory.span.start..memory.span.end).step_by(PAGE) {
            // SAFETY: this thread's own memory; a missing page is brought by the handler.
            let write = || unsafe { (at as *mut u8).write_volatile(1) };
            if what.timed { samples.time(write) } else { write() }
        }
        pages.fetch_add((memory.span.bytes() / PAGE) as u64, Ordering::Relaxed);
        let (at, bytes) = (memory.span.start as *mut libc::c_void, memory.span.bytes());
        // SAFETY: this thread's own memory, whose content is not needed.
        if unsafe { libc::madvise(at, bytes, libc::MADV_DONTNEED) } != 0 {
            return Err(io::Error::last_os_error());
        }
        if Instant::now() >= end {
            return Ok(samples);
        }
    }
}
