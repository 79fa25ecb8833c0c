//! Which pages are there, as the kernel's page tables say (`PAGEMAP_SCAN`, Linux 6.7).

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::descriptor::Descriptor;
use super::kept::Kept;
use super::proc_file::read_at;
use super::raw::{self, syscall};
use super::thread;
use crate::{Errno, PAGE, Span};

/// Pages are there.
pub const PRESENT: u64 = 1 << 3;
/// They are not, but something else stands for them: they were swapped out, or marked.
pub const SWAPPED: u64 = 1 << 4;
/// They are the kernel's page of zeroes.
pub const ZERO: u64 = 1 << 5;
/// They are parts of a huge page.
pub const HUGE: u64 = 1 << 6;
/// They are guards (`MADV_GUARD_INSTALL`); Linux 6.15 tells.
pub const GUARD: u64 = 1 << 8;

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const SCAN: usize = 3 << 30 | size_of::<Scan>() << 16 | (b'f' as usize) << 8 | 16;
/// Runs of pages that one call tells of.
pub const RUNS: usize = 32;

/// `struct pm_scan_arg`.
#[repr(C)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    runs: u64,
    runs_len: u64,
    max_pages: u64,
    inverted: u64,
    all_of: u64,
    any_of: u64,
    told: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Run {
    start: u64,
    end: u64,
    is: u64,
}

/// Where the descriptor is, and 2 more; less: it is not open. A forked child finds 0 there: its parent's file goes on
/// telling of its parent.
static FILE: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());

fn file() -> Option<&'static AtomicU32> {
    // SAFETY: null, or a word that is never unmapped.
    unsafe { FILE.load(Ordering::Acquire).as_ref() }
}

fn open_file() -> Option<usize> {
    open_file_again().ok()
}

fn open_file_again() -> Result<usize, Errno> {
    raw::open(c"/proc/thread-self/pagemap")
}

/// Opens what is needed, so that [`count`] may be called in a signal handler. Again in a forked child.
pub fn open() {
    if file().is_none()
        && let Some(word) = raw::word_wiped_on_fork()
    {
        let word = word.as_ptr().cast();
        let _ = FILE.compare_exchange(null_mut(), word, Ordering::AcqRel, Ordering::Acquire);
    }
    let Some(file) = file() else { return };
    let before = file.load(Ordering::Acquire);
    if before >= 2 {
        return;
    }
    let Some(fd) = open_file() else { return };
    if file.compare_exchange(before, fd as u32 + 2, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // SAFETY: opened above; another thread was faster.
        let _ = unsafe { syscall(libc::SYS_close, [fd, 0, 0, 0, 0, 0]) };
    }
}

/// The number of the open file.
pub fn number() -> Option<i32> {
    file()?.load(Ordering::Acquire).checked_sub(2).map(|fd| fd as i32)
}

/// Pages that are not protected by a userfaultfd.
const WRITTEN: u64 = 1 << 1;
/// Pages that a scan tells of are protected in the same moment. It refuses where they could not be.
const PROTECT: u64 = 1;
const ONLY_ASYNC: u64 = 1 << 1;

/// A descriptor of this process's own, which a program may close: it is looked at before it is used.
#[derive(Debug)]
pub struct Changes(Descriptor);

impl Changes {
    /// # Errors
    /// The kernel's, which cannot open it.
    pub fn open() -> Result<Self, Errno> {
        raw::open(c"/proc/thread-self/pagemap").map(|fd| Self(Descriptor::new(fd)))
    }

    /// Its number.
    pub fn number(&self) -> i32 {
        self.0.number() as i32
    }

    /// The first run of pages of `span` that are there, came protected, and were not written to since; an empty one if
    /// there is none. `None`: the kernel does not say.
    pub fn first_unwritten(&self, span: Span) -> Option<Span> {
        if self.0.is_open() { first_of(self.0.number(), span, PRESENT | SWAPPED, WRITTEN) } else { None }
    }

