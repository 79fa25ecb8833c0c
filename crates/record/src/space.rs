//! Processes and their mappings, as a recording tells of them.
//!
//! The kernel tells of each mapping as it is made, and of one that has grown together with its neighbours as a whole;
//! it tells of none that goes. So the last that was told of an address counts. A process has the mappings of the
//! process that it comes from, and shares with it what is the same in both. Of many processes, those that ended first
//! are forgotten.

use std::collections::VecDeque;
use std::rc::Rc;

use crate::map::HashMap;
use crate::maps;
use crate::ranges::Ranges;
use crate::wire::Mapping;

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// Where it begins, as it was told.
    pub start: u64,
    /// Its bytes, as they were told.
    pub bytes: u64,
    /// When it was told, by the clock of the records; 0: it was there before.
    pub since: u64,
    /// The smallest part of it that was mapped at once, as far as that can be told.
    pub piece: u64,
    /// Whether a part of it was told before without any rights: mapped so, and opened later.
    pub was_closed: bool,
    /// Where it begins in its file.
    pub offset: u64,
    /// The file's number; 0: no file.
    pub inode: u64,
    /// `MAP_…`.
    pub flags: u32,
    /// `PROT_…`.
    pub access: u32,
    /// As the kernel calls it.
    pub name: Rc<str>,
}

impl Area {
    /// Whether it can be executed.
    pub fn is_code(&self) -> bool {
        self.access & libc::PROT_EXEC as u32 != 0
    }

    /// Whether the process has made what it holds: it is of no file, and not the kernel's.
    pub fn is_made(&self) -> bool {
        self.inode == 0 && !self.name.starts_with('[')
    }
}

/// Processes that are known at once, and names of mappings that are kept once for all that have them.
const MOST_PROCESSES: usize = 100_000;
const MOST_NAMES: usize = 100_000;
/// Processes without a thread that keep their areas, the last ones: a thread may run of which nothing was told.
const MOST_OVER: usize = 64;

/// What memory without a file is called.
const ANONYMOUS: &str = "//anon";
/// How far behind a program its heap may begin.
const HEAP_APART: u64 = 1 << 30;

/// One process.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// What of each is still as it was told.
    areas: Ranges<Rc<Area>>,
    /// Stands for the code that it has mapped: another number after each change of it.
    pub code: u64,
    /// Its program's name.
    pub name: String,
    /// The program's file, and where its mappings end.
    image: Option<(Rc<str>, u64)>,
    /// Whether its first thread has ended.
    has_ended: bool,
    /// Whether it has executed a program, of whose mappings nothing was told so far.
    is_bare: bool,
    /// Its threads that run, as far as it was told of them.
    threads: u32,
}

impl Process {
    /// Whether new memory from `start` on is the program's heap. The kernel calls it so only once it has grown: the heap
    /// begins behind the program's own mappings, at a place that may be chosen by chance.
    fn is_heap(&mut self, start: u64, end: u64) -> bool {
        let Some((_, image_end)) = &mut self.image else { return false };
        if start == *image_end {
            // Its variables without a value in the file.
            *image_end = end;
            return false;
        }
        start.checked_sub(*image_end).is_some_and(|apart| apart < HEAP_APART)
    }

    /// The area at an address.
    pub fn area(&self, address: u64) -> Option<&Rc<Area>> {
        self.areas.get(address)
    }

    /// The smallest part that `area` was mapped by, if it is one that has grown: the new part, or one of the old ones.
    fn piece(&self, area: &Area) -> u64 {
        let end = area.start.saturating_add(area.bytes);
        let (mut old_bytes, mut piece) = (0u64, area.bytes);
        for (start, old_end, old) in self.areas.within(area.start, end) {
            if old_end <= end && old.name == area.name && old.access == area.access {
                old_bytes = old_bytes.saturating_add(old_end - start);
                piece = piece.min(old.piece);
            }
        }
        // The same once more is new memory at the place of old.
        match area.bytes.saturating_sub(old_bytes) {
            0 => piece,
            new => piece.min(new),
        }
    }

