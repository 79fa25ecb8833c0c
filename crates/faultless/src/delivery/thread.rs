//! Delivery by threads: each reads one descriptor, which has an equal part of the region.
//!
//! Of a file, and of a region with a store, several threads share the descriptor. One of them waits for a message, and
//! takes one. Then it is the next one's turn to wait, while the first serves the message. Of a region with a store each
//! waits by a set of its own (epoll), without turns: a message wakes one of those that wait.

use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use faultless_base::sys::descriptor::Descriptor;
use faultless_base::sys::mmu::Rights;
use faultless_base::sys::raw;
use faultless_base::sys::uffd::message::{self, Message};
use faultless_base::sys::uffd::{BATCH, Event, Uffd, Waited};
use faultless_base::sys::user_mmu::STRIPES;
use faultless_base::{Errno, PAGE, Span};
use faultless_mm::fault::{Fault, Outcome};

use crate::delivery::follow::Trace;
use crate::delivery::nodes::{Asked, Near};
use crate::delivery::served::Served;
use crate::delivery::watchdog::{Message as Look, Messages};
use crate::error::Error;
use crate::events::Events;
use crate::events::remote_fill::{Buffer, Files, Request};
use crate::process::descriptors::{End, OneOfSeveral};
use crate::process::thread::Thread;

/// A message says that the access was a write.
const WRITE: u64 = 1;
/// How often a handler looks up without being asked.
const LOOK_MS: u32 = 1000;

/// Of handlers, by the part that they serve.
const NAMES: [&CStr; STRIPES] = [
    c"faultless-0",
    c"faultless-1",
    c"faultless-2",
    c"faultless-3",
    c"faultless-4",
    c"faultless-5",
    c"faultless-6",
    c"faultless-7",
    c"faultless-8",
    c"faultless-9",
    c"faultless-10",
    c"faultless-11",
    c"faultless-12",
    c"faultless-13",
    c"faultless-14",
    c"faultless-15",
];

/// What others see of a handler. Only it changes that.
#[derive(Default)]
pub struct Beat {
    /// Since when it serves a fault, in ns; 0: it waits for one.
    pub since: AtomicU64,
    /// Where that is.
    pub addr: AtomicUsize,
    /// How many messages it has served so far.
    pub served: AtomicU64,
    /// Whose they were.
    pub trace: Trace,
}

/// The handler threads of a region; they end with it.
pub struct Handlers {
    threads: Vec<Thread>,
    end: Arc<End>,
    /// One for each thread.
    pub beats: Arc<Vec<Beat>>,
    /// Where each finds its messages: the descriptor itself, or a pipe from the thread that reads it.
    pub inboxes: Vec<i32>,
}

impl Handlers {
    /// Starts as many threads for each descriptor as share it; if some cannot be had, fewer. `watchdog` is told when there is something to look at.
    pub fn start(
        served: &Arc<dyn Served>,
        events: Option<&Events>,
        watchdog: &Arc<Messages>,
    ) -> Result<Self, Error> {
        let inboxes: Vec<_> = match events {
            Some(events) => events.inboxes.iter().map(|inbox| inbox.number() as i32).collect(),
            None => (0..).map_while(|part| served.uffd(part)).map(Uffd::number).collect(),
        };
        let sharing = if events.is_some() { 1 } else { served.handlers_of_part() };
        let inboxes: Vec<_> = inboxes.into_iter().flat_map(|inbox| std::iter::repeat_n(inbox, sharing)).collect();
        let turns: Arc<Vec<_>> = Arc::new(inboxes.chunks(sharing).map(|_| Mutex::new(())).collect());
        let beats = Arc::new(inboxes.iter().map(|_| Beat::default()).collect::<Vec<_>>());
        let end = Arc::new(End::new()?);
        let nodes = Asked::of_process();
        let mut handlers = Self { threads: Vec::new(), end, beats, inboxes };
        for (i, inbox) in handlers.inboxes.iter().copied().enumerate() {
            let (served, end, beats) = (served.clone(), handlers.end.clone(), handlers.beats.clone());
            let (part, turns) = (i / sharing, turns.clone());
            let (watchdog, nodes) = (watchdog.clone(), nodes.clone());
            let files = events.and_then(|events| events.files.clone());
            let pipe = events.map(|events| events.inboxes[i].clone());
            let own = if sharing > 1 && served.handlers_wait_apart() {
                OneOfSeveral::new(inbox, &handlers.end)
            } else {
                None
            };
            let work = move || {
                let (own, turn) = (own.as_ref(), (sharing > 1).then(|| &turns[part]));
                let inbox =
                    Inbox { number: inbox, pipe: pipe.as_deref(), end: &end, files: files.as_deref(), own, turn };
                let near = nodes.map(Near::new);
                let first_of_several = own.is_some() && i % sharing == 0;
                let may_follow = first_of_several && near.is_none() && served.handlers_may_follow();
                let _follows = may_follow.then(|| beats[i].trace.begin());
                let serving = || serve(&*served, part, inbox, &beats[i], &watchdog, near);
                let serving = AssertUnwindSafe(serving);
                if catch_unwind(serving).is_err() {
                    served.close("a handler thread has died");
                }
            };
            match Thread::start(NAMES[i.min(NAMES.len() - 1)], work) {
                Ok(thread) => handlers.threads.push(thread),
                Err(_) if i % sharing > 0 => {}
                Err(error) => return Err(error),
            }
        }
        Ok(handlers)
    }

