//! The page of counters and knobs, and the list of regions behind it, where `faultless stat` and `faultless sysctl` find it.
//!
//! Under `faultless run` it is the file that the library of that command uses in this process too; else a segment of System V
//! shared memory, marked for removal at once, so that it is gone with the last process that has it. Where there is
//! neither, it is this process's own. A forked child goes on counting on the page of its parent.

use std::ffi::c_void;
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::Ordering;
use std::sync::{LazyLock, OnceLock};

use faultless_base::Span;
use faultless_base::sys::raw::boot_ns;
use faultless_mm::knobs::Knob;
use faultless_mm::listing::Place;
use faultless_mm::page::{MAGIC, Whole};

use crate::owner::Owner;

const BYTES: usize = size_of::<Whole>();

static PAGE: LazyLock<&'static Whole> = LazyLock::new(|| {
    let whole = in_file().or_else(in_segment).unwrap_or_else(|| Box::leak(Box::<Whole>::default()));
    let page = &whole.page;
    // A program that had this process before may have left some.
    whole.regions.end_all();
    // Unless the other library has: then what is set, is set.
    if page.header.magic.load(Ordering::Acquire) != MAGIC {
        for knob in Knob::ALL {
            let declared = knob.declared();
            let set = std::env::var_os(declared.variable);
            let value = set.and_then(|text| declared.nearest(text.as_encoded_bytes())).or(knob.default());
            // The only size without a default of its own: the budget.
            page.knobs.set(*knob, value.unwrap_or_else(budget));
        }
        page.start(std::process::id(), boot_ns());
    }
    OWNER.get_or_init(Owner::here);
    whole
});
/// The process that it was made for: a child's regions are not listed one by one, because a child may end without a word.
static OWNER: OnceLock<Owner> = OnceLock::new();

/// What the budget is unless somebody says otherwise.
fn budget() -> u64 {
    (crate::reserve::memory().unwrap_or(0) / 20).max(64 << 20) as u64
}

/// The page of this process, and its regions.
pub fn page() -> &'static Whole {
    &PAGE
}

/// Where a new region counts.
pub fn place(span: Span, delivery: u64) -> &'static Place {
    let regions = &page().regions;
    match OWNER.get() {
        Some(owner) if owner.is_here() => regions.take(span, delivery),
        _ => regions.shared(),
    }
}

/// The file in the directory that the environment names.
fn in_file() -> Option<&'static Whole> {
    let dir = std::env::var_os("FAULTLESS_STATS")?;
    let path = Path::new(&dir).join(std::process::id().to_string());
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).ok()?;
    // SAFETY: the file gets the size of a page, of which zeroes are one, and all of it is atomics; it is never unmapped.
    unsafe {
        // Not only sized: a full file system shows here, not at the first store.
        if libc::fallocate(file.as_raw_fd(), 0, 0, BYTES as libc::off_t) != 0 {
            return None;
        }
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let at = libc::mmap(null_mut(), BYTES, prot, libc::MAP_SHARED, file.as_raw_fd(), 0);
        (at != libc::MAP_FAILED).then(|| &*at.cast())
    }
}

fn in_segment() -> Option<&'static Whole> {
    // SAFETY: a new segment of zeroes, which are a page; all of it is atomics; it is never detached.
    unsafe {
        let id = libc::shmget(libc::IPC_PRIVATE, BYTES, libc::IPC_CREAT | 0o600);
        if id < 0 {
            return None;
        }
        let at: *mut c_void = libc::shmat(id, null_mut(), 0);
        libc::shmctl(id, libc::IPC_RMID, null_mut());
        (at as isize != -1).then(|| &*at.cast())
    }
}
