//! Threads that bring files, piece by piece, in order.
//!
//! | lock | what it protects | held |
//! |---|---|---|
//! | `queue` | which piece comes next, and how much memory there is for it | while a file is opened: that may take long |
//! | `counts` | what was done | for a moment: the command's main thread takes it at the end |
//!
//! `counts` is taken within `queue`, never the other way round. At the end the main thread waits a moment for the others,
//! and no longer: a file may be on a machine that does not answer. Where the command ends, so do they.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use faultless_base::sys::pressure;

use super::named::Named;
use super::opened::{Brought, Next, Opened, Piece, Walk, why};
use super::way::{Choice, Way};
use super::{Report, Skipped};

/// How many pieces are read at a time.
const THREADS: usize = 4;
const STACK: usize = 512 << 10;
/// Bytes that stay available beside the files.
const RESERVE: u64 = 256 << 20;
/// Memory is looked at again after this many bytes.
const LOOK: u64 = 64 << 20;
/// While tasks wait for memory, threads rest this long, and this many times at most.
const REST: Duration = Duration::from_millis(50);
const RESTS: usize = 20;
/// For so long the end waits for pieces that are being read.
const LAST: Duration = Duration::from_millis(200);
/// How many skipped files are named.
const NAMED: usize = 5;

const SHORT: &str = "too little memory is available";
const ENDED: &str = "the program ended before";

/// Files that are being brought.
pub struct Bringing(Arc<Shared>);

struct Shared {
    start: Instant,
    is_over: AtomicBool,
    queue: Mutex<Queue>,
    counts: Mutex<Counts>,
    /// The last thread has ended.
    done: Condvar,
}

struct Queue {
    files: VecDeque<PathBuf>,
    /// The file of the next piece, and how far it was walked through.
    open: Option<(Arc<Opened>, Walk)>,
    /// Bytes that may be asked for before memory is looked at.
    room: u64,
    /// Bytes that were asked for.
    asked: u64,
    choice: Choice,
}

#[derive(Default)]
struct Counts {
    report: Report,
    skipped: usize,
    cached_unknown: bool,
    cached: u64,
    /// Threads that are at work.
    threads: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bringing {
    /// Begins, unless there is a reason against it.
    pub fn start(named: Named, against: Option<&str>) -> Self {
        let is_empty = named.files.is_empty();
        let report = Report { files: named.files.len(), bytes: named.bytes, ..Report::default() };
        let shared = Arc::new(Shared {
            start: Instant::now(),
            is_over: AtomicBool::new(false),
            queue: Mutex::new(Queue {
                files: named.files.into(),
                open: None,
                room: 0,
                asked: 0,
                choice: Choice::default(),
            }),
            counts: Mutex::new(Counts { report, ..Counts::default() }),
            done: Condvar::new(),
        });
        let against = match against {
            Some(why) => Some(why.into()),
            None if is_empty => Some("no file was named".into()),
            // One is enough.
            None => (0..THREADS)
                .map(|_| shared.start_thread())
                .reduce(Result::or)
                .and_then(Result::err)
                .map(|error| format!("no thread could be started: {error}")),
        };
        if let Some(why) = against {
            lock(&shared.counts).stop(why);
        }
        Self(shared)
    }

    /// No piece is begun any more. What was done.
    pub fn end(self) -> Report {
        self.0.is_over.store(true, Ordering::Relaxed);
        let counts = lock(&self.0.counts);
        let waited = self.0.done.wait_timeout_while(counts, LAST, |counts| counts.threads > 0);
        let mut counts = waited.unwrap_or_else(PoisonError::into_inner).0;
        if counts.threads > 0 {
            counts.stop(ENDED.into());
            counts.report.seconds = self.0.start.elapsed().as_secs_f64();
        }
        counts.report()
    }
}

impl Counts {
    /// The first reason counts.
    fn stop(&mut self, why: String) {
        self.report.stopped.get_or_insert(why);
    }

    fn skip(&mut self, file: &Path, why: String) {
        self.skipped += 1;
        if self.skipped <= NAMED {
            self.report.skipped.push(Skipped { file: file.display().to_string(), why });
        }
    }

    fn add(&mut self, brought: Brought) {
        self.cached_unknown |= brought.cached.is_none();
        let cached = brought.cached.unwrap_or(0);
        self.cached += cached;
        self.report.brought_bytes += brought.bytes - cached;
    }

    fn report(&self) -> Report {
        let mut report = self.report.clone();
        report.cached_bytes = (!self.cached_unknown).then_some(self.cached);
        if self.skipped > NAMED {
            let why = "skipped, too".into();
            report.skipped.push(Skipped { file: format!("{} more", self.skipped - NAMED), why });
        }
        report
    }
}

impl Shared {
    fn start_thread(self: &Arc<Self>) -> io::Result<()> {
        let shared = self.clone();
        let thread = thread::Builder::new().name("files".into()).stack_size(STACK);
        // It is at work from now on, and not only when it has got a processor.
        lock(&self.counts).threads += 1;
        let started = thread.spawn(move || shared.work()).map(drop);
        if started.is_err() {
            lock(&self.counts).threads -= 1;
        }
        started
    }

