//! Where the kernel takes new memory for another thread of this process, and taking it there, too (NUMA).
//!
//! For a page that a thread brings, the policy of the area counts first (`mbind`), then the policy of the thread
//! (`set_mempolicy`), then the node on which the thread runs. The policy of the area holds whichever thread brings the
//! page. The other two are those of the thread that brings it.
//!
//! [`Placement::of`] says what they are for a thread that waits for a page: it sleeps on the processor where it missed
//! the page. It opens files; `open.rs` says who may. [`Follower`] has the calling thread bring pages in that way. The
//! thread takes the policy over, and goes to the node.

use core::ffi::CStr;
use core::fmt::{self, Write};

use super::cpus::{Set, each_line};
use super::policy::{self, Policy};
use super::raw::{self, File, leading_number};
use super::{nodes, thread};

/// Bytes of a line of `numa_maps` that are read at first. The kernel walks through page tables for each further line.
const FIRST: usize = 96;

/// Whether this process may have memory of several nodes. On others all of this is of no use.
pub fn is_needed() -> bool {
    nodes::are_several()
}

/// Learns on which node each processor lies. It opens files.
pub fn learn() {
    let mut online = [0; 512];
    let online = raw::read_file(c"/sys/devices/system/node/online", &mut online);
    for node in Set::parse(online).iter() {
        let mut list = [0; 4096];
        let path = Path::new(format_args!("/sys/devices/system/node/node{node}/cpulist"));
        let cpus = path.read().map_or(Set::new(), |mut file| Set::parse(filled(&mut file, &mut list)));
        cpus.iter().for_each(|cpu| nodes::note(cpu, node));
    }
}

/// Where new memory of a thread comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The processor on which it was last.
    cpu: usize,
    policy: Policy,
}

impl Placement {
    /// That of a thread of this process. `None` where the kernel does not say: the thread has ended, or is another
    /// process's.
    pub fn of(number: u32) -> Option<Self> {
        let mut text = [0; 512];
        let stat = filled(&mut Path::of_thread(number, "stat").read()?, &mut text);
        let policy = policy_of(number).unwrap_or(Policy::DEFAULT);
        Some(Self { cpu: processor(stat)?, policy })
    }
}

/// The processor on which a thread of this process was last, if it shares processors as threads do by default. `None`
/// where it has another scheduling policy, or the kernel does not say. It opens a file.
pub fn shared_processor(number: u32) -> Option<usize> {
    let mut text = [0; 512];
    let stat = filled(&mut Path::of_thread(number, "stat").read()?, &mut text);
    let is_shared = field(stat, SCHEDULING)? == libc::SCHED_OTHER as u64;
    processor(stat).filter(|_| is_shared)
}

/// Whether no more threads of the machine run, or wait for a processor, than this thread may use, and so many more. It
/// opens a file; where the kernel does not say, that is not so.
pub fn processors_suffice(more: usize) -> bool {
    let mut text = [0; 128];
    let running = File::open(c"/proc/loadavg").and_then(|mut file| running(filled(&mut file, &mut text)));
    let cpus = thread::cpus_of(0).map_or(0, |cpus| cpus.count());
    running.is_some_and(|running| running <= (cpus + more) as u64)
}

/// How many run, in the text of `loadavg`: three averages are before that.
fn running(text: &[u8]) -> Option<u64> {
    leading_number(text.split(|byte| *byte == b' ').nth(3)?)
}

/// The policy of a thread: the kernel shows it for each area that has none of its own.
fn policy_of(number: u32) -> Option<Policy> {
    let path = Path::of_thread(number, "numa_maps");
    let mut first = [0; FIRST];
    let mut found = of_line(filled(&mut path.read()?, &mut first));
    if found.is_none() {
        let mut file = path.read()?;
        let next = |line: &[u8]| {
            found = of_line(line);
            found.is_none()
        };
        each_line(|part| file.read(part), next);
    }
    found
}

