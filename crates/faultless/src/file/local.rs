//! A file of the system as a backing: read and written past the kernel's page cache (`O_DIRECT`) where that may be.
//!
//! Where the file system refuses, and for the end of a file that is not a whole page, it is `pread` and `pwrite`. The
//! first is counted (`file_buffered`), and [`LocalFile::is_direct`] says so.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use faultless_base::sync::Late;
use faultless_base::{Errno, PAGE, Span};
use faultless_mm::cache::backing::{Backing, Reads, Request};
use faultless_page::stats::Counter;

use crate::background::owner;
use crate::file::begun::Ahead;
use crate::file::changed::Changed;
use crate::file::opened::Opened;
use crate::file::queue::Queue;

/// File systems that write what the memory has at that moment, whatever a thread changes meanwhile. Others check sums
/// over what they write, or keep copies, and need bytes that stay.
const WRITE_ANYTHING: [i64; 2] = [libc::EXT4_SUPER_MAGIC, libc::XFS_SUPER_MAGIC];

/// File systems of devices of this machine. On others a read may take as long as a network, and the end of a process would
/// wait for reads that nobody asked for.
const OF_DEVICES: [i64; 4] =
    [libc::EXT4_SUPER_MAGIC, libc::XFS_SUPER_MAGIC, libc::BTRFS_SUPER_MAGIC, libc::F2FS_SUPER_MAGIC];

/// The kind of file system that a file is on; 0 where the kernel does not say.
fn file_system(file: &File) -> i64 {
    // SAFETY: a structure to write to.
    unsafe {
        let mut about: libc::statfs = std::mem::zeroed();
        if libc::fstatfs(file.as_raw_fd(), &mut about) == 0 { about.f_type } else { 0 }
    }
}

/// One way of opening it: descriptors of the library's own, whose positions are no other's.
struct Ways {
    buffered: Opened,
    direct: Option<Opened>,
}

/// A file of the system.
pub(super) struct LocalFile {
    reads: Ways,
    /// Comes with the first handle that may write.
    writes: Late<Ways>,
    /// Whether `O_DIRECT` works, as far as it was tried.
    is_direct: AtomicBool,
    is_huge: bool,
    /// Pages that were no hole when that was asked last: the first in the upper half, the end in the lower.
    data: AtomicU64,
    changed: Changed,
    begun: Ahead,
}

fn flags(file: &File) -> i32 {
    // SAFETY: a question about a descriptor.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) }
}

/// How a descriptor may be used.
pub(super) fn is_writable(file: &File) -> bool {
    flags(file) & libc::O_ACCMODE != libc::O_RDONLY
}

fn again(file: &File, write: bool, flags: i32) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    File::options().read(true).write(write).custom_flags(flags | libc::O_CLOEXEC).open(path)
}

impl Ways {
    fn new(file: &File, write: bool) -> io::Result<Self> {
        // The descriptor itself where it cannot be opened again, but not one that writes at the end alone.
        let is_usable = !write || flags(file) & libc::O_APPEND == 0;
        let itself = |error| if is_usable { file.try_clone() } else { Err(error) };
        let buffered = again(file, write, 0).or_else(itself)?;
        Ok(Self {
            buffered: Opened::new(buffered),
            direct: again(file, write, libc::O_DIRECT).ok().map(Opened::new),
        })
    }
}

/// Repeats a call that a signal interrupts.
fn call(mut f: impl FnMut() -> isize) -> Result<usize, Errno> {
    loop {
        if let Ok(done) = usize::try_from(f()) {
            return Ok(done);
        }
        let error = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        if error != libc::EINTR {
            return Err(Errno::new(error));
        }
    }
}

fn pread(fd: RawFd, offset: u64, to: Span) -> Result<usize, Errno> {
    // SAFETY: the caller's memory, which no thread uses.
    call(|| unsafe { libc::pread(fd, to.start as *mut _, to.bytes(), offset as i64) })
}

fn pwrite(fd: RawFd, offset: u64, from: Span) -> Result<usize, Errno> {
    // SAFETY: the caller's memory, readable; the kernel reads each byte as it is then.
    call(|| unsafe { libc::pwrite(fd, from.start as *const _, from.bytes(), offset as i64) })
}

