//! Programs that the program starts in its place or beside it. The kernel does that with the program's own arguments.
//!
//! Arguments and environment have a limit together (`E2BIG`). A child that would fit without our variables gets none of
//! them, and runs plain. Calls come from children of vfork, too: nothing here allocates or waits.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null;

use faultless_base::sys::raw::Answer;

use crate::kernel::behind::{Function, next};
use crate::kernel::call::{errno, status};
use crate::kernel::dispatch::syscall;

const LIBRARY: &[u8] = b"libfaultless_preload.so";
const LIST: &[u8] = b"LD_PRELOAD=";
const ASAN: &[u8] = b"ASAN_OPTIONS=";
/// What the command puts before those options.
const ASAN_OPTION: &[u8] = b"verify_asan_link_order=0";
const OURS: &[u8] = b"FAULTLESS_";

/// A list of strings that ends with a null pointer.
pub type Strings = *const *const c_char;

/// Copies a list of libraries without this one to `to`, with a zero behind it; how many bytes that are without the zero.
///
/// # Safety
/// At `to` there is room for all of the list and a zero.
pub unsafe fn copy_others(list: &[u8], to: *mut u8) -> usize {
    let mut end = 0;
    // SAFETY: by contract; never more than the list has.
    unsafe {
        for path in list.split(|b| matches!(b, b':' | b' ')) {
            if path.is_empty() || path.ends_with(LIBRARY) {
                continue;
            }
            if end > 0 {
                to.add(end).write(b':');
                end += 1;
            }
            to.add(end).copy_from_nonoverlapping(path.as_ptr(), path.len());
            end += path.len();
        }
        to.add(end).write(0);
    }
    end
}

/// An entry of the environment that is ours, or holds something of ours.
enum Entry<'a> {
    /// All of it.
    Ours,
    /// Libraries, one of them ours.
    Libraries(&'a [u8]),
    /// Options behind one of ours.
    Options(&'a [u8]),
}

impl<'a> Entry<'a> {
    fn of(entry: &'a [u8]) -> Option<Self> {
        if entry.starts_with(OURS) {
            return Some(Self::Ours);
        }
        if let Some(libraries) = entry.strip_prefix(LIST) {
            return Some(Self::Libraries(libraries));
        }
        match entry.strip_prefix(ASAN)?.strip_prefix(ASAN_OPTION)? {
            [] => Some(Self::Ours),
            [b':', options @ ..] => Some(Self::Options(options)),
            _ => None,
        }
    }

    /// Writes what stays of it to `to`, with a zero behind it; how many bytes that are. 0: nothing stays.
    ///
    /// # Safety
    /// At `to` there is room for all of the entry and a zero.
    unsafe fn write(&self, to: *mut u8) -> usize {
        // SAFETY: by contract.
        let put = |at: usize, text: &[u8]| unsafe {
            to.add(at).copy_from_nonoverlapping(text.as_ptr(), text.len());
            at + text.len()
        };
        match self {
            Self::Ours => 0,
            Self::Libraries(all) => {
                let name = put(0, LIST);
                // SAFETY: by contract.
                let kept = unsafe { copy_others(all, to.add(name)) };
                if kept > 0 { name + kept + 1 } else { 0 }
            }
            Self::Options(options) => put(put(put(0, ASAN), options), &[0]),
        }
    }
}

/// An environment without our variables, in memory of its own.
struct Without {
    start: usize,
    bytes: usize,
}

impl Without {
    /// `None`: nothing in it is ours, or there is no memory.
    ///
    /// # Safety
    /// A list of strings, or null.
    unsafe fn of(environment: Strings) -> Option<Self> {
        if environment.is_null() {
            return None;
        }
        // SAFETY: by contract.
        let entry = |i: usize| unsafe { CStr::from_ptr(*environment.add(i)) }.to_bytes();
        // SAFETY: by contract.
        let n = (0..).take_while(|i| unsafe { !(*environment.add(*i)).is_null() }).count();
        let ours = (0..n).map(entry).filter(|entry| Entry::of(entry).is_some());
        let texts = ours.fold(0, |sum, entry| sum + entry.len() + 1);
        if texts == 0 {
            return None;
        }
        let pointers = (n + 1) * size_of::<usize>();
        let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let args = [0, pointers + texts, rights as usize, flags as usize, usize::MAX, 0];
        // SAFETY: a new mapping at a place of the kernel's choice.
        let start = unsafe { syscall(libc::SYS_mmap, args) }.ok()?;
        let (mut list, mut text) = (start as *mut *const u8, (start + pointers) as *mut u8);
        for i in 0..n {
            let entry = entry(i);
            let (mut at, mut stays) = (entry.as_ptr(), true);
            // SAFETY: room for all entries of ours, and for as many pointers as there were with zeroes behind them.
            unsafe {
                if let Some(ours) = Entry::of(entry) {
                    let bytes = ours.write(text);
                    (at, stays, text) = (text, bytes > 0, text.add(bytes));
                }
                if stays {
                    list.write(at);
                    list = list.add(1);
                }
            }
        }
        Some(Self { start, bytes: pointers + texts })
    }
}

impl Drop for Without {
    fn drop(&mut self) {
        // SAFETY: made above; the call that had it has failed, or a new process has a copy.
        let _ = unsafe { syscall(libc::SYS_munmap, [self.start, self.bytes, 0, 0, 0, 0]) };
    }
}

/// The next function of a name, with its arguments in registers.
unsafe fn call(function: Function, [a, b, c, d, e, f]: [usize; 6]) -> c_int {
    type Any = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> c_int;
    match next(function) {
        // SAFETY: the caller's promise.
        0 if function == Function::Execve => status(unsafe { syscall(libc::SYS_execve, [a, b, c, 0, 0, 0]) }),
        // The others search for a file, or read it, which takes the C library.
        0 => status(Err(libc::ENOSYS)),
        // SAFETY: the caller's promise.
        at => unsafe { core::mem::transmute::<usize, Any>(at)(a, b, c, d, e, f) },
    }
}

/// After a call was too long: makes it once more by `function`, of which `args` has the environment at `place`.
#[cold]
unsafe fn once_more(function: Function, mut args: [usize; 6], place: usize) -> Option<c_int> {
    // SAFETY: the caller's promise.
    let without = unsafe { Without::of(args[place] as Strings) }?;
    args[place] = without.start;
    // SAFETY: the caller's promise.
    Some(unsafe { call(function, args) })
}

/// execve(2) by its number.
///
/// # Safety
/// As the call.
pub unsafe fn execve_by(mut args: [usize; 6], make: impl Fn([usize; 6]) -> Answer) -> Answer {
    let answer = make(args);
    // SAFETY: by contract.
    let without = (answer == Err(libc::E2BIG)).then(|| unsafe { Without::of(args[2] as Strings) }).flatten();
    match without {
        Some(without) => {
            args[2] = without.start;
            make(args)
        }
        None => answer,
    }
}

fn is_too_long(answer: c_int) -> bool {
    answer == -1 && errno() == libc::E2BIG
}

fn environment() -> Strings {
    unsafe extern "C" {
        static environ: Strings;
    }
    // SAFETY: the C library's variable.
    unsafe { environ }
}

macro_rules! execs {
    ($($name:ident, $function:ident;)+) => { $(
        #[doc = concat!("As ", stringify!($name), "(3).")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(file: usize, words: Strings, environment: Strings) -> c_int {
            let args = [file, words as usize, environment as usize, 0, 0, 0];
            // SAFETY: the caller's promise.
            unsafe {
                match call(Function::$function, args) {
                    answer if is_too_long(answer) => once_more(Function::$function, args, 2).unwrap_or(answer),
                    answer => answer,
                }
            }
        }
    )+ };
}

