//! Steps on malloc and its family.

use std::ffi::c_void;
use std::hint::black_box;

use crate::block::Block;
use crate::call::errno;
use crate::world::World;

impl World {
    /// A size as programs ask for them, most of them about a threshold or a multiple of 2 MiB.
    fn block_bytes(&mut self) -> usize {
        let near = |n: usize, off: usize| n + off - 32;
        let off = self.rng.below(64);
        match self.rng.below(12) {
            0 => self.rng.below(65),
            1 => self.rng.within(64, 4096),
            2..=4 => self.rng.within(64 << 10, 2 << 20),
            5 => near(self.rng.of(&[64, 128, 256, 512, 1024]) << 10, off),
            6 | 7 => near(self.rng.within(1, 6) << 21, off),
            8 => self.rng.within(1, 6) << 21,
            9 => self.rng.within(1, 8) << 20,
            10 => self.rng.within(2 << 20, 12 << 20),
            _ => self.rng.of(&[3 << 20, 16 << 20, 24 << 20, 40 << 20]),
        }
    }

    /// A step on blocks.
    pub fn block(&mut self) {
        let total: usize = self.blocks.iter().map(|b| b.asked).sum();
        if total > self.limit / 2 || self.blocks.len() > 60 {
            return self.free_some();
        }
        match self.rng.below(12) {
            0..=2 => self.allocate(),
            3 | 4 => self.clear_allocate(),
            5 => self.align_allocate(),
            6..=8 => self.reallocate(),
            9 | 10 => self.free_block(),
            _ => self.refused(),
        }
    }

    fn allocate(&mut self) {
        let bytes = self.block_bytes();
        // SAFETY: no preconditions; hidden from the optimiser, as all of these.
        let at = unsafe { libc::malloc(black_box(bytes)) };
        self.say(format_args!("malloc {bytes}"));
        self.keep(at, bytes, 16);
    }

    fn clear_allocate(&mut self) {
        let bytes = self.block_bytes();
        let n = self.rng.of(&[1, 1, 8]);
        // SAFETY: no preconditions.
        let at = unsafe { libc::calloc(black_box(n), bytes / n) };
        self.say(format_args!("calloc {n} x {}", bytes / n));
        let bytes = bytes / n * n;
        // SAFETY: a block of so many bytes.
        let content = unsafe { std::slice::from_raw_parts(at.cast::<u8>(), if at.is_null() { 0 } else { bytes }) };
        if let Some(i) = content.chunks(512).position(|c| c.iter().any(|b| *b != 0)) {
            self.wrong(format_args!("calloc: not zero near byte {}", i * 512));
        }
        self.keep(at, bytes, 16);
    }

    fn align_allocate(&mut self) {
        let bytes = self.block_bytes();
        let align = 1 << self.rng.within(4, 23);
        let mut at = std::ptr::null_mut();
        let which = self.rng.below(3);
        // SAFETY: valid alignments; `at` is writable.
        unsafe {
            match which {
                0 => at = libc::memalign(align, black_box(bytes)),
                1 => at = libc::aligned_alloc(align, black_box(bytes)),
                _ => assert_eq!(libc::posix_memalign(&mut at, align, black_box(bytes)), 0),
            }
        }
        self.say(format_args!("aligned {which}: {bytes} at a multiple of {align}"));
        self.keep(at, bytes, align);
    }

    fn keep(&mut self, at: *mut c_void, bytes: usize, align: usize) {
        // SAFETY: null or the start of a block.
        let usable = unsafe { libc::malloc_usable_size(at) };
        if at.is_null() || at as usize % align != 0 || usable < bytes {
            self.wrong(format_args!("{bytes} bytes at a multiple of {align}: {at:?}, usable {usable}"));
        }
        let seed = self.rng.word();
        // All that is usable belongs to the block.
        let used = if self.rng.one_in(4) { bytes } else { usable.min(bytes + 4096) };
        let block = Block { at, asked: bytes, bytes: used, seed };
        block.mark();
        if self.rng.one_in(3) {
            self.overlaps(&block);
        }
        self.blocks.push(block);
    }

