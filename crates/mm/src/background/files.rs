//! Background steps for mappings of files: looks how the program walks through them, and asks the kernel to read ahead.
//!
//! What is asked for comes into the kernel's page cache, and nowhere else: the program's page tables stay as they are.
//! Before each request the kernel is asked whether the same file still lies there. A request that comes too late, for
//! another mapping, changes nothing of it (`base/src/sys/mapped_file.rs`).

use faultless_base::Span;
use faultless_base::sync::atomic::Ordering::Relaxed;
use faultless_base::sys::Sys;
use faultless_page::knobs::Knob;
use faultless_page::stats::Counter;

use crate::predict::walks::{Found, Walks};
use crate::predict::worth::Worth;
use crate::space::Space;
use crate::space::progress::{Progress, sooner};
use crate::state::files::{Ended, PLACES, Watched};

/// How long after a look the next one comes, in ms: while the program goes on, while all that it reads is in memory,
/// while requests rest, and at most.
const LOOK_MS: u32 = 1;
const LOOK_CACHED_MS: u32 = 4;
const LOOK_REST_MS: u32 = 16;
const LOOK_MOST_MS: u32 = 64;
/// From then on the program does something else than read: it waits for no device so long.
const PAUSE_MS: u32 = 200;
/// A mapping in which nothing changes for so long is left alone.
const PATIENCE_MS: u32 = 30_000;
/// How often it is found out what memory there is for this.
const ROOM_MS: u32 = 100;

impl<S: Sys> Space<S> {
    /// Page faults that waited for a device.
    fn major_faults(&self) -> usize {
        self.sys.usage().map_or(0, |usage| usage.major_faults)
    }

    /// The program has mapped a file, which it does not write to by this mapping.
    pub fn file_mapped(&self, span: Span) {
        if self.knobs.get(Knob::FileAhead) > 0 && self.files.note(span, self.major_faults()) {
            self.want_worker_now();
        }
    }

    /// Nothing, or something else, is mapped at `span`.
    pub fn file_gone(&self, span: Span) {
        self.files.end(span, Ended::Gone);
    }

    /// The program gave advice of its own.
    pub fn file_advised(&self, span: Span) {
        self.files.end(span, Ended::Advised);
    }

    /// A look at the mapping that is due, and a request for it.
    pub(crate) fn files_step(&self) -> Progress {
        if self.files.is_empty() {
            return Progress::Idle;
        }
        let Some(mut watched) = self.files.watch() else { return Progress::Idle };
        let mut progress = Progress::Idle;
        for i in 0..PLACES {
            if let Some(how) = self.files.ended(i) {
                let why = (how == Ended::Advised).then_some(Counter::ReadAheadAdvised);
                self.end_file(i, watched[i].take(), why);
            } else if let Some((span, faults)) = self.files.noted(i) {
                if watched[i].is_none() {
                    watched[i] = self.begin_file(span);
                }
                match watched[i].as_mut().map(|file| self.file_step(file, faults)) {
                    Some(Ok(next)) => progress = sooner(progress, next),
                    Some(Err(why)) => self.end_file(i, watched[i].take(), why),
                    None => self.end_file(i, None, Some(Counter::ReadAheadRefused)),
                }
            }
        }
        progress
    }

    /// `None`: it is not to be looked after.
    fn begin_file(&self, span: Span) -> Option<Watched> {
        let area = self.sys.file_area(span.start)?;
        let (major, minor, _) = area.file;
        let piece = self.sys.read_ahead_bytes((major, minor));
        let span = span.clip(area.span);
        (piece > 0 && !span.is_empty()).then(|| {
            self.program().count(Counter::MappedFiles, 1);
            let (file, next_ms) = ((area.file, area.origin), self.now_ms());
            let walks = Walks::new(span);
            let (worth, told_ns) = (Worth::new(), self.sys.now_ns());
            Watched {
                walks,
                file,
                worth,
                told_ns,
                used: 0,
                piece,
                is_cold: false,
                next_ms,
                wait_ms: LOOK_MS,
                quiet_ms: 0,
            }
        })
    }

