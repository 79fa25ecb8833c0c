//! A stack for what needs more of it than a program's thread may have.

use super::raw::{self, Access};

const BYTES: usize = 64 << 10;

/// Calls `f` on a fresh stack, without signals: a handler might not know that stack. Where there is no memory for
/// one, on the present stack.
pub fn with_room<R, F: FnOnce() -> R>(f: F) -> R {
    let Some(stack) = raw::map_private(BYTES, Access::Write) else { return f() };
    let mut call = Call { f: Some(f), result: None };
    // SAFETY: a stack of its own, and `call` is what this instance of `run` expects; it outlives the call.
    raw::without_signals(|| unsafe { switch(stack + BYTES, (&raw mut call).cast(), run::<R, F>) });
    // SAFETY: mapped above; the call is over.
    unsafe { raw::unmap(stack, BYTES) };
    call.result.expect("the call has returned")
}

struct Call<F, R> {
    f: Option<F>,
    result: Option<R>,
}

/// # Safety
/// `call` must be a `Call<F, R>` that no other code uses.
unsafe extern "C" fn run<R, F: FnOnce() -> R>(call: *mut u8) {
    // SAFETY: by contract.
    let call = unsafe { &mut *call.cast::<Call<F, R>>() };
    call.result = call.f.take().map(|f| f());
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
        });
        assert_eq!(sum, 32 << 10);
        assert!(there.abs_diff(at(&here)) > 32 << 10);
    }
}
