//! Mappings of files that are large enough to be read ahead of the program, or brought.
//!
//! The kernel makes them, and serves them. The engine is told of them, of their end, and of the program's own advice.

use faultless_base::Span;
use faultless_base::sys::brought;
use faultless_page::knobs::{Knob, paths};
use faultless_page::stats::Counter;

use crate::mmap::FIXED;
use crate::runtime::{engine, settings};

/// The smallest mapping that is looked after. Below it reading takes no longer than it takes to find out how the
/// program reads.
const LEAST: usize = 32 << 20;
/// Flags with which a mapping is looked after; all others ask for something that is the program's business.
const FLAGS: i32 = libc::MAP_PRIVATE | libc::MAP_SHARED | libc::MAP_NORESERVE | FIXED;

/// The program has mapped a file by these arguments.
pub fn mapped(span: Span, args: [usize; 6]) {
    let [_, _, prot, flags, fd, _] = args;
    let (prot, flags) = (prot as i32, flags as i32);
    if span.bytes() < LEAST {
        return;
    }
    let is_written = flags & libc::MAP_SHARED != 0 && prot & libc::PROT_WRITE != 0;
    let is_read = prot & libc::PROT_READ != 0 && prot & libc::PROT_EXEC == 0;
    let is_fit = is_read && !is_written && flags & !FLAGS == 0;
    if !settings::files().is_empty() && bring(span, fd, is_fit) {
        return;
    }
    if is_fit
        && is_wanted()
        && let Some(engine) = engine::enter_call().filter(|engine| !engine.is_retired())
    {
        engine.space.file_mapped(span);
    }
}

/// Has a mapping brought if its file is meant; whether it is.
fn bring(span: Span, fd: usize, is_fit: bool) -> bool {
    let Some(engine) = engine::enter_call().filter(|engine| !engine.is_retired()) else { return false };
    let is_meant = brought::with_path(fd, |path| paths::is_match(settings::files(), path)) == Some(true);
    match is_meant && is_fit {
        true => engine.space.file_to_bring(span),
        false if is_meant => engine.count(Counter::BroughtUnfit),
        false => {}
    }
    is_meant
}

/// Whether files are read ahead at all: the engine does not start for nothing.
fn is_wanted() -> bool {
    match engine::running() {
        Some(engine) => engine.page.knobs.get(Knob::FileAhead) > 0,
        None => settings::file_ahead() > 0,
    }
}

/// Nothing, or something else, is mapped there.
pub fn gone(span: Span) {
    if span.bytes() >= LEAST
        && let Some(engine) = engine::running()
    {
        engine.space.file_gone(span);
    }
}

/// The program gave advice about a range.
pub fn advised(span: Span, advice: i32) {
    let Some(engine) = engine::running() else { return };
    match advice {
        libc::MADV_RANDOM | libc::MADV_DONTNEED | libc::MADV_COLD | libc::MADV_PAGEOUT => {
            engine.space.file_advised(span);
        }
        libc::MADV_SEQUENTIAL | libc::MADV_WILLNEED | libc::MADV_POPULATE_READ => engine.space.file_needed(span),
        _ => {}
    }
}
