//! One file that is brought, and the calls of the kernel that do it.
//!
//! A piece is mapped and populated. Nothing is copied. The mapping is gone before the next piece, so the kernel may drop
//! the pages as any others.
//!
//! - In huge pages, by advice for the mapping: the kernel reads 2 MiB at a time, whatever the device's read-ahead is.
//! - In small pages, all of which are asked for beforehand, so that populating only waits.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::way::Way;

/// How much is brought at a time. Pieces begin at multiples of it.
pub const PIECE: u64 = 4 << 20;
/// What one call asks for ahead. The kernel brings no more of it than the device's read-ahead or its longest request,
/// and both are rarely less.
const ASKED: u64 = 128 << 10;
const PAGE: u64 = 4096;

/// File systems whose files are memory.
const IN_MEMORY: [libc::c_long; 3] = [libc::TMPFS_MAGIC, libc::HUGETLBFS_MAGIC, 0x8584_58F6];
/// Its files are those of another file system, where the kernel does not look for their pages.
const OVERLAY: libc::c_long = libc::OVERLAYFS_SUPER_MAGIC;

/// `cachestat`, of Linux 6.5.
pub const CACHESTAT: libc::c_long = 451;

/// What was found of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brought {
    /// Its bytes.
    pub bytes: u64,
    /// Those that were there; `None`: the kernel does not say.
    pub cached: Option<u64>,
    /// How long it took, if none of it was there.
    pub time: Option<Duration>,
}

/// What comes next of a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// This piece, which has data.
    Piece(Range<u64>),
    /// No more data.
    End {
        /// Bytes of the hole up to the end.
        hole: u64,
    },
    /// It has no name any more: its room on the device is to become free.
    Removed,
}

/// A file that is open.
pub struct Opened {
    /// As it was named.
    pub path: PathBuf,
    /// A piece could not be brought.
    pub is_left: AtomicBool,
    file: File,
    /// Bytes of each piece that were there at first, by whole pages. What is not in here had none. `None`: the kernel does
    /// not say.
    cached: Option<Vec<u32>>,
}

