//! The programs of `faultless bench hugecache`: files in memory, by the kernel's page cache and by the library's, and a
//! file that is larger than the memory allowed.

mod beyond;
mod disk;
mod inside;
mod kinds;
mod target;
mod umap;
mod zipf;

use std::io;

pub use beyond::{Beyond, Met, make_file};
pub(super) use disk::resident;
pub use inside::{Inside, Set, Timed};
pub use kinds::{Route, Work};
pub use target::Way;
pub(super) use zipf::draws;

/// Bytes that are read and written at a time.
pub const RECORD: usize = 4096;

type Record = [u8; RECORD];

/// Runs the program in memory.
pub fn run_inside(what: &Inside) -> io::Result<Vec<Timed>> {
    inside::run(what)
}

/// Runs the one beyond memory.
pub fn run_beyond(what: &Beyond) -> io::Result<Met> {
    beyond::run(what)
}

/// The first word of a record: which it is, and which pass wrote it.
fn word(record: usize, pass: u64) -> u64 {
    (record as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(pass)
}

/// A record of which the first word says that.
fn record(number: usize, pass: u64) -> Record {
    let mut record = [7; RECORD];
    record[..8].copy_from_slice(&word(number, pass).to_le_bytes());
    record
}

/// The first word of a record's bytes.
fn first_word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[..8]);
    u64::from_le_bytes(word)
}

/// An error if a record was read wrong.
fn check(number: usize, pass: u64, found: u64) -> io::Result<()> {
    match found == word(number, pass) {
        true => Ok(()),
        false => Err(io::Error::other(format!("record {number} has not what was written to it"))),
    }
}

/// Numbers in an order that repeats.
fn shuffled(numbers: std::ops::Range<usize>, seed: u64) -> Vec<u32> {
    let mut order: Vec<u32> = numbers.map(|number| number as u32).collect();
    let mut state = 88_172_645_463_325_252u64 ^ seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for i in (1..order.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        order.swap(i, (state % (i as u64 + 1)) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_each_number_once_and_is_the_same_again() {
        let order = shuffled(5..1000, 3);
        assert_eq!(order, shuffled(5..1000, 3));
        assert_ne!(order, shuffled(5..1000, 4));
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(5..1000) && order.first() != Some(&5));
    }

    #[test]
    fn a_record_says_which_it_is() {
        assert!(check(3, 1, first_word(&record(3, 1))).is_ok());
        assert!(check(3, 2, first_word(&record(3, 1))).is_err());
        assert!(check(4, 1, first_word(&record(3, 1))).is_err());
        assert!(check(0, 0, 0).is_err(), "zeroes are no record");
    }
}