    fn work(&self) {
        while let Some((file, piece, way)) = self.next() {
            match file.bring(&piece, way) {
                Ok(brought) => {
                    if let Some(time) = brought.time {
                        lock(&self.queue).choice.took(way, brought.bytes, time);
                    }
                    lock(&self.counts).add(brought);
                }
                Err(error) => self.leave(&file, &piece, &error),
            }
        }
        let mut counts = lock(&self.counts);
        counts.threads -= 1;
        if counts.threads == 0 {
            counts.report.seconds = self.start.elapsed().as_secs_f64();
            self.done.notify_all();
        }
    }

    /// The rest of a file is left to the program, which meets the same error if it reads there.
    fn leave(&self, file: &Arc<Opened>, piece: &Piece, error: &io::Error) {
        let mut queue = lock(&self.queue);
        queue.open.take_if(|(open, _)| Arc::ptr_eq(open, file));
        if file.is_left.swap(true, Ordering::Relaxed) {
            return;
        }
        let why = if file.bytes() < piece.range.end { "it became shorter".into() } else { why(error) };
        lock(&self.counts).skip(&file.path, why);
    }

    /// The next piece; `None`: there is none, or no more are to be brought.
    fn next(&self) -> Option<(Arc<Opened>, Piece, Way)> {
        let mut queue = lock(&self.queue);
        while queue.open.is_some() || !queue.files.is_empty() {
            if let Some(why) = self.against(&mut queue) {
                queue.files.clear();
                queue.open = None;
                lock(&self.counts).stop(why.into());
                break;
            }
            let Some((file, mut walk)) = queue.open.take() else {
                let path = queue.files.pop_front()?;
                match Opened::open(&path) {
                    Ok(file) => {
                        let walk = file.walk();
                        queue.open = Some((Arc::new(file), walk));
                    }
                    Err(why) => lock(&self.counts).skip(&path, why),
                }
                continue;
            };
            let at = walk.at;
            match file.next(&mut walk) {
                Next::Piece(piece) => {
                    lock(&self.counts).report.hole_bytes += piece.range.start - at;
                    queue.room = queue.room.saturating_sub(piece.bytes());
                    queue.asked += piece.bytes();
                    queue.open = Some((file.clone(), walk));
                    return Some((file, piece, queue.choice.next()));
                }
                Next::End { hole } => lock(&self.counts).report.hole_bytes += hole,
                Next::Removed => lock(&self.counts).skip(&file.path, "it was removed".into()),
            }
        }
        None
    }

    /// What is against one more piece.
    fn against(&self, queue: &mut Queue) -> Option<&'static str> {
        if self.is_over.load(Ordering::Relaxed) {
            return Some(ENDED);
        }
        if queue.room > 0 {
            return None;
        }
        // The kernel counts the files in the page cache as available.
        let left = || (pressure::available() as u64).saturating_sub(queue.asked + RESERVE);
        let rest = || {
            thread::sleep(REST);
            !self.is_over.load(Ordering::Relaxed)
        };
        match find_room(left, pressure::has_stalled, rest) {
            Ok(room) => {
                queue.room = room;
                None
            }
            Err(why) => Some(why),
        }
    }
}

/// Bytes that may come before memory is looked at again. `left`: those that there are; `rest`: whether to go on
/// afterwards.
fn find_room(
    left: impl Fn() -> u64,
    has_stalled: impl Fn() -> bool,
    mut rest: impl FnMut() -> bool,
) -> Result<u64, &'static str> {
    for _ in 0..RESTS {
        let left = left();
        if left == 0 {
            break;
        }
        if !has_stalled() {
            return Ok(left.min(LOOK));
        }
        if !rest() {
            return Err(ENDED);
        }
    }
    Err(SHORT)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// For how many looks tasks wait for memory, and what is left: what comes of it, and after how many rests.
    #[test]
    fn files_wait_for_memory_and_not_for_ever() {
        let find = |stalls: usize, left: u64, rests_until_end: usize| {
            let (looks, rests) = (Cell::new(0), Cell::new(0));
            let has_stalled = || looks.replace(looks.get() + 1) < stalls;
            let rest = || {
                rests.set(rests.get() + 1);
                rests.get() < rests_until_end
            };
            (find_room(|| left, has_stalled, rest), rests.get())
        };
        const NEVER: usize = usize::MAX;
        assert_eq!(find(0, 1, NEVER), (Ok(1), 0));
        assert_eq!(find(0, LOOK + 1, NEVER), (Ok(LOOK), 0));
        assert_eq!(find(3, LOOK, NEVER), (Ok(LOOK), 3));
        assert_eq!(find(RESTS, LOOK, NEVER), (Err(SHORT), RESTS));
        assert_eq!(find(0, 0, NEVER), (Err(SHORT), 0));
        assert_eq!(find(RESTS, LOOK, 2), (Err(ENDED), 2));
    }
}
