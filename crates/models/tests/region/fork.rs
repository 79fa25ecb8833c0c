//! Forks beside faults and changes: what a child has is what its parent had at a moment of the fork, and stays so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::SeqCst};

use faultless_base::sys::mmu::Mmu;
use faultless_fake::mmu::{FakeMmu, Found, backing_byte};
use faultless_mm::region::area::Attributes;
use faultless_mm::region::change::Advice;
use shuttle::thread;

use super::{ATTRIBUTES, Memory, PAGE, Rights, access, chance, check, memory, page, region};

/// Pages that are written to, and that are moved.
const WRITTEN: usize = 10;
const MOVED: usize = 3;
/// Where those are at first.
const AWAY: usize = 40;
const ROUNDS: u8 = 2;

/// What was written to each page, before the write and after it.
#[derive(Default)]
struct Log {
    begun: [AtomicU8; WRITTEN],
    done: [AtomicU8; WRITTEN],
}

impl Log {
    fn now(which: &[AtomicU8; WRITTEN]) -> [u8; WRITTEN] {
        std::array::from_fn(|at| which[at].load(SeqCst))
    }
}

/// A region in a random mode, and a thread that reads its messages until it is told to end.
fn start() -> (Arc<Memory>, Arc<AtomicBool>, thread::JoinHandle<()>) {
    let mmu = if chance(2) == 1 { memory().with_messages() } else { memory() };
    let region = region(20, mmu);
    let end = Arc::new(AtomicBool::new(false));
    let reader = {
        let (region, end) = (region.clone(), end.clone());
        // It takes no lock that is held while a thread waits for it.
        thread::spawn(move || {
            while !end.load(SeqCst) {
                region.read_message();
            }
        })
    };
    (region, end, reader)
}

fn contents(child: &FakeMmu) -> Vec<Found> {
    (0..AWAY + 4 * MOVED).map(|at| child.content(page(at, 1).start)).collect()
}

/// Forks, and checks what the child has of the pages that are written to.
fn fork(region: &Memory, log: &Log, fresh: impl Fn(usize) -> u8) -> FakeMmu {
    let least = Log::now(&log.done);
    let child = region.fork();
    let most = Log::now(&log.begun);
    for at in 0..WRITTEN {
        let found = child.read(page(at, 1).start);
        let fits = match found {
            Found::Byte(byte) if byte == fresh(at) => least[at] == 0,
            Found::Byte(byte) => byte >= least[at].max(1) && byte <= most[at],
            Found::Missing => least[at] == 0,
            Found::Forbidden | Found::Poisoned => false,
        };
        assert!(fits, "{found:?} in page {at}, where {} to {} were written", least[at], most[at]);
    }
    child
}

/// Two threads fault and write while the process forks.
#[test]
fn forks_beside_faults() {
    check(|| {
        let (region, end, reader) = start();
        let backed = chance(2) == 1;
        // None of the bytes that are written.
        let fresh = move |at: usize| if backed { backing_byte((at + 100) * PAGE) } else { 0 };
        let attributes = Attributes { backed, huge: chance(2) == 1, ..ATTRIBUTES };
        region.map(page(0, 64), attributes, 100 * PAGE).unwrap();
        let log = Arc::new(Log::default());
        let walk = |id: usize| {
            let (region, log) = (region.clone(), log.clone());
            thread::spawn(move || {
                for round in 1..=ROUNDS {
                    for at in (id..WRITTEN).step_by(2) {
                        log.begun[at].store(round, SeqCst);
                        let before = access(&region, at, Some(round));
                        let expected = if round == 1 { fresh(at) } else { round - 1 };
                        assert_eq!(before, Some(expected), "page {at} before {round}");
                        log.done[at].store(round, SeqCst);
                    }
                }
            })
        };
        let threads = [walk(0), walk(1)];
        (0..chance(100)).for_each(|_| thread::yield_now());
        let child = fork(&region, &log, fresh);
        let seen = contents(&child);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(contents(&child), seen, "what the parent does later is not the child's");
        assert!((0..WRITTEN).all(|at| access(&region, at, None) == Some(ROUNDS)));
        assert_eq!(region.present_pages(), region.present(region.span()));
        end.store(true, SeqCst);
        reader.join().unwrap();
    });
}

/// While one thread forks, another one moves pages, takes their rights and drops others, with locks that faults wait
/// for.
#[test]
fn forks_beside_changes() {
    check(|| {
        let (region, end, reader) = start();
        region.map(page(0, 64), ATTRIBUTES, 0).unwrap();
        let free = page(AWAY + MOVED, MOVED);
        region.unmap(free).unwrap();
        for i in 0..MOVED {
            assert_eq!(access(&region, AWAY + i, Some(i as u8 + 1)), Some(0));
        }
        let changing = {
            let region = region.clone();
            thread::spawn(move || {
                region.advise(page(0, 4), Advice::DontNeed).unwrap();
                region.remap(page(AWAY, MOVED), free.start).unwrap();
                region.protect(page(4, 2), Rights::Read).unwrap();
            })
        };
        let faulting = {
            let region = region.clone();
            thread::spawn(move || (0..4).for_each(|at| assert!(matches!(access(&region, at, Some(7)), Some(0)))))
        };
        (0..chance(60)).for_each(|_| thread::yield_now());
        let child = region.fork();
        let at = |at: usize| child.content(page(at, 1).start);
        for i in 0..MOVED {
            let byte = Found::Byte(i as u8 + 1);
            let found = [at(AWAY + i), at(AWAY + MOVED + i)];
            let once = [[byte, Found::Missing], [Found::Missing, byte]];
            assert!(once.contains(&found), "{found:?} where page {i} was and is");
            assert_eq!(found[0] == byte, at(AWAY) != Found::Missing, "one page moved, another one not");
        }
        assert_eq!(child.rights(page(4, 1).start), child.rights(page(5, 1).start));
        let seen = contents(&child);
        changing.join().unwrap();
        faulting.join().unwrap();
        assert_eq!(contents(&child), seen);
        assert!((0..MOVED).all(|i| access(&region, AWAY + MOVED + i, None) == Some(i as u8 + 1)));
        region.areas().check();
        assert_eq!(region.present_pages(), region.present(region.span()));
        end.store(true, SeqCst);
        reader.join().unwrap();
    });
}
