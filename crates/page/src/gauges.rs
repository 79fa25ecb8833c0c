//! Totals of memory as it is now, declared once, here, with their meaning and the name that Linux has in `/proc/meminfo`.
//!
//! They lie on the process's shared page, in bytes. What comes is added and what goes is taken away, so a reader may see
//! one older than another. They count even where counters are left out: background write-back reads them.

use core::sync::atomic::{AtomicU64, Ordering};

macro_rules! gauges {
    ($($(#[doc = $doc:literal])+ $variant:ident, $name:literal;)+) => {
        /// What there is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Gauge { $($(#[doc = $doc])+ $variant,)+ }

        impl Gauge {
            /// All of them, in their order.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];
        }

        /// Every gauge: its name and its meaning, in the order of [`Gauge`].
        pub const GAUGES: &[Declared] = &[$(Declared { name: $name, meaning: concat!($($doc),+) },)+];
    };
}

/// How a gauge shows itself.
#[derive(Clone, Copy, Debug)]
pub struct Declared {
    /// Its name, as `/proc/meminfo` has it.
    pub name: &'static str,
    /// What it is.
    pub meaning: &'static str,
}

gauges! {
    /// Pages of files in memory.
    Cached, "Cached";
    /// Memory of the huge pages of files.
    FileHugePages, "FileHugePages";
    /// Huge pages of files that lie in mappings: each 2 MiB by one entry.
    FilePmdMapped, "FilePmdMapped";
    /// Pages of files with bytes that the file does not have, as far as that was looked for.
    Dirty, "Dirty";
    /// Pages of files that are being written, or not yet known to be durable.
    Writeback, "Writeback";
    /// Memory of files that stays because mappings hold it.
    Unevictable, "Unevictable";
}

/// How many there are.
pub const COUNT: usize = GAUGES.len();

/// All of them, on cache lines of their own.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Gauges {
    values: [AtomicU64; COUNT],
}

impl Gauges {
    /// Nothing is there.
    pub const fn new() -> Self {
        Self { values: [const { AtomicU64::new(0) }; COUNT] }
    }

    /// That many bytes came.
    #[inline]
    pub fn add(&self, gauge: Gauge, bytes: u64) {
        self.values[gauge as usize].fetch_add(bytes, Ordering::Relaxed);
    }

    /// That many bytes went.
    #[inline]
    pub fn sub(&self, gauge: Gauge, bytes: u64) {
        self.values[gauge as usize].fetch_sub(bytes, Ordering::Relaxed);
    }

    /// There were `before` bytes, and are `after`.
    #[inline]
    pub fn change(&self, gauge: Gauge, before: u64, after: u64) {
        if before != after {
            self.add(gauge, after.wrapping_sub(before));
        }
    }

    /// How many bytes there are. What went may have been seen before it came.
    #[inline]
    pub fn get(&self, gauge: Gauge) -> u64 {
        (self.values[gauge as usize].load(Ordering::Relaxed) as i64).max(0) as u64
    }

    /// Nothing is there any more: another program has the process.
    pub fn clear(&self) {
        self.values.iter().for_each(|value| value.store(0, Ordering::Relaxed));
    }
}

impl Default for Gauges {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_and_went_is_not_there() {
        let gauges = Gauges::new();
        gauges.add(Gauge::Dirty, 8192);
        gauges.change(Gauge::Dirty, 8192, 4096);
        gauges.change(Gauge::Writeback, 4096, 0);
        assert_eq!((gauges.get(Gauge::Dirty), gauges.get(Gauge::Writeback)), (4096, 0));
        gauges.sub(Gauge::Dirty, 4096);
        gauges.add(Gauge::Writeback, 4096);
        assert!(Gauge::ALL.iter().all(|gauge| gauges.get(*gauge) == 0));
    }
}
