//! The watchdog: a thread that notices when faults are not served, and says what they wait for. It also looks how
//! much was used of what streams have left behind: if it faults there, handlers serve it.

use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use faultless_base::sys::uffd::Uffd;
use faultless_base::sys::uffd::message::is_waiting;
use faultless_base::sys::{pagemap, raw};

use crate::delivery::follow::Followers;
use crate::delivery::served::Served;
use crate::delivery::thread::{Beat, Handlers};
use crate::error::Error;
use crate::events::Events;
use crate::process::descriptors::own_files;
use crate::process::mailbox::Mailbox;
use crate::process::message;
use crate::process::thread::Thread;

/// What the watchdog is told.
pub enum Message {
    /// A stream has left something behind.
    Look,
    /// A handler serves one thread.
    Follow,
    /// Service has ended: a thread may still wait.
    Closed,
    /// It is over.
    End,
}

/// What it was told and has not taken yet. A message that comes again before that is the same.
#[derive(Default)]
struct Told {
    look: bool,
    follow: bool,
    closed: bool,
    end: bool,
}

/// Where it is told.
#[derive(Default)]
pub struct Messages(Mailbox<Told>);

impl Messages {
    /// Tells it.
    pub fn tell(&self, message: Message) {
        self.0.put(|told| match message {
            Message::Look => told.look = true,
            Message::Follow => told.follow = true,
            Message::Closed => told.closed = true,
            Message::End => told.end = true,
        });
    }

    /// Waits for what it is told, the most urgent first, up to a moment.
    pub fn next(&self, until: Instant) -> Option<Message> {
        self.0.wait(Some(until), |told| match told {
            Told { end: true, .. } => Some(Message::End),
            Told { closed, .. } if *closed => {
                *closed = false;
                Some(Message::Closed)
            }
            Told { look, .. } if *look => {
                *look = false;
                Some(Message::Look)
            }
            Told { follow, .. } if *follow => {
                *follow = false;
                Some(Message::Follow)
            }
            _ => None,
        })
    }
}

/// Time between two looks, at least and at most.
const LEAST: Duration = Duration::from_millis(1);
const MOST: Duration = Duration::from_secs(3600);

/// Handler threads, if there are any, and the thread that watches what is under way; all end with it.
pub struct Watched {
    handlers: Arc<Mutex<Option<Handlers>>>,
    messages: Arc<Messages>,
    watchdog: Option<Thread>,
    // Ends last, so that no thread waits for a reader that is not there.
    _events: Option<Events>,
}

impl Watched {
    /// Starts the watchdog alone, where each thread resolves its own faults.
    pub fn start(served: Arc<dyn Served>, patience: Duration) -> Result<Self, Error> {
        Self::watch(served, patience, None, None, Arc::default())
    }

    /// Starts it and handler threads, which have messages from `events` where there are any.
    pub fn start_with_handlers(
        served: Arc<dyn Served>,
        events: Option<Events>,
        patience: Duration,
    ) -> Result<Self, Error> {
        let messages = Arc::default();
        let handlers = Handlers::start(&served, events.as_ref(), &messages)?;
        Self::watch(served, patience, Some(handlers), events, messages)
    }

