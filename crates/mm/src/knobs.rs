//! Knobs: declared once, here, with name, variable, range, default and meaning.
//!
//! A knob has its value from the environment when a process starts using the engine. [`Values`] lie on the process's
//! shared page; the engine reads a [`When::Live`] knob there each time it uses it, so that it can be changed from
//! outside, and whatever stands there is brought into its range first.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use faultless_base::{SLOT, SLOT_PAGES, UNIT};

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
    /// What it is if nobody sets it: a value, or how the value is found.
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
    /// What munmap does to memory that is kept. strict: an access faults, as without faultless. relaxed: it may not,
    /// and munmap is cheaper. A change counts for later calls.
    Unmap, "unmap", "FAULTLESS_UNMAP", Kind::Choice(&["strict", "relaxed"]), "strict", Live;
    /// Smallest block of malloc that is served.
    MallocThreshold, "malloc_threshold", "FAULTLESS_MALLOC_THRESHOLD", Kind::Bytes(UNIT as u64, MOST), "256K", Live;
    /// Smallest mapping that is served.
    MmapThreshold, "mmap_threshold", "FAULTLESS_MMAP_THRESHOLD", Kind::Bytes(SLOT as u64, MOST), "2M", Live;
    /// Zeroes free memory in the background.
    Scrub, "scrub", "FAULTLESS_SCRUB", Kind::Switch, "1", Live;
    /// Order of a free block, in pages, from which on it wakes the scrubber, 9 being a huge page. 28 is larger than any
    /// block: nothing is zeroed in the background.
    ScrubStart, "scrub_start", "FAULTLESS_SCRUB_START", Kind::Number(LEAST_ORDER, MOST_ORDER + 1), "9", Live;
    /// Order of the smallest free blocks that the scrubber zeroes once it is awake.
    ScrubStop, "scrub_stop", "FAULTLESS_SCRUB_STOP", Kind::Number(LEAST_ORDER, MOST_ORDER), "9", Live;
    /// Load average of the last minute from which on the scrubber does not begin. 0: it never does. 999: it always does.
    ScrubLoad, "scrub_load", "FAULTLESS_SCRUB_LOAD", Kind::Number(0, ANY_LOAD), "999", Live;
    /// Touches memory in the background before the program gets there, and advises huge pages for mappings that stay
    /// with the kernel.
    Ahead, "ahead", "FAULTLESS_AHEAD", Kind::Switch, "1", Live;
    /// Zeroes huge pages in the background for a program that asks for much, and moves them to where it is about to need
    /// them.
    Mapped, "mapped", "FAULTLESS_MAPPED", Kind::Switch, "0", Live;
    /// Resolves faults of mapped regions without waiting for those who change the region.
    SpeculativePageFault, "speculative_page_fault", "FAULTLESS_SPECULATIVE_PAGE_FAULT", Kind::Switch, "1", Live;
    /// Largest window that a fault of a mapped region brings, as an order of pages; no more than the region was made for, which
    /// goes by what a fault costs: 14 (64 MiB) with threads, 13 by signals.
    PrefaultMaxOrder, "prefault_max_order", "FAULTLESS_PREFAULT_MAX_ORDER", Kind::Number(0, 14), "14", Live;
    /// Whose faults follow each other: those of a thread in one area, or those of a thread wherever they are.
    PrefaultBy, "prefault_by", "FAULTLESS_PREFAULT_BY", Kind::Choice(&["area", "thread"]), "area", Live;
    /// Verifies that memory handed out as zero is zero, and fills the other with a pattern.
    Check, "check", "FAULTLESS_CHECK", Kind::Switch, "0", Start;
    /// Does nothing at all.
    Disable, "disable", "FAULTLESS_DISABLE", Kind::Switch, "0", Start;
    /// Runs the programs that the program starts plain.
    NoChildren, "no_children", "FAULTLESS_NO_CHILDREN", Kind::Switch, "0", Start;
    /// Names of programs to leave alone, separated by commas.
    Skip, "skip", "FAULTLESS_SKIP", Kind::Text, "", Start;
    /// Says nothing at the end of a program.
    Quiet, "quiet", "FAULTLESS_QUIET", Kind::Switch, "0", Run;
}

/// How many knobs there are.
pub const COUNT: usize = KNOBS.len();

