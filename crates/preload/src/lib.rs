//! The library that `faultless run` loads into a program.
//!
//! It puts itself before the C library's allocation and mapping calls. Small requests pass on at the cost of a
//! comparison; the first large one, or the first thread, starts the engine (`runtime/engine.rs`), later ones are
//! served from its arena. Whatever is not understood is handed to the kernel unchanged.
//!
//! Without Rust's std and without allocation: everything it needs is the C library and memory of its own.
//!
//! Rooms use those above them in this table, and never those below; `cargo xtask structure` checks it.
//!
//! | room | holds |
//! |---|---|
//! | `memory` | copies and comparisons of the compiler's: without the C library |
//! | `kernel` | calls, areas, libraries behind ours: without the engine |
//! | `runtime` | the one engine of the process, its thread, its page, its settings; forks |
//! | `shutdown` | when its service ends: limits, filters of system calls |
//! | `alloc` | malloc and its family, and the allocator behind ours |
//! | `mmap` | mmap, munmap, mremap, and calls that change attributes of memory |
//! | `pinned` | calls after which a device or a pipe may hold pages of the program's |
//! | `syscall` | the same calls, made by the C library's `syscall` |
//! | `sanitizers` | what run-times of sanitizers ask for |
//! | `load` | what happens before `main` |
#![no_std]

mod alloc;
mod kernel;
mod load;
mod memory;
mod mmap;
mod pinned;
mod runtime;
mod sanitizers;
mod shutdown;
mod syscall;

use core::fmt::Write;

struct Stderr;

impl Write for Stderr {
    fn write_str(&mut self, s: &str) -> core::fmt::Result {
        // SAFETY: a valid buffer; what cannot be written is lost.
        unsafe { libc::write(2, s.as_ptr().cast(), s.len()) };
        Ok(())
    }
}

/// An inconsistency in the engine ends the program: better than a wrong result.
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let _ = writeln!(Stderr, "faultless: internal error, please report: {info}");
    // SAFETY: ends the process.
    unsafe { libc::abort() }
}

// Without optimisation the core library refers to the unwinder's hook, which nothing here can reach. Hidden, so that
// it does not stand before a Rust program's own.
#[cfg(debug_assertions)]
core::arch::global_asm!(
    ".globl rust_eh_personality",
    ".hidden rust_eh_personality",
    "rust_eh_personality:",
    "ud2"
);
