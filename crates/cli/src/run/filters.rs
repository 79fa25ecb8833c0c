//! System call filters (seccomp) that were there before this command: what they kill for.
//!
//! What a filter does cannot be asked. It can be tried: a child makes each kind of call once, with arguments that change
//! nothing, and notes in shared memory which one it is at. Where it dies, that call kills, and another child goes on
//! behind it. Where a filter refuses a call, library and command go on without, but for those in [`NEEDED`].
//!
//! This runs before anything else does, so that the command itself is not killed first. Nothing is tried where there is
//! no filter.

use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use faultless_base::Errno;
use faultless_base::sys::raw::{status_number, syscall};

use super::options;

/// Who makes a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    /// Rust's runtime, as it starts.
    Start,
    /// A command that stands in for a program.
    Command,
    /// One that does so with a thread beside it: `stat`, `record`, `doctor`.
    Thread,
    /// One that brings files ahead of a program.
    Files,
    /// One that hands on what it has of its process.
    Handed,
    /// The library in the program.
    Library,
}

struct Call {
    name: &'static str,
    who: Who,
    /// Makes it, and answers the error number of the last try, or 0; at this address is memory that the child may do
    /// anything to: two pages of zeroes.
    make: fn(usize) -> i32,
}

macro_rules! calls {
    ($($who:ident $number:ident |$at:ident| $([$($arg:expr),*])+;)+) => {
        &[$(Call {
            name: stringify!($number),
            who: Who::$who,
            make: |$at| {
                let _ = $at;
                // SAFETY: in a child of its own, on memory that nobody else uses, or on what is none.
                let errors = [$(number(unsafe { syscall(libc::$number, padded([$($arg as usize),*])) })),+];
                errors[errors.len() - 1]
            },
        }),+]
    };
}

/// The number of an error, or 0.
fn number(answer: Result<usize, Errno>) -> i32 {
    answer.map_or_else(|error| error.number(), |_| 0)
}

/// Calls that the command does not do without, and the error number that they end with here if nothing refuses them.
const NEEDED: [(&str, i32); 5] = [
    ("SYS_rt_sigaction", 0),
    ("SYS_poll", 0),
    ("SYS_wait4", libc::ECHILD),
    ("SYS_waitid", libc::ECHILD),
    ("SYS_readlink", libc::EINVAL),
];

fn padded<const N: usize>(given: [usize; N]) -> [usize; 6] {
    std::array::from_fn(|i| given.get(i).copied().unwrap_or(0))
}

const PAGE: usize = 4096;
const NONE: usize = usize::MAX;
const HERE: usize = libc::AT_FDCWD as usize;
/// `UFFDIO_API`, as for any userfaultfd.
const UFFDIO_API: usize = 0xc018_aa3f;
const PRIVATE: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;

