//! Regions that are larger than their memory, on the kernel's memory: random operations of several threads, and stores
//! that fail or lie.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::thread;

use faultless::region::{Advice, Backing, Builder, Delivery, Error, Region, Rights, Swap, SwapStore};
use faultless_page::stats::Counter;
use faultless_testkit::limit::limit;
use faultless_testkit::rng::Rng;

const PAGE: usize = 4096;
const SLOT: usize = 2 << 20;
const BUDGET: usize = 4 << 20;
const LENGTH: usize = 4 * BUDGET;
/// The largest window of a fault.
const WINDOW: usize = 256 << 10;

/// A region with a store, where the machine allows one.
fn build(builder: Builder) -> Option<Region> {
    match builder.build() {
        Ok(region) => Some(region),
        Err(error @ (Error::NoUserfaultfd(_) | Error::NoSwap(_))) => {
            faultless_testkit::skip(error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[expect(clippy::mut_from_ref, reason = "the memory is not the value's")]
fn part(region: &Region, range: Range<usize>) -> &mut [u8] {
    // SAFETY: mapped for writing whenever it is used, by the thread alone that has this part.
    unsafe { std::slice::from_raw_parts_mut(region.as_ptr().add(range.start), range.len()) }
}

/// What is resident of the region, by the kernel's own account.
fn resident(region: &Region) -> usize {
    let mut pages = vec![0_u8; region.len() / PAGE];
    // SAFETY: a question about the region, and room for the answer.
    assert_eq!(unsafe { libc::mincore(region.as_ptr().cast(), region.len(), pages.as_mut_ptr()) }, 0);
    pages.iter().filter(|page| **page & 1 != 0).count() * PAGE
}

/// One thread's random operations on a part of it, beside the same on plain memory.
fn work(region: &Region, own: Range<usize>, plain: &mut [u8], rng: &mut Rng) {
    for _ in 0..120 {
        let at = rng.below(own.len());
        let most = rng.of(&[1, 100, 3 * PAGE, SLOT]);
        let n = 1 + rng.below((own.len() - at).min(most));
        let pages = at / PAGE * PAGE..(at + n).next_multiple_of(PAGE);
        let there = |range: Range<usize>| own.start + range.start..own.start + range.end;
        match rng.below(12) {
            0 => {
                region.advise(there(pages.clone()), Advice::DontNeed).unwrap();
                plain[pages].fill(0);
            }
            1 => {
                region.unmap(there(pages.clone())).unwrap();
                region.map(there(pages.clone()), Rights::Write).unwrap();
                plain[pages].fill(0);
            }
            2 => {
                region.protect(there(pages.clone()), Rights::Read).unwrap();
                assert!(part(region, there(at..at + n)) == &plain[at..at + n]);
                region.protect(there(pages), Rights::Write).unwrap();
            }
            3 => region.populate(there(pages)).unwrap(),
            4..=7 => assert!(part(region, there(at..at + n)) == &plain[at..at + n], "{at:#x} and {n} bytes"),
            _ => {
                let byte = rng.word() as u8;
                part(region, there(at..at + n)).fill(byte);
                plain[at..at + n].fill(byte);
            }
        }
        // A fault, or what populates, goes on where others have all that could go in hand for too long.
        assert!(region.in_memory() <= BUDGET + 2 * 64 * PAGE, "{} bytes", region.in_memory());
    }
}

fn work_in_two_threads(region: &Region, seed: u64) {
    let mut plain = vec![0; LENGTH];
    let (first, second) = plain.split_at_mut(LENGTH / 2);
    thread::scope(|scope| {
        for (half, plain) in [first, second].into_iter().enumerate() {
            let own = half * LENGTH / 2..(half + 1) * LENGTH / 2;
            scope.spawn(move || work(region, own, plain, &mut Rng::new(seed + half as u64)));
        }
    });
    assert!(part(region, 0..LENGTH) == plain);
    assert!(resident(region) <= region.in_memory());
}

#[test]
fn bytes_come_back_as_they_were() {
    limit();
    let directory = tempfile::tempdir().unwrap();
    for handlers in [1, 2] {
        let swap = Swap::new(BUDGET).directory(directory.path());
        let Some(region) = build(Region::builder(LENGTH).most_window(WINDOW).handlers(handlers).swap(swap)) else {
            return;
        };
        work_in_two_threads(&region, handlers as u64);
        let count = |counter| region.own_count(counter).unwrap();
        assert!(count(Counter::SwapOut) > 0 && count(Counter::SwapIn) > 0);
        assert_eq!(count(Counter::SwapErrors) + count(Counter::SwapCorrupt), 0);
        assert!((BUDGET..=LENGTH).contains(&region.working_set()));
    }
    // The file has no name.
    assert_eq!(directory.path().read_dir().unwrap().count(), 0);
}

/// A store in memory, which fails and lies when it is told.
#[derive(Default)]
struct Store {
    pages: Mutex<HashMap<u64, Vec<u8>>>,
    /// The next writes fail with this error.
    full: AtomicI32,
    broken: AtomicI32,
    /// Reads of the page at this offset bring one wrong bit; 0: none.
    lies_at: AtomicUsize,
    /// Pages that were written as they were there already.
    again: AtomicUsize,
}

impl SwapStore for &'static Store {
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), i32> {
        let full = self.full.load(Ordering::Relaxed);
        let mut pages = self.pages.lock().unwrap();
        if full != 0 {
            // It has neither the old bytes nor the new.
            let range = offset..offset + bytes.len() as u64;
            pages.iter_mut().filter(|(at, _)| range.contains(at)).for_each(|(_, page)| page[99] ^= 1);
            return Err(full);
        }
        for (i, page) in bytes.chunks(PAGE).enumerate() {
            let before = pages.insert(offset + (i * PAGE) as u64, page.to_vec());
            self.again.fetch_add((before.as_deref() == Some(page)) as usize, Ordering::Relaxed);
        }
        Ok(())
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), i32> {
        let broken = self.broken.load(Ordering::Relaxed);
        if broken != 0 {
            return Err(broken);
        }
        let pages = self.pages.lock().unwrap();
        for (i, page) in buffer.chunks_mut(PAGE).enumerate() {
            let at = offset + (i * PAGE) as u64;
            page.copy_from_slice(&pages[&at]);
            page[1234] ^= (at == self.lies_at.load(Ordering::Relaxed) as u64 && at != 0) as u8;
        }
        Ok(())
    }

    fn forget(&self, offset: u64, bytes: u64) {
        self.pages.lock().unwrap().retain(|at, _| !(offset..offset + bytes).contains(at));
    }
}

fn with_store() -> Option<(Region, &'static Store)> {
    let store: &'static Store = Box::leak(Box::default());
    Some((build(Region::builder(LENGTH).swap(Swap::new(BUDGET).store(store)))?, store))
}

#[test]
fn a_full_store_loses_nothing_and_goes_on_when_it_has_room() {
    limit();
    let Some((region, store)) = with_store() else { return };
    store.full.store(libc::ENOSPC, Ordering::Relaxed);
    let bytes = part(&region, 0..LENGTH);
    (0..LENGTH).step_by(PAGE).for_each(|at| bytes[at + 9] = (at / PAGE) as u8 | 1);
    assert!(region.own_count(Counter::SwapErrors) > Some(0));
    assert_eq!((region.in_memory(), store.pages.lock().unwrap().len()), (LENGTH, 0));
    store.full.store(0, Ordering::Relaxed);
    for _ in 0..3 {
        (0..LENGTH).step_by(PAGE).for_each(|at| assert_eq!(bytes[at + 9], (at / PAGE) as u8 | 1));
        region.populate(0..LENGTH).unwrap();
    }
    (0..200).for_each(|_| region.populate(0..PAGE).unwrap());
    assert!(region.in_memory() <= BUDGET, "{} bytes", region.in_memory());
    (0..LENGTH).step_by(PAGE).for_each(|at| assert_eq!(bytes[at + 9], (at / PAGE) as u8 | 1));
}

/// Counts in each page, by threads that read it before they write to it, while its pages go and come: no count is lost.
#[test]
fn pages_that_were_only_read_are_not_written_and_no_write_is_lost() {
    limit();
    const THREADS: usize = 3;
    let store: &'static Store = Box::leak(Box::default());
    let builder = || Region::builder(LENGTH).most_window(WINDOW).swap(Swap::new(BUDGET).store(store));
    let Some(region) = build(builder()) else { return };
    let pages = LENGTH / PAGE;
    let words = |page: usize| {
        // SAFETY: aligned words of the region, which are only used as these.
        unsafe { &*region.as_ptr().add(page * PAGE).cast::<[AtomicUsize; 2]>() }
    };
    (0..pages).for_each(|page| words(page)[1].store(page, Ordering::Relaxed));
    let count = |counter| region.own_count(counter).unwrap();
    let read_all = || (0..pages).for_each(|page| assert_eq!(words(page)[1].load(Ordering::Relaxed), page));
    // What was written before goes to the store once, in any round: reclaim passes over 2 MiB that another handler has in
    // hand, and comes there again in the next round.
    (0..3).for_each(|_| read_all());
    assert_eq!(store.again.load(Ordering::Relaxed), 0, "what was only read is written");
    assert!(count(Counter::SwapOut) as usize <= LENGTH, "pages are written twice");
    assert!(count(Counter::SwapClean) as usize > LENGTH);
    let counted: Vec<usize> = thread::scope(|scope| {
        let work = |seed: u64| {
            let (mut rng, mut done, words) = (Rng::new(seed), vec![0; pages], &words);
            scope.spawn(move || {
                for i in 0..12_000 {
                    // Few pages often, so that a write meets a page that is about to go.
                    let page = if i % 2 == 0 { rng.below(64) * 61 } else { rng.below(pages) };
                    assert_eq!(words(page)[1].load(Ordering::Relaxed), page);
                    if rng.below(2) == 0 {
                        words(page)[0].fetch_add(1, Ordering::Relaxed);
                        done[page] += 1;
                    }
                }
                done
            })
        };
        let threads: Vec<_> = (0..THREADS as u64).map(work).collect();
        let done: Vec<Vec<usize>> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        (0..pages).map(|page| done.iter().map(|done| done[page]).sum()).collect()
    });
    (0..pages).for_each(|page| assert_eq!(words(page)[0].load(Ordering::Relaxed), counted[page], "page {page}"));
    assert_eq!(count(Counter::SwapErrors) + count(Counter::SwapCorrupt), 0);
}

/// What the program drops by a call of its own is zero, also where the store has it.
#[test]
fn clean_pages_that_the_program_drops_itself_are_zero() {
    limit();
    let Some((region, _)) = with_store() else { return };
    part(&region, 0..LENGTH).fill(9);
    assert!(part(&region, 0..LENGTH).iter().all(|byte| *byte == 9));
    // The last that were read, which are there and clean.
    let last = LENGTH - 64 * PAGE..LENGTH;
    assert!(part(&region, last.clone()).iter().all(|byte| *byte == 9));
    let there = resident(&region);
    // SAFETY: memory of the region, whose content is not wanted any more.
    let dropped =
        unsafe { libc::madvise(region.as_ptr().add(last.start).cast(), last.len(), libc::MADV_DONTNEED) };
    assert_eq!(dropped, 0);
    assert_eq!(resident(&region), there - last.len());
    assert!(part(&region, last.clone()).iter().all(|byte| *byte == 0));
    part(&region, last.clone()).fill(8);
    for _ in 0..2 {
        assert!(part(&region, 0..last.start).iter().all(|byte| *byte == 9));
        assert!(part(&region, last.clone()).iter().all(|byte| *byte == 8));
    }
}

/// Pages that are only read stay, and go when they may be written to again: no fault has to come for that.
#[test]
fn what_could_not_go_goes_when_it_may() {
    limit();
    let Some((region, _)) = with_store() else { return };
    part(&region, 0..LENGTH).fill(3);
    let read_only = 0..LENGTH / 4 * 3;
    region.protect(read_only.clone(), Rights::Read).unwrap();
    assert!(part(&region, read_only.clone()).iter().all(|byte| *byte == 3));
    assert!(resident(&region) > BUDGET, "they went");
    region.protect(read_only, Rights::Write).unwrap();
    assert!(resident(&region) <= BUDGET, "{} KiB", resident(&region) >> 10);
    assert!(part(&region, 0..LENGTH).iter().all(|byte| *byte == 3));
}

/// Locked pages do not go, so more is there than the budget allows. No page waits long for room that does not come.
#[test]
fn more_than_the_budget_can_be_locked() {
    limit();
    let Some((region, _)) = with_store() else { return };
    part(&region, 0..LENGTH).fill(4);
    // SAFETY: mapped memory.
    if unsafe { libc::mlock(region.as_ptr().cast(), LENGTH) } != 0 {
        return faultless_testkit::skip("memory may not be locked");
    }
    assert!(part(&region, 0..LENGTH).iter().all(|byte| *byte == 4));
    // SAFETY: as above.
    assert_eq!(unsafe { libc::munlock(region.as_ptr().cast(), LENGTH) }, 0);
    part(&region, 0..LENGTH).fill(5);
    assert!(part(&region, 0..LENGTH).iter().all(|byte| *byte == 5));
}

#[test]
fn what_is_dropped_leaves_the_store() {
    limit();
    let Some((region, store)) = with_store() else { return };
    part(&region, 0..LENGTH).fill(7);
    assert!(!store.pages.lock().unwrap().is_empty());
    region.advise(0..LENGTH, Advice::DontNeed).unwrap();
    assert_eq!((region.in_memory(), store.pages.lock().unwrap().len()), (0, 0));
    assert!(part(&region, 0..LENGTH).iter().all(|byte| *byte == 0));
}

/// Runs `f` in a child; the signal that ended it.
fn signal_of_child(f: impl FnOnce()) -> Option<i32> {
    // SAFETY: the child only does `f`, and leaves.
    match unsafe { libc::fork() } {
        0 => {
            f();
            // SAFETY: no handler of the parent's runs.
            unsafe { libc::_exit(0) }
        }
        child => {
            let mut status = 0;
            // SAFETY: a child of this process.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status))
        }
    }
}

/// Fills a region of its own, has its store do wrong at a page that is there alone, and touches it.
fn touch_a_lost_page(wrong: fn(&Store, usize)) {
    let Some((region, store)) = with_store() else { return };
    let bytes = part(&region, 0..LENGTH);
    (0..LENGTH).step_by(PAGE).for_each(|at| bytes[at] = (at / PAGE) as u8 | 1);
    // The first to go; the pages that were written last are in memory still.
    let at = 5 * PAGE;
    wrong(store, at);
    let read = |at: usize| std::hint::black_box(part(&region, at..at + 1)[0]);
    assert_eq!(read(LENGTH - PAGE), (LENGTH / PAGE - 1) as u8 | 1);
    read(at);
}

#[test]
fn a_lost_page_is_a_sigbus_and_never_wrong_bytes() {
    limit();
    if with_store().is_none() {
        return;
    }
    let lies = |store: &Store, at: usize| store.lies_at.store(at, Ordering::Relaxed);
    let breaks = |store: &Store, _: usize| store.broken.store(libc::EIO, Ordering::Relaxed);
    assert_eq!(signal_of_child(move || touch_a_lost_page(lies)), Some(libc::SIGBUS));
    assert_eq!(signal_of_child(move || touch_a_lost_page(breaks)), Some(libc::SIGBUS));
    assert_eq!(signal_of_child(|| touch_a_lost_page(|_, _| {})), None);
}

#[test]
fn a_child_has_nothing_of_it_and_the_parent_goes_on() {
    limit();
    let Some((region, _)) = with_store() else { return };
    part(&region, 0..LENGTH).fill(3);
    let read = |at: usize| std::hint::black_box(part(&region, at..at + 1)[0]);
    assert_eq!(signal_of_child(|| _ = read(0)), Some(libc::SIGSEGV));
    assert_eq!(
        signal_of_child(|| {
            assert_eq!((region.populate(0..PAGE), region.present()), (Err(Error::Forked), 0));
        }),
        None
    );
    assert!(part(&region, 0..LENGTH).iter().all(|byte| *byte == 3));
}

#[test]
fn system_calls_find_what_is_in_the_store() {
    limit();
    let Some((region, _)) = with_store() else { return };
    part(&region, 0..LENGTH).fill(5);
    let (mut file, mut back) = (tempfile::tempfile().unwrap(), Vec::new());
    use std::io::{Read, Seek, Write};
    file.write_all(part(&region, 0..LENGTH)).unwrap();
    file.rewind().unwrap();
    part(&region, 0..LENGTH).fill(6);
    file.read_exact(part(&region, 0..LENGTH)).unwrap();
    file.rewind().unwrap();
    file.read_to_end(&mut back).unwrap();
    assert!(back.iter().all(|byte| *byte == 5) && part(&region, 0..LENGTH) == back);
}

#[test]
fn what_cannot_be_is_refused_with_its_reason() {
    limit();
    struct Ones;
    impl Backing for Ones {
        fn read(&self, _offset: u64, buffer: &mut [u8]) -> Result<(), i32> {
            buffer.fill(1);
            Ok(())
        }
    }
    let with_swap = || Region::builder(LENGTH).swap(Swap::new(BUDGET));
    for delivery in [Delivery::Direct, Delivery::Kernel, Delivery::Signal] {
        assert!(matches!(with_swap().delivery(delivery).build(), Err(Error::NoSwap(_))), "{delivery:?}");
    }
    assert!(matches!(with_swap().backing(Ones).build(), Err(Error::NoSwap(_))));
    assert!(matches!(with_swap().events(true).build(), Err(Error::NoSwap(_))));
    assert!(matches!(Region::builder(LENGTH).swap(Swap::new(BUDGET - 1)).build(), Err(Error::Choice(_))));
    let Some((region, _)) = with_store() else { return };
    let nowhere = Swap::new(BUDGET).directory("/nonexistent");
    assert_eq!(Region::builder(LENGTH).swap(nowhere).build().err(), Some(Error::Kernel(libc::ENOENT)));
    region.unmap(0..SLOT).unwrap();
    assert!(matches!(region.remap(SLOT..2 * SLOT, 0), Err(Error::NoSwap(_))));
    assert!(matches!(region.snapshot(), Err(Error::NoSwap(_))));
}

/// A thread that lets pages go must not let its own stack go, which it needs meanwhile.
#[test]
fn a_stack_in_the_region_populates_nothing() {
    limit();
    let directory = tempfile::tempdir().unwrap();
    let Some(region) = build(Region::builder(LENGTH).swap(Swap::new(BUDGET).directory(directory.path()))) else {
        return;
    };
    extern "C" fn populate(region: *mut std::ffi::c_void) -> *mut std::ffi::c_void {
        // SAFETY: the region of the test, which waits for this thread.
        let region = unsafe { &*region.cast::<Region>() };
        let refused = |refused: Result<(), Error>| usize::from(matches!(refused, Err(Error::NoSwap(_))));
        let background = region.populate_in_background(0..LENGTH).and_then(|work| work.wait());
        // Another thread may have done all of it by then.
        let is_sound = background.is_ok() || matches!(background, Err(Error::NoSwap(_)));
        (refused(region.populate(0..LENGTH)) + usize::from(is_sound)) as *mut std::ffi::c_void
    }
    const STACK: usize = 1 << 20;
    // SAFETY: a part of the region that nothing else uses, for as long as the thread runs.
    let answers = unsafe {
        let mut attributes = std::mem::zeroed();
        assert_eq!(libc::pthread_attr_init(&mut attributes), 0);
        assert_eq!(libc::pthread_attr_setstack(&mut attributes, region.as_ptr().cast(), STACK), 0);
        let (mut id, mut answers) = (0, std::ptr::null_mut());
        let region = (&raw const region).cast_mut().cast();
        assert_eq!(libc::pthread_create(&mut id, &attributes, populate, region), 0);
        assert_eq!(libc::pthread_join(id, &mut answers), 0);
        answers as usize
    };
    assert_eq!(answers, 2);
}

/// A handler may wait for a change by a thread whose stack is in the store. Another one brings the stack meanwhile.
#[test]
fn changes_by_a_thread_with_its_stack_in_the_region_end() {
    limit();
    const STACK: usize = 1 << 20;
    const CHANGED: Range<usize> = 2 * SLOT..2 * SLOT + 64 * PAGE;
    static ENDED: AtomicBool = AtomicBool::new(false);
    let directory = tempfile::tempdir().unwrap();
    let Some(region) = build(Region::builder(LENGTH).swap(Swap::new(BUDGET).directory(directory.path()))) else {
        return;
    };
    part(&region, 2 * SLOT..LENGTH).fill(7);
    extern "C" fn change(region: *mut std::ffi::c_void) -> *mut std::ffi::c_void {
        // SAFETY: the region of the test, which waits for this thread.
        let region = unsafe { &*region.cast::<Region>() };
        for _ in 0..500 {
            region.protect(CHANGED, Rights::Read).unwrap();
            region.protect(CHANGED, Rights::Write).unwrap();
        }
        ENDED.store(true, Ordering::Release);
        std::ptr::null_mut()
    }
    // SAFETY: a part of the region that nothing else uses, for as long as the thread runs.
    let id = unsafe {
        let (mut attributes, mut id) = (std::mem::zeroed(), 0);
        assert_eq!(libc::pthread_attr_init(&mut attributes), 0);
        assert_eq!(libc::pthread_attr_setstack(&mut attributes, region.as_ptr().cast(), STACK), 0);
        assert_eq!(libc::pthread_create(&mut id, &attributes, change, (&raw const region).cast_mut().cast()), 0);
        id
    };
    let mut page = 0;
    while !ENDED.load(Ordering::Acquire) {
        // Others, so that the stack goes; and one that is being changed.
        page = (page + 67) % ((LENGTH - 2 * SLOT) / PAGE);
        for at in [CHANGED.start + page % 64 * PAGE, 2 * SLOT + page * PAGE] {
            // SAFETY: mapped, and read alone.
            assert_eq!(unsafe { region.as_ptr().add(at).read_volatile() }, 7);
        }
    }
    // SAFETY: the thread above.
    assert_eq!(unsafe { libc::pthread_join(id, std::ptr::null_mut()) }, 0);
}
