//! The page that a process shares with the commands that watch and steer it: a header, the knobs, the counters.
//!
//! | at | bytes | |
//! |---|---|---|
//! | 0 | 8 | [`MAGIC`], once everything else is filled in |
//! | 8 | 4 | [`VERSION`] of this layout |
//! | 12 | 4 | the process |
//! | 16 | 4 | size of the whole |
//! | 20 | 4 | counters in a block |
//! | 24 | 4 | blocks |
//! | 28 | 4 | knobs |
//! | 32 | 8 | [`TABLES`], which tells the lists of counters and knobs apart |
//! | 40 | 8 | since when it counts, in ns since the machine was started |
//! | 48 | 16 | name of the program, up to 15 bytes and a zero; nothing where it is not known |
//! | 64 | 4 | why the program runs plain: a number of [`PLAIN`], or 0 |
//! | 128 | 8 each | the knobs |
//! | next multiple of 64 | 8 each | the counters of the first block; each block starts at a multiple of 64 |
//! | behind the blocks | 8 each | the gauges |
//! | behind the page | | where the process has regions, their [`Listing`], and from the next multiple of 4096 on the lines in which they count |
//!
//! Numbers are in the byte order of the machine. All but the knobs is for the process alone to write.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::gauges::{GAUGES, Gauges};
use crate::knobs::{self, KNOBS, Values};
use crate::listing::{Line, Listing, PLACES};
use crate::stats::{self, BLOCKS, Block, COUNTERS, Counter};

/// First bytes of a page.
pub const MAGIC: u64 = u64::from_le_bytes(*b"fltless1");
/// Version of the layout of [`Page`].
pub const VERSION: u32 = 13;

/// Why a program runs plain, as its library found at the first large request, or later: the number on the page is the
/// place here.
pub const PLAIN: [&str; 10] = [
    "",
    "its address space is limited (ulimit -v, RLIMIT_AS)",
    "its data is limited (ulimit -d, RLIMIT_DATA)",
    "the kernel does not overcommit (vm.overcommit_memory is 2)",
    "it has a sanitizer, which lays memory out itself",
    "its budget is less than 2 MiB",
    "its control group cannot be read, and may have a limit",
    "it limits or locks its memory, filters its calls, or changes its namespace",
    "what it may read, it may execute (READ_IMPLIES_EXEC)",
    "the kernel refused the memory for its engine",
];
/// The places in [`PLAIN`].
pub mod plain {
    /// Address space.
    pub const ADDRESS_SPACE: u32 = 1;
    /// Data.
    pub const DATA: u32 = 2;
    /// Strict accounting.
    pub const ACCOUNTING: u32 = 3;
    /// A sanitizer.
    pub const SANITIZER: u32 = 4;
    /// No budget.
    pub const BUDGET: u32 = 5;
    /// A control group that is hidden.
    pub const GROUP: u32 = 6;
    /// The service has ended.
    pub const ENDED: u32 = 7;
    /// Readable memory is executable.
    pub const EXECUTABLE: u32 = 8;
    /// No memory for the engine.
    pub const REFUSED: u32 = 9;
}

/// A number made from the names of all counters, knobs and totals in their order (FNV-1a). Command and library belong together
/// when it is the same in both.
pub const TABLES: u64 = {
    let mut sum = 0xcbf2_9ce4_8422_2325;
    let mut i = 0;
    let (counters, knobs) = (COUNTERS.len(), KNOBS.len());
    while i < counters + knobs + GAUGES.len() {
        let name = if i < counters {
            COUNTERS[i].name
        } else if i < counters + knobs {
            KNOBS[i - counters].name
        } else {
            GAUGES[i - counters - knobs].name
        };
        let mut at = 0;
        while at <= name.len() {
            let byte = if at < name.len() { name.as_bytes()[at] } else { b'\n' };
            sum = (sum ^ byte as u64).wrapping_mul(0x100_0000_01b3);
            at += 1;
        }
        i += 1;
    }
    sum
};

/// The value of the first bytes.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Header {
    /// [`MAGIC`] once everything else is filled in.
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// The process.
    pub pid: AtomicU32,
    /// Size of [`Page`].
    pub bytes: AtomicU32,
    /// [`stats::COUNT`].
    pub counters: AtomicU32,
    /// [`BLOCKS`].
    pub blocks: AtomicU32,
    /// [`knobs::COUNT`].
    pub knobs: AtomicU32,
    /// [`TABLES`].
    pub tables: AtomicU64,
    /// Since when it counts, in ns since the machine was started.
    pub start_ns: AtomicU64,
    /// Name of the program.
    pub name: [AtomicU64; 2],
    /// Why it runs plain, a place in [`PLAIN`].
    pub plain: AtomicU32,
    /// Nothing yet.
    pub room: [AtomicU32; 15],
}

