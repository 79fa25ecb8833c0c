//! Control groups: what the one of this process, and each that it is part of, may use and has left.
//!
//! A program may enter another group at any time, so each look begins with the names of its groups. The numbers in
//! their files are reused for a while. Of a group that is there and cannot be looked at, a limit is not known: nothing
//! is left of it.
//!
//! - `groups.rs`: the files of groups.
//! - `place.rs`: where a group is in the file system, if it can be seen.

mod groups;
mod place;

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::proc_file::CGROUP;
use super::raw::{now_ns, read_file};
use super::{Headroom, open, stack};
use groups::{Depth, Group, Seen, each_group};

/// In a smaller group idle memory could not always be given back in time.
pub const SMALLEST: u64 = 1 << 30;

/// For this long a group is taken to have no limit; where it cannot be looked at, for longer.
const NO_LIMIT_NS: u64 = 1_000_000_000;
const NO_LOOK_NS: u64 = 10 * NO_LIMIT_NS;
/// For this long the last look tells what a group has left.
const LEFT_NS: u64 = 10_000_000;
/// For this long that counts where a group cannot be looked at.
const FRESH_NS: u64 = 100_000_000;

/// The last look: of which groups, told by a number made of their names, and when.
struct Last {
    names: AtomicU64,
    at_ns: AtomicU64,
    left: AtomicUsize,
    /// 0: there is none.
    limit: AtomicUsize,
}

static LAST: Last = Last {
    names: AtomicU64::new(0),
    at_ns: AtomicU64::new(0),
    left: AtomicUsize::new(0),
    limit: AtomicUsize::new(0),
};

impl Last {
    /// The result of the last look and its age, if it was a look at these groups. Two looks at the same groups may
    /// mix.
    fn of(&self, names: u64, now: u64) -> Option<(Headroom, u64)> {
        let is_theirs = || names != 0 && self.names.load(Ordering::Acquire) == names;
        if !is_theirs() {
            return None;
        }
        let age = now.saturating_sub(self.at_ns.load(Ordering::Acquire));
        let left = self.left.load(Ordering::Acquire);
        let room = match self.limit.load(Ordering::Acquire) {
            0 => Headroom::Unlimited,
            limit => Headroom::Left { left, limit },
        };
        is_theirs().then_some((room, age))
    }

    fn note(&self, names: u64, now: u64, room: Headroom) {
        let (left, limit) = match room {
            Headroom::Unknown => return,
            Headroom::Unlimited => (0, 0),
            Headroom::Left { left, limit } => (left, limit),
        };
        self.names.store(0, Ordering::SeqCst);
        self.at_ns.store(now, Ordering::Release);
        self.left.store(left, Ordering::Release);
        self.limit.store(limit, Ordering::Release);
        self.names.store(names, Ordering::Release);
    }
}

/// The limit of the groups of a process: the least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// There is none.
    None,
    /// In bytes.
    Bytes(u64),
    /// A group of the process cannot be seen, and may have one.
    Hidden,
}

/// The group with the least memory left. A small group has nothing left, nor has one that is hidden.
#[derive(Default)]
struct Tightest(Option<(u64, u64)>);

impl Tightest {
    fn add(&mut self, used: u64, limit: u64) {
        let left = if limit < SMALLEST { 0 } else { limit.saturating_sub(used) };
        if self.0.is_none_or(|(least, _)| left < least) {
            self.0 = Some((left, limit));
        }
    }

    /// One is there of which nothing is known.
    fn hide(&mut self) {
        self.add(0, 1);
    }

    fn room(self) -> Headroom {
        self.0.map_or(Headroom::Unlimited, |(left, limit)| Headroom::Left {
            left: left as usize,
            limit: limit as usize,
        })
    }
}

const NO_NAMES: u64 = 0xCBF2_9CE4_8422_2325;

fn add_names(sum: u64, text: &[u8]) -> u64 {
    text.iter().fold(sum, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3))
}

/// A number made of a text; not 0, but for an empty text.
fn names(text: &[u8]) -> u64 {
    if text.is_empty() { 0 } else { add_names(NO_NAMES, text) | 1 }
}

/// The same of the groups of now, with little stack: threads of the program may have no more.
fn names_now() -> u64 {
    let Some(mut file) = CGROUP.reader() else { return stack::with_room(|| with_text(names)).unwrap_or(0) };
    let (mut chunk, mut all) = ([0u8; 128], NO_NAMES);
    loop {
        match file.read(&mut chunk) {
            0 => return if all == NO_NAMES { 0 } else { all | 1 },
            n => all = add_names(all, &chunk[..n]),
        }
    }
}