/// The same in the line of an area. `None` where the area has a policy of its own.
fn of_line(line: &[u8]) -> Option<Policy> {
    let (address, policy) = parsed(line)?;
    policy::is_default(address).then_some(policy)
}

/// A line of `numa_maps`: the address of the area, and its policy or the thread's. `None` where the line has too
/// little.
fn parsed(line: &[u8]) -> Option<(usize, Policy)> {
    let space = line.iter().position(|byte| *byte == b' ')?;
    let address = usize::from_str_radix(core::str::from_utf8(&line[..space]).ok()?, 16).ok()?;
    Some((address, Policy::parse(&line[space + 1..])?))
}

/// Fields of proc_pid_stat(5).
const PROCESSOR: usize = 39;
const SCHEDULING: usize = 41;

/// The processor in the text of a `stat`.
fn processor(stat: &[u8]) -> Option<usize> {
    field(stat, PROCESSOR).map(|cpu| cpu as usize)
}

/// A field in that text, behind the name, which is the second.
fn field(stat: &[u8], number: usize) -> Option<u64> {
    let behind = stat.iter().rposition(|byte| *byte == b')')? + 1;
    leading_number(stat[behind..].split(|byte| *byte == b' ').nth(number - 2)?)
}

/// A thread that brings pages for others, as it is now.
pub struct Follower {
    /// The node whose processors it keeps to.
    node: Option<usize>,
    /// The processors that it used before, while it keeps to some of them.
    before: Option<Set>,
    policy: Policy,
}

impl Follower {
    /// The calling thread, which takes memory as it was started to.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self { node: None, before: None, policy: Policy::DEFAULT }
    }

    /// Takes new memory where the thread of this number would have it, as far as that is known, until the next call or
    /// [`Follower::rest`]. For the thread that made this.
    pub fn follow(&mut self, number: u32, placement: Option<&Placement>) {
        let policy = placement.map_or(Policy::DEFAULT, |placement| placement.policy);
        if policy != self.policy {
            self.policy = if policy.set() { policy } else { Policy::DEFAULT };
            if self.policy != policy {
                self.policy.set();
            }
        }
        if let Some(placement) = placement {
            self.go(number, placement.cpu);
        }
    }

    /// May run everywhere again. No thread waits meanwhile for one that keeps to busy processors.
    pub fn rest(&mut self) {
        self.node = None;
        self.before.take().map(thread::run_on);
    }

    /// Goes to the node of a processor, where it uses those that the process or that thread may use.
    fn go(&mut self, number: u32, cpu: usize) {
        let node = nodes::known(cpu);
        if node.is_some() && node == self.node && node == nodes::here().map(|(_, node)| node) {
            return;
        }
        self.before = self.before.or_else(|| thread::cpus_of(0));
        let of = |number: usize| thread::cpus_of(number).unwrap_or(Set::new());
        let (own, others) = (of(number as usize), of(raw::process_number()));
        let near = |cpu: usize| nodes::known(cpu) == node && (own.has(cpu) || others.has(cpu));
        let chosen = if node.is_some() { Set::of(near) } else { Set::new() };
        let goes = chosen.count() > 0 && thread::run_on(chosen) || thread::run_on(Set::only(cpu));
        self.node = node.filter(|_| goes);
    }
}

/// What is read of a file at once, as far as it fits.
fn filled<'a>(file: &mut File, text: &'a mut [u8]) -> &'a [u8] {
    let read = file.read(text);
    &text[..read]
}

/// A path that is put together.
struct Path {
    bytes: [u8; 64],
    length: usize,
}

impl Path {
    fn new(path: fmt::Arguments) -> Self {
        let mut new = Self { bytes: [0; 64], length: 0 };
        // Those of this module are short enough; another would not be found.
        let _ = new.write_fmt(path);
        new
    }

    fn of_thread(number: u32, file: &str) -> Self {
        Self::new(format_args!("/proc/self/task/{number}/{file}"))
    }

