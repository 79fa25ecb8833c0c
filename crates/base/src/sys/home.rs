//! Which process this memory belongs to. A child of vfork, or of clone with `CLONE_VM`, has its parent's memory and a
//! number of its own.
//!
//! Process 1 of a PID namespace can have a child that is process 1 of another one. So the kernel is asked for a second
//! name there: where /proc was mounted, each process has a number of its own. Without /proc that child counts as its
//! parent.

use core::sync::atomic::{AtomicI32, Ordering};

use super::raw::direct;

/// The number of the process; 0: not known yet.
static HOME: AtomicI32 = AtomicI32::new(0);
/// What /proc calls it, if it is process 1; 0: not known.
static NAME: AtomicI32 = AtomicI32::new(0);

/// This memory belongs to this process, which has this number.
pub fn note(number: i32) {
    NAME.store(if number == 1 { name() } else { 0 }, Ordering::Relaxed);
    HOME.store(number, Ordering::Relaxed);
}

/// The number of the process that the memory belongs to; 0: not known yet.
pub fn number() -> i32 {
    HOME.load(Ordering::Relaxed)
}

/// Whether the memory belongs to this process, which has this number.
pub fn is(number: i32) -> bool {
    match HOME.load(Ordering::Relaxed) {
        0 => true,
        1 => number == 1 && has_name(),
        home => home == number,
    }
}

#[cold]
fn has_name() -> bool {
    // Where there is no answer now, or was none, the number alone decides.
    let noted = NAME.load(Ordering::Relaxed);
    noted == 0 || [0, noted].contains(&name())
}

/// What /proc calls this process; 0: it does not say.
fn name() -> i32 {
    let mut text = [0u8; 16];
    let args =
        [libc::AT_FDCWD as usize, c"/proc/self".as_ptr() as usize, text.as_mut_ptr() as usize, text.len(), 0, 0];
    // Whether a thread may make calls depends on the answer. Who asks has made sure.
    // SAFETY: a path that ends with zero, and a buffer of the length given.
    let length = unsafe { direct(libc::SYS_readlinkat, args) }.unwrap_or(0);
    text[..length].iter().fold(0, |number: i32, digit| match digit {
        b'0'..=b'9' => number.wrapping_mul(10).wrapping_add(i32::from(digit - b'0')),
        _ => 0,
    })
}