/// Why a text is no value of a knob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// It is no number of bytes.
    NotSize,
    /// It is no number.
    NotNumber,
    /// It is less than the knob takes, which is this number.
    Below(u64),
    /// It is more than the knob takes, which is this number.
    Above(u64),
    /// It is less than the knob takes, which is this.
    Less(u64),
    /// It is more than the knob takes, which is this.
    More(u64),
    /// It is neither on nor off.
    NotSwitch,
    /// It is none of these words.
    NotOneOf(&'static [&'static str]),
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSize => f.write_str("not a size: a whole number, alone or with K, M or G"),
            Self::NotNumber => f.write_str("not a whole number"),
            Self::Below(least) => write!(f, "less than {least}"),
            Self::Above(most) => write!(f, "more than {most}"),
            Self::Less(least) => write!(f, "less than {}", Size(*least)),
            Self::More(most) => write!(f, "more than {}", Size(*most)),
            Self::NotSwitch => f.write_str("neither 0 nor 1"),
            Self::NotOneOf(words) => {
                f.write_str("not one of")?;
                words.iter().try_for_each(|word| write!(f, " {word}"))
            }
        }
    }
}

/// A number of bytes as it is written in a setting.
#[derive(Clone, Copy, Debug)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(30, "G"), (20, "M"), (10, "K")];
        let fits = |shift: u32| self.0 != 0 && self.0 % (1 << shift) == 0;
        match units.into_iter().find(|(shift, _)| fits(*shift)) {
            Some((shift, unit)) => write!(f, "{}{unit}", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

/// A number of bytes, alone or with K, M or G; what 64 bits cannot hold is their largest number.
fn size(text: &[u8]) -> Result<u64, Bad> {
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let shift = match &text[digits..] {
        b"" => 0,
        b"K" | b"k" => 10,
        b"M" | b"m" => 20,
        b"G" | b"g" => 30,
        _ => return Err(Bad::NotSize),
    };
    let number = number(&text[..digits]).ok_or(Bad::NotSize)?;
    Ok(number.saturating_mul(1 << shift))
}

/// A number in decimal digits; what 64 bits cannot hold is their largest number.
fn number(text: &[u8]) -> Option<u64> {
    let add = |n: u64, digit: &u8| n.saturating_mul(10).saturating_add((digit - b'0') as u64);
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    is_number.then(|| text.iter().fold(0, add))
}

impl Declared {
    /// The value that a text stands for, whatever the range; 0 for a [`Kind::Text`].
    fn read(&self, text: &[u8]) -> Result<u64, Bad> {
        let is = |words: &[&str]| words.iter().any(|word| text.eq_ignore_ascii_case(word.as_bytes()));
        match self.kind {
            Kind::Bytes(..) => size(text),
            Kind::Number(..) => number(text).ok_or(Bad::NotNumber),
            Kind::Switch if is(&["0", "off", "no", "false"]) => Ok(0),
            Kind::Switch if is(&["1", "on", "yes", "true"]) => Ok(1),
            Kind::Switch => Err(Bad::NotSwitch),
            Kind::Choice(words) => {
                let place = words.iter().position(|word| text == word.as_bytes());
                place.map(|place| place as u64).ok_or(Bad::NotOneOf(words))
            }
            Kind::Text => Ok(0),
        }
    }

    /// The least and the largest value.
    pub fn range(&self) -> (u64, u64) {
        match self.kind {
            Kind::Bytes(least, most) | Kind::Number(least, most) => (least, most),
            Kind::Switch => (0, 1),
            Kind::Choice(words) => (0, words.len() as u64 - 1),
            Kind::Text => (0, 0),
        }
    }

    /// The value that a text stands for.
    pub fn parse(&self, text: &[u8]) -> Result<u64, Bad> {
        let (value, (least, most)) = (self.read(text)?, self.range());
        match self.kind {
            Kind::Number(..) if value < least => Err(Bad::Below(least)),
            Kind::Number(..) if value > most => Err(Bad::Above(most)),
            _ if value < least => Err(Bad::Less(least)),
            _ if value > most => Err(Bad::More(most)),
            _ => Ok(value),
        }
    }

    /// The nearest value to what a text stands for, for a process that has nobody to complain to. A switch is on when
    /// it is not off; another text that stands for nothing counts as none.
    pub fn nearest(&self, text: &[u8]) -> Option<u64> {
        let (least, most) = self.range();
        match self.read(text) {
            Ok(value) => Some(value.clamp(least, most)),
            Err(Bad::NotSwitch) => Some(1),
            Err(_) => None,
        }
    }

    /// A value as it is written in a setting.
    pub fn show(&self, value: u64) -> impl fmt::Display + use<> {
        Shown(self.kind, value)
    }
}

struct Shown(Kind, u64);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Kind::Bytes(..) => Size(self.1).fmt(f),
            Kind::Choice(words) => f.write_str(words.get(self.1 as usize).unwrap_or(&"?")),
            Kind::Switch | Kind::Number(..) => self.1.fmt(f),
            Kind::Text => Ok(()),
        }
    }
}

