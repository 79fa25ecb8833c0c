//! send(2) and its like. Bytes that are sent with `MSG_ZEROCOPY` leave from the program's own pages, perhaps after
//! they were unmapped. vmsplice(2) is among them: the pipe holds the pages themselves.
//!
//! Each jumps to the next function of its name: a thread may be cancelled there, and then nothing of ours is on its
//! stack.

use core::arch::naked_asm;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::kernel::behind::{self, Function};
use crate::kernel::call::size;
use crate::kernel::dispatch::syscall;
use crate::pinned::{before_send, before_vmsplice, vmsplice_early};

// The instructions below have it as a number.
const _: () = assert!(libc::MSG_ZEROCOPY == 0x400_0000);

/// A constructor of another library is earlier than this one's.
extern "C" fn look_up_early() {
    look_up();
}

/// Before the next functions can be known: straight to the kernel.
unsafe extern "C" fn send_early(socket: usize, data: usize, bytes: usize, flags: usize) -> isize {
    // SAFETY: the caller's promise.
    unsafe { sendto_early(socket, data, bytes, flags, 0, 0) }
}

unsafe extern "C" fn sendto_early(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
    // SAFETY: the caller's promise.
    size(unsafe { syscall(libc::SYS_sendto, [a, b, c, d, e, f]) })
}

unsafe extern "C" fn sendmsg_early(socket: usize, message: usize, flags: usize) -> isize {
    // SAFETY: the caller's promise.
    size(unsafe { syscall(libc::SYS_sendmsg, [socket, message, flags, 0, 0, 0]) })
}

unsafe extern "C" fn sendmmsg_early(socket: usize, messages: usize, n: usize, flags: usize) -> isize {
    // SAFETY: the caller's promise.
    size(unsafe { syscall(libc::SYS_sendmmsg, [socket, messages, n, flags, 0, 0]) })
}

// For each name: which calls are looked at before, by what function, and how it gets its arguments.
macro_rules! sends {
    ($($name:ident, $function:ident, $next:ident, $early:ident, [$($when:literal),+] $before:ident [$($give:literal),+];)+) => {
        $(
            static $next: AtomicUsize = AtomicUsize::new(0);

            #[doc = concat!("As ", stringify!($name), "(2).")]
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name() {
                naked_asm!(
                    $($when,)+
                    "2:",
                    "mov rax, qword ptr [rip + {next}]",
                    "test rax, rax",
                    "jz 4f",
                    "jmp rax",
                    "4:",
                    "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "sub rsp, 8",
                    "call {look_up}",
                    "add rsp, 8", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                    "mov rax, qword ptr [rip + {next}]",
                    "test rax, rax",
                    "jz {early}",
                    "jmp rax",
                    "3:",
                    "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "sub rsp, 8",
                    $($give,)+
                    "call {before}",
                    "add rsp, 8", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                    "jmp 2b",
                    next = sym $next,
                    early = sym $early,
                    look_up = sym look_up_early,
                    before = sym $before,
                )
            }
        )+

        /// Runs before `main`.
        pub fn look_up() {
            $(
                $next.store(behind::next(Function::$function), Ordering::Relaxed);
            )+
        }
    };
}

sends! {
    send, Send, SEND, send_early, ["test ecx, 0x4000000", "jnz 3f"] before_send ["mov edi, ecx"];
    sendto, Sendto, SENDTO, sendto_early, ["test ecx, 0x4000000", "jnz 3f"] before_send ["mov edi, ecx"];
    sendmsg, Sendmsg, SENDMSG, sendmsg_early, ["test edx, 0x4000000", "jnz 3f"] before_send ["mov edi, edx"];
    sendmmsg, Sendmmsg, SENDMMSG, sendmmsg_early, ["test ecx, 0x4000000", "jnz 3f"] before_send ["mov edi, ecx"];
    vmsplice, Vmsplice, VMSPLICE, vmsplice_early, ["jmp 3f"] before_vmsplice ["mov rdi, rsi", "mov rsi, rdx"];
}
