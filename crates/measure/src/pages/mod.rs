//! The pages that processes share: where they are, what is in them, and how a knob on one is turned.

pub mod dir;
pub mod find;
mod folded;
mod maps;
mod open;
mod owner;
pub mod process;
pub mod regions;
pub mod segment;
mod source;
mod tree;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::unix::ffi::OsStringExt;

use faultless_page::gauges::{self, Gauge};
use faultless_page::knobs::{self, Knob};
use faultless_page::layout::{Header, MAGIC, PLAIN, Page, TABLES, VERSION};
use faultless_page::listing::OWN;
use faultless_page::stats::{BLOCKS, Block, COUNT, COUNTERS, Counter, Declared};
use unicode_width::UnicodeWidthChar;

pub use dir::Dir;
pub use folded::{Folded, Sum};
pub use regions::Regions;
pub use source::Source;
pub use tree::Tree;

/// Whether there is such a process.
pub fn is_alive(pid: u32) -> bool {
    std::fs::exists(format!("/proc/{pid}")).unwrap_or(false)
}

/// A variable of the environment that a process was started with.
pub fn variable(pid: u32, name: &str) -> io::Result<Option<OsString>> {
    let all = std::fs::read(format!("/proc/{pid}/environ"))?;
    Ok(value_in(&all, name).map(|value| OsString::from_vec(value.to_vec())))
}

/// A variable in the text of `/proc/PID/environ`, which the process may have written over.
fn value_in<'a>(environ: &'a [u8], name: &str) -> Option<&'a [u8]> {
    environ.split(|b| *b == 0).find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

/// The counters of one process, or of several added up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// The process; 0 for a sum.
    pub pid: u32,
    /// Since when it counts, in ns since the machine was started; 0 for a sum.
    pub start_ns: u64,
    /// The name of the program; empty where it is not known, and for a sum.
    pub name: String,
    /// Its regions; a sum has none.
    pub regions: Regions,
    plain: u32,
    values: [u64; COUNT],
    knobs: [u64; knobs::COUNT],
    gauges: [u64; gauges::COUNT],
}

impl Counters {
    /// Reads a page's bytes, adding its blocks up.
    pub fn parse(bytes: &[u8]) -> Result<Self, PageError> {
        let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let truncated = || PageError::Truncated { bytes: bytes.len(), of: size_of::<Page>() };
        match long(offset_of!(Header, magic)).ok_or_else(truncated)? {
            MAGIC => {}
            0 => return Err(PageError::Unfinished),
            _ => return Err(PageError::Foreign),
        }
        let field = |at| word(at).ok_or_else(truncated);
        let version = field(offset_of!(Header, version))?;
        if version != VERSION {
            return Err(PageError::Version(version));
        }
        let layout = [
            (offset_of!(Header, bytes), size_of::<Page>()),
            (offset_of!(Header, counters), COUNT),
            (offset_of!(Header, blocks), BLOCKS),
            (offset_of!(Header, knobs), knobs::COUNT),
        ];
        for (at, expected) in layout {
            if field(at)? as usize != expected {
                return Err(PageError::Tables);
            }
        }
        if long(offset_of!(Header, tables)).ok_or_else(truncated)? != TABLES {
            return Err(PageError::Tables);
        }
        if bytes.len() < size_of::<Page>() {
            return Err(truncated());
        }
        let mut sum = Self { pid: field(offset_of!(Header, pid))?, ..Self::zero() };
        sum.start_ns = long(offset_of!(Header, start_ns)).ok_or_else(truncated)?;
        sum.plain = field(offset_of!(Header, plain))?;
        sum.name = name(bytes.get(offset_of!(Header, name)..).ok_or_else(truncated)?);
        for block in 0..BLOCKS {
            let start = offset_of!(Page, block) + block * size_of::<Block>();
            for (i, value) in sum.values.iter_mut().enumerate() {
                *value = value.wrapping_add(long(start + 8 * i).ok_or_else(truncated)?);
            }
        }
        let (regions, counted) = Regions::parse(bytes)?;
        sum.regions = regions;
        for (counter, counted) in OWN.iter().zip(counted) {
            let value = &mut sum.values[*counter as usize];
            *value = value.wrapping_add(counted);
        }
        for (knob, value) in Knob::ALL.iter().zip(&mut sum.knobs) {
            *value = long(knob_at(*knob)).ok_or_else(truncated)?;
        }
        for (i, value) in sum.gauges.iter_mut().enumerate() {
            let there = long(offset_of!(Page, gauges) + 8 * i).ok_or_else(truncated)?;
            // What went may be seen before it came.
            *value = (there as i64).max(0) as u64;
        }
        Ok(sum)
    }

