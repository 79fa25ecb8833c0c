//! The daemon: it waits for messages, for the end of processes, for pressure, and for moments that its account names.
//!
//! Without requests it wakes once a second, and only while it holds memory, to see that enough is left to others.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::thread::Thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use faultless_base::SLOT;
use faultless_base::sys::cgroup::{self, Limit};
use faultless_base::sys::pressure;
use faultless_base::sys::warm::Message;

use super::books::Books;
use super::name::Name;
use super::reserve::Reserve;
use super::stalls::{Stalls, Told};
use super::status::{State, Status};
use super::sys::{self, Listener, Packet, Speaker};
use super::{PATIENCE, place};
use crate::own;

/// How often it is looked whether memory is short, while some is held, and while more is taken.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_FILLING: Duration = Duration::from_millis(100);
/// What is left to others at least, as a part of what the machine or the control group has.
const LEFT_SHARE: usize = 10;
/// Messages that are read before other things are looked at.
const AT_ONCE: usize = 64;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Slots to hold.
    pub slots: usize,
    /// For how long without a message.
    pub keep: Duration,
}

struct Daemon {
    // It goes before the listener: a process that finds the name is heard.
    name: Name,
    listener: Listener,
    reserve: &'static Reserve,
    filler: Thread,
    books: Books,
    /// Readable once a process has ended.
    running: BTreeMap<i32, OwnedFd>,
    stalls: Option<Stalls>,
    wanted: Wanted,
    since: Instant,
    looked: Instant,
    /// It would hold more, and too little is left to others.
    is_held_off: bool,
    requests: u64,
    refused: u64,
    malformed: u64,
    given: u64,
    is_over: bool,
}

/// Serves at `socket` until it is told to stop, and calls `begun` once it does; `false`: another daemon does already.
pub fn serve(socket: &Path, wanted: Wanted, begun: impl FnOnce(&Status) -> Result<()>) -> Result<bool> {
    let Some(_lock) = lock(socket)? else { return Ok(false) };
    // The lock is ours, so the process that left a socket is gone.
    if place::is_own(socket) {
        std::fs::remove_file(socket)?;
    }
    let reserve: &'static Reserve = Box::leak(Box::new(Reserve::new(wanted.slots).map_err(anyhow::Error::msg)?));
    let listener = Listener::bind(socket).with_context(|| socket.display().to_string())?;
    let name = Name::of(socket)?;
    sys::be_first_to_go();
    let now = Instant::now();
    let mut daemon = Daemon {
        name,
        listener,
        reserve,
        filler: reserve.start_filling()?,
        books: Books::new(wanted.slots, wanted.keep, now),
        running: BTreeMap::new(),
        stalls: Stalls::ask(),
        wanted,
        since: now,
        looked: now,
        is_held_off: false,
        requests: 0,
        refused: 0,
        malformed: 0,
        given: 0,
        is_over: false,
    };
    // What waited for memory before says nothing.
    pressure::is_short();
    daemon.look(now);
    begun(&daemon.status())?;
    while !daemon.is_over {
        daemon.turn();
    }
    // Who asked, and has no answer yet, sees the end now. Who starts another one waits for the lock.
    drop(daemon);
    reserve.aim(0);
    Ok(true)
}

