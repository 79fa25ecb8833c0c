//! Random operations on a file, against its bytes as they must be.

use std::fs;
use std::path::Path;

use faultless::file::{Delivery, File, Mapping, MappingMut};
use proptest::prelude::*;

use crate::chance::Chance;
use crate::lazy::can_be_lazy;
use crate::plain::Plain;
use crate::{PAGE, SLOT, budget, bytes, mapped, opened};

/// A call that maps a part of a file.
type Way<M> = fn(&File, u64, usize) -> std::io::Result<M>;

/// Operations on a file with a name, in turn, against its bytes as they must be.
struct World<'a> {
    path: &'a Path,
    /// Of faults, where there are lazy mappings.
    delivery: Option<Delivery>,
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
        opened(&open, small)
    }

    /// Whether the next mapping is one whose pages come when they are touched.
    fn is_lazy(&mut self) -> bool {
        self.delivery.is_some() && self.chance.below(3) > 0
    }

    fn open_again(&mut self) {
        self.file = Self::open(self.path, self.small);
        if let Some(delivery) = self.delivery {
            self.file.deliver(delivery).unwrap();
        }
    }

    /// A part that begins and ends somewhere, often near a border.
    fn part(&mut self, within: usize) -> (usize, usize) {
        let unit = [1, PAGE, SLOT][self.chance.below(3)];
        let near = self.chance.below(within / unit + 1) * unit + self.chance.below(3);
        let at = near.saturating_sub(1).min(within);
        let most = [100, 3 * PAGE, SLOT + PAGE, within][self.chance.below(4)];
        (at, self.chance.below(most.min(within - at) + 1))
    }

    /// A mapping of some part, made by the first way or, lazily, by the second.
    fn map<M>(&mut self, ways: [Way<M>; 2]) -> (usize, M) {
        let (at, n) = self.part(self.oracle.len());
        let way = ways[usize::from(self.is_lazy())];
        (at, way(&self.file, at as u64, n).unwrap())
    }

    /// All bytes of mappings that are in memory, and some of those that come when they are touched.
    fn look(&mut self, by_call: bool) {
        let mut seed = Chance(self.chance.0);
        let oracle = &self.oracle;
        let mut check = |at: usize, mapping: &Mapping, kind: &str| {
            if !mapping.is_lazy() {
                return assert!(mapped(mapping) == oracle[at..at + mapping.len()], "{kind} of {at}");
            }
            for most in [PAGE, 3 * PAGE, 12 * PAGE] {
                let first = seed.below(mapping.len() + 1);
                let n = seed.below(most.min(mapping.len() - first) + 1);
                let mut got = vec![0xEE; n];
                match by_call {
                    true => mapping.read(first, &mut got).unwrap(),
                    // SAFETY: no other thread uses the file.
                    false => got.copy_from_slice(unsafe { &(mapping.as_slice())[first..first + n] }),
                }
                assert!(got == oracle[at + first..at + first + n], "lazy {kind} of {at}: {n} at {first}");
            }
        };
        self.mappings.iter().for_each(|(at, mapping)| check(*at, mapping, "mapping"));
        self.writable.iter().for_each(|(at, mapping)| check(*at, mapping, "writable mapping"));
    }

    fn step(&mut self) {
        let length = self.oracle.len();
        let by_call = self.chance.below(2) == 0;
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
                let mapping = self.map([File::map, File::map_lazy]);
                self.mappings.push(mapping);
                self.mappings.drain(..self.mappings.len().saturating_sub(3));
            }
            6 => {
                let mapping = self.map([File::map_mut, File::map_lazy_mut]);
                self.writable.push(mapping);
                self.writable.drain(..self.writable.len().saturating_sub(2));
            }
            7 => {
                let (seed, by_call) = (self.chance.0, self.chance.below(2) == 0);
                let part = self.writable.last().map(|(_, mapping)| mapping.len());
                let part = part.map(|length| self.part(length));
                if let (Some((at, mapping)), Some((first, n))) = (self.writable.last_mut(), part) {
                    let new = bytes(n, seed);
                    match by_call {
                        true => mapping.write(first, &new).unwrap(),
                        // SAFETY: no other thread uses the file.
                        false => unsafe { (mapping.as_mut_slice())[first..first + n].copy_from_slice(&new) },
                    }
                    let at = *at + first;
                    self.oracle[at..at + n].copy_from_slice(&new);
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
                self.open_again();
                assert_eq!(self.file.present(), 0);
            }
        }
        self.look(by_call);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// With room for everything, for two huge pages, and for nothing.
    #[test]
    fn random_operations_are_those_of_a_plain_file(
        seed: u64, room in 0..3usize, small: bool, n in 0..MOST, delivery in 0..3usize,
    ) {
        let delivery = [None, Some(Delivery::Thread), Some(Delivery::Signal)][delivery];
        let delivery = delivery.filter(|_| can_be_lazy());
        let _alone = budget([64 << 20, 4 << 20, 0][room]);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let oracle = bytes(n, seed);
        fs::write(&path, &oracle).unwrap();
        let file = World::open(&path, small);
        let (mappings, writable, chance) = (Vec::new(), Vec::new(), Chance(seed | 1));
        let mut world =
            World { path: &path, delivery, small, file, oracle, mappings, writable, chance };
        world.open_again();
        for _ in 0..80 {
            world.step();
        }
    }
}
