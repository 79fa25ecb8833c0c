//! What the environment says: the knobs (`faultless_page::knobs`), `FAULTLESS_STATS`, a directory for the page.
//! `FAULTLESS_FILTERS` says what `faultless run` knew of system call filters, `FAULTLESS_WARM` where the socket is of
//! the warm reserve. It is read once, before `main`.

use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, Ordering};

use faultless_base::sys::cgroup::{self, Limit};
use faultless_base::sys::page_file;
use faultless_base::sys::proc_file::STATUS;
use faultless_base::sys::raw::{leading_number, read_file, status_in, syscall};
use faultless_base::sys::warm;
use faultless_base::{PAGE, SLOT};
use faultless_page::knobs::{Kind, Knob, Values, skip};
use faultless_page::layout::plain;

use crate::kernel::behind::{self, Function};
use crate::kernel::linked::weak;
use crate::runtime::page;

/// The settings of this process.
pub struct Settings {
    /// The knobs as they were set at the start.
    pub knobs: Values,
    /// The memory that this process may use.
    pub memory: usize,
}

/// The settings in the environment, copied: later the program may have changed it, or unmapped its strings.
struct Environment {
    /// [`UNSET`] where a default depends on the machine.
    knobs: Values,
    /// This program is to be left alone.
    is_off: bool,
    /// How many filters of system calls there were before; `None` where they were not counted.
    filters: Option<u64>,
    /// The directory for the page, up to a zero.
    stats_dir: [u8; page_file::PATH],
    /// The name that this program was started by, as much as fits the page, up to a zero.
    name: [u8; 16],
}

const UNSET: u64 = u64::MAX;

struct Copied(UnsafeCell<Environment>);
// SAFETY: written once, before READ says so.
unsafe impl Sync for Copied {}

static ENVIRONMENT: Copied = Copied(UnsafeCell::new(Environment {
    knobs: Values::new(),
    is_off: false,
    filters: None,
    stats_dir: [0; page_file::PATH],
    name: [0; 16],
}));
static READ: AtomicBool = AtomicBool::new(false);

/// Copies what the environment says to a program of these words, as the loader hands them to a constructor. Before
/// `main`, once.
pub fn read_environment(words: &[*const libc::c_char]) {
    // SAFETY: no thread looks at it yet.
    let all = unsafe { &mut *ENVIRONMENT.0.get() };
    for knob in Knob::ALL.iter().filter(|knob| knob.declared().kind != Kind::Text) {
        all.knobs.set(*knob, value(*knob).unwrap_or(UNSET));
    }
    let name = program_name();
    all.is_off = is_on(Knob::Disable) || text(Knob::Skip).is_some_and(|list| is_skipped(list, name, words));
    all.filters = var(c"FAULTLESS_FILTERS").map(|n| leading_number(n.trim_ascii_start()).unwrap_or(0));
    put(&mut all.name, name);
    // One that is too long could not be used, and a part of it is another one.
    put(&mut all.stats_dir, var(c"FAULTLESS_STATS").filter(|dir| dir.len() < page_file::PATH).unwrap_or(b""));
    if !all.is_off {
        warm::name(var(c"FAULTLESS_WARM").unwrap_or(b""));
    }
    READ.store(true, Ordering::Release);
}

fn put(to: &mut [u8], text: &[u8]) {
    let most = to.len() - 1;
    to.iter_mut().zip(text.iter().take(most)).for_each(|(to, from)| *to = *from);
}

fn until_zero(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// The settings in the environment; `None` as long as this library's constructor has not run. Then it may not be
/// linked, and the C library may not be ready.
#[inline]
fn environment() -> Option<&'static Environment> {
    // SAFETY: it is complete, and no thread changes it any more.
    READ.load(Ordering::Acquire).then(|| unsafe { &*ENVIRONMENT.0.get() })
}

/// Whether the settings are known, without which nothing starts.
#[inline]
pub fn are_read() -> bool {
    READ.load(Ordering::Acquire)
}

/// A variable of the environment. Before `main` only, when no other thread changes it.
pub fn var(name: &CStr) -> Option<&'static [u8]> {
    /// As getenv, but a program with rights that its user lacks has no such variable.
    type SecureGetenv = unsafe extern "C" fn(*const libc::c_char) -> *const libc::c_char;
    let value = match behind::next(Function::SecureGetenv) {
        0 => return None,
        // SAFETY: the function of that name, and a string.
        at => unsafe { core::mem::transmute::<usize, SecureGetenv>(at)(name.as_ptr()) },
    };
    // SAFETY: a string of the environment.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_bytes())
}

