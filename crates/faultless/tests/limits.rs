//! Limits of the process: what was asked for comes all the same where plain memory would, or an error says what to do.

mod apart;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

use apart::passes_apart;
use faultless::region::{Advice, Backing, Builder, Delivery, Error, Heap, Region};
use faultless_testkit::limit::limit;

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

/// Sets what the process may have for the time being; what it might have before.
fn lower(resource: libc::__rlimit_resource_t, value: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a limit of this process, which is a test's own.
    unsafe {
        assert_eq!(libc::getrlimit(resource, &mut limit), 0);
        let before = std::mem::replace(&mut limit.rlim_cur, value);
        assert_eq!(libc::setrlimit(resource, &limit), 0);
        before
    }
}

/// A move that is refused changes nothing: where it was to go stays the region's.
#[test]
fn a_move_without_addresses_leaves_no_hole() {
    const BYTES: usize = 64 * MIB;
    for delivery in [Delivery::Thread, Delivery::Signal, Delivery::Kernel, Delivery::Direct] {
        passes_apart(|| {
            let region = match Region::builder(BYTES).delivery(delivery).build() {
                Ok(region) => region,
                Err(Error::NoUserfaultfd(error)) => return faultless_testkit::skip(format_args!("error {error}")),
                Err(error) => panic!("{delivery:?}: {error}"),
            };
            let at = |at: usize| region.as_ptr().wrapping_add(at);
            // SAFETY: mapped for writing.
            unsafe { at(5 * MIB).write_volatile(7) };
            region.unmap(BYTES / 2..BYTES).unwrap();
            let before = lower(libc::RLIMIT_AS, MIB as u64);
            let refused = region.remap(0..16 * MIB, BYTES / 2);
            lower(libc::RLIMIT_AS, before);
            assert_eq!(refused, Err(Error::Kernel(libc::ENOMEM)), "{delivery:?}");
            for _ in 0..BYTES / MIB {
                // SAFETY: a new mapping.
                let other = unsafe {
                    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                    libc::mmap(std::ptr::null_mut(), 2 * MIB, libc::PROT_READ, flags, -1, 0).cast::<u8>()
                };
                assert!(!(at(0).cast_const()..at(BYTES)).contains(&other.cast_const()), "{delivery:?}");
            }
            region.remap(0..16 * MIB, BYTES / 2).unwrap();
            // SAFETY: moved there.
            assert_eq!(unsafe { at(BYTES / 2 + 5 * MIB).read_volatile() }, 7);
        });
    }
}

/// Where there are addresses for a part of what moves, it moves in parts.
#[test]
fn a_move_takes_few_addresses() {
    passes_apart(|| {
        let region = Region::builder(64 * MIB).delivery(Delivery::Kernel).build().unwrap();
        use_it(&region);
        region.unmap(32 * MIB..64 * MIB).unwrap();
        set(libc::RLIMIT_AS, addresses() + 5 * MIB);
        region.remap(0..32 * MIB, 32 * MIB).unwrap();
        // SAFETY: moved there.
        assert!((32 * MIB..64 * MIB).step_by(PAGE).all(|at| unsafe { *region.as_ptr().add(at) } == 1));
    });
}

struct Nines;

impl Backing for Nines {
    fn read(&self, _: u64, buffer: &mut [u8]) -> Result<(), i32> {
        buffer.fill(9);
        Ok(())
    }
}

type Choice = fn(Builder) -> Builder;

