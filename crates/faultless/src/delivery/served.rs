//! What has its faults delivered: a region, or the memory of a file.

use faultless_base::Span;
use faultless_base::sync::Epoch;
use faultless_base::sys::mmu::{Mmu, Rights};
use faultless_base::sys::uffd::Uffd;
use faultless_mm::fault::{Fault, Outcome};

use crate::events::remote_fill::{self, Buffer, Files, Request};
use crate::process::owner::Owner;
use crate::shared::Shared;

/// What a handler of a region waits for that does not read from a backing.
pub const CHANGE: &str = "a change of the region in progress, or for the kernel";

/// One of them. Handlers, the watchdog and threads that fault call this, several at a time.
pub trait Served: Send + Sync {
    /// Its addresses.
    fn span(&self) -> Span;
    /// The process that made it.
    fn owner(&self) -> Owner;
    /// Where its faults arrive: the descriptor of a part.
    fn uffd(&self, part: usize) -> Option<&Uffd>;
    /// Signal handlers that resolve its faults.
    fn handlers(&self) -> &Epoch;
    /// Resolves a fault. A page that cannot be brought is never read as zero: the access itself fails.
    fn resolve(&self, fault: Fault) -> Outcome;
    /// Lets threads that wait for pages look again.
    fn wake(&self, span: Span);
    /// Whether an access to memory of others that is there by now is a SIGBUS for good.
    fn is_sigbus_of_others(&self, page: usize, wants: Rights) -> bool;
    /// Whether this thread is bringing a page of it.
    fn is_read_here(&self) -> bool;
    /// Calls `f` for all that is being read: since when, in ns, and where.
    fn each_read(&self, f: &mut dyn FnMut(u64, u64));
    /// Whether a read may wait for what is the program's.
    fn is_backed(&self) -> bool;
    /// Descriptors without which a missing page would be zero, beside those of [`Served::uffd`].
    fn more_descriptors(&self) -> Vec<i32>;
    /// What a handler waits for that takes long.
    fn waits_for(&self) -> &'static str;
    /// Ends service for good, and says why: every access is a SIGSEGV from now on.
    fn close(&self, why: &str);
    /// Whether service has ended.
    fn is_closed(&self) -> bool;
    /// Closes the memory. Threads that wait go on.
    fn shut(&self);
    /// How many handlers read each descriptor in turn: more than one where they wait for a device, and may wait together.
    fn handlers_of_part(&self) -> usize {
        1
    }
    /// Whether each of these waits by a descriptor of its own. So a message wakes one of them, and no others.
    fn handlers_wait_apart(&self) -> bool {
        false
    }
    /// Whether a handler may be kept where a thread runs: it runs no code of the program's.
    fn handlers_may_follow(&self) -> bool {
        false
    }
    /// Does some of what no thread waits for: for a handler that has served its messages. Whether there is more.
    fn catch_up(&self) -> bool {
        false
    }
    /// Whether there is something for [`Served::look_back`].
    fn has_left_windows(&self) -> bool {
        false
    }
    /// Looks at one thing that faults have left behind; whether there may be more.
    fn look_back(&self) -> bool {
        false
    }
    /// Serves a request that is not the kernel's.
    fn fill_elsewhere(&self, _files: &Files, _buffer: &mut Buffer, _request: Request) {}
}

impl Served for Shared {
    fn span(&self) -> Span {
        self.memory.span()
    }
    fn owner(&self) -> Owner {
        self.owner
    }
    fn uffd(&self, part: usize) -> Option<&Uffd> {
        self.uffds().nth(part)
    }
    fn handlers(&self) -> &Epoch {
        &self.handlers
    }
    fn resolve(&self, fault: Fault) -> Outcome {
        self.resolve(fault)
    }
    fn wake(&self, span: Span) {
        self.memory.wake(span);
    }
    fn is_sigbus_of_others(&self, page: usize, wants: Rights) -> bool {
        self.memory.is_sigbus_of_others(page, wants)
    }
    fn is_read_here(&self) -> bool {
        self.memory.backing().is_read_here()
    }
    fn each_read(&self, f: &mut dyn FnMut(u64, u64)) {
        self.memory.backing().reads().for_each(|(since, offset)| f(since, offset));
    }
    fn is_backed(&self) -> bool {
        // Where pages are in a store, a missing one must not become zero either.
        self.memory.backing().is_some() || self.memory.has_swap()
    }
    fn more_descriptors(&self) -> Vec<i32> {
        Vec::new()
    }
    fn waits_for(&self) -> &'static str {
        match self.memory.backing().reads().next() {
            Some(_) => "the backing of the region, which is being read",
            None => CHANGE,
        }
    }
    fn close(&self, why: &str) {
        self.close(why);
    }
    fn is_closed(&self) -> bool {
        self.is_closed()
    }
    fn shut(&self) {
        self.memory.shut();
    }
    fn handlers_of_part(&self) -> usize {
        // One serves while the other waits for the store.
        if self.memory.has_swap() { 2 } else { 1 }
    }
    fn handlers_wait_apart(&self) -> bool {
        self.memory.has_swap()
    }
    fn handlers_may_follow(&self) -> bool {
        self.memory.backing().has_own_file()
    }
    fn catch_up(&self) -> bool {
        if self.memory.wants_room() {
            self.memory.keep_room();
        }
        self.memory.copy_rest()
    }
    fn has_left_windows(&self) -> bool {
        self.memory.has_left_windows()
    }
    fn look_back(&self) -> bool {
        self.memory.look_back()
    }
    fn fill_elsewhere(&self, files: &Files, buffer: &mut Buffer, request: Request) {
        remote_fill::serve(self, files, buffer, request);
    }
}
