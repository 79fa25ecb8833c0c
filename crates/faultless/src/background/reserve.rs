//! Memory that is made ready in the background: huge pages of zeroes, which faults of regions move to where they are
//! needed.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use faultless_base::SLOT;
use faultless_base::sys::{dirty, frames};
use faultless_mm::region::pool::{Pool, Source};

use crate::background::{Background, Priority};
use crate::error::Error;
use crate::process::once::Once;
use crate::process::owner::Owner;

/// The memory of this machine, in whole huge pages.
pub(crate) fn memory() -> Option<usize> {
    // SAFETY: a question.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    Some((usize::try_from(pages).ok()? * faultless_base::PAGE).next_multiple_of(SLOT))
}

/// A pool and the process that has it: its memory is not in a forked child.
struct Owned {
    pool: Pool,
    owner: Owner,
}

/// Huge pages of zeroes: the last pool that was made. None is ever freed; a child makes its own.
static POOL: AtomicPtr<Owned> = AtomicPtr::new(null_mut());
/// Those with old bytes of this process's.
static OLD: Once<Option<Owned>> = Once::new();
/// Whether there may be any of those.
static HAS_OLD: AtomicBool = AtomicBool::new(false);

fn own(owned: &'static Owned) -> Option<&'static Pool> {
    owned.owner.is_here().then_some(&owned.pool)
}

/// The pool of this process, if it was made.
fn made() -> Option<&'static Pool> {
    // SAFETY: null, or never freed.
    unsafe { POOL.load(Ordering::Acquire).as_ref() }.and_then(own)
}

/// The pool of this process.
pub(crate) fn pool() -> Option<&'static Pool> {
    let last = POOL.load(Ordering::Acquire);
    made().or_else(|| {
        let source = Source { reserve: frames::reserve_huge, release: frames::release };
        let pool = Pool::growing(memory()?, source)?;
        let new = Box::into_raw(Box::new(Owned { pool, owner: Owner::here() }));
        if POOL.compare_exchange(last, new, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: made above, and not seen yet: another thread was faster. It has no addresses yet.
            unsafe { drop(Box::from_raw(new)) };
        }
        made()
    })
}

/// The pool of huge pages with old bytes. `None` in a forked child, and where the kernel does not move pages.
pub(crate) fn old() -> Option<&'static Pool> {
    HAS_OLD.store(true, Ordering::Relaxed);
    let make = || {
        let source = Source { reserve: dirty::reserve, release: frames::release };
        let pool = dirty::open().then(|| Pool::growing(memory()?, source));
        Some(Owned { pool: pool??, owner: Owner::here() })
    };
    OLD.get(make).as_ref().and_then(own)
}

/// Makes `bytes` of memory ready in the background, at idle priority: faults of regions need not wait for zeroes
/// then, and take huge pages. Rounded up to 2 MiB, and in addition to what is ready already. It ends early where no
/// huge page can be made any more.
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
    made().map_or(0, |pool| pool.ready() * SLOT)
}

/// Gives memory back to the system: what is ready and was not taken, and what regions of old bytes have dropped and
/// no region took. How many bytes that were.
pub fn release_reserved() -> usize {
    let old = if HAS_OLD.load(Ordering::Relaxed) { old() } else { None };
    made().into_iter().chain(old).map(release).sum()
}

fn release(pool: &Pool) -> usize {
    let drop_one = || {
        let frame = pool.take()?;
        frames::drop_pages(frame);
        pool.leave(frame);
        Some(SLOT)
    };
    std::iter::from_fn(drop_one).sum()
}
