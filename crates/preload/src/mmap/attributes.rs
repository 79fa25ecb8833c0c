//! Calls that change attributes of memory. The kernel does them; the engine only notes that blocks with changed
//! attributes must not be recycled, and keeps its background thread away.

use core::ffi::{c_long, c_ulong, c_void};

use faultless_base::sys::isolate::{self, Rest};
use faultless_base::sys::linux::Linux;
use faultless_base::sys::raw::{self, Answer};
use faultless_base::{Errno, SLOT, Span};
use faultless_mm::mapping::Change;
use faultless_mm::space::Space;

use crate::alloc;
use crate::kernel::call::{pages, size, sound, status};
use crate::kernel::dispatch::syscall;
use crate::kernel::libraries_behind::Call;
use crate::mmap::{before_populate, files};
use crate::runtime::confined;
use crate::runtime::engine::{self, Engine};
use crate::runtime::inside::aside;
use crate::runtime::seen;
use crate::shutdown::limits;

/// Attributes of a range change: tells the engine, if blocks are concerned. Blocks of the C library's keep them when
/// they grow, and stay its own.
pub fn note(addr: *const c_void, bytes: usize) {
    let span = pages(addr as usize, bytes);
    alloc::note_beside(span);
    if engine::touches(span) {
        tell(|space| space.taint(span));
    }
    give_up_places(span);
}

/// Before the program does something about addresses where ranges are isolated. They are another reservation of ours.
fn give_up_places(span: Span) {
    if isolate::touches(span) {
        let entered = engine::enter_call();
        isolate::give_up(span, if entered.is_some() { Rest::GoesBack } else { Rest::Stays });
    }
}

/// Tells the engine what takes no lock.
fn tell(f: impl FnOnce(&Space<Linux>)) {
    // A child that does without the engine changes its parent's memory, too; to note that takes no system call.
    let engine = engine::settled().or_else(|| engine::running().filter(|_| confined::is_apart()));
    if let Some(engine) = engine {
        aside(|| f(&engine.space));
    }
}

/// Before something else comes to lie over all of a range, or nothing.
pub fn give_up(addr: *const c_void, bytes: usize) {
    let span = pages(addr as usize, bytes);
    if engine::touches(span) {
        match engine::enter_call() {
            Some(engine) => engine.space.give_up(span),
            None => tell(|space| space.give_up_inside(span)),
        }
    }
    give_up_places(span);
}

macro_rules! changes {
    ($($name:ident, $call:ident($addr:ident, $bytes:ident $(, $arg:ident: $type:ty)*);)+) => { $(
        #[doc = concat!("As ", stringify!($name), "(2).")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($addr: *mut c_void, $bytes: usize $(, $arg: $type)*) -> i32 {
            note($addr, $bytes);
            let mut args = [0; 6];
            args.iter_mut().zip([$addr as usize, $bytes $(, $arg as usize)*]).for_each(|(to, from)| *to = from);
            // SAFETY: the caller's promise.
            status(limits::with_relief(|| unsafe { Call::$call.pass_on(args) }))
        }
    )+ };
}

changes! {
    mprotect, Mprotect(addr, bytes, prot: i32);
    mlock, Mlock(addr, bytes);
    mlock2, Mlock2(addr, bytes, flags: u32);
    munlock, Munlock(addr, bytes);
}

/// As mseal(2), which C libraries have since 2.41.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mseal(addr: *mut c_void, bytes: usize, flags: c_ulong) -> i32 {
    note(addr, bytes);
    // SAFETY: the caller's promise.
    status(unsafe { Call::Mseal.pass_on([addr as usize, bytes, flags as usize, 0, 0, 0]) })
}

/// Of `mbind`: fail if a page lies elsewhere; move what does.
const STRICT: usize = 1 << 0;
const MOVE: usize = 1 << 1;

