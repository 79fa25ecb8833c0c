//! Which faults could be avoided, and by what.
//!
//! Each way has a range. The most are the faults that the way can change at all. The least are those among them that it
//! changes as far as records tell. A thread whose records are as many pages apart as faults has touched every page
//! between them. So a larger page, or one touch ahead, would have spared the others. Faults in memory that is
//! asked for in large pieces are served by faultless. What a way costs, and what it gains, only a measurement tells.

use faultless_page::knobs::Knob;
use serde::{Deserialize, Serialize};

use super::place::{Class, Kind};
use super::weight::Scale;
use crate::file::Head;
use crate::map::HashMap;
use crate::space::Area;
use crate::wire::Sample;

/// Bytes of a small page, and of what is served.
const PAGE: u64 = 4096;
const SLOT: u64 = 2 << 20;

/// What could be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// `faultless run`.
    Faultless,
    /// Huge pages of 2 MiB for all.
    HugePages,
    /// Pages of 64 KiB for all.
    Pages64k,
    /// `MAP_POPULATE`, by the program itself.
    Populate,
}

impl Way {
    /// All of them, in the order in which they are told.
    pub const ALL: [Self; 4] = [Self::Faultless, Self::HugePages, Self::Pages64k, Self::Populate];

    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Faultless => "faultless run",
            Self::HugePages => "huge pages always",
            Self::Pages64k => "pages of 64 KiB always",
            Self::Populate => "MAP_POPULATE",
        }
    }

    /// How the range was found.
    pub fn how(self) -> &'static str {
        match self {
            Self::Faultless => {
                "first touches of anonymous memory that was asked for in pieces of 2 MiB and more, with its rights \
                 from the first, in whole ranges of 2 MiB but for one in 512, unless the program forbids huge pages, \
                 maps memory that grows down, or maps it without the C library; at most with all in pieces from \
                 256 KiB on, which it serves if they are blocks of malloc, and with the heap, where such blocks may lie"
            }
            Self::HugePages => {
                "transparent_hugepage/enabled; first touches in ranges of 2 MiB that are whole in their mapping, but \
                 for one in 512; at least those between records that show a touch of every page, unless the program \
                 forbids huge pages"
            }
            Self::Pages64k => {
                "transparent_hugepage/hugepages-64kB/enabled; the same in ranges of 64 KiB, but for one in 16"
            }
            Self::Populate => {
                "all first touches of anonymous mappings, if the program maps them so; their pages are made all the \
                 same, within the call"
            }
        }
    }

    /// Bytes of the page that takes the place of small ones.
    fn page(self) -> Option<u64> {
        match self {
            Self::HugePages => Some(SLOT),
            Self::Pages64k => Some(64 << 10),
            Self::Faultless | Self::Populate => None,
        }
    }
}

/// What a way could avoid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Avoidable {
    /// The way.
    pub way: Way,
    /// Faults at least.
    pub least: u64,
    /// Faults at most.
    pub most: u64,
    /// Those of them that are in the heap, where it is not known in which pieces memory was asked for.
    #[serde(default)]
    pub in_heap: u64,
    /// How that was found.
    pub how: String,
}

/// What faults of a way add up to.
#[derive(Clone, Copy, Default)]
struct Sums {
    least: u64,
    most: u64,
    in_heap: u64,
}

/// The last record of a thread.
struct Last {
    address: u64,
    start: u64,
}

/// Adds up.
#[derive(Default)]
pub struct Avoid {
    sums: HashMap<Way, Sums>,
    last: HashMap<(u32, u32), Last>,
}

/// Threads whose last record is known.
const MOST_THREADS: usize = 100_000;

/// Whether all of the aligned range around the address lies in the area.
fn is_whole(area: &Area, address: u64, range: u64) -> bool {
    let start = address & !(range - 1);
    let end = start.checked_add(range);
    start >= area.start && end.is_some_and(|end| end <= area.start.saturating_add(area.bytes))
}

/// Whether faultless may serve such memory: of no file, of small pages, and without code.
fn may_be_served(area: &Area) -> bool {
    area.flags & libc::MAP_HUGETLB as u32 == 0 && !area.is_code() && !area.name.starts_with("/dev/zero")
}

