//! vfork. Its child shares its parent's memory, and may be killed at any moment: it would leave locks and counts of
//! the engine held for ever. So it does without the engine, but for notes. The state of the parent's thread says so;
//! that thread waits, and finds its state again behind the call, however the child has ended.

use core::ptr::null_mut;

use crate::kernel::behind::{Function, is_foreign, next};
use crate::kernel::call::fail;
use crate::kernel::dispatch;
use crate::runtime::{engine, inside};

/// How a call goes on.
#[repr(C)]
struct Begin {
    /// The function that makes it; 0: ours.
    to: usize,
    /// The state of this thread, to be marked; may be null.
    state: *mut u32,
}

unsafe extern "C" fn begin() -> Begin {
    let is_ours = engine::running().is_some() && !dispatch::has_begun() && !is_foreign(Function::Vfork);
    match inside::state_word().filter(|_| is_ours) {
        Some(state) => Begin { to: 0, state },
        None => Begin { to: next(Function::Vfork), state: null_mut() },
    }
}

/// As vfork(2). The child returns to where the parent will: the return address is in a register meanwhile.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfork() {
    core::arch::naked_asm!(
        "sub rsp, 8",
        "call {begin}",
        "add rsp, 8",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2:",
        "mov rsi, rdx",
        "test rsi, rsi",
        "jz 3f",
        "mov edx, dword ptr [rsi]",
        "3:",
        "pop rdi",
        "mov eax, {number}",
        "syscall",
        "push rdi",
        "test rsi, rsi",
        "jz 5f",
        "test rax, rax",
        "jnz 4f",
        "mov edx, {child}",
        "4:",
        "mov dword ptr [rsi], edx",
        "5:",
        "cmp rax, -4095",
        "jae 6f",
        "ret",
        "6:",
        "neg eax", "mov edi, eax", "jmp {fail}",
        begin = sym begin,
        number = const libc::SYS_vfork,
        child = const inside::CHILD,
        fail = sym fail,
    )
}