    fn read(&self) -> Option<File> {
        File::open(CStr::from_bytes_until_nul(&self.bytes).ok()?)
    }
}

impl Write for Path {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let end = self.length + part.len();
        // The last byte stays zero.
        let to = self.bytes[..63].get_mut(self.length..end).ok_or(fmt::Error)?;
        to.copy_from_slice(part.as_bytes());
        self.length = end;
        Ok(())
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use std::string::String;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::vec::Vec;

    use super::*;
    use crate::sys::thread::{cpus_of, run_on};
    use faultless_testkit::foreign::{cases, garbled};
    use proptest::prelude::*;

    const STAT: &str = "4711 (a) b) S 1 4711 1 0 -1 4227084 101 0 0 0 0 0 0 0 20 0 2 0 100 0 0 18446744073709551615 0 0 \
                        0 0 0 0 0 0 0 0 0 0 17 63 0 0 0 0 0 0 0 0 0 0 0 0 256\n";

    #[test]
    fn the_processor_is_read_behind_any_name() {
        assert_eq!(processor(STAT.as_bytes()), Some(63));
        assert_eq!(field(STAT.as_bytes(), SCHEDULING), Some(0));
    }

    #[test]
    fn the_threads_that_run_are_behind_the_averages() {
        assert_eq!(running(b"15.26 18.72 17.62 3/412 26033\n"), Some(3));
        assert_eq!(running(b"0.00 0.00 0.00"), None);
        assert!(processors_suffice(1 << 30), "this machine is understood");
    }

    #[test]
    fn a_thread_of_another_policy_has_no_shared_processor() {
        let shared = || shared_processor(raw::thread_number() as u32);
        thread::spawn(move || {
            let cpu = cpus_of(0).and_then(|cpus| cpus.iter().last()).unwrap();
            assert!(run_on(Set::only(cpu)));
            assert_eq!(shared(), Some(cpu));
            crate::sys::thread::set_idle();
            assert_eq!(shared(), None);
        })
        .join()
        .unwrap();
        assert_eq!(shared_processor(u32::MAX), None, "there is none of this number");
    }

    /// Lines as kernels write them, and what they mean.
    #[test]
    fn each_policy_is_understood() {
        let policy = |text: &str| Policy::parse(text.as_bytes());
        let is = |text: &str, mode: i32, nodes: &str| {
            let own = std::format!("{text} file=/bin/true mapped=1 N0=1 kernelpagesize_kB=4\n");
            assert_eq!(policy(&own), Some(Policy::new(mode, Set::parse(nodes.as_bytes()))), "{text}");
            assert_eq!(policy(text), None, "its end is not there: {text}");
        };
        is("default", 0, "");
        is("prefer:1", 1, "1");
        is("prefer (many):0,2-3", 5, "0,2,3");
        is("bind=static:0-1", 2, "0-1");
        is("bind=relative|balancing:1000", 2, "1000");
        is("interleave:0-63", 3, "0-63");
        is("local", 4, "");
        is("weighted interleave:0,1023", 6, "0,1023");
        assert_eq!(policy("binding:1 "), None);
        let line = parsed(b"7ffd0badd000 prefer:1 stack anon=3 dirty=3 N0=3");
        assert_eq!(line, Some((0x7ffd_0bad_d000, Policy::new(1, Set::only(1)))));
    }