execs! {
    execve, Execve;
    execvpe, Execvpe;
    fexecve, Fexecve;
}

macro_rules! execs_as_here {
    ($($name:ident, $function:ident, $with_environment:ident;)+) => { $(
        #[doc = concat!("As ", stringify!($name), "(3).")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(file: *const c_char, words: Strings) -> c_int {
            let args = |environment: Strings| [file as usize, words as usize, environment as usize, 0, 0, 0];
            // SAFETY: the caller's promise.
            unsafe {
                match call(Function::$function, args(null())) {
                    answer if is_too_long(answer) => {
                        once_more(Function::$with_environment, args(environment()), 2).unwrap_or(answer)
                    }
                    answer => answer,
                }
            }
        }
    )+ };
}

execs_as_here! {
    execv, Execv, Execve;
    execvp, Execvp, Execvpe;
}

macro_rules! spawns {
    ($($name:ident, $function:ident;)+) => { $(
        #[doc = concat!("As ", stringify!($name), "(3): the error is the result.")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            pid: *mut libc::pid_t,
            file: *const c_char,
            actions: *const c_void,
            attributes: *const c_void,
            words: Strings,
            environment: Strings,
        ) -> c_int {
            let args = [
                pid as usize,
                file as usize,
                actions as usize,
                attributes as usize,
                words as usize,
                environment as usize,
            ];
            if next(Function::$function) == 0 {
                return libc::ENOSYS;
            }
            // SAFETY: the caller's promise.
            unsafe {
                match call(Function::$function, args) {
                    libc::E2BIG => once_more(Function::$function, args, 5).unwrap_or(libc::E2BIG),
                    answer => answer,
                }
            }
        }
    )+ };
}

spawns! {
    posix_spawn, PosixSpawn;
    posix_spawnp, PosixSpawnp;
}
