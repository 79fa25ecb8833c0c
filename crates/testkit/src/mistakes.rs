//! Calls that must fail, and leave everything as it was.

use crate::call::{self, ANON, Answer, PAGE, RW};
use crate::world::World;

impl World {
    /// One of each kind of unsound call about a region.
    pub fn mistakes(&mut self) {
        let Some((r, range)) = self.any_range(true) else { return };
        let (id, at, bytes) = (self.regions[r].id, self.regions[r].at(range.start), range.len() * PAGE);
        let wrap = usize::MAX - PAGE + 1;
        let fixed = |flags: i32, fd: i32| call::mmap(at, bytes, RW, flags | libc::MAP_FIXED, fd, 0);
        let answers: [Answer; 26] = [
            call::munmap(at + 1, bytes),
            call::munmap(at, 0),
            call::munmap(at, wrap),
            call::munmap(at, usize::MAX),
            call::mprotect(at + 1, bytes, libc::PROT_NONE),
            call::mprotect(at, 0, libc::PROT_NONE),
            call::mprotect(at, wrap, libc::PROT_NONE),
            call::mprotect(at, bytes, 1 << 20),
            call::madvise(at + 1, bytes, libc::MADV_DONTNEED),
            call::madvise(at, 0, libc::MADV_DONTNEED),
            call::madvise(at, wrap, libc::MADV_DONTNEED),
            call::madvise(at, bytes, 9999),
            call::mremap(at + 1, bytes, bytes, 0, 0),
            call::mremap(at, bytes, 0, libc::MREMAP_MAYMOVE, 0),
            call::mremap(at, bytes, bytes, 1 << 10, 0),
            call::mremap(at, bytes, bytes, libc::MREMAP_FIXED, at),
            call::mremap(at, bytes, bytes, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, at + 1),
            call::mremap(at, bytes, bytes + PAGE, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, at),
            call::mremap(at, bytes, 1 << 47, libc::MREMAP_MAYMOVE, 0),
            fixed(libc::MAP_PRIVATE, -1),
            fixed(libc::MAP_ANONYMOUS, -1),
            call::mmap(at + 1, bytes, RW, ANON | libc::MAP_FIXED, -1, 0),
            call::mmap(at, 0, RW, ANON | libc::MAP_FIXED, -1, 0),
            call::mmap(0, 0, RW, ANON, -1, 0),
            call::mmap(0, 1 << 47, RW, ANON, -1, 0),
            call::mmap(0, usize::MAX, RW, ANON, -1, 0),
        ];
        let shown = answers.map(|a| a.map(|_| ()));
        self.say(format_args!("mistakes with r{id} {range:?}: {shown:?}"));
        self.verify(r, range, false);
    }
}
