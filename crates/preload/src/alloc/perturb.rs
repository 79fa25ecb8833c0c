//! Programs that have the C library fill their blocks (`M_PERTURB`) get blocks of its own.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use faultless_base::sys::raw::leading_number;

use crate::alloc;
use crate::kernel::behind::{self, Function};

const M_PERTURB: c_int = -6;

/// Requests from before the next function was known, in order: options and values, and how many.
static ASKED: [[AtomicI32; 2]; 8] = [const { [const { AtomicI32::new(0) }; 2] }; 8];
static N_ASKED: AtomicUsize = AtomicUsize::new(0);

/// Keeps an option for later; whether there was room.
fn keep(option: c_int, value: c_int) -> c_int {
    let n = N_ASKED.load(Ordering::Relaxed);
    let Some([kept_option, kept_value]) = ASKED.get(n) else { return 0 };
    kept_option.store(option, Ordering::Relaxed);
    kept_value.store(value, Ordering::Relaxed);
    N_ASKED.store(n + 1, Ordering::Relaxed);
    1
}

/// Runs before `main`: makes the requests that were kept, and looks at what the environment says.
pub fn look_up(variable: Option<&[u8]>, tunables: Option<&[u8]>) {
    for [option, value] in ASKED.iter().take(N_ASKED.load(Ordering::Relaxed)) {
        pass_on(option.load(Ordering::Relaxed), value.load(Ordering::Relaxed));
    }
    let named = |setting: &[u8]| setting.strip_prefix(b"glibc.malloc.perturb=").is_some_and(is_on);
    if variable.is_some_and(is_on) || tunables.is_some_and(|all| all.split(|byte| *byte == b':').any(named)) {
        alloc::stop_serving();
    }
}

/// Whether a number, in any notation, is not 0.
fn is_on(number: &[u8]) -> bool {
    number.starts_with(b"0x") || leading_number(number).is_some_and(|number| number != 0)
}

/// As mallopt(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mallopt(option: c_int, value: c_int) -> c_int {
    if option == M_PERTURB && value & 0xFF != 0 {
        alloc::stop_serving();
    }
    if behind::is_known() { pass_on(option, value) } else { keep(option, value) }
}

fn pass_on(option: c_int, value: c_int) -> c_int {
    let next = behind::next(Function::Mallopt);
    if next == 0 {
        return 0;
    }
    // SAFETY: the function of that name.
    unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(c_int, c_int) -> c_int>(next)(option, value) }
}
