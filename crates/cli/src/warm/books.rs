//! Who was given how much, and when the reserve takes memory again. No system calls: times are the caller's.
//!
//! | state | what is held | ends |
//! |---|---|---|
//! | awake | the size, less what processes that still run were given | after `keep` without a message or an end; under pressure |
//! | asleep | nothing | with the next message, after pressure not before a minute has passed |
//!
//! Memory is taken only while it is quiet: some time after the last message, and after the end of a process. So the
//! daemon does not compete with a program that grows.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Processes that are known at a time.
pub const MOST: usize = 256;
/// How long it has to be quiet before memory is taken. The kernel keeps what was freed for two seconds before it
/// tells the host.
const QUIET: Duration = Duration::from_millis(300);
/// The same after a message of a process that wanted more than it got.
const HUNGRY: Duration = Duration::from_secs(10);
/// For how long nothing is taken after tasks waited for memory while it was taken: longer than the kernel takes to tell
/// it again, if others wait.
const HELD_OFF: Duration = Duration::from_secs(5);
/// For how long nothing is taken after pressure.
const PRESSED: Duration = Duration::from_secs(60);

/// What one process was given.
#[derive(Clone, Copy, Debug, Default)]
struct Client {
    /// Slots that it said it needs, since it began.
    told: usize,
    given: usize,
}

/// The account.
#[derive(Debug)]
pub struct Books {
    size: usize,
    keep: Duration,
    clients: BTreeMap<i32, Client>,
    /// Since when there was no message, and no end of a process.
    last: Instant,
    /// From when on memory may be taken again.
    takes_from: Instant,
    is_asleep: bool,
    /// How often everything went back: after `keep`, and under pressure.
    pub kept_out: u64,
    pub pressed: u64,
}

impl Books {
    /// For a reserve of `size` slots, which goes back after `keep` without a message.
    pub fn new(size: usize, keep: Duration, now: Instant) -> Self {
        let clients = BTreeMap::new();
        Self { size, keep, clients, last: now, takes_from: now, is_asleep: false, kept_out: 0, pressed: 0 }
    }

    /// Whether this process is known.
    pub fn knows(&self, pid: i32) -> bool {
        self.clients.contains_key(&pid)
    }

    /// Whether one more process may be known.
    pub fn has_room(&self) -> bool {
        self.clients.len() < MOST
    }

    /// A process says that it needs `told` slots in all, while `held` are there: how many it gets now.
    pub fn grow(&mut self, pid: i32, told: usize, held: usize, now: Instant) -> usize {
        self.last = now;
        // Before that it may not be filled again.
        if self.is_asleep && now >= self.takes_from {
            self.is_asleep = false;
        }
        let size = self.size;
        let client = self.clients.entry(pid).or_default();
        client.told = client.told.max(told.min(2 * size));
        // One process gets the whole reserve at most.
        let wanted = client.told.min(size).saturating_sub(client.given);
        let given = wanted.min(held);
        client.given += given;
        let wait = if client.told > client.given { HUNGRY } else { QUIET };
        self.takes_from = self.takes_from.max(now + wait);
        given
    }

    /// A process has ended: what it was given is free again.
    pub fn end(&mut self, pid: i32, now: Instant) {
        if self.clients.remove(&pid).is_some() && !self.is_asleep {
            self.last = now;
            // While it is still warm, and whatever the process had wanted.
            self.takes_from = now + QUIET;
        }
    }

    /// Memory may be short because it is taken: no more is, for a while.
    pub fn hold_off(&mut self, now: Instant) {
        self.takes_from = self.takes_from.max(now + HELD_OFF);
    }

    /// Memory is short: nothing is held.
    pub fn press(&mut self, now: Instant) {
        self.pressed += 1;
        self.is_asleep = true;
        self.takes_from = now + PRESSED;
    }

    /// How many slots are to be held now, where `held` are: never more than before while it is not quiet.
    pub fn target(&mut self, held: usize, now: Instant) -> usize {
        if !self.is_asleep && now.duration_since(self.last) >= self.keep {
            self.is_asleep = true;
            self.kept_out += 1;
        }
        let wanted = if self.is_asleep { 0 } else { self.size.saturating_sub(self.given()) };
        if now < self.takes_from { wanted.min(held) } else { wanted }
    }

    /// When [`Books::target`] may change without a message or an end.
    pub fn next(&self, now: Instant) -> Option<Instant> {
        let until_quiet = Some(self.takes_from).filter(|at| !self.is_asleep && *at > now);
        let until_asleep = Some(self.last + self.keep).filter(|_| !self.is_asleep);
        until_quiet.into_iter().chain(until_asleep).min()
    }

