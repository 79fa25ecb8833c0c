//! One file that is brought, and the calls of the kernel that do it.
//!
//! A piece is mapped and populated. Nothing is copied. The mapping is gone before the next piece, so the kernel may drop
//! the pages as any others.
//!
//! - In huge pages, by advice for the mapping: the kernel reads 2 MiB at a time, whatever the device's read-ahead is.
//! - In small pages, all of which are asked for beforehand, so that populating only waits.

use std::collections::VecDeque;
use std::ffi::CString;
use std::fs::{File, Metadata};
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

/// How many pieces ahead the page cache is asked for what it has. To ask later would count what comes with the piece
/// before; to ask for all at once would take long where a file is large.
const AHEAD: u64 = 64;

/// What the page cache had of a file before anything was brought.
enum Cached {
    /// The kernel does not say.
    Unknown,
    Nothing,
    /// Bytes of some pieces, by whole pages.
    Pieces {
        bytes: VecDeque<u32>,
        /// The piece behind them.
        end: u64,
    },
}

/// How far a file was walked through.
pub struct Walk {
    /// Where the next piece is looked for.
    pub at: u64,
    cached: Cached,
}

/// A piece that is to be brought.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its bytes in the file.
    pub range: Range<u64>,
    /// How many of them were there before; `None`: the kernel does not say.
    cached: Option<u64>,
}

impl Piece {
    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// What comes next of a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// This piece, which has data.
    Piece(Piece),
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
    /// Whether the kernel looks for its pages where they are.
    is_known: bool,
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

/// Whether a process has a lease on a file that ends when another one opens it for reading (`F_SETLEASE` of fcntl(2)).
fn is_leased(about: &Metadata) -> bool {
    let (major, minor) = (libc::major(about.dev()), libc::minor(about.dev()));
    let place = format!("{major:02x}:{minor:02x}:{}", about.ino());
    std::fs::read_to_string("/proc/locks").is_ok_and(|locks| locks.lines().any(|line| is_lease(line, &place)))
}

/// Whether a line of `/proc/locks` is such a lease on the file at `place`.
fn is_lease(line: &str, place: &str) -> bool {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    matches!(words[..], [_, "LEASE" | "DELEG", _, "WRITE", _, at, ..] if at == place)
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
        let about = known.metadata().map_err(cannot)?;
        if !about.is_file() {
            return Err("it is no regular file any more".into());
        }
        let mut filesystem = std::mem::MaybeUninit::<libc::statfs>::zeroed();
        // SAFETY: the structure is writable, and any content of it is one.
        let kind = unsafe {
            let is_known = libc::fstatfs(known.as_raw_fd(), filesystem.as_mut_ptr()) == 0;
            is_known.then(|| filesystem.assume_init().f_type)
        };
        if kind.is_some_and(|kind| IN_MEMORY.contains(&kind)) {
            return Err("its file system is in memory".into());
        }
        // To open it would end the lease, and by default its holder.
        if is_leased(&about) {
            return Err("a process has a lease on it".into());
        }
        let file = File::from(reopen(&known.into()).map_err(cannot)?);
        let (path, is_left) = (path.to_owned(), AtomicBool::new(false));
        Ok(Self { path, is_left, file, is_known: kind != Some(OVERLAY) })
    }

    /// From its beginning. Before anything of it is brought.
    pub fn walk(&self) -> Walk {
        let cached = match self.cached_in(0, 0).filter(|_| self.is_known) {
            None => Cached::Unknown,
            Some(0) => Cached::Nothing,
            Some(_) => Cached::Pieces { bytes: VecDeque::new(), end: 0 },
        };
        Walk { at: 0, cached }
    }

