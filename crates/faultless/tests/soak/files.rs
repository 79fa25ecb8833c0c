//! Files, mapped lazily and changed by any call, beside plain bytes.

use std::fs;
use std::ops::Range;
use std::path::Path;

use faultless::file::{File, MappingMut};
use faultless_testkit::rng::Rng;

use crate::pace::Pace;

const LENGTH: usize = (12 << 20) + 1234;
const STEPS: usize = 40;
/// Bytes that one step reads or writes, at most.
const MOST: usize = 300_000;

/// A part of that many bytes.
pub fn some(length: usize, rng: &mut Rng) -> Range<usize> {
    let at = rng.below(length);
    at..at + 1 + rng.below((length - at).min(MOST))
}

fn map(file: &File, length: usize) -> MappingMut {
    file.map_lazy_mut(0, length).or_else(|_| file.map_mut(0, length)).unwrap()
}

/// A file of random words.
pub fn make(path: &Path, rng: &mut Rng) -> Vec<u8> {
    let plain: Vec<u8> = (0..LENGTH.div_ceil(8)).flat_map(|_| rng.word().to_ne_bytes()).take(LENGTH).collect();
    fs::write(path, &plain).unwrap();
    plain
}

/// Reads, writes, holes and new lengths; at the end of each round the file on the disk is compared.
pub fn work(pace: &Pace) -> usize {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    let mut plain = make(&path, &mut Rng::new(0));
    let file = File::open_writable(&path).unwrap();
    pace.run(|rng| {
        // No mapping reaches behind the new end.
        let length = LENGTH + rng.below(LENGTH);
        file.set_len(length as u64).unwrap();
        plain.resize(length, 0);
        let mapping = map(&file, length);
        for _ in 0..STEPS {
            let range = some(length, rng);
            let at = range.start;
            match rng.below(8) {
                0 | 1 => {
                    let mut bytes = vec![0; range.len()];
                    mapping.read(at, &mut bytes).unwrap();
                    assert!(bytes == plain[range], "{at:#x} of the mapping");
                }
                2 => {
                    let mut bytes = vec![0; range.len()];
                    let read = file.read_at(&mut bytes, at as u64).unwrap();
                    assert!(read == bytes.len() && bytes == plain[range], "{at:#x} of the file");
                }
                3 => file.sync_range(at as u64..range.end as u64).unwrap(),
                4 => _ = file.drop_cache(),
                5 => {
                    file.punch_hole(at as u64..range.end as u64).unwrap();
                    plain[range].fill(0);
                }
                way => {
                    let bytes = vec![rng.word() as u8; range.len()];
                    match way {
                        6 => mapping.write(at, &bytes).unwrap(),
                        _ => assert_eq!(file.write_at(&bytes, at as u64).unwrap(), bytes.len()),
                    }
                    plain[range].fill(bytes[0]);
                }
            }
        }
        file.sync().unwrap();
        assert!(fs::read(&path).unwrap() == plain, "the file on the disk");
    })
}

/// Private mappings: what is changed there is seen there, and nowhere else.
pub fn work_privately(pace: &Pace) -> usize {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    let whole = make(&path, &mut Rng::new(0));
    let file = File::open(&path).unwrap();
    pace.run(|rng| {
        let Ok(mapping) = file.map_private(0, LENGTH) else { return };
        let mut plain = whole.clone();
        for _ in 0..STEPS {
            let range = some(LENGTH, rng);
            if rng.one_in(2) {
                let bytes = vec![rng.word() as u8; range.len()];
                mapping.write(range.start, &bytes).unwrap();
                plain[range].fill(bytes[0]);
            } else {
                let mut bytes = vec![0; range.len()];
                mapping.read(range.start, &mut bytes).unwrap();
                assert!(bytes == plain[range], "a private mapping");
            }
        }
        let mut bytes = vec![0; LENGTH];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), LENGTH);
        assert!(bytes == whole, "the file itself");
    })
}
