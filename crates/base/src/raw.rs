//! System calls, made directly: the C library's wrappers may be interposed by this very project.

use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use crate::Errno;

/// What the kernel answered: a value, or the error number.
pub type Answer = Result<usize, Errno>;

/// The function that is asked before each call; 0 where none is.
static ASKED: AtomicUsize = AtomicUsize::new(0);

/// From now on calls are made only while `may` says so; the others fail with `ENOSYS`.
pub fn ask_before_calls(may: fn() -> bool) {
    ASKED.store(may as usize, Ordering::Relaxed);
}

/// Whether this thread may make a call of ours now.
#[inline]
pub fn may_call() -> bool {
    match ASKED.load(Ordering::Relaxed) {
        0 => true,
        // SAFETY: what `ask_before_calls` stored.
        may => unsafe { core::mem::transmute::<usize, fn() -> bool>(may)() },
    }
}

/// Makes system call `nr`, if this thread may.
///
/// # Safety
/// As the system call: pointers among `args` must fit what it does with them, and memory that it unmaps or
/// changes must not be in use.
#[inline]
pub unsafe fn syscall(nr: i64, args: [usize; 6]) -> Answer {
    if !may_call() {
        return Err(Errno::ENOSYS);
    }
    // SAFETY: by contract.
    unsafe { direct(nr, args) }
}

/// Makes system call `nr` for any caller: the program, or a thread that ends.
///
/// # Safety
/// As [`syscall`].
#[inline]
pub unsafe fn direct(nr: i64, args: [usize; 6]) -> Answer {
    let ret: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel's calling convention: it keeps all registers but rax, rcx and r11.
    unsafe {
        asm!("syscall", inlateout("rax") nr as isize => ret,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the kernel's calling convention: it keeps all registers but x0.
    unsafe {
        asm!("svc 0", in("x8") nr, inlateout("x0") args[0] as isize => ret,
            in("x1") args[1], in("x2") args[2], in("x3") args[3],
            in("x4") args[4], in("x5") args[5], options(nostack));
    }
    if (-4095..0).contains(&ret) { Err(Errno::new(-ret as i32)) } else { Ok(ret as usize) }
}

/// What a new private mapping may be used for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Nothing: address space alone.
    Reserve,
    /// Reading and writing.
    Write,
}

/// Addresses for what is mapped for writing from now on, in one range: the next one, and the end. Else each mapping might
/// lie where the program has unmapped something, expects nothing, and maps without a question again.
static TOGETHER: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Reserves such a range, once. A program has no such large place free among its own mappings, or next to never.
pub fn keep_together(bytes: usize) {
    let [next, end] = &TOGETHER;
    if end.load(Ordering::Acquire) == 0
        && let Some(at) = map_private(bytes, Access::Reserve)
    {
        // Tables cost memory only where they are used.
        // SAFETY: advice about the mapping just made.
        let _ = unsafe { syscall(libc::SYS_madvise, [at, bytes, libc::MADV_NOHUGEPAGE as usize, 0, 0, 0]) };
        next.store(at, Ordering::Relaxed);
        end.store(at + bytes, Ordering::Release);
    }
}

/// Gives what is left of the range back: addresses count where the program limits them.
pub fn end_together() {
    let [next, end] = &TOGETHER;
    let end = end.load(Ordering::Acquire);
    let rest = next.swap(end, Ordering::Relaxed);
    if rest < end {
        // SAFETY: reserved by `keep_together`, and nobody gets it any more.
        unsafe { unmap(rest, end - rest) };
    }
}

/// A part of the range, if there is one.
fn map_together(bytes: usize) -> Option<usize> {
    let [next, end] = &TOGETHER;
    let (end, bytes) = (end.load(Ordering::Acquire), bytes.checked_next_multiple_of(crate::PAGE)?);
    let part = |next: usize| (end.saturating_sub(next) >= bytes).then(|| next + bytes);
    let at = next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, part).ok()?;
    let prot = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    // SAFETY: a part of the reservation that nobody else has.
    unsafe { syscall(libc::SYS_mprotect, [at, bytes, prot, 0, 0, 0]) }.ok().map(|_| at)
}

