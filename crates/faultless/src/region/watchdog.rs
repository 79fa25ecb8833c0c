//! The watchdog: a thread that notices when faults are not served, and says what they wait for.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use faultless_base::sys::uffd::Uffd;

use super::error::Error;
use super::masked::Masked;
use super::message;
use super::shared::{Shared, since};
use super::thread::Handlers;

/// Handler threads and the one that watches them; all end with it.
pub struct Watched {
    handlers: Arc<Mutex<Option<Handlers>>>,
    end: Option<Sender<()>>,
    watchdog: Option<JoinHandle<()>>,
}

impl Watched {
    /// Starts them.
    pub fn start(shared: &Arc<Shared>, patience: Duration) -> Result<Self, Error> {
        let handlers = Arc::new(Mutex::new(Some(Handlers::start(shared)?)));
        let (end, ended) = channel();
        let (watching, shared) = (handlers.clone(), shared.clone());
        let work = move || {
            let _masked = Masked::new();
            let mut reports = Reports::default();
            while ended.recv_timeout(patience / 4) == Err(RecvTimeoutError::Timeout) {
                if let Some(handlers) = &*watching.lock().unwrap_or_else(PoisonError::into_inner) {
                    reports.look(&shared, handlers, patience);
                }
            }
        };
        let watchdog = std::thread::Builder::new().name("faultless-watch".into()).spawn(work);
        let watchdog = watchdog.map_err(|_| Error::NoThread)?;
        Ok(Self { handlers, end: Some(end), watchdog: Some(watchdog) })
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.end.take();
        self.watchdog.take().map(JoinHandle::join);
        self.handlers.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// What was reported already: each stall is reported once.
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
        self.reported.resize(handlers.beats.len(), 0);
        self.waiting_since.resize(handlers.beats.len(), None);
        for (i, (beat, uffd)) in handlers.beats.iter().zip(shared.uffds()).enumerate() {
            let addr = beat.addr.load(Ordering::Relaxed);
            match since(&beat.since) {
                Some(time) if time >= patience => {
                    let start = beat.since.load(Ordering::Relaxed);
                    if std::mem::replace(&mut self.reported[i], start) != start {
                        message::stalled(addr, time, waits_for(shared));
                    }
                }
                Some(_) => {}
                None => self.look_at_idle(i, uffd, patience),
            }
        }
    }

    /// A handler that serves nothing while messages wait does not run.
    fn look_at_idle(&mut self, i: usize, uffd: &Uffd, patience: Duration) {
        if !uffd.is_waiting() {
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
    match shared.memory.backing().reads_for() {
        Some(_) => "the backing of the region, which is being read",
        None => "a change of the region in progress, or for the kernel",
    }
}
