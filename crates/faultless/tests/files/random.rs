//! Random operations on a file, against its bytes as they must be.

use std::fs;
use std::path::Path;

use faultless::file::{File, Mapping, MappingMut};
use proptest::prelude::*;

use crate::chance::Chance;
use crate::plain::Plain;
use crate::{PAGE, SLOT, budget, bytes, mapped};

/// Operations on a file with a name, in turn, against its bytes as they must be.
struct World<'a> {
    path: &'a Path,
    small: bool,
    file: File,
    oracle: Vec<u8>,
    mappings: Vec<(usize, Mapping)>,
    writable: Vec<(usize, MappingMut)>,
    chance: Chance,
}

const MOST: usize = 4 * SLOT + 5 * PAGE + 100;

impl World<'_> {
    fn open(path: &Path, small: bool) -> File {
        let open = fs::File::options().read(true).write(true).open(path).unwrap();
        if small { File::with_small_pages(&open) } else { File::new(&open) }.unwrap()
    }

    /// A part that begins and ends somewhere, often near a border.
    fn part(&mut self, within: usize) -> (usize, usize) {
        let unit = [1, PAGE, SLOT][self.chance.below(3)];
        let near = self.chance.below(within / unit + 1) * unit + self.chance.below(3);
        let at = near.saturating_sub(1).min(within);
        let most = [100, 3 * PAGE, SLOT + PAGE, within][self.chance.below(4)];
        (at, self.chance.below(most.min(within - at) + 1))
    }

    fn step(&mut self) {
        let length = self.oracle.len();
        match self.chance.below(18) {
            0..=2 => {
                let (at, n) = self.part(length);
                let mut got = vec![0xEE; n];
                let read = self.file.read_at(&mut got, at as u64).unwrap();
                assert_eq!(read, n);
                assert!(got == self.oracle[at..at + n], "read of {n} at {at} of {length}");
            }
            3..=4 => {
                let (at, n) = self.part(MOST);
                let new = bytes(n, self.chance.0);
                assert_eq!(self.file.write_at(&new, at as u64).unwrap(), n);
                // No bytes make no file longer.
                if n > 0 {
                    self.oracle.resize(length.max(at + n), 0);
                    self.oracle[at..at + n].copy_from_slice(&new);
                }
            }
            5 => {
                let (at, n) = self.part(length);
                self.mappings.push((at, self.file.map(at as u64, n).unwrap()));
                self.mappings.drain(..self.mappings.len().saturating_sub(3));
            }
            6 => {
                let (at, n) = self.part(length);
                self.writable.push((at, self.file.map_mut(at as u64, n).unwrap()));
                self.writable.drain(..self.writable.len().saturating_sub(2));
            }
            7 => {
                let seed = self.chance.0;
                if let Some((at, mapping)) = self.writable.last() {
                    let new = bytes(mapping.len() / 2, seed);
                    mapping.write(1.min(mapping.len() - new.len()), &new).unwrap();
                    let at = at + 1.min(mapping.len() - new.len());
                    self.oracle[at..at + new.len()].copy_from_slice(&new);
                }
            }
            8 => {
                self.file.sync().unwrap();
                assert!(fs::read(self.path).unwrap() == self.oracle, "not what was synced");
            }
            9 => _ = self.file.drop_cache(),
            10 => {
                let grown = length + self.chance.below(MOST.saturating_sub(length).max(1));
                self.file.grow(grown as u64).unwrap();
                self.oracle.resize(grown, 0);
            }
            11 => {
                let parts: Vec<_> = (0..self.chance.below(6))
                    .map(|_| self.part(length))
                    .map(|(at, n)| at as u64..(at + n) as u64)
                    .collect();
                let asked: u64 = parts.iter().map(|part| part.end - part.start).sum();
                assert!(self.file.prefetch(&parts).unwrap() as u64 <= asked);
            }
            13..=14 => {
                let most = [MOST, length + 1][self.chance.below(2)];
                let new = self.chance.below(most);
                let reaches = |(at, bytes): (usize, usize)| at + bytes > new;
                let is_mapped = self.mappings.iter().any(|(at, mapping)| reaches((*at, mapping.len())))
                    || self.writable.iter().any(|(at, mapping)| reaches((*at, mapping.len())));
                match self.file.set_len(new as u64) {
                    Ok(()) => self.oracle.resize(new, 0),
                    Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ResourceBusy),
                }
                assert_eq!(self.oracle.len() == new, !is_mapped || length == new, "{length} to {new}");
                assert_eq!(self.file.len(), self.oracle.len() as u64);
            }
            15 => {
                let (at, n) = self.part(length);
                self.file.punch_hole(at as u64..(at + n) as u64).unwrap();
                self.oracle[at..at + n].fill(0);
            }
            16 => {
                let (at, n) = self.part(length);
                if self.chance.below(2) == 0 {
                    self.file.drop_range(at as u64..(at + n) as u64);
                }
                let (at, n) = self.part(length);
                self.file.sync_range(at as u64..(at + n) as u64).unwrap();
                let file = fs::read(self.path).unwrap();
                assert!(
                    file.len() == length && file[at..at + n] == self.oracle[at..at + n],
                    "not what was synced"
                );
            }
            12 => {
                // In turn, as a loop over a file does.
                let (mut at, n) = self.part(length);
                let mut got = vec![0xEE; 1 + self.chance.below(3 * PAGE)];
                for _ in 0..n.min(8) {
                    let read = self.file.read_at(&mut got, at as u64).unwrap();
                    assert_eq!(read, got.len().min(length - at));
                    assert!(got[..read] == self.oracle[at..at + read]);
                    at += read;
                }
            }
            _ => {
                self.mappings.clear();
                self.writable.clear();
                // The last handle writes back. The next one begins with nothing.
                let closed = std::mem::replace(&mut self.file, File::with_backing(Plain::default()).unwrap());
                drop(closed);
                assert!(fs::read(self.path).unwrap() == self.oracle, "not what was closed");
                self.file = Self::open(self.path, self.small);
                assert_eq!(self.file.present(), 0);
            }
        }
        for (at, mapping) in &self.mappings {
            assert!(mapped(mapping) == self.oracle[*at..at + mapping.len()], "mapping of {at}");
        }
        for (at, mapping) in &self.writable {
            assert!(mapped(mapping) == self.oracle[*at..at + mapping.len()], "writable mapping of {at}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// With room for everything, for two huge pages, and for nothing.
    #[test]
    fn random_operations_are_those_of_a_plain_file(seed: u64, room in 0..3usize, small: bool, n in 0..MOST) {
        let _alone = budget([64 << 20, 4 << 20, 0][room]);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let oracle = bytes(n, seed);
        fs::write(&path, &oracle).unwrap();
        let file = World::open(&path, small);
        let (mappings, writable, chance) = (Vec::new(), Vec::new(), Chance(seed | 1));
        let mut world =
            World { path: &path, small, file, oracle, mappings, writable, chance };
        for _ in 0..80 {
            world.step();
        }
    }
}