/// First what the child's own end takes, then what is made at the start.
const CALLS: &[Call] = calls! {
    Command SYS_wait4 |at| [NONE, 0, libc::WNOHANG];
    Start SYS_rt_sigaction |at| [libc::SIGPIPE, 0, at, 8];
    Start SYS_fcntl |at| [NONE, libc::F_GETFD] [NONE, libc::F_GETFL] [NONE, libc::F_DUPFD_CLOEXEC];
    Start SYS_getrandom |at| [at, 8, libc::GRND_NONBLOCK];
    Start SYS_sched_getaffinity |at| [0, 8, at];
    Start SYS_sigaltstack |at| [0, at];
    Start SYS_gettid |at| [];
    Start SYS_write |at| [NONE, at, 0];
    Command SYS_rt_sigprocmask |at| [libc::SIG_BLOCK, at, 0, 8];
    Command SYS_rt_sigtimedwait |at| [at, 0, at, 8];
    Command SYS_waitid |at| [libc::P_ALL, 0, 0, libc::WEXITED | libc::WNOHANG];
    Command SYS_kill |at| [0, 0];
    Command SYS_getuid |at| [];
    Command SYS_geteuid |at| [];
    Command SYS_getgid |at| [];
    Command SYS_getcwd |at| [at, 0];
    Command SYS_lseek |at| [NONE, 0, libc::SEEK_CUR];
    Command SYS_statx |at| [HERE, at, 0, 0, at];
    Command SYS_mkdirat |at| [HERE, at, 0o700];
    Command SYS_unlinkat |at| [HERE, at, 0];
    Command SYS_fchmod |at| [NONE, 0];
    Command SYS_fchmodat |at| [HERE, at, 0];
    Command SYS_getxattr |at| [at, at, 0, 0];
    Command SYS_dup |at| [NONE];
    Command SYS_fallocate |at| [NONE, 0, 0, PAGE];
    Command SYS_getdents64 |at| [NONE, at, PAGE];
    Command SYS_utimensat |at| [HERE, at, 0, 0];
    Command SYS_getpid |at| [];
    Command SYS_prctl |at| [libc::PR_GET_NO_NEW_PRIVS] [libc::PR_SET_NAME, at] [libc::PR_GET_TID_ADDRESS, at];
    Command SYS_prlimit64 |at| [0, libc::RLIMIT_AS, 0, at];
    Thread SYS_clone3 |at| [0, 0];
    Thread SYS_set_robust_list |at| [0, 0];
    Files SYS_fstatfs |at| [NONE, at];
    Handed SYS_fcntl |at| [NONE, libc::F_OFD_GETLK, at];
    Handed SYS_getitimer |at| [NONE, at];
    Handed SYS_setitimer |at| [NONE, at, at];
    Handed SYS_dup3 |at| [NONE, NONE, 0];
    Library SYS_userfaultfd |at| [libc::O_CLOEXEC | libc::O_NONBLOCK | 1];
    Library SYS_ioctl |at| [NONE, UFFDIO_API, at];
    Library SYS_process_vm_readv |at| [0, at, 1, at, 1];
    Library SYS_madvise |at| [at, PAGE, libc::MADV_HUGEPAGE] [at, PAGE, libc::MADV_POPULATE_WRITE]
        [at, PAGE, libc::MADV_DONTNEED] [at, PAGE, libc::MADV_WIPEONFORK] [at, PAGE, libc::MADV_COLD];
    Library SYS_mmap |at| [at, PAGE, libc::PROT_READ | libc::PROT_WRITE, PRIVATE, NONE, 0]
        [at, PAGE, libc::PROT_NONE, PRIVATE | libc::MAP_NORESERVE, NONE, 0];
    Library SYS_mprotect |at| [at, PAGE, libc::PROT_READ | libc::PROT_WRITE];
    Library SYS_mremap |at| [at, PAGE, PAGE, libc::MREMAP_MAYMOVE]
        [at, PAGE, PAGE, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, at + PAGE];
    Library SYS_mincore |at| [at, PAGE, at];
    Library SYS_msync |at| [at, PAGE, libc::MS_ASYNC];
    Library SYS_munlock |at| [at, PAGE];
    Library SYS_mbind |at| [at, PAGE, 0, 0, 0, 0];
    Library SYS_get_mempolicy |at| [0, 0, 0, 0, 0];
    Library SYS_move_pages |at| [0, 0, 0, 0, 0, 0];
    Library SYS_openat |at| [HERE, at, libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC | libc::O_NOFOLLOW, 0o600];
    Library SYS_readlinkat |at| [HERE, at, at, PAGE];
    Library SYS_faccessat |at| [HERE, at, 0];
    Library SYS_statfs |at| [at, at];
    Library SYS_read |at| [NONE, at, 0];
    Library SYS_pread64 |at| [NONE, at, 0, 0];
    Library SYS_pwrite64 |at| [NONE, at, 0, 0];
    Library SYS_fstat |at| [NONE, at];
    Library SYS_newfstatat |at| [HERE, at, at, 0];
    Library SYS_pipe2 |at| [at, libc::O_CLOEXEC];
    Library SYS_vmsplice |at| [NONE, at, 0, 0];
    Library SYS_close_range |at| [u32::MAX, u32::MAX, libc::CLOSE_RANGE_UNSHARE];
    Library SYS_unshare |at| [libc::CLONE_VM];
    Library SYS_shmget |at| [libc::IPC_PRIVATE, 0, libc::IPC_CREAT | 0o600];
    Library SYS_shmat |at| [NONE, at, libc::SHM_REMAP];
    Library SYS_shmctl |at| [NONE, libc::IPC_RMID, 0];
    Library SYS_futex |at| [at, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1];
    Library SYS_ppoll |at| [at, 0, at, 0, 8];
    Library SYS_pselect6 |at| [0, 0, 0, 0, at, 0];
    Library SYS_clock_gettime |at| [libc::CLOCK_MONOTONIC, at];
    Library SYS_getrusage |at| [libc::RUSAGE_SELF, at];
    Library SYS_sysinfo |at| [at];
    Library SYS_getcpu |at| [at, 0, 0];
    Library SYS_sched_setaffinity |at| [0, 0, 0];
    Library SYS_sched_setscheduler |at| [0, libc::SCHED_IDLE, at];
    Library SYS_ioprio_set |at| [1, 0, 3 << 13];
    Library SYS_personality |at| [u32::MAX];
    Library SYS_kcmp |at| [0, 0, 1, 0, 0];
    Library SYS_tgkill |at| [0, 0, 0];
    Library SYS_set_tid_address |at| [0];
};