    fn add(&mut self, mut area: Area) {
        let (start, end) = (area.start, area.start.saturating_add(area.bytes));
        if start >= end {
            return;
        }
        self.is_bare = false;
        // The first file that is told of is the program's.
        if area.name.starts_with('/') && !area.name.starts_with("//") {
            let (name, image_end) = self.image.get_or_insert_with(|| (Rc::clone(&area.name), end));
            if *name == area.name {
                *image_end = end.max(*image_end);
            }
        }
        area.was_closed = self.areas.within(start, end).any(|(.., old)| old.access == 0 || old.was_closed);
        area.piece = self.piece(&area);
        self.areas.insert(start, end, Rc::new(area));
    }

    /// All of its areas.
    pub fn areas(&self) -> impl Iterator<Item = &Rc<Area>> {
        self.areas.values()
    }
}

/// All processes of a recording.
#[derive(Default)]
pub struct Space {
    processes: HashMap<u32, Process>,
    names: HashMap<String, Rc<str>>,
    threads: HashMap<u32, String>,
    /// Processes whose first thread has ended, the first ones first.
    ended: VecDeque<u32>,
    /// Processes whose threads have all ended, and which have areas, the first ones first.
    over: VecDeque<u32>,
    /// Stands for a process for which there is no room.
    spare: Process,
    /// How often code was mapped.
    code: u64,
    /// Processes that there were.
    pub started: u64,
    /// Threads that there were, with the first ones of processes.
    pub threads_started: u64,
    /// Programs that began and were recorded no further: they had other rights.
    pub unseen: u64,
}

impl Space {
    /// A process; one of which nothing was told has no areas.
    pub fn process(&mut self, pid: u32) -> &mut Process {
        if !self.processes.contains_key(&pid) {
            self.started += 1;
            self.threads_started += 1;
            if !self.make_room() {
                self.spare = Process::default();
                return &mut self.spare;
            }
        }
        self.processes.entry(pid).or_insert_with(|| Process { threads: 1, ..Process::default() })
    }

    /// Whether there is room for one more process, after one that has ended was forgotten if need be.
    fn make_room(&mut self) -> bool {
        while self.processes.len() >= MOST_PROCESSES {
            let Some(pid) = self.ended.pop_front() else { return false };
            // Its number may be that of a new process.
            if self.processes.get(&pid).is_some_and(|process| process.has_ended) {
                self.processes.remove(&pid);
            }
        }
        true
    }

    /// The name of a thread, or what stands for it.
    pub fn thread(&self, pid: u32, tid: u32) -> &str {
        let process = || self.processes.get(&pid).map(|process| process.name.as_str());
        self.threads.get(&tid).map(String::as_str).or_else(process).unwrap_or("?")
    }

    /// The same, just after it was asked for by [`Space::process`].
    pub fn known(&self, pid: u32) -> &Process {
        self.processes.get(&pid).unwrap_or(&self.spare)
    }

    /// A name, kept once for all that have it.
    fn kept(&mut self, name: &str) -> Rc<str> {
        if let Some(name) = self.names.get(name) {
            return Rc::clone(name);
        }
        if self.names.len() >= MOST_NAMES {
            self.names.clear();
        }
        let kept: Rc<str> = name.into();
        self.names.insert(name.to_owned(), Rc::clone(&kept));
        kept
    }

    /// A mapping was made, at that time.
    pub fn map(&mut self, told: &Mapping, since: u64) {
        let (name, heap) = (self.kept(&told.name), self.kept("[heap]"));
        let &Mapping { pid, start, bytes, offset, inode, access, flags, .. } = told;
        if access & libc::PROT_EXEC as u32 != 0 {
            self.code += 1;
            self.process(pid).code = self.code;
        }
        let process = self.process(pid);
        // What was there before has its name already.
        let is_heap = since > 0 && &*name == ANONYMOUS && process.is_heap(start, start.saturating_add(bytes));
        let name = if is_heap { heap } else { name };
        let (piece, was_closed) = (bytes, false);
        process.add(Area { start, bytes, since, piece, was_closed, offset, inode, flags, access, name });
    }

