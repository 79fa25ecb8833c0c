//! How a region is made, as C says it.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;

use faultless::region::{Backing, Builder, Delivery, Swap};

use crate::error::{NEWER, SIZE};

/// Fills a buffer from a backing.
type Read = unsafe extern "C" fn(context: *mut c_void, offset: u64, buffer: *mut c_void, length: usize) -> c_int;

/// `faultless_options`: zero bytes stand for the defaults. New fields go to the end, and zero in them means what was
/// so before them. A field of four bytes gets a neighbour, so that the size tells which fields there are.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Options {
    size: usize,
    delivery: u32,
    handlers: u32,
    window_first: usize,
    window_most: usize,
    areas: usize,
    budget: usize,
    small_pages: u32,
    unmapped: u32,
    read: Option<Read>,
    context: *mut c_void,
    unzeroed: u32,
    events: u32,
    swap_budget: usize,
    swap_directory: *const c_char,
}

struct Function {
    read: Read,
    context: *mut c_void,
}

// SAFETY: the program that gives the function promises that any thread may call it.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Backing for Function {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), i32> {
        // SAFETY: the buffer is writable; the rest is the program's promise.
        match unsafe { (self.read)(self.context, offset, buffer.as_mut_ptr().cast(), buffer.len()) } {
            0 => Ok(()),
            errno @ 1..4096 => Err(errno),
            // No error that the kernel has; -1, say.
            _ => Err(libc::EIO),
        }
    }
}

/// No options of any version are larger.
const LARGEST: usize = 4096;

impl Options {
    /// The options at `from`, which are those of the version that the program was compiled with. Fields that an older
    /// one does not have are zero. Fields that a newer one has beside must be zero. Else the number of an error.
    ///
    /// # Safety
    /// As many bytes are readable as the first field says, if that is a size that options can have.
    pub(crate) unsafe fn read(from: *const Self) -> Result<Self, c_int> {
        const KNOWN: usize = size_of::<Options>();
        let mut options = MaybeUninit::<Self>::zeroed();
        // SAFETY: by contract; the fields may all be zero, and no size that passes ends within a field.
        unsafe {
            let size = (&raw const (*from).size).read();
            if size == 0 || size % align_of::<Self>() != 0 || size > LARGEST {
                return Err(SIZE);
            }
            let bytes = from.cast::<u8>();
            bytes.copy_to_nonoverlapping(options.as_mut_ptr().cast(), size.min(KNOWN));
            if (KNOWN..size).any(|at| bytes.add(at).read() != 0) {
                return Err(NEWER);
            }
            Ok(options.assume_init())
        }
    }

    /// A builder with these choices; `None` when a number stands for nothing.
    pub(crate) fn apply(&self, mut builder: Builder) -> Option<Builder> {
        let modes = [Delivery::Best, Delivery::Direct, Delivery::Thread, Delivery::Signal, Delivery::Kernel];
        builder = builder
            .delivery(*modes.get(self.delivery as usize)?)
            .huge_pages(self.small_pages == 0)
            .mapped(self.unmapped == 0)
            .zeroed(self.unzeroed == 0)
            .events(self.events != 0);
        if self.handlers > 0 {
            builder = builder.handlers(self.handlers as usize);
        }
        if self.window_first > 0 {
            builder = builder.first_window(self.window_first);
        }
        if self.window_most > 0 {
            builder = builder.most_window(self.window_most);
        }
        if self.areas > 0 {
            builder = builder.areas(self.areas);
        }
        if self.budget > 0 {
            builder = builder.budget(self.budget);
        }
        if self.swap_budget > 0 {
            let mut swap = Swap::new(self.swap_budget);
            if !self.swap_directory.is_null() {
                // SAFETY: the program's promise: a string.
                let path = unsafe { CStr::from_ptr(self.swap_directory) };
                swap = swap.directory(OsStr::from_bytes(path.to_bytes()));
            }
            builder = builder.swap(swap);
        }
        if let Some(read) = self.read {
            builder = builder.backing(Function { read, context: self.context });
        }
        Some(builder)
    }
}