    /// The place is free again; `why` counts the reason, if it is not the program's own end of it.
    fn end_file(&self, i: usize, file: Option<Watched>, why: Option<Counter>) {
        if let Some(file) = file {
            let (used, unused) = file.walks.results();
            self.program().count(Counter::BytesReadAheadUsed, used.saturating_sub(file.used));
            self.program().count(Counter::BytesReadAheadUnused, unused);
        }
        why.into_iter().for_each(|why| self.program().count(why, 1));
        self.files.free(i);
    }

    /// `Err`: it is not to be looked after any more, perhaps with a reason.
    fn file_step(&self, file: &mut Watched, faults: usize) -> Result<Progress, Option<Counter>> {
        let most = self.knobs.get(Knob::FileAhead) as usize;
        if most == 0 {
            return Err(None);
        }
        let now = self.now_ms();
        if now.wrapping_sub(file.next_ms) as i32 >= 0 {
            self.look_at_file(file, faults, now)?;
        } else if !file.is_cold || !file.worth.asks() {
            return Ok(Progress::Wait(u64::from(file.next_ms.wrapping_sub(now)) * 1000));
        }
        if file.is_cold && file.worth.asks() && self.ask_ahead(file, most)? {
            return Ok(Progress::Worked);
        }
        Ok(Progress::Wait(u64::from(file.next_ms.wrapping_sub(now).clamp(1, LOOK_MOST_MS)) * 1000))
    }

    fn look_at_file(&self, file: &mut Watched, faults: usize, now: u32) -> Result<(), Option<Counter>> {
        let walked = file.walks.walked();
        let found = file.walks.look(|span, runs| self.sys.present_runs(span, runs));
        let used = file.walks.results().0.max(file.used);
        self.program().count(Counter::BytesReadAheadUsed, used - file.used);
        file.used = used;
        let now_ns = self.sys.now_ns();
        if file.is_cold && file.quiet_ms < PAUSE_MS {
            let bytes = file.walks.walked().saturating_sub(walked);
            file.worth.note(bytes, now_ns - file.told_ns);
        }
        file.told_ns = now_ns;
        file.is_cold |= self.major_faults() != faults;
        let least = match (file.is_cold, file.worth.rests()) {
            (true, true) => LOOK_REST_MS,
            (true, false) => LOOK_MS,
            _ => LOOK_CACHED_MS,
        };
        match found.ok_or(Some(Counter::ReadAheadRefused))? {
            Found::Growth => (file.wait_ms, file.quiet_ms) = (least, 0),
            Found::Nothing => {
                file.quiet_ms += file.wait_ms;
                file.wait_ms = (file.wait_ms * 2).clamp(least, LOOK_MOST_MS);
            }
            Found::Random => return Err(Some(Counter::ReadAheadRandom)),
            Found::Waste => return Err(Some(Counter::ReadAheadWasted)),
            Found::End => return Err(None),
        }
        file.next_ms = now.wrapping_add(file.wait_ms);
        if file.quiet_ms > PATIENCE_MS { Err(None) } else { Ok(()) }
    }

    /// Asks for one more piece; whether there was one.
    fn ask_ahead(&self, file: &mut Watched, most: usize) -> Result<bool, Option<Counter>> {
        let Some(next) = file.walks.next(self.file_room(most), file.piece) else { return Ok(false) };
        if self.file_room(most) == 0 {
            return Err(Some(Counter::ReadAheadPressed));
        }
        // It may have been unmapped by a call that the engine did not see.
        let area = self.sys.file_area(next.start).filter(|area| (area.file, area.origin) == file.file);
        let Some(area) = area else { return Err(None) };
        let part = next.clip(area.span);
        self.sys.read_ahead(part);
        self.program().count(Counter::BytesReadAhead, part.bytes());
        Ok(true)
    }

    /// What may be asked for, of at most `most` bytes.
    fn file_room(&self, most: usize) -> usize {
        let (files, now) = (&self.files, self.now_ms() | 1);
        if now.wrapping_sub(files.room_ms.load(Relaxed)) > ROOM_MS {
            files.room.store(self.sys.read_ahead_room(), Relaxed);
            files.room_ms.store(now, Relaxed);
        }
        files.room.load(Relaxed).min(most)
    }
}
