//! The thread that writes dirty pages back before a sync asks for it (`Cache::flush`).
//!
//! It begins with the first write to a file, and looks every few seconds. It looks at once when a write by a call finds
//! more dirty bytes than the knob `dirty_background` allows. Where nothing is dirty and nothing is mapped lazily for writing,
//! it sleeps until the next write. Writes never wait for it; the end of the last handle of a file waits for its turn.
//!
//! It has a file for one turn at a time (`caches::in_turn`). A file is open in other places too while it does so: the
//! last handle writes back itself.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

use faultless_base::SLOT;
use faultless_mm::cache::flush::Flush;
use faultless_page::gauges::{Gauge, Gauges};
use faultless_page::knobs::{Knob, Values};

use crate::file::caches;
use crate::page;
use crate::process::bell::Bell;
use crate::process::owner::OfProcess;
use crate::process::thread::Thread;

/// The longest and the shortest time between two looks.
const LONG: u64 = 5000;
const SHORT: u64 = 20;
/// How often it looks while a page comes of age.
const LOOKS: u64 = 6;
/// How long it waits, in ms, where too much is dirty and nothing could be written.
const PATIENCE: u64 = 100;

struct Flusher {
    bell: Bell,
    /// Whether it was started.
    is_started: AtomicBool,
    /// Whether it looks again without being told.
    is_awake: AtomicBool,
    /// Whether it was told of too many dirty bytes.
    is_told: AtomicBool,
    gauges: &'static Gauges,
    knobs: &'static Values,
}

static FLUSHER: OfProcess<Flusher> = OfProcess::new();

fn flusher() -> &'static Flusher {
    FLUSHER.get(|| Flusher {
        bell: Bell::default(),
        is_started: AtomicBool::new(false),
        is_awake: AtomicBool::new(false),
        is_told: AtomicBool::new(false),
        gauges: page::gauges(),
        knobs: &page::page().knobs,
    })
}

/// Pages of a file are dirty by a call: the thread looks at them in time.
pub(super) fn note_write() {
    let flusher = flusher();
    // Pairs with the one in `sleeps`: either this sees that it sleeps, or it sees that there are dirty pages.
    fence(Ordering::SeqCst);
    if !flusher.is_awake.load(Ordering::Relaxed) {
        flusher.wake();
    } else if flusher.is_over() && !flusher.is_told.swap(true, Ordering::Relaxed) {
        flusher.bell.ring();
    }
}

/// A mapping may change without a call from now on.
pub(super) fn note_mapping() {
    flusher().wake();
}

impl Flusher {
    fn is_on(&self) -> bool {
        self.knobs.get(Knob::DirtyBackground) > 0 || self.knobs.get(Knob::DirtyExpire) > 0
    }

    /// Whether more is dirty than the knobs allow.
    fn is_over(&self) -> bool {
        let percent = self.knobs.get(Knob::DirtyBackground);
        // A huge page is no reason to begin.
        let most = (self.knobs.budget_share() / 100 * percent).max(SLOT as u64);
        percent > 0 && self.gauges.get(Gauge::Dirty) > most
    }

    fn wake(&'static self) {
        if !self.is_on() {
            return;
        }
        self.is_awake.store(true, Ordering::Relaxed);
        if self.is_started.swap(true, Ordering::Relaxed) {
            self.bell.ring();
        } else if let Ok(thread) = Thread::start(c"faultless-flush", move || self.serve()) {
            drop(thread);
        }
        // Without a thread all waits for a sync, as a program without this does.
    }

    fn serve(&self) -> ! {
        loop {
            let rung = self.bell.rung();
            self.is_told.store(false, Ordering::Relaxed);
            let looked = self.look();
            let timeout = match looked {
                Looked::Stuck { has_failed } => {
                    // A thread that writes need not tell.
                    self.is_told.store(true, Ordering::Relaxed);
                    Some(if has_failed { self.pause() } else { PATIENCE })
                }
                Looked::Done { is_mapped } if is_mapped || !self.sleeps() => Some(self.pause()),
                Looked::Done { .. } => None,
            };
            self.bell.wait(rung, timeout.map(|ms| Duration::from_millis(ms).as_nanos() as u64));
        }
    }

    /// The time until the next look, in ms.
    fn pause(&self) -> u64 {
        match self.knobs.get(Knob::DirtyExpire) {
            0 => LONG,
            expire => (expire / LOOKS).clamp(SHORT, LONG),
        }
    }

    /// Nothing is dirty: writes have to wake it from now on.
    fn sleeps(&self) -> bool {
        self.is_awake.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let sleeps = self.gauges.get(Gauge::Dirty) == 0 || !self.is_on();
        if !sleeps {
            self.is_awake.store(true, Ordering::Relaxed);
        }
        sleeps
    }

    /// Writes what is due in all files.
    fn look(&self) -> Looked {
        let (mut is_mapped, mut is_stuck, mut has_failed) = (false, false, false);
        for file in caches::all() {
            let _ = caches::in_turn(&file, |shared| {
                let (mut written, mut is_over) = (0, self.is_over());
                while self.is_on() {
                    // An error is kept for the next sync, and this is tried again at the next look.
                    let flushed = shared.flush(self.which(is_over));
                    let more = flushed.unwrap_or(0);
                    has_failed |= flushed.is_err();
                    written += more;
                    is_over = self.is_over();
                    if more == 0 {
                        break;
                    }
                }
                is_stuck |= is_over && written == 0;
                is_mapped |= shared.is_mapped_lazily_for_writing();
            });
        }
        if (is_stuck && self.is_over()) || has_failed {
            Looked::Stuck { has_failed }
        } else {
            Looked::Done { is_mapped }
        }
    }

    fn which(&self, is_over: bool) -> Flush {
        match self.knobs.get(Knob::DirtyExpire) {
            _ if is_over => Flush::All,
            0 => Flush::Older(u32::MAX),
            expire => Flush::Older(expire as u32),
        }
    }
}

enum Looked {
    /// Too much is dirty and nothing was written, or a write has failed.
    Stuck {
        has_failed: bool,
    },
    Done {
        is_mapped: bool,
    },
}
