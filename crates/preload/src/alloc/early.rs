//! Memory for who asks before this library is linked.
//!
//! The dynamic linker fills in a library's addresses in the order that the library is needed in, the last one first. A
//! resolver of an indirect function (IFUNC) runs while its own library is linked, so before this one, which stands in
//! front of it. Nothing here calls another library or refers to it, thread-local variables included: none of the
//! addresses is there yet. Such blocks are never reused.

use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicUsize, Ordering};

use faultless_base::sys::raw::{self, Access};

use crate::alloc::MALLOC_ALIGN;

/// Room for all blocks together.
const ROOM: usize = 16 << 20;
/// Before each block: its size.
const HEAD: usize = size_of::<usize>();

/// Where the room begins; 0: nobody has asked yet.
static START: AtomicUsize = AtomicUsize::new(0);
static USED: AtomicUsize = AtomicUsize::new(0);

/// Whether `block` was given out here.
pub fn holds(block: *mut c_void) -> bool {
    let start = START.load(Ordering::Relaxed);
    start != 0 && (block as usize).wrapping_sub(start) < ROOM
}

/// Whether any block was.
pub fn was_asked() -> bool {
    START.load(Ordering::Relaxed) != 0
}

fn start() -> Option<usize> {
    if !was_asked() {
        let room = raw::map_private(ROOM, Access::Write)?;
        if START.compare_exchange(0, room, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            // SAFETY: made above, and nobody knows of it.
            unsafe { raw::unmap(room, ROOM) };
        }
    }
    Some(START.load(Ordering::Relaxed))
}

/// A block of zeroes, or null; then without an error number, which is a thread-local variable.
pub fn allocate(bytes: usize, align: usize) -> *mut c_void {
    let align = align.max(MALLOC_ALIGN);
    if bytes > ROOM || align > ROOM || !align.is_power_of_two() {
        return null_mut();
    }
    let Some(start) = start() else { return null_mut() };
    let place = |used: usize| (start + used + HEAD).next_multiple_of(align) - start;
    let end = |used: usize| Some(place(used) + bytes).filter(|end| *end <= ROOM);
    let Ok(used) = USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, end) else { return null_mut() };
    let block = (start + place(used)) as *mut usize;
    // SAFETY: within the room, of which no other block has this part.
    unsafe { block.sub(1).write(bytes) };
    block.cast()
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