/// The directory for the counters page.
pub fn stats_dir() -> Option<&'static [u8]> {
    environment().map(|all| until_zero(&all.stats_dir)).filter(|dir| !dir.is_empty())
}

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

/// Whether a switch is on, before `main`.
pub fn is_on(knob: Knob) -> bool {
    value(knob) == Some(1)
}

/// Whether this program is one of those in `list`, by any of its names.
#[inline(never)]
fn is_skipped(list: &[u8], name: &[u8], words: &[*const libc::c_char]) -> bool {
    // SAFETY: strings that live as long as the program's stack.
    let string = |text: *const libc::c_char| unsafe { CStr::from_ptr(text) }.to_bytes();
    // What was asked for: of a script, the script.
    // SAFETY: no pointers; the kernel's string, or none.
    let started = unsafe { libc::getauxval(libc::AT_EXECFN) } as *const libc::c_char;
    let started = if started.is_null() { b"" } else { string(started) };
    let mut runs = [0u8; libc::PATH_MAX as usize];
    let link = c"/proc/self/exe".as_ptr() as usize;
    let args = [libc::AT_FDCWD as usize, link, runs.as_mut_ptr() as usize, runs.len(), 0, 0];
    // SAFETY: a path that ends with zero, and a buffer that is writable.
    let n = unsafe { syscall(libc::SYS_readlinkat, args) }.unwrap_or(0);
    let argument = skip::argument(words.iter().map(|word| string(*word)));
    skip::named(list, [name, started, &runs[..n]].into_iter().chain(argument)).is_some()
}

/// The name that this program was started by.
fn program_name() -> &'static [u8] {
    unsafe extern "C" {
        static program_invocation_short_name: *const libc::c_char;
    }
    // SAFETY: the C library's string, which is there before any constructor runs, unless the variable is the program's.
    unsafe {
        match program_invocation_short_name.is_null() {
            true => b"",
            false => CStr::from_ptr(program_invocation_short_name).to_bytes(),
        }
    }
}

/// The same, as it was before `main`, and as much of it as fits the page.
pub fn name() -> &'static [u8] {
    environment().map_or(b"", |all| until_zero(&all.name))
}

/// Where sanitizers keep their shadow memory on x86-64, also when they are linked statically and show no symbol, and
/// how long the area is at least that begins there. The first is the address sanitizer's low shadow, the second that of
/// the thread or memory sanitizer. A program may have memory of its own there, of another length.
const SHADOWS: [(usize, usize); 2] = [(0x7fff_8000, 0xfff_f000), (0x100_0000_0000, 0x100_0000_0000)];

/// Whether a shadow begins at this address. Few places are looked at: to ask about all of it takes long.
fn is_shadow((start, bytes): (usize, usize)) -> bool {
    const PLACES: usize = 16;
    (0..=PLACES).all(|i| is_mapped((start + i * ((bytes - PAGE) / PLACES)) & !(PAGE - 1)))
}

fn is_mapped(page: usize) -> bool {
    let mut present = 0u8;
    // SAFETY: one page, one byte for the answer.
    let answer = unsafe { syscall(libc::SYS_mincore, [page, PAGE, &raw mut present as usize, 0, 0, 0]) };
    answer.is_ok()
}

/// Whether a sanitizer's run-time is loaded. Weak references tell, which the loader has resolved; dlsym would allocate
/// when it finds nothing, and the program's allocator may be what called us.
fn is_sanitized() -> bool {
    let known = weak!("__asan_init") | weak!("__tsan_init") | weak!("__msan_init") | weak!("__hwasan_init");
    known != 0 || SHADOWS.into_iter().any(is_shadow)
}

/// Whether the kernel makes readable memory executable for this thread.
fn reading_implies_executing() -> bool {
    const QUESTION: usize = u32::MAX as usize;
    // SAFETY: asks for the present personality, and changes nothing.
    let now = unsafe { syscall(libc::SYS_personality, [QUESTION, 0, 0, 0, 0, 0]) };
    now.is_ok_and(|now| now & libc::READ_IMPLIES_EXEC as usize != 0)
}

