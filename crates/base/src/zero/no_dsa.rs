//! What stands for the device in a build without the feature `dsa`: there is none.

/// Looks for a queue: there is none.
pub fn open() -> bool {
    false
}

/// Whether there is an open queue.
pub const fn is_open() -> bool {
    false
}

/// In a forked child.
pub fn forget() {}

/// Gives the queue up.
pub fn close() {}

/// Zeroes nothing, and says so.
///
/// # Safety
/// None is needed.
pub unsafe fn fill(_at: *mut u8, _bytes: usize) -> bool {
    false
}
