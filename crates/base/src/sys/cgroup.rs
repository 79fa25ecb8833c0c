//! Control groups: what the one of this process, and each that it is part of, may use and has left.
//!
//! A program may enter another group at any time, so each look begins with the names of its groups. The numbers in
//! their files are reused for a while.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::proc_file::CGROUP;
use super::raw::{File, leading_number, now_ns, read_file};
use super::{Headroom, open, stack};

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

/// The group with the least memory left. A small group has nothing left.
#[derive(Default)]
struct Tightest(Option<(u64, u64)>);

impl Tightest {
    fn add(&mut self, used: u64, limit: u64) {
        let left = if limit < SMALLEST { 0 } else { limit.saturating_sub(used) };
        if self.0.is_none_or(|(least, _)| left < least) {
            self.0 = Some((left, limit));
        }
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

/// Calls `f` with the text that names the groups of the process.
// Its buffer is in no frame of a caller's.
#[inline(never)]
fn with_text<R>(f: impl FnOnce(&[u8]) -> R) -> R {
    let mut buffer = [0u8; 4096];
    f(CGROUP.read(&mut buffer))
}

/// As [`super::Sys::headroom`].
pub fn headroom() -> Headroom {
    let (names, now) = (names_now(), now_ns());
    let last = LAST.of(names, now);
    if let Some((room @ Headroom::Unlimited, ..NO_LIMIT_NS) | (room, ..LEFT_NS)) = last {
        return room;
    }
    let by_path = || {
        let mut tightest = Tightest::default();
        with_text(|text| each_group(text, |group| tightest.add(group.used(), group.limit)));
        tightest.room()
    };
    let found = if names == 0 { None } else { stack::with_room(|| open::apart(by_path)).flatten() };
    match (found, last) {
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

/// The least limit. Opens files.
pub fn limit() -> Option<u64> {
    let (mut buffer, mut least) = ([0u8; 2048], None);
    each_group(read_file(c"/proc/thread-self/cgroup", &mut buffer), |group| {
        least = Some(group.limit.min(least.unwrap_or(u64::MAX)));
    });
    least
}

/// Whether more than `percent` percent of a limit are used. Opens files.
pub fn is_full(percent: u64) -> bool {
    let (mut buffer, mut full) = ([0u8; 2048], false);
    each_group(read_file(c"/proc/thread-self/cgroup", &mut buffer), |group| {
        full |= group.used() > group.limit / 100 * percent;
    });
    full
}

/// The names of what a version of the interface says of a group.
struct Files {
    root: &'static [u8],
    used: &'static [u8],
    limit: &'static [u8],
    stat: &'static [u8],
}

const VERSION_1: Files = Files {
    root: b"/sys/fs/cgroup/memory",
    used: b"/memory.usage_in_bytes",
    limit: b"/memory.limit_in_bytes",
    stat: b"/memory.stat",
};
const VERSION_2: Files =
    Files { root: b"/sys/fs/cgroup", used: b"/memory.current", limit: b"/memory.max", stat: b"/memory.stat" };
/// In its statistics, the pages of files.
const CACHED: [[&[u8]; 2]; 2] =
    [[b"inactive_file", b"active_file"], [b"total_inactive_file", b"total_active_file"]];
/// Version 1 says so where there is no limit, or a little less.
const NO_LIMIT: u64 = 1 << 62;

/// A group with a limit.
struct Group<'a> {
    files: &'a Files,
    name: &'a [u8],
    used: u64,
    limit: u64,
}

impl Group<'_> {
    /// The memory that it uses, without the part that the kernel can reclaim.
    fn used(&self) -> u64 {
        let cached = || {
            open_in(self.files, self.name, self.files.stat, |path| {
                let mut file = File::open(path)?;
                Some(cached(|chunk| file.read(chunk)))
            })
        };
        let cached = if self.used > self.limit / 2 { cached().flatten().unwrap_or(0) } else { 0 };
        self.used.saturating_sub(cached)
    }
}

/// Calls `f` for each group of this process, and each that it is part of, if they have a limit. Opens files.
fn each_group(text: &[u8], mut f: impl FnMut(&Group)) {
    for line in text.split(|b| *b == b'\n') {
        let mut fields = line.splitn(3, |b| *b == b':');
        let (Some(id), Some(kinds), Some(group)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let files = if id == b"0" && kinds.is_empty() {
            &VERSION_2
        } else if kinds.split(|b| *b == b',').any(|k| k == b"memory") {
            &VERSION_1
        } else {
            continue;
        };
        let mut name = group.strip_suffix(b"/").unwrap_or(group);
        loop {
            if let Some(limit) = number(files, name, files.limit).filter(|limit| *limit < NO_LIMIT)
                && let Some(used) = number(files, name, files.used)
            {
                f(&Group { files, name, used, limit });
            }
            let Some(end) = name.iter().rposition(|b| *b == b'/') else { break };
            name = &name[..end];
        }
    }
}

/// Opens a file of a group by `open`.
#[inline(never)]
fn open_in<R>(files: &Files, group: &[u8], name: &[u8], open: impl FnOnce(&CStr) -> R) -> Option<R> {
    let mut path = [0u8; 600];
    let mut end = 0;
    for part in [files.root, group, name, b"\0"] {
        path.get_mut(end..end + part.len())?.copy_from_slice(part);
        end += part.len();
    }
    Some(open(CStr::from_bytes_until_nul(&path).ok()?))
}

fn number(files: &Files, group: &[u8], name: &[u8]) -> Option<u64> {
    let mut digits = [0u8; 32];
    let n = open_in(files, group, name, File::open)??.read(&mut digits);
    leading_number(&digits[..n])
}

/// Bytes of a group's that are pages of files, by its statistics: the kernel drops them before it kills a process.
#[inline(never)]
fn cached(mut read: impl FnMut(&mut [u8]) -> usize) -> u64 {
    let (mut chunk, mut line, mut n, mut sums) = ([0u8; 256], [0u8; 64], 0, [0u64; 2]);
    loop {
        let got = read(&mut chunk);
        if got == 0 {
            // Version 1 says both, of the group alone and of all below it.
            return sums[0].max(sums[1]);
        }
        for &byte in &chunk[..got] {
            if byte != b'\n' {
                line[n.min(63)] = byte;
                n += 1;
                continue;
            }
            let text = &line[..n.min(63)];
            for (keys, sum) in CACHED.iter().zip(&mut sums) {
                let value = |key: &&[u8]| leading_number(text.strip_prefix(*key)?.strip_prefix(b" ")?);
                *sum += keys.iter().find_map(value).unwrap_or(0);
            }
            n = 0;
        }
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;

    #[test]
    fn pages_of_files_are_counted_once() {
        let mut texts = [
            &b"cache 5\ninactive_file 30\nactive_file 1\ntotal_inactive_f"[..],
            b"ile 300\ntotal_active_file 7\n",
        ]
        .into_iter();
        let sum = cached(|chunk| {
            let text = texts.next().unwrap_or(b"");
            chunk[..text.len()].copy_from_slice(text);
            text.len()
        });
        assert_eq!(sum, 307);
    }

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