/// Bytes of the text that names the groups. A longer one is not read to its end: its group is hidden.
const TEXT: usize = 16 << 10;

/// Calls `f` with the text that names the groups of the process.
// Its buffer is in no frame of a caller's.
#[inline(never)]
fn with_text<R>(f: impl FnOnce(&[u8]) -> R) -> R {
    let mut buffer = [0u8; TEXT];
    f(CGROUP.read(&mut buffer))
}

/// Calls `f` for each group that `text` names, and each that it is part of, if they have a limit.
fn each(text: &[u8], depth: Depth, mut f: impl FnMut(&Group)) -> Seen {
    match text.len() {
        0 => Seen::Nothing,
        TEXT => Seen::Hidden,
        _ => each_group(text, depth, &mut f),
    }
}

/// The same of the process's groups, for a caller who may open files and has 48 KiB of stack.
#[inline(never)]
fn each_here(depth: Depth, f: impl FnMut(&Group)) -> Seen {
    let mut buffer = [0u8; TEXT];
    each(read_file(c"/proc/thread-self/cgroup", &mut buffer), depth, f)
}

/// As [`super::Sys::headroom`].
pub fn headroom() -> Headroom {
    let (names, now) = (names_now(), now_ns());
    let last = LAST.of(names, now);
    if let Some((room @ Headroom::Unlimited, ..NO_LIMIT_NS) | (room, ..LEFT_NS)) = last {
        return room;
    }
    let found = || {
        let mut tightest = Tightest::default();
        let add = |group: &Group| tightest.add(group.used(), group.limit);
        let by_path = || with_text(|text| each(text, Depth::Seen, add));
        // On a stack of its own: it takes buffers for paths.
        match stack::with_room(|| open::apart(by_path)).flatten()? {
            Seen::Nothing => return None,
            Seen::All => {}
            Seen::Hidden => tightest.hide(),
        }
        Some(tightest.room())
    };
    match (if names == 0 { None } else { found() }, last) {
        (Some(room), _) => {
            LAST.note(names, now, room);
            room
        }
        (None, Some((room @ Headroom::Unlimited, ..NO_LOOK_NS) | (room, ..FRESH_NS))) => room,
        _ => Headroom::Unknown,
    }
}

/// In a forked child.
pub fn forget() {
    LAST.names.store(0, Ordering::Relaxed);
}

/// The least limit. For a caller who may open files and has 48 KiB of stack.
pub fn limit() -> Limit {
    let mut least = None;
    let seen = each_here(Depth::Above, |group| least = Some(group.limit.min(least.unwrap_or(u64::MAX))));
    match (seen, least) {
        (Seen::Nothing, _) | (Seen::All, None) => Limit::None,
        (Seen::All, Some(least)) => Limit::Bytes(least),
        (Seen::Hidden, _) => Limit::Hidden,
    }
}

/// Whether more than `percent` percent of a limit are used. As [`limit`].
pub fn is_full(percent: u64) -> bool {
    let mut full = false;
    each_here(Depth::Seen, |group| full |= group.used() > group.limit / 100 * percent);
    full
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;

    #[test]
    fn the_least_that_is_left_counts_and_small_groups_have_nothing() {
        let room = |groups: &[(u64, u64)]| {
            let mut tightest = Tightest::default();
            groups.iter().for_each(|(used, limit)| tightest.add(*used, *limit));
            tightest.room()
        };
        let (small, large, huge) = ((1, SMALLEST - 1), (3, SMALLEST), (SMALLEST, 9 * SMALLEST));
        let left = |left, limit| Headroom::Left { left, limit: limit as usize };
        assert_eq!(room(&[]), Headroom::Unlimited);
        assert_eq!(room(&[huge, large]), left(SMALLEST as usize - 3, SMALLEST));
        assert_eq!(room(&[large, small, huge]), left(0, SMALLEST - 1));
        let mut tightest = Tightest(Some((1, SMALLEST)));
        tightest.hide();
        assert_eq!(tightest.room(), left(0, 1), "of one that is hidden nothing is left");
    }

    #[test]
    fn a_look_counts_for_its_groups_alone() {
        let look = Headroom::Left { left: 5, limit: 9 };
        LAST.note(3, 100, look);
        assert_eq!(LAST.of(3, 140), Some((look, 40)));
        assert_eq!(LAST.of(5, 140), None);
        assert_eq!(LAST.of(0, 140), None);
        LAST.names.store(0, Ordering::Relaxed);
    }
}
