//! Mistakes that sanitizers have to notice, or they would find nothing elsewhere either. `cargo xtask sanitize` runs
//! each and wants it to fail; nothing else runs them.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

#[test]
#[ignore = "a mistake: cargo xtask sanitize runs it"]
fn address() {
    let block = vec![1u8; 64];
    let at = block.as_ptr();
    drop(block);
    // SAFETY: none, on purpose.
    assert!(unsafe { at.read_volatile() } < u8::MAX);
}

struct Shared(UnsafeCell<u32>);
// SAFETY: none, on purpose.
unsafe impl Sync for Shared {}

#[test]
#[ignore = "a mistake: cargo xtask sanitize runs it"]
fn thread() {
    static SHARED: Shared = Shared(UnsafeCell::new(0));
    static ORDERS_NOTHING: AtomicBool = AtomicBool::new(false);
    // SAFETY: none, on purpose.
    let add = || unsafe { *SHARED.0.get() += 1 };
    let other = thread::spawn(move || {
        add();
        ORDERS_NOTHING.store(true, Ordering::Relaxed);
    });
    while !ORDERS_NOTHING.load(Ordering::Relaxed) {
        thread::yield_now();
    }
    add();
    other.join().unwrap();
}
