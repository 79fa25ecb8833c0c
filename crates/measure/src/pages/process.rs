//! Processes, told apart by their number and when they were started.

use std::io;

use faultless_base::sys::raw::boot_ns;

/// A process: its number alone may be taken again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// When it was started, in ticks of the kernel's since the machine was.
    pub started: u64,
}

impl Process {
    /// The process that has this number now, unless it has ended.
    pub fn read(pid: u32) -> Option<Self> {
        Stat::read(pid).map(|stat| Self { pid, started: stat.started })
    }

    /// This one.
    pub fn this() -> Self {
        let pid = std::process::id();
        Self::read(pid).unwrap_or(Self { pid, started: 0 })
    }

    /// Whether it has not ended.
    pub fn runs(self) -> bool {
        Self::read(self.pid) == Some(self)
    }

    /// Whether it was started after that moment, in ns since the machine was.
    pub fn is_younger_than(self, ns: u64) -> bool {
        // Both are rounded.
        self.started > ns / (1_000_000_000 / hertz()) + 1
    }
}

/// Ticks of the kernel's in a second.
fn hertz() -> u64 {
    // SAFETY: no pointers.
    unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64
}

/// The number of this process's PID namespace.
pub fn namespace() -> Option<u64> {
    namespace_of("self")
}

/// The number of a process's PID namespace.
fn namespace_of(pid: impl std::fmt::Display) -> Option<u64> {
    let link = std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok()?;
    link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

/// The numbers that a process has in its PID namespaces, from that of /proc to the innermost.
fn numbers(pid: u32) -> Option<Vec<u32>> {
    let status = std::fs::read(format!("/proc/{pid}/status")).ok()?;
    numbers_in(&String::from_utf8_lossy(&status))
}

/// The same in the text of `/proc/PID/status`.
fn numbers_in(status: &str) -> Option<Vec<u32>> {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()
}

/// The number of another process's PID namespace, and the number that it has there.
pub fn inside(pid: u32) -> Option<(u64, u32)> {
    Some((namespace_of(pid)?, *numbers(pid)?.last()?))
}

/// A process in a PID namespace below that of /proc.
#[derive(Clone, Copy, Debug)]
pub struct Nested {
    /// Its number here.
    pub pid: u32,
    /// Its number there.
    pub number: u32,
    /// There; `None`: this user may not see that.
    pub namespace: Option<u64>,
}

/// All of them that can be seen.
pub fn nested() -> Vec<Nested> {
    let nested = |pid| match *numbers(pid)? {
        [_, .., number] => Some(Nested { pid, number, namespace: namespace_of(pid) }),
        _ => None,
    };
    super::find::processes().filter_map(nested).collect()
}

/// The user whose rights a process has now.
pub fn user(pid: u32) -> Option<u32> {
    let status = std::fs::read(format!("/proc/{pid}/status")).ok()?;
    effective(&String::from_utf8_lossy(&status))
}

/// The process of a thread, by the thread's number; a process is its first thread's. `None`: there is none, or this user
/// may not see it.
pub fn of_thread(number: u32) -> Option<u32> {
    let status = std::fs::read(format!("/proc/{number}/status")).ok()?;
    process_in(&String::from_utf8_lossy(&status))
}

/// The same in the text of `/proc/PID/status`.
fn process_in(status: &str) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

/// Whether there is a process or a thread with this number, seen in `/proc` or not.
pub fn exists(number: u32) -> bool {
    let Some(number) = i32::try_from(number).ok().filter(|number| *number > 0) else { return false };
    // SAFETY: no memory is involved, and no signal sent.
    let answer = unsafe { libc::kill(number, 0) };
    answer == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}

/// The second of the users in the text of `/proc/PID/status`.
fn effective(status: &str) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().nth(1)?.parse().ok()
}

/// Whether a directory of the user `left_by` may hold the page of a process with the rights of `user`. It may be the
/// process's own. Root may have given up rights since, and the reader may deceive himself. Any other user could say
/// anything.
pub fn may_be_of(left_by: u32, user: Option<u32>) -> bool {
    // SAFETY: no arguments.
    let reader = unsafe { libc::geteuid() };
    left_by == 0 || left_by == reader || Some(left_by) == user
}

/// Whether a page of the user `left_by` is that of a process with the rights of `user`. A process can name a page of
/// any user: one that is not its own user's counts only if the process has it mapped.
pub fn is_of(left_by: u32, user: Option<u32>, is_mapped: impl FnOnce() -> bool) -> bool {
    Some(left_by) == user || may_be_of(left_by, user) && is_mapped()
}

/// The fields of /proc/PID/stat that matter here.
pub struct Stat {
    /// The name of what it runs.
    pub name: String,
    /// As in [`Process`].
    pub started: u64,
    /// Page faults that the kernel took for it, with input or without.
    pub faults: u64,
    /// Those of its children that it has waited for, and of theirs.
    pub waited_faults: u64,
    /// The process that it is a child of.
    pub parent: u32,
}

