//! Knobs: declared once, here, with name, variable, range, default and meaning.
//!
//! A knob has its value from the environment when a process starts using the engine. The process's shared page holds
//! the values ([`Values`]). The engine reads a [`When::Live`] knob there each time it uses it, so that it can be
//! changed from outside. A value from there is brought into its range first.

pub mod skip;
mod text;

use core::sync::atomic::{AtomicU64, Ordering};

use faultless_base::{SLOT, SLOT_PAGES, UNIT};

pub use text::{Bad, Size};

/// What a knob can be set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number of bytes, also with K, M or G, from the first to the second.
    Bytes(u64, u64),
    /// A number, from the first to the second.
    Number(u64, u64),
    /// 0 or 1; also off and on, no and yes, false and true.
    Switch,
    /// One of these words; its value is the place in the list.
    Choice(&'static [&'static str]),
    /// Any text. It has no value on the page.
    Text,
}

/// When a knob counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At every use: it can be changed while the program runs.
    Live,
    /// At the start of the process.
    Start,
    /// In the command that starts the program.
    Run,
}

/// How a knob shows itself.
#[derive(Clone, Copy, Debug)]
pub struct Declared {
    /// Its name.
    pub name: &'static str,
    /// The variable of the environment that sets it at the start of a process.
    pub variable: &'static str,
    /// What it can be set to.
    pub kind: Kind,
    /// Its value if it is not set, or how that is found.
    pub default: &'static str,
    /// When it counts.
    pub when: When,
    /// What it does.
    pub meaning: &'static str,
}