/// The reason against an arena in this process, if there is one. That is a limit on address space or data, strict
/// accounting, a personality that has memory executable, or a sanitizer with a memory map of its own.
fn ruled_out() -> Option<u32> {
    let limited = |kind| {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        let args = [0, kind as usize, 0, &raw mut limit as usize, 0, 0];
        // SAFETY: the structure is writable.
        let asked = unsafe { syscall(libc::SYS_prlimit64, args) };
        asked.is_err() || limit.rlim_cur != libc::RLIM_INFINITY
    };
    let mut mode = [0u8; 4];
    // Without overcommit all that was ever opened stays accounted for.
    let counted = read_file(c"/proc/sys/vm/overcommit_memory", &mut mode).first() == Some(&b'2');
    match () {
        () if limited(libc::RLIMIT_AS) => Some(plain::ADDRESS_SPACE),
        () if limited(libc::RLIMIT_DATA) => Some(plain::DATA),
        () if counted => Some(plain::ACCOUNTING),
        () if reading_implies_executing() => Some(plain::EXECUTABLE),
        () if is_sanitized() => Some(plain::SANITIZER),
        () => None,
    }
}

/// Whether system calls are filtered that were not when `faultless run` was started, which left the number of filters
/// then in `FAULTLESS_FILTERS`. The effect of such a filter on our calls cannot be known before: it may kill.
// Its buffer is in no frame of a caller's, who may have little stack.
#[inline(never)]
pub fn is_confined() -> bool {
    let Some(before) = environment().and_then(|all| all.filters) else { return false };
    // Not to be told now: later, perhaps.
    let mut buffer = [0; 4096];
    let Some(status) = STATUS.read_plainly(&mut buffer) else { return true };
    status_in(status, "Seccomp_filters").unwrap_or(0) > before
}

/// Whether the engine might start in this process, as far as the environment and its filters say.
pub fn may_serve() -> bool {
    environment().is_some_and(|all| !all.is_off && all.knobs.get(Knob::Budget) >= SLOT as u64) && !is_confined()
}

/// The memory that this process may use: the machine's, or less if its control group says so.
fn memory(group: Limit) -> usize {
    // SAFETY: no pointers.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    let machine = (pages.max(0) as usize).saturating_mul(size.max(0) as usize);
    match group {
        Limit::Bytes(limit) => machine.min(limit as usize),
        Limit::None | Limit::Hidden => machine,
    }
}

/// The smallest block of malloc that is served.
pub fn malloc_threshold() -> usize {
    environment().map_or(0, |all| all.knobs.get(Knob::MallocThreshold)) as usize
}

/// How far files are read ahead, as it was set for the program.
pub fn file_ahead() -> usize {
    environment().map_or(0, |all| all.knobs.get(Knob::FileAhead)) as usize
}

/// The budget is at most one byte in this many of the control group's limit, and nothing in a small group.
const GROUP_SHARE: u64 = 128;

/// The settings; `None` when this process is to run plain. Why is noted on its page, unless it is to be left alone
/// altogether, or may not be allowed to make one.
pub fn read() -> Option<Settings> {
    read_with(None)
}

/// Leaves the page of a process whose service was called off before it began, unless it is to be left alone
/// altogether.
pub fn tell_ended() {
    let _ = read_with(Some(plain::ENDED));
}

/// The settings, unless there is this or another reason to run plain.
fn read_with(ended: Option<u32>) -> Option<Settings> {
    let environment = environment()?;
    if environment.is_off {
        return None;
    }
    let group = cgroup::limit();
    let memory = memory(group);
    let knobs = Values::new();
    knobs.copy(&environment.knobs);
    if knobs.raw(Knob::Budget).load(Ordering::Relaxed) == UNSET {
        knobs.set(Knob::Budget, (memory / 20).max(64 << 20) as u64);
    }
    // A program close to the limit would be killed for huge pages that it does not use, and they cannot be taken
    // back.
    let most = match group {
        Limit::None | Limit::Hidden => u64::MAX,
        Limit::Bytes(..cgroup::SMALLEST) => 0,
        Limit::Bytes(limit) => limit / GROUP_SHARE,
    };
    knobs.set(Knob::Budget, knobs.get(Knob::Budget).min(most));
    let no_budget = || (knobs.get(Knob::Budget) < SLOT as u64).then_some(plain::BUDGET);
    let hidden = || (group == Limit::Hidden).then_some(plain::GROUP);
    match ruled_out().or_else(no_budget).or(ended).or_else(hidden) {
        None => Some(Settings { knobs, memory }),
        Some(why) => {
            page::open_plain(&knobs, why);
            None
        }
    }
}
