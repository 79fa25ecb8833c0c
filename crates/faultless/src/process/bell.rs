//! Waiting for what another thread does, asleep in the kernel. A signal interrupts the wait only while its handler runs.
//! Ringing takes no lock, so a signal handler may ring.

use std::sync::atomic::{AtomicU32, Ordering};

use faultless_base::sys::raw;

/// What wakes all who wait. They look again then: it may have rung for others.
#[derive(Debug, Default)]
pub struct Bell(AtomicU32);

impl Bell {
    /// How often it has rung. A thread that may wait asks this before it looks whether there is anything to wait for.
    pub fn rung(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// Wakes all.
    pub fn ring(&self) {
        self.0.fetch_add(1, Ordering::Release);
        raw::futex_wake(&self.0, i32::MAX as u32);
    }

    /// Waits until it has rung more often than that, for a signal, or for so long.
    pub fn wait(&self, rung: u32, timeout_ns: Option<u64>) {
        raw::futex_wait(&self.0, rung, timeout_ns);
    }
}