/// The page; whole pages of the kernel's, so that it can be mapped.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Page {
    /// What it is.
    pub header: Header,
    /// What is set.
    pub knobs: Values,
    /// What is counted.
    pub block: [Block; BLOCKS],
    /// What there is.
    pub gauges: Gauges,
}

/// A page with what is behind it, up to the lines of regions.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Whole {
    /// The page.
    pub page: Page,
    /// Regions.
    pub listing: Listing,
}

impl Whole {
    /// Bytes of all of it, with `lines` lines for each region: whole pages of the kernel's, so that it can be mapped.
    pub const fn bytes(lines: usize) -> usize {
        (size_of::<Self>() + lines * (PLACES + 1) * size_of::<Line>()).next_multiple_of(align_of::<Self>())
    }
}

impl Page {
    /// A page of zeroes, which belongs to no process yet.
    pub const fn new() -> Self {
        let header = Header {
            magic: AtomicU64::new(0),
            version: AtomicU32::new(0),
            pid: AtomicU32::new(0),
            bytes: AtomicU32::new(0),
            counters: AtomicU32::new(0),
            blocks: AtomicU32::new(0),
            knobs: AtomicU32::new(0),
            tables: AtomicU64::new(0),
            start_ns: AtomicU64::new(0),
            name: [const { AtomicU64::new(0) }; 2],
            plain: AtomicU32::new(0),
            room: [const { AtomicU32::new(0) }; 15],
        };
        Self { header, knobs: Values::new(), block: [const { Block::new() }; BLOCKS], gauges: Gauges::new() }
    }

    /// A counter, over all blocks.
    pub fn sum(&self, counter: Counter) -> u64 {
        self.block.iter().fold(0, |sum, block| sum.wrapping_add(block.get(counter as usize)))
    }

    /// Fills in the header for process `pid`, `now_ns` after the machine was started. A page that has counted
    /// already, for the program that this one takes the place of, goes on counting since then, so that a watching
    /// command knows it again.
    pub fn start(&self, pid: u32, now_ns: u64) {
        let numbers = [
            (&self.header.version, VERSION),
            (&self.header.pid, pid),
            (&self.header.bytes, size_of::<Self>() as u32),
            (&self.header.counters, stats::COUNT as u32),
            (&self.header.blocks, BLOCKS as u32),
            (&self.header.knobs, knobs::COUNT as u32),
        ];
        numbers.iter().for_each(|(field, number)| field.store(*number, Ordering::Relaxed));
        self.header.tables.store(TABLES, Ordering::Relaxed);
        if self.header.start_ns.load(Ordering::Relaxed) == 0 {
            self.header.start_ns.store(now_ns, Ordering::Relaxed);
        }
        self.header.magic.store(MAGIC, Ordering::Release);
    }
}

impl Header {
    /// The name as it stands.
    pub fn name(&self) -> [u64; 2] {
        [0, 1].map(|i| self.name[i].load(Ordering::Relaxed))
    }

    /// Notes a name that stood on another page.
    pub fn put_name(&self, name: [u64; 2]) {
        self.name.iter().zip(name).for_each(|(word, part)| word.store(part, Ordering::Relaxed));
    }

    /// Notes the name of the program, as much of it as fits.
    pub fn set_name(&self, name: &[u8]) {
        for (i, word) in self.name.iter().enumerate() {
            let byte = |at: usize| name.get(8 * i + at).copied().filter(|_| 8 * i + at < 15).unwrap_or(0);
            word.store(u64::from_ne_bytes(core::array::from_fn(byte)), Ordering::Relaxed);
        }
    }
}

impl Default for Page {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_any_page_add_up() {
        let page = Page::new();
        page.block[0].add(Counter::Forks, u64::MAX);
        page.block[1].add(Counter::Forks, 3);
        assert_eq!(page.sum(Counter::Forks), 2, "the page may come from elsewhere");
    }

    #[test]
    fn a_page_that_counted_before_goes_on() {
        let page = Page::new();
        page.start(7, 100);
        page.block[0].add(Counter::Forks, 3);
        page.start(7, 200);
        assert_eq!((page.header.start_ns.load(Ordering::Relaxed), page.sum(Counter::Forks)), (100, 3));
    }

    #[test]
    fn a_long_name_is_cut_and_ends() {
        let header = Page::new().header;
        header.set_name(b"sixteen_letters_");
        let bytes: [[u8; 8]; 2] = [0, 1].map(|i| header.name[i].load(Ordering::Relaxed).to_ne_bytes());
        assert_eq!(bytes.concat(), b"sixteen_letters\0");
        assert_eq!(core::mem::offset_of!(Page, knobs), 128);
    }
}
