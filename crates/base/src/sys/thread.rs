//! A thread without the C library's help, which would allocate: its starter may be in the middle of the program's own
//! allocator.
//!
//! The thread has a stack and a thread-local area of its own, and blocks every signal. Of the C library it may call
//! memory and clock functions only. There is one at a time.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::cpus::{self, Set};
use super::raw::{self, Access, syscall};
use crate::{Errno, PAGE};

const STACK_BYTES: usize = 128 << 10;
/// Room on both sides of the thread pointer, beside that for variables which are known to lie farther below; zero bytes
/// are what fresh thread-local variables of ours hold.
const LOCAL_BYTES: usize = 16 << 10;

/// The thread's number while it lives; the kernel clears it when it is gone. Some of those before it may not be gone
/// yet: they use no memory any more.
static THREADS: [AtomicU32; PLACES] = [const { AtomicU32::new(0) }; PLACES];
/// Numbers of threads that the kernel may still count. It clears their places in `THREADS` before it stops counting
/// them, and one of idle priority may have no processor in between for long.
static COUNTED: [AtomicU32; PLACES] = [const { AtomicU32::new(0) }; PLACES];
const PLACES: usize = 8;
static MEMORY: AtomicUsize = AtomicUsize::new(0);
/// The thread's pointer, in that memory.
static POINTER: AtomicUsize = AtomicUsize::new(0);
/// Whether the thread's table of descriptors is its own.
static OWN_FILES: AtomicBool = AtomicBool::new(false);
/// A thread was made, and has not left the program's table yet.
static SHARES_FILES: AtomicBool = AtomicBool::new(false);

/// Makes the thread's memory, once. Later it might lie where the program has just unmapped something, and expects
/// nothing. The variables that the thread uses begin `below` bytes below its pointer: how many that are depends on the
/// program's own.
pub fn prepare(below: usize) {
    let below = LOCAL_BYTES + below.next_multiple_of(PAGE);
    if MEMORY.load(Ordering::Acquire) == 0
        && let Some(fresh) = raw::map_private(STACK_BYTES + below + LOCAL_BYTES, Access::Write)
    {
        POINTER.store(fresh + STACK_BYTES + below, Ordering::Relaxed);
        MEMORY.store(fresh, Ordering::Release);
    }
}

/// Starts the thread with `entry`; false when the kernel refuses one, or its memory was never made. One caller at a
/// time, and the thread before it has come to its [`end`](end_if).
pub fn spawn(entry: extern "C" fn() -> !) -> bool {
    let memory = MEMORY.load(Ordering::Acquire);
    let free = THREADS.iter().find(|number| number.load(Ordering::Acquire) == 0);
    let Some(number) = free.filter(|_| memory != 0 && raw::may_call() && !COUNTED.iter().all(is_counted_still))
    else {
        return false;
    };
    let pointer = POINTER.load(Ordering::Relaxed);
    // SAFETY: inside the memory above; the first and the third word of the thread's control block are its own address.
    unsafe {
        (pointer as *mut usize).write(pointer);
        (pointer as *mut usize).add(2).write(pointer);
    }
    let _no_signals = raw::NoSignals::all();
    SHARES_FILES.store(true, Ordering::Release);
    // SAFETY: a stack and a thread pointer that no other thread uses: one before it uses none any more.
    let is_made = unsafe { clone(memory + STACK_BYTES, number, Some(pointer), enter, entry as *mut u8) };
    if !is_made {
        SHARES_FILES.store(false, Ordering::Release);
    }
    is_made
}

/// # Safety
/// `entry` must be a function without arguments.
unsafe extern "C" fn enter(entry: *mut u8) {
    // SAFETY: by contract.
    unsafe { core::mem::transmute::<*mut u8, extern "C" fn() -> !>(entry)() }
}

/// Makes a thread of this process that calls `f` with `argument`, and ends. Whether there is one: then `number` holds
/// its number until it is gone. Without a `pointer` it has the caller's thread-local variables.
///
/// # Safety
/// `stack` must be the upper end of unused memory, `pointer` a thread control block that no other thread uses. `number`
/// must be live until the thread has ended, and `f` may be called with `argument` by another thread.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn clone(
    stack: usize,
    number: &AtomicU32,
    pointer: Option<usize>,
    f: unsafe extern "C" fn(*mut u8),
    argument: *mut u8,
) -> bool {
    let flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_PARENT_SETTID
        | libc::CLONE_CHILD_CLEARTID
        | if pointer.is_some() { libc::CLONE_SETTLS } else { 0 };
    let answer: isize;
    // SAFETY: the new thread continues behind the system call on its own stack, calls `f`, and ends itself alone.
    unsafe {
        core::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r9",
            "xor edi, edi",
            "mov eax, {exit}",
            "syscall",
            "ud2",
            "2:",
            exit = const libc::SYS_exit,
            in("r9") f, in("r12") argument,
            inlateout("rax") libc::SYS_clone as isize => answer,
            in("rdi") flags as usize, in("rsi") stack & !15, in("rdx") number.as_ptr(), in("r10") number.as_ptr(),
            in("r8") pointer.unwrap_or(0),
            lateout("rcx") _, lateout("r11") _,
        );
    }
    answer > 0
}

