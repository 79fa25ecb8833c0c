//! Bytes are copied between a file's pages and memory of the program's.
//!
//! The pages cannot go meanwhile. A fault in the program's memory may need the room of pages in a group. Then the bytes
//! go by way of the stack, so a thread that faults keeps no page from going.

use faultless_base::sys::file_memory;
use faultless_base::{Errno, PAGE, Span};
use faultless_mm::cache::Use;

use crate::file::shared::Shared;

/// Bytes that go by way of the stack at a time.
const BOUNCE: usize = 4 * PAGE;

impl Shared {
    /// Copies bytes inside the file to `to`. How many: fewer than asked for before such that cannot be read.
    ///
    /// # Safety
    /// `to` is writable for that many bytes.
    pub(super) unsafe fn copy_out(&self, at: usize, bytes: usize, mut to: usize) -> Result<usize, Errno> {
        let copy = |from: Span, to: usize| {
            // SAFETY: bytes of the file that stay in memory; together they are no more than the caller has.
            unsafe { file_memory::copy(from.start, to, from.bytes()) };
            from.bytes()
        };
        if !self.bounces() {
            return self.engine.with(at, bytes, Use::Read, |from| to += copy(from, to));
        }
        let mut bounce = [0_u8; BOUNCE];
        let place = bounce.as_mut_ptr() as usize;
        by_pieces(bytes, |done, n| {
            let mut at_place = place;
            let read = self.engine.with(at + done, n, Use::Read, |from| at_place += copy(from, at_place))?;
            copy(Span::new(place, read), to + done);
            Ok(read)
        })
    }

    /// Copies bytes to the file, by `write`: as [`faultless_mm::cache::Cache::with`] for writing, or one that makes the
    /// file longer.
    ///
    /// # Safety
    /// `from` is readable for that many bytes.
    pub(super) unsafe fn copy_in(
        &self,
        at: usize,
        bytes: usize,
        mut from: usize,
        write: impl Fn(usize, usize, &mut dyn FnMut(Span)) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        let copy = |from: usize, to: Span| {
            // SAFETY: as in `copy_out`. Other threads may read and write there.
            unsafe { file_memory::copy(from, to.start, to.bytes()) };
            to.bytes()
        };
        if !self.bounces() {
            return write(at, bytes, &mut |to| from += copy(from, to));
        }
        let mut bounce = [0_u8; BOUNCE];
        let place = bounce.as_mut_ptr() as usize;
        by_pieces(bytes, |done, n| {
            copy(from + done, Span::new(place, n));
            let mut at_place = place;
            write(at + done, n, &mut |to| at_place += copy(at_place, to))
        })
    }
}

/// Makes pieces of some bytes, up to the first that is not done whole. How many are done; an error of the first.
fn by_pieces(bytes: usize, mut piece: impl FnMut(usize, usize) -> Result<usize, Errno>) -> Result<usize, Errno> {
    let mut done = 0;
    loop {
        let n = (bytes - done).min(BOUNCE);
        match piece(done, n) {
            Ok(more) => done += more,
            Err(error) if done == 0 => return Err(error),
            Err(_) => return Ok(done),
        }
        if n == 0 || done == bytes || done % BOUNCE != 0 {
            return Ok(done);
        }
    }
}
