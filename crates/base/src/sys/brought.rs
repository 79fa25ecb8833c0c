//! Parts of mapped files, brought into the kernel's page cache by huge pages.
//!
//! The kernel reads by huge pages where a mapping is advised so. The program's mapping is not ours to advise. So a part
//! of it is mapped once more, in a window of ours, for the time of one request. A file's pages are the same in both. The
//! program's mapping, its page tables and the file's lock and references stay as they are.
//!
//! The kernel makes a second mapping without a descriptor of shared ones alone. For private ones it is asked to read
//! ahead, as in [`mapped_file`].
//!
//! All but [`with_path`] is for the background thread.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::area::{self, FileArea};
use super::linux;
use super::mapped_file::{self, Path};
use super::raw::{self, Access, syscall};
use crate::Errno;
use crate::units::{PAGE, SLOT, Span};

/// What one request asks for: the kernel waits for the first of these huge pages, and the others come meanwhile.
pub const PIECE: usize = 2 * SLOT;

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Brought {
    /// The device was asked.
    Read,
    /// It was in memory already.
    Cached,
    /// Something else is mapped there by now.
    Gone,
    /// It cannot be read.
    Refused,
}

/// Calls `f` with the path of an open file, as the kernel has it. `None`: it does not say.
pub fn with_path<T>(number: usize, f: impl FnOnce(&[u8]) -> T) -> Option<T> {
    const ROOM: usize = libc::PATH_MAX as usize;
    let mut link = Path::new(b"/proc/thread-self/fd/");
    link.number(u32::try_from(number).ok()?);
    let link = link.as_c()?;
    // The program's thread may have little stack.
    let room = raw::map_private(ROOM, Access::Write)?;
    let args = [libc::AT_FDCWD as usize, link.as_ptr() as usize, room, ROOM, 0, 0];
    // SAFETY: a path that ends with zero, and memory of ours.
    let told = unsafe { syscall(libc::SYS_readlinkat, args) }.ok().filter(|n| *n < ROOM);
    // SAFETY: the kernel has written that many bytes of it.
    let answer = told.map(|n| f(unsafe { core::slice::from_raw_parts(room as *const u8, n) }));
    // SAFETY: memory of ours that is not used any more.
    unsafe { raw::unmap(room, ROOM) };
    answer
}

/// Asks for a part of `area`, of at most [`PIECE`] bytes, which lie between two multiples of it in the file. Where it is
/// read ahead, by small pages, one call may ask for `each` bytes.
pub fn bring(part: Span, area: &FileArea, each: usize) -> Brought {
    mapped_file::take_ordinary_priority();
    let faults = mapped_file::own_major_faults();
    let asked = still_there(part, area).and_then(|()| match area.is_shared {
        true => bring_by_window(part, area, each),
        false => ask_by_pieces(part, each),
    });
    match asked {
        Ok(()) if mapped_file::own_major_faults() == faults && area.is_shared => Brought::Cached,
        Ok(()) => Brought::Read,
        Err(why) => why,
    }
}

/// A call that comes too late, for another mapping, changes nothing of it.
fn still_there(part: Span, area: &FileArea) -> Result<(), Brought> {
    let now = area::of_file(part.start).ok_or(Brought::Gone)?;
    let is_same = (now.file, now.origin, now.is_shared) == (area.file, area.origin, area.is_shared);
    (is_same && part.clip(now.span) == part).then_some(()).ok_or(Brought::Gone)
}

/// The kernel cuts a longer request off.
fn ask_by_pieces(part: Span, each: usize) -> Result<(), Brought> {
    for at in (part.start..part.end).step_by(each) {
        if !linux::madvise(Span::new(at, each).clip(part), libc::MADV_WILLNEED) {
            return Err(Brought::Refused);
        }
    }
    Ok(())
}

/// Where the second mapping lies; 0: there is no room yet.
static WINDOW: AtomicUsize = AtomicUsize::new(0);

fn window() -> Option<Span> {
    if WINDOW.load(Relaxed) == 0 {
        WINDOW.store(linux::reserve(PIECE, SLOT)?.start, Relaxed);
    }
    Some(Span::new(WINDOW.load(Relaxed), PIECE))
}

fn bring_by_window(part: Span, area: &FileArea, each: usize) -> Result<(), Brought> {
    let window = window().ok_or(Brought::Refused)?;
    let twin = Span::new(window.start, part.bytes());
    let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as usize;
    // A call that fails may have unmapped the window, which may be another's by then.
    WINDOW.store(0, Relaxed);
    // SAFETY: of a length of 0 the kernel maps the same once more, and leaves the program's mapping as it is.
    let made = unsafe { syscall(libc::SYS_mremap, [part.start, 0, part.bytes(), flags, twin.start, 0]) };
    made.map_err(|error| if error == Errno::EFAULT { Brought::Gone } else { Brought::Refused })?;
    WINDOW.store(window.start, Relaxed);
    // Before a page of it is touched: it is this file, whatever the program has mapped there meanwhile.
    let origin = area.origin.wrapping_add(twin.start.wrapping_sub(part.start));
    let is_file = still_there(twin, &FileArea { origin, ..*area });
    let asked = is_file.and_then(|()| match linux::madvise(twin, libc::MADV_HUGEPAGE) {
        // Its first page: the kernel begins to read the huge pages around it.
        true => populate(Span::new(twin.start, PAGE)),
        // A kernel without huge pages.
        false => ask_by_pieces(twin, each),
    });
    clear(window);
    asked
}

/// The window keeps no reference to the file. Where the kernel has no room for another area, there is no window.
fn clear(window: Span) {
    if !linux::reserve_at(window, libc::MAP_FIXED) {
        WINDOW.store(0, Relaxed);
        // SAFETY: the window is ours, and no thread uses it.
        unsafe { raw::unmap(window.start, window.bytes()) };
    }
}

/// In a forked child: its window may have a part of its parent's file.
pub fn forget() {
    if WINDOW.load(Relaxed) != 0 {
        clear(Span::new(WINDOW.load(Relaxed), PIECE));
    }
}

fn populate(span: Span) -> Result<(), Brought> {
    loop {
        let args = [span.start, span.bytes(), libc::MADV_POPULATE_READ as usize, 0, 0, 0];
        // SAFETY: a mapping of ours; what cannot be read is an error here, and no signal.
        match unsafe { syscall(libc::SYS_madvise, args) } {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(_) => return Err(Brought::Refused),
        }
    }
}
