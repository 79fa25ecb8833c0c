//! What the kernel says of its areas (`PROCMAP_QUERY`, Linux 6.11).
//!
//! An area is a range of addresses of which everything is the same to the kernel: rights, locks, advice, memory policy,
//! keys, what a fork does with it. So two places in one area have the same attributes, whatever these are.

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, Ordering};

use super::kept::Kept;
use super::raw::{self, syscall};
use super::{open, thread};
use crate::Errno;
use crate::units::Span;

static BACKGROUND: Kept = Kept::of_background();
static PROGRAM: Kept = Kept::new();

/// The kernel never says.
static IS_SILENT: AtomicBool = AtomicBool::new(false);

/// As the kernel declares it.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    flags: u64,
    addr: u64,
    start: u64,
    end: u64,
    /// Rights, the size of pages, the file and its name.
    rest: [u64; 8],
}

pub(super) const MAPS: &CStr = c"/proc/thread-self/maps";
const PROCMAP_QUERY: usize = 3 << 30 | size_of::<Query>() << 16 | (b'f' as usize) << 8 | 17;

/// A new background thread: what the last one had open ended with it.
pub fn new_thread() {
    BACKGROUND.forget();
}

/// In a forked child: the descriptors are about the parent's memory.
pub fn forget() {
    BACKGROUND.forget();
    PROGRAM.close();
}

/// Before the process has more threads.
pub fn keep() {
    let _ = PROGRAM.get(|| open::file_aside(MAPS));
}

/// As [`super::Sys::area`].
pub fn area(addr: usize) -> Option<Span> {
    if IS_SILENT.load(Ordering::Relaxed) {
        return None;
    }
    let number = match thread::is_this() {
        true if thread::has_own_files() => BACKGROUND.get(|| raw::open(MAPS)),
        true => None,
        false => PROGRAM.get(|| open::file_aside(MAPS)),
    };
    let answer = match number.map(|number| query(number, addr)) {
        // Not kept: another thread opens it, the process has more than one thread, or a file of the program's is in
        // its place.
        None | Some(Err(_)) => open::apart(|| ask_once(addr)).unwrap_or(Err(Errno::EAGAIN)),
        Some(answer) => answer,
    };
    match answer {
        Ok(area) => Some(area),
        Err(Errno::EAGAIN | Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno::EINTR) => {
            Some(Span { start: addr, end: addr })
        }
        // An older kernel, or no `/proc`.
        Err(_) => {
            IS_SILENT.store(true, Ordering::Relaxed);
            None
        }
    }
}

/// Whether a range is a reservation throughout: private, without rights and without a file. `None` where the kernel does
/// not say, or not by a descriptor that is kept.
pub fn is_reserved(span: Span) -> Option<bool> {
    if IS_SILENT.load(Ordering::Relaxed) || thread::is_this() {
        return None;
    }
    query_reserved(PROGRAM.get(|| open::file_aside(MAPS))?, span)
}

fn query_reserved(number: usize, span: Span) -> Option<bool> {
    let mut at = span.start;
    for _ in 0..MOST_PARTS {
        let (area, [flags, _, _, inode, ..]) = match ask(number, at) {
            Ok(answer) => answer,
            Err(Errno::ENOENT) => return Some(false),
            // Perhaps a file of the program's has come in its place.
            Err(_) => return None,
        };
        if flags & (RIGHTS | SHARED) != 0 || inode != 0 {
            return Some(false);
        }
        at = area.end;
        if at >= span.end {
            return Some(true);
        }
    }
    Some(false)
}

/// The most areas that a reservation of ours is.
const MOST_PARTS: usize = 16;

/// By a descriptor for this question alone.
fn ask_once(addr: usize) -> Result<Span, Errno> {
    let file = raw::File::try_open(MAPS)?;
    query(file.number(), addr)
}

fn query(number: usize, addr: usize) -> Result<Span, Errno> {
    query_kind(number, addr).map(|(area, _)| area)
}

/// In the first word of `rest`: it may be written to; it may be used at all; it is shared. The fourth word is the file's
/// inode.
const WRITABLE: u64 = 2;
const RIGHTS: u64 = 7;
const SHARED: u64 = 8;

/// The part of a file that is mapped in an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileArea {
    /// The addresses.
    pub span: Span,
    /// The file: major and minor number of its device, and its inode.
    pub file: (u32, u32, u64),
    /// The address at which the file's first byte would lie.
    pub origin: usize,
}

/// The area of an address, where a file is mapped that the program does not write to by this area. By the background
/// thread; `None` where the kernel does not say.
pub fn of_file(addr: usize) -> Option<FileArea> {
    if IS_SILENT.load(Ordering::Relaxed) || !thread::is_this() || !thread::has_own_files() {
        return None;
    }
    let (span, rest) = ask(BACKGROUND.get(|| raw::open(MAPS))?, addr).ok()?;
    let [flags, _, offset, inode, device, ..] = rest;
    let is_written = flags & (SHARED | WRITABLE) == SHARED | WRITABLE;
    (inode != 0 && !is_written).then_some(FileArea {
        span,
        file: (device as u32, (device >> 32) as u32, inode),
        origin: span.start.wrapping_sub(offset as usize),
    })
}

