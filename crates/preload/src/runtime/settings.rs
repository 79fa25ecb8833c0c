//! What the environment says: the knobs (`faultless_page::knobs`), `FAULTLESS_STATS`, a directory for the page, and
//! `FAULTLESS_FILTERS`, what `faultless run` knew of system call filters.

use core::ffi::CStr;

use faultless_base::sys::raw::{leading_number, read_file, status_number, syscall};
use faultless_base::sys::{cgroup, open, pressure};
use faultless_base::{PAGE, SLOT};
use faultless_page::knobs::{Kind, Knob, Values};
use faultless_page::layout::plain;

use crate::runtime::page;

/// The settings of this process.
pub struct Settings {
    /// The knobs as they were set at the start.
    pub knobs: Values,
    /// The memory that this process may use.
    pub memory: usize,
}

pub fn var(name: &CStr) -> Option<&'static [u8]> {
    unsafe extern "C" {
        /// As getenv, but a program with rights that its user lacks has no such variable.
        fn secure_getenv(name: *const libc::c_char) -> *const libc::c_char;
    }
    // SAFETY: a string; the environment is read before the program's first large request changes it.
    let value = unsafe { secure_getenv(name.as_ptr()) };
    // SAFETY: a string of the environment.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_bytes())
}

/// The directory for the counters page.
pub fn stats_dir() -> Option<&'static [u8]> {
    var(c"FAULTLESS_STATS").filter(|dir| !dir.is_empty())
}

/// What a knob's variable says.
fn text(knob: Knob) -> Option<&'static [u8]> {
    let mut name = [0u8; 64];
    let variable = knob.declared().variable.as_bytes();
    name[..variable.len()].copy_from_slice(variable);
    var(CStr::from_bytes_until_nul(&name).ok()?).filter(|text| !text.is_empty())
}

/// The value of a knob; `None`: it is not set, and its default depends on the machine.
fn value(knob: Knob) -> Option<u64> {
    text(knob).and_then(|text| knob.declared().nearest(text)).or_else(|| knob.default())
}

pub fn is_on(knob: Knob) -> bool {
    value(knob) == Some(1)
}

/// The name that this program was started by.
pub fn program_name() -> &'static [u8] {
    unsafe extern "C" {
        static program_invocation_short_name: *const libc::c_char;
    }
    // SAFETY: the C library's string, which is there before any constructor runs.
    unsafe { CStr::from_ptr(program_invocation_short_name) }.to_bytes()
}

/// Whether this program is to be left alone.
fn is_off() -> bool {
    let name = program_name();
    let skipped = text(Knob::Skip).is_some_and(|list| list.split(|b| *b == b',').any(|n| n == name));
    skipped || is_on(Knob::Disable)
}

/// Where AddressSanitizer keeps its shadow memory on x86-64, also when it is linked statically and shows no symbol.
const ASAN_SHADOW: usize = 0x7fff_8000;

fn is_mapped(page: usize) -> bool {
    let mut present = 0u8;
    // SAFETY: one page, one byte for the answer.
    let answer = unsafe { syscall(libc::SYS_mincore, [page, PAGE, &raw mut present as usize, 0, 0, 0]) };
    answer.is_ok()
}

/// Whether a sanitizer's run-time is loaded. Weak references tell, which the loader has resolved; dlsym would allocate
/// when it finds nothing, and the program's allocator may be what called us.
fn is_sanitized() -> bool {
    let (asan, tsan, msan, hwasan): (usize, usize, usize, usize);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: loads four words of this library's own table of addresses.
    unsafe {
        core::arch::asm!(
            ".weak __asan_init", "mov {0}, qword ptr [rip + __asan_init@GOTPCREL]",
            ".weak __tsan_init", "mov {1}, qword ptr [rip + __tsan_init@GOTPCREL]",
            ".weak __msan_init", "mov {2}, qword ptr [rip + __msan_init@GOTPCREL]",
            ".weak __hwasan_init", "mov {3}, qword ptr [rip + __hwasan_init@GOTPCREL]",
            out(reg) asan, out(reg) tsan, out(reg) msan, out(reg) hwasan,
            options(pure, readonly, nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        (asan, tsan, msan, hwasan) = (0, 0, 0, 0);
    }
    asan | tsan | msan | hwasan != 0 || is_mapped(ASAN_SHADOW)
}

/// What in this process rules an arena out, if anything does: a limit on address space or data, strict accounting, or a sanitizer with a
/// memory map of its own.
fn ruled_out() -> Option<u32> {
    let limited = |kind| {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the structure is writable.
        unsafe { libc::getrlimit(kind, &mut limit) != 0 || limit.rlim_cur != libc::RLIM_INFINITY }
    };
    let mut mode = [0u8; 4];
    // Without overcommit all that was ever opened stays accounted for.
    let counted = read_file(c"/proc/sys/vm/overcommit_memory", &mut mode).first() == Some(&b'2');
    match () {
        () if limited(libc::RLIMIT_AS) => Some(plain::ADDRESS_SPACE),
        () if limited(libc::RLIMIT_DATA) => Some(plain::DATA),
        () if counted => Some(plain::ACCOUNTING),
        () if is_sanitized() => Some(plain::SANITIZER),
        () => None,
    }
}

/// Whether system calls are filtered that were not when `faultless run` was started, which left the number of filters
/// then in `FAULTLESS_FILTERS`. What such a filter makes of our calls cannot be known before: it may kill.
pub fn is_confined() -> bool {
    var(c"FAULTLESS_FILTERS").is_some_and(|before| {
        // Not to be told now: later, perhaps.
        let Some(now) = open::alone(|| status_number("Seccomp_filters")) else { return true };
        now.unwrap_or(0) > leading_number(before.trim_ascii_start()).unwrap_or(0)
    })
}

/// The memory that this process may use: the machine's, or less if its control group says so.
fn memory(group: Option<u64>) -> usize {
    // SAFETY: no pointers.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    let machine = (pages.max(0) as usize).saturating_mul(size.max(0) as usize);
    group.map_or(machine, |limit| machine.min(limit as usize))
}

/// The smallest block of malloc that is served.
pub fn malloc_threshold() -> usize {
    value(Knob::MallocThreshold).unwrap_or(0) as usize
}

/// The budget is at most one byte in so many of the control group's limit, and nothing in a small group.
const GROUP_SHARE: u64 = 128;

/// The settings; `None` when this process is to run plain. Why is noted on its page, unless it is to be left alone altogether, or
/// may not be allowed to make one.
pub fn read() -> Option<Settings> {
    if is_off() || is_confined() {
        return None;
    }
    let group = pressure::group_limit();
    let memory = memory(group);
    let knobs = Values::new();
    for knob in Knob::ALL.iter().filter(|knob| knob.declared().kind != Kind::Text) {
        knobs.set(*knob, value(*knob).unwrap_or((memory / 20).max(64 << 20) as u64));
    }
    // Whoever comes close to the limit is killed for huge pages that it does not use, and they cannot be taken back.
    let most = |limit| if limit < cgroup::SMALLEST { 0 } else { limit / GROUP_SHARE };
    knobs.set(Knob::Budget, knobs.get(Knob::Budget).min(group.map_or(u64::MAX, most)));
    let no_budget = || (knobs.get(Knob::Budget) < SLOT as u64).then_some(plain::BUDGET);
    match ruled_out().or_else(no_budget) {
        None => Some(Settings { knobs, memory }),
        Some(why) => {
            page::open_plain(&knobs, why);
            None
        }
    }
}
