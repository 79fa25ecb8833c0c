//! Loads and stores that survive a fault.
//!
//! Each probe is one instruction at a known address. The handler of SIGSEGV and SIGBUS sends a fault of just that
//! instruction on to the instruction that reports it; any other fault ends the program as usual.

use std::arch::global_asm;
use std::ffi::c_void;

#[cfg(target_arch = "x86_64")]
global_asm!(
    ".pushsection .text",
    ".global testkit_load, testkit_store, testkit_load_at, testkit_store_at, testkit_failed",
    "testkit_load:",
    "testkit_load_at: mov rax, qword ptr [rdi]",
    "mov qword ptr [rsi], rax",
    "mov eax, 1",
    "ret",
    "testkit_store:",
    "testkit_store_at: mov qword ptr [rdi], rsi",
    "mov eax, 1",
    "ret",
    "testkit_failed:",
    "xor eax, eax",
    "ret",
    ".popsection",
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".pushsection .text",
    ".global testkit_load, testkit_store, testkit_load_at, testkit_store_at, testkit_failed",
    "testkit_load:",
    "testkit_load_at: ldr x2, [x0]",
    "str x2, [x1]",
    "mov w0, #1",
    "ret",
    "testkit_store:",
    "testkit_store_at: str x1, [x0]",
    "mov w0, #1",
    "ret",
    "testkit_failed:",
    "mov w0, #0",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn testkit_load(at: usize, to: *mut u64) -> i32;
    fn testkit_store(at: usize, word: u64) -> i32;
    fn testkit_load_at();
    fn testkit_store_at();
    fn testkit_failed();
}

extern "C" fn handler(signal: i32, _: *mut libc::siginfo_t, context: *mut c_void) {
    let probes = [testkit_load_at as *const () as usize, testkit_store_at as *const () as usize];
    // SAFETY: the kernel hands a handler with SA_SIGINFO its context; SIG_DFL lets the fault come back for good.
    unsafe {
        let machine = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext;
        #[cfg(target_arch = "x86_64")]
        let at = &mut machine.gregs[libc::REG_RIP as usize];
        #[cfg(target_arch = "aarch64")]
        let at = &mut machine.pc;
        if probes.contains(&(*at as usize)) {
            *at = testkit_failed as *const () as usize as _;
        } else {
            libc::signal(signal, libc::SIG_DFL);
        }
    }
}

/// Makes probes possible; once, before the first one.
pub fn install() {
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: a complete structure with a handler that only touches its own arguments.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}

/// The word at `at`; `None` when that faults.
pub fn load(at: usize) -> Option<u64> {
    let mut word = 0;
    // SAFETY: a fault of the load is caught.
    (unsafe { testkit_load(at, &mut word) } == 1).then_some(word)
}

/// Stores `word` at `at`, in memory of the caller's; false when that faults.
pub fn store(at: usize, word: u64) -> bool {
    // SAFETY: a fault of the store is caught.
    unsafe { testkit_store(at, word) == 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{self, ANON, PAGE, RW};

    #[test]
    fn a_probe_tells_what_a_page_allows() {
        install();
        let at = call::mmap(0, PAGE, RW, ANON, -1, 0).unwrap();
        assert!(store(at, 7));
        assert_eq!(load(at), Some(7));
        call::mprotect(at, PAGE, libc::PROT_READ).unwrap();
        assert!(!store(at, 8));
        assert_eq!(load(at), Some(7));
        call::mprotect(at, PAGE, libc::PROT_NONE).unwrap();
        assert_eq!(load(at), None);
        call::munmap(at, PAGE).unwrap();
    }
}
