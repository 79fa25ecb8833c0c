//! Memory that is made ready in the background: huge pages of zeroes, which faults of regions move to where they are
//! needed.

use std::sync::Arc;

use faultless_base::SLOT;

use crate::background::{Background, Priority, owner};
use crate::error::Error;

/// Makes `bytes` of memory ready in the background, at idle priority: faults of regions need not wait for zeroes
/// then, and take huge pages. Rounded up to 2 MiB, and in addition to what is ready already. It ends early where no
/// huge page can be made any more.
///
/// This memory counts as the program's own, beside the budget. It stays until regions take it. When the machine or
/// the control group is short of memory, it goes back to the system.
///
/// ```
/// let reserved = faultless::reserve(8 << 20)?;
/// let ready = reserved.wait()?;
/// assert!(ready <= 8 << 20 && ready == reserved.ready());
/// # Ok::<(), faultless::region::Error>(())
/// ```
pub fn reserve(bytes: usize) -> Result<Background, Error> {
    let frames = owner::frames().ok_or(Error::NoAddressSpace)?;
    Background::start(Priority::Idle, bytes.div_ceil(SLOT), SLOT, Arc::default(), |_: usize| {
        Ok(frames.reserve_frame())
    })
}

/// How many bytes are ready for regions to take.
pub fn reserved() -> usize {
    owner::known().map_or(0, |frames| frames.frames_ready() * SLOT)
}

/// Gives memory back to the system: what is ready and was not taken, and what regions and arenas have dropped and
/// was not taken either. How many bytes that were.
pub fn release_reserved() -> usize {
    owner::known().map_or(0, |frames| frames.press())
}