/// Maps `bytes` of fresh private anonymous memory that is not accounted for; the address, or `None`.
pub fn map_private(bytes: usize, access: Access) -> Option<usize> {
    if access == Access::Write
        && let Some(at) = map_together(bytes)
    {
        return Some(at);
    }
    let prot = match access {
        Access::Reserve => libc::PROT_NONE,
        Access::Write => libc::PROT_READ | libc::PROT_WRITE,
    };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at a place of the kernel's choice replaces nothing.
    unsafe { syscall(libc::SYS_mmap, [0, bytes, prot as usize, flags as usize, usize::MAX, 0]) }.ok()
}

/// Unmaps what [`map_private`] mapped; the kernel rounds up to whole pages.
///
/// # Safety
/// No thread uses the memory any more.
pub unsafe fn unmap(at: usize, bytes: usize) {
    // SAFETY: by contract.
    let _ = unsafe { syscall(libc::SYS_munmap, [at, bytes, 0, 0, 0, 0]) };
}

/// A word that is 1 in this process and reads 0 in a forked child, however it was forked (`MADV_WIPEONFORK`).
/// `None` when the kernel refuses.
pub fn word_wiped_on_fork() -> Option<&'static AtomicU32> {
    let at = map_private(crate::PAGE, Access::Write)?;
    // SAFETY: a fresh page of this function's own, never unmapped.
    let word = unsafe {
        if syscall(libc::SYS_madvise, [at, crate::PAGE, libc::MADV_WIPEONFORK as usize, 0, 0, 0]).is_err() {
            unmap(at, crate::PAGE);
            return None;
        }
        &*(at as *const AtomicU32)
    };
    word.store(1, Ordering::Release);
    Some(word)
}

/// The calling thread's number. As that of a process it stands for the memory that both have, also after the process's first
/// thread has ended, when the process's own number stands for none.
pub fn thread_number() -> usize {
    // Not by the C library: its call does not ask before (`may_call`), and it may not be linked yet.
    // SAFETY: no arguments.
    unsafe { syscall(libc::SYS_gettid, [0; 6]) }.unwrap_or(0)
}

/// This process's number; 0 where this thread may make no call.
pub fn process_number() -> usize {
    // SAFETY: no arguments.
    unsafe { syscall(libc::SYS_getpid, [0; 6]) }.unwrap_or(0)
}

/// Sleeps while `word` is `expected`, until a wake-up, a signal or, if given, the end of `timeout_ns`.
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout_ns: Option<u64>) {
    let time = timeout_ns.map(|ns| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    });
    let time_at = time.as_ref().map_or(0, |t| t as *const _ as usize);
    let op = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as usize;
    // SAFETY: both addresses are those of live values; every outcome means "look again".
    let _ = unsafe { syscall(libc::SYS_futex, [word.as_ptr() as usize, op, expected as usize, time_at, 0, 0]) };
}

/// Wakes up to `n` sleepers of `word`.
pub fn futex_wake(word: &AtomicU32, n: u32) {
    let op = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as usize;
    // SAFETY: the address is only a name here.
    let _ = unsafe { syscall(libc::SYS_futex, [word.as_ptr() as usize, op, n as usize, 0, 0, 0]) };
}

/// The C library's `clock_gettime` and `sched_getcpu`; 0: whatever has that name.
static CLOCK: AtomicUsize = AtomicUsize::new(0);
static GETCPU: AtomicUsize = AtomicUsize::new(0);

/// From now on these functions are asked. By their names a program's own may be found, which may not work in every thread.
///
/// # Safety
/// Each is 0, or the address of the function with its name.
pub unsafe fn use_own(clock_gettime: usize, sched_getcpu: usize) {
    CLOCK.store(clock_gettime, Ordering::Relaxed);
    GETCPU.store(sched_getcpu, Ordering::Relaxed);
}

/// The processor that this thread runs on, as the C library knows without asking the kernel.
#[inline]
pub fn cpu() -> usize {
    let number = match GETCPU.load(Ordering::Relaxed) {
        // SAFETY: no arguments.
        0 => unsafe { libc::sched_getcpu() },
        // SAFETY: what `use_own` stored; no arguments.
        own => unsafe { core::mem::transmute::<usize, unsafe extern "C" fn() -> libc::c_int>(own)() },
    };
    number.max(0) as usize
}

/// Nanoseconds of the monotonic clock.
pub fn now_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds since the machine was started.
pub fn boot_ns() -> u64 {
    clock_ns(libc::CLOCK_BOOTTIME)
}

