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

/// The address of a name that another library may define; 0 where none does. Once this library is linked.
macro_rules! weak {
    ($name:literal) => {{
        let at: usize;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: loads a word of this library's own table of addresses.
        unsafe {
            core::arch::asm!(
                concat!(".weak ", $name),
                concat!("mov {0}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                out(reg) at, options(pure, readonly, nostack, preserves_flags));
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: the same.
        unsafe {
            core::arch::asm!(
                concat!(".weak ", $name),
                concat!("adrp {0}, :got:", $name),
                concat!("ldr {0}, [{0}, :got_lo12:", $name, "]"),
                out(reg) at, options(pure, readonly, nostack, preserves_flags));
        }
        at
    }};
}
pub(crate) use weak;
