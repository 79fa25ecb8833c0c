//! What cannot be had leaves nothing behind. Alone in its process, whose address space it limits.

use faultless::region::{Delivery, Error, Region};

const MIB: usize = 1 << 20;

/// Bytes of address space that this process has.
fn address_space() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split(' ').next().unwrap().parse::<usize>().unwrap() * 4096
}

/// How much more address space there is after many times of it.
fn left_behind(refused: impl Fn() -> Error, error: Error) -> usize {
    assert_eq!(refused(), error);
    let before = address_space();
    (0..20).for_each(|_| assert_eq!(refused(), error));
    address_space().saturating_sub(before)
}

#[test]
fn what_is_refused_leaves_no_address_space_behind() {
    let before = address_space();
    // SAFETY: only address space beyond what there is now is refused.
    let limited = |beyond: usize| unsafe {
        let most = (before + beyond) as u64;
        let limit = libc::rlimit { rlim_cur: most, rlim_max: libc::RLIM_INFINITY };
        assert_eq!(libc::setrlimit(libc::RLIMIT_AS, &limit), 0);
    };
    // What is reserved takes addresses for itself and little more, and not for all of this machine's memory.
    limited(256 * MIB);
    let ready = faultless::reserve(4 * MIB).unwrap().wait().unwrap();
    assert!(ready == faultless::reserved() && ready <= 4 * MIB, "{ready} {}", faultless::reserved());
    assert!(address_space() < before + 192 * MIB, "{} bytes", address_space() - before);
    // Where there are none, it ends early, and leaves none behind when it is given back.
    let all = faultless::reserve(1 << 40).unwrap().wait().unwrap();
    assert!(all < 256 * MIB && faultless::release_reserved() >= all);
    assert!(address_space() < before + 192 * MIB, "{} bytes", address_space() - before);
    limited(1 << 40);
    let many = || Region::builder(MIB).delivery(Delivery::Direct).areas(usize::MAX).build().err().unwrap();
    let left = left_behind(many, Error::NoAddressSpace);
    assert!(left < 4 * MIB, "{left} bytes by regions of too many areas");
}