/// Makes the call `mbind`. Memory that was there before the program came to it goes where the program wants it: it
/// would come from there on the kernel's own way.
pub fn place(args: [usize; 6], make: impl Fn([usize; 6]) -> Answer) -> Answer {
    note(args[0] as *const c_void, args[1]);
    let answer = make(args);
    let flags = args[5];
    let is_misplaced = answer == Err(Errno::new(libc::EIO)) && flags & STRICT != 0;
    if answer.is_err() && !is_misplaced || flags & MOVE != 0 {
        return answer;
    }
    let mut moved = false;
    let span = pages(args[0], args[1]);
    if let Some(engine) = engine::settled() {
        let there = |part: Span| {
            moved = true;
            // SAFETY: the policy that the program has just asked for, for a part of the same memory.
            let _ = unsafe {
                raw::syscall(libc::SYS_mbind, [part.start, part.bytes(), args[2], args[3], args[4], MOVE])
            };
        };
        aside(|| engine.space.each_brought(span, there));
    }
    if !is_misplaced {
        return answer;
    }
    if !moved && let Some(engine) = engine::enter_call() {
        // No page may lie here, or none was to be: on the kernel's own way there would be none yet.
        engine.space.unbring(raw::cpu(), span);
    }
    make(args)
}

/// As mbind(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mbind(
    addr: *mut c_void,
    bytes: c_ulong,
    mode: i32,
    mask: *const c_ulong,
    max: c_ulong,
    flags: u32,
) -> c_long {
    let args = [addr as usize, bytes as usize, mode as usize, mask as usize, max as usize, flags as usize];
    // SAFETY: the caller's promise.
    size(place(args, |args| unsafe { Call::Mbind.pass_on(args) })) as c_long
}

/// As pkey_mprotect(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pkey_mprotect(addr: *mut c_void, bytes: usize, prot: i32, key: i32) -> i32 {
    before_pkey(addr, bytes, key);
    let args = [addr as usize, bytes, prot as usize, key as usize, 0, 0];
    if key == -1 && !Call::PkeyMprotect.is_seen() {
        // As the C library does: a filter may not know the other call.
        // SAFETY: the caller's promise.
        return status(unsafe { syscall(libc::SYS_mprotect, args) });
    }
    // SAFETY: the caller's promise.
    status(unsafe { Call::PkeyMprotect.pass_on(args) })
}

/// Before a range gets a protection key.
pub fn before_pkey(addr: *mut c_void, bytes: usize, key: i32) {
    // Without a key it is mprotect.
    if key != -1
        && let Some(engine) = engine::settled()
    {
        // The kernel may refuse to drop what a key protects.
        aside(|| engine.space.reference(pages(addr as usize, bytes)));
    }
    note(addr, bytes);
}

/// Whether an advice leaves memory with an attribute.
pub fn lasts(advice: i32) -> bool {
    matches!(effect(advice), Effect::Taint)
}

/// The engine's part of an advice, beside the kernel's.
enum Effect {
    /// Nothing that lasts.
    Nothing,
    /// The content goes, or the program asks for huge pages.
    Change(Change),
    /// Memory comes at once.
    Populate,
    /// Blocks must not be recycled.
    Taint,
}

fn effect(advice: i32) -> Effect {
    match advice {
        libc::MADV_DONTNEED | libc::MADV_DONTNEED_LOCKED => Effect::Change(Change::Dropped),
        libc::MADV_FREE | libc::MADV_PAGEOUT => Effect::Change(Change::Offered),
        libc::MADV_NORMAL | libc::MADV_WILLNEED | libc::MADV_COLD | libc::MADV_COLLAPSE => Effect::Nothing,
        libc::MADV_POPULATE_READ | libc::MADV_POPULATE_WRITE => Effect::Populate,
        libc::MADV_HUGEPAGE => Effect::Change(Change::HugeAdvised),
        _ => Effect::Taint,
    }
}

unsafe fn advised(addr: usize, bytes: usize, advice: i32) -> Answer {
    // SAFETY: the caller's promise.
    unsafe { syscall(libc::SYS_madvise, [addr, bytes, advice as usize, 0, 0, 0]) }
}

