//! Whether the dynamic linker has linked this library.
//!
//! Before, nothing may call another library or refer to one, thread-local variables included.

/// An address that the dynamic linker fills in.
struct Filled(*const u8);
// SAFETY: an address of a constant.
unsafe impl Sync for Filled {}

static MARK: u8 = 0;
static FILLED: Filled = Filled(&raw const MARK);

/// Whether the addresses of other libraries are there.
#[inline]
pub fn is_linked() -> bool {
    // SAFETY: a static; volatile, because the compiler believes to know what is in it.
    let filled = unsafe { (&raw const FILLED.0).read_volatile() };
    filled == &raw const MARK
}
