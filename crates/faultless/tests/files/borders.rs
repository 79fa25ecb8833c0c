//! Accesses that need several pages at the same time.

use std::thread;
use std::time::Duration;

use crate::lazy::{BOTH, budget_if_lazy, opened_writable};
use crate::{SLOT, filled};

/// Parts of two huge pages, or of two small ones, in one access; and four of them.
#[test]
fn an_access_across_a_border_ends_where_nothing_may_be_kept() {
    const SLOTS: usize = 6;
    let Some(_alone) = budget_if_lazy(0) else { return };
    let (all, named) = filled(SLOTS * SLOT, 11);
    for (delivery, small) in BOTH.into_iter().flat_map(|delivery| [(delivery, false), (delivery, true)]) {
        let file = opened_writable(&named, small);
        file.deliver(delivery).unwrap();
        let mapping = file.map_lazy(0, all.len()).unwrap();
        // SAFETY: no other thread changes the file.
        let memory = unsafe { mapping.as_slice() };
        let read = |at: usize| u64::from_ne_bytes(memory[at..at + 8].try_into().unwrap());
        thread::scope(|scope| {
            // Each thread has borders of its own.
            for border in 1..SLOTS {
                let all = &all;
                scope.spawn(move || {
                    for i in 0..20 {
                        let at = border * SLOT - 1 - i % 7;
                        assert_eq!(read(at).to_ne_bytes(), all[at..at + 8]);
                    }
                });
            }
        });
        let (from, to) = (SLOT - 3, 3 * SLOT - 5);
        let mut writable = file.map_lazy_mut(0, all.len()).unwrap();
        // SAFETY: nobody else uses the file now.
        let memory = unsafe { writable.as_mut_slice() };
        for _ in 0..20 {
            copy_8(memory, from, to);
        }
        assert_eq!(memory[to..to + 8], all[from..from + 8]);
        memory[to..to + 8].copy_from_slice(&all[to..to + 8]);
        drop((mapping, writable));
        // What an access has needed goes again, once it is clean.
        file.sync().unwrap();
        while file.present() > 0 {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// By one instruction, where there is one.
fn copy_8(memory: &mut [u8], from: usize, to: usize) {
    assert!(from + 8 <= memory.len() && to + 8 <= memory.len());
    #[cfg(target_arch = "x86_64")]
    // SAFETY: both are inside the memory; `movsq` changes the two registers that it is given.
    unsafe {
        let (from, to) = (memory.as_ptr().add(from), memory.as_mut_ptr().add(to));
        std::arch::asm!("movsq", inout("rsi") from => _, inout("rdi") to => _, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    memory.copy_within(from..from + 8, to);
}