    /// Nothing counted, of no process.
    pub fn zero() -> Self {
        let regions = Regions::default();
        Self {
            pid: 0,
            start_ns: 0,
            name: String::new(),
            regions,
            plain: 0,
            values: [0; COUNT],
            knobs: [0; knobs::COUNT],
            gauges: [0; gauges::COUNT],
        }
    }

    /// The sum over several processes.
    pub fn sum(of: &[Self]) -> Self {
        let mut all = Self::zero();
        of.iter().for_each(|page| all.add(page));
        all
    }

    /// Adds what another one has counted.
    pub fn add(&mut self, other: &Self) {
        for (sum, value) in self.values.iter_mut().zip(other.values) {
            *sum = sum.saturating_add(value);
        }
        for (sum, value) in self.gauges.iter_mut().zip(other.gauges) {
            *sum = sum.saturating_add(value);
        }
        self.plain = if self.plain == 0 { other.plain } else { self.plain };
    }

    /// What was counted since `before`, which is the same process's or a sum; totals as they are now.
    pub fn since(&self, before: &Self) -> Self {
        let mut more = self.clone();
        for (value, before) in more.values.iter_mut().zip(before.values) {
            *value = value.saturating_sub(before);
        }
        more.regions = self.regions.since(&before.regions);
        more
    }

    /// Made up, for tests.
    #[cfg(any(test, feature = "made"))]
    pub fn from_values(pid: u32, values: impl Iterator<Item = u64>) -> Self {
        let mut counters = Self { pid, ..Self::zero() };
        counters.values.iter_mut().zip(values).for_each(|(to, from)| *to = from);
        counters
    }

    /// One of them.
    pub fn get(&self, counter: Counter) -> u64 {
        self.values[counter as usize]
    }

    /// Whether anything was done for the process: a request served, or huge pages advised.
    pub fn is_served(&self) -> bool {
        [Counter::MmapServed, Counter::MallocServed, Counter::BytesAdvised].iter().any(|c| self.get(*c) > 0)
    }

    /// Why the program runs plain, if its library found something that rules the engine out.
    pub fn plain(&self) -> Option<&'static str> {
        match self.plain {
            0 => None,
            why => {
                Some(PLAIN.get(why as usize).copied().unwrap_or("for a reason that this command does not know"))
            }
        }
    }

    /// How many requests were left to the kernel or the C library, by reason.
    pub fn left(&self) -> Vec<(&'static str, u64)> {
        let reason = |(declared, n): (&Declared, &u64)| Some((declared.name.strip_prefix("kernel_")?, *n));
        COUNTERS.iter().zip(&self.values).filter_map(reason).filter(|(_, n)| *n > 0).collect()
    }

    /// How much memory of this kind there is now, in bytes.
    pub fn gauge(&self, gauge: Gauge) -> u64 {
        self.gauges[gauge as usize]
    }

    /// The same of a process that has ended.
    pub fn without_memory(self) -> Self {
        Self { gauges: [0; gauges::COUNT], ..self }
    }

    /// Made up, for tests.
    #[cfg(any(test, feature = "made"))]
    pub fn with_gauge(mut self, gauge: Gauge, bytes: u64) -> Self {
        self.gauges[gauge as usize] = bytes;
        self
    }

    /// What a knob is set to.
    pub fn knob(&self, knob: Knob) -> u64 {
        self.knobs[knob as usize]
    }

    /// All of them, in the order of [`faultless_page::stats::COUNTERS`].
    pub fn values(&self) -> &[u64; COUNT] {
        &self.values
    }
}

/// A program's name as a page has it, up to a zero; what would disturb a terminal is left out.
fn name(bytes: &[u8]) -> String {
    let name: Vec<u8> = bytes.iter().copied().take(16).take_while(|b| *b != 0).collect();
    shown(&String::from_utf8_lossy(&name))
}

/// A name as it may be shown: each letter has a place of its own, so that none disturbs the terminal or what stands beside
/// it. Control characters have none, nor those that turn the direction of a line or join the letter before them.
pub fn shown(name: &str) -> String {
    name.chars().map(|c| if c.width().is_none_or(|width| width == 0) { '?' } else { c }).collect()
}

/// Where a knob's value stands on a page.
fn knob_at(knob: Knob) -> usize {
    offset_of!(Page, knobs) + size_of::<u64>() * knob as usize
}