/// Calls of processors of one kind alone, and the thread of the library, which is no call like these.
#[cfg(target_arch = "x86_64")]
const MORE: &[Call] = calls! {
    Start SYS_poll |at| [at, 0, 0];
    Command SYS_readlink |at| [at, at, 0];
    Command SYS_mkdir |at| [at, 0o700];
    Command SYS_unlink |at| [at];
    Command SYS_chmod |at| [at, 0];
    Command SYS_rename |at| [at, at];
    Command SYS_renameat |at| [HERE, at, HERE, at];
};
#[cfg(not(target_arch = "x86_64"))]
const MORE: &[Call] = &[];

/// Which the C library does not know yet.
const CACHESTAT: Call = Call {
    name: "SYS_cachestat",
    who: Who::Files,
    // SAFETY: there is no such descriptor.
    make: |at| number(unsafe { syscall(super::files::CACHESTAT, padded([NONE, at, at])) }),
};
const THREAD: Call = Call { name: "SYS_clone", who: Who::Library, make: thread };

/// A thread of this process, which does nothing. Its stack is the upper page.
fn thread(at: usize) -> i32 {
    extern "C" fn nothing(_: *mut libc::c_void) -> libc::c_int {
        0
    }
    let flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM;
    // SAFETY: a stack that nobody else uses, and a function that touches nothing.
    unsafe { libc::clone(nothing, (at + 2 * PAGE) as *mut libc::c_void, flags, null_mut()) };
    0
}

fn all() -> impl Iterator<Item = &'static Call> {
    CALLS.iter().chain(MORE).chain([&CACHESTAT, &THREAD])
}

/// What the filters do, as far as it was tried.
#[derive(Default)]
struct Found {
    /// Calls that they kill for.
    killing: Vec<&'static Call>,
    /// Calls of [`NEEDED`] that they refuse.
    refusing: Vec<&'static Call>,
    /// There are filters, and no child could be had to try them.
    untried: bool,
}

static FOUND: OnceLock<Found> = OnceLock::new();

/// What was found; nothing before [`look`].
fn found() -> &'static Found {
    static NOTHING: Found = Found { killing: Vec::new(), refusing: Vec::new(), untried: false };
    FOUND.get().unwrap_or(&NOTHING)
}

/// Looks, and where this command itself would be killed goes no further: `run` has the program take this process's place,
/// plain. At the start, before Rust's runtime.
///
/// # Safety
/// `words` must be those of the command, up to a null pointer, as the loader has them.
pub unsafe fn look(words: *const *const libc::c_char) {
    // Where the kernel does not tell, there may be one.
    if status_number("Seccomp_filters") == Some(0) {
        return;
    }
    let found = FOUND.get_or_init(tried);
    let kills = |who| found.killing.iter().chain(&found.refusing).find(|call| call.who == who);
    // SAFETY: by contract.
    let given: Vec<&CStr> = unsafe {
        (0..).map(|i| *words.add(i)).take_while(|word| !word.is_null()).map(|word| CStr::from_ptr(word)).collect()
    };
    let command = given.get(1).map_or(&b""[..], |word| word.to_bytes());
    let has_thread = [&b"record"[..], b"stat", b"doctor"].contains(&command);
    let stands_in = has_thread || command == b"run";
    // Which a thread makes at its end as well.
    let madvise = || found.killing.iter().find(|call| call.name == "SYS_madvise" && command != b"doctor");
    let call = kills(Who::Start).or_else(|| kills(Who::Command).filter(|_| stands_in));
    let call = call.or_else(|| kills(Who::Thread).or_else(madvise).filter(|_| has_thread));
    let Some(call) = call else { return };
    let does = if found.killing.iter().any(|other| other.name == call.name) { "kills for" } else { "refuses" };
    let does = format!("system calls are filtered (seccomp), and the filter {does} {}", call.name());
    let program = (command == b"run").then(|| options::program_in(&given[2..])).flatten().map(|i| i + 2);
    let Some(place) = program else {
        say(&format!("{does}: this command cannot run here"));
        end(super::FAILED.into());
    };
    if !given[2..place].iter().any(|word| word.to_bytes() == b"--quiet") {
        say(&format!("{does}: the program runs plain, takes this process, and nothing is said at its end"));
    }
    // SAFETY: words of this command, which end with a null pointer.
    let error = unsafe {
        libc::execvp(*words.add(place), words.add(place));
        std::io::Error::last_os_error()
    };
    let (message, status) =
        super::child::not_started(std::ffi::OsStr::new(&*given[place].to_string_lossy()), &error);
    say(&message);
    end(status.into());
}

/// Says something, if that does not kill.
fn say(text: &str) {
    if !found().killing.iter().any(|call| call.name == "SYS_write") {
        super::complain(text);
    }
}

