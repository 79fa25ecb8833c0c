//! What regions take of a process's addresses, which count where a program locks all of its memory, or has a limit.

mod apart;

use apart::passes_apart;
use faultless::region::{Advice, Delivery, Error, Region};

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;
/// A piece of the pool, of which each processor that serves faults begins one.
const PIECE: usize = 32 * MIB;

/// What a region of some MiB may take beside itself: its own memory locked, stacks of threads, pieces of the pool.
fn beside() -> usize {
    96 * MIB + std::thread::available_parallelism().unwrap().get() * PIECE
}

fn status(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap().trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

fn region(delivery: Delivery) -> Option<Region> {
    match Region::builder(64 * MIB).delivery(delivery).build() {
        Ok(region) => Some(region),
        Err(Error::NoUserfaultfd(error)) => {
            faultless_testkit::skip(format_args!("{delivery:?}, error {error}"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// As [`passes_apart`], where threads of the library cost no more of malloc than their stacks.
fn passes(test: impl FnOnce()) {
    passes_apart(|| {
        // SAFETY: an option of malloc, set before there are threads.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
        test();
    });
}

fn use_it(region: &mut Region) {
    let bytes = region.as_mut_slice().unwrap();
    for page in bytes.chunks_mut(PAGE) {
        assert!(page.iter().all(|byte| *byte == 0));
        page.fill(1);
    }
    region.advise(0..64 * MIB, Advice::DontNeed).unwrap();
    assert!(region.as_mut_slice().unwrap().iter().all(|byte| *byte == 0));
}

/// Whether this process may lock as much as it wants.
fn lock(flags: i32) -> bool {
    // SAFETY: this process's own memory.
    let locked = unsafe { libc::mlockall(flags) } == 0;
    if !locked {
        faultless_testkit::skip(format_args!("{}", std::io::Error::last_os_error()));
    }
    locked
}

#[test]
fn a_program_that_locks_its_memory_locks_what_it_has() {
    for delivery in [Delivery::Thread, Delivery::Signal] {
        passes(|| {
            let Some(mut region) = region(delivery) else { return };
            use_it(&mut region);
            let before = status("VmRSS");
            if lock(libc::MCL_CURRENT) {
                let more = status("VmRSS").saturating_sub(before);
                assert!(more < beside(), "{} MiB more, of which 64 are the region's", more >> 20);
                use_it(&mut region);
            }
        });
    }
}

/// Memory that is locked as soon as there is some can be made ready, dropped and made ready again.
#[test]
fn memory_is_had_and_given_back_where_all_is_locked() {
    for flags in [libc::MCL_CURRENT | libc::MCL_FUTURE, libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT] {
        passes_apart(|| {
            if !lock(flags) {
                return;
            }
            for zeroed in [true, false] {
                let mut first = None;
                for _ in 0..3 {
                    let ready = faultless::reserve(8 * MIB).unwrap().wait().unwrap();
                    assert_eq!(ready, *first.get_or_insert(ready), "places are as good as new");
                    // Others may have been made beside, for a stream that has ended since.
                    assert!(faultless::release_reserved() >= ready);
                }
                for delivery in [Delivery::Thread, Delivery::Signal] {
                    let builder = Region::builder(64 * MIB).delivery(delivery).zeroed(zeroed);
                    let Ok(mut region) = builder.build() else { continue };
                    for _ in 0..3 {
                        region.as_mut_slice().unwrap().fill(1);
                        region.advise(0..64 * MIB, Advice::DontNeed).unwrap();
                    }
                    drop(region);
                }
                faultless::release_reserved();
            }
            let locked = status("VmLck");
            assert!(locked < 4 * beside(), "{} MiB are locked", locked >> 20);
        });
    }
}

/// The memory for the copies of a snapshot is as long as the region, and comes page by page.
#[test]
fn a_snapshot_takes_no_memory_at_once_where_all_is_locked() {
    passes_apart(|| {
        if !lock(libc::MCL_CURRENT | libc::MCL_FUTURE) {
            return;
        }
        let Some(mut region) = region(Delivery::Thread) else { return };
        region.as_mut_slice().unwrap()[..PAGE].fill(1);
        let before = status("VmRSS");
        let snapshot = match region.snapshot() {
            Ok(snapshot) => snapshot,
            Err(Error::NoSnapshots(why)) => return faultless_testkit::skip(why),
            Err(error) => panic!("{error}"),
        };
        // A handler of its own comes with it.
        let more = status("VmRSS").saturating_sub(before);
        assert!(more < 40 * MIB, "{} MiB", more >> 20);
        region.as_mut_slice().unwrap()[..PAGE].fill(2);
        let mut bytes = [0; PAGE];
        snapshot.read_at(0, &mut bytes).unwrap();
        assert_eq!((bytes, snapshot.held()), ([1; PAGE], PAGE));
    });
}

#[test]
fn a_limit_of_addresses_is_not_used_up() {
    passes(|| {
        let before = status("VmSize");
        for delivery in [Delivery::Thread, Delivery::Signal] {
            let Some(mut region) = region(delivery) else { return };
            use_it(&mut region);
            assert!(status("VmSize") < before + 64 * MIB + 2 * beside(), "{} MiB", status("VmSize") >> 20);
        }
    });
}

/// As any other memory, in a core dump is what is there.
#[test]
fn regions_are_in_core_dumps() {
    passes_apart(|| {
        let Some(region) = region(Delivery::Signal) else { return };
        let at = format!("{:x}-", region.as_ptr() as usize);
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines = maps.lines().skip_while(|line| !line.starts_with(&at));
        let flags = lines.find(|line| line.starts_with("VmFlags")).unwrap();
        assert!(!flags.split(' ').any(|flag| flag == "dd"), "{flags}");
    });
}
