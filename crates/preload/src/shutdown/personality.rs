//! A personality that makes readable memory executable (`READ_IMPLIES_EXEC`). The kernel maps new memory so from then on,
//! and the arena is old memory. A program sets it while it runs: exec clears it.

use core::ffi::{c_int, c_ulong};

use crate::kernel::call::status;
use crate::kernel::libraries_behind::Call;
use crate::runtime::retire;

/// A question for the present one.
const QUESTION: u32 = u32::MAX;

/// Before personality(2).
pub fn before(new: c_ulong) {
    // The kernel looks at 32 bits.
    let new = new as u32;
    if new != QUESTION && new & libc::READ_IMPLIES_EXEC as u32 != 0 {
        retire::retire();
    }
}

/// As personality(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn personality(new: c_ulong) -> c_int {
    before(new);
    // SAFETY: no pointers.
    status(unsafe { Call::Personality.pass_on([new as usize, 0, 0, 0, 0, 0]) })
}