/// # Safety
/// None needed: it does nothing.
#[cfg(not(target_arch = "x86_64"))]
pub(super) unsafe fn clone(
    _: usize,
    _: &AtomicU32,
    _: Option<usize>,
    _: unsafe extern "C" fn(*mut u8),
    _: *mut u8,
) -> bool {
    false
}

/// Ends the thread, which is the last one of its process, as [`left_alone`] says: with a status, or by a signal.
pub fn exit_as(code: usize) -> ! {
    let signal = code & 0x7F;
    if signal != 0 {
        // The kernel has ended the last thread of the program by that signal, and would have ended the process.
        let (default, all_others) = ([0usize; 4], !(1u64 << (signal - 1)));
        // SAFETY: no thread of the program is there; structures of the kernel's, on this stack.
        unsafe {
            let _ = syscall(libc::SYS_rt_sigaction, [signal, default.as_ptr() as usize, 0, 8, 0, 0]);
            let how = libc::SIG_SETMASK as usize;
            let _ = syscall(libc::SYS_rt_sigprocmask, [how, &raw const all_others as usize, 0, 8, 0, 0]);
            let this = syscall(libc::SYS_gettid, [0; 6]).unwrap_or(0);
            let _ = syscall(libc::SYS_tgkill, [raw::process_number(), this, signal, 0, 0, 0]);
        }
    }
    exit(code >> 8 & 0xFF)
}

/// Ends the thread; called by itself. If it is the last one of its process, that ends with this status.
pub fn exit(status: usize) -> ! {
    loop {
        // SAFETY: ends this thread alone; its memory stays.
        let _ = unsafe { raw::direct(libc::SYS_exit, [status, 0, 0, 0, 0, 0]) };
    }
}

