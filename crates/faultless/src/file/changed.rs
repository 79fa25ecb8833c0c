//! Whether others have changed a file, by the time of its last change (`st_ctime`, which no call sets).
//!
//! Before a change of its own this library looks at that time and at the clock, and afterwards at that time again. A time
//! that is neither the last known one nor from the clock's to the last is that of another process. The clock may not be that of
//! the file system (a server's). Then the time is this library's if no other had changed the file before.
//!
//! Most file systems take the time from a clock that stands still for some milliseconds, so a later change may have the
//! same time. Since Linux 6.13 some give each change after a look another one. On all others nothing is known of a file
//! that was looked at within such a while after its last change: others count as having changed it.
//!
//! A change of another process is not told apart if it comes during one of this library's.

use std::ffi::CStr;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use faultless_base::Errno;

use crate::file::opened::Opened;

/// A time without parts of a second is that of a file system that has none, and may have every second second alone.
const GRANULARITY: Duration = Duration::from_secs(2);

/// No file system's clock stands still for longer (100 times a second).
const TICK: Duration = Duration::from_millis(10);

/// File systems that give each change after a look another time (multigrain timestamps).
const TOLD_APART: [i64; 4] =
    [libc::EXT4_SUPER_MAGIC, libc::XFS_SUPER_MAGIC, libc::BTRFS_SUPER_MAGIC, libc::TMPFS_MAGIC];
/// Since this kernel.
const SINCE: (u32, u32) = (6, 13);

/// When a file was changed last. A new name, or other rights, are a change, too.
fn time_in(about: &Metadata) -> Option<SystemTime> {
    let (seconds, ns) = (u64::try_from(about.ctime()).ok()?, u32::try_from(about.ctime_nsec()).ok()?);
    UNIX_EPOCH.checked_add(Duration::new(seconds, ns))
}

/// The same of a file as it is now.
fn time_of(file: &File) -> Option<SystemTime> {
    time_in(&file.metadata().ok()?)
}

/// Who has changed a file.
pub(super) struct Changed(Mutex<State>);

#[derive(Default)]
struct State {
    /// A time of the file that was seen: no other process had changed it by then.
    seen: Option<SystemTime>,
    /// Changes of this library's since.
    ours: Option<[SystemTime; 2]>,
    /// How many are under way: there is no end of `ours` yet.
    running: usize,
    /// Whether any change after a look has another time.
    is_told_apart: bool,
    /// Whether a change since the last look may have the time that was seen.
    is_unsure: bool,
    /// Whether others have changed it since [`Changed::note`].
    is_by_others: bool,
    /// Whether the file system has this clock, once that was tried.
    is_clock: Option<bool>,
}

/// The clock of file systems, which stands still for some milliseconds at a time.
fn coarse() -> SystemTime {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a structure to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &mut now) };
    UNIX_EPOCH + Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn is_whole(time: SystemTime) -> bool {
    time.duration_since(UNIX_EPOCH).is_ok_and(|since| since.subsec_nanos() == 0)
}

fn is_between(time: SystemTime, [from, to]: [SystemTime; 2]) -> bool {
    let late = if is_whole(time) { GRANULARITY } else { Duration::ZERO };
    from <= time + late && time <= to
}

/// Whether this kernel is no older.
fn is_since((major, minor): (u32, u32)) -> bool {
    // SAFETY: a structure to write to, which has an end of text then.
    let release = unsafe {
        let mut about: libc::utsname = std::mem::zeroed();
        libc::uname(&mut about);
        CStr::from_ptr(about.release.as_ptr()).to_string_lossy().into_owned()
    };
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse().ok());
    numbers.next().zip(numbers.next()) >= Some((major, minor))
}

impl State {
    fn is_ours(&self, time: Option<SystemTime>) -> bool {
        let within = |ours: [SystemTime; 2]| time.is_some_and(|time| is_between(time, ours));
        match (self.running > 0, self.is_clock) {
            _ if time == self.seen => true,
            (true, Some(false)) => true,
            (true, _) => self.ours.is_some_and(|[from, _]| within([from, SystemTime::now()])),
            (false, _) => self.ours.is_some_and(within),
        }
    }

    /// Its time was looked at just now, and no change is under way.
    fn look(&mut self, time: Option<SystemTime>) {
        let has_passed = |time| {
            let lasts = if is_whole(time) { GRANULARITY } else { TICK };
            !(time..time + lasts).contains(&coarse())
        };
        let has_this_clock = self.is_clock != Some(false);
        // Small inodes of ext4 have whole seconds.
        let is_told_apart = self.is_told_apart && !time.is_some_and(is_whole);
        self.is_unsure = !is_told_apart && has_this_clock && !time.is_none_or(has_passed);
    }

    fn begin(&mut self, time: Option<SystemTime>) {
        self.is_by_others |= !self.is_ours(time) || self.running == 0 && self.is_unsure;
        if self.running == 0 {
            self.seen = time;
            self.ours = Some([coarse(); 2]);
        }
        self.running += 1;
    }

