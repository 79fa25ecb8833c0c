//! Memory that is made ready in the background: huge pages of zeroes, which faults of regions move to where they are needed.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::thread::JoinHandle;

use faultless_base::SLOT;
use faultless_base::sys::{frames, thread};
use faultless_mm::pool::Pool;

use crate::region::{Error, Masked};

/// The pool and the process that has it.
static POOL: LazyLock<Option<(Pool, u32)>> = LazyLock::new(|| {
    // SAFETY: a question.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    let bytes = usize::try_from(pages).ok()? * faultless_base::PAGE;
    let span = frames::reserve_huge(bytes.next_multiple_of(SLOT))?;
    Some((Pool::new(span)?, std::process::id()))
});

/// The pool of this process; a forked child has none.
pub(crate) fn pool() -> Option<&'static Pool> {
    POOL.as_ref().filter(|(_, pid)| *pid == std::process::id()).map(|(pool, _)| pool)
}

/// What several fill together.
struct Job {
    frames: usize,
    begun: AtomicUsize,
    ready: AtomicUsize,
    ended: AtomicBool,
}

impl Job {
    /// Makes frames until there are enough, or somebody says that it is enough.
    fn work(&self, pool: &Pool) {
        while !self.ended.load(Ordering::Relaxed) && self.begun.fetch_add(1, Ordering::Relaxed) < self.frames {
            if !pool.make(frames::fill) {
                self.ended.store(true, Ordering::Relaxed);
                return;
            }
            pool.keep_one();
            self.ready.fetch_add(1, Ordering::Release);
        }
    }
}

/// Memory that is being made ready, or is. When it is dropped, that goes on.
pub struct Reservation {
    job: Arc<Job>,
    thread: Mutex<Option<JoinHandle<()>>>,
    pool: &'static Pool,
    pid: u32,
}

/// Makes `bytes` of memory ready in the background, at idle priority: faults of regions need not wait for zeroes then, and take
/// huge pages. Rounded up to 2 MiB, and in addition to what is ready already.
///
/// ```
/// let reservation = faultless::reserve(8 << 20)?;
/// let ready = reservation.wait();
/// assert!(ready <= 8 << 20 && ready == reservation.ready());
/// # Ok::<(), faultless::region::Error>(())
/// ```
pub fn reserve(bytes: usize) -> Result<Reservation, Error> {
    let pool = pool().ok_or(Error::NoAddressSpace)?;
    let job = Arc::new(Job {
        frames: bytes.div_ceil(SLOT),
        begun: AtomicUsize::new(0),
        ready: AtomicUsize::new(0),
        ended: AtomicBool::new(false),
    });
    let work = {
        let job = job.clone();
        move || {
            let _masked = Masked::new();
            thread::set_idle(true);
            job.work(pool);
        }
    };
    let thread = std::thread::Builder::new().name("faultless-fill".into()).spawn(work);
    let thread = Mutex::new(Some(thread.map_err(|_| Error::NoThread)?));
    Ok(Reservation { job, thread, pool, pid: std::process::id() })
}

impl Reservation {
    /// How many bytes it is to be in the end.
    pub fn bytes(&self) -> usize {
        self.job.frames * SLOT
    }

    /// How many bytes were made ready so far; regions may have taken some of them since.
    pub fn ready(&self) -> usize {
        self.job.ready.load(Ordering::Acquire) * SLOT
    }

    /// Whether no more will be.
    pub fn is_done(&self) -> bool {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        self.pid != std::process::id() || thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Helps until all is ready, or no huge page is to be had any more; how many bytes are ready then.
    pub fn wait(&self) -> usize {
        if self.pid == std::process::id() {
            self.job.work(self.pool);
            self.join();
        }
        self.ready()
    }

    /// Ends it: what is ready stays so.
    pub fn cancel(&self) {
        self.job.ended.store(true, Ordering::Relaxed);
        if self.pid == std::process::id() {
            self.join();
        }
    }

    fn join(&self) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        drop(thread.take().map(JoinHandle::join));
    }
}

impl std::fmt::Debug for Reservation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reservation({} of {} bytes)", self.ready(), self.bytes())
    }
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
