//! How many pages a region says it has, beside what the kernel's page tables say, after each of many operations.

mod chance;

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use chance::Chance;
use faultless::region::{Advice, Delivery, Error, Region, Rights};
use faultless_page::stats::Counter;
use faultless_testkit::limit::limit;

const PAGE: usize = 4096;
/// Whole huge pages.
const PAGES: usize = 6 * 512;
const STEPS: usize = 600;

fn pagemap(region: &Region) -> usize {
    let mut entries = vec![0u8; PAGES * 8];
    let file = File::open("/proc/self/pagemap").unwrap();
    file.read_exact_at(&mut entries, (region.as_ptr() as usize / PAGE * 8) as u64).unwrap();
    entries.chunks(8).filter(|entry| entry[7] & 0xC0 != 0).count()
}

fn part(chance: &mut Chance) -> Range<usize> {
    let first = chance.below(PAGES);
    let pages = 1 + chance.below((PAGES - first).min([3, 40, 2000][first % 3]));
    first * PAGE..(first + pages) * PAGE
}

/// One operation; what is mapped, page by page, follows it.
fn step(region: &Region, mapped: &mut [bool], chance: &mut Chance) {
    let range = part(chance);
    let pages = range.start / PAGE..range.end / PAGE;
    let all = mapped[pages.clone()].iter().all(|mapped| *mapped);
    match chance.below(10) {
        0 => {
            region.unmap(range).unwrap();
            mapped[pages].fill(false);
        }
        1 | 2 => match region.map(range, Rights::Write) {
            Ok(()) => mapped[pages].fill(true),
            Err(error) => assert_eq!(error, Error::Mapped),
        },
        3 if all => region.advise(range, Advice::DontNeed).unwrap(),
        4 if all => region.populate(range).unwrap(),
        5 => {
            let to = chance.below(PAGES - pages.len() + 1);
            if region.remap(range, to * PAGE).is_ok() {
                let moved = pages.len();
                mapped[pages].fill(false);
                mapped[to..to + moved].fill(true);
            }
        }
        kind => {
            // Read, written, or in no order.
            for i in pages.clone() {
                let page = if kind == 9 { pages.start + chance.below(pages.len()) } else { i };
                if mapped[page] {
                    let at = region.as_ptr().wrapping_add(page * PAGE);
                    // SAFETY: mapped for writing, and this thread's alone.
                    unsafe { if kind == 6 { _ = at.read_volatile() } else { at.write_volatile(1) } };
                }
            }
        }
    }
}

#[test]
fn a_region_has_the_pages_that_the_kernel_says() {
    limit();
    let given_up = Region::counted(Counter::RegionGivenUp);
    for (seed, delivery) in (1..9).flat_map(|seed| [(seed, Delivery::Thread), (seed, Delivery::Signal)]) {
        let region = match Region::builder(PAGES * PAGE).delivery(delivery).build() {
            Ok(region) => region,
            Err(Error::NoUserfaultfd(error)) => {
                return faultless_testkit::skip(format_args!("{delivery:?}, error {error}"));
            }
            Err(error) => panic!("{delivery:?}: {error}"),
        };
        let (mut mapped, mut chance) = (vec![true; PAGES], Chance(seed * 1_000_003));
        for n in 0..STEPS / 8 {
            step(&region, &mut mapped, &mut chance);
            // A handler thread may still be leaving an area to the kernel, which wakes this thread first.
            let agrees = || region.present() == pagemap(&region) * PAGE;
            let mut turns = 0..1000;
            while !agrees() && turns.next().is_some() {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(region.present(), pagemap(&region) * PAGE, "{delivery:?}, seed {seed}, after step {n}");
        }
    }
    assert!(Region::counted(Counter::RegionGivenUp) > given_up, "no area was left to the kernel meanwhile");
}
