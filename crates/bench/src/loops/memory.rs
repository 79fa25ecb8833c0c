//! Memory as a C program gets it: through the C library's mmap and malloc, which a preload library can replace.

use std::fs::File;
use std::hint::black_box;
use std::io;
use std::os::fd::AsRawFd;
use std::slice;

/// The step of a touch.
pub const PAGE: usize = 4096;

/// A private anonymous mapping, or one of a file.
pub struct Mapping {
    base: *mut u8,
    len: usize,
}

impl Mapping {
    /// Maps `len` bytes.
    pub fn new(len: usize) -> io::Result<Mapping> {
        Self::map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
    }

    /// Maps the first `len` bytes of a file, which has as many.
    pub fn of_file(file: &File, len: usize, shared: bool) -> io::Result<Mapping> {
        Self::map(len, if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE }, file.as_raw_fd())
    }

    fn map(len: usize, flags: i32, file: i32) -> io::Result<Mapping> {
        // SAFETY: a new mapping wherever there is room.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, file, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping { base: base.cast(), len })
    }

    /// Asks for huge pages.
    pub fn advise_huge(&self) {
        // SAFETY: the range is ours; the advice changes no contents.
        unsafe { libc::madvise(self.base.cast(), self.len, libc::MADV_HUGEPAGE) };
    }

    /// Its bytes.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: readable and writable over its whole length, zeroes at first, and borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.base, self.len) }
    }

    /// Writes one byte each `step` bytes.
    pub fn touch(&mut self, step: usize) -> u64 {
        // SAFETY: the mapping is readable and writable over its whole length and no other code knows it.
        unsafe { touch(self.base, self.len, step) }
    }
}

/// Part of a mapping, for the thread that is to touch it while the mapping exists.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    base: usize,
    len: usize,
}

/// Bytes of a line.
pub const LINE: usize = 64;

impl Mapping {
    /// All of it.
    pub fn place(&self) -> Place {
        Place { base: self.base as usize, len: self.len }
    }
}

impl Place {
    /// Where it begins.
    pub fn start(self) -> usize {
        self.base
    }

    /// The byte at an offset.
    pub fn read(self, offset: usize) -> u8 {
        assert!(offset < self.len);
        // SAFETY: inside the mapping, which the maker of the place keeps until all threads are done.
        unsafe { ((self.base + offset) as *const u8).read_volatile() }
    }

    /// The `index`th of `parts` parts of whole pages.
    pub fn part(self, index: usize, parts: usize) -> Place {
        let at = |i: usize| self.len / PAGE * i / parts * PAGE;
        Place { base: self.base + at(index), len: at(index + 1) - at(index) }
    }