    /// Tells `f` of the pages of `span` that are there and were written to since the last call, and has the kernel note
    /// the next writes to them. `span` is registered for that. False: the kernel does not say, and any page may have been
    /// written to.
    ///
    /// By `protect` where the kernel does not lift the protection itself. It says whether it could.
    pub fn take(&self, span: Span, protect: Option<&dyn Fn(Span) -> bool>, mut f: impl FnMut(Span)) -> bool {
        let (mut runs, mut at) = ([Run::default(); RUNS], span.start);
        while at < span.end {
            let mut scan = Scan {
                size: size_of::<Scan>() as u64,
                flags: if protect.is_none() { PROTECT | ONLY_ASYNC } else { 0 },
                start: at as u64,
                end: span.end as u64,
                walk_end: 0,
                runs: runs.as_mut_ptr() as u64,
                runs_len: runs.len() as u64,
                max_pages: 0,
                inverted: 0,
                all_of: WRITTEN,
                any_of: PRESENT | SWAPPED,
                told: WRITTEN,
            };
            let ask = [self.0.number(), SCAN, &raw mut scan as usize, 0, 0, 0];
            // SAFETY: as in `scan`; the pages are protected so that a write to them goes on as before.
            let told = if self.0.is_open() { unsafe { syscall(libc::SYS_ioctl, ask) }.ok() } else { None };
            let Some(told) = told.filter(|_| scan.walk_end as usize > at) else { return false };
            let looked_at = Span { start: at, end: scan.walk_end as usize };
            if told > 0 && protect.is_some_and(|protect| !protect(looked_at)) {
                return false;
            }
            runs[..told].iter().for_each(|run| f(Span { start: run.start as usize, end: run.end as usize }));
            at = scan.walk_end as usize;
        }
        true
    }
}

/// Asks for runs of pages of `span` that are one of `any_of` and none of `none_of`; how many it told of, and up to
/// where.
fn scan(fd: usize, span: Span, any_of: u64, none_of: u64, runs: &mut [Run]) -> Option<(usize, usize)> {
    scan_for(fd, span, any_of, (0, none_of), runs)
}

/// The same of those that are all of `all_of`, too.
fn scan_for(
    fd: usize,
    span: Span,
    any_of: u64,
    (all_of, none_of): (u64, u64),
    runs: &mut [Run],
) -> Option<(usize, usize)> {
    let mut scan = Scan {
        size: size_of::<Scan>() as u64,
        flags: 0,
        start: span.start as u64,
        end: span.end as u64,
        walk_end: 0,
        runs: runs.as_mut_ptr() as u64,
        runs_len: runs.len() as u64,
        max_pages: 0,
        // Categories that must not be set go into both words: they are inverted, and then all must be set.
        inverted: none_of,
        all_of: all_of | none_of,
        any_of,
        told: PRESENT,
    };
    // SAFETY: the structure, which says where there is room for how many runs; nothing else is written.
    let told = unsafe { syscall(libc::SYS_ioctl, [fd, SCAN, &raw mut scan as usize, 0, 0, 0]) }.ok()?;
    let to = scan.walk_end as usize;
    (to > span.start).then_some((told, to))
}

/// The first run of such pages, empty if there is none. With little stack, for signal handlers. `None` where the
/// kernel does not say.
pub fn first(span: Span, any_of: u64, none_of: u64) -> Option<Span> {
    first_of(number()? as usize, span, any_of, none_of)
}

fn first_of(fd: usize, span: Span, any_of: u64, none_of: u64) -> Option<Span> {
    let mut run = [Run::default()];
    let (told, _) = scan(fd, span, any_of, none_of, &mut run)?;
    Some(if told > 0 {
        Span { start: run[0].start as usize, end: run[0].end as usize }
    } else {
        Span::new(span.end, 0)
    })
}

/// The first runs of pages of `span` that are there and that no userfaultfd protects against writing, into `runs`; how
/// many, and up to where it looked. `None` where the kernel does not say.
pub fn unprotected_runs(span: Span, runs: &mut [Span; RUNS]) -> Option<(usize, usize)> {
    let mut found = [Run::default(); RUNS];
    let (told, to) = scan_for(number()? as usize, span, PRESENT | SWAPPED, (WRITTEN, 0), &mut found)?;
    as_spans(&found[..told], runs);
    Some((told, to))
}

fn as_spans(found: &[Run], runs: &mut [Span]) {
    for (to, run) in runs.iter_mut().zip(found) {
        *to = Span { start: run.start as usize, end: run.end as usize };
    }
}

/// Of the background thread, which has a table of descriptors of its own.
static BACKGROUND: Kept = Kept::of_background();

/// A new background thread: what the last one had open ended with it.
pub fn new_thread() {
    BACKGROUND.forget();
}

/// By the background thread: the first runs of pages of `span` that are there, into `runs`; how many, and up to where
/// it looked. `None` where the kernel does not say.
pub fn present_runs(span: Span, runs: &mut [Span]) -> Option<(usize, usize)> {
    if !thread::is_this() || !thread::has_own_files() {
        return None;
    }
    let mut found = [Run::default(); RUNS];
    let room = runs.len().min(RUNS);
    let (told, to) = scan(BACKGROUND.get(open_file_again)?, span, PRESENT, 0, &mut found[..room])?;
    as_spans(&found[..told], runs);
    Some((told, to))
}

