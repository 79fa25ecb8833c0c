//! The fault: one function, two lock policies.
//!
//! | step | speculative | classic |
//! |---|---|---|
//! | before | nothing | shares the region's range lock: nobody changes anything |
//! | the area | by a walk without locks | by a walk with the index's lock |
//! | it changes | abort | cannot be |
//! | rights | abort if they do not suffice | the access is an error |
//! | frames | filled without a lock; abort if there are none | the same, waiting for them |
//! | entry | tried; abort if it changed | waited for |
//! | sequence count | looked at again with the entry's lock; abort if it changed | the same, never changed |
//!
//! A fault tries the first and then, once, the second, with the frames of the first if the area did not change meanwhile.

use faultless_base::pagefault::{self, Spf};
use faultless_base::sync::Access;
use faultless_base::sys::mmu::{Mmu, Rights, Source, Word};
use faultless_base::{PAGE, SLOT, Span};

use crate::area::{Attributes, View};
use crate::entry::Kind;
use crate::frames::{Taken, Version, Wait};
use crate::install::{Installed, Met, libc_error};
use crate::knobs::Knob;
use crate::pool::Pool;
use crate::region::Region;
use crate::stats::Counter;
use crate::streams::{By, Seen};
use crate::window::Window;

/// A fault.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// The address that was accessed.
    pub addr: usize,
    /// What for: [`Rights::Read`] if that is not known.
    pub wants: Rights,
    /// A number that tells threads apart.
    pub hint: usize,
}

/// How a fault ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The page is there, as are all of these, unless somebody dropped them since.
    Installed(Span),
    /// Nothing may be installed: the access itself is an error, and will be one when it is made again.
    Forbidden,
    /// The page cannot be had, for the reason of this error number.
    Failed(i32),
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

