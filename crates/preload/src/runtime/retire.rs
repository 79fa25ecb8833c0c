//! The end of service: the engine of this process retires, or is called off before it begins.

use core::sync::atomic::{AtomicBool, Ordering};

use faultless_base::sys::raw::{self, NoSignals};
use faultless_base::sys::{open, stack};
use faultless_page::layout::plain;
use faultless_page::stats::Counter;

use crate::runtime::engine::{
    Engine, MANAGED_BYTES, RETIRED, STARTER, adopt, is_home, is_retired, running, wait_while_made,
};
use crate::runtime::inside::{Ending, Inside, REST_NS, wait_for_end};
use crate::runtime::{confined, inside, page, settings, worker};

/// The engine's own system calls once its service has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    /// They may go on.
    GoOn,
    /// None is made that the program would not: it is about to filter them.
    End,
}

/// Serves no new request from now on, gives all that is free back, addresses included, and ends the background
/// thread. What the program has in the arena are ordinary mappings from then on. An engine that has not started never
/// will. A child that shares this memory may ask for it, too, unless it may make few system calls: then nothing is
/// given back.
pub fn retire() {
    if is_over() {
        return;
    }
    let is_filtered = matches!(confined::now(), confined::FILTERED | confined::STRICT);
    if call_off(Calls::GoOn) || is_filtered {
        RETIRED.store(true, Ordering::SeqCst);
        if !is_filtered {
            wait_while_made();
        }
        return;
    }
    confined::set(confined::FREE);
    retire_with(Calls::GoOn);
}

/// Whether all of it was done.
pub fn is_over() -> bool {
    is_retired()
        && !DUE.load(Ordering::Relaxed)
        && (running().is_none() || MANAGED_BYTES.load(Ordering::Relaxed) == 0)
}

/// Something of the arena is to be given back still: its lock was not to be had, perhaps because this was asked for by a
/// handler that interrupted its holder.
static DUE: AtomicBool = AtomicBool::new(false);

/// In a forked child: whether something is due there, too.
pub(super) fn be_due(is_due: bool) {
    DUE.store(is_due, Ordering::SeqCst);
}

fn retire_with(calls: Calls) {
    let mut ending = Ending::new();
    if ending.is_late() {
        return wait_for_end();
    }
    let signals = NoSignals::new();
    // What was interrupted sees to a forked child's engine.
    let engine = running().filter(|engine| engine.is_settled() || !ending.is_nested() && adopt(engine));
    if engine.is_some_and(|engine| !engine.is_retired() && !ending.is_nested()) {
        page::after_fork();
    }
    RETIRED.store(true, Ordering::SeqCst);
    // No call: it is memory, which watchers read.
    engine.inspect(|engine| engine.page.header.plain.store(plain::ENDED, Ordering::Relaxed));
    let _stopped = engine.map(|_| worker::stop());
    if calls == Calls::End {
        running().into_iter().for_each(|engine| engine.space.close());
        if !ending.end_calls() {
            drop(signals);
            return ending.give_way();
        }
    }
    // It may have been started by another thread just now.
    let Some(engine) = engine.or_else(running).filter(|engine| engine.is_settled()) else {
        return DUE.store(calls == Calls::GoOn && running().is_some(), Ordering::SeqCst);
    };
    if MANAGED_BYTES.load(Ordering::Relaxed) != 0 {
        engine.count(Counter::KernelLimited);
    }
    let all = give_all_back(engine, ending.may_wait());
    MANAGED_BYTES.store(0, Ordering::Release);
    raw::end_together();
    // A filter may forbid to do it later.
    DUE.store(calls == Calls::GoOn && !all, Ordering::SeqCst);
}

/// Gives back what is free; whether that was all. Waits for other threads' locks, if it may, as they are held for a moment
/// as a rule.
fn give_all_back(engine: &Engine, may_wait: bool) -> bool {
    const MOST_NS: u64 = 100_000_000;
    let start = raw::now_ns();
    loop {
        if engine.space.retire() {
            return true;
        }
        if !may_wait || raw::now_ns() - start > MOST_NS {
            return false;
        }
        raw::sleep_ns(REST_NS);
    }
}

/// Gives back what is due, after this thread has left the engine.
#[inline]
pub fn finish_if_due() {
    if DUE.load(Ordering::Relaxed) {
        finish();
    }
}

#[cold]
fn finish() {
    // Behind a filter the question might end the program.
    let is_home = || inside::are_calls_over() || is_home();
    if !confined::is_apart() && is_home() && DUE.swap(false, Ordering::SeqCst) {
        retire_with(Calls::GoOn);
    }
}

/// Before this process confines itself: the engine retires. A child that shares its parent's memory leaves the engine
/// to the parent, and does without.
pub fn confine(how: u32) {
    let calls = if how == confined::FILTERED { Calls::End } else { Calls::GoOn };
    if !retire_process(calls) {
        confine_child(how);
    }
}

/// The same unless this process shares its parent's memory, which is then told: the engine stays as it is.
pub fn retire_process(calls: Calls) -> bool {
    if calls == Calls::End {
        UNTOLD.store(false, Ordering::Relaxed);
    }
    if is_over() && (calls == Calls::GoOn || running().is_none() || inside::are_calls_over()) {
        wait_for_end();
        return true;
    }
    if confined::is_apart() {
        return false;
    }
    let is_home = is_home();
    match calls {
        Calls::GoOn if is_home && call_off(calls) => {
            RETIRED.store(true, Ordering::SeqCst);
            wait_while_made();
        }
        // A thread that makes the engine, or is about to, ends its calls first.
        _ if is_home => {
            call_off(calls);
            retire_with(calls);
        }
        _ => {}
    }
    is_home
}

/// A child of vfork has limits of its own, but its memory is the parent's.
fn confine_child(how: u32) {
    match confined::now() {
        confined::FREE if confined::ends_with_process() => confined::set(how),
        confined::FREE => retire(),
        confined::LIMITED => confined::set(how),
        _ => {}
    }
}

/// The service was called off before it began, and no page says so yet. A program that makes no large request leaves
/// none.
static UNTOLD: AtomicBool = AtomicBool::new(false);

#[inline]
pub(super) fn tell_if_untold() {
    if UNTOLD.load(Ordering::Relaxed) {
        tell_ended();
    }
}

/// The first large request of a program whose service was called off.
#[cold]
fn tell_ended() {
    let Some(_inside) = Inside::enter() else { return };
    let may_tell = !confined::is_apart() && raw::may_call() && is_home() && !settings::is_confined();
    if may_tell && UNTOLD.swap(false, Ordering::Relaxed) {
        stack::with_room(|| open::apart(settings::tell_ended));
    }
}

/// Makes sure that the service never begins, if it has not; whether that is so. Its own calls may go on or not.
fn call_off(calls: Calls) -> bool {
    let is_first = !STARTER.is_off();
    let done = STARTER.call_off();
    if done && is_first && calls == Calls::GoOn && is_home() {
        UNTOLD.store(true, Ordering::Relaxed);
    }
    done
}