/// Nanoseconds for which this thread had a processor.
pub fn thread_ns() -> u64 {
    processor_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Nanoseconds for which threads of this process had a processor, all together.
pub fn process_ns() -> u64 {
    processor_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn processor_ns(clock: libc::clockid_t) -> u64 {
    // That takes a system call, which the C library makes without asking.
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let args = [clock as usize, &raw mut t as usize, 0, 0, 0, 0];
    // SAFETY: `t` is writable.
    let _ = unsafe { syscall(libc::SYS_clock_gettime, args) };
    in_ns(&t)
}

/// Whether the processor's clock may not be read.
static NO_CLOCK: AtomicBool = AtomicBool::new(false);

/// The program has reading the processor's clock end in a signal (`PR_SET_TSC`): the kernel is asked from now on.
pub fn ask_kernel_for_time() {
    NO_CLOCK.store(true, Ordering::Relaxed);
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is writable; the C library answers from the vDSO where it can.
    unsafe {
        match NO_CLOCK.load(Ordering::Relaxed) {
            true => _ = direct(libc::SYS_clock_gettime, [clock as usize, &raw mut t as usize, 0, 0, 0, 0]),
            false => _ = by_c_library(clock, &mut t),
        }
    }
    in_ns(&t)
}

/// # Safety
/// As clock_gettime(2).
unsafe fn by_c_library(clock: libc::clockid_t, t: &mut libc::timespec) -> libc::c_int {
    type Clock = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> libc::c_int;
    // SAFETY: by contract; what `use_own` stored.
    unsafe {
        match CLOCK.load(Ordering::Relaxed) {
            0 => libc::clock_gettime(clock, t),
            own => core::mem::transmute::<usize, Clock>(own)(clock, t),
        }
    }
}

fn in_ns(t: &libc::timespec) -> u64 {
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Signals that the processor raises, or a filter of system calls. Held back they end the program, whatever handler it
/// has.
const RAISED: u64 = 1 << (libc::SIGSEGV - 1)
    | 1 << (libc::SIGBUS - 1)
    | 1 << (libc::SIGTRAP - 1)
    | 1 << (libc::SIGILL - 1)
    | 1 << (libc::SIGFPE - 1)
    | 1 << (libc::SIGSYS - 1);
/// Signals that a thread of the program's holds back while the engine works.
pub const HELD_BACK: u64 = !RAISED;

/// This thread takes no signals while this exists, but those that the processor raises.
pub struct NoSignals {
    before: Option<u64>,
}

impl NoSignals {
    /// Holds signals back from now on, if this thread may make calls.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self { before: may_call().then(|| hold_signals_back(HELD_BACK)) }
    }

    /// Holds all signals back, as a thread of ours does that is made meanwhile.
    pub fn all() -> Self {
        Self { before: may_call().then(|| hold_signals_back(u64::MAX)) }
    }
}

impl Drop for NoSignals {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            set_signal_mask(before);
        }
    }
}

/// Holds these signals back, a bit each, besides those that are already: one of the program's may be waiting, which
/// must not come now. Those that were before.
pub fn hold_signals_back(more: u64) -> u64 {
    change_signal_mask(libc::SIG_BLOCK, more)
}

/// Holds these signals back and no others.
pub fn set_signal_mask(mask: u64) {
    change_signal_mask(libc::SIG_SETMASK, mask);
}

fn change_signal_mask(how: i32, mask: u64) -> u64 {
    let mut old = 0u64;
    let args = [how as usize, &raw const mask as usize, &raw mut old as usize, 8, 0, 0];
    // SAFETY: two words for the masks.
    let _ = unsafe { direct(libc::SYS_rt_sigprocmask, args) };
    old
}

/// Calls `f` while this thread takes no signals.
pub fn without_signals<R>(f: impl FnOnce() -> R) -> R {
    let _no_signals = NoSignals::new();
    f()
}

/// The load average of the last minute, rounded down; 0 where the kernel does not say.
pub fn load() -> u64 {
    // SAFETY: numbers, for which zeroes are values.
    let mut info: libc::sysinfo = unsafe { core::mem::zeroed() };
    // SAFETY: the structure is writable.
    let _ = unsafe { syscall(libc::SYS_sysinfo, [&raw mut info as usize, 0, 0, 0, 0, 0]) };
    info.loads[0] >> libc::SI_LOAD_SHIFT
}