macro_rules! knobs {
    ($($(#[doc = $doc:literal])+ $variant:ident, $name:literal, $variable:literal, $kind:expr, $default:literal, $when:ident;)+) => {
        /// What can be set.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Knob { $($(#[doc = $doc])+ $variant,)+ }

        /// Every knob, in the order of [`Knob`].
        pub const KNOBS: &[Declared] = &[
            $(Declared {
                name: $name,
                variable: $variable,
                kind: $kind,
                default: $default,
                when: When::$when,
                meaning: concat!($($doc),+),
            },)+
        ];

        impl Declared {
    /// The least and the largest value.
    pub fn range(&self) -> (u64, u64) {
        match self.kind {
            Kind::Bytes(least, most) | Kind::Number(least, most) => (least, most),
            Kind::Switch => (0, 1),
            Kind::Choice(words) => (0, words.len() as u64 - 1),
            Kind::Text => (0, 0),
        }
    }
}

impl Knob {
            /// Every knob, in order.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];
        }
    };
}

/// More than any machine has.
const MOST: u64 = 1 << 46;

/// Orders of blocks of memory, as the kernel counts them: 2^order pages. The least is a slot's, the most an arena's.
const LEAST_ORDER: u64 = SLOT_PAGES.ilog2() as u64;
/// The largest order that a block can have, in pages.
pub const MOST_ORDER: u64 = LEAST_ORDER + ORDERS - 1;
/// Orders that blocks of slots have.
pub const ORDERS: u64 = 19;
/// The load average that stops nothing.
const ANY_LOAD: u64 = 999;

/// The same in slots.
pub const fn slot_order(order: u64) -> usize {
    (order - LEAST_ORDER) as usize
}

knobs! {
    /// Free memory kept beyond the program's own peak. Below 2M at its start a program runs plain; while it runs,
    /// nothing more is kept below 2M.
    Budget, "budget", "FAULTLESS_BUDGET", Kind::Bytes(0, MOST), "the larger of 64M and 5 % of memory", Live;
    /// Smallest block of malloc that is served.
    MallocThreshold, "malloc_threshold", "FAULTLESS_MALLOC_THRESHOLD", Kind::Bytes(UNIT as u64, MOST), "256K", Live;
    /// Smallest mapping that is served.
    MmapThreshold, "mmap_threshold", "FAULTLESS_MMAP_THRESHOLD", Kind::Bytes(SLOT as u64, MOST), "2M", Live;
    /// Zeroes free memory in the background.
    Scrub, "scrub", "FAULTLESS_SCRUB", Kind::Switch, "1", Live;
    /// Order of the smallest free block that wakes the scrubber, in pages: 9 is a huge page. 28 is larger than any block,
    /// so nothing is zeroed in the background.
    ScrubStart, "scrub_start", "FAULTLESS_SCRUB_START", Kind::Number(LEAST_ORDER, MOST_ORDER + 1), "9", Live;
    /// Order of the smallest free blocks that the scrubber zeroes once it is awake.
    ScrubStop, "scrub_stop", "FAULTLESS_SCRUB_STOP", Kind::Number(LEAST_ORDER, MOST_ORDER), "9", Live;
    /// Load average of the last minute from which on the scrubber does not begin. 0: it never does. 999: it always does.
    ScrubLoad, "scrub_load", "FAULTLESS_SCRUB_LOAD", Kind::Number(0, ANY_LOAD), "999", Live;
    /// Touches memory in the background before the program gets there, and advises huge pages for mappings that stay
    /// with the kernel.
    Ahead, "ahead", "FAULTLESS_AHEAD", Kind::Switch, "1", Live;
    /// Bytes of a large file that are asked for ahead of a program that reads it by mmap; they come into the kernel's page
    /// cache. 0: none.
    FileAhead, "file_ahead", "FAULTLESS_FILE_AHEAD", Kind::Bytes(0, MOST), "0", Live;
    /// Zeroes huge pages in the background for a program that asks for much, and moves them to where it is about to need
    /// them.
    Mapped, "mapped", "FAULTLESS_MAPPED", Kind::Switch, "0", Live;
    /// Resolves faults of mapped regions without waiting for those who change the region.
    SpeculativePageFault, "speculative_page_fault", "FAULTLESS_SPECULATIVE_PAGE_FAULT", Kind::Switch, "1", Live;
    /// Largest window that a fault of a mapped region brings, as an order of pages. A region has a limit of its own, by what
    /// a fault costs: 14 (64 MiB) with threads, 13 by signals. The smaller of the two counts.
    PrefaultMaxOrder, "prefault_max_order", "FAULTLESS_PREFAULT_MAX_ORDER", Kind::Number(0, 14), "14", Live;
    /// Whose faults follow each other: those of a thread in one area, or those of a thread wherever they are. With `one`
    /// a thread has one sequence alone, upwards, as in the prefaulting patches of 2004; otherwise 16, of any step.
    PrefaultBy, "prefault_by", "FAULTLESS_PREFAULT_BY", Kind::Choice(&["area", "thread", "one"]), "area", Live;
    /// Huge pages for files: always; where the file was opened for them and has 1 MiB or more; never. It counts for pages that come
    /// from then on.
    ThpPagecache, "thp_pagecache", "FAULTLESS_THP_PAGECACHE", Kind::Choice(&["always", "advise", "never"]), "advise", Live;
    /// Share of the budget, in percent, that dirty pages of files may take before the background writes them back. 0: it does
    /// not look at how many there are.
    DirtyBackground, "dirty_background", "FAULTLESS_DIRTY_BACKGROUND", Kind::Number(0, 100), "25", Live;
    /// Time in ms after which the background writes dirty pages of files back, however few there are. 0: it does not.
    DirtyExpire, "dirty_expire", "FAULTLESS_DIRTY_EXPIRE", Kind::Number(0, 3_600_000), "30000", Live;
    /// Share of a region's budget, in percent, that is to be free at most. Below what is to be free the background lets pages go to the region's store.
    SwapLow, "swap_low", "FAULTLESS_SWAP_LOW", Kind::Number(0, 50), "2", Live;
    /// Share of the budget, in percent, that is free when the background stops. Below `swap_low` it counts as that.
    SwapHigh, "swap_high", "FAULTLESS_SWAP_HIGH", Kind::Number(0, 50), "4", Live;
    /// Verifies that memory handed out as zero is zero, and fills the other with a pattern.
    Check, "check", "FAULTLESS_CHECK", Kind::Switch, "0", Start;
    /// Does nothing at all.
    Disable, "disable", "FAULTLESS_DISABLE", Kind::Switch, "0", Start;
    /// Runs the programs that the program starts plain.
    NoChildren, "no_children", "FAULTLESS_NO_CHILDREN", Kind::Switch, "0", Start;
    /// Names of programs to leave alone, separated by commas. The name of the file that is started counts, also of a script
    /// or a link. So does that of the file that runs, such as an interpreter. So do the first argument that is no option, and
    /// the name that `exec -a` gives.
    Skip, "skip", "FAULTLESS_SKIP", Kind::Text, "", Start;
    /// Runs programs without the library that made few large requests when they ran last, or none, and notes what programs do.
    Profile, "profile", "FAULTLESS_PROFILE", Kind::Switch, "1", Run;
    /// Says nothing at the end of a program.
    Quiet, "quiet", "FAULTLESS_QUIET", Kind::Switch, "0", Run;
}

/// How many knobs there are.
pub const COUNT: usize = KNOBS.len();

impl Knob {
    /// How it shows itself.
    pub const fn declared(self) -> &'static Declared {
        &KNOBS[self as usize]
    }

    /// Its value if it is not set, unless that depends on the machine.
    pub fn default(self) -> Option<u64> {
        self.declared().read(self.declared().default.as_bytes()).ok()
    }
}

/// Owners of memory that a process may have, which share its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Sharer {
    /// The library that `faultless run` preloads.
    Run = 1,
    /// The library of regions and arenas.
    Library = 2,
}