/// Makes a file that long.
fn truncate(file: &File, length: u64) -> Result<(), Errno> {
    // SAFETY: a descriptor of the caller's.
    call(|| unsafe { libc::ftruncate(file.as_raw_fd(), length as i64) as isize }).map(drop)
}

impl LocalFile {
    pub(super) fn new(file: &File, is_huge: bool) -> io::Result<Self> {
        let reads = Ways::new(file, false)?;
        let is_direct = reads.direct.is_some().into();
        let file_system = file_system(file);
        let (data, changed) = (AtomicU64::new(0), Changed::new(file_system));
        let begun = Ahead::new(OF_DEVICES.contains(&file_system));
        let local = Self { reads, writes: Late::new(), is_direct, is_huge, data, changed, begun };
        local.note_change();
        local.allow_writes(file)?;
        Ok(local)
    }

    /// A descriptor that may be written by: from now on the file is.
    pub(super) fn allow_writes(&self, file: &File) -> io::Result<()> {
        if !is_writable(file) || self.writes.get().is_some() {
            return Ok(());
        }
        let mut ways = Ways::new(file, true)?;
        if !WRITE_ANYTHING.contains(&file_system(file)) {
            ways.direct = None;
        }
        self.writes.set(ways);
        Ok(())
    }

    /// The file is as this library has left it. Whether it was so before, as far as its time tells: if not, another
    /// process, or another call of this one, has changed it.
    pub(super) fn note_change(&self) -> bool {
        self.reads.buffered.get().is_ok_and(|file| self.changed.note(file))
    }

    /// How long it is now.
    pub(super) fn length(&self) -> Result<usize, Errno> {
        let (_, about) = self.reads.buffered.get_with_metadata()?;
        Ok(usize::try_from(about.len()).unwrap_or(usize::MAX))
    }

    /// Whether it is read past the kernel's page cache.
    pub(super) fn is_direct(&self) -> bool {
        self.is_direct.load(Relaxed)
    }

    fn direct<'a>(&self, ways: &'a Ways) -> Option<&'a Opened> {
        ways.direct.as_ref().filter(|_| self.is_direct())
    }

    /// `O_DIRECT` does not work here after all, where the answer is EINVAL.
    fn refused(&self, error: Errno) -> Result<(), Errno> {
        if error != Errno::EINVAL {
            return Err(error);
        }
        self.is_direct.store(false, Relaxed);
        Ok(())
    }

    fn write_by(&self, ways: &Ways, offset: u64, from: Span) -> Result<(), Errno> {
        let whole = Span::new(from.start, from.bytes() / PAGE * PAGE);
        let mut done = 0;
        if let Some(file) = self.direct(ways).filter(|_| !whole.is_empty()) {
            match pwrite(file.number_to_write()?, offset, whole) {
                Ok(written) => done = written,
                Err(error) => self.refused(error)?,
            }
        }
        if done < whole.bytes() {
            owner::counters().add(Counter::FileBuffered, 1);
        }
        self.write_buffered(ways, offset + done as u64, Span { start: from.start + done, ..from })
    }

    fn write_buffered(&self, ways: &Ways, mut offset: u64, mut from: Span) -> Result<(), Errno> {
        while !from.is_empty() {
            let done = pwrite(ways.buffered.number_to_write()?, offset, from)?;
            if done == 0 {
                return Err(Errno::EIO);
            }
            offset += done as u64;
            from.start += done;
        }
        Ok(())
    }
}

impl LocalFile {
    /// The rest of a read of which that many bytes are there. It need not be whole blocks any more.
    fn read_rest(&self, offset: u64, to: Span, mut done: usize) -> Result<usize, Errno> {
        while done < to.bytes() {
            let rest = Span { start: to.start + done, ..to };
            match pread(self.reads.buffered.number()?, offset + done as u64, rest)? {
                0 => break,
                read => done += read,
            }
        }
        Ok(done)
    }

    /// A read that a queue has not made, because of `result`: a part of the bytes, or an error.
    fn redo(&self, request: Request, result: i32) -> Result<usize, Errno> {
        match usize::try_from(result) {
            Ok(done) => self.read_rest(request.offset, request.to, done),
            Err(_) if result == -libc::EIO => Err(Errno::EIO),
            Err(_) => self.read(request.offset, request.to),
        }
    }
}

