//! The cache of a file, and how faults of its lazy mappings come to it.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use faultless_base::sync::Epoch;
use faultless_base::sys::file_memory::UserMemory;
use faultless_base::sys::mmu::Rights;
use faultless_base::sys::raw;
use faultless_base::sys::uffd::{Uffd, Way};
use faultless_base::sys::watch::{OnWrite, Watch};
use faultless_base::{Errno, PAGE, Span};
use faultless_mm::cache::{Cache, Use};
use faultless_mm::fault::{Fault, Outcome};

use crate::delivery::served::Served;
use crate::delivery::watchdog::Watched;
use crate::delivery::{self, Delivery, handler_pool, signal};
use crate::error::Error;
use crate::file::source::Source;
use crate::page;
use crate::process::descriptors;
use crate::process::masked::Masked;
use crate::process::message;
use crate::process::owner::Owner;

/// How often a fault that met a lack of memory is tried again, a millisecond later each time.
const PATIENCE: u32 = 200;

/// Threads that bring pages of lazy mappings of a file at a time.
const HANDLERS: usize = 8;

/// The cache of a file, as those see it that bring its pages.
pub(super) struct Paged {
    cache: Cache<UserMemory, Source>,
    owner: Owner,
    /// Signal handlers that bring its pages.
    handlers: Epoch,
    is_by_signal: AtomicBool,
    is_closed: AtomicBool,
}

impl Paged {
    pub(super) fn new(cache: Cache<UserMemory, Source>) -> Option<Self> {
        let (is_by_signal, is_closed) = (AtomicBool::new(false), AtomicBool::new(false));
        Some(Self { cache, owner: Owner::here(), handlers: Epoch::new(page::places())?, is_by_signal, is_closed })
    }

    /// Whether it is this process's.
    pub(super) fn is_here(&self) -> bool {
        self.owner.is_here()
    }

    /// Whether lazy mappings had to be closed.
    pub(super) fn has_failed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    fn bring(&self, fault: Fault) -> Result<(), Errno> {
        let how = if fault.wants == Rights::Write { Use::Write } else { Use::Read };
        let mut tries = 0;
        loop {
            match self.cache.fault(fault.addr, how, fault.hint) {
                Err(Errno::ENOMEM | Errno::EINTR) if tries < PATIENCE => {
                    tries += 1;
                    raw::sleep_ns(1_000_000);
                }
                done => {
                    done?;
                    // A signal handler has little stack.
                    if !self.is_by_signal.load(Ordering::Relaxed) {
                        self.cache.bring_ahead(fault.addr);
                    }
                    return Ok(());
                }
            }
        }
    }
}

impl Deref for Paged {
    type Target = Cache<UserMemory, Source>;
    fn deref(&self) -> &Self::Target {
        &self.cache
    }
}

impl Served for Paged {
    fn span(&self) -> Span {
        self.cache.span()
    }
    fn owner(&self) -> Owner {
        self.owner
    }
    fn uffd(&self, part: usize) -> Option<&Uffd> {
        self.cache.memory().watched_with().map(Watch::uffd).filter(|_| part == 0)
    }
    fn handlers(&self) -> &Epoch {
        &self.handlers
    }
    fn resolve(&self, fault: Fault) -> Outcome {
        if self.has_failed() {
            return Outcome::Forbidden;
        }
        self.bring(fault).map_or_else(
            |error| {
                message::page_cannot_be_had(fault.addr, error);
                // A signal goes on to the program, and the next access tries again. A thread that waits would wait for ever.
                if !self.is_by_signal.load(Ordering::Relaxed) {
                    self.cache.poison(fault.addr);
                }
                Outcome::Lost(error)
            },
            |()| Outcome::Installed(Span::new(fault.addr / PAGE * PAGE, PAGE)),
        )
    }
    fn wake(&self, span: Span) {
        self.cache.memory().watched_with().into_iter().for_each(|watch| watch.wake(span));
    }
    fn is_sigbus_of_others(&self, _page: usize, _wants: Rights) -> bool {
        false
    }
    fn is_read_here(&self) -> bool {
        false
    }
    fn each_read(&self, _f: &mut dyn FnMut(u64, u64)) {}
    fn is_backed(&self) -> bool {
        true
    }
    fn more_descriptors(&self) -> Vec<i32> {
        self.cache.memory().watched_with().map_or_else(Vec::new, |watch| watch.numbers().to_vec())
    }
    fn handlers_of_part(&self) -> usize {
        HANDLERS
    }
    fn waits_for(&self) -> &'static str {
        "the device of a file, or its backing"
    }
    fn close(&self, why: &str) {
        if !self.is_closed.swap(true, Ordering::AcqRel) {
            message::file_is_closed(self.cache.span(), why);
            self.shut();
        }
    }
    fn is_closed(&self) -> bool {
        self.has_failed()
    }
    fn shut(&self) {
        self.cache.memory().close(self.cache.span());
    }
}

/// Who brings pages of a file when they are touched. It ends with this.
pub(super) struct Serving {
    paged: Arc<Paged>,
    pub(super) delivery: Delivery,
    way: Way,
    watched: Option<Watched>,
}

impl Serving {
    pub(super) fn start(paged: &Arc<Paged>, delivery: Delivery, on_write: OnWrite) -> Result<Self, Error> {
        let _masked = Masked::new();
        let (uffd, way) = delivery::open_for_file(delivery, Watch::features(on_write))?;
        if on_write == OnWrite::Tells && !way.sees_kernel_faults() {
            return Err(Error::NoSnapshots(
                "the kernel does not deliver its own faults, so a snapshot would make system calls fail: \
                 `faultless doctor` says how to allow it",
            ));
        }
        let watch = Watch::new(uffd, on_write).map_err(|error| descriptors::refused_by(error.number()))?;
        // Where an earlier try met no thread, its descriptor is there.
        paged.cache.memory().watch_with(watch);
        let served: Arc<dyn Served> = paged.clone();
        let watched = match delivery {
            Delivery::Signal => {
                paged.is_by_signal.store(true, Ordering::Relaxed);
                let watched = Watched::start(served.clone(), handler_pool::PATIENCE)?;
                signal::serve(served)?;
                watched
            }
            _ => Watched::start_with_handlers(served, None, handler_pool::PATIENCE)?,
        };
        Ok(Self { paged: paged.clone(), delivery, way, watched: Some(watched) })
    }

    /// Whether a system call may be given memory that was not touched yet.
    pub(super) fn serves_system_calls(&self) -> bool {
        self.delivery != Delivery::Signal && self.way.sees_kernel_faults()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if !self.paged.is_here() {
            // The threads are the parent's.
            std::mem::forget(self.watched.take());
            return;
        }
        if self.delivery == Delivery::Signal {
            signal::forget(&*self.paged);
        }
    }
}