/// The value of each knob, on cache lines of their own.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Values {
    value: [AtomicU64; COUNT],
    /// A bit of each [`Sharer`] that there is.
    sharers: AtomicU64,
}

impl Values {
    /// A set of zeroes.
    pub const fn new() -> Self {
        Self { value: [const { AtomicU64::new(0) }; COUNT], sharers: AtomicU64::new(0) }
    }

    /// What stands there.
    #[inline]
    pub fn raw(&self, knob: Knob) -> &AtomicU64 {
        &self.value[knob as usize]
    }

    /// A knob's value, in its range whatever stands there.
    #[inline]
    pub fn get(&self, knob: Knob) -> u64 {
        let (least, most) = knob.declared().range();
        self.raw(knob).load(Ordering::Relaxed).clamp(least, most)
    }

    /// Whether a switch is on.
    #[inline]
    pub fn is_on(&self, knob: Knob) -> bool {
        self.get(knob) != 0
    }

    /// Sets a knob.
    pub fn set(&self, knob: Knob, value: u64) {
        self.raw(knob).store(value, Ordering::Relaxed);
    }

    /// From now on this owner has its part of the budget.
    pub fn share_budget(&self, sharer: Sharer) {
        self.sharers.fetch_or(sharer as u64, Ordering::Relaxed);
    }

    /// What each owner may keep of the budget, in bytes: equal parts.
    #[inline]
    pub fn budget_share(&self) -> u64 {
        self.get(Knob::Budget) / u64::from(self.sharers.load(Ordering::Relaxed).count_ones().max(1))
    }

    /// Sets all to what they are in `other`; who shares the budget there shares it here.
    pub fn copy(&self, other: &Self) {
        self.sharers.fetch_or(other.sharers.load(Ordering::Relaxed), Ordering::Relaxed);
        for (to, from) in self.value.iter().zip(&other.value) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

impl Default for Values {
    /// The defaults; a budget of 64 MiB.
    fn default() -> Self {
        let values = Self::new();
        for knob in Knob::ALL {
            values.set(*knob, knob.default().unwrap_or(64 << 20));
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_there_is_brought_into_range() {
        let values = Values::default();
        for (knob, declared) in Knob::ALL.iter().zip(KNOBS) {
            values.set(*knob, u64::MAX);
            assert_eq!(values.get(*knob), declared.range().1, "{}", declared.name);
            values.set(*knob, 0);
            assert_eq!(values.get(*knob), declared.range().0, "{}", declared.name);
        }
    }

    #[test]
    fn owners_share_the_budget() {
        let values = Values::default();
        let budget = values.get(Knob::Budget);
        let shares = [Sharer::Run, Sharer::Run, Sharer::Library, Sharer::Library].map(|sharer| {
            values.share_budget(sharer);
            values.budget_share()
        });
        assert_eq!(shares, [budget, budget, budget / 2, budget / 2]);
    }

    #[test]
    fn names_are_distinct_and_defaults_are_values() {
        for (i, a) in KNOBS.iter().enumerate() {
            assert!(a.meaning.ends_with('.') && a.variable.starts_with("FAULTLESS_"), "{}", a.name);
            assert!(KNOBS[..i].iter().all(|b| a.name != b.name && a.variable != b.variable), "{}", a.name);
            assert!(a.name == "budget" || a.parse(a.default.as_bytes()).is_ok(), "{}", a.name);
        }
    }
}
