//! What happens when the library is loaded, before `main`.

use faultless_base::sys::raw;
use faultless_page::knobs::Knob;

use crate::alloc::{next, perturb};
use crate::kernel::behind::{self, Function};
use crate::kernel::preloads::write_others;
use crate::kernel::thread_pointer;
use crate::runtime::settings::{is_on, var};
use crate::runtime::{engine, fork, inside, settings};

/// Runs before `main`: finds the functions behind ours, sees to forks, and, with `FAULTLESS_NO_CHILDREN`, takes this
/// library out of what children inherit.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn(libc::c_int, *const *const libc::c_char) = {
    extern "C" fn before_main(count: libc::c_int, words: *const *const libc::c_char) {
        #[cfg(target_arch = "x86_64")]
        crate::pinned::sends::look_up();
        if behind::is_glibc() {
            // SAFETY: the GNU C library hands constructors the words of the command, with their number.
            begin(unsafe { core::slice::from_raw_parts(words, count.max(0) as usize) });
        }
        if is_on(Knob::NoChildren) {
            leave_to_children();
        }
    }
    before_main
};

/// Makes ready what large requests take. Without that every call passes on.
fn begin(words: &[*const libc::c_char]) {
    thread_pointer::look_up();
    // SAFETY: the functions of these names.
    unsafe { raw::use_own(behind::next(Function::ClockGettime), behind::next(Function::SchedGetcpu)) };
    engine::note_home();
    settings::read_environment(words);
    raw::ask_before_calls(inside::may_call);
    fork::watch();
    next::look_for_others();
    perturb::look_up(var(c"MALLOC_PERTURB_"), var(c"GLIBC_TUNABLES"));
}

/// `LD_PRELOAD` without this library. Runs before `main`, when no other thread reads the environment.
fn leave_to_children() {
    let Some(all) = var(c"LD_PRELOAD") else { return };
    let bytes = all.len() + 1;
    // SAFETY: a block of that size, which is filled before it is a slice, and freed below; the C library copies it.
    unsafe {
        let kept = next::malloc(bytes).cast::<u8>();
        if kept.is_null() {
            return;
        }
        kept.write_bytes(0, bytes);
        match write_others(all, core::slice::from_raw_parts_mut(kept, bytes)) {
            None => 0,
            Some(0) => libc::unsetenv(c"LD_PRELOAD".as_ptr()),
            Some(_) => libc::setenv(c"LD_PRELOAD".as_ptr(), kept.cast(), 1),
        };
        next::free(kept.cast());
    }
}
