//! Regions of each delivery, with threads that fault at the same time; and children that have what was there.

use std::ops::Range;
use std::thread;

use faultless::region::{Advice, Delivery, Error, Region, Rights, Swap};
use faultless_testkit::rng::Rng;

use crate::pace::Pace;

const PAGE: usize = 4096;
/// Bytes of a region, of which each of two threads has a half.
const LENGTH: usize = 8 << 20;
const STEPS: usize = 60;
const DELIVERIES: [Delivery; 4] = [Delivery::Thread, Delivery::Signal, Delivery::Kernel, Delivery::Direct];

/// A part of a region as a slice. The caller keeps threads apart.
#[expect(clippy::mut_from_ref, reason = "the memory is not the value's")]
pub fn part(region: &Region, range: Range<usize>) -> &mut [u8] {
    // SAFETY: mapped for writing whenever it is used, by the thread alone that has this part.
    unsafe { std::slice::from_raw_parts_mut(region.as_ptr().add(range.start), range.len()) }
}

/// A region; none where the machine refuses its delivery.
fn build(delivery: Delivery, huge: bool) -> Option<Region> {
    match Region::builder(LENGTH).delivery(delivery).huge_pages(huge).build() {
        Ok(region) => Some(region),
        Err(Error::NoUserfaultfd(_)) => None,
        Err(error) => panic!("{delivery:?}: {error}"),
    }
}

/// Uses and changes a part, as `plain` is changed.
pub fn change(region: &Region, within: Range<usize>, plain: &mut [u8], rng: &mut Rng) {
    let at = within.start + rng.below(within.len());
    let most = rng.of(&[1, 100, 3 * PAGE, LENGTH]);
    let n = 1 + rng.below((within.end - at).min(most));
    let pages = at / PAGE * PAGE..(at + n).next_multiple_of(PAGE);
    let own = |range: Range<usize>| range.start - within.start..range.end - within.start;
    match rng.below(10) {
        0 => {
            region.advise(pages.clone(), Advice::DontNeed).unwrap();
            plain[own(pages)].fill(0);
        }
        1 => {
            region.unmap(pages.clone()).unwrap();
            region.map(pages.clone(), Rights::Write).unwrap();
            plain[own(pages)].fill(0);
        }
        2 => {
            [Rights::Read, Rights::Write].iter().for_each(|rights| region.protect(pages.clone(), *rights).unwrap())
        }
        3 => region.populate(pages).unwrap(),
        4 | 5 => assert!(part(region, at..at + n) == &plain[own(at..at + n)], "{at:#x} and {n} bytes"),
        _ => {
            let byte = rng.word() as u8;
            part(region, at..at + n).fill(byte);
            plain[own(at..at + n)].fill(byte);
        }
    }
}

/// A region of each delivery, used and changed by two threads.
pub fn work(pace: &Pace) -> usize {
    pace.run(|rng| {
        for delivery in DELIVERIES {
            let Some(region) = build(delivery, rng.one_in(2)) else { continue };
            work_in_two_threads(&region, rng);
        }
    })
}

/// A region with a store, of which a half is in memory.
pub fn work_above_a_budget(pace: &Pace) -> usize {
    pace.run(|rng| match Region::builder(LENGTH).swap(Swap::new(LENGTH / 2)).build() {
        Ok(region) => work_in_two_threads(&region, rng),
        Err(Error::NoUserfaultfd(_) | Error::NoSwap(_)) => {}
        Err(error) => panic!("{error}"),
    })
}

fn work_in_two_threads(region: &Region, rng: &mut Rng) {
    let mut plain = vec![0; LENGTH];
    let (first, second) = plain.split_at_mut(LENGTH / 2);
    let own = |half: usize| half * LENGTH / 2..(half + 1) * LENGTH / 2;
    let mut seeds = [0, 1].map(|half| (half, Rng::new(rng.word())));
    thread::scope(|scope| {
        for ((half, rng), plain) in seeds.iter_mut().zip([first, second]) {
            scope.spawn(move || (0..STEPS).for_each(|_| change(region, own(*half), plain, rng)));
        }
    });
    assert!(part(region, 0..LENGTH) == plain, "{:?}", region.delivery());
}

/// Children that find each byte as it was at the fork, while the parent goes on.
pub fn fork(pace: &Pace) -> usize {
    let regions: Vec<Region> = DELIVERIES.into_iter().filter_map(|delivery| build(delivery, true)).collect();
    pace.run(|rng| {
        let stamp = rng.word() as u8;
        regions.iter().for_each(|region| part(region, 0..LENGTH).fill(stamp));
        // SAFETY: the child reads memory, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_so = regions.iter().all(|region| part(region, 0..LENGTH).iter().all(|byte| *byte == stamp));
            // SAFETY: as above.
            unsafe { libc::_exit(i32::from(!is_so)) };
        }
        assert!(child > 0, "{}", std::io::Error::last_os_error());
        regions.iter().for_each(|region| part(region, 0..LENGTH).fill(!stamp));
        let mut status = 0;
        // SAFETY: a child of this process, for which no other thread waits.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "the child found something else");
        assert!(regions.iter().all(|region| part(region, 0..LENGTH).iter().all(|byte| *byte == !stamp)));
    })
}
