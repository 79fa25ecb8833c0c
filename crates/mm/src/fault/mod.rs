//! The fault: one function, two lock policies.
//!
//! | step | speculative | classic |
//! |---|---|---|
//! | before | nothing | shares the range lock on its 2 MiB: no thread changes anything there |
//! | the area | by a walk without locks | by a walk with the index's lock |
//! | it changes | abort | cannot be |
//! | rights | abort if they do not suffice | the access is an error |
//! | frames | filled without a lock; abort if there are none | the same, waiting for them before it begins again |
//! | entry | tried; abort if it changed | waited for |
//! | sequence count | looked at again with the entry's lock; abort if it changed | the same; after a cut elsewhere it begins again |
//!
//! A fault tries the first and then, once, the second, with the frames of the first if the area did not change
//! meanwhile.

mod choose;
mod kernel;
mod protected;

use faultless_base::pagefault::{self, Spf};
use faultless_base::sync::Access;
use faultless_base::sys::mmu::{Mmu, Rights, Word};
use faultless_base::{Errno, PAGE, SLOT, Span};

use crate::fault::choose::Chosen;
use crate::region::Region;
use crate::region::area::{AreaRef, Attributes, View};
use crate::region::entry::{Entry, Kind, Seen};
use crate::region::frames::{FaultContext, NotReady, Version, Wait};
use crate::region::install::{Installed, MOST_AGAIN, Met};
use faultless_page::knobs::Knob;
use faultless_page::stats::Counter;

/// A fault.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// The address that was accessed.
    pub addr: usize,
    /// What for: [`Rights::Read`] if that is not known.
    pub wants: Rights,
    /// A number that tells threads apart, by which their streams are known.
    pub hint: usize,
    /// The processor that resolves it. Counters that all faults write are spread by it, so that faults at the same
    /// time write to different lines.
    pub cpu: usize,
}

/// How a fault ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The page is there, as are all of these, unless another thread dropped them since.
    Installed(Span),
    /// Nothing may be installed: the access itself is an error, and will be one when it is made again.
    Forbidden,
    /// The page cannot be had now, for the reason of this error number.
    Failed(Errno),
    /// It cannot be had, for that reason: each access gets an error, until the page is dropped.
    Lost(Errno),
}

/// What becomes of a page that the kernel cannot bring.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Short {
    /// It is missing as before, and may be asked for again.
    Missing,
    /// It is an error.
    Lost,
}

/// How a speculative try ended: why it was given up, unless it is [`Spf::Success`].
///
/// | | |
/// |---|---|
/// | `VmaChanged` | the area is being changed, was changed, or is not there |
/// | `VmaNoanon` | what the area's pages come from is not ready |
/// | `VmaNotsup` | the area is of a kind that is not supported |
/// | `VmaAccess` | the area's rights do not suffice |
/// | `PmdChanged` | the upper entry changed |
pub const fn counter(end: Spf) -> Counter {
    match end {
        Spf::Success => Counter::SpeculativePgfault,
        Spf::VmaChanged => Counter::SpfVmaChanged,
        Spf::VmaNoanon => Counter::SpfVmaNoanon,
        Spf::VmaNotsup => Counter::SpfVmaNotsup,
        Spf::VmaAccess => Counter::SpfVmaAccess,
        Spf::PmdChanged => Counter::SpfPmdChanged,
    }
}

/// Counts how a try ended, and fires its probe.
fn trace(end: Spf, fault: Fault, context: &mut FaultContext<'_>) {
    context.stats.add(counter(end), 1);
    pagefault::spf(end, fault.addr);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Policy {
    Speculative,
    Classic,
}

/// A fault as one try is to resolve it.
#[derive(Clone, Copy)]
struct Try {
    fault: Fault,
    policy: Policy,
    short: Short,
}

/// The area of a fault, as it was at one moment.
struct Found<'a> {
    area: AreaRef<'a>,
    view: View,
    sequence: usize,
}

/// Huge pages that a fault makes before it wakes the waiting thread: to wake one costs as much as to make one or two.
const MADE_AT_ONCE: usize = 8;

impl<M: Mmu> Region<M> {
    /// Brings the page of a fault, and a window around it. Threads that wait for them are not woken.
    pub fn fault(&self, fault: Fault) -> Outcome {
        self.fault_with(fault, Short::Missing)
    }

    /// The same once more, for the last time: what the kernel cannot bring is an error from now on.
    pub fn last_fault(&self, fault: Fault) -> Outcome {
        self.fault_with(fault, Short::Lost)
    }

    fn fault_with(&self, fault: Fault, short: Short) -> Outcome {
        if let Some(outcome) = self.let_write_through(fault) {
            return outcome;
        }
        let mut context = FaultContext::new(fault.cpu);
        context.stats.add(Counter::RegionPgfault, (short == Short::Missing) as usize);
        let outcome = self.resolve(fault, short, &mut context);
        self.count_all(&context.stats);
        // Not before: a signal handler has little stack.
        // Of pages that may be elsewhere it cannot be seen.
        if let Some(left) = context.ended_window.filter(|_| !self.has_swap()) {
            match self.mmu.looks_in_faults() {
                true => self.judge(left, fault.cpu),
                false => self.pending.put(left),
            }
        }
        if context.without_pattern {
            self.give_up(fault.addr);
        }
        outcome
    }