/// Why something is no page of counters.
#[derive(Debug)]
pub enum PageError {
    /// It cannot be read.
    Read(io::Error),
    /// It ends too early.
    Truncated {
        /// After this many bytes.
        bytes: usize,
        /// Of how many.
        of: usize,
    },
    /// Its header was never filled in: the process ended, or is, at its first large request.
    Unfinished,
    /// It is something else.
    Foreign,
    /// It is that of another user, or of another process.
    NotIts,
    /// It has another version's layout.
    Version(u32),
    /// It has other counters or knobs.
    Tables,
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let apart = "command and library do not belong together";
        match self {
            Self::Read(error) => write!(f, "cannot be read: {error}"),
            Self::Truncated { bytes, of } => write!(f, "ends after {bytes} of {of} bytes"),
            Self::Unfinished => write!(f, "has no header yet"),
            Self::Foreign => write!(f, "is not a counters page"),
            Self::NotIts => write!(f, "belongs to another user, or to another process"),
            Self::Version(version) => {
                write!(f, "has layout version {version}, this command reads {VERSION}: {apart}")
            }
            Self::Tables => write!(f, "has other counters or knobs than this command: {apart}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_page::layout::Whole;
    use faultless_page::listing::{Listing, Place};
    use faultless_testkit::foreign::{Guarded, cases, garbled};
    use proptest::prelude::*;

    /// A page of process 42 with 1, 2, 3… in every block, and knobs of 7.
    pub fn page() -> Vec<u8> {
        let mut bytes = vec![0u8; size_of::<Page>()];
        let mut put = |at: usize, n: &[u8]| bytes[at..at + n.len()].copy_from_slice(n);
        put(0, b"fltless1");
        let words = [VERSION, 42, size_of::<Page>() as u32, COUNT as u32, BLOCKS as u32, knobs::COUNT as u32];
        words.iter().enumerate().for_each(|(i, word)| put(8 + 4 * i, &word.to_ne_bytes()));
        put(32, &TABLES.to_ne_bytes());
        put(40, &99u64.to_ne_bytes());
        put(48, b"prog\x1b");
        put(64, &1u32.to_ne_bytes());
        (0..knobs::COUNT).for_each(|i| put(128 + 8 * i, &7u64.to_ne_bytes()));
        let first = std::mem::offset_of!(Page, block);
        let stride = (COUNT * 8).next_multiple_of(64);
        for (block, i) in (0..BLOCKS).flat_map(|block| (0..COUNT).map(move |i| (block, i))) {
            put(first + block * stride + 8 * i, &(i as u64 + 1).to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn letters_that_disturb_a_line_are_not_shown() {
        assert_eq!(shown("a\u{202e}b\u{2066}\u{200b}c\u{301}\u{7}\u{200d}\u{feff}"), "a?b??c????");
        assert_eq!(shown("caf\u{e9} \u{65e5}\u{672c}"), "caf\u{e9} \u{65e5}\u{672c}");
    }

    #[test]
    fn blocks_and_processes_are_added_up() {
        let one = Counters::parse(&page()).unwrap();
        assert_eq!((one.pid, one.start_ns, one.knob(Knob::Scrub)), (42, 99, 7));
        assert_eq!((one.name.as_str(), one.plain()), ("prog?", Some(PLAIN[1])));
        let expected = |i: usize| (i as u64 + 1) * BLOCKS as u64;
        assert!((0..COUNT).all(|i| one.values()[i] == expected(i)));
        assert_eq!(one.get(Counter::MmapBytes), expected(Counter::MmapBytes as usize));
        let two = Counters::sum(&[one.clone(), one]);
        assert!((0..COUNT).all(|i| two.values()[i] == 2 * expected(i)));
        assert_eq!(two.since(&Counters::sum(std::slice::from_ref(&two))).values(), &[0; COUNT]);
    }

    #[test]
    fn what_is_not_a_page_is_told() {
        let good = page();
        for len in [0, 7, 8, 15, 23, 39, 63, 64, 100, good.len() - 1] {
            let end = Counters::parse(&good[..len]);
            assert!(matches!(end, Err(PageError::Truncated { bytes, .. }) if bytes == len), "{len}");
        }
        let changed = |at: usize| {
            let mut bytes = good.clone();
            bytes[at] ^= 0x80;
            Counters::parse(&bytes).unwrap_err()
        };
        assert!(matches!(changed(0), PageError::Foreign));
        assert!(matches!(changed(8), PageError::Version(v) if v == VERSION ^ 0x80));
        for at in [16, 20, 24, 28, 32] {
            assert!(matches!(changed(at), PageError::Tables), "{at}");
        }
        assert!(matches!(Counters::parse(&vec![0; good.len()]), Err(PageError::Unfinished)));
    }

    /// A page with some regions behind it.
    fn with_regions() -> Vec<u8> {
        let list = regions::made::Made::default();
        for i in 0..5 {
            let region = list.take(faultless_base::Span::new(i << 30, 4 << 20), 2);
            region.line(i).add(Counter::RegionPages, 10);
            region.line(1).add(Counter::RegionWindowHits, 3);
            region.drop_pages(2);
        }
        let mut bytes = list.bytes();
        let page = page();
        bytes[..page.len()].copy_from_slice(&page);
        bytes
    }

    /// All that is made of a page when it is shown.
    fn use_all(page: &Counters) -> Result<(), TestCaseError> {
        prop_assert!(page.name.chars().count() <= 16 && !page.name.chars().any(char::is_control));
        prop_assert!(page.regions.each.len() <= faultless_page::listing::PLACES);
        prop_assert!(page.regions.each.is_sorted_by_key(|region| region.number));
        let more = Counters::sum(&[page.clone(), page.clone()]);
        let double = |n: &u64| n.saturating_mul(2);
        prop_assert!(more.values().iter().zip(page.values()).all(|(more, n)| *more == double(n)));
        prop_assert!(page.since(page).values().iter().all(|n| *n == 0));
        let _ = (page.left(), page.plain(), page.is_served(), page.regions.active(), more.since(page));
        Ok(())
    }

    proptest! {
        #![proptest_config(cases())]

        #[test]
        fn random_bytes_are_no_page(bytes in prop::collection::vec(any::<u8>(), 0..20_000)) {
            let is_zero = bytes.len() >= 8 && bytes[..8] == [0; 8];
            match Counters::parse(&bytes) {
                Err(PageError::Truncated { bytes: n, .. }) => prop_assert!(n == bytes.len() && n < 8),
                Err(PageError::Unfinished) => prop_assert!(is_zero),
                Err(PageError::Foreign) => prop_assert!(!is_zero),
                found => prop_assert!(false, "{:?}", found),
            }
        }

        /// A page of which words are changed, or the end is missing, is read, or refused with what is wrong.
        #[test]
        fn a_changed_page_is_read_or_refused(
            changes in prop::collection::vec(
                (prop_oneof![0usize..16, any::<usize>()], prop_oneof![0u64..10, any::<u64>(), Just(u64::MAX), Just(1 << 62)], any::<bool>()),
                0..12,
            ),
            cut in prop::option::of(any::<usize>()),
        ) {
            let mut bytes = with_regions();
            for (word, value, flips) in changes {
                let at = word % (bytes.len() / 8) * 8;
                let before = u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
                let value = if flips { before ^ 1 << (value % 64) } else { value };
                bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
            }
            bytes.truncate(cut.map_or(bytes.len(), |cut| cut % bytes.len()));
            let guarded = Guarded::new(&bytes);
            match Counters::parse(&guarded) {
                Ok(page) => {
                    prop_assert!(bytes.len() >= size_of::<Page>());
                    use_all(&page)?;
                    // Block by block, and with the lines of regions.
                    let long = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
                    let blocks = |i: usize| (0..BLOCKS).fold(0u64, |sum, block| {
                        sum.wrapping_add(long(offset_of!(Page, block) + block * size_of::<Block>() + 8 * i))
                    });
                    let own = |i: &usize| !OWN.iter().any(|counter| *counter as usize == *i);
                    prop_assert!((0..COUNT).filter(own).all(|i| page.values()[i] == blocks(i)));
                }
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }

        #[test]
        fn a_variable_is_that_of_a_name(environ in garbled(&["A=1\0FAULTLESS_STATS=/x\0B=2\0FAULTLESS_STATS=/y\0"])) {
            let name = "FAULTLESS_STATS";
            let expected = environ.split(|b| *b == 0).find(|entry| entry.starts_with(b"FAULTLESS_STATS="));
            prop_assert_eq!(value_in(&environ, name), expected.map(|entry| &entry[name.len() + 1..]));
        }
    }

    #[test]
    fn a_region_of_any_size_is_shown() {
        let mut bytes = with_regions();
        let at = offset_of!(Whole, listing) + offset_of!(Listing, places) + offset_of!(Place, dropped);
        bytes[at..at + 8].copy_from_slice(&(1u64 << 63 | 11).to_ne_bytes());
        let page = Counters::parse(&bytes).unwrap();
        assert_eq!(page.regions.each[0].present_bytes, Some(u64::MAX));
    }
}