/// What one daemon has at a time. One that has it and is not found any more is about to end; one that begins is found
/// soon. `None`: another daemon serves.
fn lock(socket: &Path) -> Result<Option<File>> {
    let path = place::lock_of(socket);
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(file) = sys::lock(&path).with_context(|| path.display().to_string())? {
            return Ok(Some(file));
        }
        if place::is_own(socket) && Speaker::connect(socket).is_ok() {
            return Ok(None);
        }
        ensure!(Instant::now() < end, "another process has {}, and does not serve", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Daemon {
    fn turn(&mut self) {
        let pids: Vec<_> = self.running.keys().copied().collect();
        let listener = sys::waiting(self.listener.descriptor(), libc::POLLIN);
        let stalls = self.stalls.as_ref().map_or(-1, Stalls::descriptor);
        let processes = self.running.values().map(|fd| sys::waiting(fd.as_raw_fd(), libc::POLLIN));
        let name = sys::waiting(self.name.descriptor().unwrap_or(-1), libc::POLLIN);
        let mut all: Vec<_> =
            [listener, sys::waiting(stalls, libc::POLLPRI), name].into_iter().chain(processes).collect();
        let time = self.next().map(|at| at.saturating_duration_since(Instant::now()));
        sys::poll(&mut all, time);
        if all[1].revents & libc::POLLPRI != 0 {
            self.hear(Instant::now());
        } else if all[1].revents & libc::POLLERR != 0 {
            self.stalls = None;
        }
        if all[2].revents != 0 {
            self.name.hear();
            self.is_over |= !self.name.is_own();
        }
        if all[0].revents != 0 {
            for _ in 0..AT_ONCE {
                let Some(packet) = self.listener.receive() else { break };
                self.take(&packet);
            }
        }
        let now = Instant::now();
        for (pid, _) in pids.iter().zip(&all[3..]).filter(|(_, process)| process.revents != 0) {
            self.running.remove(pid);
            self.books.end(*pid, now);
        }
        self.look(now);
    }

    /// When there is something to do without a message.
    fn next(&self) -> Option<Instant> {
        let is_told = self.name.descriptor().is_some();
        let look = look_after(self.reserve.held(), self.reserve.target(), self.is_held_off || !is_told);
        self.books.next(Instant::now()).into_iter().chain(look.map(|time| self.looked + time)).min()
    }

    /// Whether memory is short. Where the kernel tells of tasks that wait for memory, it does so by itself.
    fn is_short(&self) -> bool {
        if self.stalls.is_some() { pressure::is_full() } else { pressure::is_short() }
    }

    /// Takes as much as may be taken, and gives back what is too much.
    fn look(&mut self, now: Instant) {
        if let Some(stalls) = self.stalls.as_mut().filter(|_| self.reserve.fills()) {
            stalls.fills(now);
        }
        let held = self.reserve.held();
        let wanted = self.books.target(held, now);
        if now.duration_since(self.looked) >= LOOK {
            self.looked = now;
            self.is_over |= !self.name.is_own();
            if held > 0 && self.is_short() {
                return self.press();
            }
        }
        let target = if wanted > held { wanted.min(held + room()) } else { wanted };
        self.is_held_off = target < wanted;
        if target > held {
            self.looked = now;
        }
        self.reserve.aim(target);
        if self.reserve.held() < target {
            self.filler.unpark();
        }
    }

    /// The kernel told that tasks wait for memory. If the daemon may be what waits, it stops to take memory. The kernel
    /// tells it again if others wait, too.
    fn hear(&mut self, now: Instant) {
        match self.stalls.as_mut().map(|stalls| stalls.told(now)) {
            Some(Told::Nothing) | None => (),
            Some(Told::Own) => {
                self.books.hold_off(now);
                self.reserve.aim(self.reserve.held());
            }
            Some(Told::Others) => self.press(),
        }
    }

    /// Memory is short: everything goes back.
    fn press(&mut self) {
        if self.reserve.held() > 0 || self.reserve.target() > 0 {
            self.books.press(Instant::now());
            self.reserve.aim(0);
        }
    }

    fn take(&mut self, packet: &Packet) {
        let Some(sender) = packet.sender.filter(|sender| sender.user == own::user()) else {
            self.refused += 1;
            return;
        };
        match packet.message {
            None => self.malformed += 1,
            Some(Message::Grow(bytes)) => self.grow(sender.pid, bytes),
            Some(Message::Status) => {
                let status = self.status().encode();
                packet.answer.iter().for_each(|answer| answer.send(status.as_bytes()));
            }
            Some(Message::Stop) => self.is_over = true,
        }
    }

    fn grow(&mut self, pid: i32, bytes: u64) {
        self.requests += 1;
        if !self.books.knows(pid) {
            // One that has ended, or that is not seen here, needs nothing. A number that another process has by now
            // would only be waited for.
            let process = if self.books.has_room() { sys::process(pid).ok() } else { None };
            let Some(process) = process else {
                self.refused += 1;
                return;
            };
            self.running.insert(pid, process);
        }
        let slots = usize::try_from(bytes.div_ceil(SLOT as u64)).unwrap_or(usize::MAX);
        let held = self.reserve.held();
        let given = self.books.grow(pid, slots, held, Instant::now());
        self.given += self.reserve.aim(held.saturating_sub(given)) as u64;
    }

    fn status(&self) -> Status {
        let bytes = |slots: usize| (slots * SLOT) as u64;
        let (taken, cold) = self.reserve.taken();
        let (user, system) = sys::time_used();
        let state = match () {
            () if self.books.is_asleep() => State::Asleep,
            () if self.reserve.held() < self.reserve.target() => State::Filling,
            () => State::Awake,
        };
        Status {
            version: 1,
            pid: std::process::id(),
            socket: self.name.path().display().to_string(),
            state,
            size_bytes: bytes(self.wanted.slots),
            held_bytes: bytes(self.reserve.held()),
            clients: self.books.clients(),
            clients_bytes: bytes(self.books.given()),
            given_bytes: self.given * SLOT as u64,
            taken_bytes: bytes(taken),
            cold_bytes: bytes(cold),
            requests: self.requests,
            refused: self.refused,
            malformed: self.malformed,
            pressed: self.books.pressed,
            kept_out: self.books.kept_out,
            keep_s: self.wanted.keep.as_secs(),
            runs_s: self.since.elapsed().as_secs_f64(),
            user_s: user.as_secs_f64(),
            system_s: system.as_secs_f64(),
        }
    }
}

/// How long after the last look it is looked again whether memory is short, and whether the name is still there; `None`:
/// nothing could go back, and the kernel tells of the name.
fn look_after(held: usize, target: usize, has_to: bool) -> Option<Duration> {
    match () {
        () if held < target => Some(LOOK_FILLING),
        () if held > 0 || has_to => Some(LOOK),
        () => None,
    }
}

/// Slots that may be taken now, and leave enough to others.
fn room() -> usize {
    pressure::available().saturating_sub(total() / LEFT_SHARE) / SLOT
}

/// The machine's memory, or less if the control group says so.
pub fn total() -> usize {
    let machine = machine();
    match cgroup::limit() {
        Limit::Bytes(limit) => machine.min(limit as usize),
        Limit::None | Limit::Hidden => machine,
    }
}

fn machine() -> usize {
    // SAFETY: no pointers.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    (pages.max(0) as usize).saturating_mul(size.max(0) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_it_holds_memory_it_looks_once_a_second_at_least() {
        assert_eq!(look_after(0, 0, false), None, "it takes no processor time");
        for (held, target, has_to) in [(1, 1, false), (2, 1, false), (1, 9, false), (0, 9, false), (0, 0, true)] {
            let after = look_after(held, target, has_to);
            assert!(after.is_some_and(|time| time <= Duration::from_secs(1)), "{held} of {target}: {after:?}");
        }
    }
}