/// How many such pages there are. `None` where the kernel does not say.
pub fn count(span: Span, any_of: u64, none_of: u64) -> Option<usize> {
    let mut runs = [Run::default(); RUNS];
    let (mut pages, mut at) = (0, span.start);
    while at < span.end {
        let (told, to) = scan(number()? as usize, Span { start: at, ..span }, any_of, none_of, &mut runs)?;
        pages += runs[..told].iter().map(|run| (run.end - run.start) as usize / PAGE).sum::<usize>();
        at = to;
    }
    Some(pages)
}

/// The file for a few questions, without [`open`]: see `open.rs` where that may be.
pub struct Opened(usize);

impl Opened {
    /// `None`: it cannot be opened.
    pub fn new() -> Option<Self> {
        open_file().map(Self)
    }

    /// Whether `f` is true of all runs of pages of `span` that are one of `any_of`; it hears whether they are
    /// present. `None` where the kernel does not say.
    pub fn all(&self, span: Span, any_of: u64, mut f: impl FnMut(Span, bool) -> bool) -> Option<bool> {
        let (mut runs, mut at) = ([Run::default(); RUNS], span.start);
        while at < span.end {
            let (told, to) = scan(self.0, Span { start: at, ..span }, any_of, 0, &mut runs)?;
            let as_span = |run: &Run| Span { start: run.start as usize, end: run.end as usize };
            if !runs[..told].iter().all(|run| f(as_span(run), run.is & PRESENT != 0)) {
                return Some(false);
            }
            at = to;
        }
        Some(true)
    }

    /// Whether all of `slot` is one huge page.
    pub fn is_huge(&self, slot: Span) -> Option<bool> {
        self.is_all(slot, HUGE)
    }

    /// Whether all pages of `span` are that. `None` where the kernel does not say.
    pub fn is_all(&self, span: Span, what: u64) -> Option<bool> {
        let mut run = [Run::default()];
        let (told, _) = scan(self.0, span, what, 0, &mut run)?;
        Some(told == 1 && run[0].start as usize == span.start && run[0].end as usize == span.end)
    }

    /// Whether the page at `at` is there, and other page tables than this process's have it, too: those of a forked process.
    /// No such page is pinned: a fork copies a pinned page, and to pin a shared one takes a copy of it.
    pub fn is_shared(&self, at: usize) -> bool {
        const IS_THERE: u64 = 1 << 63;
        const IS_EXCLUSIVE: u64 = 1 << 56;
        let mut entry = [0; 8];
        let n = read_at(self.0, &mut entry, at / PAGE * size_of::<u64>());
        n == entry.len() && u64::from_ne_bytes(entry) & (IS_THERE | IS_EXCLUSIVE) == IS_THERE
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: opened by this.
        let _ = unsafe { syscall(libc::SYS_close, [self.0, 0, 0, 0, 0, 0]) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SLOT;
    use crate::sys::raw::{self, Access};

    #[test]
    fn pages_are_counted_by_what_they_are() {
        open();
        let at = raw::map_private(SLOT, Access::Write).unwrap();
        let span = Span::new(at, SLOT);
        // SAFETY: fresh memory of this test's own.
        unsafe {
            syscall(libc::SYS_madvise, [at, SLOT, libc::MADV_NOHUGEPAGE as usize, 0, 0, 0]).unwrap();
            for page in (0..512).step_by(2) {
                ((at + page * PAGE) as *mut u8).write_volatile(1);
            }
            ((at + 7 * PAGE) as *mut u8).read_volatile();
        }
        if count(span, PRESENT, 0).is_none() {
            return faultless_testkit::skip("no PAGEMAP_SCAN");
        }
        assert_eq!(count(span, PRESENT, 0), Some(257), "more runs than one call tells of");
        assert_eq!((count(span, PRESENT, ZERO), count(span, ZERO, 0)), (Some(256), Some(1)));
        assert_eq!(first(span, PRESENT, 0), Some(Span::new(at, PAGE)));
        assert_eq!(first(span, ZERO, 0), Some(Span::new(at + 7 * PAGE, PAGE)));
        assert!(first(span, SWAPPED, 0).is_some_and(Span::is_empty));
        assert_eq!((count(span, HUGE, 0), count(span, SWAPPED, 0)), (Some(0), Some(0)));
        // SAFETY: as above.
        unsafe { raw::unmap(at, SLOT) };
    }
}
