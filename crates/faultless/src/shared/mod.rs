//! What the owner of a region, its handlers and the watchdog share.

pub mod event_sync;
pub mod file;
pub mod source;
pub mod swap;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use faultless_base::sync::Epoch;
use faultless_base::sys::mmu::Mmu;
use faultless_base::sys::raw;
use faultless_base::sys::uffd::Uffd;
use faultless_base::sys::user_mmu::UserMmu;
use faultless_base::{Errno, Span};
use faultless_mm::fault::{Fault, Outcome};
use faultless_mm::region::Region as Engine;
use faultless_mm::region::change::Refused;
use faultless_page::listing::Counted;
use faultless_page::stats::Counter;

use crate::error::Error;
use crate::process::bell::Bell;
use crate::process::message;
use crate::process::owner::Owner;
use crate::shared::event_sync::Behind;
use crate::shared::source::Source;

/// How often a fault that met a lack of memory is tried again, a millisecond later each time.
const PATIENCE: u32 = 200;

/// The engine of a region in this process.
pub type Memory = Engine<UserMmu<Source>>;

/// A region as all sides see it.
pub struct Shared {
    pub memory: Memory,
    /// Where others see what it counts.
    pub counted: Counted<'static>,
    /// The process that made it.
    pub owner: Owner,
    closed: AtomicBool,
    /// Its end has begun: no thread is to begin anything that this would wait for.
    ends: AtomicBool,
    /// For when others say what happens to the region without its knowledge.
    pub behind: Behind,
    /// Signal handlers that resolve its faults.
    pub handlers: Epoch,
    /// Rings at its end, for threads that wait to go on with work on it.
    pub bell: Arc<Bell>,
}

impl Shared {
    pub fn new(memory: Memory, counted: Counted<'static>, handlers: Epoch) -> Self {
        let (closed, ends) = (AtomicBool::new(false), AtomicBool::new(false));
        let (behind, bell) = (Behind::default(), Arc::default());
        Self { memory, counted, owner: Owner::here(), closed, ends, behind, handlers, bell }
    }

    /// Its end begins.
    pub fn end(&self) {
        self.ends.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// Whether it has begun.
    pub fn ends(&self) -> bool {
        self.ends.load(Ordering::Acquire)
    }

    /// Whether the kernel tells what happens to the region without its knowledge.
    pub fn has_events(&self) -> bool {
        self.memory.lost().is_some()
    }

    /// Whether all of a part is the region's own, as far as that is known.
    pub fn check_kept(&self, part: Span) -> Result<(), Error> {
        let Some(lost) = self.memory.lost() else { return Ok(()) };
        self.behind.settle();
        if lost.meets(part) { Err(Error::Lost) } else { Ok(()) }
    }

    /// How many pages of it are there.
    pub fn present_pages(&self) -> usize {
        match self.memory.lost() {
            // Pages that the program has dropped by calls of its own are not counted, but the page tables know.
            Some(lost) => lost.kept(self.memory.span()).map(|run| self.memory.present(run)).sum(),
            None => self.memory.present_pages(),
        }
    }

    /// Whether changes are possible.
    pub fn check(&self) -> Result<(), Error> {
        if !self.owner.is_here() {
            return Err(Error::Forked);
        }
        if self.is_closed() { Err(Error::Closed) } else { Ok(()) }
    }

    /// Whether service has ended for good.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) || self.memory.is_shut()
    }

    /// Why a change was refused.
    pub fn refused(&self, refused: Refused) -> Error {
        if self.memory.is_shut() {
            self.close("a change of it could not be undone");
        }
        if self.is_closed() { Error::Closed } else { refused.into() }
    }

    /// Resolves a fault. A page that cannot be brought is never read as zero: the access itself fails.
    pub fn resolve(&self, fault: Fault) -> Outcome {
        let start = raw::now_ns();
        let outcome = self.try_to_resolve(fault);
        self.memory.count(Counter::RegionFaultNs, (raw::now_ns() - start) as usize, fault.cpu);
        outcome
    }

    fn try_to_resolve(&self, fault: Fault) -> Outcome {
        let (mut outcome, mut tries) = (self.memory.fault(fault), 0);
        while let Outcome::Failed(error) = outcome {
            // With events that is so until all threads that must be told of a change were told, by any descriptor.
            // That may take any time. If messages are not read any more, a thread that needs the page gets what the
            // end of service means.
            if self.is_closed() {
                return Outcome::Forbidden;
            }
            let is_told = error == Errno::EAGAIN && self.has_events();
            tries += !is_told as u32;
            if tries > PATIENCE + 1 {
                self.close("a page cannot be marked as lost");
                break;
            }
            let passes = matches!(error, Errno::ENOMEM | Errno::EAGAIN) && tries <= PATIENCE;
            if passes {
                // Reclaim may be under way, or others change the region again and again; a page that is given up is
                // lost for good.
                raw::sleep_ns(1_000_000);
                outcome = self.memory.fault(fault);
            } else {
                tries = PATIENCE + 1;
                outcome = self.memory.last_fault(fault);
            }
        }
        if let Outcome::Lost(error) = outcome {
            message::page_cannot_be_had(fault.addr, error);
        }
        outcome
    }

    /// Ends service for good, and says why: every access is a SIGSEGV from now on.
    pub fn close(&self, why: &str) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            message::closed(self.memory.span(), why);
            self.memory.shut();
            self.bell.ring();
        }
    }

    pub fn uffds(&self) -> impl Iterator<Item = &Uffd> {
        self.memory.uffds()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.counted.end();
    }
}