/// The system's answer to where the next data, or the next hole, begins.
fn seek(file: &File, offset: u64, what: libc::c_int) -> Result<u64, Errno> {
    // SAFETY: a descriptor of the caller's.
    call(|| unsafe { libc::lseek(file.as_raw_fd(), offset as i64, what) as isize }).map(|at| at as u64)
}

impl LocalFile {
    /// Whether a part was no hole when that was asked. If it is one by now, its zeroes are read as any bytes.
    fn is_known_data(&self, offset: u64, end: u64) -> bool {
        let known = self.data.load(Relaxed);
        let (first, last) = (known >> 32, known & u64::from(u32::MAX));
        first * PAGE as u64 <= offset && end <= last * PAGE as u64
    }

    /// From this byte on there is data: up to where is kept, so that it is not asked again for each page.
    fn learn_data(&self, file: &File, data: u64) {
        let Ok(hole) = seek(file, data, libc::SEEK_HOLE) else { return };
        let (mut first, mut end) = (data.div_ceil(PAGE as u64), hole / PAGE as u64);
        let known = self.data.load(Relaxed);
        let (known_first, known_end) = (known >> 32, known & u64::from(u32::MAX));
        if first <= known_end && known_first <= end {
            (first, end) = (first.min(known_first), end.max(known_end));
        }
        if first < end && end <= u64::from(u32::MAX) {
            self.data.store(first << 32 | end, Relaxed);
        }
    }
}

impl Backing for LocalFile {
    fn read(&self, offset: u64, to: Span) -> Result<usize, Errno> {
        let mut done = 0;
        match self.direct(&self.reads).map(|file| pread(file.number()?, offset, to)) {
            Some(Ok(read)) => done = read,
            Some(Err(error)) => self.refused(error)?,
            None => {}
        }
        if !self.is_direct() {
            owner::counters().add(Counter::FileBuffered, 1);
        }
        self.read_rest(offset, to, done)
    }

    fn read_many(&self, reads: &mut dyn Reads) {
        let Some(first) = reads.next() else { return };
        let second = reads.next();
        // A ring for one read would cost more than it gains.
        let queue = second.and_then(|_| Queue::new());
        let file = self.direct(&self.reads).unwrap_or(&self.reads.buffered);
        let is_buffered = std::ptr::eq(file, &self.reads.buffered);
        // Behind the ring: that has a number of its own.
        let (Some(mut queue), Ok(number)) = (queue, file.number()) else {
            owner::counters().add(Counter::FileUnqueued, second.is_some() as u64);
            let mut begun = [Some(first), second].into_iter().flatten();
            while let Some(request) = begun.next().or_else(|| reads.next()) {
                reads.done(request, self.read(request.offset, request.to));
            }
            return;
        };
        let first = [Some(first), second].into_iter().flatten();
        let made = queue.run(number, first, reads, |request, result| self.redo(request, result));
        owner::counters().add(Counter::FileUnqueued, queue.is_broken() as u64);
        let made = made as u64;
        owner::counters().add(Counter::FileQueued, made);
        owner::counters().add(Counter::FileBuffered, if is_buffered { made } else { 0 });
    }

    fn can_begin(&self) -> bool {
        self.is_direct() && self.begun.is_possible()
    }

    fn begin_read(&self, request: Request) -> bool {
        let Some(file) = self.direct(&self.reads) else { return false };
        file.number().is_ok_and(|number| self.begun.begin(number, request))
    }

    fn has_ended(&self, tag: usize) -> bool {
        self.begun.has_ended(tag)
    }

    fn end_read(&self, request: Request) -> Result<usize, Errno> {
        let result = self.begun.wait(request.tag);
        owner::counters().add(Counter::FileQueued, 1);
        let is_whole = usize::try_from(result).is_ok_and(|read| read == request.to.bytes());
        if is_whole { Ok(request.to.bytes()) } else { self.redo(request, result as i32) }
    }

    fn end_begun(&self) {
        self.begun.end();
    }

    fn write(&self, offset: u64, from: Span) -> Result<(), Errno> {
        let ways = self.writes.get().ok_or(Errno::EBADF)?;
        self.changed.by_us(&ways.buffered, |_, _| self.write_by(ways, offset, from))
    }

