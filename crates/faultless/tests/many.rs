//! Many regions at a time: they share handler threads, and end with an error that says what to do where descriptors
//! end.

mod apart;

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use apart::passes_apart;
use faultless::region::{Advice, Delivery, Error, Region};

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;
const HALF: usize = MIB / 2;
const MANY: usize = 300;
/// Shared handlers, each with a watchdog, and the thread that makes huge pages ready.
const THREADS: usize = 2 * 4 + 1;
/// A bell of each handler, and the process's own: the page tables, a device, the pool's.
const DESCRIPTORS: usize = 2 * 4 + 4;

fn count(dir: &str) -> usize {
    fs::read_dir(dir).unwrap().count()
}

fn build(delivery: Delivery, bytes: usize) -> Result<Region, Error> {
    Region::builder(bytes).delivery(delivery).build()
}

/// Each mode that can be made, in a process of its own.
fn each(test: impl Fn(Delivery)) {
    for delivery in [Delivery::Best, Delivery::Direct, Delivery::Thread, Delivery::Signal, Delivery::Kernel] {
        passes_apart(|| match build(delivery, 1) {
            Ok(_) => test(delivery),
            Err(Error::NoUserfaultfd(error)) => {
                faultless_testkit::skip(format_args!("{delivery:?}, error {error}"))
            }
            Err(error) => panic!("{delivery:?}: {error}"),
        });
    }
}

fn byte(region: &Region, at: usize) -> *mut u8 {
    assert!(at < region.len());
    region.as_ptr().wrapping_add(at)
}

#[test]
fn many_regions_need_few_threads() {
    each(|delivery| {
        let before = (count("/proc/self/task"), count("/proc/self/fd"));
        let mut regions: Vec<_> = (0..MANY).map(|_| build(delivery, 2 * MIB).unwrap()).collect();
        for round in 1..3 {
            std::thread::scope(|scope| {
                for part in regions.chunks(MANY.div_ceil(4)) {
                    scope.spawn(move || {
                        for region in part {
                            // SAFETY: the region's own, which one thread uses.
                            unsafe {
                                assert_eq!(*byte(region, round * HALF), 0, "{delivery:?}");
                                *byte(region, round * HALF) = round as u8;
                            }
                        }
                    });
                }
            });
            assert!(count("/proc/self/task") <= before.0 + THREADS, "{delivery:?}: {}", count("/proc/self/task"));
            let own = if delivery == Delivery::Direct || delivery == Delivery::Kernel { 0 } else { MANY };
            let open = count("/proc/self/fd");
            assert!(open <= before.1 + own + DESCRIPTORS, "{delivery:?}: {open}");
            // SAFETY: as above.
            assert!(regions.iter().all(|region| unsafe { *byte(region, round * HALF) } == round as u8));
            // Half of them are others in the next round.
            regions.truncate(MANY / 2);
            regions.iter().for_each(|region| region.advise(0..2 * MIB, Advice::DontNeed).unwrap());
            regions.extend((MANY / 2..MANY).map(|_| build(delivery, 2 * MIB).unwrap()));
        }
        drop(regions);
        // The thread that makes huge pages ready stays.
        assert!(count("/proc/self/task") <= before.0 + 1, "{delivery:?}");
    });
}

#[test]
fn regions_come_and_go_while_others_fault() {
    each(|delivery| {
        let (ended, faults) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut region = build(delivery, 16 * MIB).unwrap();
                    while !ended.load(Ordering::Relaxed) {
                        for at in (0..16 * MIB).step_by(33 * PAGE) {
                            assert_eq!(region.as_mut_slice().unwrap()[at], 0);
                            region.as_mut_slice().unwrap()[at] = 1;
                            faults.fetch_add(1, Ordering::Relaxed);
                        }
                        region.advise(0..16 * MIB, Advice::DontNeed).unwrap();
                    }
                });
            }
            for n in 0..100 {
                let mut regions: Vec<_> = (0..1 + n % 7).map(|_| build(delivery, 2 * MIB).unwrap()).collect();
                regions.iter_mut().for_each(|region| region.as_mut_slice().unwrap()[n * PAGE] = 7);
            }
            ended.store(true, Ordering::Relaxed);
        });
        assert!(faults.load(Ordering::Relaxed) > 0);
    });
}