    /// `time`: that of the file, where it is needed.
    fn end(&mut self, time: impl FnOnce() -> Option<SystemTime>) {
        self.running -= 1;
        if let Some([_, to]) = &mut self.ours {
            *to = SystemTime::now().max(*to);
        }
        if self.is_clock == Some(true) && self.running > 0 {
            return;
        }
        let time = time();
        let is_ours = self.is_ours(time);
        if self.is_clock.is_none() && time != self.seen {
            self.is_clock = Some(is_ours);
        }
        if !is_ours && self.is_clock != Some(true) {
            self.seen = time;
        }
        if self.running == 0 {
            self.look(time);
            // What comes from now on is later.
            if let (true, Some(time), Some([_, to])) = (is_ours, time, &mut self.ours) {
                *to = time;
            }
        }
    }
}

impl Changed {
    /// Of a file on that kind of file system.
    pub(super) fn new(file_system: i64) -> Self {
        let is_told_apart = TOLD_APART.contains(&file_system) && is_since(SINCE);
        Self(Mutex::new(State { is_told_apart, ..State::default() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file is as it should be. Whether no other process has changed it since this was called last, as far as can be
    /// told.
    pub(super) fn note(&self, file: &File) -> bool {
        let time = time_of(file);
        let mut state = self.state();
        let is_told = state.running > 0 || !state.is_unsure;
        let is_ours = state.is_ours(time) && is_told && !state.is_by_others;
        state.is_by_others = false;
        if state.running == 0 {
            (state.seen, state.ours) = (time, None);
            state.look(time);
        }
        is_ours
    }

    /// Changes the file by `f`, which is told what it is like before.
    pub(super) fn by_us<T>(
        &self,
        file: &Opened,
        f: impl FnOnce(&File, &Metadata) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let (file, about) = file.get_with_metadata()?;
        self.state().begin(time_in(&about));
        let done = f(file, &about);
        self.state().end(|| time_of(file));
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Option<SystemTime> {
        Some(coarse() + Duration::from_millis(ms) - Duration::from_secs(1000))
    }

    /// A server's clock: its times are far from those here.
    #[test]
    fn times_of_another_clock_are_not_taken_for_others() {
        let mut state = State { seen: at(0), ..State::default() };
        let mut last = state.seen;
        for i in 1..5 {
            state.begin(last);
            last = at(i);
            state.end(|| last);
        }
        assert!(!state.is_by_others && state.is_clock == Some(false));
        state.begin(at(100));
        assert!(state.is_by_others, "nothing of this process was under way");
    }

    #[test]
    fn changes_under_way_together_are_ours() {
        let now = || Some(SystemTime::now());
        let mut state = State { seen: at(0), is_told_apart: true, ..State::default() };
        state.begin(at(0));
        // The first has not done anything yet.
        state.begin(at(0));
        let first = now();
        state.end(|| first);
        state.begin(first);
        state.end(|| unreachable!("the clock is known, and another one is under way"));
        state.end(|| first);
        assert!(state.is_ours(first) && state.is_ours(at(0)) && !state.is_by_others && state.running == 0);
        std::thread::sleep(Duration::from_millis(20));
        assert!(!state.is_ours(now()));
    }

    /// The end of a change of ours is that of the file, and not of this process's clock, which is ahead of it.
    #[test]
    fn a_change_right_after_ours_is_not_ours() {
        let mut state = State { seen: at(0), is_told_apart: true, ..State::default() };
        state.begin(at(0));
        let ours = Some(SystemTime::now());
        state.end(|| ours);
        let next = ours.map(|time| time + Duration::from_nanos(1));
        assert!(state.is_ours(ours) && !state.is_ours(next) && !state.is_unsure);
    }

    #[test]
    fn what_may_have_the_same_time_is_not_taken_for_ours() {
        let mut state = State { seen: at(0), ..State::default() };
        let second = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let mut fine = State { is_told_apart: true, ..State::default() };
        for (time, is) in [(SystemTime::now(), false), (UNIX_EPOCH + Duration::from_secs(second), true)] {
            fine.look(Some(time));
            assert_eq!(fine.is_unsure, is, "{time:?}");
        }
        let ahead = Some(SystemTime::now() + Duration::from_secs(1000));
        for (time, is) in [(Some(coarse()), true), (at(0), false), (ahead, false), (None, false)] {
            state.look(time);
            assert_eq!(state.is_unsure, is, "{time:?}");
        }
        state.begin(at(0));
        let ours = Some(coarse());
        state.end(|| ours);
        assert!(state.is_unsure && !state.is_by_others);
        state.begin(ours);
        assert!(state.is_by_others, "others may have changed it since");
    }

    #[test]
    fn whole_seconds_are_those_of_a_coarse_file_system() {
        let second = |s: u64, ns: u32| UNIX_EPOCH + Duration::new(s, ns);
        let ours = [second(101, 5), second(101, 9)];
        for (time, is) in
            [(second(100, 0), true), (second(101, 0), true), (second(101, 4), false), (second(102, 0), false)]
        {
            assert_eq!(is_between(time, ours), is, "{time:?}");
        }
    }
}
