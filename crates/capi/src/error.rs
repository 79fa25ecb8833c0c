//! Errors as numbers, and their texts.
//!
//! A text is made once and stays, so a program may keep a pointer to it. Two numbers stand for a refusal of the
//! kernel's: no userfaultfd, no events. The thread that met one keeps the kernel's own error number until it meets
//! the next error.

use std::cell::Cell;
use std::ffi::{CString, c_char, c_int};
use std::io;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use faultless::region::Error;

use crate::call::Call;

/// A null pointer, or a number that stands for nothing.
pub const ARGUMENT: c_int = 17;
const OTHER: c_int = 18;
const LOST: c_int = 19;
const NO_EVENTS: c_int = 20;
/// The size of options is not set.
pub const SIZE: c_int = 21;
/// Options beyond those that are known here.
pub const NEWER: c_int = 22;
const CHOICE: c_int = 23;
const VALGRIND: c_int = 24;
const ENDED: c_int = 25;
const NO_USERFAULTFD: c_int = 3;
const PART: c_int = 26;
const NO_FILE: c_int = 27;
const PARENTS: c_int = 28;
const NO_SNAPSHOTS: c_int = 29;
const TOO_MANY_SNAPSHOTS: c_int = 30;
const TARGET: c_int = 31;
const CANCELLED: c_int = 32;
const NO_SWAP: c_int = 33;
const INCOMPLETE: c_int = 34;

/// Each error that has no number of its own, in the order of `enum faultless_error`.
const ERRORS: [Error; 16] = [
    Error::Length,
    Error::NoAddressSpace,
    Error::NoUserfaultfd(libc::EPERM),
    Error::NoFeature,
    Error::DirectBacking,
    Error::NoThread,
    Error::TooManyRegions,
    Error::SigbusBlocked,
    Error::SigbusTaken,
    Error::Outside,
    Error::Mapped,
    Error::NotMapped,
    Error::Rights,
    Error::TooManyAreas,
    Error::Forked,
    Error::Closed,
];

thread_local! {
    /// The last error of this thread: its number, and what the kernel said.
    static LAST: Cell<(c_int, c_int)> = const { Cell::new((0, 0)) };
}

/// The number of an error, which is this thread's last from now on.
pub fn number(error: Error) -> c_int {
    let (number, errno) = match error {
        Error::Kernel(errno) => (-errno, errno),
        Error::NoUserfaultfd(errno) => (NO_USERFAULTFD, errno),
        Error::NoEvents(errno) => (NO_EVENTS, errno),
        Error::Lost => (LOST, 0),
        Error::Choice(_) => (CHOICE, 0),
        Error::Valgrind => (VALGRIND, 0),
        Error::Ended => (ENDED, 0),
        Error::NoSnapshots(_) => (NO_SNAPSHOTS, 0),
        Error::TooManySnapshots => (TOO_MANY_SNAPSHOTS, 0),
        Error::NoSwap(_) => (NO_SWAP, 0),
        Error::NoFile => (TARGET, 0),
        Error::Cancelled => (CANCELLED, 0),
        Error::Incomplete => (INCOMPLETE, 0),
        error => (ERRORS.iter().position(|e| *e == error).map_or(OTHER, |at| at as c_int + 1), 0),
    };
    LAST.set((number, errno));
    number
}

/// The number of an error of a file.
pub fn io_number(error: io::Error) -> c_int {
    // What lazy mappings need as regions do.
    if let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        return self::number(*error);
    }
    let number = match (error.raw_os_error(), error.kind()) {
        (Some(errno), _) => -errno,
        (None, io::ErrorKind::InvalidInput) => PART,
        (None, io::ErrorKind::Unsupported) => NO_FILE,
        (None, io::ErrorKind::BrokenPipe) => return self::number(Error::Closed),
        (None, _) => PARENTS,
    };
    LAST.set((number, error.raw_os_error().unwrap_or(0)));
    number
}

/// The same for an answer.
pub fn io_answer(result: io::Result<()>) -> c_int {
    result.err().map_or(0, io_number)
}

/// An error of the call itself, which is this thread's last from now on.
pub fn mistake(number: c_int) -> c_int {
    LAST.set((number, 0));
    number
}

/// 0, or the number of the error.
pub fn answer(result: Result<(), Error>) -> c_int {
    result.err().map_or(0, number)
}