    /// Slots that processes that still run were given.
    pub fn given(&self) -> usize {
        self.clients.values().map(|client| client.given).sum()
    }

    /// Processes that are known.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Whether nothing is held until someone asks.
    pub fn is_asleep(&self) -> bool {
        self.is_asleep
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEP: Duration = Duration::from_secs(100);

    fn books() -> (Books, Instant) {
        let now = Instant::now();
        (Books::new(100, KEEP, now), now)
    }

    #[test]
    fn a_process_gets_what_it_says_once_and_never_more_than_there_is() {
        let (mut books, now) = books();
        assert_eq!(books.target(0, now), 100);
        assert_eq!(books.grow(7, 30, 100, now), 30);
        assert_eq!(books.grow(7, 30, 70, now), 0, "the amount counts from its start");
        assert_eq!(books.grow(7, 20, 70, now), 0);
        assert_eq!(books.grow(8, usize::MAX, 70, now), 70);
        assert_eq!(books.grow(9, 5, 0, now), 0);
        assert_eq!(books.given(), 100);
        assert_eq!(books.target(0, now + HUNGRY), 0, "the rest is theirs while they run");
    }

    #[test]
    fn memory_is_taken_again_when_it_is_quiet() {
        let (mut books, now) = books();
        books.grow(7, 30, 100, now);
        assert_eq!((books.target(70, now), books.next(now)), (70, Some(now + QUIET)));
        books.end(7, now);
        assert_eq!(books.target(70, now), 70);
        assert_eq!(books.target(70, now + QUIET), 100);
        // One that wanted more is left alone for longer.
        books.grow(8, 200, 100, now + QUIET);
        books.grow(9, 10, 0, now + QUIET);
        books.end(8, now + QUIET);
        assert_eq!(books.target(0, now + 2 * QUIET), 100, "what has ended is taken while it is warm");
    }

    #[test]
    fn everything_goes_back_after_a_while_and_comes_back_when_asked() {
        let (mut books, now) = books();
        assert_eq!(books.next(now), Some(now + KEEP));
        assert_eq!(books.target(100, now + KEEP), 0);
        assert_eq!((books.is_asleep(), books.next(now + KEEP), books.kept_out), (true, None, 1));
        assert_eq!(books.grow(7, 10, 0, now + KEEP), 0);
        assert_eq!(books.target(0, now + KEEP), 0, "not while it grows");
        books.end(7, now + KEEP);
        assert_eq!(books.target(0, now + KEEP + QUIET), 100);
        // A process that runs on and says nothing keeps nothing, whether it was given some of it or not.
        books.grow(8, 10, 100, now + KEEP);
        books.grow(9, 10, 0, now + KEEP);
        assert_eq!((books.target(90, now + 2 * KEEP), books.next(now + 2 * KEEP)), (0, None));
        assert_eq!((books.given(), books.clients(), books.kept_out), (10, 2, 2));
        // Its next message brings the rest back.
        books.grow(8, 20, 0, now + 2 * KEEP);
        assert_eq!(books.target(0, now + 2 * KEEP + HUNGRY), 90);
    }

    #[test]
    fn what_is_held_stays_while_no_more_is_taken() {
        let (mut books, now) = books();
        books.hold_off(now);
        assert_eq!((books.target(40, now), books.next(now)), (40, Some(now + HELD_OFF)));
        assert_eq!(books.grow(7, 10, 40, now), 10, "who asks is given as always");
        assert_eq!(books.target(30, now + QUIET), 30);
        assert_eq!(books.target(30, now + HELD_OFF), 90);
        assert_eq!(books.pressed, 0);
    }

    #[test]
    fn after_pressure_nothing_is_taken_for_a_while() {
        let (mut books, now) = books();
        books.press(now);
        assert_eq!((books.target(100, now), books.next(now)), (0, None));
        books.grow(7, 10, 0, now);
        books.end(7, now);
        assert_eq!(books.target(0, now + PRESSED), 0, "nobody asked since");
        books.grow(7, 10, 0, now + PRESSED);
        books.end(7, now + PRESSED);
        assert_eq!(books.target(0, now + PRESSED + QUIET), 100);
    }

    #[test]
    fn a_thousand_short_processes_leave_nothing() {
        let (mut books, now) = books();
        for pid in 1..=1000 {
            assert_eq!(books.grow(pid, 100, 100, now), 100);
            books.end(pid, now);
        }
        assert_eq!((books.clients(), books.given()), (0, 0));
        (1..=MOST as i32).for_each(|pid| _ = books.grow(pid, 1, 1, now));
        assert!(!books.has_room() && books.knows(1));
    }
}