    fn sync(&self) -> Result<(), Errno> {
        let Some(ways) = self.writes.get() else { return Ok(()) };
        let number = ways.buffered.number()?;
        // SAFETY: a descriptor of this value's.
        call(|| unsafe { libc::fdatasync(number) as isize }).map(drop)
    }

    fn grow(&self, length: u64) -> Result<u64, Errno> {
        let ways = self.writes.get().ok_or(Errno::EBADF)?;
        self.changed.by_us(&ways.buffered, |file, about| {
            // Another process may have made it longer.
            if about.len() < length {
                truncate(file, length)?;
            }
            Ok(about.len())
        })
    }

    fn truncate(&self, length: u64) -> Result<(), Errno> {
        self.changed.by_us(&self.reads.buffered, |_, about| {
            // Another process, or another call of this one, may have done it.
            if about.len() <= length {
                return Ok(());
            }
            let ways = self.writes.get().ok_or(Errno::EBADF)?;
            self.data.store(0, Relaxed);
            truncate(ways.buffered.get()?, length)
        })
    }

    fn punch(&self, offset: u64, bytes: usize) -> Result<bool, Errno> {
        let ways = self.writes.get().ok_or(Errno::EBADF)?;
        let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // A block that the end of the file cuts goes, too.
        let bytes = bytes.next_multiple_of(PAGE) as i64;
        self.data.store(0, Relaxed);
        let punch = |file: &File| {
            // SAFETY: a descriptor of this value's.
            call(|| unsafe { libc::fallocate(file.as_raw_fd(), how, offset as i64, bytes) as isize })
        };
        match self.changed.by_us(&ways.buffered, |file, _| punch(file)) {
            Ok(_) => Ok(true),
            Err(error) if [libc::EOPNOTSUPP, libc::ENOSYS].map(Errno::new).contains(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn is_hole(&self, offset: u64, bytes: usize) -> bool {
        // The position of this descriptor is no other's.
        let Some(direct) = self.reads.direct.as_ref() else { return false };
        let end = offset + bytes as u64;
        if self.is_known_data(offset, end) {
            return false;
        }
        let Ok((file, about)) = direct.get_with_metadata() else { return false };
        // Behind the end nothing is a hole: another process may have made the file shorter.
        if about.len() < end {
            return false;
        }
        let seems_hole = match seek(file, offset, libc::SEEK_DATA) {
            Ok(data) if data < end => {
                self.learn_data(file, data);
                false
            }
            Ok(_) => true,
            Err(error) => error == Errno::new(libc::ENXIO),
        };
        // Another process may have made it shorter in between, so that there was nothing for a moment.
        let state = |about: &Metadata| (about.len(), about.ctime(), about.ctime_nsec());
        seems_hole && direct.get_with_metadata().is_ok_and(|(_, now)| state(&now) == state(&about))
    }

    fn is_huge(&self) -> bool {
        self.is_huge
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    /// Whatever part of a read has come, the rest comes; an error of the device is one.
    #[test]
    fn a_short_read_is_completed() {
        const PAGES: usize = 4;
        let file = tempfile::tempfile().unwrap();
        let all: Vec<u8> = (0..3 * PAGE + 100).map(|i| (i / PAGE * 7 + i) as u8).collect();
        file.write_all_at(&all, 0).unwrap();
        let local = LocalFile::new(&file, true).unwrap();
        let mut memory = vec![0; (PAGES + 1) * PAGE];
        let skipped = memory.as_ptr().align_offset(PAGE);
        let memory = &mut memory[skipped..][..PAGES * PAGE];
        let to = Span::new(memory.as_mut_ptr() as usize, memory.len());
        let request = Request { offset: 0, to, tag: 0 };
        for result in [0, 1, PAGE as i32, 2 * PAGE as i32 + 512, all.len() as i32, -libc::EAGAIN, -libc::EINVAL] {
            let done = usize::try_from(result).unwrap_or(0);
            memory.fill(0xEE);
            memory[..done].copy_from_slice(&all[..done]);
            assert_eq!(local.redo(request, result), Ok(all.len()), "{result}");
            assert!(memory[..all.len()] == all, "{result}");
        }
        assert_eq!(local.redo(request, -libc::EIO), Err(Errno::EIO));
    }
}