    /// What another thread has asked for, and where it is, while it waits.
    #[test]
    fn a_thread_that_waits_is_seen_from_another() {
        let Some(cpu) = cpus_of(0).and_then(|set| set.iter().last()) else {
            return faultless_testkit::skip("no processor is known");
        };
        for wanted in [Policy::DEFAULT, Policy::new(2, Set::only(0)), Policy::new(4, Set::new())] {
            let (tell, told) = channel();
            let (go, goes) = channel::<()>();
            let other = thread::spawn(move || {
                let is_set = run_on(Set::only(cpu)) && wanted.set();
                tell.send((is_set, raw::thread_number() as u32)).unwrap();
                // It sleeps until this side is done.
                goes.recv().unwrap_err();
            });
            let (is_set, number) = told.recv().unwrap();
            let seen = Placement::of(number);
            drop(go);
            other.join().unwrap();
            if !is_set {
                return faultless_testkit::skip("no policies here");
            }
            assert_eq!(seen, Some(Placement { cpu, policy: wanted }));
            assert_eq!(Placement::of(u32::MAX), None, "there is none of this number");
        }
    }

    /// The calling thread takes a policy over, and gives it up where the other thread has none.
    #[test]
    fn a_thread_follows_another() {
        let follow = || {
            learn();
            let before = cpus_of(0);
            let (cpu, node) = nodes::here().unwrap();
            assert_eq!(nodes::known(cpu), Some(node), "the kernel lists it");
            let (mut follower, own) = (Follower::new(), raw::thread_number() as u32);
            let bound = Placement { cpu, policy: Policy::new(2, Set::only(node)) };
            follower.follow(own, Some(&bound));
            let seen = Placement::of(own).unwrap();
            let near = cpus_of(0).unwrap();
            follower.follow(own, None);
            follower.rest();
            assert_eq!(cpus_of(0), before, "it may run where it might before");
            (bound, seen, near, node, Placement::of(own).unwrap())
        };
        let (bound, seen, near, node, last) = thread::spawn(follow).join().unwrap();
        assert_eq!((seen.policy, last.policy), (bound.policy, Policy::DEFAULT));
        assert!(near.count() > 0 && near.iter().all(|cpu| nodes::known(cpu) == Some(node)), "{near:?}");
    }

    const MAPS: &[&str] =
        &["5581d2a33000 bind=static:0-1,7 file=/usr/bin/x mapped=2\n", "10000 prefer (many):1 x\n"];

    proptest! {
        #![proptest_config(cases())]

        #[test]
        fn any_text_is_borne(stat in garbled(&[STAT]), maps in garbled(MAPS)) {
            let ascii: String = stat.iter().filter(|byte| byte.is_ascii()).map(|byte| *byte as char).collect();
            let naive = || {
                let behind = ascii.rsplit_once(')')?.1;
                let digits = |field: &str| field.chars().take_while(char::is_ascii_digit).collect::<String>();
                digits(behind.split(' ').nth(37)?).parse::<u64>().ok().map(|cpu| cpu as usize)
            };
            prop_assert_eq!(processor(ascii.as_bytes()), naive());
            let fourth = ascii.split(' ').nth(3).map(|field| field.chars().take_while(char::is_ascii_digit).collect::<String>());
            prop_assert_eq!(running(ascii.as_bytes()), fourth.and_then(|digits| digits.parse().ok()));
            if let Some((address, _)) = parsed(&maps) {
                let begin = std::format!("{address:x} ");
                let zeroes: Vec<u8> = maps.iter().copied().skip_while(|byte| b"0+".contains(byte)).collect();
                prop_assert!(address == 0 || zeroes.to_ascii_lowercase().starts_with(begin.as_bytes()));
            }
        }

        /// A list is what each of its parts says.
        #[test]
        fn a_list_is_its_parts(parts in prop::collection::vec((0usize..1100, 0usize..40), 0..6)) {
            let text: Vec<_> = parts.iter().map(|(first, more)| match more {
                0 => std::format!("{first}"),
                more => std::format!("{first}-{}", first + more),
            }).collect();
            let set = Set::parse((text.join(",") + "\n").as_bytes());
            let has = |number: usize| parts.iter().any(|(first, more)| (*first..=first + more).contains(&number));
            (0..1024).try_for_each(|number| {
                prop_assert_eq!(set.has(number), has(number));
                Ok(())
            })?;
        }
    }
}
