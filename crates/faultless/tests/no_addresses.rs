//! A process that may have no more addresses when it first uses the library: errors, and counters all the same.

mod apart;

use std::fs;

use apart::passes_apart;
use faultless::region::{Delivery, Error, Region};

const MIB: usize = 1 << 20;

fn limit_to(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a limit of this process, which is a test's own.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

/// The only test here: the page of counters must not be there yet.
#[test]
fn the_first_use_is_an_error_and_later_ones_work() {
    passes_apart(|| {
        let statm = fs::read_to_string("/proc/self/statm").unwrap();
        let pages = statm.split(' ').next().unwrap().parse::<u64>().unwrap();
        limit_to(pages * 4096);
        let deliveries = [Delivery::Best, Delivery::Thread, Delivery::Signal, Delivery::Kernel, Delivery::Direct];
        for delivery in deliveries {
            match Region::builder(4 * MIB).delivery(delivery).build() {
                Err(Error::NoAddressSpace | Error::NoThread | Error::NoUserfaultfd(_) | Error::Kernel(_)) => {}
                other => panic!("{delivery:?}: {other:?}"),
            }
        }
        let counted = || Region::counted_as(b"region_pgfault").unwrap();
        assert_eq!(counted(), 0);
        limit_to(libc::RLIM_INFINITY);
        for delivery in deliveries {
            let region = match Region::builder(4 * MIB).delivery(delivery).build() {
                Err(Error::NoUserfaultfd(_)) => continue,
                made => made.unwrap(),
            };
            // SAFETY: mapped for writing.
            unsafe { region.as_ptr().write_volatile(1) };
            let faults = matches!(region.delivery(), Delivery::Thread | Delivery::Signal);
            assert_eq!(region.own_count_as(b"region_pgfault"), Some(faults as u64));
        }
        assert!(counted() > 0 || Region::anonymous(MIB).unwrap().delivery() == Delivery::Kernel);
    });
}