/// Whether it serves that if the C library's `mmap` has mapped it: with its rights from the first, anywhere.
fn is_served_if_mapped(area: &Area) -> bool {
    const MAP_32BIT: u64 = 4 << 30;
    !area.was_closed && area.start >= MAP_32BIT && area.flags & libc::MAP_LOCKED as u32 == 0
}

fn default(knob: Knob) -> u64 {
    knob.default().unwrap_or(u64::MAX)
}

impl Avoid {
    /// A fault. `is_covered`: whether faultless is in such a process.
    pub fn add(&mut self, begin: &Sample, kind: Kind, class: Class, area: Option<&Area>, is_covered: bool) {
        let thread = (begin.pid, begin.tid);
        let is_new = matches!(kind, Kind::FirstTouch | Kind::Huge);
        let Some(area) = area.filter(|_| is_new && matches!(class, Class::Anonymous | Class::Heap)) else {
            self.last.remove(&thread);
            return;
        };
        let (faults, address) = (begin.period, begin.address & !(PAGE - 1));
        if self.last.len() >= MOST_THREADS {
            self.last.clear();
        }
        let before = self.last.insert(thread, Last { address, start: area.start });
        let apart = before.filter(|before| before.start == area.start);
        let apart = apart.map_or(0, |before| before.address.abs_diff(address));
        let is_dense = apart == faults.saturating_mul(PAGE) && kind == Kind::FirstTouch;
        let mut add = |way: Way, least: u64, most: u64| {
            let sums = self.sums.entry(way).or_default();
            sums.least = sums.least.saturating_add(least);
            sums.most = sums.most.saturating_add(most);
            if class == Class::Heap {
                sums.in_heap = sums.in_heap.saturating_add(most);
            }
        };
        // A mapping may be of pieces that were asked for one after the other: then the smallest counts.
        let is_served = area.piece >= default(Knob::MmapThreshold) && kind == Kind::FirstTouch;
        let may_be = is_covered && area.bytes >= default(Knob::MallocThreshold) && may_be_served(area);
        let is_sure = may_be && is_served && class == Class::Anonymous && is_served_if_mapped(area);
        let is_sure = is_sure && is_whole(area, address, SLOT);
        add(Way::Faultless, if is_sure { faults } else { 0 }, if may_be { faults } else { 0 });
        if class == Class::Anonymous {
            add(Way::Populate, 0, faults);
        }
        for way in Way::ALL {
            let Some(page) = way.page() else { continue };
            if kind == Kind::FirstTouch && is_whole(area, address, page) {
                add(way, if is_dense { faults } else { 0 }, faults);
            }
        }
    }

