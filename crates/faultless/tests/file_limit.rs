//! The limit on the length of files (`RLIMIT_FSIZE`): it is an error, and never the signal that ends a program (SIGXFSZ).

mod apart;

use std::fs;
use std::io;

use apart::passes_apart;
use faultless::region::{Delivery, Error, Region, Save, Swap};
use faultless_page::stats::Counter;

const PAGE: usize = 4096;
const SLOT: usize = 2 << 20;
const BUDGET: usize = 4 << 20;
const LENGTH: usize = 2 * BUDGET;

/// No file of this process may be longer from now on.
fn limit_files(bytes: usize) {
    let limit = libc::rlimit { rlim_cur: bytes as u64, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: this process's own limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0, "{}", io::Error::last_os_error());
}

#[test]
fn a_swap_file_is_not_made_longer_than_it_may_be() {
    passes_apart(|| {
        let directory = tempfile::tempdir().unwrap();
        let build = || Region::builder(LENGTH).swap(Swap::new(BUDGET).directory(directory.path())).build();
        let mut region = match build() {
            Ok(region) => region,
            Err(error) => return faultless_testkit::skip(error),
        };
        let bytes = region.as_mut_slice().unwrap();
        bytes.fill(1);
        // The file of this region has its length. No byte of it may be written behind the limit.
        limit_files(SLOT);
        assert_eq!(build().err(), Some(Error::Kernel(libc::EFBIG)));
        bytes.fill(2);
        assert!(bytes.iter().all(|byte| *byte == 2), "a page that cannot be written stays");
        limit_files(LENGTH);
        bytes.fill(3);
        assert!(bytes.iter().all(|byte| *byte == 3));
        assert!(region.own_count(Counter::SwapErrors) > Some(0));
        // The store is asked again after a while.
        (0..200).for_each(|_| region.populate(0..PAGE).unwrap());
        assert!(region.in_memory() <= BUDGET, "{} bytes", region.in_memory());
        assert!(build().is_ok());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    });
}

#[test]
fn a_saved_snapshot_is_not_longer_than_it_may_be() {
    passes_apart(|| {
        let made = Region::builder(LENGTH).delivery(Delivery::Thread).build();
        let Some(mut region) = made.ok().filter(Region::serves_system_calls) else {
            return faultless_testkit::skip("no region of which snapshots can be had");
        };
        region.as_mut_slice().unwrap().fill(5);
        let snapshot = region.snapshot().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        limit_files(LENGTH - 1);
        assert_eq!(Save::new().start(&snapshot, &path).err(), Some(Error::Kernel(libc::EFBIG)));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        // In the middle: what there is of the file goes.
        let mut piece = vec![0; SLOT];
        snapshot.read_at(0, &mut piece).unwrap();
        let mut written = Save::new().header([7; PAGE]).create(&path).unwrap();
        limit_files(SLOT + PAGE);
        written.write(&piece).unwrap();
        assert_eq!(written.write(&piece), Err(Error::Kernel(libc::EFBIG)));
        drop(written);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        limit_files(LENGTH);
        Save::new().start(&snapshot, &path).unwrap().wait().unwrap();
        assert!(fs::read(&path).unwrap() == vec![5; LENGTH]);
    });
}