/// Tells the engine of an advice.
fn heed(addr: *mut c_void, bytes: usize, advice: i32) {
    let span = pages(addr as usize, bytes);
    if advice == libc::MADV_NOHUGEPAGE {
        seen::refuse_huge();
    }
    if lasts(advice) {
        // Also where the engine starts later.
        note(addr, bytes);
    }
    if engine::running().is_none() {
        return;
    }
    files::advised(span, advice);
    if [libc::MADV_HUGEPAGE, libc::MADV_NOHUGEPAGE].contains(&advice) && !engine::touches(span) {
        aside(|| {
            if let Some(engine) = engine::settled() {
                engine.space.advised_by_program(span);
            }
        });
    }
    match effect(advice) {
        Effect::Nothing | Effect::Taint => {}
        Effect::Populate => before_populate(bytes),
        Effect::Change(change) => {
            if let Some(engine) = engine::settled() {
                if engine::touches(span) {
                    aside(|| engine.space.change_blocks(span, change));
                } else if bytes >= SLOT {
                    aside(|| {
                        if change != Change::HugeAdvised {
                            drop(engine.space.emptied(span));
                        }
                        engine.space.change(span, change);
                    });
                }
            }
        }
    }
}

/// As madvise(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(addr: *mut c_void, bytes: usize, advice: i32) -> i32 {
    if Call::Madvise.is_seen() {
        heed(addr, bytes, advice);
        // SAFETY: the caller's promise.
        return status(unsafe { Call::Madvise.pass_on([addr as usize, bytes, advice as usize, 0, 0, 0]) });
    }
    status(advise(addr as usize, bytes, advice))
}

/// madvise, by the kernel, in several calls perhaps.
pub fn advise(addr: usize, bytes: usize, advice: i32) -> Answer {
    if advice == libc::MADV_DONTNEED
        && bytes >= SLOT
        && engine::running().is_some()
        && let Some(span) = sound(addr, bytes)
        && !engine::touches(span)
        && let Some(engine) = engine::enter_call()
    {
        files::advised(span, advice);
        return drop_content(&engine, span);
    }
    heed(addr as *mut c_void, bytes, advice);
    // SAFETY: the program's own call.
    let answer = unsafe { advised(addr, bytes, advice) };
    match advice {
        libc::MADV_COLLAPSE if answer == Err(Errno::EINVAL) => collapse(addr, bytes),
        _ => answer,
    }
}

/// `MADV_COLLAPSE` of what the kernel has refused: perhaps only because the engine has asked for small pages there. That is
/// taken back; with a userfaultfd, for this call: what the program watches is to stay one area.
fn collapse(addr: usize, bytes: usize) -> Answer {
    let span = pages(addr, bytes);
    let is_ours = engine::running()
        .is_some_and(|engine| engine::touches(span) || aside(|| engine.space.may_have_refused(span)));
    if !is_ours || seen::refuses_huge() {
        return Err(Errno::EINVAL);
    }
    heed(addr as *mut c_void, bytes, libc::MADV_HUGEPAGE);
    // SAFETY: advice about huge pages changes no byte; and the program's own call.
    unsafe {
        let _ = advised(addr, bytes, libc::MADV_HUGEPAGE);
        let answer = advised(addr, bytes, libc::MADV_COLLAPSE);
        if seen::watches() {
            let _ = advised(addr, bytes, libc::MADV_NOHUGEPAGE);
        }
        answer
    }
}

/// `MADV_DONTNEED`: frames that the program is expected to use again soon are taken out first and come back as zeroes.
fn drop_content(engine: &Engine, span: Span) -> Answer {
    let mut answer = Ok(0);
    let _emptying = engine.space.emptied(span);
    engine.space.recycle(raw::cpu(), span, |part| {
        // SAFETY: the program's own call for a part of its range.
        answer = unsafe { advised(part.start, part.bytes(), libc::MADV_DONTNEED) };
        answer.is_ok()
    });
    answer
}

/// As posix_madvise(3): the error is the result, and `POSIX_MADV_DONTNEED` does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_madvise(addr: *mut c_void, bytes: usize, advice: i32) -> i32 {
    if advice != libc::POSIX_MADV_DONTNEED {
        heed(addr, bytes, advice);
    } else if !Call::PosixMadvise.is_seen() {
        return 0;
    }
    // SAFETY: the caller's promise. A function of that name answers with the error.
    let answer = unsafe { Call::PosixMadvise.pass_on([addr as usize, bytes, advice as usize, 0, 0, 0]) };
    answer.map_or_else(Errno::number, |error| error as i32)
}
