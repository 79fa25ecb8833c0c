//! What an ordinary user gets unless it says otherwise, where the kernel delivers faults of programs alone: memory
//! that system calls can be given.

mod sevens;

use std::fs::File;
use std::io::Read;

use faultless::region::{Delivery, Region};
use faultless_testkit::limit::limit;
use sevens::Sevens;

const MIB: usize = 1 << 20;

/// What a child without privileges says. If this is root, the child becomes another user.
fn as_ordinary_user(question: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child uses memory, makes system calls and ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let other = 65534;
            let is_ordinary = libc::geteuid() != 0 || libc::setresuid(other, other, other) == 0;
            libc::_exit(i32::from(!(is_ordinary && question())));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        status == 0
    }
}

fn reads_into(region: &mut Region) -> bool {
    let bytes = region.as_mut_slice().unwrap();
    bytes[0] = 1;
    File::open("/dev/zero").unwrap().read_exact(bytes).is_ok() && bytes[0] == 0
}

#[test]
fn a_system_call_on_untouched_memory_works_by_default() {
    limit();
    let works = || {
        let mut region = Region::anonymous(8 * MIB).unwrap();
        region.serves_system_calls() && region.delivery() != Delivery::Direct && reads_into(&mut region)
    };
    assert!(works());
    assert!(as_ordinary_user(works));
    // The kernel brings pages when they are touched.
    assert!(as_ordinary_user(|| Region::anonymous(1 << 40).unwrap().present() == 0));
}

/// The kernel has not the bytes of a backing, so a handler it is, and the region says what does not work.
#[test]
fn a_backing_has_a_handler_and_says_what_that_serves() {
    limit();
    assert!(as_ordinary_user(|| {
        let Ok(mut region) = Region::builder(MIB).backing(Sevens).build() else { return true };
        let serves = region.serves_system_calls();
        region.as_mut_slice().unwrap()[MIB - 1] == 7 && (!serves || reads_into(&mut region))
    }));
}