/// What is seen of a fault from outside.
fn trace(end: Spf, fault: Fault, taken: &mut Taken<'_>) {
    taken.tally.add(counter(end), 1);
    pagefault::spf(end, fault.addr);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Policy {
    Speculative,
    Classic,
}

/// Huge pages that a fault makes before whoever waits for it goes on: to wake a thread costs as much as to make one or two.
const MADE_AT_ONCE: usize = 8;

impl<M: Mmu> Region<M> {
    /// Brings the page of a fault, and a window around it. Whoever waits for them is not woken.
    pub fn fault(&self, fault: Fault) -> Outcome {
        let mut taken = Taken::new(fault.hint);
        taken.tally.add(Counter::RegionPgfault, 1);
        let outcome = self.resolve(fault, &mut taken);
        self.count_all(&taken.tally);
        // Not before: a signal handler has little stack.
        if let Some(left) = taken.left {
            match self.mmu.looks_in_faults() {
                true => self.judge(left, fault.hint),
                false => self.behind.put(left),
            }
        }
        if taken.hopeless {
            self.give_up(fault.addr);
        }
        outcome
    }

    fn resolve<'a>(&'a self, fault: Fault, taken: &mut Taken<'a>) -> Outcome {
        if self.knobs.is_on(Knob::SpeculativePageFault) {
            match self.attempt(fault, Policy::Speculative, taken) {
                Ok(outcome) => {
                    if matches!(outcome, Outcome::Installed(_)) {
                        trace(Spf::Success, fault, taken);
                    }
                    return outcome;
                }
                Err(abort) => trace(abort, fault, taken),
            }
        }
        self.mmu.meets(Word::RangeTaken);
        let all = self.ranges.lock(self.span, Access::Shared);
        let mut turn = 0;
        let outcome = loop {
            match self.attempt(fault, Policy::Classic, taken) {
                Ok(outcome) => break outcome,
                Err(_) => self.mmu.relax(turn),
            }
            turn += 1;
        };
        drop(all);
        self.mmu.meets(Word::RangeFreed);
        outcome
    }

    fn attempt<'a>(&'a self, fault: Fault, policy: Policy, taken: &mut Taken<'a>) -> Result<Outcome, Spf> {
        let users = if policy == Policy::Speculative { fault.hint } else { 0 };
        self.mmu.meets(match policy {
            Policy::Speculative => Word::Reader(fault.hint),
            Policy::Classic => Word::Index,
        });
        self.mmu.meets(Word::Users(users));
        let end = self.handle(fault, policy, taken);
        // It was let go.
        self.mmu.meets(Word::Users(users));
        end
    }

    fn handle<'a>(&'a self, fault: Fault, policy: Policy, taken: &mut Taken<'a>) -> Result<Outcome, Spf> {
        let area = match policy {
            Policy::Speculative => self.areas.find(fault.addr, fault.hint).ok_or(Spf::VmaChanged)?,
            Policy::Classic => match self.areas.find_locked(fault.addr) {
                Some(area) => area,
                None => return Ok(self.forbid(fault.addr, Rights::None)),
            },
        };
        // It may have lost this part since it was found.
        let around = |(view, _): &(View, usize)| view.span.contains(fault.addr);
        let (view, sequence) = area.read().filter(around).ok_or(Spf::VmaChanged)?;
        if policy == Policy::Speculative && view.attributes.backed && !self.mmu.fills_at_any_time() {
            return Err(Spf::VmaNotsup);
        }
        if view.attributes.rights < fault.wants {
            return match policy {
                Policy::Speculative => Err(Spf::VmaAccess),
                Policy::Classic => Ok(self.forbid(fault.addr, view.attributes.rights)),
            };
        }
        if view.attributes.kernel {
            return match policy {
                Policy::Speculative => Err(Spf::VmaChanged),
                // Once more: it may have been taken back behind the area's back.
                Policy::Classic => Ok(match self.mmu.leave_to_kernel(view.span) {
                    Ok(()) => Outcome::Installed(Span::new(fault.addr & !(PAGE - 1), PAGE)),
                    Err(error) => Outcome::Failed(error),
                }),
            };
        }
        let page = fault.addr & !(PAGE - 1);
        let mut window = self.window(page, &view, area.id(), fault.hint, taken);
        taken.hopeless = !view.attributes.backed && self.streams.is_hopeless(area.id());
        let mut seen = self.entries.read(page);
        let source = if view.attributes.backed {
            window = window.clip_to_slot(page);
            match self.read(&view, Version { area: area.id(), sequence }, window.span, policy, taken)? {
                Ok(source) => source,
                Err(error) => return Ok(Outcome::Failed(error)),
            }
        } else if fault.wants == Rights::Read && !self.is_written_behind(window, page, &view) {
            Source::ZeroPage
        } else {
            Source::Zeroes
        };

        if window.span.bytes() >= SLOT && source == Source::Zeroes && view.attributes.huge && !window.is_apart() {
            self.ask_ahead(window);
        }

        let mut installed = 0;
        let mut there = Span::new(page, 0);
        let (mut made, mut woken) = (0, false);
        for piece in window.pieces(page) {
            let first = there.is_empty();
            if !first {
                seen = self.entries.read(piece.start);
            }
            self.mmu.meets(Word::Entry(piece.start));
            let entry = match policy {
                Policy::Speculative => self.entries.try_lock(piece.start, seen, || self.mmu.relax(0)),
                Policy::Classic => Some(self.entries.lock(piece.start, |turn| self.mmu.relax(turn))),
            };
            let abort = match entry {
                None => Spf::PmdChanged,
                Some(_) if area.sequence() != sequence => Spf::VmaChanged,
                // Somebody was there before this window: each page would be asked for in vain.
                Some(entry) if !first && entry.kind() == Kind::Huge => continue,
                Some(entry) => {
                    let met = match (first, woken) {
                        (true, _) => Met::Fault(page),
                        (false, true) => Met::Others,
                        (false, false) => Met::Nothing,
                    };
                    match self.install(entry, source, &view, piece, met, &mut taken.tally) {
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
                        // Somebody changes the address space without asking; the second try waits for the end of that.
                        Err(libc_error::EAGAIN | libc_error::ENOENT) if policy == Policy::Speculative => {
                            Spf::VmaChanged
                        }
                        Err(libc_error::ENOENT) => return Ok(Outcome::Forbidden),
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
        taken.tally.add(Counter::RegionPrefaulted, installed.saturating_sub(1));
        Ok(Outcome::Installed(there))
    }

    /// Whether the program has written where it came from, as one that reads each page before it writes to it: it will write to
    /// this window, too.
    fn is_written_behind(&self, window: Window, page: usize, view: &View) -> bool {
        let before = page.wrapping_add_signed(-window.step);
        window.pages() > 1 && view.span.contains(before) && self.mmu.is_own(before)
    }

    /// Has somebody else make huge pages meanwhile, for this window and the one after it.
    fn ask_ahead(&self, window: Window) {
        if let Some(pool) = self.frames.pool()
            && self.ahead > 0
        {
            let old = self.frames.old().map_or(0, Pool::ready);
            pool.ask((window.span.bytes() / SLOT * 2).min(self.ahead).saturating_sub(old));
        }
    }

    /// What a fault on `page` brings.
    fn window(&self, page: usize, view: &View, id: usize, hint: usize, taken: &mut Taken<'_>) -> Window {
        if view.attributes.random {
            return Window::page(page);
        }
        let by = if self.knobs.get(Knob::PrefaultBy) == 0 { By::ThreadAndArea } else { By::Thread };
        let most = self.knobs.get(Knob::PrefaultMaxOrder) as u32;
        self.mmu.meets(Word::Streams(hint));
        let before = self.streams.spent(id);
        let prediction = self.streams.predict(Seen { page, area: view.span, id, hint }, by, most);
        if self.streams.spent(id) != before {
            self.mmu.meets(Word::Account);
        }
        let end = if prediction.follows { Counter::RegionWindowHits } else { Counter::RegionWindowMisses };
        taken.tally.add(end, 1);
        taken.left = prediction.left.or(taken.left);
        prediction.window
    }

    /// Sees how much of a window was used that a stream has left behind.
    fn judge(&self, left: Span, hint: usize) {
        let unused = self.mmu.unused(left);
        self.streams.judge(left.bytes() / PAGE, unused);
        self.count(Counter::RegionUnused, unused, hint);
    }

    /// Whether windows that streams have left wait for somebody to look at them: [`Self::look_back`].
    pub fn has_left_windows(&self) -> bool {
        self.behind.waiting() > 0
    }

    /// Sees how much was used of one of them; whether there was one. By a thread that may wait for a fault of this region.
    pub fn look_back(&self) -> bool {
        let left = self.behind.take();
        left.inspect(|left| self.judge(*left, 0)).is_some()
    }

    /// Has the kernel serve the area around `addr`, of which faults follow nothing: it does that faster.
    fn give_up(&self, addr: usize) {
        let Some(found) = self.areas.find_locked(addr) else { return };
        let span = found.read().map_or(Span::new(addr, 0), |(view, _)| view.span);
        let _range = self.ranges.lock(span, Access::Exclusive);
        // It may have changed before the lock was had.
        let same = self.areas.find_locked(addr).and_then(|area| area.read()).filter(|(view, _)| view.span == span);
        let Some((view, _)) = same.filter(|(view, _)| !view.attributes.backed && !view.attributes.kernel) else {
            return;
        };
        let kernel = || {
            self.entries.put(span, Kind::Pages, |turn| self.mmu.relax(turn));
            self.leave_to_kernel(span)
        };
        let given = self.change(span, kernel, |_| Some(Attributes { kernel: true, ..view.attributes }));
        self.streams.forgive(found.id());
        self.count(Counter::RegionGivenUp, given.is_ok() as usize, 0);
    }

    /// Sees to it that an access that is an error does not come back as a fault, whatever was done to the memory without
    /// the region's knowledge. With the range lock shared, so that nobody changes it.
    fn forbid(&self, addr: usize, rights: Rights) -> Outcome {
        let _ = self.mmu.protect(Span::new(addr & !(PAGE - 1), PAGE), rights);
        Outcome::Forbidden
    }

    /// The bytes of a window from the backing.
    fn read<'a>(
        &'a self,
        view: &View,
        version: Version,
        window: Span,
        policy: Policy,
        taken: &mut Taken<'a>,
    ) -> Result<Result<Source, i32>, Spf> {
        let wait = if policy == Policy::Classic { Wait::Yes } else { Wait::No };
        if self.frames.take(taken, wait, &self.mmu).is_err() {
            return match policy {
                Policy::Speculative => Err(Spf::VmaNoanon),
                Policy::Classic => Ok(Err(libc_error::ENOMEM)),
            };
        }
        let offset = view.offset + (window.start - view.span.start);
        Ok(self.fill(taken, offset, window.bytes(), version).map(Source::Buffer))
    }
}