/// With thread delivery; `None` where such a region cannot be made.
fn by_thread(choose: Choice) -> Option<Region> {
    match choose(Region::builder(4 * MIB).delivery(Delivery::Thread)).build() {
        Ok(region) => Some(region),
        Err(error @ (Error::NoUserfaultfd(_) | Error::NoEvents(_))) => {
            faultless_testkit::skip(format_args!("{error}"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The kernel refuses to poll more descriptors than a process may have, also those that are open.
#[test]
fn handlers_go_on_where_no_descriptor_may_be_had() {
    let choices: [(Choice, u8); 4] = [
        (|builder| builder, 0),
        (|builder| builder.backing(Nines), 9),
        (|builder| builder.backing(Nines).handlers(3), 9),
        (|builder| builder.backing(Nines).events(true), 9),
    ];
    for most in [0, 1, 2] {
        for (i, (choose, fresh)) in choices.into_iter().enumerate() {
            passes_apart(|| {
                let Some(region) = by_thread(choose) else { return };
                let snapshot = (i == 0).then(|| region.snapshot().ok()).flatten();
                lower(libc::RLIMIT_NOFILE, most);
                for at in (0..4 * MIB).step_by(PAGE) {
                    // SAFETY: mapped for writing.
                    let was = unsafe {
                        let at = region.as_ptr().add(at);
                        let was = at.read_volatile();
                        at.write_volatile(1);
                        was
                    };
                    assert_eq!(was, fresh, "choice {i}, {most} descriptors");
                }
                if let Some(snapshot) = snapshot {
                    let mut bytes = vec![1; 4 * MIB];
                    snapshot.read_at(0, &mut bytes).unwrap();
                    assert!(bytes.iter().all(|byte| *byte == 0));
                }
                region.populate(0..4 * MIB).unwrap();
            });
        }
    }
}

/// What the kernel says of the handlers of this process, to be read again.
fn handlers() -> Vec<File> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let handlers = tasks.filter_map(|task| File::open(task.unwrap().path().join("stat")).ok());
    handlers.filter(|stat| state(stat).0.contains("(faultless-0)")).collect()
}

/// Its beginning, and whether the thread sleeps.
fn state(stat: &File) -> (String, bool) {
    let mut bytes = [0; 64];
    let n = stat.read_at(&mut bytes, 0).unwrap();
    let text = String::from_utf8_lossy(&bytes[..n]).into_owned();
    let sleeps = text.contains(") S");
    (text, sleeps)
}

/// A handler that may not poll all its regions sleeps until there is something to do.
#[test]
fn a_handler_does_not_spin_where_it_may_not_poll() {
    const IN_A_ROW: usize = 1000;
    passes_apart(|| {
        let regions: Vec<_> = (0..20).map_while(|_| by_thread(|builder| builder)).collect();
        let handlers = handlers();
        assert!(regions.is_empty() || !handlers.is_empty());
        lower(libc::RLIMIT_NOFILE, 3);
        // Each of them looks once, and then it may not.
        regions.iter().for_each(use_it);
        let mut asleep = 0;
        while asleep < IN_A_ROW {
            asleep = if handlers.iter().all(|stat| state(stat).1) { asleep + 1 } else { 0 };
        }
        regions.iter().for_each(|region| region.advise(0..4 * MIB, Advice::DontNeed).unwrap());
        regions.iter().for_each(use_it);
    });
}

/// Says to this test program, run again, that it is to do it.
const LOWERED: &str = "FAULTLESS_TEST_LOWERED";

/// The threads of a region have what they need when it is there, whether they have begun or not. In a process of its
/// own: a forked one has memory of the C library that other threads have left.
#[test]
fn a_limit_that_is_lowered_at_once_ends_no_thread() {
    const TIMES: usize = 10;
    if let Ok(resource) = std::env::var(LOWERED) {
        return with_lowered_limit(resource.parse().unwrap());
    }
    limit();
    for resource in [libc::RLIMIT_AS, libc::RLIMIT_DATA] {
        for _ in 0..TIMES {
            let again = std::env::current_exe().unwrap();
            let args = ["--exact", "a_limit_that_is_lowered_at_once_ends_no_thread", "--nocapture"];
            let ended = Command::new(again).args(args).env(LOWERED, resource.to_string()).output().unwrap();
            assert!(ended.status.success(), "{}, {}", ended.status, String::from_utf8_lossy(&ended.stderr));
        }
    }
}

fn with_lowered_limit(resource: libc::__rlimit_resource_t) {
    let Some(region) = by_thread(|builder| builder.windows(PAGE, PAGE)) else { return };
    let before = lower(resource, MIB as u64);
    use_it(&region);
    lower(resource, before);
}
