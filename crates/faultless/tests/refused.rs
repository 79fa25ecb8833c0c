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

/// As many areas as the kernel lets a process have, but for a few.
fn with_all_areas(then: impl FnOnce()) {
    let most = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
    let most = most.trim().parse::<usize>().unwrap();
    // Each takes memory of the kernel's.
    if most > 1 << 20 {
        return;
    }
    let (protected, pages) = ([libc::PROT_NONE, libc::PROT_READ], most + 1000);
    // SAFETY: new memory, the pages of which become areas of their own.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let at = libc::mmap(std::ptr::null_mut(), pages * 4096, protected[0], flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        let protect = |page: usize, n: usize| libc::mprotect(at.byte_add(page * 4096), 4096, protected[n]);
        let refused = (1..pages).step_by(2).find(|page| protect(*page, 1) != 0).unwrap();
        // What the test itself needs.
        for page in (refused.saturating_sub(400)..refused).filter(|page| page % 2 == 1) {
            assert_eq!(protect(page, 0), 0);
        }
        then();
        libc::munmap(at, pages * 4096);
    }
}

/// The limit that is named is one that there is.
fn names_limits(limited: impl Fn(usize)) {
    let says = |limit: &str| {
        for text in [Error::NoAddressSpace.to_string(), faultless::Error::NoAddressSpace.to_string()] {
            assert!(text.ends_with(limit), "{text}");
        }
        assert_eq!(Error::NoThread.to_string().contains(limit), limit != "less", "{limit}");
    };
    says("less");
    with_all_areas(|| says("vm.max_map_count"));
    says("less");
    limited(1 << 40);
    says("`ulimit -v`");
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
    names_limits(limited);
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