    fn overlaps(&mut self, new: &Block) {
        let (start, end) = (new.at as usize, new.at as usize + new.bytes.max(1));
        let clash = self.blocks.iter().position(|b| (b.at as usize) < end && start < b.at as usize + b.bytes);
        if let Some(i) = clash {
            self.wrong(format_args!("a new block lies in block {i}"));
        }
        let page = crate::call::PAGE;
        let clash = self.regions.iter().find_map(|r| {
            let inside = |i: &usize| r.at(*i) < end && start < r.at(*i) + page && r.pages[*i].is_some();
            (0..r.pages.len()).find(inside).map(|i| (r.id, i))
        });
        if let Some((id, i)) = clash {
            self.wrong(format_args!("a new block lies in page {i} of r{id}"));
        }
    }

    /// Verifies block `b`.
    pub fn verify_block(&mut self, b: usize) {
        if let Some(at) = self.blocks[b].spoilt(self.blocks[b].bytes) {
            let bytes = self.blocks[b].bytes;
            self.wrong(format_args!("block {b} of {bytes}: byte {at} was overwritten"));
        }
    }

    fn reallocate(&mut self) {
        if self.blocks.is_empty() {
            return;
        }
        let b = self.rng.below(self.blocks.len());
        self.verify_block(b);
        let near = self.blocks[b].asked;
        let bytes = match self.rng.below(4) {
            0 => near + self.rng.within(1, 4 << 20),
            1 => (near / 2).max(1),
            _ => self.block_bytes().max(1),
        };
        let old = self.blocks.swap_remove(b);
        let array = self.rng.one_in(4);
        // SAFETY: a live block, given up here.
        let at = unsafe {
            if array {
                libc::reallocarray(black_box(old.at), 1, bytes)
            } else {
                libc::realloc(black_box(old.at), bytes)
            }
        };
        self.say(format_args!("realloc block {b} to {bytes}"));
        let moved = Block { at, ..old };
        if at.is_null() {
            self.wrong(format_args!("realloc fails: {}", errno()));
        }
        if let Some(offset) = moved.spoilt(near.min(bytes)) {
            self.wrong(format_args!("realloc of {near} to {bytes}: byte {offset} is lost"));
        }
        self.keep(at, bytes, 16);
    }

    fn free_block(&mut self) {
        if self.blocks.is_empty() {
            return;
        }
        let b = self.rng.below(self.blocks.len());
        self.verify_block(b);
        let block = self.blocks.swap_remove(b);
        self.say(format_args!("free block {b}"));
        // SAFETY: a live block, given up here.
        unsafe {
            if self.rng.one_in(8) {
                let rest = libc::realloc(black_box(block.at), 0);
                assert!(rest.is_null());
            } else {
                libc::free(black_box(block.at));
            }
        }
    }

    fn free_some(&mut self) {
        for _ in 0..self.blocks.len() / 2 + 1 {
            self.free_block();
        }
    }

    fn refused(&mut self) {
        let most = isize::MAX as usize;
        let mut out = std::ptr::null_mut();
        let block = self.blocks.first().map_or(std::ptr::null_mut(), |b| b.at);
        // SAFETY: failing calls leave a block as it is.
        let answers = unsafe {
            [
                libc::malloc(black_box(most + 1)).is_null().then(errno),
                libc::calloc(black_box(most), 4).is_null().then(errno),
                libc::calloc(black_box(1 << 46), 1 << 4).is_null().then(errno),
                libc::realloc(block, black_box(most + 1)).is_null().then(errno),
                libc::reallocarray(block, black_box(most), 4).is_null().then(errno),
                libc::memalign(4096, black_box(most)).is_null().then(errno),
                libc::aligned_alloc(4096, black_box(most)).is_null().then(errno),
                Some(libc::posix_memalign(&mut out, 4096, black_box(most))),
                Some(libc::posix_memalign(&mut out, 24, black_box(1 << 20))),
                Some(libc::posix_memalign(&mut out, 0, black_box(1 << 20))),
                Some(libc::malloc_usable_size(std::ptr::null_mut()) as i32),
            ]
        };
        self.say(format_args!("refused: {answers:?}"));
        if !self.blocks.is_empty() {
            self.verify_block(0);
        }
    }
}
