//! What the library did in the processes of a run.

use std::mem::offset_of;
use std::path::Path;

use faultless_page::layout::{Header, MAGIC, Page, VERSION};
use faultless_page::stats::{BLOCKS, Block, COUNTERS, Counter};

/// The counters of all processes that used the engine, added up.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Processes that used the engine.
    pub processes: usize,
    sums: Vec<u64>,
}

impl Counters {
    /// Reads every page in `dir`.
    pub fn read(dir: &Path) -> Self {
        let mut all = Self { processes: 0, sums: vec![0; COUNTERS.len()] };
        for entry in std::fs::read_dir(dir).expect("the directory of counters").flatten() {
            all.add(&std::fs::read(entry.path()).expect("a counters page"));
        }
        all
    }

    fn add(&mut self, page: &[u8]) {
        let number = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().expect("8 bytes"));
        // Behind it may be a list of regions.
        assert!(page.len() >= size_of::<Page>());
        // A process that was killed while it made its page leaves zeroes.
        if number(0) == 0 {
            return;
        }
        assert_eq!(number(0), MAGIC);
        assert_eq!(number(8) as u32, VERSION);
        // One that runs plain leaves only why.
        self.processes += (number(offset_of!(Header, plain)) as u32 == 0) as usize;
        let header = offset_of!(Page, block);
        for block in 0..BLOCKS {
            for (counter, sum) in self.sums.iter_mut().enumerate() {
                *sum += number(header + block * size_of::<Block>() + 8 * counter);
            }
        }
    }

    /// One counter.
    pub fn get(&self, counter: Counter) -> u64 {
        self.sums.get(counter as usize).copied().unwrap_or(0)
    }

    /// Requests of the program that the engine served.
    pub fn served(&self) -> u64 {
        self.get(Counter::MmapServed) + self.get(Counter::MallocServed)
    }
}