/// What a number means, if the kernel said `errno` about it; 0: this thread has not met such an error last.
fn text(error: c_int, errno: c_int) -> String {
    match error {
        0 => "no error".into(),
        -4095..0 => Error::Kernel(-error).to_string(),
        NO_USERFAULTFD if errno == 0 => {
            "no userfaultfd can be had: allow it (`faultless doctor` says how), or use direct delivery".into()
        }
        NO_USERFAULTFD => Error::NoUserfaultfd(errno).to_string(),
        ARGUMENT => "an argument is a null pointer, or a number that stands for nothing".into(),
        LOST => Error::Lost.to_string(),
        NO_EVENTS if errno == 0 => {
            "no events can be had: use thread delivery, and give the process CAP_SYS_PTRACE for those of fork"
                .into()
        }
        NO_EVENTS => Error::NoEvents(errno).to_string(),
        SIZE => "the size of the options is not set: begin them with FAULTLESS_OPTIONS".into(),
        NEWER => {
            "the program sets options that this version of the library does not know: install the one that it was \
                  compiled with"
                .into()
        }
        CHOICE => {
            "the options make no sense: a window is a page of 4096 bytes or more, and the first no larger than \
                   the largest"
                .into()
        }
        VALGRIND => Error::Valgrind.to_string(),
        ENDED => Error::Ended.to_string(),
        NO_SNAPSHOTS => "no snapshot can be taken of the region: it needs FAULTLESS_THREAD, faults of the kernel's own, neither `read` nor events, and no pinned memory".into(),
        TOO_MANY_SNAPSHOTS => Error::TooManySnapshots.to_string(),
        TARGET => Error::NoFile.to_string(),
        CANCELLED => Error::Cancelled.to_string(),
        INCOMPLETE => Error::Incomplete.to_string(),
        NO_SWAP => "a region with a swap_budget needs FAULTLESS_THREAD, faults of the kernel's own, and neither `read` nor events; it can neither be moved nor have snapshots".into(),
        PART => "the part is not inside the file".into(),
        NO_FILE => "only regular files have a cache".into(),
        PARENTS => "the file was opened by the parent of this process: open it after the fork".into(),
        _ => ERRORS.get((error as usize).wrapping_sub(1)).map_or("an unknown error".into(), Error::to_string),
    }
}

/// Numbers of the kernel's.
const ERRNOS: usize = 4096;
/// Numbers of this library's.
const OWN: usize = 64;
/// Texts: of the kernel's errors, twice more with those of the kernel's in them, and of the others.
static TEXTS: [AtomicPtr<c_char>; 3 * ERRNOS + OWN] = [const { AtomicPtr::new(null_mut()) }; 3 * ERRNOS + OWN];

/// Where the text of an error is kept.
fn place(error: c_int, errno: c_int) -> usize {
    let errno = errno.clamp(0, ERRNOS as c_int - 1) as usize;
    match error {
        -4095..0 => -error as usize,
        NO_USERFAULTFD => ERRNOS + errno,
        NO_EVENTS => 2 * ERRNOS + errno,
        // All others have one text: that they are unknown.
        _ => 3 * ERRNOS + usize::try_from(error).map_or(OWN - 1, |error| error.min(OWN - 1)),
    }
}

/// What an error means, and what to do. The text stays for good.
#[unsafe(no_mangle)]
pub extern "C" fn faultless_strerror(error: c_int) -> *const c_char {
    let _call = Call::begin();
    let (last, said) = LAST.get();
    let errno = if last == error { said } else { 0 };
    let place = &TEXTS[place(error, errno)];
    let known = place.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    let new = CString::new(text(error, errno)).unwrap_or_default().into_raw();
    match place.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => new,
        Err(known) => {
            // SAFETY: made above, and not seen yet: another thread was faster.
            drop(unsafe { CString::from_raw(new) });
            known
        }
    }
}

/// What the kernel said when the last call of this thread that failed did: an errno, or 0 if it was not the kernel.
#[unsafe(no_mangle)]
pub extern "C" fn faultless_errno() -> c_int {
    let _call = Call::begin();
    LAST.get().1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_closed_is_not_its_parents() {
        let kinds = [io::ErrorKind::BrokenPipe, io::ErrorKind::Other, io::ErrorKind::InvalidInput];
        let numbers = kinds.map(|kind| io_number(io::Error::new(kind, "why")));
        assert_eq!(numbers, [number(Error::Closed), PARENTS, PART]);
        let text = text(numbers[0], 0);
        assert!(text.contains("closed"), "{text}");
    }
}