impl Knob {
    /// How it shows itself.
    pub const fn declared(self) -> &'static Declared {
        &KNOBS[self as usize]
    }

    /// Its value if nobody sets it, unless that depends on the machine.
    pub fn default(self) -> Option<u64> {
        self.declared().read(self.declared().default.as_bytes()).ok()
    }
}

/// The value of each knob, on cache lines of their own.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Values {
    value: [AtomicU64; COUNT],
}

impl Values {
    /// A set of zeroes.
    pub const fn new() -> Self {
        Self { value: [const { AtomicU64::new(0) }; COUNT] }
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

    /// Sets all to what they are in `other`.
    pub fn copy(&self, other: &Self) {
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
    use std::string::ToString;

    #[test]
    fn sizes_are_read_and_refused() {
        let budget = Knob::Budget.declared();
        let good = [("0", 0), ("123", 123), ("1K", 1 << 10), ("3k", 3 << 10), ("64M", 64 << 20), ("2G", 2 << 30)];
        for (text, bytes) in good {
            assert_eq!(budget.parse(text.as_bytes()), Ok(bytes), "{text}");
        }
        for text in ["", "K", "-1", "+1", "1.5G", "1T", "1KB", "1 K", " 1", "0x10", "1é", "M1"] {
            assert_eq!(budget.parse(text.as_bytes()), Err(Bad::NotSize), "{text}");
            assert_eq!(budget.nearest(text.as_bytes()), None, "{text}");
        }
        for text in ["99999999999999999999", "18014398509481984K", "64G64"] {
            assert!(budget.parse(text.as_bytes()).is_err(), "{text}");
        }
        let threshold = Knob::MallocThreshold.declared();
        assert_eq!(threshold.parse(b"63K"), Err(Bad::Less(64 << 10)));
        assert_eq!(Bad::Less(64 << 10).to_string(), "less than 64K");
        assert_eq!(threshold.nearest(b"63K"), Some(64 << 10));
        assert_eq!(threshold.nearest(b"99999999999999999999"), Some(MOST));
    }

    #[test]
    fn numbers_are_read_and_refused() {
        let (start, load) = (Knob::ScrubStart.declared(), Knob::ScrubLoad.declared());
        assert_eq!((start.parse(b"9"), start.parse(b"28"), load.parse(b"0")), (Ok(9), Ok(28), Ok(0)));
        assert_eq!((start.parse(b"8"), start.parse(b"29")), (Err(Bad::Below(9)), Err(Bad::Above(28))));
        assert_eq!((load.parse(b"1.5"), load.parse(b"")), (Err(Bad::NotNumber), Err(Bad::NotNumber)));
        assert_eq!((start.nearest(b"1"), load.nearest(b"5000"), load.nearest(b"x")), (Some(9), Some(999), None));
        assert_eq!(
            (load.show(999).to_string(), Bad::Above(28).to_string()),
            ("999".into(), "more than 28".into())
        );
        assert_eq!((slot_order(9), slot_order(MOST_ORDER)), (0, ORDERS as usize - 1));
    }

    #[test]
    fn switches_and_words_are_read_and_shown() {
        let (scrub, unmap) = (Knob::Scrub.declared(), Knob::Unmap.declared());
        let values = [("0", 0), ("off", 0), ("No", 0), ("1", 1), ("on", 1), ("TRUE", 1)];
        assert!(values.iter().all(|(text, value)| scrub.parse(text.as_bytes()) == Ok(*value)));
        assert_eq!((scrub.parse(b"2"), scrub.nearest(b"2")), (Err(Bad::NotSwitch), Some(1)));
        assert_eq!((unmap.parse(b"relaxed"), unmap.nearest(b"lax")), (Ok(1), None));
        assert_eq!(unmap.show(1).to_string(), "relaxed");
        assert_eq!(unmap.parse(b"lax").unwrap_err().to_string(), "not one of strict relaxed");
        let shown = [(0, "0"), (1000, "1000"), (3 << 10, "3K"), (256 << 20, "256M"), (2 << 40, "2048G")];
        assert!(shown.iter().all(|(bytes, text)| Size(*bytes).to_string() == *text));
    }

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
    fn names_are_distinct_and_defaults_are_values() {
        for (i, a) in KNOBS.iter().enumerate() {
            assert!(a.meaning.ends_with('.') && a.variable.starts_with("FAULTLESS_"), "{}", a.name);
            assert!(KNOBS[..i].iter().all(|b| a.name != b.name && a.variable != b.variable), "{}", a.name);
            assert!(a.name == "budget" || a.parse(a.default.as_bytes()).is_ok(), "{}", a.name);
        }
    }
}
