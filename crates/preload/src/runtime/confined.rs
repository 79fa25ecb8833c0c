//! How a thread is confined: a word of each thread, because a filter of system calls is a thread's. To read it takes
//! no system call, which might end the program.
//!
//! A child that shares its parent's memory (vfork, clone with `CLONE_VM`) shares this word, too. The kernel sets it
//! back to 0 when the child ends or becomes another program (set_tid_address). Meanwhile the parent's thread waits,
//! as after vfork, or does without the engine.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::kernel::dispatch::syscall;
use crate::runtime::inside::has_variables;
use crate::runtime::settings;
use crate::runtime::variable::thread_variable;

thread_variable!(variable, AtomicU32, "faultless_confined", 4);

/// It may make any call.
pub const FREE: u32 = 0;
/// It shares its parent's memory and has a limit of its own: it does without the engine.
pub const LIMITED: u32 = 1;
/// It shares its parent's memory and may make few system calls: it does without the engine, and without calls that
/// the program did not make.
pub const FILTERED: u32 = 2;
/// It may only read, write and exit.
pub const STRICT: u32 = 3;

/// This thread's word. `None`: it has none, and is [`FREE`]; or this library may not be linked, nor the word have an
/// address.
#[inline]
fn own() -> Option<&'static AtomicU32> {
    (settings::are_read() && has_variables()).then(word)
}

#[inline]
fn word() -> &'static AtomicU32 {
    // SAFETY: the variable lives as long as the thread, which is the only one that gets its address.
    unsafe { &*variable() }
}

/// The word's address in a thread that has variables.
pub fn place() -> usize {
    variable() as usize
}

/// How this thread is confined.
#[inline]
pub fn now() -> u32 {
    own().map_or(FREE, |word| word.load(Ordering::Relaxed))
}

/// Whether this is a child that has to do without its parent's engine.
#[inline]
pub fn is_apart() -> bool {
    matches!(now(), LIMITED | FILTERED)
}

/// The same in a thread that has variables, once settings are read.
#[inline]
pub fn is_thread_apart() -> bool {
    matches!(word().load(Ordering::Relaxed), LIMITED | FILTERED)
}

/// This thread is confined.
pub fn set(how: u32) {
    if let Some(word) = own() {
        word.store(how, Ordering::Relaxed);
    }
}

/// Has the kernel set the word back to 0 at the end of this process, which shares its memory. False where it cannot:
/// the process needs the kernel to do that with another word.
pub fn ends_with_process() -> bool {
    const PR_GET_TID_ADDRESS: usize = 40;
    let mut other = 0usize;
    let args = [PR_GET_TID_ADDRESS, &raw mut other as usize, 0, 0, 0, 0];
    let Some(own) = own().map(|word| core::ptr::from_ref(word) as usize) else { return false };
    // SAFETY: the address of a word that the kernel writes to, and of one that outlives this process.
    unsafe {
        let known = syscall(libc::SYS_prctl, args).is_ok();
        known && (other == 0 || other == own) && syscall(libc::SYS_set_tid_address, [own, 0, 0, 0, 0, 0]).is_ok()
    }
}
