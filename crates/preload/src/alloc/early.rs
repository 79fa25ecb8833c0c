//! Memory for requests before this library is linked.
//!
//! The dynamic linker fills in a library's addresses in the order that the library is needed in, the last one first. A
//! resolver of an indirect function (IFUNC) runs while its own library is linked, so before this one, which stands in
//! front of it. Nothing here calls another library or refers to it, thread-local variables included: none of the
//! addresses is there yet. Such blocks are never reused.

use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use faultless_base::PAGE;
use faultless_base::sys::raw::{self, Access};

use crate::alloc::MALLOC_ALIGN;

/// Rooms for blocks: each one is used when the one before, half as large, has no place left.
const ROOMS: usize = 12;
const FIRST_ROOM: usize = 16 << 20;
/// Before each block: its size.
const HEAD: usize = size_of::<usize>();

struct Room {
    /// Where it begins; 0: it was not needed yet.
    start: AtomicUsize,
    used: AtomicUsize,
}

static ALL: [Room; ROOMS] = [const { Room { start: AtomicUsize::new(0), used: AtomicUsize::new(0) } }; ROOMS];

fn rooms() -> impl Iterator<Item = (&'static Room, usize)> {
    ALL.iter().enumerate().map(|(i, room)| (room, FIRST_ROOM << i))
}

/// Whether `block` was given out here.
pub fn holds(block: *mut c_void) -> bool {
    was_asked()
        && rooms().any(|(room, bytes)| {
            let start = room.start.load(Ordering::Relaxed);
            start != 0 && (block as usize).wrapping_sub(start) < bytes
        })
}

/// Whether any block was.
pub fn was_asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

static ASKED: AtomicBool = AtomicBool::new(false);

impl Room {
    fn start(&self, bytes: usize) -> Option<usize> {
        if self.start.load(Ordering::Relaxed) == 0 {
            let room = raw::map_private(bytes, Access::Write)?;
            if self.start.compare_exchange(0, room, Ordering::Relaxed, Ordering::Relaxed).is_err() {
                // SAFETY: made above, and no other thread knows of it.
                unsafe { raw::unmap(room, bytes) };
            }
        }
        Some(self.start.load(Ordering::Relaxed))
    }

    /// A block in this room, which has `room` bytes.
    fn allocate(&self, room: usize, bytes: usize, align: usize) -> Option<*mut c_void> {
        if bytes > room || align > room {
            return None;
        }
        let start = self.start(room)?;
        let place = |used: usize| (start + used + HEAD).next_multiple_of(align) - start;
        let end = |used: usize| Some(place(used) + bytes).filter(|end| *end <= room);
        let used = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, end).ok()?;
        let block = (start + place(used)) as *mut usize;
        // SAFETY: within the room, of which no other block has this part.
        unsafe { block.sub(1).write(bytes) };
        Some(block.cast())
    }
}

/// A block of zeroes, or null; then without an error number, which is a thread-local variable.
pub fn allocate(bytes: usize, align: usize) -> *mut c_void {
    let align = align.max(MALLOC_ALIGN);
    if !align.is_power_of_two() {
        return null_mut();
    }
    ASKED.store(true, Ordering::Relaxed);
    rooms().find_map(|(room, size)| room.allocate(size, bytes, align)).unwrap_or(null_mut())
}

/// Gives the memory of a block back, and not its addresses.
pub fn free(block: *mut c_void) {
    if !holds(block) {
        return;
    }
    let (at, bytes) = (block as usize, usable(block));
    let first = at.next_multiple_of(PAGE);
    if let Some(whole) =
        (at + bytes).checked_sub(first).map(|bytes| bytes / PAGE * PAGE).filter(|whole| *whole > 0)
    {
        // SAFETY: pages of the block alone, which is not used any more.
        let _ = unsafe { raw::syscall(libc::SYS_madvise, [first, whole, libc::MADV_DONTNEED as usize, 0, 0, 0]) };
    }
}

/// The size of a block that was given out here.
pub fn usable(block: *mut c_void) -> usize {
    // SAFETY: the head of a block.
    unsafe { block.cast::<usize>().sub(1).read() }
}

/// Copies what fits of `from`, a block given out here, to `to`, a block of `bytes` bytes.
pub fn copy(from: *mut c_void, to: *mut c_void, bytes: usize) {
    for i in 0..usable(from).min(bytes) {
        // Volatile, because the compiler makes a call of the C library's out of a plain loop.
        // SAFETY: two different blocks of at least so many bytes.
        unsafe { to.cast::<u8>().add(i).write_volatile(from.cast::<u8>().add(i).read()) };
    }
}
