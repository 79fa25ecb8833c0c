//! Power cuts: bytes that were synced are there, and each page written later is old or new.
//!
//! A backing keeps what is durable, and what was done since the last sync in its order. A cut leaves the first of these
//! changes of length and holes, up to some of them, and any of the writes between them.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use faultless::file::{Backing, File, MappingMut};
use proptest::prelude::*;

use crate::chance::Chance;
use crate::{PAGE, SLOT, budget, bytes};

const MOST: usize = 3 * SLOT + 3 * PAGE + 100;

/// What is done to a disk.
#[derive(Clone)]
enum Done {
    Write(usize, Vec<u8>),
    Length(usize),
    Punch(usize, usize),
}

fn apply(bytes: &mut Vec<u8>, done: &Done) {
    match done {
        Done::Write(at, new) => {
            // A write of which the growth is lost is lost as far as that.
            let n = new.len().min(bytes.len().saturating_sub(*at));
            if n > 0 {
                bytes[*at..at + n].copy_from_slice(&new[..n]);
            }
        }
        Done::Length(length) => bytes.resize(*length, 0),
        Done::Punch(at, n) => {
            let end = (at + n).min(bytes.len());
            bytes[(*at).min(end)..end].fill(0);
        }
    }
}

#[derive(Default)]
struct Platters {
    durable: Vec<u8>,
    since: Vec<Done>,
    punches: bool,
}

/// A disk that loses power.
#[derive(Clone, Default)]
struct Disk(Arc<Mutex<Platters>>);

impl Disk {
    fn now(&self) -> Vec<u8> {
        let disk = self.0.lock().unwrap();
        let mut now = disk.durable.clone();
        disk.since.iter().for_each(|done| apply(&mut now, done));
        now
    }

    fn add(&self, done: Done) -> io::Result<()> {
        self.0.lock().unwrap().since.push(done);
        Ok(())
    }

    /// What is there after a cut.
    fn cut(&self, chance: &mut Chance) -> Vec<u8> {
        let disk = self.0.lock().unwrap();
        let mut left = disk.durable.clone();
        let orders = disk.since.iter().filter(|done| !matches!(done, Done::Write(..))).count();
        let mut orders = chance.below(orders + 1);
        for done in &disk.since {
            match done {
                Done::Write(at, new) => {
                    for (i, page) in new.chunks(PAGE).enumerate() {
                        if chance.below(2) == 0 {
                            apply(&mut left, &Done::Write(at + i * PAGE, page.to_vec()));
                        }
                    }
                }
                _ if orders > 0 => {
                    orders -= 1;
                    apply(&mut left, done);
                }
                _ => {}
            }
        }
        left
    }
}

impl Backing for Disk {
    fn length(&self) -> io::Result<u64> {
        Ok(self.now().len() as u64)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        buffer.copy_from_slice(&self.now()[offset as usize..][..buffer.len()]);
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        assert!(offset as usize + bytes.len() <= self.now().len(), "a write behind the end");
        self.add(Done::Write(offset as usize, bytes.to_vec()))
    }

    fn sync(&self) -> io::Result<()> {
        let now = self.now();
        let mut disk = self.0.lock().unwrap();
        disk.durable = now;
        disk.since.clear();
        Ok(())
    }

    fn grow(&self, length: u64) -> io::Result<()> {
        self.add(Done::Length(length as usize))
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.add(Done::Length(length as usize))
    }

    fn punch(&self, offset: u64, bytes: usize) -> io::Result<bool> {
        if !self.0.lock().unwrap().punches {
            return Ok(false);
        }
        self.add(Done::Punch(offset as usize, bytes)).map(|()| true)
    }
}

/// What may be there: the lengths and, of each page, the contents since the last sync. Pages that are not named are as
/// they were at the sync.
struct Allowed {
    lengths: Vec<usize>,
    pages: BTreeMap<usize, Vec<Vec<u8>>>,
    synced: Vec<u8>,
}

fn page_of(bytes: &[u8], page: usize) -> Vec<u8> {
    let at = (page * PAGE).min(bytes.len());
    let mut content = bytes[at..(at + PAGE).min(bytes.len())].to_vec();
    content.resize(PAGE, 0);
    content
}

impl Allowed {
    fn since(synced: &[u8]) -> Self {
        Self { lengths: vec![synced.len()], pages: BTreeMap::new(), synced: synced.to_vec() }
    }