/// Opens by a path that ends with zero.
fn open(path: &std::ffi::CStr, flags: i32) -> io::Result<OwnedFd> {
    // SAFETY: a string, and a descriptor that is new.
    unsafe {
        let fd = libc::open(path.as_ptr(), flags | libc::O_CLOEXEC);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// The same, of a file that is known by a descriptor, for reading. Its time of access stays where this user may have that.
fn reopen(known: &OwnedFd) -> io::Result<OwnedFd> {
    let path = CString::new(format!("/proc/self/fd/{}", known.as_raw_fd()))?;
    // A lease on the file is an error here, and is not waited for.
    let flags = libc::O_RDONLY | libc::O_NONBLOCK;
    open(&path, flags | libc::O_NOATIME).or_else(|error| match error.raw_os_error() {
        Some(libc::EPERM) => open(&path, flags),
        _ => Err(error),
    })
}

fn text(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

impl Opened {
    /// A regular file that is not in memory by itself; else why it is left alone. What is no regular file is not opened.
    pub fn open(path: &Path) -> Result<Self, String> {
        let cannot = |error: io::Error| format!("it cannot be opened: {}", text(&error));
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| cannot(error.into()))?;
        let known = File::from(open(&name, libc::O_PATH).map_err(cannot)?);
        if !known.metadata().map_err(cannot)?.is_file() {
            return Err("it is no regular file any more".into());
        }
        let mut about = std::mem::MaybeUninit::<libc::statfs>::zeroed();
        // SAFETY: the structure is writable, and any content of it is one.
        let kind = unsafe {
            let is_known = libc::fstatfs(known.as_raw_fd(), about.as_mut_ptr()) == 0;
            is_known.then(|| about.assume_init().f_type)
        };
        if kind.is_some_and(|kind| IN_MEMORY.contains(&kind)) {
            return Err("its file system is in memory".into());
        }
        let file = File::from(reopen(&known.into()).map_err(cannot)?);
        let (path, is_left) = (path.to_owned(), AtomicBool::new(false));
        let opened = Self { path, is_left, file, cached: None };
        let cached = if kind == Some(OVERLAY) { None } else { opened.find_cached() };
        Ok(Self { cached, ..opened })
    }

    /// What comes next, at or behind `at`.
    pub fn next(&self, at: u64) -> Next {
        let (bytes, links) = self.file.metadata().map_or((0, 1), |about| (about.len(), about.nlink()));
        if links == 0 {
            return Next::Removed;
        }
        // SAFETY: takes no memory. The place in the file is this descriptor's own, and nothing reads there.
        let data = unsafe { libc::lseek(self.file.as_raw_fd(), at as libc::off_t, libc::SEEK_DATA) };
        let data = match u64::try_from(data) {
            Ok(data) => data,
            Err(_) if io::Error::last_os_error().raw_os_error() == Some(libc::ENXIO) => bytes,
            // A file system that does not know.
            Err(_) => at,
        };
        let start = at.max(data / PIECE * PIECE);
        let end = bytes.min(start / PIECE * PIECE + PIECE);
        if data < bytes && start < end {
            Next::Piece(start..end)
        } else {
            Next::End { hole: bytes.saturating_sub(at) }
        }
    }

    /// How long it is now.
    pub fn bytes(&self) -> u64 {
        self.file.metadata().map_or(0, |about| about.len())
    }

    /// Brings a piece, and waits until it is there.
    pub fn bring(&self, piece: &Range<u64>, way: Way) -> io::Result<Brought> {
        let bytes = piece.end - piece.start;
        let of_piece =
            |all: &Vec<u32>| all.get((piece.start / PIECE) as usize).map_or(0, |bytes| u64::from(*bytes));
        let cached = self.cached.as_ref().map(of_piece).map(|cached| cached.min(bytes));
        let start = Instant::now();
        if cached != Some(bytes) {
            self.populate(piece, way)?;
        }
        Ok(Brought { bytes, cached, time: (cached.unwrap_or(0) == 0).then(|| start.elapsed()) })
    }

    /// What the page cache has of each piece. To ask later would count what comes with the piece before.
    fn find_cached(&self) -> Option<Vec<u32>> {
        match self.cached_in(0, 0)? {
            0 => Some(Vec::new()),
            _ => {
                (0..self.bytes().div_ceil(PIECE)).map(|i| Some(self.cached_in(i * PIECE, PIECE)? as u32)).collect()
            }
        }
    }

    /// Bytes of a range that the page cache has; of all where its length is 0.
    fn cached_in(&self, start: u64, bytes: u64) -> Option<u64> {
        let range = [start, bytes];
        let mut found = [0u64; 5];
        // SAFETY: two structures of so many numbers, of which the second is writable.
        let answer =
            unsafe { libc::syscall(CACHESTAT, self.file.as_raw_fd(), range.as_ptr(), found.as_mut_ptr(), 0) };
        (answer == 0).then(|| found[0] * PAGE)
    }

    /// Has the kernel begin to read a piece.
    fn ask(&self, piece: &Range<u64>) {
        for at in piece.clone().step_by(ASKED as usize) {
            let bytes = ASKED.min(piece.end - at) as usize;
            // SAFETY: takes no memory. An error there is one of populating, too.
            unsafe { libc::readahead(self.file.as_raw_fd(), at as libc::off64_t, bytes) };
        }
    }

    fn populate(&self, piece: &Range<u64>, way: Way) -> io::Result<()> {
        let bytes = (piece.end - piece.start) as usize;
        if way == Way::Small {
            self.ask(piece);
        }
        // SAFETY: a new mapping that nobody reads: the kernel brings its pages, and a file that becomes shorter is an error
        // of that call.
        unsafe {
            let fd = self.file.as_raw_fd();
            let map =
                libc::mmap(null_mut(), bytes, libc::PROT_READ, libc::MAP_PRIVATE, fd, piece.start as libc::off_t);
            if map == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            if way == Way::Huge {
                libc::madvise(map, bytes, libc::MADV_HUGEPAGE);
            }
            let answer = libc::madvise(map, bytes, libc::MADV_POPULATE_READ);
            let error = io::Error::last_os_error();
            libc::munmap(map, bytes);
            if answer == 0 { Ok(()) } else { Err(error) }
        }
    }
}

/// What is said of a file of which a piece could not be brought.
pub fn why(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EFAULT) => "the kernel could not read it".into(),
        Some(libc::ENODEV) => "it cannot be mapped".into(),
        _ => text(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn holes_are_passed_over_by_whole_pieces() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let Ok(file) = Opened::open(named.path()) else { return faultless_testkit::skip("files are in memory") };
        assert_eq!(file.next(0), Next::End { hole: 0 });
        named.as_file().write_all_at(b"x", 5 * PIECE + 70_000).unwrap();
        named.as_file().set_len(9 * PIECE + 1).unwrap();
        let walk = |at| match file.next(at) {
            Next::Piece(piece) => (piece.start, piece.end),
            other => panic!("{other:?}"),
        };
        let all = 9 * PIECE + 1;
        match file.next(0) {
            // Where the file system knows no holes, all of it is data.
            Next::Piece(piece) if piece.start == 0 => assert_eq!(walk(9 * PIECE), (9 * PIECE, all)),
            _ => {
                assert_eq!(walk(0), (5 * PIECE, 6 * PIECE));
                assert_eq!(walk(5 * PIECE), (5 * PIECE, 6 * PIECE));
                assert_eq!(file.next(6 * PIECE), Next::End { hole: all - 6 * PIECE });
            }
        }
        assert_eq!(file.next(all), Next::End { hole: 0 });
        assert_eq!(file.next(all + PIECE), Next::End { hole: 0 });
    }

    #[test]
    fn a_file_that_changes_meanwhile_is_an_error_or_the_end() {
        let named = tempfile::NamedTempFile::new().unwrap();
        named.as_file().write_all_at(&[1; 100_000], 0).unwrap();
        let Ok(file) = Opened::open(named.path()) else { return faultless_testkit::skip("files are in memory") };
        for way in [Way::Huge, Way::Small] {
            named.as_file().set_len(100_000).unwrap();
            assert_eq!(file.bring(&(0..100_000), way).map(|brought| brought.bytes).ok(), Some(100_000));
            named.as_file().set_len(10).unwrap();
            assert_eq!(file.populate(&(0..100_000), way).unwrap_err().raw_os_error(), Some(libc::EFAULT));
        }
        assert_eq!(file.next(0), Next::Piece(0..10));
        std::fs::remove_file(named.path()).unwrap();
        assert_eq!(file.next(0), Next::Removed);
    }

    #[test]
    fn what_is_no_regular_file_is_not_opened() {
        let why = |path: &str| Opened::open(Path::new(path)).map(drop).unwrap_err();
        assert!(why("/dev/null").contains("no regular file") && why("/").contains("no regular file"));
        assert_eq!(why("/nowhere/to/be/found"), "it cannot be opened: No such file or directory");
    }
}
