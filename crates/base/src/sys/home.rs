//! Which process this memory belongs to. A child of vfork, or of clone with `CLONE_VM`, has its parent's memory and a
//! number of its own.
//!
//! In a PID namespace of its own such a child may have its parent's number. Process 1 has a child that is process 1 of
//! another namespace, and process 2 a grandchild that is process 2 there. So the kernel is asked for the namespace, too.
//! A process never leaves its own, and each /proc that shows the process names that alike, whatever is mounted later.
//! Where /proc does not show it, the number alone decides: such a child counts as its parent.
//!
//! For process 1 the question is always asked. Others are spared it until a child with such numbers is announced
//! ([`expect_namespace`]).

use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use super::raw::{direct, leading_number};

/// The number of the process; 0: not known yet.
static HOME: AtomicI32 = AtomicI32::new(0);
/// The namespace that the number is of; 0: not known, or not asked for.
static NAMESPACE: AtomicU64 = AtomicU64::new(0);

/// This memory belongs to this process, which has this number.
pub fn note(number: i32) {
    // Once a child was announced it is asked for again: the same number may be one of another namespace now.
    let was_asked = NAMESPACE.load(Ordering::Relaxed) != 0 && HOME.load(Ordering::Relaxed) == number;
    let namespace = if number == 1 || was_asked { namespace() } else { 0 };
    NAMESPACE.store(namespace, Ordering::Relaxed);
    HOME.store(number, Ordering::Relaxed);
}

/// This process, which has this number, is about to have a child that shares its memory and has numbers of a namespace
/// of its own.
pub fn expect_namespace(number: i32) {
    if HOME.load(Ordering::Relaxed) == number && NAMESPACE.load(Ordering::Relaxed) == 0 {
        NAMESPACE.store(namespace(), Ordering::Relaxed);
    }
}

/// The number of the process that the memory belongs to; 0: not known yet.
pub fn number() -> i32 {
    HOME.load(Ordering::Relaxed)
}

/// Whether the memory belongs to this process, which has this number.
pub fn is(number: i32) -> bool {
    match HOME.load(Ordering::Relaxed) {
        0 => true,
        home => home == number && is_in_namespace(NAMESPACE.load(Ordering::Relaxed)),
    }
}

#[inline]
fn is_in_namespace(noted: u64) -> bool {
    // Where there is no answer now, or was none, the number alone decides.
    noted == 0 || [0, noted].contains(&namespace())
}

/// The namespace in which this process has its number; 0: /proc does not say.
#[cold]
fn namespace() -> u64 {
    let mut text = [0u8; 40];
    let args = [
        libc::AT_FDCWD as usize,
        c"/proc/self/ns/pid".as_ptr() as usize,
        text.as_mut_ptr() as usize,
        text.len(),
        0,
        0,
    ];
    // Whether a thread may make calls depends on the answer. The caller has made sure.
    // SAFETY: a path that ends with zero, and a buffer of the length given.
    let length = unsafe { direct(libc::SYS_readlinkat, args) }.unwrap_or(0);
    text[..length].strip_prefix(b"pid:[").and_then(leading_number).unwrap_or(0)
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_namespace_has_the_number_of_its_file() {
        let file = std::fs::metadata("/proc/self/ns/pid").expect("/proc");
        assert_eq!(namespace(), file.ino());
        let in_a_thread = std::thread::spawn(namespace).join().expect("a thread");
        assert_eq!(in_a_thread, file.ino());
    }

    #[test]
    fn an_equal_number_counts_in_its_namespace_alone() {
        let ours = namespace();
        assert!(is_in_namespace(ours) && is_in_namespace(0));
        assert!(!is_in_namespace(ours + 1));
    }
}
