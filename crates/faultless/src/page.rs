//! The page of counters and knobs, and the list of regions behind it, where `faultless stat` and `faultless sysctl`
//! find it.
//!
//! Under `faultless run` it is the file that the library of the command uses in this process too. Else it is a
//! segment of System V shared memory, marked for removal at once, so that it is gone with the last process that has
//! it. Where there is neither, it is this process's own. A forked child goes on counting on the page of its parent.

use std::cell::UnsafeCell;
use std::ffi::{CStr, CString, OsStr, c_void};
use std::fs::{File, OpenOptions};
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

use faultless_base::Span;
use faultless_base::sync::per_cpu;
use faultless_base::sys::limits::check_file;
use faultless_base::sys::page_file;
use faultless_base::sys::raw::{self, Access, boot_ns};
use faultless_page::gauges::Gauges;
use faultless_page::knobs::Knob;
use faultless_page::layout::{Header, MAGIC, Page, TABLES, VERSION, Whole};
use faultless_page::listing::{Counted, Line, Listing, PLACES, Regions, lines_for};
use faultless_page::stats::Counter;

use crate::process::limits;
use crate::process::once::Once;
use crate::process::owner::{OfProcess, Owner};

/// The page and what is behind it.
struct Shared {
    page: &'static Page,
    regions: Regions<'static>,
    /// The process that it was made for: a child's regions are not listed one by one, because a child may end without
    /// a word.
    owner: Owner,
}

static PAGE: Once<Shared> = Once::new();

fn shared() -> &'static Shared {
    PAGE.get(make)
}

fn make() -> Shared {
    // SAFETY: no pointers.
    let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.max(1) as usize;
    let lines = lines_for(processors);
    let in_file = || in_file(variable("FAULTLESS_STATS")?, lines);
    let shared = in_file().or_else(|| in_segment(lines)).or_else(|| in_memory(lines)).unwrap_or_else(spare);
    let page = shared.page;
    // A program that had this process before may have left some.
    shared.regions.end_all();
    page.gauges.clear();
    // If the other library has set the knobs, they stay.
    if page.header.magic.load(Ordering::Acquire) != MAGIC {
        for knob in Knob::ALL {
            let declared = knob.declared();
            let set = variable(declared.variable);
            let value = set.and_then(|text| declared.nearest(text)).or(knob.default());
            // The only size without a default of its own: the budget.
            page.knobs.set(*knob, value.unwrap_or_else(budget));
        }
        page.start(std::process::id(), boot_ns());
    }
    shared
}

/// A variable of the environment. Not by `std`, whose lock a fork may leave held.
fn variable(name: &str) -> Option<&'static [u8]> {
    let name = CString::new(name).ok()?;
    // SAFETY: a name that ends with a zero byte; a value is used at once.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes())
    }
}

/// The budget where it is not set.
fn budget() -> u64 {
    (limits::of_machine().unwrap_or(0) / 20).max(64 << 20) as u64
}

/// The page of this process.
pub fn page() -> &'static Page {
    shared().page
}

/// Totals of this process's memory. Those of a forked child are not on its parent's page.
pub fn gauges() -> &'static Gauges {
    static OF_CHILD: OfProcess<Gauges> = OfProcess::new();
    let Shared { page, owner, .. } = shared();
    if owner.is_here() { &page.gauges } else { OF_CHILD.get(Gauges::new) }
}

/// Places over which threads are spread.
pub fn places() -> usize {
    per_cpu::places(shared().regions.shared().lines())
}

/// A counter, over all that this process counts.
pub fn sum(counter: Counter) -> u64 {
    shared().page.sum(counter) + shared().regions.sum(counter)
}

/// Where a new region counts.
pub fn counted(span: Span, delivery: u64) -> Counted<'static> {
    let Shared { regions, owner, .. } = shared();
    if owner.is_here() { regions.take(span, delivery) } else { regions.shared() }
}

impl Shared {
    /// The page at `at`, with what is behind it.
    ///
    /// # Safety
    /// There are [`Whole::bytes`] of memory for `lines` lines, aligned as a page is, and never unmapped. The memory
    /// is zero or was used so before, and only atomics are made of it.
    unsafe fn at(at: *const c_void, lines: usize) -> Self {
        // SAFETY: see above; zeroes are a page, and lines.
        let (whole, lines) = unsafe {
            let whole: &Whole = &*at.cast();
            (whole, std::slice::from_raw_parts((&raw const *whole).add(1).cast::<Line>(), lines * (PLACES + 1)))
        };
        Self { page: &whole.page, regions: Regions::new(&whole.listing, lines), owner: Owner::here() }
    }
}

/// The file of this process in `dir`. Without one the command that made `dir` is told that counters are missing.
fn in_file(dir: &[u8], lines: usize) -> Option<Shared> {
    let shared = open_file(dir, lines);
    if shared.is_none() {
        page_file::mark_lost(dir);
    }
    shared
}

