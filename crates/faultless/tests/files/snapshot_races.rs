//! Snapshots of files while threads write, punch holes, sync and let pages go. A snapshot has the first steps of each
//! thread: all that were done before it, and none that began after it was there.

use std::collections::HashMap;
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use faultless::file::{CacheGroup, File, Snapshot};

use crate::chance::Chance;
use crate::lazy::{can_be_lazy, opened_writable};
use crate::{PAGE, SLOT, budget, named};

const THREADS: usize = 3;
const PAGES: usize = 4 * SLOT / PAGE;
const STEPS: usize = 200;
const SNAPSHOTS: usize = 8;
/// Pages that follow each other and are one thread's.
const TOGETHER: usize = 4;

/// What a page has: its first word, and all others.
type Words = [u64; 2];

/// A change of some pages at one moment. Without a second word the others stay.
struct Step {
    page: usize,
    pages: usize,
    words: (u64, Option<u64>),
}

/// What a thread has done to its own pages.
#[derive(Default)]
struct History {
    begun: Mutex<Vec<Step>>,
    done: AtomicUsize,
}

fn at_first(page: usize) -> Words {
    [page as u64 + 1, page as u64 + 1]
}

fn of(pages: &HashMap<usize, Words>, page: usize) -> Words {
    pages.get(&page).copied().unwrap_or_else(|| at_first(page))
}

fn apply(step: &Step, pages: &mut HashMap<usize, Words>) {
    for page in step.page..step.page + step.pages {
        let [_, others] = of(pages, page);
        pages.insert(page, [step.words.0, step.words.1.unwrap_or(others)]);
    }
}

fn own(thread: usize) -> impl Iterator<Item = usize> {
    (0..PAGES).filter(move |page| page / TOGETHER % THREADS == thread)
}

fn words_of(bytes: &[u8], page: usize) -> Words {
    let word = |i: usize| {
        let at = page * PAGE + i * 8;
        u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
    };
    let others = word(1);
    assert!((2..PAGE / 8).all(|i| word(i) == others), "page {page} is of two moments");
    [word(0), others]
}

impl History {
    /// Whether bytes have what its first steps did, of which there are `least` to `most`.
    fn has(&self, thread: usize, bytes: &[u8], least: usize, most: usize) -> bool {
        let begun = self.begun.lock().unwrap();
        let mut pages = HashMap::new();
        begun[..least].iter().for_each(|step| apply(step, &mut pages));
        let got: Vec<_> = own(thread).map(|page| (page, words_of(bytes, page))).collect();
        let is = |pages: &HashMap<usize, Words>| got.iter().all(|(page, words)| of(pages, *page) == *words);
        let mut more = begun[least..most].iter();
        loop {
            if is(&pages) {
                return true;
            }
            let Some(step) = more.next() else { return false };
            apply(step, &mut pages);
        }
    }
}

/// The first bytes of a lazy mapping of all of the file, if there is one.
#[derive(Clone, Copy)]
struct Mapped(Option<usize>);

impl Mapped {
    fn word(&self, page: usize) -> Option<&AtomicU64> {
        // SAFETY: the mapping is there for as long as the threads, and each page is one thread's.
        self.0.map(|at| unsafe { &*((at + page * PAGE) as *const AtomicU64) })
    }
}

/// What one thread does.
fn work(thread: usize, seed: u64, file: &File, mapped: Mapped, history: &History) {
    let mut chance = Chance(seed + 1);
    let blocks: Vec<usize> = own(thread).step_by(TOGETHER).collect();
    let mut now = HashMap::new();
    let step = |now: &mut HashMap<usize, Words>, step: Step, f: &dyn Fn()| {
        apply(&step, now);
        history.begun.lock().unwrap().push(step);
        f();
        history.done.fetch_add(1, Ordering::Release);
    };
    for n in 0..STEPS {
        let first = chance.below(TOGETHER);
        let page = blocks[chance.below(blocks.len())] + first;
        let pages = 1 + chance.below(TOGETHER - first);
        let value = ((thread as u64 + 1) << 32) + n as u64;
        let (at, bytes) = ((page * PAGE) as u64, pages * PAGE);
        match (chance.below(14), mapped.word(page)) {
            (0..=3, _) => step(&mut now, Step { page, pages, words: (value, Some(value)) }, &|| {
                let new = value.to_ne_bytes().repeat(bytes / 8);
                assert_eq!(file.write_at(&new, at).unwrap(), bytes);
            }),
            (4..=8, Some(word)) => step(&mut now, Step { page, pages: 1, words: (value, None) }, &|| {
                word.store(value, Ordering::Release);
            }),
            (9, _) => step(&mut now, Step { page, pages, words: (0, Some(0)) }, &|| {
                file.punch_hole(at..at + bytes as u64).unwrap();
            }),
            // A device takes its time.
            (10, _) if n % 4 == 0 => file.sync_range(at..at + SLOT as u64 / 2).unwrap(),
            (11, _) => _ = file.drop_range(at / SLOT as u64 * SLOT as u64..at + SLOT as u64),
            (12, Some(word)) => {
                let is = of(&now, page);
                assert_eq!(word.load(Ordering::Acquire), is[0], "page {page}, mapped");
            }
            _ => {
                let is = of(&now, page);
                let mut got = vec![0; PAGE];
                assert_eq!(file.read_at(&mut got, at).unwrap(), PAGE);
                assert_eq!(words_of(&got, 0), is, "page {page}, by a call");
            }
        }
    }
}