    /// A thread has another name; with `exec` its process runs another program, and has no mapping any more.
    pub fn name(&mut self, pid: u32, tid: u32, name: &str, exec: bool) {
        self.code += u64::from(exec);
        let code = self.code;
        let process = self.process(pid);
        if exec {
            process.code = code;
            process.areas = Ranges::default();
            process.is_bare = true;
            process.image = None;
        }
        if exec || pid == tid {
            process.name = name.to_owned();
        }
        self.threads.insert(tid, name.to_owned());
    }

    /// A thread, or a process, begins.
    pub fn fork(&mut self, (pid, tid): (u32, u32), (parent, parent_tid): (u32, u32)) {
        if let Some(name) = self.threads.get(&parent_tid).cloned() {
            self.threads.insert(tid, name);
        }
        if pid == parent {
            let process = self.process(pid);
            process.threads = process.threads.saturating_add(1);
            self.threads_started += 1;
            return;
        }
        let from = Process { has_ended: false, threads: 1, ..self.process(parent).clone() };
        self.started += 1;
        self.threads_started += 1;
        if self.make_room() {
            self.processes.insert(pid, from);
        }
    }

    /// A thread ends. Its process may go on without it: the mappings stay until no thread of it is left.
    pub fn exit(&mut self, pid: u32, tid: u32) {
        self.threads.remove(&tid);
        if let Some(process) = self.processes.get_mut(&pid) {
            // Every program has mappings. The kernel ends the events of one that gets other rights, and says so as of a
            // thread that ends.
            self.unseen += u64::from(std::mem::take(&mut process.is_bare));
            if process.threads != u32::MAX {
                process.threads = process.threads.saturating_sub(1);
            }
            if process.threads == 0 {
                self.over.push_back(pid);
                self.forget_areas();
            }
        }
        if let Some(process) = self.processes.get_mut(&tid)
            && !process.has_ended
        {
            process.has_ended = true;
            self.ended.push_back(tid);
        }
    }

    /// How many processes were seen to begin, and not to end.
    pub fn running(&self) -> u64 {
        let is_running = |process: &&Process| !matches!(process.threads, 0 | u32::MAX);
        self.processes.values().filter(is_running).count() as u64
    }

    /// Whether the first thread of a process has ended.
    pub fn has_ended(&self, pid: u32) -> bool {
        self.processes.get(&pid).is_some_and(|process| process.has_ended)
    }

    /// Takes the areas of those that were over first: each may have a copy of a thousand of them.
    fn forget_areas(&mut self) {
        while self.over.len() > MOST_OVER {
            let process = self.over.pop_front().and_then(|pid| self.processes.get_mut(&pid));
            // Its number may be that of a new process.
            if let Some(process) = process.filter(|process| process.threads == 0) {
                process.areas = Ranges::default();
            }
        }
    }

