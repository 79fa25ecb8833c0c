//! File systems and devices: what the programs ask of them beyond the standard library.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use io_uring::{IoUring, opcode, types};

fn done(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A tmpfs with huge pages in a folder, which this process alone sees. Before it has threads.
pub(super) fn mount_huge_tmpfs(dir: &Path) -> io::Result<PathBuf> {
    let path = dir.join("tmpfs");
    fs::create_dir_all(&path)?;
    let at = CString::new(path.as_os_str().as_bytes())?;
    let none = std::ptr::null();
    // SAFETY: strings that end with a zero byte; the mounts are this process's alone.
    unsafe {
        done(libc::unshare(libc::CLONE_NEWNS))?;
        done(libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast()))?;
        let tmpfs = c"tmpfs".as_ptr();
        done(libc::mount(tmpfs, at.as_ptr(), tmpfs, 0, c"huge=always".as_ptr().cast()))?;
    }
    Ok(path)
}

/// A file past the kernel's page cache.
pub(super) fn open_direct(path: &Path, is_written: bool) -> io::Result<File> {
    File::options().read(true).write(is_written).custom_flags(libc::O_DIRECT).open(path)
}

/// Has the kernel drop what it has of a file.
pub(super) fn drop_from_page_cache(file: &File) {
    // SAFETY: advice about a descriptor.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

/// Bytes of memory of the process.
pub(in crate::loops) struct Resident {
    /// At most.
    pub peak: usize,
    pub now: usize,
    /// Of what it has now, pages of mapped files: of the program itself, and of the page cache.
    pub of_files: usize,
}

pub(in crate::loops) fn resident() -> io::Result<Resident> {
    let status = fs::read_to_string("/proc/self/status")?;
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<usize>().ok()).map_or(0, |kib| kib << 10)
    };
    Ok(Resident { peak: of("VmHWM:"), now: of("VmRSS:"), of_files: of("RssFile:") })
}

const HUGE: usize = 2 << 20;

/// Buffers for reads past the page cache.
pub(super) struct Buffers {
    memory: Vec<u8>,
    start: usize,
    each: usize,
}

impl Buffers {
    pub(super) fn new(count: usize, each: usize) -> Self {
        // Large ones by huge pages: the device reads into these by fewer and larger parts.
        let align = if each >= HUGE { HUGE } else { 4096 };
        let memory = vec![0; count * each + align];
        let at = memory.as_ptr() as usize;
        let start = at.next_multiple_of(align) - at;
        if align == HUGE {
            // SAFETY: advice about memory of the vector, which was not touched yet and whose content it leaves alone.
            unsafe { libc::madvise((at + start) as *mut _, count * each, libc::MADV_HUGEPAGE) };
        }
        Self { memory, start, each }
    }

    pub(super) fn get(&mut self, index: usize) -> &mut [u8] {
        let at = self.start + index * self.each;
        &mut self.memory[at..at + self.each]
    }
}

/// Reads of `each` bytes at these offsets, up to `depth` of them at a time, until the deadline: the device's limit.
/// Calls `f` with the offset of each and its bytes.
pub(super) fn read_by_ring(
    file: &File,
    offsets: &mut dyn Iterator<Item = usize>,
    each: usize,
    depth: usize,
    deadline: Option<Instant>,
    mut f: impl FnMut(usize, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut ring = IoUring::new(depth as u32)?;
    let mut buffers = Buffers::new(depth, each);
    let mut at = vec![0; depth];
    let mut free: Vec<usize> = (0..depth).collect();
    loop {
        let is_over = deadline.is_some_and(|deadline| Instant::now() > deadline);
        while !is_over && let Some(slot) = free.pop() {
            let Some(offset) = offsets.next() else {
                free.push(slot);
                break;
            };
            at[slot] = offset;
            let to = buffers.get(slot);
            let entry = opcode::Read::new(types::Fd(file.as_raw_fd()), to.as_mut_ptr(), each as u32);
            let entry = entry.offset(offset as u64).build().user_data(slot as u64);
            // SAFETY: a buffer that is used for nothing else until the read is completed, for which this waits.
            unsafe { ring.submission().push(&entry) }.map_err(io::Error::other)?;
        }
        if free.len() == depth {
            return Ok(());
        }
        ring.submit_and_wait(1)?;
        let mut result = Ok(());
        for entry in ring.completion() {
            let slot = entry.user_data() as usize;
            free.push(slot);
            let read = usize::try_from(entry.result()).map_err(|_| io::Error::from_raw_os_error(-entry.result()));
            result = result.and(read.and_then(|read| f(at[slot], &buffers.get(slot)[..read])));
        }
        if result.is_err() {
            // The kernel writes to the buffers of those under way.
            ring.submit_and_wait(depth - free.len())?;
            std::mem::forget(buffers);
            return result;
        }
    }
}
