//! Memory to measure on; the unsafe code of the measurements.
//!
//! By system calls alone: this process may itself run under faultless, and the kernel is what is measured.

use std::hint::black_box;
use std::time::Instant;

use faultless_base::sys::linux::Linux;
use faultless_base::sys::raw::{Access, map_private, syscall};
use faultless_base::sys::uffd::{REGISTER_MISSING, Stopped, Uffd, Wake};
use faultless_base::sys::{Huge, Sys};
use faultless_base::zero::Engine;
use faultless_base::zero::driver::Driver;
use faultless_base::{PAGE, SLOT, Span};

/// Nanoseconds that `work` takes.
pub fn time(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64
}

/// Private anonymous memory of this measurement's own, which begins at a multiple of 2 MiB.
#[derive(Debug)]
pub struct Area {
    span: Span,
    mapped: Span,
}

impl Area {
    /// Maps `bytes`, with huge pages advised or refused.
    pub fn new(bytes: usize, huge: Huge) -> Result<Self, String> {
        let whole = bytes + SLOT;
        let at = map_private(whole, Access::Write).ok_or_else(|| format!("no {} MiB to map", whole >> 20))?;
        let area = Self { span: Span::new(at.next_multiple_of(SLOT), bytes), mapped: Span::new(at, whole) };
        Linux.huge(area.span, huge);
        Ok(area)
    }

    /// Where it is.
    pub fn span(&self) -> Span {
        self.span
    }

    /// The `i`th piece of `bytes`.
    pub fn piece(&self, i: usize, bytes: usize) -> Span {
        let piece = Span::new(self.span.start + i * bytes, bytes);
        assert!(piece.end <= self.span.end, "a piece beyond the area");
        piece
    }

    /// Writes a byte of each page of a part of it.
    pub fn touch(&self, part: Span) {
        assert!(self.span.clip(part) == part, "a part beyond the area");
        for page in (part.start..part.end).step_by(PAGE) {
            // SAFETY: inside the mapping, as for `write`.
            unsafe { (page as *mut u8).write_volatile(1) }
        }
    }

    /// Reads a byte of each page: those that are missing become the kernel's page of zeroes.
    pub fn read(&self) {
        for page in (self.span.start..self.span.end).step_by(PAGE) {
            // SAFETY: inside the mapping, as for `write`.
            black_box(unsafe { (page as *const u8).read_volatile() });
        }
    }

    /// Writes a byte.
    pub fn write(&self, at: usize) {
        assert!(self.span.contains(at), "a byte beyond the area");
        // SAFETY: inside the mapping, which no other code knows; pages that are missing are brought by the kernel or
        // by the measurement.
        unsafe { (at as *mut u8).write_volatile(1) }
    }

    /// Whether touching a huge page's worth brings a huge page: most of it is then there after the first byte.
    pub fn has_huge_pages(&self) -> bool {
        let piece = self.piece(0, SLOT);
        Linux.discard(piece);
        self.write(piece.start);
        Linux.present_pages(piece) > SLOT / PAGE / 2
    }

    /// Zeroes a part of it, of whole lines.
    pub fn zero(&self, engine: Engine, part: Span) {
        assert!(self.span.clip(part) == part && engine.is_available());
        assert!((part.start | part.bytes()) % engine.grain() == 0, "not whole lines");
        // SAFETY: the memory is this area's, private, anonymous, and a multiple of the grain; the engine is there.
        unsafe { engine.zero(part.start as *mut u8, part.bytes()) };
        black_box(part.start as *const u8);
    }

    /// Has a driver zero a part of it; whether it took it. The area outlives what the driver does.
    pub fn submit(&self, driver: &mut impl Driver, part: Span) -> bool {
        assert!(self.span.clip(part) == part && (part.start | part.bytes()) % 64 == 0);
        // SAFETY: the memory is this area's, and whole lines of it.
        unsafe { driver.submit(part) }
    }

    /// Has faults of it delivered to `uffd`. The area outlives it, or is unmapped with it. No other thread touches
    /// it.
    pub fn register(&self, uffd: &Uffd) -> Result<(), String> {
        // SAFETY: only the measurement accesses the area, and serves what it registers.
        unsafe { uffd.register(self.span, REGISTER_MISSING) }.map(drop).map_err(|e| super::errno("register", e))
    }

    /// Copies the beginning of this area, which is there, to where pages are missing in another.
    pub fn copy_to(&self, uffd: &Uffd, to: &Area, at: Span) -> Result<(), Stopped> {
        assert!(at.bytes() <= self.span.bytes() && to.span.clip(at) == at);
        // SAFETY: this area has as many bytes; the call itself refuses what is not registered.
        unsafe { uffd.copy(self.span.start, at, Wake::Later) }
    }

    /// Moves a piece of this area to where pages are missing in another.
    pub fn move_to(&self, uffd: &Uffd, from: Span, to: &Area, at: Span) -> Result<(), Stopped> {
        assert!(self.span.clip(from) == from && to.span.clip(at) == at);
        // SAFETY: both are areas of the measurement's; the call itself refuses what is not registered.
        unsafe { uffd.move_pages(from.start, at, Wake::Now) }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `new`; nothing borrows from it.
        let _ = unsafe { syscall(libc::SYS_munmap, [self.mapped.start, self.mapped.bytes(), 0, 0, 0, 0]) };
    }
}

/// What missing pages are filled with.
static ZEROES: [u8; PAGE] = [0; PAGE];

/// Fills the missing page around `address`; whether that worked.
pub fn serve(uffd: &Uffd, address: usize) -> bool {
    let page = Span::new(address & !(PAGE - 1), PAGE);
    // SAFETY: a page of zeroes; the kernel refuses pages that are not registered with this descriptor.
    unsafe { uffd.copy(ZEROES.as_ptr() as usize, page, Wake::Now) }.is_ok()
}
