//! A stack of this command's own: `ulimit -s` is for the program.

use std::process::ExitCode;
use std::ptr::null_mut;
use std::sync::Mutex;

use super::sys;

/// What everything here fits into, also without optimisation.
const BYTES: usize = 8 << 20;
const PAGE: usize = 4096;

type Main = fn() -> ExitCode;

/// What is called on the other stack, and what it gave.
static CALL: Mutex<(Option<Main>, ExitCode)> = Mutex::new((None, ExitCode::FAILURE));

extern "C" fn enter() {
    let main = CALL.lock().ok().and_then(|mut call| call.0.take());
    let status = main.map_or(ExitCode::FAILURE, |main| main());
    if let Ok(mut call) = CALL.lock() {
        call.1 = status;
    }
}

/// Calls `main`, on a stack of its own if this process's may not grow enough.
pub fn with_room(main: Main) -> ExitCode {
    let is_enough = sys::limit(libc::RLIMIT_STACK).is_none_or(|most| most >= BYTES as u64);
    let stack = if is_enough { None } else { stack() };
    let (Some(stack), Ok(mut call)) = (stack, CALL.lock()) else { return main() };
    call.0 = Some(main);
    drop(call);
    // SAFETY: zero bytes are a value of both contexts, which the calls fill in. The second one begins at the lower end of
    // memory that no other code uses, and goes on in the first one when `enter` returns.
    unsafe {
        let (mut here, mut there): (libc::ucontext_t, libc::ucontext_t) = (std::mem::zeroed(), std::mem::zeroed());
        libc::getcontext(&mut there);
        (there.uc_stack.ss_sp, there.uc_stack.ss_size) = (stack, BYTES);
        there.uc_link = &mut here;
        libc::makecontext(&mut there, enter, 0);
        libc::swapcontext(&mut here, &there);
    }
    CALL.lock().map_or(ExitCode::FAILURE, |call| call.1)
}

/// New memory for a stack, below it a page that is closed.
fn stack() -> Option<*mut libc::c_void> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
    // SAFETY: a new mapping, of which one page is closed.
    unsafe {
        let map = libc::mmap(null_mut(), BYTES + PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        if map == libc::MAP_FAILED || libc::mprotect(map, PAGE, libc::PROT_NONE) != 0 {
            return None;
        }
        Some(map.byte_add(PAGE))
    }
}
