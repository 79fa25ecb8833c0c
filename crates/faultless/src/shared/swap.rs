//! Where pages of a region go that are above its budget: a file without a name, past the kernel's page cache where that
//! may be (`O_DIRECT`).

use std::ffi::{CString, c_void};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use faultless_base::Errno;
use faultless_base::sys::descriptor::FileDescriptor;
use faultless_base::sys::limits;
pub use faultless_base::sys::user_mmu::SwapStore;

use crate::process::masked::Unblocked;

/// How a region is swapped: its budget, and where its pages go.
///
/// ```no_run
/// use faultless::region::{Region, Swap};
///
/// // 1 GiB of addresses, of which 256 MiB are in memory at most.
/// let region = Region::builder(1 << 30).swap(Swap::new(256 << 20).directory("/var/tmp")).build()?;
/// # Ok::<(), faultless::region::Error>(())
/// ```
pub struct Swap {
    pub(crate) budget: usize,
    directory: Option<PathBuf>,
    store: Option<Box<dyn SwapStore>>,
}

impl Swap {
    /// Keeps up to `budget` bytes in memory, 4 MiB at least. The rest goes to a file without a name in the directory for
    /// temporary files (`TMPDIR`, or `/tmp`). That should not be one in memory (tmpfs).
    pub fn new(budget: usize) -> Self {
        Self { budget, directory: None, store: None }
    }

    /// The same with the file in this directory.
    pub fn directory(self, directory: impl AsRef<Path>) -> Self {
        Self { directory: Some(directory.as_ref().into()), ..self }
    }

    /// The same with a store of the program's own. It must use neither the region nor memory that it may wait for.
    pub fn store(self, store: impl SwapStore + 'static) -> Self {
        Self { store: Some(Box::new(store)), ..self }
    }

    /// The store, for a region that long.
    pub(crate) fn open(self, length: usize) -> io::Result<Store> {
        if let Some(store) = self.store {
            return Ok(Store::Program(store));
        }
        let directory = self.directory.unwrap_or_else(std::env::temp_dir);
        SwapFile::new(&directory, length).map(Store::File)
    }
}

/// Where pages go.
pub(crate) enum Store {
    File(SwapFile),
    Program(Box<dyn SwapStore>),
}

impl Store {
    fn with<T>(&self, call: impl FnOnce(&dyn SwapStore) -> T) -> T {
        match self {
            Self::File(file) => call(file),
            Self::Program(store) => {
                // It may meet faults of other regions, or have handlers of its own for what it does.
                let _unblocked = Unblocked::own();
                call(&**store)
            }
        }
    }
}

impl SwapStore for Store {
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), i32> {
        self.with(|store| store.write(offset, bytes))
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), i32> {
        self.with(|store| store.read(offset, buffer))
    }

    fn forget(&self, offset: u64, bytes: u64) {
        self.with(|store| store.forget(offset, bytes));
    }
}

/// A file without a name. All blocks that it had go with it.
pub(crate) struct SwapFile {
    descriptor: FileDescriptor,
    is_direct: AtomicBool,
}

impl SwapFile {
    fn new(directory: &Path, length: usize) -> io::Result<Self> {
        limits::check_file(length).map_err(|error| io::Error::from_raw_os_error(error.number()))?;
        let file = without_a_name(directory)?;
        file.set_len(length as u64)?;
        let descriptor = FileDescriptor::new(std::os::fd::IntoRawFd::into_raw_fd(file) as usize);
        let swap = Self { descriptor, is_direct: AtomicBool::new(false) };
        swap.is_direct.store(swap.set_direct(libc::O_DIRECT), Ordering::Relaxed);
        Ok(swap)
    }

    fn set_direct(&self, flag: i32) -> bool {
        // SAFETY: a descriptor of this value's own.
        unsafe { libc::fcntl(self.descriptor.number() as i32, libc::F_SETFL, flag) == 0 }
    }

    /// Repeats a call on the file until all bytes are done: `call` does some, from this byte on.
    fn all(&self, bytes: usize, mut call: impl FnMut(i32, usize) -> isize) -> Result<(), i32> {
        let mut done = 0;
        while done < bytes {
            // The program may have closed it, and its number be another file's.
            if !self.descriptor.is_open() {
                return Err(libc::EBADF);
            }
            match call(self.descriptor.number() as i32, done) {
                0 => return Err(libc::EIO),
                some @ 1.. => done += some as usize,
                _ => match io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) {
                    libc::EINTR => {}
                    // The file system takes it at first, and refuses it now.
                    libc::EINVAL if self.is_direct.swap(false, Ordering::Relaxed) => _ = self.set_direct(0),
                    error => return Err(error),
                },
            }
        }
        Ok(())
    }
}

/// Opens such a file. Where the file system knows none, a file loses its name at once.
fn without_a_name(directory: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let open = |path: &Path, flags: i32, new: bool| {
        let mut options = File::options();
        options.read(true).write(true).create_new(new).mode(0o600).custom_flags(flags | libc::O_CLOEXEC).open(path)
    };
    match open(directory, libc::O_TMPFILE, false) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::ENOENT)) => {}
        answer => return answer,
    }
    let mut template = directory.as_os_str().as_bytes().to_vec();
    template.extend_from_slice(b"/faultless-swap-XXXXXX");
    let mut template = CString::new(template)?.into_bytes_with_nul();
    // SAFETY: a path that ends with six places for it, and a zero.
    let number = unsafe { libc::mkostemp(template.as_mut_ptr().cast(), libc::O_CLOEXEC) };
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, and this value's alone; the path is the one that was made.
    unsafe {
        libc::unlink(template.as_ptr().cast());
        Ok(std::os::fd::FromRawFd::from_raw_fd(number))
    }
}

impl SwapStore for SwapFile {
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), i32> {
        limits::check_file(offset as usize + bytes.len()).map_err(Errno::number)?;
        self.all(bytes.len(), |number, done| {
            let rest = &bytes[done..];
            // SAFETY: bytes of the caller's.
            unsafe {
                libc::pwrite(number, rest.as_ptr().cast::<c_void>(), rest.len(), (offset as usize + done) as i64)
            }
        })
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), i32> {
        self.all(buffer.len(), |number, done| {
            let rest = &mut buffer[done..];
            // SAFETY: room of the caller's.
            unsafe {
                libc::pread(
                    number,
                    rest.as_mut_ptr().cast::<c_void>(),
                    rest.len(),
                    (offset as usize + done) as i64,
                )
            }
        })
    }

    fn forget(&self, offset: u64, bytes: u64) {
        if self.descriptor.is_open() {
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // SAFETY: a descriptor of this value's own. Where the file system cannot, the blocks stay.
            let _ = unsafe { libc::fallocate(self.descriptor.number() as i32, mode, offset as i64, bytes as i64) };
        }
    }
}
