//! A page of counters that the library of another version has made in this process: it counts otherwise, and is left
//! alone.

mod apart;

use std::fs;
use std::mem::offset_of;

use apart::passes_apart;
use faultless::region::{Delivery, Error, Region};
use faultless_page::layout::{Header, MAGIC, Page, TABLES, VERSION};
use faultless_page::stats::Counter;

/// The head of a page, with a word of it as it should not be.
fn page(at: usize, by: u8) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<Page>()];
    let mut put = |at: usize, word: &[u8]| bytes[at..at + word.len()].copy_from_slice(word);
    put(offset_of!(Header, magic), &MAGIC.to_ne_bytes());
    put(offset_of!(Header, version), &VERSION.to_ne_bytes());
    put(offset_of!(Header, bytes), &(size_of::<Page>() as u32).to_ne_bytes());
    put(offset_of!(Header, tables), &TABLES.to_ne_bytes());
    bytes[at] ^= by;
    bytes
}

#[test]
fn a_page_of_another_version_is_left_alone() {
    let heads = [
        (0, 0, true),
        (offset_of!(Header, magic), 1, false),
        (offset_of!(Header, version), 1, false),
        (offset_of!(Header, bytes), 1, false),
        (offset_of!(Header, tables), 1, false),
    ];
    for (at, by, is_used) in heads {
        passes_apart(|| {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join(std::process::id().to_string());
            let before = page(at, by);
            fs::write(&path, &before).unwrap();
            // SAFETY: this process has one thread.
            unsafe { std::env::set_var("FAULTLESS_STATS", dir.path()) };
            let region = match Region::builder(1 << 20).delivery(Delivery::Signal).build() {
                Ok(region) => region,
                Err(Error::NoUserfaultfd(_)) => return,
                Err(error) => panic!("{error}"),
            };
            // SAFETY: mapped for writing.
            unsafe { region.as_ptr().write_volatile(1) };
            assert_eq!(Region::counted(Counter::RegionPgfault), 1);
            let after = fs::read(&path).unwrap();
            assert_eq!(after != before, is_used, "byte {at}");
            drop(dir);
        });
    }
}