fn all_of(snapshot: &Snapshot) -> Vec<u8> {
    let mut bytes = vec![0; snapshot.len()];
    snapshot.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Threads at work, and snapshots meanwhile.
fn race(seed: u64, group: Option<usize>, is_small: bool, is_lazy: bool) {
    let first: Vec<u8> = (0..PAGES).flat_map(|page| at_first(page)[0].to_ne_bytes().repeat(PAGE / 8)).collect();
    let named = named(&first);
    let file = match group {
        Some(bytes) => {
            let open = fs::File::options().read(true).write(true).open(named.path()).unwrap();
            CacheGroup::new(bytes).unwrap().file(&open).unwrap()
        }
        None => opened_writable(&named, is_small),
    };
    if is_lazy && let Err(error) = file.allow_snapshots() {
        return faultless_testkit::skip(format!("no snapshots of lazy mappings: {error}"));
    }
    let mut mapping = is_lazy.then(|| file.map_lazy_mut(0, PAGES * PAGE).unwrap());
    let mapped = Mapped(mapping.as_mut().map(|mapping| mapping.as_mut_ptr() as usize));
    let histories: [History; THREADS] = std::array::from_fn(|_| History::default());
    let mut chance = Chance(seed * 91 + 5);
    thread::scope(|scope| {
        let threads: Vec<_> = histories
            .iter()
            .enumerate()
            .map(|(i, history)| {
                let file = &file;
                scope.spawn(move || work(i, seed * 7 + i as u64, file, mapped, history))
            })
            .collect();
        let mut held: Vec<(Snapshot, Vec<u8>)> = Vec::new();
        for round in 0..SNAPSHOTS {
            let done = || histories.iter().map(|history| history.done.load(Ordering::Acquire)).sum::<usize>();
            while done() < round * 10 && !threads.iter().all(|thread| thread.is_finished()) {
                thread::yield_now();
            }
            let least = histories.each_ref().map(|history| history.done.load(Ordering::Acquire));
            let snapshot = file.snapshot().unwrap();
            let most = histories.each_ref().map(|history| history.begun.lock().unwrap().len());
            let bytes = all_of(&snapshot);
            for (i, history) in histories.iter().enumerate() {
                let (least, most) = (least[i], most[i]);
                assert!(history.has(i, &bytes, least, most), "thread {i}, between steps {least} and {most}");
            }
            held.push((snapshot, bytes));
            if held.len() > 3 {
                held.swap_remove(chance.below(held.len()));
            }
            let (snapshot, was) = &held[chance.below(held.len())];
            assert!(all_of(snapshot) == *was, "a snapshot has changed");
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        while !held.is_empty() {
            held.iter().for_each(|(snapshot, was)| assert!(all_of(snapshot) == *was, "a snapshot has changed"));
            held.swap_remove(chance.below(held.len()));
        }
    });
    file.sync().unwrap();
    let bytes = fs::read(named.path()).unwrap();
    for (i, history) in histories.iter().enumerate() {
        let all = history.begun.lock().unwrap().len();
        assert!(history.has(i, &bytes, all, all), "what thread {i} has written");
    }
}

#[test]
fn a_snapshot_is_a_beginning_of_what_each_thread_does() {
    let _alone = budget(4 << 20);
    let is_lazy = can_be_lazy();
    race(1, None, false, is_lazy);
    race(2, None, true, is_lazy);
    race(3, None, false, false);
}

#[test]
fn the_same_of_a_file_of_which_a_group_has_little_in_memory() {
    let _alone = budget(64 << 20);
    let is_lazy = can_be_lazy();
    race(4, Some(3 << 20), false, is_lazy);
    race(5, Some(SLOT), false, false);
}

/// A writer makes the file longer, and then says so at its beginning. A snapshot has what its beginning speaks of.
#[test]
fn the_length_is_of_the_same_moment() {
    let named = named(&[0; 8]);
    let file = File::open_writable(named.path()).unwrap();
    let stop = AtomicUsize::new(0);
    thread::scope(|s| {
        s.spawn(|| {
            for n in 1u64.. {
                if stop.load(Ordering::Relaxed) != 0 {
                    break;
                }
                file.write_at(&n.to_ne_bytes(), 8 * n).unwrap();
                file.write_at(&n.to_ne_bytes(), 0).unwrap();
            }
        });
        for _ in 0..500 {
            let snapshot = file.snapshot().unwrap();
            let mut first = [0; 8];
            snapshot.read_at(0, &mut first).unwrap();
            let n = u64::from_ne_bytes(first) as usize;
            assert!(snapshot.len() >= 8 * (n + 1), "{n} in {}", snapshot.len());
            if n > 0 {
                snapshot.read_at(8 * n, &mut first).unwrap();
                assert_eq!(u64::from_ne_bytes(first) as usize, n);
            }
        }
        stop.store(1, Ordering::Relaxed);
    });
}
