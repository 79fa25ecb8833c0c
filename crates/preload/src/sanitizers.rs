//! What run-times of sanitizers ask for.

use core::ffi::{CStr, c_char};

const OPTIONS: &CStr = c"verify_asan_link_order=0";

/// Options of AddressSanitizer's run-time, which the environment overrides. As a library of its own it refuses to start
/// where another one comes before it. It works behind ours, which serves nothing there. A program that has options of
/// its own has this function, too, and does not call ours.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __asan_default_options() -> *const c_char {
    OPTIONS.as_ptr()
}
