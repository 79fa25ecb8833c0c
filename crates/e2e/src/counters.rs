//! What the library did in the processes of a run.

use std::mem::offset_of;
use std::path::Path;

use faultless_page::layout::{Header, MAGIC, Page, VERSION};
use faultless_page::stats::{BLOCKS, Block, COUNTERS, Counter};
use serde_json::Value;

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

    /// Reads what `faultless run --json` wrote. There is nothing where it was killed before that.
    pub fn of_run(file: &Path) -> Self {
        let Ok(text) = std::fs::read(file) else { return Self::default() };
        let run: Value = serde_json::from_slice(&text).expect("JSON");
        let number = |value: &Value| value.as_u64().expect("a number");
        let programs = run["programs"].as_array().expect("programs").iter();
        let processes = programs
            .filter(|program| program["plain"].is_null())
            .map(|program| number(&program["served_processes"]) + number(&program["plain_processes"]))
            .sum::<u64>();
        let sums = COUNTERS.iter().map(|counter| number(&run["totals"][counter.name])).collect();
        Self { processes: processes as usize, sums }
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
