//! The processes of a run, and the anonymous memory that each has.
//!
//! A process belongs to the run if it is in the process group that [`process::tie`] makes, or if its parent belongs to
//! it when it is first seen. It then stays in, whatever it does. New processes are found by their numbers: the kernel
//! says which number it gave last, and looks are had at those since the last time. So nothing is listed, and an orphan
//! is found as well. Not found is a process that leaves the group and loses its parent between two samples.
//!
//! The figure is `resident` less `shared` of `/proc/PID/statm`: the same as `RssAnon` in `status`, at a tenth of the
//! cost. Since Linux 6.17 both are exact (on 6.18, equal to what `smaps_rollup` counts page by page). Kernels before it
//! may leave out up to 32 pages of each CPU.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

use crate::process;

const PAGE: u64 = 4096;

/// Set in a process's flags between its fork and its start of a program.
const PF_FORKNOEXEC: u64 = 0x40;

/// What a process has, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Memory {
    /// Private memory that no file backs.
    pub anonymous: u64,
    /// Pages of files, and shared memory.
    pub shared: u64,
}

/// Whose memory a process has.
enum Image {
    Own,
    /// Still that of the process which it was forked from.
    Forked {
        parent: u32,
        /// Anonymous bytes that it had from its parent, once they are known.
        inherited: Option<u64>,
    },
}

struct Member {
    /// Stays that of this process, even when its number is given to another one.
    statm: File,
    /// Open once it was asked for the kernel's peak.
    status: Option<File>,
    image: Image,
    /// What it had in the last sample.
    now: Memory,
    /// The most that a sample had of pages of files and shared memory.
    most_shared: u64,
}

/// What the processes have together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sum {
    /// Anonymous bytes.
    pub bytes: u64,
    /// How many processes there are.
    pub processes: usize,
}

/// The living processes of a run.
pub struct Tree {
    group: u32,
    members: BTreeMap<u32, Member>,
    loadavg: File,
    /// The number that the kernel gave last, when it was asked last.
    last: u32,
    /// The largest number of a process.
    most: u32,
    /// Numbers that were given, and behind which no process was found yet: it may be on its way.
    expected: Vec<u32>,
}

impl Tree {
    /// The tree of a process that has just been started by [`process::tie`].
    pub fn new(root: u32) -> io::Result<Tree> {
        let most = fs::read_to_string("/proc/sys/kernel/pid_max")?;
        let mut tree = Tree {
            group: root,
            members: BTreeMap::new(),
            loadavg: File::open("/proc/loadavg")?,
            // All that it has started since is looked at.
            last: root - 1,
            most: most.trim().parse().map_err(|_| malformed("pid_max"))?,
            expected: Vec::new(),
        };
        tree.find()?;
        Ok(tree)
    }

    /// Looks for new processes, and says what all have together. If that is more than `known`, what forked processes
    /// share with their parents is taken off. That costs more, and a smaller sum is no peak.
    pub fn sample(&mut self, known: u64) -> io::Result<Sum> {
        self.find()?;
        self.members.retain(|pid, member| member.look(*pid));
        let parents: BTreeMap<u32, u64> =
            self.members.iter().map(|(pid, member)| (*pid, member.now.anonymous)).collect();
        self.members.values_mut().for_each(|member| member.inherit(&parents));
        let mut bytes = parents.values().sum();
        if bytes > known {
            bytes = self.members.iter_mut().map(|(pid, member)| member.own(*pid, &parents)).sum();
        }
        Ok(Sum { bytes, processes: self.members.len() })
    }