    fn resolve<'a>(&'a self, fault: Fault, short: Short, context: &mut FaultContext<'a>) -> Outcome {
        let mut end = None;
        if self.knobs.is_on(Knob::SpeculativePageFault) {
            match self.attempt(Try { fault, policy: Policy::Speculative, short }, context) {
                Ok(outcome) => {
                    if matches!(outcome, Outcome::Installed(_)) {
                        trace(Spf::Success, fault, context);
                    }
                    return outcome;
                }
                Err(abort) => {
                    trace(abort, fault, context);
                    end = Some(abort);
                }
            }
        }
        loop {
            // Before the range lock: a fault with a buffer may wait for a change, which waits for the holder of the
            // range.
            if end == Some(Spf::VmaNoanon) && self.frames.take(context, Wait::Yes, &self.mmu).is_err() {
                if short == Short::Missing {
                    return Outcome::Failed(Errno::ENOMEM);
                }
                context.goes_without_buffer = true;
            }
            match self.classic(fault, short, context) {
                Ok(outcome) => return outcome,
                Err(abort) => end = Some(abort),
            }
        }
    }

    /// The second try. An error is that there is no buffer.
    fn classic<'a>(&'a self, fault: Fault, short: Short, context: &mut FaultContext<'a>) -> Result<Outcome, Spf> {
        self.mmu.meets(Word::RangeTaken);
        // No more than needed: a change elsewhere may wait for a fault that takes long.
        let around = Span::new(fault.addr & !(SLOT - 1), SLOT);
        let part = if self.mmu.fills_at_any_time() { around } else { self.span };
        let range = self.ranges.lock(part, Access::Shared);
        let mut turn = 0;
        let end = loop {
            match self.attempt(Try { fault, policy: Policy::Classic, short }, context) {
                Err(Spf::VmaChanged) => self.mmu.relax(turn),
                end => break end,
            }
            turn += 1;
        };
        drop(range);
        self.mmu.meets(Word::RangeFreed);
        end
    }

    fn attempt<'a>(&'a self, it: Try, context: &mut FaultContext<'a>) -> Result<Outcome, Spf> {
        let Try { fault, policy, .. } = it;
        let users = if policy == Policy::Speculative { fault.cpu } else { 0 };
        self.mmu.meets(match policy {
            Policy::Speculative => Word::Reader(fault.cpu),
            Policy::Classic => Word::Index,
        });
        self.mmu.meets(Word::Users(users));
        let end = self.handle(it, context);
        // The area was let go.
        self.mmu.meets(Word::Users(users));
        end
    }

    fn handle<'a>(&'a self, it: Try, context: &mut FaultContext<'a>) -> Result<Outcome, Spf> {
        let Try { fault, policy, short } = it;
        let found = match self.look(fault, policy) {
            Ok(found) => found,
            Err(end) => return end,
        };
        let page = fault.addr & !(PAGE - 1);
        let seen = self.entries.read(page);
        let version = Version { area: found.area.id(), sequence: found.sequence };
        match self.choose(page, fault.wants, fault.hint, &found.view, version, context) {
            Err(NotReady) if context.goes_without_buffer => self.lose(page, &found, Errno::ENOMEM),
            Err(NotReady) => Err(Spf::VmaNoanon),
            // The backing's answer, for any error number: it is not asked again.
            Ok(Err(error)) => self.lose(page, &found, error),
            Ok(Ok(chosen)) => match self.bring(fault, policy, &found, (seen, chosen), context)? {
                Outcome::Failed(error) if short == Short::Lost => self.lose(page, &found, error),
                outcome => Ok(outcome),
            },
        }
    }

    /// Makes the page of a fault an error, if the area is as it was: a new mapping there has not asked. This waits
    /// for the entry, even if the entry has changed: otherwise the backing would be asked once more.
    fn lose(&self, page: usize, found: &Found<'_>, error: Errno) -> Result<Outcome, Spf> {
        self.mmu.meets(Word::Entry(page));
        let mut entry = self.entries.lock(page, |turn| self.mmu.relax(turn));
        if found.area.sequence() != found.sequence {
            return Err(Spf::VmaChanged);
        }
        if entry.kind() == Kind::Empty {
            entry.set(Kind::Pages);
        }
        let mut again = 0;
        loop {
            return match self.mmu.poison(page) {
                Ok(()) => Ok(Outcome::Lost(error)),
                // Another thread that needed the page failed, too.
                Err(Errno::EEXIST) if self.mmu.present(Span::new(page, PAGE)) == 0 => Ok(Outcome::Lost(error)),
                Err(Errno::EEXIST) => Ok(Outcome::Installed(Span::new(page, PAGE))),
                Err(Errno::EAGAIN) if again < MOST_AGAIN => {
                    again += 1;
                    self.mmu.relax(again);
                    continue;
                }
                // Another mapping is there by now, and needs nothing of the backing.
                Err(Errno::ENOENT) => Ok(Outcome::Forbidden),
                Err(error) => Ok(Outcome::Failed(error)),
            };
        }
    }

    /// Finds the area of a fault. If nothing is to be brought there, the error is how the try ends.
    fn look(&self, fault: Fault, policy: Policy) -> Result<Found<'_>, Result<Outcome, Spf>> {
        let area = match policy {
            Policy::Speculative => self.areas.find(fault.addr, fault.cpu).ok_or(Err(Spf::VmaChanged))?,
            Policy::Classic => match self.areas.find_locked(fault.addr) {
                Some(area) => area,
                None => return Err(Ok(self.forbid(fault.addr, Rights::None))),
            },
        };
        // It may have lost this part since it was found.
        let around = |(view, _): &(View, usize)| view.span.contains(fault.addr);
        let (view, sequence) = area.read().filter(around).ok_or(Err(Spf::VmaChanged))?;
        let Attributes { rights, backed, kernel, .. } = view.attributes;
        Err(match policy {
            Policy::Speculative if backed && !self.mmu.fills_at_any_time() => Err(Spf::VmaNotsup),
            Policy::Speculative if rights < fault.wants => Err(Spf::VmaAccess),
            Policy::Speculative if kernel => Err(Spf::VmaChanged),
            Policy::Classic if rights < fault.wants => Ok(self.forbid(fault.addr, rights)),
            // Once more: the memory may have been taken from the kernel's service without the area's knowledge.
            Policy::Classic if kernel => Ok(self.leave_again(fault.addr, view.span)),
            _ => return Ok(Found { area, view, sequence }),
        })
    }

    /// Installs what was chosen, if the area and the entry of the fault are as they were. A function of its own,
    /// because a signal handler has little stack.
    fn bring(
        &self,
        fault: Fault,
        policy: Policy,
        found: &Found<'_>,
        (seen, Chosen { window, source }): (Seen, Chosen),
        context: &mut FaultContext<'_>,
    ) -> Result<Outcome, Spf> {
        let page = fault.addr & !(PAGE - 1);
        let (window, _coming) = self.take_room(window, page);
        let mut installed = 0;
        let mut there = Span::new(page, 0);
        let (mut made, mut woken) = (0, false);
        for piece in window.pieces(page) {
            let first = there.is_empty();
            let seen = if first { seen } else { self.entries.read(piece.start) };
            let abort = match self.enter(piece.start, policy, seen) {
                None => Spf::PmdChanged,
                Some(_) if found.area.sequence() != found.sequence => Spf::VmaChanged,
                // Another fault was there before this window: each page would be asked for in vain.
                Some(entry) if !first && entry.kind() == Kind::Huge => continue,
                Some(entry) => {
                    let met = match (first, woken) {
                        (true, _) => Met::Fault(page),
                        (false, true) => Met::Others,
                        (false, false) => Met::Nothing,
                    };
                    match self.install(entry, source, &found.view, piece, met, &mut context.stats) {
                        Ok(Installed { pages, took_long }) => {
                            installed += pages;
                            made += took_long as usize;
                            if made == MADE_AT_ONCE {
                                // The program goes on while the rest is made.
                                self.mmu.wake(window.span);
                                (made, woken) = (0, true);
                            }
                            if first || !window.is_apart() {
                                there =
                                    Span { start: there.start.min(piece.start), end: there.end.max(piece.end) };
                            }
                            continue;
                        }
                        // The address space changes without the region's knowledge; the second try waits until that
                        // has ended.
                        Err(Errno::EAGAIN | Errno::ENOENT) if policy == Policy::Speculative => Spf::VmaChanged,
                        Err(Errno::ENOENT) => return Ok(Outcome::Forbidden),
                        Err(error) if first => return Ok(Outcome::Failed(error)),
                        Err(_) => break,
                    }
                }
            };
            if first {
                return Err(abort);
            }
            break;
        }
        context.stats.add(Counter::RegionPrefaulted, installed.saturating_sub(1));
        Ok(Outcome::Installed(there))
    }

    /// Locks an entry as it was seen, or as it is.
    fn enter(&self, addr: usize, policy: Policy, seen: Seen) -> Option<Entry<'_>> {
        self.mmu.meets(Word::Entry(addr));
        match policy {
            Policy::Speculative => self.entries.try_lock(addr, seen, || self.mmu.relax(0)),
            Policy::Classic => Some(self.entries.lock(addr, |turn| self.mmu.relax(turn))),
        }
    }

    /// Makes sure that an access that is an error does not come back as a fault, even if the memory was changed
    /// without the region's knowledge. The caller shares the range lock, so that no thread changes it. A foreign
    /// mapping stays as it is.
    fn forbid(&self, addr: usize, rights: Rights) -> Outcome {
        let page = Span::new(addr & !(PAGE - 1), PAGE);
        if self.mmu.serves(page.start) {
            let _ = self.mmu.protect(page, rights);
        }
        Outcome::Forbidden
    }
}
