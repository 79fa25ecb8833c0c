//! What streams leave behind, as it was used: by samples, in each delivery mode that has streams.

use std::time::Duration;

use faultless::region::{Advice, Delivery, Error, Region};
use faultless_page::stats::Counter;
use faultless_testkit::limit::limit;

const PAGE: usize = 4096;
const SLOT: usize = 2 << 20;
/// Windows of a run: 1, 2, 4 … 64 pages.
const RUN: usize = 127;
/// Up to the first page of the last one.
const SHORT: usize = 64;
/// Runs that use all of their windows, and those that do not.
const FULL: usize = 80;
const LEFT: usize = 30;

#[test]
fn only_what_was_not_written_to_counts_as_unused() {
    limit();
    for delivery in [Delivery::Signal, Delivery::Thread] {
        let region = match Region::builder((FULL + LEFT) * SLOT).delivery(delivery).huge_pages(false).build() {
            Ok(region) => region,
            Err(Error::NoUserfaultfd(error)) => {
                return faultless_testkit::skip(format_args!("{delivery:?}, error {error}"));
            }
            Err(error) => panic!("{delivery:?}: {error}"),
        };
        let unused = || region.own_count(Counter::RegionUnused).unwrap();
        let run = |slot: usize, pages: usize| {
            for page in 0..pages {
                // SAFETY: mapped for writing.
                unsafe { region.as_ptr().add(slot * SLOT + page * PAGE).write_volatile(1) };
            }
        };
        (0..FULL).for_each(|slot| run(slot, RUN));
        // Few windows wait to be looked at, and those that were left first are the first. There may have been no room
        // for these. So they are left again until another thread had a processor to look.
        let mut rounds = 0;
        while unused() == 0 {
            region.advise(FULL * SLOT..(FULL + LEFT) * SLOT, Advice::DontNeed).unwrap();
            (FULL..FULL + LEFT).for_each(|slot| run(slot, SHORT));
            rounds += 1;
            let mut looks = 0..100;
            while unused() == 0 && looks.next().is_some() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let most = (rounds * LEFT * (RUN - SHORT)) as u64;
        assert!((1..=most).contains(&unused()), "{delivery:?}: {} pages unused, not 1 to {most}", unused());
    }
}
