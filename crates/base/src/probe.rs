//! Places where bpftrace, perf and others can look on (USDT), under the provider `faultless`.
//!
//! Each is a `nop`, and a note in the library's file that says where it is and where its arguments are. Times are
//! nanoseconds, engines their place in [`Engine::ALL`], orders as the kernel's: 0 for 4 KiB, 9 for 2 MiB.

use probe::probe;

use crate::zero::Engine;

/// The scrubber begins to zero.
#[inline]
pub fn scrub_wakeup() {
    probe!(faultless, scrub_wakeup);
}

/// A block was zeroed in the background.
#[inline]
pub fn scrub(at: usize, bytes: usize, ns: u64, engine: Engine) {
    probe!(faultless, scrub, at, bytes, ns, engine as u32);
}

/// A request for zeroes was served from memory that was zero already.
#[inline]
pub fn zero_hit(at: usize, bytes: usize) {
    probe!(faultless, zero_hit, at, bytes);
}

/// A request for zeroes was served from memory that was zeroed first, some of it at least.
#[inline]
pub fn zero_hot(at: usize, bytes: usize) {
    probe!(faultless, zero_hot, at, bytes);
}

/// A request for zeroes got memory that the kernel zeroes at its first touch, some at least.
#[inline]
pub fn zero_miss(at: usize, bytes: usize) {
    probe!(faultless, zero_miss, at, bytes);
}

/// A zeroing engine is not used any more: it failed, or was slower than promised.
#[inline]
pub fn engine_dropped(engine: Engine) {
    probe!(faultless, engine_dropped, engine as u32);
}

/// Pages of a file came to its cache: the number of the first in the file, how many, and the order of the page that
/// holds them.
#[inline]
pub fn file_add(page: usize, pages: usize, order: usize) {
    probe!(faultless, file_add, page, pages, order);
}

/// All pages of 2 MiB of a file have left its cache: the number of the first in the file.
#[inline]
pub fn file_delete(page: usize) {
    probe!(faultless, file_delete, page);
}
