//! Background steps for mappings of files that are brought: all of each, beginning where the program is.
//!
//! What is brought lies in the kernel's page cache (`base/src/sys/brought.rs`). So it is the same file for all, and the
//! kernel takes the memory back when it needs it. What the program has not come to is bounded, or bringing a file larger
//! than memory would push out what was brought before.

use faultless_base::Span;
use faultless_base::sys::{self, Sys};
use faultless_page::knobs::Knob;
use faultless_page::stats::Counter;

use crate::predict::sweep::Sweep;
use crate::space::Space;
use crate::space::progress::Progress;
use crate::state::files::{Brought, Task};

/// How often it is found out where the program is, and what memory there is.
const LOOK_MS: u32 = 4;
const ROOM_MS: u32 = 50;
/// How long to wait for the program to come on, where no more may be ahead of it: at first and at most.
const WAIT_MS: u32 = 16;
const WAIT_MOST_MS: u32 = 512;
/// Nothing is brought below this much memory that is available.
const LEAST_AVAILABLE: usize = 256 << 20;
/// Runs of pages that one question tells of.
const RUNS: usize = 24;

impl<S: Sys> Space<S> {
    /// The program has mapped a file that is to be brought.
    pub fn file_to_bring(&self, span: Span) {
        match self.files.note(span, Task::Bring) {
            true => self.want_worker_now(),
            false => self.program().count(Counter::BroughtFull, 1),
        }
    }

    /// `None`: it cannot be brought.
    pub(crate) fn begin_bringing(&self, span: Span) -> Option<Brought> {
        let area = self.sys.file_area(span.start)?;
        let (major, minor, _) = area.file;
        let (span, each) = (span.clip(area.span), self.sys.read_ahead_bytes((major, minor)));
        (each > 0 && !span.is_empty()).then(|| {
            self.program().count(Counter::FilesBrought, 1);
            let sweep = Sweep::new(span, area.origin);
            Brought { span, area, each, sweep, bytes: 0, used: 0, next_ms: self.now_ms(), wait_ms: 0 }
        })
    }

    /// One piece. `Err`: it is not brought any more, perhaps with a reason.
    pub(crate) fn bring_step(&self, file: &mut Brought) -> Result<Progress, Option<Counter>> {
        let now = self.now_ms();
        if now.wrapping_sub(file.next_ms) as i32 >= 0 {
            let first = |part: Span| {
                let mut runs = [Span::new(0, 0)];
                let (told, _) = self.sys.present_runs(part, &mut runs)?;
                Some((told > 0).then_some(runs[0]))
            };
            file.sweep.look(first).ok_or(Some(Counter::BroughtRefused))?;
            file.next_ms = now.wrapping_add(LOOK_MS);
        }
        let piece = file.sweep.next().ok_or(None)?;
        let room = self.room_to_bring();
        if file.bytes.saturating_sub(file.used) >= room {
            file.used = self.present_bytes(file.span);
            if file.bytes.saturating_sub(file.used) >= room {
                file.wait_ms = (file.wait_ms * 2).clamp(WAIT_MS, WAIT_MOST_MS);
                return Ok(Progress::Wait(u64::from(file.wait_ms) * 1000));
            }
        }
        file.wait_ms = 0;
        let counter = match self.sys.bring(piece, &file.area, file.each) {
            sys::Brought::Read => Counter::BytesBrought,
            sys::Brought::Cached => Counter::BroughtCached,
            sys::Brought::Gone => return Err(None),
            sys::Brought::Refused => return Err(Some(Counter::BroughtRefused)),
        };
        self.program().count(counter, piece.bytes());
        file.bytes += piece.bytes();
        file.sweep.pass();
        Ok(Progress::Worked)
    }

    /// Bytes that are in the program's page tables.
    fn present_bytes(&self, span: Span) -> usize {
        let (mut bytes, mut at) = (0, span.start);
        while at < span.end {
            let mut runs = [Span::new(0, 0); RUNS];
            let Some((told, to)) = self.sys.present_runs(Span { start: at, end: span.end }, &mut runs) else {
                break;
            };
            bytes += runs[..told].iter().map(|run| run.bytes()).sum::<usize>();
            at = if to > at { to } else { span.end };
        }
        bytes
    }

    /// Bytes of a file that may be in memory ahead of the program.
    fn room_to_bring(&self) -> usize {
        let find = || match self.sys.available_bytes() {
            available if available < LEAST_AVAILABLE => 0,
            available => available / 100 * self.knobs.get(Knob::FilesShare) as usize,
        };
        self.files.room_to_bring.get(self.now_ms(), ROOM_MS, find)
    }
}