    /// The mappings of a process as the text of `/proc/PID/maps` has them.
    pub fn maps(&mut self, pid: u32, text: &str) {
        // How many threads it has was not told in full: it is never over.
        self.process(pid).threads = u32::MAX;
        for line in text.lines() {
            if let Some(told) = maps::line(pid, line) {
                self.map(&told, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, bytes: u64, name: &str) -> Mapping {
        Mapping { pid: 1, start, bytes, offset: 0, inode: 0, access: 3, flags: 2, name: name.into() }
    }

    fn at(space: &mut Space, pid: u32, address: u64) -> String {
        space.process(pid).area(address).map_or("-", |area| &area.name).to_owned()
    }

    #[test]
    fn the_last_that_was_told_of_an_address_counts() {
        let mut space = Space::default();
        space.map(&mapping(0x1000, 0x9000, "a"), 7);
        space.map(&mapping(0x3000, 0x1000, "b"), 7);
        let all = [0x0fff, 0x1000, 0x3000, 0x4000, 0x9fff, 0xa000];
        assert_eq!(all.map(|address| at(&mut space, 1, address)), ["-", "a", "b", "a", "a", "-"]);
        space.map(&mapping(0x2000, 0x3000, "c"), 7);
        assert_eq!(all.map(|address| at(&mut space, 1, address)), ["-", "a", "c", "c", "a", "-"]);
        space.map(&mapping(0x1000, 0x9000, "d"), 7);
        assert_eq!(space.process(1).areas().count(), 1);
        space.map(&mapping(u64::MAX - 10, u64::MAX, "end"), 7);
        assert_eq!(at(&mut space, 1, u64::MAX - 1), "end");
    }

    #[test]
    fn a_mapping_that_grows_has_the_smallest_of_its_pieces() {
        let mut space = Space::default();
        let piece = |space: &mut Space| space.process(1).area(0x10_0000).unwrap().piece;
        space.map(&mapping(0x10_0000, 0x8000, "//anon"), 7);
        assert_eq!(piece(&mut space), 0x8000);
        space.map(&mapping(0x10_0000, 0x8000, "//anon"), 7);
        assert_eq!(piece(&mut space), 0x8000, "the same once more");
        space.map(&mapping(0x0f_0000, 0x1_8000, "//anon"), 7);
        assert_eq!(piece(&mut space), 0x8000, "a larger one joins it");
        space.map(&mapping(0x0f_0000, 0x1_9000, "//anon"), 7);
        assert_eq!(piece(&mut space), 0x1000);
        space.map(&mapping(0x10_0000, 0x4000, "/file"), 7);
        assert_eq!(piece(&mut space), 0x4000);
    }

    #[test]
    fn memory_that_was_opened_later_is_known() {
        let mut space = Space::default();
        let mut was_closed = |start, bytes, access| {
            space.map(&Mapping { access, ..mapping(start, bytes, "//anon") }, 7);
            space.process(1).area(start).unwrap().was_closed
        };
        assert!(!was_closed(0x10_0000, 0x8000, 0) && !was_closed(0x20_0000, 0x8000, 3));
        assert!(was_closed(0x10_0000, 0x8000, 3) && was_closed(0x10_0000, 0x8000, 1), "it stays so");
        assert!(!was_closed(0x20_0000, 0x8000, 1));
    }

    #[test]
    fn a_heap_is_one_before_it_has_grown() {
        let mut space = Space::default();
        space.name(1, 1, "program", true);
        let program = 0x5600_0000_0000;
        space.map(&mapping(program, 0x1000, "/program"), 7);
        space.map(&mapping(program + 0x1000, 0x1000, "/program"), 7);
        space.map(&mapping(0x7f00_0000_0000, 0x1000, "/library"), 7);
        let more =
            [program + 0x2000, program + 0x3000, program + 0x10_0000, program + (2 << 30), 0x7e00_0000_0000];
        more.iter().for_each(|start| space.map(&mapping(*start, 0x1000, "//anon"), 7));
        let names = more.map(|start| at(&mut space, 1, start));
        assert_eq!(names, ["//anon", "//anon", "[heap]", "//anon", "//anon"]);
    }

    #[test]
    fn a_child_has_the_mappings_of_its_parent_until_it_executes() {
        let mut space = Space::default();
        space.name(1, 1, "sh", true);
        space.map(&mapping(0x1000, 0x1000, "a"), 7);
        space.fork((2, 2), (1, 1));
        space.map(&mapping(0x1000, 0x1000, "b"), 7);
        assert_eq!((at(&mut space, 1, 0x1000), at(&mut space, 2, 0x1000)), ("b".into(), "a".into()));
        assert_eq!(space.thread(2, 2), "sh");
        space.name(2, 2, "true", true);
        assert_eq!(at(&mut space, 2, 0x1000), "-");
        space.fork((1, 3), (1, 1));
        space.name(1, 3, "worker", false);
        assert_eq!(space.thread(1, 3), "worker");
        assert_eq!(space.process(1).name, "sh");
        assert_eq!((space.started, space.threads_started), (2, 3));
    }

    #[test]
    fn of_many_processes_those_that_ended_first_are_forgotten() {
        let mut space = Space::default();
        space.name(1, 1, "sh", true);
        space.map(&mapping(0x1000, 0x1000, "a"), 7);
        let most = MOST_PROCESSES as u32;
        for pid in 2..=most {
            space.fork((pid, pid), (1, 1));
        }
        // No process has ended: there is no room for one more, and the others stay.
        space.fork((most + 1, most + 1), (1, 1));
        assert_eq!((at(&mut space, most + 1, 0x1000), at(&mut space, most, 0x1000)), ("-".into(), "a".into()));
        assert_eq!(space.processes.len(), MOST_PROCESSES);
        // The number of one that has ended is taken again: that one stays.
        (2..=4).for_each(|pid| space.exit(pid, pid));
        space.fork((2, 2), (1, 1));
        space.fork((most + 2, most + 2), (1, 1));
        let known = [2, 3, 4, most + 2].map(|pid| space.processes.contains_key(&pid));
        assert_eq!((known, space.processes.len()), ([true, false, true, true], MOST_PROCESSES));
        assert_eq!(at(&mut space, most + 2, 0x1000), "a");
    }

    #[test]
    fn processes_that_are_over_keep_no_areas_of_their_own() {
        let mut space = Space::default();
        space.name(1, 1, "server", true);
        space.map(&mapping(0x1000, 0x1000, "a"), 7);
        for pid in 2..300 {
            space.fork((pid, pid), (1, 1));
            // Its first thread ends before the other one.
            space.fork((pid, 1000 + pid), (pid, pid));
            space.map(&Mapping { pid, ..mapping(0x3000, 0x1000, "b") }, 7);
            space.exit(pid, pid);
            assert_eq!(at(&mut space, pid, 0x3000), "b");
            space.exit(pid, 1000 + pid);
        }
        let with_areas = space.processes.values().filter(|process| process.areas().count() > 0).count();
        assert_eq!((with_areas, space.started), (MOST_OVER + 1, 299));
        // The number of one that is over is taken again: the new one keeps what it has.
        space.fork((299, 299), (1, 1));
        for pid in 400..500 {
            space.fork((pid, pid), (1, 1));
            space.exit(pid, pid);
        }
        assert_eq!((at(&mut space, 299, 0x1000), at(&mut space, 298, 0x1000)), ("a".into(), "-".into()));
        // One that ran already has threads of which nothing was told.
        space.maps(7000, "1000-3000 r-xp 00002000 fe:00 77   /c");
        (7000..7100).for_each(|tid| space.exit(7000, tid));
        (500..600).for_each(|pid| space.exit(pid, pid));
        assert_eq!(at(&mut space, 7000, 0x1000), "/c");
    }

    #[test]
    fn the_text_of_maps_is_read() {
        let mut space = Space::default();
        let text = "1000-3000 r-xp 00002000 fe:00 77   /a b (deleted)\n\
                    4000-5000 rw-s 00000000 00:00 0 \n\
                    zz\n7000-6000 rw-p 0 0 0 x\n";
        space.maps(5, text);
        let process = space.process(5);
        let area = process.area(0x1fff).unwrap();
        assert_eq!((&*area.name, area.offset, area.inode, area.access, area.flags), ("/a b", 0x2000, 77, 5, 2));
        let area = process.area(0x4000).unwrap();
        assert_eq!((&*area.name, area.access, area.flags), ("//anon", 3, 1));
        assert_eq!(process.areas().count(), 2);
    }
}
