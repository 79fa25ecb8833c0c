//! Choices that make no sense are errors, and those that were left out are the defaults.

mod built;

use built::built;
use faultless::region::{Delivery, Error, Region};
use faultless_testkit::limit::limit;

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;

#[test]
fn choices_that_make_no_sense_are_errors() {
    let builder = || Region::builder(MIB);
    let refused = [
        builder().handlers(0),
        builder().areas(0),
        builder().windows(0, 0),
        builder().windows(1, PAGE),
        builder().windows(2 * PAGE, PAGE),
        builder().first_window(PAGE - 1),
        builder().most_window(0),
    ];
    for builder in refused {
        assert!(matches!(builder.build().err(), Some(Error::Choice(_))));
    }
    for builder in [builder().handlers(1000), builder().windows(PAGE, PAGE), builder().budget(0)] {
        assert_eq!(builder.build().err(), None);
    }
}

/// Pages that the first fault brings, and all pages by how many faults.
fn brought(first: Option<usize>, most: Option<usize>) -> Option<(usize, u64)> {
    let mut builder = Region::builder(8 * MIB).delivery(Delivery::Signal).huge_pages(false);
    builder = first.into_iter().fold(builder, |builder, first| builder.first_window(first));
    builder = most.into_iter().fold(builder, |builder, most| builder.most_window(most));
    let mut region = built(builder)?;
    region.as_mut_slice().unwrap()[0] = 1;
    let at_first = region.present() / PAGE;
    region.as_mut_slice().unwrap().iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
    Some((at_first, region.own_count_as(b"region_pgfault").unwrap()))
}

/// Memory comes in huge pages, and the last one may reach beyond the region.
#[test]
fn no_more_than_the_region_is_present() {
    limit();
    let bytes = 64 * MIB + 100;
    let region = Region::builder(bytes).delivery(Delivery::Direct).build().unwrap();
    assert_eq!(region.present(), bytes.next_multiple_of(PAGE));
}

#[test]
fn one_window_may_be_chosen_without_the_other() {
    limit();
    let Some((first, faults)) = brought(None, None) else { return };
    assert_eq!(first, 1);
    let (larger, fewer) = brought(Some(64 * PAGE), None).unwrap();
    assert!(larger == 64 && fewer < faults, "{larger} pages at first, {fewer} faults and not {faults}");
    let (page, more) = brought(None, Some(4 * PAGE)).unwrap();
    assert!(page == 1 && more >= 512, "{page} pages at first, {more} faults by 4 pages at most");
}
