//! Large tables that cost memory only where they are used.

use zerocopy::FromZeros;

use crate::raw;

/// A table of `n` zeroed entries that lives as long as the process. The kernel backs it with memory as it is
/// touched. `None` when the kernel refuses the address space.
pub fn lasting<T: FromZeros>(n: usize) -> Option<&'static mut [T]> {
    const { assert!(align_of::<T>() <= crate::PAGE && !core::mem::needs_drop::<T>()) };
    let bytes = n.checked_mul(size_of::<T>())?.max(1);
    let at = raw::map_private(bytes, raw::Access::Write)?;
    // SAFETY: fresh zeroed memory of that size, page-aligned, never unmapped; zero bytes are valid by `FromZeros`.
    Some(unsafe { core::slice::from_raw_parts_mut(at as *mut T, n) })
}
