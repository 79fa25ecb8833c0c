//! Regions that the machine may refuse.

use faultless::region::{Builder, Error, Region};

/// The region. `None` where the kernel allows no userfaultfd: then the test says that it is skipped.
pub fn built(builder: Builder) -> Option<Region> {
    match builder.build() {
        Ok(region) => Some(region),
        Err(error @ Error::NoUserfaultfd(_)) => {
            faultless_testkit::skip(error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}
