//! Handler threads that regions share: many regions need no more threads than a few.
//!
//! A fault of a region without a backing and without events waits for nothing of the program's. It waits only for
//! short changes of the same region, and for the kernel. A thread that makes a change faults in no other region
//! meanwhile, not with its stack either ([`Masked`]). So one thread may serve many such regions in turn. It polls
//! their descriptors, and a bell that says that there are others now. Each handler has a watchdog. Both end with the
//! last region of theirs.
//!
//! The first regions get a handler each, up to [`MOST`]; then a region goes to the handler that has the fewest.
//!
//! A region leaves in this order: the watchdog looks at it no more, the handler polls it no more, and what the
//! handler does for it ends. A handler allocates nothing while it serves: an allocator may have its memory from a
//! region. The list that it polls is made by the threads that add and remove regions, and exchanged for the old one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use faultless_base::Errno;
use faultless_base::sys::poll::poll;
use faultless_base::sys::uffd::message::{self as messages, Message, is_waiting};
use faultless_base::sys::uffd::{BATCH, Event, Waited};

use crate::delivery::nodes::{Asked, Near};
use crate::delivery::served::CHANGE;
use crate::delivery::thread::{Beat, batch};
use crate::delivery::watchdog::{Message as Look, Messages, Progress, now};
use crate::error::Error;
use crate::process::descriptors::End;
use crate::process::masked::Masked;
use crate::process::owner::OfProcess;
use crate::process::thread::Thread;
use crate::shared::Shared;

/// Shared handlers of a process, at most; no more than processors.
const MOST: usize = 4;
/// How often a handler looks up without being asked.
const LOOK_MS: u32 = 1000;
/// After what time a fault that is not served is reported, and how often the watchdog looks.
pub const PATIENCE: Duration = Duration::from_secs(5);
const BETWEEN: Duration = Duration::from_millis(1250);

/// Those of this process.
static HANDLERS: OfProcess<Mutex<Vec<Weak<Handler>>>> = OfProcess::new();

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A region as a handler has it.
struct Member {
    /// For the handler: none once the region leaves.
    served: Mutex<Option<Arc<Shared>>>,
    /// For the watchdog: none a moment before.
    watched: Mutex<Option<Arc<Shared>>>,
    number: i32,
}

/// What a handler polls: the bell, then a descriptor of each member.
#[derive(Default)]
struct List {
    polls: Vec<libc::pollfd>,
    members: Vec<Arc<Member>>,
}

impl List {
    fn new(bell: i32, members: &[Arc<Member>]) -> Self {
        let numbers = std::iter::once(bell).chain(members.iter().map(|member| member.number));
        let polls = numbers.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
        Self { polls, members: members.to_vec() }
    }

    /// Waits until one of them can be read, at most for a time; whether that is so.
    fn wait(&mut self) -> bool {
        poll(&mut self.polls, LOOK_MS).is_ok_and(|ready| ready > 0)
    }
}

/// What the threads of a handler have, and the threads that add and remove regions.
struct Post {
    bell: End,
    /// The regions, for threads that add or remove one and for the watchdog.
    members: Mutex<Vec<Arc<Member>>>,
    /// A list that the handler has not taken yet, or one that it has left.
    next: Mutex<(bool, List)>,
    beat: Beat,
}

impl Post {
    /// Has the handler poll what there is now.
    fn publish(&self, members: &[Arc<Member>]) {
        let mut list = List::new(self.bell.number(), members);
        {
            let mut next = lock(&self.next);
            std::mem::swap(&mut next.1, &mut list);
            next.0 = true;
        }
        self.bell.ring();
    }

    fn serve(&self, watchdog: &Messages, mut near: Option<Near>) {
        let mut list = List::default();
        while !self.bell.is_told() {
            {
                let mut next = lock(&self.next);
                if std::mem::take(&mut next.0) {
                    std::mem::swap(&mut next.1, &mut list);
                }
            }
            let is_ready = list.wait();
            let List { polls, members } = &mut list;
            let Some((bell, polls)) = polls.split_first_mut() else { continue };
            if bell.revents != 0 && !self.bell.drain() {
                // The program has closed it: a look each second has to do.
                bell.fd = -1;
            }
            for (poll, member) in polls.iter_mut().zip(members) {
                if poll.fd >= 0 && (poll.revents != 0 || !is_ready) && !self.serve_one(member, watchdog, &mut near)
                {
                    poll.fd = -1;
                }
            }
        }
    }

    /// Serves what messages a region has; whether there may be more.
    fn serve_one(&self, member: &Member, watchdog: &Messages, near: &mut Option<Near>) -> bool {
        let served = lock(&member.served);
        let Some(shared) = &*served else { return true };
        let served = catch_unwind(AssertUnwindSafe(|| self.read(shared, near)));
        match served {
            Ok(true) => {
                if shared.memory.has_left_windows() {
                    watchdog.tell(Look::Look);
                }
                return true;
            }
            Ok(false) => shared.close("the descriptor of a region cannot be read"),
            Err(_) => shared.close("a handler thread has died"),
        }
        watchdog.tell(Look::Closed);
        false
    }

