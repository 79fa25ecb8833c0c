//! Mappings of files that are large enough to be read ahead of the program.
//!
//! The kernel makes them, and serves them. The engine is told of them, of their end, and of the program's own advice.

use faultless_base::Span;
use faultless_page::knobs::Knob;

use crate::runtime::{engine, settings};

/// The smallest mapping that is looked after. Below it reading takes no longer than it takes to find out how the
/// program reads.
const LEAST: usize = 32 << 20;
/// Flags with which a mapping is looked after; all others ask for something that is the program's business.
const FLAGS: i32 = libc::MAP_PRIVATE | libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED;

/// The program has mapped a file.
pub fn mapped(span: Span, prot: i32, flags: i32) {
    let is_written = flags & libc::MAP_SHARED != 0 && prot & libc::PROT_WRITE != 0;
    let is_read = prot & libc::PROT_READ != 0 && prot & libc::PROT_EXEC == 0;
    if span.bytes() >= LEAST
        && is_read
        && !is_written
        && flags & !FLAGS == 0
        && is_wanted()
        && let Some(engine) = engine::enter_call().filter(|engine| !engine.is_retired())
    {
        engine.space.file_mapped(span);
    }
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
    let says_how_it_reads = matches!(
        advice,
        libc::MADV_RANDOM
            | libc::MADV_SEQUENTIAL
            | libc::MADV_WILLNEED
            | libc::MADV_DONTNEED
            | libc::MADV_COLD
            | libc::MADV_PAGEOUT
            | libc::MADV_POPULATE_READ
    );
    if says_how_it_reads && let Some(engine) = engine::running() {
        engine.space.file_advised(span);
    }
}
