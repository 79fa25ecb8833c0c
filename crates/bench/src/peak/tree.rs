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

/// Samples for which a process that has forked, and not started a program, is not counted: until it does something of
/// its own, its memory is its parent's. Most such processes start a program, or end, within this time. Without it
/// peaks would depend on whether a sample hit that moment.
const FORKED: u32 = 2;

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
    /// Still that of the process which it was forked from, seen this often.
    Forked {
        parent: u32,
        samples: u32,
    },
}

struct Member {
    /// Stays that of this process, even when its number is given to another one.
    statm: File,
    image: Image,
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

    /// Looks for new processes, and says what each has that counts.
    pub fn sample(&mut self) -> io::Result<Vec<Memory>> {
        self.find()?;
        let mut all = Vec::with_capacity(self.members.len());
        self.members.retain(|pid, member| match member.read(*pid) {
            Some(memory) => {
                if member.has_own_image(*pid) {
                    all.push(memory);
                }
                true
            }
            None => false,
        });
        Ok(all)
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
                Some(stat) => self.look(pid, &stat)?,
                None if index >= old => self.expected.push(pid),
                None => {}
            }
        }
        Ok(())
    }

    /// Takes in a process that belongs here.
    fn look(&mut self, pid: u32, stat: &Stat) -> io::Result<()> {
        let is_ours = stat.group == self.group || self.has(stat.parent);
        if stat.is_thread || !is_ours || self.has(pid) {
            return Ok(());
        }
        let image = match stat.has_forked {
            true => Image::Forked { parent: stat.parent, samples: 0 },
            false => Image::Own,
        };
        match File::open(format!("/proc/{pid}/statm")) {
            Ok(statm) => drop(self.members.insert(pid, Member { statm, image })),
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

    /// Whether its memory counts as its own.
    fn has_own_image(&mut self, pid: u32) -> bool {
        let Image::Forked { parent, samples } = &mut self.image else { return true };
        let has_started = Stat::read(pid).is_some_and(|stat| !stat.has_forked);
        *samples += 1;
        // A child of vfork has its parent's memory, not a copy, for as long as it takes.
        if has_started || (*samples > FORKED && !process::share_memory(pid, *parent)) {
            self.image = Image::Own;
        }
        matches!(self.image, Image::Own)
    }
}

fn memory_of(statm: File) -> Option<(File, Memory)> {
    memory(&statm).map(|memory| (statm, memory))
}

/// What a process has; `None` when there is none any more. Nothing if it has no memory any more.
pub fn memory(statm: &File) -> Option<Memory> {
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
