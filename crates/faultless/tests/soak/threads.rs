//! A file in a group, by several threads at a time: each has a stripe of it, beside plain bytes.

use std::fs;
use std::thread;

use faultless::file::{Advice, CacheGroup, File};
use faultless_testkit::rng::Rng;

use crate::files::{make, some};
use crate::pace::Pace;

const THREADS: usize = 3;
const STEPS: usize = 60;
/// Less than the file has, and less than a huge page for each thread.
const BUDGET: usize = 5 << 20;
/// Bytes that a thread touches by a mapping at a time: faults one after the other.
const FEW: usize = 20_000;
const ADVICE: [Advice; 7] = [
    Advice::Normal,
    Advice::Sequential,
    Advice::Random,
    Advice::WillNeed,
    Advice::DontNeed,
    Advice::Huge,
    Advice::NoHuge,
];

/// What a thread does with the bytes of its stripe, which begins at `start`.
fn stripe(file: &File, length: usize, start: usize, plain: &mut [u8], rng: &mut Rng) {
    let mut mapping = file.map_lazy_mut(0, length).ok();
    for _ in 0..STEPS {
        let range = some(plain.len(), rng);
        let few = range.start..range.end.min(range.start + FEW);
        let (at, end) = ((start + range.start) as u64, (start + range.end) as u64);
        let (byte, way) = (rng.word() as u8, rng.below(10));
        match (way, &mut mapping) {
            (0 | 1, _) => {
                let mut bytes = vec![0; range.len()];
                assert_eq!(file.read_at(&mut bytes, at).unwrap(), bytes.len());
                assert!(bytes == plain[range], "{at:#x} of the file");
            }
            (2, Some(mapping)) => {
                // SAFETY: no other thread uses this stripe.
                let bytes = unsafe { &mapping.as_slice()[start..][few.clone()] };
                assert!(*bytes == plain[few], "{at:#x} of the mapping");
            }
            (3, Some(mapping)) => {
                // SAFETY: as above.
                unsafe { mapping.as_mut_slice()[start..][few.clone()].fill(byte) };
                plain[few].fill(byte);
            }
            (4, _) => file.sync_range(at..end).unwrap(),
            (5, _) => _ = file.drop_range(at..end),
            (6, _) => {
                file.punch_hole(at..end).unwrap();
                plain[range].fill(0);
            }
            (7, _) => file.advise(at..end, ADVICE[rng.below(ADVICE.len())]).unwrap(),
            _ => {
                let bytes = vec![byte; range.len()];
                assert_eq!(file.write_at(&bytes, at).unwrap(), bytes.len());
                plain[range].fill(byte);
            }
        }
    }
}

/// Between rounds the file has new lengths; at the end of each the file on the disk is compared.
pub fn work(pace: &Pace) -> usize {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    let mut plain = make(&path, &mut Rng::new(0));
    let most = plain.len();
    let group = CacheGroup::new(BUDGET).unwrap();
    let file = group.open_writable(&path).unwrap();
    pace.run(|rng| {
        let length = most / 2 + rng.below(most);
        file.set_len(length as u64).unwrap();
        plain.resize(length, 0);
        let stripes = plain.chunks_mut(length.div_ceil(THREADS));
        thread::scope(|scope| {
            for (i, stripe_of) in stripes.enumerate() {
                let (file, mut rng) = (&file, Rng::new(rng.word()));
                scope.spawn(move || stripe(file, length, i * length.div_ceil(THREADS), stripe_of, &mut rng));
            }
            for _ in 0..STEPS {
                assert!(group.used() <= BUDGET, "{} bytes of the group", group.used());
                thread::yield_now();
            }
        });
        file.sync().unwrap();
        assert!(fs::read(&path).unwrap() == plain, "the file on the disk");
        assert!(file.present() <= group.used() && group.used() <= BUDGET);
    })
}
