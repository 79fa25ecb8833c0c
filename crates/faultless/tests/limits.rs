//! Limits of the process: what was asked for comes all the same where plain memory would, or an error says what to do.

mod apart;

use std::fs;

use apart::passes_apart;
use faultless::region::{Delivery, Error, Heap, Region};

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;

fn set(resource: libc::__rlimit_resource_t, value: usize) {
    let limit = libc::rlimit { rlim_cur: value as u64, rlim_max: value as u64 };
    // SAFETY: a limit of this process, which is a test's own.
    assert_eq!(unsafe { libc::setrlimit(resource, &limit) }, 0);
}

fn count(dir: &str) -> usize {
    fs::read_dir(dir).unwrap().count()
}

/// Bytes of addresses that the process has.
fn addresses() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').next().unwrap().parse::<usize>().unwrap() * PAGE
}

fn use_it(region: &Region) {
    for at in (0..region.len()).step_by(PAGE) {
        // SAFETY: mapped for writing.
        unsafe { region.as_ptr().add(at).write_volatile(1) };
    }
}

/// Without descriptors for a handler, the kernel's own faults serve as well.
#[test]
fn best_needs_no_descriptor() {
    for more in 0..6 {
        passes_apart(|| {
            // Reading the directory takes one.
            let open = count("/proc/self/fd") - 1;
            set(libc::RLIMIT_NOFILE, open + more);
            let region = Region::anonymous(4 * MIB).unwrap();
            use_it(&region);
            assert!(region.serves_system_calls());
            for delivery in [Delivery::Thread, Delivery::Signal] {
                match Region::builder(4 * MIB).delivery(delivery).build() {
                    Ok(region) => use_it(&region),
                    Err(Error::NoUserfaultfd(_)) => {}
                    Err(error) => panic!("{delivery:?}: {error}"),
                }
            }
        });
    }
}

/// Neither threads nor reservations take addresses that the program may want itself.
#[test]
fn a_limit_of_addresses_or_data_is_left_to_the_program() {
    for resource in [libc::RLIMIT_AS, libc::RLIMIT_DATA] {
        passes_apart(|| {
            let before = addresses();
            set(resource, before + 1000 * MIB);
            let threads = count("/proc/self/task");
            let heap = Heap::lasting(|builder| builder);
            let region = Region::anonymous(4 * MIB).unwrap();
            let blocks: Vec<_> = (0..20).map(|_| heap.allocate(8 * MIB).unwrap()).collect();
            use_it(&region);
            assert!(blocks.iter().all(|block| block.delivery() == Delivery::Kernel));
            assert_eq!((region.delivery(), count("/proc/self/task")), (Delivery::Kernel, threads));
            let taken = addresses() - before;
            assert!(taken < 164 * MIB + 100 * MIB, "{} MiB", taken / MIB);
        });
    }
}

/// Wherever memory ends, that is an error, and later there is memory again.
#[test]
fn a_lack_of_addresses_is_an_error() {
    for delivery in [Delivery::Best, Delivery::Thread, Delivery::Signal, Delivery::Kernel, Delivery::Direct] {
        for more in (0..40 * MIB).step_by(MIB + 20 * PAGE) {
            passes_apart(|| {
                let build = || Region::builder(16 * MIB).delivery(delivery).build();
                set(libc::RLIMIT_AS, addresses() + more);
                for _ in 0..3 {
                    match build() {
                        Ok(region) => use_it(&region),
                        Err(
                            Error::NoAddressSpace
                            | Error::NoThread
                            | Error::NoUserfaultfd(_)
                            | Error::Kernel(libc::ENOMEM),
                        ) => {}
                        Err(error) => panic!("{delivery:?}, {more} bytes: {error}"),
                    }
                }
            });
        }
    }
}

/// A user who may have no more threads is told so, and nothing is left open.
#[test]
fn a_lack_of_threads_is_an_error() {
    // SAFETY: a question.
    if unsafe { libc::geteuid() } != 0 {
        return faultless_testkit::skip("only root becomes another user");
    }
    passes_apart(|| {
        // SAFETY: this process is the test's own.
        unsafe {
            assert_eq!(libc::setgid(65534), 0);
            assert_eq!(libc::setuid(65534), 0);
        }
        set(libc::RLIMIT_NPROC, 0);
        use_it(&Region::anonymous(4 * MIB).unwrap());
        let open = count("/proc/self/fd");
        for _ in 0..3 {
            match Region::builder(4 * MIB).delivery(Delivery::Thread).build() {
                Err(Error::NoThread | Error::NoUserfaultfd(_)) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(count("/proc/self/fd"), open);
    });
}