    fn versions(&mut self, page: usize) -> &mut Vec<Vec<u8>> {
        let old = page_of(&self.synced, page);
        self.pages.entry(page).or_insert_with(|| vec![old])
    }

    /// Bytes have changed.
    fn written(&mut self, now: &[u8], at: usize, n: usize) {
        for page in at / PAGE..(at + n).div_ceil(PAGE) {
            let new = page_of(now, page);
            self.versions(page).push(new);
        }
    }

    /// Bytes from here on are zero, whatever was there.
    fn zeroed(&mut self, at: usize, end: usize) {
        for page in at / PAGE..end.div_ceil(PAGE) {
            let (from, to) = (at.max(page * PAGE) - page * PAGE, end.min((page + 1) * PAGE) - page * PAGE);
            let versions = self.versions(page);
            let zeroed = versions.clone().into_iter().map(|mut version| {
                version[from..to].fill(0);
                version
            });
            let mut zeroed: Vec<_> = zeroed.collect();
            zeroed.dedup();
            versions.append(&mut zeroed);
        }
    }

    fn check(&self, left: &[u8]) {
        assert!(self.lengths.contains(&left.len()), "{} bytes, not one of {:?}", left.len(), self.lengths);
        for page in 0..left.len().div_ceil(PAGE) {
            let n = PAGE.min(left.len() - page * PAGE);
            let there = &left[page * PAGE..][..n];
            let old = [page_of(&self.synced, page)];
            let versions = self.pages.get(&page).map_or(&old[..], |versions| &versions[..]);
            assert!(versions.iter().any(|version| version[..n] == *there), "page {page} is neither old nor new");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_power_cut_leaves_what_was_synced_and_old_or_new_pages(seed: u64, room in 0..2usize, punches: bool, n in 0..MOST) {
        let _alone = budget([64 << 20, 0][room]);
        let mut chance = Chance(seed | 1);
        let mut oracle = bytes(n, seed);
        let disk = Disk::default();
        *disk.0.lock().unwrap() = Platters { durable: oracle.clone(), since: Vec::new(), punches };
        let file = File::with_backing(disk.clone()).unwrap();
        let mut allowed = Allowed::since(&oracle);
        let mut mapping: Option<(usize, MappingMut)> = None;
        for _ in 0..40 {
            let length = oracle.len();
            let at = chance.below(length + 1);
            let n = chance.below((length - at).min(20 * PAGE) + 1);
            match chance.below(10) {
                0..=2 => {
                    let at = at + chance.below(MOST - at);
                    let n = (n + 1).min(MOST - at);
                    let new = bytes(n, chance.0);
                    assert_eq!(file.write_at(&new, at as u64).unwrap(), n);
                    if at + n > length {
                        oracle.resize(at + n, 0);
                        allowed.lengths.push(at + n);
                    }
                    oracle[at..at + n].copy_from_slice(&new);
                    allowed.written(&oracle, at, n);
                }
                3 => mapping = Some((at, file.map_mut(at as u64, n).unwrap())),
                4..=5 => if let Some((at, mapping)) = &mapping {
                    let n = chance.below(mapping.len() + 1);
                    let new = bytes(n, chance.0);
                    mapping.write(mapping.len() - n, &new).unwrap();
                    let at = at + mapping.len() - n;
                    oracle[at..at + n].copy_from_slice(&new);
                    allowed.written(&oracle, at, n);
                },
                6 => {
                    mapping = None;
                    let new = chance.below(MOST);
                    file.set_len(new as u64).unwrap();
                    oracle.resize(new, 0);
                    allowed.lengths.push(new);
                    allowed.zeroed(new, length.next_multiple_of(PAGE).max(new));
                }
                7 => {
                    file.punch_hole(at as u64..(at + n) as u64).unwrap();
                    oracle[at..at + n].fill(0);
                    allowed.zeroed(at, at + n);
                }
                8 => {
                    file.sync().unwrap();
                    allowed = Allowed::since(&oracle);
                }
                _ => _ = file.drop_cache(),
            }
            for _ in 0..2 {
                allowed.check(&disk.cut(&mut chance));
            }
        }
        file.sync().unwrap();
        assert!(disk.0.lock().unwrap().durable == oracle);
    }
}