fn open_file(dir: &[u8], lines: usize) -> Option<Shared> {
    // As the library of the command makes it; also where to be refused a longer file ends the program.
    let mut path = [0; page_file::PATH];
    let path = page_file::path(dir, &mut path)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let may_be_made = check_file(Whole::bytes(lines)).is_ok();
    let file = options.create(may_be_made).open(OsStr::from_bytes(path.to_bytes())).ok()?;
    if !is_ours(&file) {
        return None;
    }
    let lines = lines_in(&file).unwrap_or(lines);
    let bytes = Whole::bytes(lines);
    check_file(bytes).ok()?;
    // SAFETY: the file gets the size of a page with so many lines, and is never unmapped.
    unsafe {
        // Not only sized: a full file system shows here, not at the first store.
        if libc::fallocate(file.as_raw_fd(), 0, 0, bytes as libc::off_t) != 0 {
            return None;
        }
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let at = libc::mmap(null_mut(), bytes, prot, libc::MAP_SHARED, file.as_raw_fd(), 0);
        (at != libc::MAP_FAILED).then(|| Shared::at(at, lines))
    }
}

/// Whether the page is not filled in yet, or a library has filled it in that counts as this one does.
fn is_ours(file: &File) -> bool {
    let word = |at| {
        let mut word = [0; size_of::<u64>()];
        file.read_exact_at(&mut word, at as u64).map_or(0, |()| u64::from_ne_bytes(word))
    };
    let half = |at| word(at) as u32;
    match word(offset_of!(Header, magic)) {
        0 => true,
        magic => {
            magic == MAGIC
                && half(offset_of!(Header, version)) == VERSION
                && half(offset_of!(Header, bytes)) as usize == size_of::<Page>()
                && word(offset_of!(Header, tables)) == TABLES
        }
    }
}

/// How many lines a program that had this process before found right: they go on, wherever it ran.
fn lines_in(file: &File) -> Option<usize> {
    let mut word = [0; size_of::<u64>()];
    let at = offset_of!(Whole, listing) + offset_of!(Listing, lines);
    file.read_exact_at(&mut word, at as u64).ok()?;
    Some(u64::from_ne_bytes(word) as usize).filter(|lines| *lines == lines_for(*lines))
}

fn in_segment(lines: usize) -> Option<Shared> {
    // SAFETY: a new segment of zeroes that is never detached.
    unsafe {
        let id = libc::shmget(libc::IPC_PRIVATE, Whole::bytes(lines), libc::IPC_CREAT | 0o600);
        if id < 0 {
            return None;
        }
        let at: *mut c_void = libc::shmat(id, null_mut(), 0);
        libc::shmctl(id, libc::IPC_RMID, null_mut());
        (at as isize != -1).then(|| Shared::at(at, lines))
    }
}

/// In this process alone.
fn in_memory(lines: usize) -> Option<Shared> {
    let at = raw::map_private(Whole::bytes(lines), Access::Write)?;
    // SAFETY: new zeroes that are never unmapped.
    Some(unsafe { Shared::at(at as *const c_void, lines) })
}

/// Where the kernel refuses addresses, too: a page that the library brings along, with a line for all processors.
fn spare() -> Shared {
    #[repr(C, align(4096))]
    struct Spare(UnsafeCell<[u8; Whole::bytes(1)]>);
    // SAFETY: only atomics are made of it.
    unsafe impl Sync for Spare {}
    const { assert!(align_of::<Whole>() <= align_of::<Spare>()) };
    static SPARE: Spare = Spare(UnsafeCell::new([0; Whole::bytes(1)]));
    // SAFETY: zeroes of that size, which stay.
    unsafe { Shared::at(SPARE.0.get().cast(), 1) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use faultless_testkit::foreign::{cases, changed, changes};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(cases())]

        /// A file in the place of the page is another program's, or has as many lines as a page may have.
        #[test]
        fn any_file_is_told(changes in changes(), cut in prop::option::of(any::<usize>()), lines in any::<u64>()) {
            let mut page = vec![0u8; size_of::<Whole>()];
            let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
            put(offset_of!(Header, magic), &MAGIC.to_ne_bytes());
            put(offset_of!(Header, version), &VERSION.to_ne_bytes());
            put(offset_of!(Header, bytes), &(size_of::<Page>() as u32).to_ne_bytes());
            put(offset_of!(Header, tables), &TABLES.to_ne_bytes());
            put(offset_of!(Whole, listing) + offset_of!(Listing, lines), &(lines % 600).to_ne_bytes());
            let page = changed(page, changes, cut);
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&page).unwrap();
            let word = |at: usize| page.get(at..at + 8).map_or(0, |word| u64::from_ne_bytes(word.try_into().unwrap()));
            let magic = word(offset_of!(Header, magic));
            prop_assert!(!is_ours(&file) || magic == 0 || magic == MAGIC && word(offset_of!(Header, tables)) == TABLES);
            let known = lines_in(&file);
            prop_assert!(known.is_none_or(|lines| [8, 16, 32, 64, 128, 256].contains(&lines)));
        }
    }
}
