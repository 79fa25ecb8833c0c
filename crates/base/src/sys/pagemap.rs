//! Which pages are there, as the kernel's page tables say (`PAGEMAP_SCAN`, Linux 6.7).

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::raw::{self, syscall};
use crate::{PAGE, Span};

/// Pages are there.
pub const PRESENT: u64 = 1 << 3;
/// They are not, but something else stands for them: they were swapped out, or marked.
pub const SWAPPED: u64 = 1 << 4;
/// They are the kernel's page of zeroes.
pub const ZERO: u64 = 1 << 5;
/// They are parts of a huge page.
pub const HUGE: u64 = 1 << 6;

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const SCAN: usize = 3 << 30 | size_of::<Scan>() << 16 | (b'f' as usize) << 8 | 16;
/// Runs of pages that one call tells of.
const RUNS: usize = 32;

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
    raw::open(c"/proc/thread-self/pagemap").ok()
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

/// Asks for runs of pages of `span` that are one of `any_of` and none of `none_of`; how many it told of, and up to
/// where.
fn scan(fd: usize, span: Span, any_of: u64, none_of: u64, runs: &mut [Run]) -> Option<(usize, usize)> {
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
        all_of: none_of,
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
    let mut run = [Run::default()];
    let (told, _) = scan(number()? as usize, span, any_of, none_of, &mut run)?;
    Some(if told > 0 {
        Span { start: run[0].start as usize, end: run[0].end as usize }
    } else {
        Span::new(span.end, 0)
    })
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
        let mut run = [Run::default()];
        let (told, _) = scan(self.0, slot, HUGE, 0, &mut run)?;
        Some(told == 1 && run[0].start as usize == slot.start && run[0].end as usize == slot.end)
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