    /// What comes next.
    pub fn next(&self, walk: &mut Walk) -> Next {
        let at = walk.at;
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
            walk.at = end;
            let cached = self.cached_before(&mut walk.cached, start / PIECE, bytes.div_ceil(PIECE));
            Next::Piece(Piece { range: start..end, cached })
        } else {
            Next::End { hole: bytes.saturating_sub(at) }
        }
    }

    /// How long it is now.
    pub fn bytes(&self) -> u64 {
        self.file.metadata().map_or(0, |about| about.len())
    }

    /// Brings a piece, and waits until it is there.
    pub fn bring(&self, piece: &Piece, way: Way) -> io::Result<Brought> {
        let bytes = piece.bytes();
        let cached = piece.cached.map(|cached| cached.min(bytes));
        let start = Instant::now();
        if cached != Some(bytes) {
            self.populate(&piece.range, way)?;
        }
        Ok(Brought { bytes, cached, time: (cached.unwrap_or(0) == 0).then(|| start.elapsed()) })
    }

    /// What the page cache had of a piece, none before which is asked for again. Asks for some of those behind it.
    fn cached_before(&self, cached: &mut Cached, piece: u64, pieces: u64) -> Option<u64> {
        let (bytes, end) = match cached {
            Cached::Unknown => return None,
            Cached::Nothing => return Some(0),
            Cached::Pieces { bytes, end } => (bytes, end),
        };
        // A hole may have been passed over.
        *end = (*end).max(piece);
        let passed = bytes.len().saturating_sub((*end - piece) as usize);
        bytes.drain(..passed);
        while *end < pieces.min(piece + AHEAD) {
            let Some(found) = self.cached_in(*end * PIECE, PIECE) else {
                *cached = Cached::Unknown;
                return None;
            };
            bytes.push_back(found as u32);
            *end += 1;
        }
        Some(u64::from(*bytes.front()?))
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
        let next = |at| file.next(&mut Walk { at, ..file.walk() });
        assert_eq!(next(0), Next::End { hole: 0 });
        named.as_file().write_all_at(b"x", 5 * PIECE + 70_000).unwrap();
        named.as_file().set_len(9 * PIECE + 1).unwrap();
        let walk = |at| match next(at) {
            Next::Piece(piece) => (piece.range.start, piece.range.end),
            other => panic!("{other:?}"),
        };
        let all = 9 * PIECE + 1;
        match next(0) {
            // Where the file system knows no holes, all of it is data.
            Next::Piece(piece) if piece.range.start == 0 => assert_eq!(walk(9 * PIECE), (9 * PIECE, all)),
            _ => {
                assert_eq!(walk(0), (5 * PIECE, 6 * PIECE));
                assert_eq!(walk(5 * PIECE), (5 * PIECE, 6 * PIECE));
                assert_eq!(next(6 * PIECE), Next::End { hole: all - 6 * PIECE });
            }
        }
        assert_eq!(next(all), Next::End { hole: 0 });
        assert_eq!(next(all + PIECE), Next::End { hole: 0 });
    }

    /// However long it is, and wherever its data lies.
    #[test]
    fn the_page_cache_is_asked_for_few_pieces_at_a_time() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let Ok(file) = Opened::open(named.path()) else { return faultless_testkit::skip("files are in memory") };
        const FAR: u64 = 1 << 40;
        for at in [0, FAR, FAR + (AHEAD + 10) * PIECE, 2 * FAR] {
            if named.as_file().write_all_at(&[1; 100], at).is_err() {
                return faultless_testkit::skip("no sparse file of 2 TiB");
            }
        }
        let mut walk = file.walk();
        if matches!(walk.cached, Cached::Unknown) {
            return faultless_testkit::skip("the kernel does not say what the page cache has");
        }
        let mut cached = 0;
        while let Next::Piece(piece) = file.next(&mut walk) {
            assert_eq!(piece.cached, file.cached_in(piece.range.start, PIECE), "{piece:?}");
            cached += piece.cached.unwrap();
            let Cached::Pieces { bytes, end } = &walk.cached else { panic!("pages are cached") };
            assert!(bytes.len() as u64 <= AHEAD && *end <= piece.range.start / PIECE + AHEAD);
        }
        assert!(cached >= 4 * PAGE, "what was written is there");
    }

    #[test]
    fn a_file_that_changes_meanwhile_is_an_error_or_the_end() {
        let named = tempfile::NamedTempFile::new().unwrap();
        named.as_file().write_all_at(&[1; 100_000], 0).unwrap();
        let Ok(file) = Opened::open(named.path()) else { return faultless_testkit::skip("files are in memory") };
        let next = || file.next(&mut file.walk());
        for way in [Way::Huge, Way::Small] {
            named.as_file().set_len(100_000).unwrap();
            let Next::Piece(piece) = next() else { panic!("no piece") };
            assert_eq!(file.bring(&piece, way).map(|brought| brought.bytes).ok(), Some(100_000));
            named.as_file().set_len(10).unwrap();
            assert_eq!(file.populate(&(0..100_000), way).unwrap_err().raw_os_error(), Some(libc::EFAULT));
        }
        assert!(matches!(next(), Next::Piece(Piece { range: std::ops::Range { start: 0, end: 10 }, .. })));
        std::fs::remove_file(named.path()).unwrap();
        assert_eq!(next(), Next::Removed);
    }

    #[test]
    fn leases_are_told_from_other_locks() {
        let is = |line| is_lease(line, "fe:00:12");
        assert!(
            is("1: LEASE  ACTIVE    WRITE 812 fe:00:12 0 EOF") && is("2: DELEG  ACTIVE WRITE 8 fe:00:12 0 EOF")
        );
        assert!(
            !is("1: LEASE  ACTIVE    READ 812 fe:00:12 0 EOF") && !is("1: LEASE ACTIVE WRITE 8 fe:00:123 0 EOF")
        );
        assert!(!is("3: POSIX  ADVISORY  WRITE 812 fe:00:12 0 EOF") && !is(""));
    }

    #[test]
    fn what_is_no_regular_file_is_not_opened() {
        let why = |path: &str| Opened::open(Path::new(path)).map(drop).unwrap_err();
        assert!(why("/dev/null").contains("no regular file") && why("/").contains("no regular file"));
        assert_eq!(why("/nowhere/to/be/found"), "it cannot be opened: No such file or directory");
    }
}
