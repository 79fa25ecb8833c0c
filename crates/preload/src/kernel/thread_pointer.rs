//! Whether a thread has thread-local variables.
//!
//! A thread that a program makes by a bare `clone` may have none. Its thread pointer is zero or a number, or it
//! names a block of zeroes or one of the program's own kind. It may call what needs none in the C library, which
//! is most of what stands before ours.
//!
//! So a thread pointer is followed only once it is known to name memory. The kernel is asked once for each, and a table
//! keeps the answer. Entries stay: a thread that the C library makes where another one ended is known. Where the table has
//! no room for a pointer, it passes for one that names memory.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::kernel::call::fetch;

/// Whether the thread pointer can be read by an instruction.
static IS_READABLE: AtomicBool = AtomicBool::new(false);

/// Words of the C library's control block of a thread, of which the first and the last have its address.
const WORDS: usize = 3;
/// A control block of the C library's is aligned so, for the registers that it holds. These words are in one page.
const ALIGNMENT: usize = 32;

/// Of pointers, at most.
const SLOTS: usize = 4096;
/// How many places of the table may have a pointer, from its own on.
const PLACES: usize = 16;
/// Beside a pointer: it names no memory.
const NAMES_NONE: usize = 1;

/// Thread pointers that were looked at; 0: no more behind. Only written where it was 0.
static KNOWN: [AtomicUsize; SLOTS] = [const { AtomicUsize::new(0) }; SLOTS];

/// What is known of the calling thread.
pub enum Variables {
    /// It has thread-local variables.
    Some,
    /// It has none.
    None,
    /// Its thread pointer is to be looked at first.
    Unknown(Pointer),
}

/// A thread pointer that may name no memory.
#[derive(Clone, Copy)]
pub struct Pointer(usize);

#[cfg(target_arch = "x86_64")]
fn own() -> usize {
    let at: usize;
    // SAFETY: reads a register. The caller has seen that it can be read.
    unsafe { core::arch::asm!("rdfsbase {}", out(reg) at, options(nomem, nostack, preserves_flags)) };
    at
}

#[cfg(not(target_arch = "x86_64"))]
fn own() -> usize {
    0
}

/// Runs before `main`, in a thread of the C library's.
pub fn look_up() {
    #[cfg(target_arch = "x86_64")]
    {
        /// In `AT_HWCAP2`: programs may use `rdfsbase`.
        const FSGSBASE: u64 = 1 << 1;
        // SAFETY: no memory.
        let has = unsafe { libc::getauxval(libc::AT_HWCAP2) };
        if has & FSGSBASE != 0 {
            note(own());
            IS_READABLE.store(true, Ordering::Relaxed);
        }
    }
}

/// The places that a pointer may have.
#[inline]
fn places(at: usize) -> impl Iterator<Item = &'static AtomicUsize> {
    const BITS: u32 = SLOTS.trailing_zeros();
    let first = (at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - BITS);
    (0..PLACES).map(move |i| &KNOWN[(first as usize + i) % SLOTS])
}

/// Keeps what is known of a pointer, if there is room.
fn note(entry: usize) {
    for place in places(entry & !NAMES_NONE) {
        match place.compare_exchange(0, entry, Ordering::Relaxed, Ordering::Relaxed) {
            Err(other) if (other ^ entry) & !NAMES_NONE != 0 => {}
            _ => return,
        }
    }
}

/// Whether the calling thread has thread-local variables. Where that cannot be known, it passes for one that has.
#[inline]
pub fn variables() -> Variables {
    if !IS_READABLE.load(Ordering::Relaxed) {
        return Variables::Some;
    }
    let at = own();
    // Nearly all pointers are at the first of their places.
    if places(at).next().is_some_and(|place| place.load(Ordering::Relaxed) == at) && at != 0 {
        return if Pointer(at).follow() { Variables::Some } else { Variables::None };
    }
    look_for(at)
}

#[cold]
#[inline(never)]
fn look_for(at: usize) -> Variables {
    // Below that no program has memory, as a rule.
    const LOWEST: usize = 1 << 16;
    if at < LOWEST || at % ALIGNMENT != 0 {
        return Variables::None;
    }
    for place in places(at) {
        match place.load(Ordering::Relaxed) {
            0 => return Variables::Unknown(Pointer(at)),
            entry if entry == at => break,
            entry if entry == at | NAMES_NONE => return Variables::None,
            _ => {}
        }
    }
    if Pointer(at).follow() { Variables::Some } else { Variables::None }
}

impl Pointer {
    /// Whether it names a control block of the C library's. One of a program's own may have its address in the first word,
    /// as compilers expect it.
    #[inline]
    pub fn follow(self) -> bool {
        let word = self.0 as *const usize;
        // SAFETY: it names memory, or cannot be looked at.
        unsafe { word.read_volatile() == self.0 && word.add(WORDS - 1).read_volatile() == self.0 }
    }

    /// The same by two system calls. The answer stays.
    pub fn look(self) -> bool {
        let words = fetch(self.0 as *const [usize; WORDS]);
        note(if words.is_some() { self.0 } else { self.0 | NAMES_NONE });
        words.is_some_and(|words| words[0] == self.0 && words[WORDS - 1] == self.0)
    }
}