    /// Writes a byte in each of the first `lines` lines of each page, and adds up these and others that were not
    /// written, as [`touch`] does.
    pub fn touch_lines(self, lines: usize) -> u64 {
        let mut sum = 0u64;
        for page in (self.base..self.base + self.len).step_by(PAGE) {
            for line in 0..lines.min(PAGE / LINE) {
                let at = (page + line * LINE) as *mut u8;
                // SAFETY: the maker of the place waits with unmapping until all threads are done, and parts do not
                // overlap.
                unsafe {
                    at.write_volatile(line as u8 | 1);
                    sum += (line as u8 | 1) as u64 + at.add(8).read_volatile() as u64;
                }
            }
        }
        sum
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is ours and nothing borrows from it any more.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

/// A block from malloc or calloc.
pub struct Block {
    base: *mut u8,
    len: usize,
}

// SAFETY: a block has one owner, and malloc's blocks may be freed by any thread.
unsafe impl Send for Block {}

impl Block {
    /// A block with no promised contents.
    pub fn new(len: usize) -> io::Result<Block> {
        // SAFETY: malloc may be called with any size.
        Block::checked(unsafe { libc::malloc(len) }, len)
    }

    /// A block of zeroes.
    pub fn zeroed(len: usize) -> io::Result<Block> {
        // SAFETY: calloc may be called with any size.
        Block::checked(unsafe { libc::calloc(len, 1) }, len)
    }

    fn checked(base: *mut libc::c_void, len: usize) -> io::Result<Block> {
        // Without the black box the compiler drops pairs of malloc and free.
        match black_box(base.cast::<u8>()) {
            base if base.is_null() => Err(io::Error::from_raw_os_error(libc::ENOMEM)),
            base => Ok(Block { base, len }),
        }
    }

    /// Writes one byte each `step` bytes of a zeroed block.
    pub fn touch(&mut self, step: usize) -> u64 {
        // SAFETY: the block is ours, and zeroed ones are initialised.
        unsafe { touch(self.base, self.len, step) }
    }

    /// Writes one byte each `step` bytes, whatever the block holds; how many.
    pub fn mark(&mut self, step: usize) -> u64 {
        // SAFETY: the block is ours, and nothing of it is read.
        (0..self.len).step_by(step).map(|at| unsafe { self.base.add(at).write_volatile(1) }).count() as u64
    }

    /// Copies words of its size to it.
    pub fn copy_from(&mut self, words: &[u64]) -> &[u64] {
        assert_eq!(size_of_val(words), self.len);
        // SAFETY: the block is ours, as long as the words, and apart from them; after the copy it is initialised; malloc
        // aligns to 16 bytes.
        unsafe {
            self.base.cast::<u64>().copy_from_nonoverlapping(words.as_ptr(), words.len());
            slice::from_raw_parts(self.base.cast(), words.len())
        }
    }

    /// Writes all of it.
    pub fn fill(&mut self, value: u8) -> &mut [u64] {
        // SAFETY: the block is ours; after the write it is initialised; malloc aligns to 16 bytes.
        unsafe {
            self.base.write_bytes(value, self.len);
            slice::from_raw_parts_mut(self.base.cast(), self.len / 8)
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: it came from malloc or calloc and is freed once.
        unsafe { libc::free(black_box(self.base).cast()) };
    }
}

/// Writes a byte each `step` bytes. Adds up these and the bytes eight places further, which were not written: a sum
/// that differs shows memory that was not zero. The write comes first, so that the kernel sees one fault and not a
/// read fault before it.
///
/// # Safety `len` bytes from `base` are readable, writable and the caller's alone, and `step` divides into pieces
/// over 8 bytes.
unsafe fn touch(base: *mut u8, len: usize, step: usize) -> u64 {
    let mut sum = 0u64;
    for offset in (0..len).step_by(step) {
        let value = (offset / step) as u8 | 1;
        // SAFETY: the offset is below `len`, and the last piece has more than 8 bytes.
        unsafe {
            base.add(offset).write_volatile(value);
            sum += value as u64 + base.add(offset + 8).read_volatile() as u64;
        }
    }
    sum
}

/// Has the kernel make whole pages present, as writes would.
pub fn populate(pages: &mut [u8]) -> io::Result<()> {
    // SAFETY: the memory is the caller's; the advice changes no contents.
    match unsafe { libc::madvise(pages.as_mut_ptr().cast(), pages.len(), libc::MADV_POPULATE_WRITE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes the C library map each block of at least `bytes` on its own, as `ebizzy -m` does.
pub fn map_blocks_from(bytes: usize) {
    // SAFETY: no pointers.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, bytes as libc::c_int) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touching_twice_adds_up_the_same_and_finds_what_is_not_zero() {
        let mut mapping = Mapping::new(16 * PAGE).unwrap();
        let sum = mapping.touch(PAGE);
        assert_eq!(mapping.touch(PAGE), sum);
        let mut block = Block::zeroed(16 * PAGE).unwrap();
        assert_eq!(block.touch(PAGE), sum);
        block.fill(3);
        assert_eq!(block.touch(PAGE), sum + 16 * 3);
    }
}