    /// Bytes of anonymous memory that the largest process had at some time at least, as the kernel tells.
    ///
    /// The kernel keeps the most of all resident memory. The most of files and shared memory that a sample had is
    /// taken off, and what the kernel's figure may be wrong by.
    pub fn kernels_peak(&mut self) -> Option<u64> {
        let (pid, member) = self.members.iter_mut().max_by_key(|(_, member)| member.now.anonymous)?;
        if member.status.is_none() {
            member.status = File::open(format!("/proc/{pid}/status")).ok();
        }
        let mut buffer = [0; 4096];
        let length = member.status.as_ref()?.read_at(&mut buffer, 0).ok()?;
        let status = String::from_utf8_lossy(&buffer[..length]);
        let field = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name))?;
            value.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1024)
        };
        let shared = (field("RssFile:")? + field("RssShmem:")?).max(member.most_shared);
        Some(field("VmHWM:")?.saturating_sub(shared + uncertainty()))
    }

    /// Whether this living process belongs to the run.
    pub fn has(&self, pid: u32) -> bool {
        self.members.contains_key(&pid)
    }

    /// Looks at the numbers that were given since the last time.
    fn find(&mut self) -> io::Result<()> {
        let last = last_number(&self.loadavg)?;
        let mut numbers = std::mem::take(&mut self.expected);
        let old = numbers.len();
        if last >= self.last {
            numbers.extend(self.last + 1..=last);
        } else {
            // They begin again at the lowest.
            numbers.extend((self.last + 1..=self.most).chain(1..=last));
        }
        self.last = last;
        for (index, pid) in numbers.into_iter().enumerate() {
            match Stat::read(pid) {
                Some(stat) => self.consider(pid, &stat)?,
                None if index >= old => self.expected.push(pid),
                None => {}
            }
        }
        Ok(())
    }

    /// Takes in a process that belongs here.
    fn consider(&mut self, pid: u32, stat: &Stat) -> io::Result<()> {
        let is_ours = stat.group == self.group || self.has(stat.parent);
        if stat.is_thread || !is_ours || self.has(pid) {
            return Ok(());
        }
        let image = match stat.has_forked {
            true => Image::Forked { parent: stat.parent, inherited: None },
            false => Image::Own,
        };
        match File::open(format!("/proc/{pid}/statm")) {
            Ok(statm) => {
                self.members
                    .insert(pid, Member { statm, status: None, image, now: Memory::default(), most_shared: 0 });
            }
            // It has ended.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

impl Member {
    /// What it has; `None` when it has ended.
    fn read(&mut self, pid: u32) -> Option<Memory> {
        let memory = memory(&self.statm)?;
        if memory != Memory::default() {
            return Some(memory);
        }
        // Only its first thread may have ended: then the others tell.
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
        let (statm, memory) = tasks
            .filter_map(|task| File::open(task.path().join("statm")).ok())
            .filter_map(|statm| memory_of(statm).filter(|(_, memory)| *memory != Memory::default()))
            .next()?;
        self.statm = statm;
        Some(memory)
    }

    /// Looks at what it has; false when it has ended.
    fn look(&mut self, pid: u32) -> bool {
        let Some(memory) = self.read(pid) else { return false };
        self.now = memory;
        self.most_shared = self.most_shared.max(memory.shared);
        true
    }

    /// Notes what it has from its parent, when it is looked at first.
    fn inherit(&mut self, parents: &BTreeMap<u32, u64>) {
        if let Image::Forked { parent, inherited: inherited @ None } = &mut self.image {
            *inherited = Some(parents.get(parent).map_or(0, |bytes| self.now.anonymous.min(*bytes)));
        }
    }

    /// What it has for itself. That is all, if it has started a program, or if its parent has ended.
    ///
    /// Of what it has from its parent, only what it has written to is a copy of its own, a page for each fault at
    /// most. What the parent writes to meanwhile is not seen.
    fn own(&mut self, pid: u32, parents: &BTreeMap<u32, u64>) -> u64 {
        let all = self.now.anonymous;
        let Image::Forked { parent, inherited } = self.image else { return all };
        // If it has just ended, it has nothing.
        let Some(stat) = Stat::read(pid) else { return 0 };
        if !stat.has_forked {
            self.image = Image::Own;
            // What was seen before may have been its parent's.
            return if self.look(pid) { self.now.anonymous } else { 0 };
        }
        if !parents.contains_key(&parent) {
            self.image = Image::Own;
            return all;
        }
        // A child of vfork has its parent's memory, not a copy.
        if process::share_memory(pid, parent) {
            return 0;
        }
        all.saturating_sub(inherited.unwrap_or(0)).max(stat.faults * PAGE).min(all)
    }
}

/// By how much a resident size may be wrong that the kernel adds up roughly: three sums (anonymous, files, shared), of
/// which each CPU keeps a part to itself.
pub fn uncertainty() -> u64 {
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    3 * cpus * (2 * cpus).max(32) * PAGE
}

fn memory_of(statm: File) -> Option<(File, Memory)> {
    memory(&statm).map(|memory| (statm, memory))
}

/// What a process has; `None` when there is none any more. Nothing if it has no memory any more.
fn memory(statm: &File) -> Option<Memory> {
    let mut buffer = [0; 128];
    let length = statm.read_at(&mut buffer, 0).ok()?;
    let text = std::str::from_utf8(&buffer[..length]).ok()?;
    let mut pages = text.split_ascii_whitespace().skip(1).map_while(|word| word.parse::<u64>().ok());
    let (resident, shared) = (pages.next()?, pages.next()?);
    Some(Memory { anonymous: resident.saturating_sub(shared) * PAGE, shared: shared * PAGE })
}

/// What the kernel says of a process, or of a thread.
#[derive(Debug, PartialEq)]
struct Stat {
    parent: u32,
    group: u32,
    is_thread: bool,
    has_forked: bool,
    /// Page faults since it was forked.
    faults: u64,
}

impl Stat {
    fn read(pid: u32) -> Option<Stat> {
        let mut buffer = [0; 1024];
        let length = File::open(format!("/proc/{pid}/stat")).ok()?.read_at(&mut buffer, 0).ok()?;
        Stat::parse(&buffer[..length])
    }

    /// The fields follow the name, which may have blanks and brackets itself.
    fn parse(text: &[u8]) -> Option<Stat> {
        let end = text.iter().rposition(|byte| *byte == b')')?;
        let fields: Vec<&str> = std::str::from_utf8(&text[end + 1..]).ok()?.split_ascii_whitespace().collect();
        // As proc_pid_stat(5) counts them.
        let field = |number: usize| fields.get(number - 3).copied();
        Some(Stat {
            parent: field(4)?.parse().ok()?,
            group: field(5)?.parse().ok()?,
            // Only the first thread has a signal that tells its parent of its end, if only the signal 0.
            is_thread: field(38)? == "-1",
            has_forked: field(9)?.parse::<u64>().ok()? & PF_FORKNOEXEC != 0,
            faults: field(10)?.parse::<u64>().ok()? + field(12)?.parse::<u64>().ok()?,
        })
    }
}

/// The number that the kernel gave last to a process or a thread.
fn last_number(loadavg: &File) -> io::Result<u32> {
    let mut buffer = [0; 128];
    let length = loadavg.read_at(&mut buffer, 0)?;
    let text = std::str::from_utf8(&buffer[..length]).unwrap_or_default();
    text.split_ascii_whitespace().last().and_then(|word| word.parse().ok()).ok_or_else(|| malformed("loadavg"))
}

fn malformed(what: &str) -> io::Error {
    io::Error::other(format!("{what} is not understood"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name may look like what follows it.
    #[test]
    fn the_fields_of_a_process() {
        let rest = "7 5 5 0 -1 4194368 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37";
        let line = |signal: &str| format!("9 (a) S 1 (b) S {rest} {signal} 39");
        let stat = Stat { parent: 7, group: 5, is_thread: false, has_forked: true, faults: 22 };
        assert_eq!(Stat::parse(line("17").as_bytes()), Some(stat));
        assert!(Stat::parse(line("-1").as_bytes()).unwrap().is_thread);
        assert_eq!(Stat::parse(b"9 (a) S 7"), None);
    }
}