#[test]
fn a_forked_child_has_handlers_of_its_own() {
    each(|delivery| {
        let _parent = (0..3).map(|_| build(delivery, 2 * MIB).unwrap()).collect::<Vec<_>>();
        passes_apart(|| {
            let mut own = (0..10).map(|_| build(delivery, 2 * MIB).unwrap()).collect::<Vec<_>>();
            own.iter_mut().for_each(|region| region.as_mut_slice().unwrap()[5] = 1);
        });
    });
}

#[test]
fn where_descriptors_end_the_error_says_so() {
    for delivery in [Delivery::Thread, Delivery::Signal] {
        passes_apart(|| {
            let limit = libc::rlimit { rlim_cur: 100, rlim_max: 100 };
            // SAFETY: this process's own limit.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
            let mut regions = Vec::new();
            let error = loop {
                match build(delivery, 2 * MIB) {
                    Ok(region) => regions.push(region),
                    Err(error) => break error,
                }
            };
            if regions.is_empty() {
                return faultless_testkit::skip(format_args!("{error}"));
            }
            assert!(regions.len() > 50 && matches!(error, Error::NoUserfaultfd(libc::EMFILE)), "{error}");
            assert!(error.to_string().contains("ulimit -n"), "{error}");
            regions.iter_mut().for_each(|region| region.as_mut_slice().unwrap()[5] = 1);
            regions.pop();
            build(delivery, 2 * MIB).unwrap();
        });
    }
}

/// A thread that changes one region, with a stack in another one that has the same handler.
#[test]
fn a_stack_may_be_memory_of_a_region() {
    const STACK: usize = 256 << 10;
    struct Shared {
        region: Region,
        pad: usize,
    }
    extern "C" fn change(shared: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: the starter of the thread waits for it.
        let shared = unsafe { &*shared.cast::<Shared>() };
        deep(shared.pad, &|| {
            shared.region.advise(0..MIB, Advice::DontNeed).unwrap();
            shared.region.populate(PAGE..3 * PAGE).unwrap();
            shared.region.unmap(0..PAGE).unwrap();
            shared.region.remap(PAGE..2 * PAGE, 0).unwrap();
            shared.region.map(PAGE..2 * PAGE, faultless::region::Rights::Write).unwrap();
            shared.region.protect(0..PAGE, faultless::region::Rights::Read).unwrap();
            shared.region.protect(0..PAGE, faultless::region::Rights::Write).unwrap();
        });
        std::ptr::null_mut()
    }
    /// Calls with more or less of the stack in use.
    #[inline(never)]
    fn deep(more: usize, then: &dyn Fn()) {
        let room = [0_u8; 64];
        std::hint::black_box(&room);
        if more > 0 {
            deep(more - 1, then)
        } else {
            then()
        }
        std::hint::black_box(&room);
    }
    passes_apart(|| {
        let mut all = Vec::new();
        for _ in 0..9 {
            match build(Delivery::Thread, 2 * MIB) {
                Ok(region) => all.push(region),
                Err(error) => return faultless_testkit::skip(format_args!("{error}")),
            }
        }
        // With up to four handlers, the first and the ninth have the same, or the first and one between.
        let stacks = all.split_off(1);
        let shared = Shared { region: all.remove(0), pad: 0 };
        faultless::region::set_speculative(false);
        let ended = AtomicBool::new(false);
        let shared = std::sync::Mutex::new(shared);
        let at = shared.lock().unwrap().region.as_ptr() as usize;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    for page in 0..64 {
                        // SAFETY: mapped; that it may be protected is another page's.
                        unsafe { ((at + MIB / 2 + page * PAGE) as *const u8).read_volatile() };
                    }
                }
            });
            for round in 0..400 {
                let mut shared = shared.lock().unwrap();
                shared.pad = round % 97;
                let stack = &stacks[round % stacks.len()];
                stack.advise(0..2 * MIB, Advice::DontNeed).unwrap();
                // SAFETY: a stack that no other thread uses, for a thread that is waited for.
                unsafe {
                    let (mut attributes, mut thread) = (std::mem::zeroed(), 0);
                    assert_eq!(libc::pthread_attr_init(&mut attributes), 0);
                    assert_eq!(libc::pthread_attr_setstack(&mut attributes, stack.as_ptr().cast(), STACK), 0);
                    let argument = (&raw mut *shared).cast();
                    assert_eq!(libc::pthread_create(&mut thread, &attributes, change, argument), 0);
                    assert_eq!(libc::pthread_join(thread, std::ptr::null_mut()), 0);
                }
            }
            ended.store(true, Ordering::Relaxed);
        });
    });
}
