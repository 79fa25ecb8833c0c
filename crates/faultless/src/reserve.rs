//! Memory that is made ready in the background: huge pages of zeroes, which faults of regions move to where they are needed.

use std::sync::LazyLock;

use faultless_base::SLOT;
use faultless_base::sys::frames;
use faultless_mm::pool::Pool;

use crate::background::{Background, Priority};
use crate::owner::Owner;
use crate::region::Error;

/// The pool and the process that has it.
static POOL: LazyLock<Option<(Pool, Owner)>> = LazyLock::new(|| {
    // SAFETY: a question.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    let bytes = usize::try_from(pages).ok()? * faultless_base::PAGE;
    let span = frames::reserve_huge(bytes.next_multiple_of(SLOT))?;
    Some((Pool::new(span)?, Owner::here()))
});

/// The pool of this process; a forked child has none.
pub(crate) fn pool() -> Option<&'static Pool> {
    POOL.as_ref().filter(|(_, owner)| owner.is_here()).map(|(pool, _)| pool)
}

/// Makes `bytes` of memory ready in the background, at idle priority: faults of regions need not wait for zeroes then, and take
/// huge pages. Rounded up to 2 MiB, and in addition to what is ready already. It ends early where no huge page is to be had
/// any more.
///
/// ```
/// let reserved = faultless::reserve(8 << 20)?;
/// let ready = reserved.wait()?;
/// assert!(ready <= 8 << 20 && ready == reserved.ready());
/// # Ok::<(), faultless::region::Error>(())
/// ```
pub fn reserve(bytes: usize) -> Result<Background, Error> {
    let pool = pool().ok_or(Error::NoAddressSpace)?;
    Background::start(Priority::Idle, bytes.div_ceil(SLOT), SLOT, |_| Ok(pool.make_kept(frames::fill)))
}

/// How many bytes are ready for regions to take.
pub fn reserved() -> usize {
    pool().map_or(0, |pool| pool.ready() * SLOT)
}

/// Gives what is ready and was not taken back to the system; how many bytes that were.
pub fn release_reserved() -> usize {
    let Some(pool) = pool() else { return 0 };
    let drop_one = || {
        let frame = pool.take()?;
        frames::drop_pages(frame);
        pool.leave(frame);
        Some(SLOT)
    };
    std::iter::from_fn(drop_one).sum()
}
