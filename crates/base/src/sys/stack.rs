//! Stacks for calls that need more than a program's thread may have. They lie in this library's own memory: a mapping of
//! the moment could be where the program has just unmapped something, and expects nothing.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

use super::raw;

/// Bytes of one. No page below stops a call that needs more; memory is taken only as far as a call comes.
pub const BYTES: usize = 128 << 10;
/// Threads that have one at a time.
const STACKS: usize = 3;

#[repr(align(64))]
struct Stack {
    memory: UnsafeCell<[u8; BYTES]>,
    is_taken: AtomicBool,
}

// SAFETY: the memory belongs to the thread that has set `is_taken`.
unsafe impl Sync for Stack {}

static ALL: [Stack; STACKS] =
    [const { Stack { memory: UnsafeCell::new([0; BYTES]), is_taken: AtomicBool::new(false) } }; STACKS];

/// A stack, until this is dropped.
pub(super) struct Taken(&'static Stack);

impl Taken {
    /// `None`: other threads have all.
    pub(super) fn new() -> Option<Self> {
        ALL.iter().find(|stack| !stack.is_taken.swap(true, Ordering::Acquire)).map(Self)
    }

    /// Its upper end.
    pub(super) fn top(&self) -> usize {
        self.0.memory.get() as usize + BYTES
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.is_taken.store(false, Ordering::Release);
    }
}

/// In a forked child: the threads that had one are not here.
pub(super) fn forget() {
    ALL.iter().for_each(|stack| stack.is_taken.store(false, Ordering::Relaxed));
}

/// Calls `f` on a stack of its own, without signals: a handler might not know that stack. `None`: other threads have
/// all.
pub fn with_room<R>(f: impl FnOnce() -> R) -> Option<R> {
    once(f, on_another)
}

fn on_another(mut f: &mut dyn FnMut()) {
    raw::without_signals(|| {
        if let Some(stack) = Taken::new() {
            // SAFETY: no other thread has the stack, and `run` expects this function; it outlives the call.
            unsafe { switch(stack.top(), (&raw mut f).cast(), run) };
        }
    });
}

/// Has `how` call `f`, or not: what it gave. All callers share the code of `how`.
pub(super) fn once<R>(f: impl FnOnce() -> R, how: impl FnOnce(&mut dyn FnMut())) -> Option<R> {
    let (mut f, mut result) = (Some(f), None);
    how(&mut || result = f.take().map(|f| f()));
    result
}

/// # Safety
/// `f` must be a `&mut dyn FnMut()` that no other code uses.
pub(super) unsafe extern "C" fn run(f: *mut u8) {
    // SAFETY: by contract.
    unsafe { (*f.cast::<&mut dyn FnMut()>())() };
}

/// # Safety
/// `top` must be the upper end of unused memory, and `f` may be called with `argument`.
#[cfg(target_arch = "x86_64")]
unsafe fn switch(top: usize, argument: *mut u8, f: unsafe extern "C" fn(*mut u8)) {
    // SAFETY: by contract; the callee keeps r12, where the present stack is meanwhile.
    unsafe {
        core::arch::asm!("xchg rsp, r12", "call {f}", "mov rsp, r12",
            f = in(reg) f, inout("r12") top & !15 => _, in("rdi") argument, clobber_abi("C"));
    }
}

/// # Safety
/// As above.
#[cfg(target_arch = "aarch64")]
unsafe fn switch(top: usize, argument: *mut u8, f: unsafe extern "C" fn(*mut u8)) {
    // SAFETY: by contract; the callee keeps x20, where the present stack is meanwhile.
    unsafe {
        core::arch::asm!("mov x21, sp", "mov sp, x20", "mov x20, x21", "blr {f}", "mov sp, x20",
            f = in(reg) f, inout("x20") top & !15 => _, out("x21") _, in("x0") argument, clobber_abi("C"));
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;

    #[test]
    fn a_call_with_room_has_its_own_stack_and_gives_its_result() {
        let here = 0u8;
        let at = |local: &u8| core::ptr::from_ref(local) as usize;
        let (there, sum) = with_room(|| {
            let local = [1u8; 32 << 10];
            (at(&local[0]), local.iter().map(|byte| *byte as usize).sum::<usize>())
        })
        .unwrap();
        assert_eq!(sum, 32 << 10);
        assert!(there.abs_diff(at(&here)) > 32 << 10);
    }
}