/// Sleeps for `ns` nanoseconds, or until a signal.
pub fn sleep_ns(ns: u64) {
    let word = AtomicU32::new(0);
    futex_wait(&word, 0, Some(ns));
}

/// Opens a file for reading. In a program's table that takes a number of the program's: see `open.rs`.
pub(super) fn open(path: &core::ffi::CStr) -> Answer {
    // Whatever is there by that name in a root directory of the program's own must not hold this thread up.
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY) as usize;
    // SAFETY: the path ends with a zero byte.
    unsafe { syscall(libc::SYS_openat, [libc::AT_FDCWD as usize, path.as_ptr() as usize, flags, 0, 0, 0]) }
}

/// A file of /proc or /sys that is read from its start to its end.
pub struct File(usize);

impl File {
    /// `None` when it cannot be opened.
    pub fn open(path: &core::ffi::CStr) -> Option<Self> {
        Self::try_open(path).ok()
    }

    /// The same, with the error.
    pub fn try_open(path: &core::ffi::CStr) -> Result<Self, Errno> {
        open(path).map(Self)
    }

    /// Its number while it is open.
    pub(super) fn number(&self) -> usize {
        self.0
    }

    /// The next bytes; how many: 0 at its end.
    pub fn read(&mut self, buffer: &mut [u8]) -> usize {
        // SAFETY: the buffer is writable.
        unsafe { syscall(libc::SYS_read, [self.0, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0]) }
            .unwrap_or(0)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the descriptor that `open` opened.
        let _ = unsafe { syscall(libc::SYS_close, [self.0, 0, 0, 0, 0, 0]) };
    }
}

/// The bytes of a file of /proc or /sys, as far as they fit `buffer`; empty when it cannot be read.
pub fn read_file<'a>(path: &core::ffi::CStr, buffer: &'a mut [u8]) -> &'a [u8] {
    let Some(mut file) = File::open(path) else { return &[] };
    let mut n = 0;
    while n < buffer.len() {
        match file.read(&mut buffer[n..]) {
            0 => break,
            got => n += got,
        }
    }
    &buffer[..n]
}

/// The value under a name in /proc/self/status, if that is a number.
pub fn status_number(name: &str) -> Option<u64> {
    status_in(read_file(c"/proc/thread-self/status", &mut [0; 4096]), name)
}

/// The same in its text.
pub fn status_in(text: &[u8], name: &str) -> Option<u64> {
    let mut lines = text.split(|byte| *byte == b'\n');
    let value = lines.find_map(|line| line.strip_prefix(name.as_bytes())?.strip_prefix(b":"))?;
    leading_number(value.trim_ascii_start())
}

/// The number in decimal digits that a text begins with.
pub fn leading_number(text: &[u8]) -> Option<u64> {
    let digits = || text.iter().take_while(|b| b.is_ascii_digit());
    digits().next()?;
    digits().try_fold(0u64, |n, d| n.checked_mul(10)?.checked_add((d - b'0') as u64))
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use std::string::String;

    use super::*;
    use faultless_testkit::foreign::{cases, garbled};
    use proptest::prelude::*;

    const STATUS: &[&str] = &["Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t12\nThreads:\t1\n"];

    proptest! {
        #![proptest_config(cases())]

        #[test]
        fn a_number_is_that_of_the_digits(text in garbled(&["123", "18446744073709551615 kB\n", "max\n"])) {
            let digits: String = text.iter().map(|b| *b as char).take_while(char::is_ascii_digit).collect();
            prop_assert_eq!(leading_number(&text), digits.parse().ok());
        }

        #[test]
        fn a_field_of_a_status_is_found_as_by_lines(text in garbled(STATUS)) {
            let name = "Seccomp_filters";
            let lossy = String::from_utf8_lossy(&text);
            let value = lossy.split('\n').find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let value = value.map(|value| value.trim_start_matches(|c: char| c.is_ascii_whitespace()));
            let digits = |value: &str| value.chars().take_while(char::is_ascii_digit).collect::<String>();
            prop_assert_eq!(status_in(&text, name), value.and_then(|value| digits(value).parse().ok()));
        }
    }
}