    /// Whether its descriptor can be read.
    fn read(&self, shared: &Shared, near: &mut Option<Near>) -> bool {
        // If the number belongs to another file by now, the descriptor is not the region's.
        let Some(uffd) = shared.uffds().next().filter(|uffd| uffd.is_open()) else { return false };
        let mut read: [Message; BATCH] = [[0; 4]; BATCH];
        match messages::read_now(uffd.number(), &mut read) {
            Ok(Waited::Messages(n)) => batch(shared, uffd, &self.beat, near, &mut read.map(Event::from)[..n]),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return false,
        }
        true
    }

    /// One of its regions, by its place in the list.
    fn member(&self, i: usize) -> Option<Arc<Member>> {
        lock(&self.members).get(i).cloned()
    }

    /// It allocates nothing: the program may have lowered its limits.
    fn watch(&self, received: &Messages) {
        let mut progress = Progress::default();
        let mut next = Instant::now() + BETWEEN;
        loop {
            let told = received.next(next);
            if matches!(told, Some(Look::End)) {
                return;
            }
            if told.is_none() {
                next = Instant::now() + BETWEEN;
            }
            let mut waits = false;
            // Backwards, because those behind one that leaves move up.
            let all = lock(&self.members).len();
            for member in (0..all).rev().filter_map(|i| self.member(i)) {
                let watched = lock(&member.watched);
                match (&told, &*watched) {
                    (_, None) => {}
                    (None, Some(shared)) => waits |= !shared.is_closed() && is_waiting(member.number),
                    (Some(_), Some(shared)) if shared.is_closed() => shared.memory.shut(),
                    (Some(_), Some(shared)) => while shared.memory.look_back() {},
                }
            }
            if told.is_none()
                && let Some(stall) = progress.look(&self.beat, waits, now(), PATIENCE)
            {
                stall.report(CHANGE);
            }
        }
    }
}

struct Handler {
    post: Arc<Post>,
    watchdog: Arc<Messages>,
    threads: Vec<Thread>,
}

impl Handler {
    fn start() -> Result<Self, Error> {
        let post = Arc::new(Post {
            bell: End::new()?,
            members: Mutex::default(),
            next: Mutex::default(),
            beat: Beat::default(),
        });
        post.publish(&[]);
        let watchdog = Arc::new(Messages::default());
        let received = watchdog.clone();
        let mut handler = Self { post: post.clone(), watchdog: watchdog.clone(), threads: Vec::new() };
        let (serving, watching, nodes) = (post.clone(), post, Asked::of_process());
        let serve = move || serving.serve(&watchdog, nodes.map(Near::new));
        handler.threads.push(Thread::start(c"faultless-0", serve)?);
        handler.threads.push(Thread::start(c"faultless-watch", move || watching.watch(&received))?);
        Ok(handler)
    }

    fn members(&self) -> usize {
        lock(&self.post.members).len()
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        self.watchdog.tell(Look::End);
        self.post.bell.tell();
        self.threads.drain(..).for_each(Thread::join);
    }
}

/// The place of a region with a handler, until it is dropped.
pub struct Place {
    member: Arc<Member>,
    handler: Arc<Handler>,
}

impl Place {
    /// One for a region without a backing and without events, with one descriptor.
    pub fn find(shared: &Arc<Shared>) -> Result<Self, Error> {
        let Some(uffd) = shared.uffds().next() else { return Err(Error::NoFeature) };
        let member = Arc::new(Member {
            served: Mutex::new(Some(shared.clone())),
            watched: Mutex::new(Some(shared.clone())),
            number: uffd.number(),
        });
        let handler = choose()?;
        {
            let mut members = lock(&handler.post.members);
            members.push(member.clone());
            handler.post.publish(&members);
        }
        Ok(Self { member, handler })
    }
}

/// The handler that has the fewest regions, or a new one.
fn choose() -> Result<Arc<Handler>, Error> {
    let all = HANDLERS.get(Mutex::default);
    let mut all = lock(all);
    all.retain(|handler| handler.strong_count() > 0);
    // One that the program has taken the bell from hears of nothing in time.
    let usable = all.iter().filter_map(Weak::upgrade).filter(|handler| handler.post.bell.is_open());
    let mut usable: Vec<_> = usable.collect();
    usable.sort_by_key(|handler| handler.members());
    let most = available_parallelism().map_or(1, |n| n.get()).min(MOST);
    let count = usable.len();
    match usable.into_iter().next() {
        Some(handler) if count >= most || handler.members() == 0 => Ok(handler),
        least => match Handler::start() {
            Ok(new) => {
                let new = Arc::new(new);
                all.push(Arc::downgrade(&new));
                Ok(new)
            }
            Err(error) => least.ok_or(error),
        },
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _masked = Masked::new();
        lock(&self.member.watched).take();
        {
            let mut members = lock(&self.handler.post.members);
            members.retain(|member| !Arc::ptr_eq(member, &self.member));
            self.handler.post.publish(&members);
        }
        lock(&self.member.served).take();
    }
}