    /// What was added up, as numbers of faults.
    pub fn finish(&self, scale: &Scale, head: &Head) -> Vec<Avoidable> {
        let one = |way: &Way| {
            let sums = self.sums.get(way).copied().unwrap_or_default();
            // One fault of each larger page stays. What faultless serves may have been there before it is touched.
            let spared = |faults: u64, page: u64| faults - faults.div_ceil(page / PAGE);
            let at_most = |faults| way.page().map_or(faults, |page| spared(faults, page));
            let least = spared(scale.number(sums.least), way.page().unwrap_or(SLOT));
            Avoidable {
                way: *way,
                least,
                most: at_most(scale.number(sums.most)),
                in_heap: at_most(scale.number(sums.in_heap)),
                how: way.how().into(),
            }
        };
        // What is done already says nothing of what it would do.
        let is_done = |way: &Way| *way == Way::HugePages && head.machine.huge_pages == "always";
        if scale.sampled == 0 || head.program.covered {
            return Vec::new();
        }
        Way::ALL.iter().filter(|way| !is_done(way)).map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{Machine, Program};
    use crate::sys::event::What;

    const START: u64 = 0x7f00_0000_0000;

    fn area(bytes: u64, piece: u64) -> Area {
        Area {
            start: START,
            bytes,
            since: 0,
            piece,
            was_closed: false,
            offset: 0,
            inode: 0,
            flags: 2,
            access: 3,
            name: "//anon".into(),
        }
    }

    fn ranges(area: &Area, class: Class, kind: Kind, pages: impl Iterator<Item = u64>) -> Vec<(u64, u64)> {
        ranges_in(area, class, kind, pages, true)
    }

    fn ranges_in(
        area: &Area,
        class: Class,
        kind: Kind,
        pages: impl Iterator<Item = u64>,
        is_covered: bool,
    ) -> Vec<(u64, u64)> {
        let mut avoid = Avoid::default();
        let mut faults = 0;
        for page in pages {
            let sample = Sample {
                what: What::Begin,
                ip: 0,
                pid: 1,
                tid: 1,
                time: 0,
                address: area.start + page * PAGE + 5,
                period: 64,
                stack: Vec::new(),
                memory: Vec::new(),
                page: 0,
            };
            faults += 64;
            avoid.add(&sample, kind, class, Some(area), is_covered);
        }
        let scale = Scale { faults, sampled: faults, costs: None };
        let always =
            Head { machine: Machine { huge_pages: "always".into(), ..Machine::default() }, ..Head::default() };
        assert!(avoid.finish(&scale, &always).iter().all(|of| of.way != Way::HugePages));
        let covered = Head { program: Program { covered: true, ..Program::default() }, ..Head::default() };
        assert!(avoid.finish(&scale, &covered).is_empty());
        let all = avoid.finish(&scale, &Head::default());
        all.iter().map(|of| (of.least, of.most)).collect()
    }

    #[test]
    fn a_way_avoids_the_faults_that_it_can_change() {
        let large = area(64 << 20, 64 << 20);
        let dense = || (0..160).map(|i| i * 64);
        let first = Kind::FirstTouch;
        // 10240 faults: one in 512 stays, one in 16, each but for those before the second record.
        assert_eq!(
            ranges(&large, Class::Anonymous, first, dense()),
            [(10240 - 20, 10240), (10176 - 20, 10240 - 20), (10176 - 636, 10240 - 640), (0, 10240)]
        );
        // Every third page: nothing shows that the pages between were touched.
        let sparse = ranges(&large, Class::Anonymous, first, (0..80).map(|i| i * 192));
        assert_eq!((sparse[1].0, sparse[2].0), (0, 0));
        // Pieces of 1 MiB that lie together; mappings that hold no whole range; the heap; huge pages; copies.
        let of = |area: &Area, class, kind| ranges(area, class, kind, dense());
        assert_eq!(of(&area(64 << 20, 1 << 20), Class::Anonymous, first)[0], (0, 10240));
        assert_eq!(ranges(&area(128 << 10, 128 << 10), Class::Anonymous, first, 0..2)[..2], [(0, 0), (0, 0)]);
        assert_eq!(of(&large, Class::Heap, first)[0], (0, 10240), "it may have blocks of any size");
        assert_eq!(of(&large, Class::Anonymous, Kind::Huge)[..2], [(0, 10240), (0, 0)]);
        assert_eq!(of(&large, Class::Anonymous, Kind::Copy), [(0, 0); 4]);
    }

    /// What the library leaves to the kernel, as far as the records say it.
    #[test]
    fn what_is_not_served_is_not_avoided() {
        let large = || area(64 << 20, 64 << 20);
        let of = |area: &Area, is_covered| {
            ranges_in(area, Class::Anonymous, Kind::FirstTouch, (0..160).map(|i| i * 64), is_covered)[0]
        };
        assert_eq!((of(&large(), true), of(&large(), false)), ((10220, 10240), (0, 0)));
        let maybe = [
            Area { was_closed: true, ..large() },
            Area { start: 0x4000_0000, ..large() },
            Area { flags: large().flags | libc::MAP_LOCKED as u32, ..large() },
        ];
        maybe.iter().for_each(|area| assert_eq!(of(area, true), (0, 10240), "{area:?}"));
        let never = [
            Area { access: 7, ..large() },
            Area { flags: large().flags | libc::MAP_HUGETLB as u32, ..large() },
            Area { name: "/dev/zero".into(), ..large() },
        ];
        never.iter().for_each(|area| assert_eq!(of(area, true), (0, 0), "{area:?}"));
    }

    #[test]
    fn what_is_told_is_that_of_the_knobs() {
        assert_eq!((default(Knob::MmapThreshold), default(Knob::MallocThreshold)), (2 << 20, 256 << 10));
    }
}