fn end(status: i32) -> ! {
    // SAFETY: ends this process, of which nothing else has begun.
    unsafe { libc::_exit(status) }
}

impl Call {
    fn name(&self) -> &'static str {
        self.name.trim_start_matches("SYS_")
    }
}

/// Tries all of it.
fn tried() -> Found {
    let mut found = Found::default();
    let (flags, prot) = (libc::MAP_ANONYMOUS, libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: new mappings: a page that children share with this process, and two that each has for itself.
    let (shared, own) = unsafe {
        (
            libc::mmap(null_mut(), PAGE, prot, flags | libc::MAP_SHARED, -1, 0),
            libc::mmap(null_mut(), 2 * PAGE, prot, flags | libc::MAP_PRIVATE, -1, 0),
        )
    };
    if shared == libc::MAP_FAILED || own == libc::MAP_FAILED {
        return Found { untried: true, ..found };
    }
    let (mut next, count) = (0, all().count());
    // SAFETY: mapped until the end of this function, aligned, and atomics; a page has room for all of them.
    let (at, errors) = unsafe {
        let first = shared.cast::<AtomicUsize>();
        (&*first, std::slice::from_raw_parts(first.add(1).cast::<AtomicI32>(), count))
    };
    const { assert!(size_of::<usize>() + (CALLS.len() + MORE.len() + 2) * size_of::<i32>() <= PAGE) };
    while next < count {
        at.store(next, Ordering::SeqCst);
        // This process waits for the child's end without a call that might kill.
        // SAFETY: a child with a copy of this memory, which makes system calls alone.
        let Ok(child) =
            (unsafe { syscall(libc::SYS_clone, [(libc::CLONE_VFORK | libc::SIGCHLD) as usize, 0, 0, 0, 0, 0]) })
        else {
            found.untried = true;
            break;
        };
        if child == 0 {
            without_core();
            for (i, call) in all().enumerate().skip(next) {
                at.store(i, Ordering::SeqCst);
                clear(own as usize);
                errors[i].store((call.make)(own as usize), Ordering::Relaxed);
            }
            at.store(count, Ordering::SeqCst);
            end(0);
        }
        next = at.load(Ordering::SeqCst);
        if next < count {
            found.killing.extend(all().nth(next));
            next += 1;
        }
        // A program that may not wait misses nothing by a child that is left.
        if !found.killing.iter().any(|call| call.name == "SYS_wait4") {
            // SAFETY: nothing is to be told about the child.
            let _ = unsafe { syscall(libc::SYS_wait4, [child, 0, 0, 0, 0, 0]) };
        }
    }
    let is_refused = |(i, call): &(usize, &Call)| {
        let is_killing = found.killing.iter().any(|other| other.name == call.name);
        let needed = NEEDED.iter().find(|(name, _)| *name == call.name);
        !is_killing && needed.is_some_and(|(_, error)| errors[*i].load(Ordering::Relaxed) != *error)
    };
    if !found.untried {
        found.refusing = all().enumerate().filter(is_refused).map(|(_, call)| call).collect();
    }
    // SAFETY: made above; there is no reference any more.
    unsafe { (libc::munmap(shared, PAGE), libc::munmap(own, 2 * PAGE)) };
    found
}

/// Has two new pages of zeroes at this address: a call before may have written there, or unmapped it.
fn clear(at: usize) {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: replaces the child's own memory, to which there is no reference.
    let _ = unsafe { syscall(libc::SYS_mmap, padded([at, 2 * PAGE, prot as usize, PRIVATE as usize, NONE])) };
}

/// A child that is killed leaves no core file, nor is one piped to a program: one byte means neither.
fn without_core() {
    let limit = libc::rlimit { rlim_cur: 1, rlim_max: 1 };
    // SAFETY: reads a valid structure.
    let _ = unsafe { libc::setrlimit(libc::RLIMIT_CORE, &limit) };
}

/// Whether the filters kill for a call, or may.
pub fn may_kill() -> bool {
    !found().killing.is_empty() || found().untried
}

/// Why the filters are against covering a program, if they are.
pub fn ruled_out() -> Option<String> {
    let names: Vec<_> = found()
        .killing
        .iter()
        .filter(|call| !matches!(call.who, Who::Thread | Who::Files | Who::Handed))
        .map(|call| call.name())
        .collect();
    match names.as_slice() {
        [] if found().untried => Some(
            "its system calls are filtered (seccomp), and no process is left to try whether the filters kill"
                .into(),
        ),
        [] => None,
        [name] => Some(format!(
            "its system calls are filtered (seccomp), and the filter kills for {name}, which faultless uses"
        )),
        [name, more @ ..] => Some(format!(
            "its system calls are filtered (seccomp), and the filter kills for {name}, which faultless uses, and {} more",
            more.len()
        )),
    }
}
