//! The watchdog: a thread that notices when faults are not served, and says what they wait for. It also looks how
//! much was used of what streams have left behind: if it faults there, handlers serve it.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use faultless_base::sys::uffd::Uffd;
use faultless_base::sys::uffd::message::is_waiting;
use faultless_base::sys::{pagemap, raw};

use crate::delivery::thread::Handlers;
use crate::error::Error;
use crate::events::Events;
use crate::process::descriptors::own_files;
use crate::process::message;
use crate::process::thread::Thread;
use crate::shared::{Shared, since};

/// What the watchdog is told.
pub enum Message {
    /// A stream has left something behind.
    Look,
    /// Service has ended: a thread may still wait.
    Closed,
    /// It is over.
    End,
}

/// Time between two looks, at least and at most.
const LEAST: Duration = Duration::from_millis(1);
const MOST: Duration = Duration::from_secs(3600);

/// Handler threads, if there are any, and the thread that watches what is under way; all end with it.
pub struct Watched {
    handlers: Arc<Mutex<Option<Handlers>>>,
    messages: SyncSender<Message>,
    watchdog: Option<Thread>,
    // Ends last, so that no thread waits for a reader that is not there.
    _events: Option<Events>,
}

impl Watched {
    /// Starts the watchdog alone, where each thread resolves its own faults.
    pub fn start(shared: &Arc<Shared>, patience: Duration) -> Result<Self, Error> {
        let (messages, received) = sync_channel(1);
        Self::watch(shared, patience, None, None, messages, received)
    }

    /// Starts it and handler threads.
    pub fn start_with_handlers(shared: &Arc<Shared>, patience: Duration) -> Result<Self, Error> {
        let events = shared.has_events().then(|| Events::start(shared)).transpose()?;
        let (messages, received) = sync_channel(1);
        let handlers = Handlers::start(shared, events.as_ref(), &messages)?;
        Self::watch(shared, patience, Some(handlers), events, messages, received)
    }

    fn watch(
        shared: &Arc<Shared>,
        patience: Duration,
        handlers: Option<Handlers>,
        events: Option<Events>,
        messages: SyncSender<Message>,
        received: Receiver<Message>,
    ) -> Result<Self, Error> {
        let inboxes = handlers.as_ref().map_or(&[][..], |handlers| &handlers.inboxes);
        let files = descriptors_of_its_own(shared, inboxes);
        let handlers = Arc::new(Mutex::new(handlers));
        let (watching, shared) = (handlers.clone(), shared.clone());
        let (begun, has_begun) = sync_channel::<()>(1);
        let work = move || {
            if let Some(files) = files {
                // Not all threads may have such.
                let _ = own_files(&files);
            }
            drop(begun);
            let mut reports = Reports::default();
            let between = (patience / 4).clamp(LEAST, MOST);
            let mut next = Instant::now() + between;
            loop {
                match received.recv_timeout(next.saturating_duration_since(Instant::now())) {
                    Ok(Message::Closed) => shared.memory.shut(),
                    Ok(Message::Look) => while shared.memory.look_back() {},
                    Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => break,
                    Err(RecvTimeoutError::Timeout) => {
                        match &*watching.lock().unwrap_or_else(PoisonError::into_inner) {
                            Some(handlers) => reports.look(&shared, handlers, patience),
                            None => reports.look_at_reads(&shared, patience),
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
        let _ = self.messages.send(Message::End);
        self.watchdog.take().into_iter().for_each(Thread::join);
        self.handlers.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Descriptors that the watchdog keeps open, in a table of its own, of a region with a backing. The program may close
/// all descriptors that it does not know. Even then missing pages must not become zero before the region is closed.
fn descriptors_of_its_own(shared: &Shared, inboxes: &[i32]) -> Option<Vec<i32>> {
    let uffds = shared.uffds().map(Uffd::number);
    let all = uffds.chain(inboxes.iter().copied()).chain(pagemap::number());
    shared.memory.backing().is_some().then(|| all.collect())
}

/// What was reported already, by its beginning: each stall is reported once.
#[derive(Default)]
struct Reports {
    reported: Vec<u64>,
    waiting_since: Vec<Option<Instant>>,
}

impl Reports {
    fn look(&mut self, shared: &Shared, handlers: &Handlers, patience: Duration) {
        if handlers.has_lost_one() && !shared.is_closed() {
            shared.close("a handler thread has ended");
        }
        if shared.is_closed() {
            return;
        }
        self.reported.resize(handlers.beats.len(), 0);
        self.waiting_since.resize(handlers.beats.len(), None);
        for (i, (beat, inbox)) in handlers.beats.iter().zip(&handlers.inboxes).enumerate() {
            let addr = beat.addr.load(Ordering::Relaxed);
            match since(&beat.since) {
                Some(time) if time >= patience => {
                    let start = beat.since.load(Ordering::Relaxed);
                    if std::mem::replace(&mut self.reported[i], start) != start {
                        message::stalled(addr, time, waits_for(shared));
                    }
                }
                Some(_) => {}
                None => self.look_at_idle(i, *inbox, patience),
            }
        }
    }

    /// Where threads resolve their faults themselves, they can only wait for the backing for long.
    fn look_at_reads(&mut self, shared: &Shared, patience: Duration) {
        let now = raw::now_ns();
        let reads: Vec<_> = shared.memory.backing().reads().collect();
        self.reported.retain(|start| reads.iter().any(|(since, _)| since == start));
        for (since, offset) in reads {
            let time = Duration::from_nanos(now.saturating_sub(since));
            if time >= patience && !self.reported.contains(&since) {
                message::reads_for_long(offset, time);
                self.reported.push(since);
            }
        }
    }

    /// A handler that serves nothing while messages wait does not run.
    fn look_at_idle(&mut self, i: usize, inbox: i32, patience: Duration) {
        if !is_waiting(inbox) {
            self.waiting_since[i] = None;
            return;
        }
        let start = *self.waiting_since[i].get_or_insert_with(Instant::now);
        if start.elapsed() >= patience {
            message::stalled(0, start.elapsed(), "a processor, or for whoever stopped it");
            self.waiting_since[i] = None;
        }
    }
}

fn waits_for(shared: &Shared) -> &'static str {
    match shared.memory.backing().reads().next() {
        Some(_) => "the backing of the region, which is being read",
        None => "a change of the region in progress, or for the kernel",
    }
}