/// The area of an address, and whether it is private memory without a file. By an open [`MAPS`].
pub(super) fn query_kind(number: usize, addr: usize) -> Result<(Span, bool), Errno> {
    match ask(number, addr) {
        Ok((span, rest)) => Ok((span, rest[0] & SHARED == 0 && rest[3] == 0)),
        Err(Errno::ENOENT) => Ok((Span { start: addr, end: addr }, true)),
        Err(error) => Err(error),
    }
}

/// The area of an address, and what [`Query::rest`] says of it.
fn ask(number: usize, addr: usize) -> Result<(Span, [u64; 8]), Errno> {
    let mut query = Query { size: size_of::<Query>() as u64, addr: addr as u64, ..Query::default() };
    // SAFETY: writes the structure.
    unsafe { syscall(libc::SYS_ioctl, [number, PROCMAP_QUERY, &raw mut query as usize, 0, 0, 0]) }?;
    Ok((Span { start: query.start as usize, end: query.end as usize }, query.rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::linux::{self, Linux};
    use crate::sys::{Huge, Sys};
    use crate::units::{PAGE, SLOT};

    #[test]
    fn an_area_ends_where_an_attribute_changes() {
        let span = linux::reserve(4 * SLOT, SLOT).unwrap();
        assert!(Linux.open_first(Span::new(span.start, 3 * SLOT)));
        let Some(open) = area(span.start) else { return faultless_testkit::skip("no PROCMAP_QUERY") };
        assert_eq!(open.end, span.start + 3 * SLOT);
        let ends = |at: usize| area(at).map(|area| area.end);
        Linux.huge(Span::new(span.start, SLOT), Huge::Advised);
        assert_eq!(ends(span.start), Some(span.start + SLOT));
        assert_eq!(area(span.start + SLOT), Some(Span::new(span.start + SLOT, 2 * SLOT)));
        // Of these the kernel's list of mappings shows nothing.
        let locked = Span::new(span.start + SLOT + PAGE, PAGE);
        for advice in [libc::MADV_DONTFORK, libc::MADV_DOFORK] {
            // SAFETY: memory of the test's own.
            unsafe { syscall(libc::SYS_madvise, [locked.start, PAGE, advice as usize, 0, 0, 0]) }.unwrap();
            let whole = advice == libc::MADV_DOFORK;
            let expected = if whole { Span::new(span.start + SLOT, 2 * SLOT) } else { locked };
            assert_eq!(area(locked.start), Some(expected));
        }
        // SAFETY: the same.
        unsafe { syscall(libc::SYS_munmap, [locked.start, PAGE, 0, 0, 0, 0]) }.unwrap();
        assert_eq!(area(locked.start), Some(Span { start: locked.start, end: locked.start }));
    }

    #[test]
    fn a_reservation_is_told_from_what_lies_in_it() {
        let span = linux::reserve(8 * SLOT, SLOT).unwrap();
        let maps = raw::File::try_open(MAPS).unwrap();
        let is_reserved = |span| query_reserved(maps.number(), span);
        if is_reserved(span).is_none() {
            return faultless_testkit::skip("no PROCMAP_QUERY");
        }
        let middle = Span::new(span.start + 3 * SLOT, 2 * SLOT);
        assert_eq!(is_reserved(span), Some(true));
        assert!(Linux.open_first(middle));
        assert_eq!(is_reserved(span), Some(false));
        assert_eq!(is_reserved(Span { start: span.start, end: middle.start }), Some(true));
        // Closed, but an area of its own.
        assert!(linux::mprotect(middle, libc::PROT_NONE));
        assert_eq!(is_reserved(span), Some(true));
        // SAFETY: memory of the test's own.
        unsafe { raw::unmap(middle.start, SLOT) };
        assert_eq!(is_reserved(span), Some(false));
    }

    /// A thread that opens the kept descriptor, or may not open it, holds up no other.
    #[test]
    fn the_kernel_is_asked_also_where_no_descriptor_is_kept() {
        let span = linux::reserve(SLOT, SLOT).unwrap();
        assert!(Linux.open_first(span));
        if area(span.start).is_none() {
            return faultless_testkit::skip("no PROCMAP_QUERY");
        }
        for _ in 0..40 {
            PROGRAM.close();
            let mut meanwhile = None;
            let _ = PROGRAM.get(|| {
                meanwhile = area(span.start);
                Err(Errno::EPERM)
            });
            assert!(meanwhile.is_none_or(|area| area.contains(span.start)), "while it is opened");
            assert!(area(span.start).is_some_and(|area| area.contains(span.start)));
        }
    }
}
