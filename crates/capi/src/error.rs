//! Errors as numbers.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};

use faultless::region::Error;

/// A null pointer, or a number that stands for nothing.
pub const ARGUMENT: c_int = 17;
const OTHER: c_int = 18;
const LOST: c_int = 19;
const NO_EVENTS: c_int = 20;
/// The size of options is not set.
pub const SIZE: c_int = 21;
/// Options beyond those that are known here.
pub const NEWER: c_int = 22;

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

/// The number of an error.
pub fn number(error: Error) -> c_int {
    match error {
        Error::Kernel(errno) => -errno,
        Error::NoUserfaultfd(_) => 3,
        Error::Lost => LOST,
        Error::NoEvents(_) => NO_EVENTS,
        error => ERRORS.iter().position(|e| *e == error).map_or(OTHER, |at| at as c_int + 1),
    }
}

/// 0, or the number of the error.
pub fn answer(result: Result<(), Error>) -> c_int {
    result.err().map_or(0, number)
}

/// What a number means.
fn text(error: c_int) -> String {
    match error {
        0 => "no error".into(),
        -4095..0 => Error::Kernel(-error).to_string(),
        ARGUMENT => "an argument is a null pointer, or a number that stands for nothing".into(),
        LOST => Error::Lost.to_string(),
        NO_EVENTS => Error::NoEvents(libc::EPERM).to_string(),
        SIZE => "the size of the options is not set: begin them with FAULTLESS_OPTIONS".into(),
        NEWER => {
            "the program sets options that this version of the library does not know: install the one that it was \
                  compiled with"
                .into()
        }
        _ => ERRORS.get((error as usize).wrapping_sub(1)).map_or("an unknown error".into(), Error::to_string),
    }
}

thread_local! {
    static TEXT: RefCell<CString> = RefCell::default();
}

/// What an error means, and what to do. The text is this thread's until it asks for the next.
#[unsafe(no_mangle)]
pub extern "C" fn faultless_strerror(error: c_int) -> *const c_char {
    TEXT.with_borrow_mut(|kept| {
        *kept = CString::new(text(error)).unwrap_or_default();
        kept.as_ptr()
    })
}
