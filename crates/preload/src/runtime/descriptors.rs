//! close_range(2) with `CLOSE_RANGE_UNSHARE`: the program's thread gets a table of descriptors of its own, unless it has
//! one already. The background thread has the program's table for a moment, when it starts. Then a program with one
//! thread would get another table, and lose its record locks with the old one. So that moment passes first.

use core::ffi::{c_int, c_uint};

use faultless_base::sys::raw::{self, Answer};
use faultless_base::sys::thread;

use crate::kernel::call::status;
use crate::kernel::libraries_behind::Call;
use crate::runtime::inside::Inside;
use crate::runtime::{confined, engine};

/// close_range, made by `make`.
pub fn close_range_by(flags: usize, make: impl FnOnce() -> Answer) -> Answer {
    // A forked child has no such thread before it makes the engine its own. A child of vfork has another table than its
    // parent. Where the service has ended none is started.
    let may_start = || engine::running().is_some_and(|engine| engine.is_settled() && !engine.is_retired());
    // The kernel looks at 32 bits.
    let is_apart = flags as u32 & libc::CLOSE_RANGE_UNSHARE != 0;
    if !is_apart || confined::is_apart() || !may_start() || !engine::is_home() {
        return make();
    }
    // No handler starts the thread between the look and the call.
    let _inside = Inside::enter_call();
    if raw::may_call() {
        thread::wait_for_own_files();
    }
    make()
}

/// As close_range(2), which the C library has since 2.34.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let args = [first as usize, last as usize, flags as u32 as usize, 0, 0, 0];
    // SAFETY: the caller's promise.
    status(close_range_by(args[2], || unsafe { Call::CloseRange.pass_on(args) }))
}
