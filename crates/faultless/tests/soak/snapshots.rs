//! A region that changes, its snapshots beside copies, and files of them.

use faultless::file::File;
use faultless::region::{Delivery, Region, Save, Snapshot};

use crate::pace::Pace;
use crate::regions::{change, part};

const SLOT: usize = 2 << 20;
const LENGTH: usize = 8 * SLOT;
const STEPS: usize = 60;
/// Snapshots at a time.
const MOST: usize = 3;

fn check(snapshot: &Snapshot, held: &[u8]) {
    let mut bytes = vec![0xEE; held.len()];
    snapshot.read_at(0, &mut bytes).unwrap();
    assert!(bytes == held, "a snapshot");
}

/// Changes, snapshots in any order, and saves that are read again.
pub fn work(pace: &Pace) -> usize {
    let region = match Region::builder(LENGTH).delivery(Delivery::Thread).build() {
        Ok(region) if region.serves_system_calls() => region,
        _ => {
            faultless_testkit::skip("no snapshots here");
            return 0;
        }
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let mut plain = vec![0; LENGTH];
    let mut taken: Vec<(Snapshot, Vec<u8>)> = Vec::new();
    pace.run(|rng| {
        for _ in 0..STEPS {
            match rng.below(12) {
                0 if taken.len() < MOST => taken.push((region.snapshot().unwrap(), plain.clone())),
                1 if !taken.is_empty() => {
                    let (snapshot, held) = taken.swap_remove(rng.below(taken.len()));
                    check(&snapshot, &held);
                }
                _ => change(&region, 0..LENGTH, &mut plain, rng),
            }
        }
        assert!(part(&region, 0..LENGTH) == plain, "the region itself");
        let snapshot = region.snapshot().unwrap();
        let held = plain.clone();
        let saving = Save::new().header(*b"head").start(&snapshot, &path).unwrap();
        drop(snapshot);
        while !saving.is_done() {
            change(&region, 0..LENGTH, &mut plain, rng);
        }
        saving.wait().unwrap();
        let file = File::open(&path).unwrap();
        let mapping = file.map_lazy(4, LENGTH).or_else(|_| file.map(4, LENGTH)).unwrap();
        let mut bytes = vec![0xEE; LENGTH];
        mapping.read(0, &mut bytes).unwrap();
        assert!(bytes == held, "the file");
    })
}
