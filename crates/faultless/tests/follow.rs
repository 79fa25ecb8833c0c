//! A handler runs where the thread runs that it serves, as long as that goes on. A program of its own: there is one
//! handler of each name.

use std::fs;
use std::thread;

use faultless::region::{Error, Region, Swap, SwapStore};
use faultless_testkit::limit::limit;
use faultless_testkit::rng::Rng;
use faultless_testkit::{skip, skip_optional};

const PAGE: usize = 4096;
const BUDGET: usize = 4 << 20;
const LENGTH: usize = 4 * BUDGET;
/// Pages that are touched until a handler follows. It does not where more threads run than there are processors.
const MOST: usize = 20_000;

/// The number of the thread that has this name.
fn thread_named(name: &str) -> i32 {
    let mut tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap());
    let is_it = |task: &fs::DirEntry| fs::read_to_string(task.path().join("comm")).unwrap().trim() == name;
    tasks.find(is_it).unwrap().file_name().into_string().unwrap().parse().unwrap()
}

/// The processors that a thread may use; 0: this one.
fn cpus(thread: i32) -> Vec<usize> {
    // SAFETY: a set to write to, and questions about it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(thread, size_of_val(&set), &mut set), 0);
        (0..libc::CPU_SETSIZE as usize).filter(|cpu| libc::CPU_ISSET(*cpu, &set)).collect()
    }
}

/// Reads a word of any page, of which the first says which page it is.
fn touch(region: &Region, rng: &mut Rng) {
    let page = rng.below(LENGTH / PAGE);
    // SAFETY: mapped, and no thread writes.
    let word = unsafe { region.as_ptr().add(page * PAGE).cast::<usize>().read_volatile() };
    assert_eq!(word, page + 1);
}

fn fill(region: &Region) {
    for page in 0..LENGTH / PAGE {
        // SAFETY: mapped, and no other thread uses it.
        unsafe { region.as_ptr().add(page * PAGE).cast::<usize>().write(page + 1) };
    }
}

struct Nowhere;

impl SwapStore for Nowhere {
    fn write(&self, _offset: u64, _bytes: &[u8]) -> Result<(), i32> {
        Ok(())
    }
    fn read(&self, _offset: u64, _buffer: &mut [u8]) -> Result<(), i32> {
        Err(libc::EIO)
    }
}

#[test]
fn a_handler_follows_one_thread_while_that_faults() {
    limit();
    let all = cpus(0);
    if all.len() == 1 {
        return skip("one processor");
    }
    let directory = tempfile::tempdir().unwrap();
    let region = match Region::builder(LENGTH).swap(Swap::new(BUDGET).directory(directory.path())).build() {
        Ok(region) => region,
        Err(error @ (Error::NoUserfaultfd(_) | Error::NoSwap(_))) => return skip(error),
        Err(error) => panic!("{error}"),
    };
    fill(&region);
    let [first, second] = ["faultless-0", "faultless-1"].map(thread_named);
    let mut rng = Rng::new(1);
    for _ in 0..2 {
        let mut touches = 0;
        while cpus(first).len() > 1 {
            touch(&region, &mut rng);
            touches += 1;
            if touches > MOST {
                return skip_optional("other programs have the processors");
            }
        }
        assert!(all.contains(&cpus(first)[0]));
        assert_eq!(cpus(second), all, "the other one serves wherever it can");
        // No faults come any more.
        while cpus(first) != all {
            thread::yield_now();
        }
    }
    // Two threads are not followed, and all they read is right.
    thread::scope(|scope| {
        for seed in 0..2 {
            let (region, mut rng) = (&region, Rng::new(seed));
            scope.spawn(move || (0..10_000).for_each(|_| touch(region, &mut rng)));
        }
    });
    assert_eq!(cpus(0), all, "the program's threads are left alone");
    drop(region);
    // Code of the program's may run in a handler here, and start threads there.
    let region = Region::builder(LENGTH).swap(Swap::new(BUDGET).store(Nowhere)).build().unwrap();
    let handler = thread_named("faultless-0");
    for _ in 0..BUDGET / PAGE / 2 {
        let page = rng.below(LENGTH / PAGE);
        // SAFETY: mapped, and no other thread uses it.
        unsafe { region.as_ptr().add(page * PAGE).write(1) };
        assert_eq!(cpus(handler), all);
    }
}
