//! Backings of the program's own, in place of a file of the system.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use faultless_base::sys::file_memory;
use faultless_base::{Errno, Span};
use faultless_mm::cache::backing::Backing as Engine;

/// Where the bytes of a [`super::File`] come from and go to. Any thread may call any of these, several at a time. They
/// must not use the file itself.
pub trait Backing: Send + Sync {
    /// How long it is. Asked for once.
    fn length(&self) -> io::Result<u64>;

    /// Fills `buffer` with what is at `offset`. It ends inside the length.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes everything written so far durable.
    fn sync(&self) -> io::Result<()>;

    /// Makes it longer, by zeroes.
    fn grow(&self, _length: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Makes it shorter.
    fn truncate(&self, _length: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Has bytes read as zero, and keeps no room for them; `false` where it cannot: zeroes are written then.
    fn punch(&self, _offset: u64, _bytes: usize) -> io::Result<bool> {
        Ok(false)
    }

    /// Whether the bytes come by huge pages, 2 MiB at a time. If not, they come by pages of 4 KiB.
    fn is_huge(&self) -> bool {
        true
    }
}

/// Bytes that are copied at a time before a backing writes them: threads may change those of the file meanwhile.
const BOUNCE: usize = 64 << 10;

/// Such a backing, for the engine.
pub(super) struct Custom {
    backing: Box<dyn Backing>,
    length: AtomicU64,
}

impl Custom {
    pub(super) fn new(backing: Box<dyn Backing>) -> io::Result<(Self, u64)> {
        let length = backing.length()?;
        Ok((Self { backing, length: length.into() }, length))
    }
}

/// Calls a backing. One that panics has failed: the cache goes on without those bytes. The message is the panic's own.
fn call<T>(f: impl FnOnce() -> io::Result<T>) -> Result<T, Errno> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|_| Err(io::ErrorKind::Other.into())).map_err(number)
}

fn number(error: io::Error) -> Errno {
    Errno::new(error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::Unsupported => libc::EOPNOTSUPP,
        _ => libc::EIO,
    }))
}

impl Engine for Custom {
    fn read(&self, offset: u64, to: Span) -> Result<usize, Errno> {
        let length = self.length.load(Relaxed);
        let bytes = length.saturating_sub(offset).min(to.bytes() as u64) as usize;
        // SAFETY: memory of the caller's alone, readable and writable.
        let buffer = unsafe { std::slice::from_raw_parts_mut(to.start as *mut u8, bytes) };
        call(|| self.backing.read(offset, buffer))?;
        Ok(bytes)
    }

    fn write(&self, offset: u64, from: Span) -> Result<(), Errno> {
        let mut bounce = vec![0; from.bytes().min(BOUNCE)];
        for at in (from.start..from.end).step_by(BOUNCE) {
            let part = Span::new(at, BOUNCE).clip(from);
            // SAFETY: the caller's memory, and as many bytes of this function's.
            unsafe { file_memory::copy(part.start, bounce.as_mut_ptr() as usize, part.bytes()) };
            let offset = offset + (at - from.start) as u64;
            call(|| self.backing.write(offset, &bounce[..part.bytes()]))?;
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), Errno> {
        call(|| self.backing.sync())
    }

    fn grow(&self, length: u64) -> Result<u64, Errno> {
        call(|| self.backing.grow(length))?;
        Ok(self.length.swap(length, Relaxed))
    }

    fn truncate(&self, length: u64) -> Result<(), Errno> {
        call(|| self.backing.truncate(length))?;
        self.length.store(length, Relaxed);
        Ok(())
    }

    fn punch(&self, offset: u64, bytes: usize) -> Result<bool, Errno> {
        call(|| self.backing.punch(offset, bytes))
    }

    fn is_huge(&self) -> bool {
        self.backing.is_huge()
    }
}