    fn watch(
        served: Arc<dyn Served>,
        patience: Duration,
        handlers: Option<Handlers>,
        events: Option<Events>,
        messages: Arc<Messages>,
    ) -> Result<Self, Error> {
        let inboxes = handlers.as_ref().map_or(&[][..], |handlers| &handlers.inboxes);
        let files = descriptors_of_its_own(&*served, inboxes);
        // It allocates nothing once the region is there.
        let mut reports = Reports::new(handlers.as_ref().map_or(0, |handlers| handlers.beats.len()));
        let mut followers = Followers::new(handlers.as_ref().map_or(0, |handlers| handlers.beats.len()));
        let handlers = Arc::new(Mutex::new(handlers));
        let (watching, received) = (handlers.clone(), messages.clone());
        let (begun, has_begun) = sync_channel::<()>(1);
        let work = move || {
            // Not all threads may have such.
            let has_own_files = files.is_some_and(|files| own_files(&files).is_ok());
            drop(begun);
            let between = (patience / 4).clamp(LEAST, MOST);
            let mut next = Instant::now() + between;
            loop {
                let told = received.next(followers.next().map_or(next, |look| look.min(next)));
                match &*watching.lock().unwrap_or_else(PoisonError::into_inner) {
                    Some(handlers) if has_own_files => followers.look(handlers),
                    _ => {}
                }
                match told {
                    Some(Message::Closed) => served.shut(),
                    Some(Message::Look) => while served.look_back() {},
                    Some(Message::End) => break,
                    Some(Message::Follow) => {}
                    None if Instant::now() < next => {}
                    None => {
                        match &*watching.lock().unwrap_or_else(PoisonError::into_inner) {
                            Some(handlers) => reports.look(&*served, handlers, patience),
                            None => reports.look_at_reads(&*served, patience),
                        }
                        next = Instant::now() + between;
                    }
                }
            }
        };
        let watchdog = Thread::start(c"faultless-watch", work)?;
        // It has what it needs when the region is there.
        let _ = has_begun.recv();
        Ok(Self { handlers, messages, watchdog: Some(watchdog), _events: events })
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.messages.tell(Message::End);
        self.watchdog.take().into_iter().for_each(Thread::join);
        self.handlers.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Descriptors that the watchdog keeps open, in a table of its own, of a region with a backing. The program may close
/// all descriptors that it does not know. Even then missing pages must not become zero before the region is closed.
fn descriptors_of_its_own(served: &dyn Served, inboxes: &[i32]) -> Option<Vec<i32>> {
    let uffds = (0..).map_while(|part| served.uffd(part)).map(Uffd::number);
    let all = uffds.chain(inboxes.iter().copied()).chain(pagemap::number()).chain(served.more_descriptors());
    served.is_backed().then(|| all.collect())
}

/// Looks for which a handler has to make no progress until that is reported: all those within the patience, and one
/// before. So one late look is no stall, for instance after the process was stopped.
const LOOKS: u32 = 5;

/// What the looks at a handler have seen. What waits at one look need not be what waits at the next one. So only the
/// number served tells whether it goes on.
#[derive(Default)]
pub struct Progress {
    served: u64,
    /// Looks, one after the other, that saw this number, and something to do; and when the first of them was.
    looks: u32,
    since: Duration,
    is_reported: bool,
}

/// A handler has something to do, and does not go on.
#[derive(Debug, PartialEq, Eq)]
pub struct Stall {
    time: Duration,
    /// The fault that it serves, if it serves one.
    addr: Option<usize>,
}

impl Progress {
    /// Looks at the moment `now`; whether a message waits for the handler, the caller says. A stall is told once.
    pub fn look(&mut self, beat: &Beat, is_waiting: bool, now: Duration, patience: Duration) -> Option<Stall> {
        let serves = beat.since.load(Ordering::Relaxed) != 0;
        let served = beat.served.load(Ordering::Relaxed);
        let has_work = is_waiting || serves;
        if !has_work || self.looks == 0 || served != self.served {
            *self = Self { served, looks: has_work as u32, since: now, is_reported: false };
            return None;
        }
        self.looks = self.looks.saturating_add(1);
        let time = now.saturating_sub(self.since);
        if self.looks < LOOKS || time < patience || std::mem::replace(&mut self.is_reported, true) {
            return None;
        }
        Some(Stall { time, addr: serves.then(|| beat.addr.load(Ordering::Relaxed)) })
    }
}

impl Stall {
    /// Says so on stderr; what a handler waits for that serves a fault, the caller knows.
    pub fn report(&self, waits_for: &str) {
        // A handler that serves nothing while messages wait does not run.
        let waits_for = if self.addr.is_some() { waits_for } else { "a processor, or for whoever stopped it" };
        message::stalled(self.addr, self.time, waits_for);
    }
}

/// The moment of a look.
pub fn now() -> Duration {
    Duration::from_nanos(raw::now_ns())
}

/// Reads that take long that are remembered.
const READS: usize = 32;

/// What the looks have seen so far.
struct Reports {
    /// Of each handler.
    progress: Vec<Progress>,
    /// Reads that were reported already, by their beginning.
    reported: Vec<u64>,
}

impl Reports {
    fn new(handlers: usize) -> Self {
        let progress = std::iter::repeat_with(Progress::default).take(handlers).collect();
        Self { progress, reported: Vec::with_capacity(READS) }
    }

    fn look(&mut self, served: &dyn Served, handlers: &Handlers, patience: Duration) {
        if handlers.has_lost_one() && !served.is_closed() {
            served.close("a handler thread has ended");
        }
        if served.is_closed() {
            return;
        }
        let looked_at = handlers.beats.iter().zip(&handlers.inboxes).zip(&mut self.progress);
        for ((beat, inbox), progress) in looked_at {
            if let Some(stall) = progress.look(beat, is_waiting(*inbox), now(), patience) {
                stall.report(served.waits_for());
            }
        }
    }

    /// Where threads resolve their faults themselves, they can only wait for the backing for long.
    fn look_at_reads(&mut self, served: &dyn Served, patience: Duration) {
        let now = raw::now_ns();
        self.reported.retain(|start| {
            let mut goes_on = false;
            served.each_read(&mut |since, _| goes_on |= since == *start);
            goes_on
        });
        served.each_read(&mut |since, offset| {
            let time = Duration::from_nanos(now.saturating_sub(since));
            if time >= patience && self.reported.len() < READS && !self.reported.contains(&since) {
                message::reads_for_long(offset, time);
                self.reported.push(since);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    /// A handler and its watchdog, with a clock of their own.
    #[derive(Default)]
    struct Watch {
        beat: Beat,
        progress: Progress,
        now: Duration,
    }

    impl Watch {
        /// A look a quarter of the patience later.
        fn look(&mut self, is_waiting: bool) -> Option<Stall> {
            self.now += PATIENCE / 4;
            self.progress.look(&self.beat, is_waiting, self.now, PATIENCE)
        }

        fn serve(&self, faults: u64) {
            self.beat.served.fetch_add(faults, Ordering::Relaxed);
        }
    }

    #[test]
    fn messages_that_wait_at_each_look_are_no_stall_while_some_are_served() {
        let mut watch = Watch::default();
        for _ in 0..100 {
            watch.serve(1);
            assert_eq!(watch.look(true), None);
        }
        // Nor is a fault that is served at each look: it is another one each time.
        watch.beat.since.store(1, Ordering::Relaxed);
        for _ in 0..100 {
            watch.serve(1);
            assert_eq!(watch.look(true), None);
        }
    }

    #[test]
    fn a_stall_is_told_once_with_its_address_if_there_is_one() {
        let mut watch = Watch::default();
        watch.serve(7);
        for addr in [None, Some(0x5000)] {
            watch.beat.addr.store(addr.unwrap_or(0x1000), Ordering::Relaxed);
            watch.beat.since.store(addr.map_or(0, |_| 1), Ordering::Relaxed);
            for _ in 1..LOOKS {
                assert_eq!(watch.look(true), None);
            }
            assert_eq!(watch.look(true), Some(Stall { time: PATIENCE, addr }));
            assert!((0..100).all(|_| watch.look(true).is_none()));
            // The next one is another stall.
            watch.serve(1);
        }
    }

    #[test]
    fn a_handler_without_work_stands_still() {
        let mut watch = Watch::default();
        assert!((0..100).all(|_| watch.look(false).is_none()));
        // What waits now and then was served in between, or has only come.
        assert!((0..100).all(|i| watch.look(i % 4 != 0).is_none()));
    }

    #[test]
    fn one_late_look_is_no_stall() {
        let mut watch = Watch::default();
        assert_eq!(watch.look(true), None);
        watch.now += 100 * PATIENCE;
        assert_eq!(watch.look(true), None);
    }
}