/// Ends the thread unless `word` is no longer `from`; called by itself. Otherwise the word becomes `to`, and from then
/// on it uses no memory: another one may have it.
pub fn end_if((word, from, to): (&AtomicU32, u32, u32)) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: behind the change there is nothing but a call that ends this thread alone.
    unsafe {
        core::arch::asm!(
            "lock cmpxchg dword ptr [{word}], {to:e}",
            "jne 3f",
            "2:",
            "mov eax, {exit}",
            "xor edi, edi",
            "syscall",
            "jmp 2b",
            "3:",
            word = in(reg) word.as_ptr(), to = in(reg) to, exit = const libc::SYS_exit,
            inout("eax") from => _, out("rdi") _, out("rcx") _, out("r11") _,
            options(nostack),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (word, from, to);
}

/// Whether the calling thread is this one.
pub fn is_this() -> bool {
    let memory = MEMORY.load(Ordering::Relaxed);
    let here = 0u8;
    let at = &raw const here as usize;
    memory != 0 && (memory..memory + STACK_BYTES).contains(&at)
}

/// Whether all other threads of the process have ended. Then gives how the last one ended, as far as the kernel
/// tells: the process would end in the same way. As for waitpid(2): the status eight bits up, or a signal.
pub fn left_alone() -> Option<usize> {
    let mut buffer = [0; 1024];
    let first = First::parse(raw::read_file(c"/proc/self/stat", &mut buffer))?;
    if !first.has_ended || first.threads > 2 {
        // A later thread decides the status of the process, and threads end with 0.
        OUTLIVED.store(first.has_ended, Ordering::Relaxed);
        return None;
    }
    Some(if OUTLIVED.load(Ordering::Relaxed) { 0 } else { first.exit_code })
}

/// What the kernel says of the first thread of a process.
#[derive(Debug, PartialEq, Eq)]
struct First {
    has_ended: bool,
    /// Of the process. A first thread that has ended is counted until the process does.
    threads: u64,
    exit_code: usize,
}

impl First {
    /// The text of `/proc/PID/stat`.
    fn parse(stat: &[u8]) -> Option<Self> {
        const STATE: usize = 0;
        const THREADS: usize = 17;
        const EXIT_CODE: usize = 49;
        // Behind the name, which may hold anything.
        let fields = stat.get(stat.iter().rposition(|byte| *byte == b')')? + 2..)?;
        let field = |n: usize| fields.split(|byte| *byte == b' ').nth(n);
        let (has_ended, threads) = (field(STATE)? == b"Z", raw::leading_number(field(THREADS)?)?);
        let exit_code = field(EXIT_CODE).and_then(raw::leading_number).unwrap_or(0) as usize;
        Some(Self { has_ended, threads, exit_code })
    }
}

/// Whether there is the thread, or one before it.
pub fn is_alive() -> bool {
    THREADS.iter().any(|number| number.load(Ordering::Acquire) != 0)
}

/// By a thread of the program: notes if the first one has ended, which has no memory any more then. Looks once in a
/// millisecond.
pub fn note_outlived() {
    const LOOK_NS: u64 = 1_000_000;
    static LOOKED: AtomicU64 = AtomicU64::new(0);
    let now = raw::now_ns();
    if is_outlived() || now.wrapping_sub(LOOKED.load(Ordering::Relaxed)) < LOOK_NS {
        return;
    }
    LOOKED.store(now, Ordering::Relaxed);
    let byte = 0u8;
    let piece = libc::iovec { iov_base: (&raw const byte).cast_mut().cast(), iov_len: 1 };
    let at = &raw const piece as usize;
    // SAFETY: reads a byte of this stack over itself, by the first thread's memory.
    unsafe {
        let (pid, this) = (raw::process_number(), raw::thread_number());
        let read = || syscall(libc::SYS_process_vm_readv, [pid, at, 1, at, 1, 0]);
        if pid != this && read() == Err(Errno::ESRCH) {
            OUTLIVED.store(true, Ordering::Relaxed);
        }
    }
}

/// Whether other threads of the program were there after its first one had ended.
static OUTLIVED: AtomicBool = AtomicBool::new(false);

/// Whether the first thread of the program is known to have ended.
pub fn is_outlived() -> bool {
    OUTLIVED.load(Ordering::Relaxed)
}

/// Whether the thread has an ordinary priority for once.
static HURRIED: AtomicBool = AtomicBool::new(false);

/// Gives the thread an ordinary priority, if this process may: another thread waits for it.
pub fn hurry() {
    HURRIED.store(true, Ordering::Release);
    let other = libc::sched_param { sched_priority: 0 };
    for number in
        THREADS.iter().map(|number| number.load(Ordering::Acquire) as usize).filter(|number| *number != 0)
    {
        let args = [number, libc::SCHED_OTHER as usize, &raw const other as usize, 0, 0, 0];
        // SAFETY: reads the parameter alone.
        let _ = unsafe { syscall(libc::SYS_sched_setscheduler, args) };
    }
}

/// Called by the thread: no thread waits for it any more.
pub fn calm() {
    if HURRIED.load(Ordering::Relaxed) && HURRIED.swap(false, Ordering::AcqRel) {
        set_idle();
    }
}

/// Whether the kernel still counts the thread, which is no longer alive, or one before it. In the end it may be another
/// one with its number.
pub fn is_counted() -> bool {
    COUNTED.iter().any(is_counted_still)
}

fn is_counted_still(number: &AtomicU32) -> bool {
    let thread = number.load(Ordering::Acquire);
    // SAFETY: signal 0 is only a question.
    let counted = thread != 0
        && unsafe { syscall(libc::SYS_tgkill, [raw::process_number(), thread as usize, 0, 0, 0, 0]) }.is_ok();
    if !counted {
        let _ = number.compare_exchange(thread, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
    counted
}

/// Whether the kernel takes this process for one of several threads. It does so for a moment after it has stopped to
/// count a thread: unshare(2) of what a single thread never shares changes nothing, and says it.
pub fn has_company() -> bool {
    // SAFETY: changes nothing, see above.
    let answer = unsafe { syscall(libc::SYS_unshare, [libc::CLONE_VM as usize, 0, 0, 0, 0, 0]) };
    answer == Err(Errno::EINVAL)
}

/// In a forked child: the thread stayed with the parent.
pub fn forget() {
    THREADS.iter().chain(&COUNTED).for_each(|number| number.store(0, Ordering::Release));
    OUTLIVED.store(false, Ordering::Relaxed);
    SHARES_FILES.store(false, Ordering::Release);
}

/// Gives this thread the lowest priority, a name, and descriptors of its own.
pub fn be_idle(name: &core::ffi::CStr) {
    // SAFETY: this thread's own number, descriptors and name; failures only cost speed.
    unsafe {
        let number = syscall(libc::SYS_gettid, [0; 6]).unwrap_or(0);
        // `spawn` has seen to a free place.
        if let Some(free) = COUNTED.iter().find(|place| place.load(Ordering::Acquire) == 0) {
            free.store(number as u32, Ordering::Release);
        }
        // A table of descriptors of its own, empty: what it opens must not take the program's numbers.
        let files =
            syscall(libc::SYS_close_range, [0, u32::MAX as usize, libc::CLOSE_RANGE_UNSHARE as usize, 0, 0, 0]);
        OWN_FILES.store(files.is_ok(), Ordering::Release);
        SHARES_FILES.store(false, Ordering::Release);
        super::moves::new_thread();
        super::area::new_thread();
        super::pagemap::new_thread();
        set_idle();
        let _ = syscall(libc::SYS_prctl, [libc::PR_SET_NAME as usize, name.as_ptr() as usize, 0, 0, 0, 0]);
    }
}

/// Gives this thread the lowest priority.
pub fn set_idle() {
    let param = libc::sched_param { sched_priority: 0 };
    let args = [0, libc::SCHED_IDLE as usize, &raw const param as usize, 0, 0, 0];
    // SAFETY: this thread's own scheduling; a failure only costs speed.
    let _ = unsafe { syscall(libc::SYS_sched_setscheduler, args) };
}

/// Whether descriptors that the thread opens are its own, and end with it.
pub fn has_own_files() -> bool {
    OWN_FILES.load(Ordering::Acquire)
}

/// Before a thread of the program takes its files to a table of its own: until a thread that was started shares the
/// program's no more. The kernel takes that for one that others have, too, and leaves record locks (fcntl(2)) with it,
/// which end with its last thread. A starting thread may have no processor for long: then this is not waited for.
pub fn wait_for_own_files() {
    const MOST_NS: u64 = 1_000_000_000;
    const LOOK_NS: u64 = 20_000;
    let is_shared = || SHARES_FILES.load(Ordering::Acquire);
    if is_shared() {
        let start = raw::now_ns();
        while is_shared() && raw::now_ns() - start < MOST_NS {
            raw::sleep_ns(LOOK_NS);
        }
    }
}

/// Keeps this thread off processor `cpu`, on those that are most idle of the others that the process may use, or lets
/// it run on all of them.
pub fn avoid_cpu(cpu: Option<usize>) {
    // The process's number names its first thread.
    let Some(allowed) = cpus_of(raw::process_number()) else { return };
    let chosen = cpu.map_or(allowed, |cpu| cpus::most_idle(&allowed, cpu));
    if chosen.count() > 0 {
        run_on(chosen);
    }
}

/// The processors that a thread may use; 0: this one.
pub(super) fn cpus_of(thread: usize) -> Option<Set> {
    let mut set = Set::new();
    let at = set.words().as_mut_ptr() as usize;
    // SAFETY: the set is writable.
    unsafe { syscall(libc::SYS_sched_getaffinity, [thread, size_of::<Set>(), at, 0, 0, 0]) }.ok()?;
    Some(set)
}

/// Has this thread use these processors alone; whether it does.
pub(super) fn run_on(set: Set) -> bool {
    let_run_on(0, set)
}

/// Has a thread of this process use these processors alone; whether it does. 0: this one.
pub(super) fn let_run_on(thread: usize, mut set: Set) -> bool {
    let at = set.words().as_mut_ptr() as usize;
    // SAFETY: only the placement of a thread.
    unsafe { syscall(libc::SYS_sched_setaffinity, [thread, size_of::<Set>(), at, 0, 0, 0]) }.is_ok()
}

/// Calls `f` on each processor that this thread may use, one after the other.
pub fn on_each_cpu(mut f: impl FnMut()) {
    let Some(allowed) = cpus_of(0) else { return };
    for cpu in allowed.iter() {
        if run_on(Set::only(cpu)) {
            f();
        }
    }
    run_on(allowed);
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use std::string::String;
    use std::vec::Vec;

    use super::*;
    use faultless_testkit::foreign::{cases, garbled};
    use proptest::prelude::*;

    const STAT: &str = "4711 (a) b) Z 1 4711 1 0 -1 4227084 101 0 0 0 0 0 0 0 20 0 2 0 100 0 0 18446744073709551615 0 0 \
                        0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 256\n";

    #[test]
    fn the_first_thread_is_read_behind_any_name() {
        let parsed = First::parse(STAT.as_bytes());
        assert_eq!(parsed, Some(First { has_ended: true, threads: 2, exit_code: 256 }));
    }

    proptest! {
        #![proptest_config(cases())]

        #[test]
        fn any_text_is_borne(text in garbled(&[STAT])) {
            let text: Vec<u8> = text.into_iter().filter(u8::is_ascii).collect();
            let naive = || {
                let text = std::str::from_utf8(&text).ok()?;
                let fields: Vec<_> = text[text.rfind(')')? + 1..].get(1..)?.split(' ').collect();
                let number = |field: &str| field.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<u64>();
                let threads = number(fields.get(17)?).ok()?;
                let code = fields.get(49).and_then(|field| number(field).ok()).unwrap_or(0);
                Some(First { has_ended: fields[0] == "Z", threads, exit_code: code as usize })
            };
            prop_assert_eq!(First::parse(&text), naive());
        }
    }
}
