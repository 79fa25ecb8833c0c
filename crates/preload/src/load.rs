//! What happens when the library is loaded, before `main`.

use faultless_base::sys::raw;
use faultless_page::knobs::Knob;

use crate::alloc::{info, next, perturb};
use crate::kernel::{dispatch, libraries_behind};
use crate::runtime::settings::{is_on, var};
use crate::runtime::{engine, first_thread, fork, inside, settings};
use crate::shutdown::{limits, sandbox};

const LIBRARY: &[u8] = b"libfaultless_preload.so";

/// Runs before `main`: sees to forks, finds the allocator behind ours, and, with `FAULTLESS_NO_CHILDREN`, takes this
/// library out of what children inherit.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn(libc::c_int, *const *const libc::c_char) = {
    extern "C" fn before_main(count: libc::c_int, words: *const *const libc::c_char) {
        engine::note_home();
        // SAFETY: the GNU C library hands constructors the words of the command, with their number.
        let words = unsafe { core::slice::from_raw_parts(words, count.max(0) as usize) };
        settings::read_environment(words);
        raw::ask_before_calls(inside::may_call);
        fork::watch();
        // A thread with little stack, or a signal handler, may be the first one to ask for memory.
        next::look_up_all();
        next::look_for_others();
        libraries_behind::look_up();
        dispatch::look_up();
        #[cfg(target_arch = "x86_64")]
        crate::pinned::sends::look_up();
        sandbox::look_up();
        limits::look_up();
        info::look_up();
        first_thread::look_up();
        perturb::look_up(var(c"MALLOC_PERTURB_"), var(c"GLIBC_TUNABLES"));
        if is_on(Knob::NoChildren) {
            leave_to_children();
        }
    }
    before_main
};

/// `LD_PRELOAD` without this library. Runs before `main`, when no other thread reads the environment.
fn leave_to_children() {
    let Some(all) = var(c"LD_PRELOAD") else { return };
    // SAFETY: a block that is freed below; the value with its end, and never more, is written to it.
    unsafe {
        let kept = next::malloc(all.len() + 1).cast::<u8>();
        if kept.is_null() {
            return;
        }
        let mut end = 0;
        for path in all.split(|b| matches!(b, b':' | b' ')) {
            if path.is_empty() || path.ends_with(LIBRARY) {
                continue;
            }
            if end > 0 {
                kept.add(end).write(b':');
                end += 1;
            }
            kept.add(end).copy_from_nonoverlapping(path.as_ptr(), path.len());
            end += path.len();
        }
        kept.add(end).write(0);
        match end {
            0 => libc::unsetenv(c"LD_PRELOAD".as_ptr()),
            _ => libc::setenv(c"LD_PRELOAD".as_ptr(), kept.cast(), 1),
        };
        next::free(kept.cast());
    }
}