    /// Whether a thread has ended that should not have.
    pub fn has_lost_one(&self) -> bool {
        self.threads.iter().any(Thread::has_ended)
    }
}

impl Drop for Handlers {
    fn drop(&mut self) {
        self.end.tell();
        self.threads.drain(..).for_each(Thread::join);
    }
}

/// Where a handler finds its messages, and the files with which it answers those that are not the kernel's.
struct Inbox<'a> {
    number: i32,
    /// What that is, if it is not the userfaultfd.
    pipe: Option<&'a Descriptor>,
    end: &'a End,
    files: Option<&'a Files>,
    /// Where several threads share it: what this one waits by.
    own: Option<&'a OneOfSeveral>,
    /// Held while one of them waits without that.
    turn: Option<&'a Mutex<()>>,
}

impl Inbox<'_> {
    /// Waits for messages and reads them. An error where one of the descriptors is another file's: the program has
    /// closed it.
    fn receive(&self, uffd: &Uffd, messages: &mut [Message]) -> Result<Waited, Errno> {
        // The others are for the others.
        let most = if self.turn.is_some() { 1 } else { messages.len() };
        let messages = &mut messages[..most];
        if let Some(waited) = self.own.and_then(|own| own.wait(LOOK_MS as i32)) {
            return self.read(uffd, waited, messages);
        }
        let _turn = self.turn.map(|turn| turn.lock().unwrap_or_else(PoisonError::into_inner));
        let waited = message::wait(self.number, Some(self.end.number()), LOOK_MS)?;
        self.read(uffd, waited, messages)
    }

    fn read(&self, uffd: &Uffd, waited: Waited, messages: &mut [Message]) -> Result<Waited, Errno> {
        if self.end.is_told() {
            return Ok(Waited::Other);
        }
        if waited == Waited::Other || !uffd.is_open() || !self.pipe.is_none_or(Descriptor::is_open) {
            return Err(Errno::EBADF);
        }
        if waited == Waited::Nothing { Ok(waited) } else { message::read_now(self.number, messages) }
    }
}

/// Serves the descriptor of a part until the end of service.
fn serve(
    served: &dyn Served,
    part: usize,
    inbox: Inbox<'_>,
    beat: &Beat,
    watchdog: &Messages,
    mut near: Option<Near>,
) {
    let Some(uffd) = served.uffd(part) else { return };
    let mut messages: [Message; BATCH] = [[0; 4]; BATCH];
    let mut buffer = Buffer::default();
    loop {
        match inbox.receive(uffd, &mut messages) {
            Ok(Waited::Other) => return,
            Ok(Waited::Nothing) | Err(Errno::EINTR) => {}
            Ok(Waited::Messages(n)) => {
                if let Some(files) = inbox.files {
                    let requests = messages[..n].iter().filter_map(Request::from);
                    requests.for_each(|request| {
                        served.fill_elsewhere(files, &mut buffer, request);
                        beat.served.fetch_add(1, Ordering::Relaxed);
                    });
                }
                let mut events = messages.map(Event::from);
                batch(served, uffd, beat, &mut near, &mut events[..n]);
                if beat.trace.should_follow() {
                    watchdog.tell(Look::Follow);
                }
                while served.catch_up() && !message::is_waiting(inbox.number) {}
                if served.has_left_windows() {
                    watchdog.tell(Look::Look);
                }
            }
            Err(_) => {
                served.close("the descriptor of a region cannot be read");
                // It may have others, by which waiting threads are woken.
                watchdog.tell(Look::Closed);
                return;
            }
        }
    }
}

/// Serves messages that came together in order of addresses, so that windows are seen as such. A read of what has come
/// since needs nothing more.
pub fn batch(served: &dyn Served, uffd: &Uffd, beat: &Beat, near: &mut Option<Near>, events: &mut [Event]) {
    let page_of = |event: &Event| match event {
        Event::Fault { address, .. } => address & !(PAGE - 1),
        _ => usize::MAX,
    };
    events.sort_unstable_by_key(page_of);
    let mut done = Span::new(0, 0);
    for event in events {
        let Event::Fault { address, flags, thread } = *event else { continue };
        let page = Span::new(address & !(PAGE - 1), PAGE);
        let wants = if flags & WRITE != 0 { Rights::Write } else { Rights::Read };
        if !done.contains(address) || wants == Rights::Write {
            beat.addr.store(address, Ordering::Relaxed);
            beat.since.store(raw::now_ns(), Ordering::Relaxed);
            if let Some(near) = near {
                near.follow(thread);
            }
            let outcome = served.resolve(Fault { addr: address, wants, hint: thread as usize, cpu: raw::cpu() });
            beat.since.store(0, Ordering::Relaxed);
            done = match outcome {
                Outcome::Installed(window) => window,
                Outcome::Forbidden | Outcome::Failed(_) | Outcome::Lost(_) => page,
            };
            beat.trace.note(thread, done.bytes() == PAGE);
            served.wake(done.clip(served.span()));
        } else {
            let _ = uffd.wake(page);
        }
        // Release: who sees the number sees whose faults they were.
        beat.served.fetch_add(1, Ordering::Release);
    }
    if let Some(near) = near {
        near.rest();
    }
}
