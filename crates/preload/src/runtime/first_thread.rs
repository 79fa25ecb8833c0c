//! Before the program's first thread: afterwards no file can be put in its table of descriptors without another
//! thread seeing that (`base/src/sys/open.rs`). So what the engine needs there for the program's threads is opened
//! here, whether or not it has started.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use faultless_base::sys::linux;

use crate::kernel::call::pid;
use crate::kernel::library::find;
use crate::runtime::{engine, settings};

/// The process in which that was done.
static PREPARED: AtomicI32 = AtomicI32::new(0);

fn prepare() {
    let process = pid();
    if PREPARED.swap(process, Ordering::Relaxed) != process && !engine::is_retired() && settings::may_serve() {
        linux::keep_descriptors();
    }
}

/// The next function of a name. Before `main` it may not be known yet.
fn next(place: &AtomicUsize, name: &CStr) -> usize {
    if place.load(Ordering::Relaxed) == 0 {
        place.store(find(name), Ordering::Relaxed);
    }
    place.load(Ordering::Relaxed)
}

/// Runs before `main`: later another thread may be loading a library, and wait for this one.
pub fn look_up() {
    NEXT.iter().zip(NAMES).for_each(|(place, name)| _ = next(place, name));
}

const NAMES: [&CStr; 2] = [c"pthread_create", c"thrd_create"];
static NEXT: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];

macro_rules! starts {
    ($($name:ident, $place:literal, ($($arg:ident: $type:ty),+), $fails:expr;)+) => { $(
        #[doc = concat!("As ", stringify!($name), "(3).")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),+) -> c_int {
            prepare();
            match next(&NEXT[$place], NAMES[$place]) {
                0 => $fails,
                // SAFETY: the function of that name, with the caller's arguments.
                next => unsafe {
                    core::mem::transmute::<usize, unsafe extern "C" fn($($type),+) -> c_int>(next)($($arg),+)
                },
            }
        }
    )+ };
}

/// `thrd_error` of the C library.
const THRD_ERROR: c_int = 2;

starts! {
    pthread_create, 0,
        (id: *mut c_void, attributes: *const c_void, start: *const c_void, argument: *mut c_void), libc::EAGAIN;
    thrd_create, 1, (id: *mut c_void, start: *const c_void, argument: *mut c_void), THRD_ERROR;
}