impl Stat {
    /// Of a process that has not ended.
    pub fn read(pid: u32) -> Option<Self> {
        Self::find(pid).ok()?
    }

    /// The same; an error: that cannot be told, for want of descriptors.
    pub fn find(pid: u32) -> io::Result<Option<Self>> {
        match std::fs::read(format!("/proc/{pid}/stat")) {
            Ok(text) => Ok(Self::parse(&String::from_utf8_lossy(&text))),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)) => {
                Err(error)
            }
            Err(_) => Ok(None),
        }
    }

    /// For how long it has been there, in seconds.
    pub fn age(&self) -> f64 {
        (boot_ns() as f64 / 1e9 - self.started as f64 / hertz() as f64).max(0.0)
    }

    fn parse(text: &str) -> Option<Self> {
        // The name can hold anything, also a bracket.
        let (start, rest) = text.rsplit_once(") ")?;
        let mut fields = rest.split(' ');
        let state = fields.next()?;
        let mut number = |skipped| fields.nth(skipped)?.parse::<u64>().ok();
        let parent = u32::try_from(number(0)?).ok()?;
        // Its own and those of its children by turns, first without input and then with it.
        let [own, waited, own_input, waited_input] = [number(5)?, number(0)?, number(0)?, number(0)?];
        let (faults, waited_faults) = (own.saturating_add(own_input), waited.saturating_add(waited_input));
        // A process whose first thread has ended goes on with the others.
        let has_ended = number(6)? < 2 && matches!(state, "Z" | "X");
        let started = number(1)?;
        let name = super::shown(start.split_once('(')?.1);
        (!has_ended).then_some(Self { name, started, faults, waited_faults, parent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_testkit::foreign::{cases, garbled};
    use proptest::prelude::*;

    #[test]
    fn a_name_may_hold_anything() {
        let stat = Stat::parse(STAT).unwrap();
        assert_eq!((stat.name.as_str(), stat.started, numbers_in(STATUS)), ("a) b", 345, Some(vec![4711, 17, 1])));
        assert_eq!((stat.faults, stat.waited_faults, stat.parent), (101 + 3, 40 + 50, 1));
        assert_eq!(process_in("Name:\tTgid:\nTgid:\t4711\nPid:\t4712\n"), Some(4711));
        assert_eq!((process_in(""), of_thread(std::process::id())), (None, Some(std::process::id())));
    }

    #[test]
    fn a_process_goes_on_without_its_first_thread() {
        let zombie = STAT.replace(" S ", " Z ");
        assert!(Stat::parse(&zombie).is_some());
        for threads in [0, 1] {
            assert!(Stat::parse(&zombie.replace(" 20 0 2 ", &format!(" 20 0 {threads} "))).is_none());
        }
    }

    #[test]
    fn only_the_user_of_a_process_or_root_leaves_its_page() {
        assert_eq!(effective("Name:\tx\nUid:\t1000\t1001\t1002\t1001\nGid:\t5\n"), Some(1001));
        assert_eq!([effective(""), effective("Uid:\t1"), effective("Uid:\t1\tx")], [None; 3]);
        let own = user(std::process::id()).unwrap();
        let other = own.wrapping_add(4242);
        assert!(may_be_of(0, Some(other)) && may_be_of(own, None) && may_be_of(other, Some(other)));
        assert!(!may_be_of(other, Some(own)) && !may_be_of(other, None));
        // Root's page is that of a process of another user if that has it; one's own needs no more.
        assert!(is_of(other, Some(other), || false) && is_of(0, Some(other), || true));
        assert!(
            !is_of(0, Some(other), || false) && !is_of(own, None, || false) && !is_of(other, Some(own), || true)
        );
    }

    #[test]
    fn age_is_told_from_the_clock_of_pages() {
        let now = faultless_base::sys::raw::boot_ns();
        assert!(!Process::this().is_younger_than(now) && Process::this().is_younger_than(0));
        assert!(namespace().is_some());
    }

    const STAT: &str = "4711 (a) b) S 1 4711 1 0 -1 4227084 101 40 3 50 0 0 0 0 20 0 2 0 345 0 0\n";
    const STATUS: &str = "Name:\tx\nNSpid:\t4711\t17\t1\nThreads:\t1\n";

    proptest! {
        #![proptest_config(cases())]

        #[test]
        fn any_text_is_borne(text in garbled(&[STAT, STATUS])) {
            let text = String::from_utf8_lossy(&text);
            if let Some(stat) = Stat::parse(&text) {
                prop_assert!(!stat.name.chars().any(char::is_control) && text.contains(&stat.started.to_string()));
                prop_assert!(stat.name.chars().count() < text.chars().count());
            }
            let line = text.lines().find_map(|line| line.strip_prefix("NSpid:"));
            let count = line.map(|line| line.split_whitespace().count());
            prop_assert!(numbers_in(&text).is_none_or(|numbers| Some(numbers.len()) == count));
        }
    }
}
