//! The counters pages that the library leaves in a directory: made, read, removed.

use std::fmt;
use std::fs::DirBuilder;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use faultless_mm::stats::{BLOCKS, Block, COUNT, COUNTERS, Counter, Declared, MAGIC, Page, VERSION};

/// A directory for counters pages, removed when dropped.
pub struct Dir(PathBuf);

impl Dir {
    /// Makes one in memory if there is such a place: the user's own, or everybody's; else among temporary files.
    pub fn create() -> io::Result<Self> {
        let user = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for place in user.into_iter().chain(["/dev/shm".into(), std::env::temp_dir()]) {
            match Self::create_in(&place) {
                Ok(dir) => return Ok(dir),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn create_in(place: &Path) -> io::Result<Self> {
        let mut number = 0;
        loop {
            // One left behind by a process that was killed may have the name.
            let dir = place.join(format!("faultless-{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&dir) {
                Ok(()) => return Ok(Self(dir)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 1000 => number += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Reads every page: those understood, in order of process, and what is wrong with the others.
    pub fn read(&self) -> io::Result<(Vec<Counters>, Vec<String>)> {
        let (mut counters, mut wrong) = (Vec::new(), Vec::new());
        for entry in std::fs::read_dir(&self.0)? {
            let path = entry?.path();
            let page = std::fs::read(&path).map_err(PageError::Read).and_then(|bytes| Counters::parse(&bytes));
            match page {
                Ok(page) => counters.push(page),
                Err(error) => wrong.push(format!("{}: {error}", path.display())),
            }
        }
        counters.sort_by_key(|page| page.pid);
        Ok((counters, wrong))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The counters of one process, or of several added up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// The process; 0 for a sum.
    pub pid: u32,
    values: [u64; COUNT],
}

impl Counters {
    /// Reads a page's bytes, adding its blocks up.
    pub fn parse(bytes: &[u8]) -> Result<Self, PageError> {
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let truncated = || PageError::Truncated(bytes.len());
        match long(offset_of!(Page, magic)).ok_or_else(truncated)? {
            MAGIC => {}
            0 => return Err(PageError::Unfinished),
            _ => return Err(PageError::Foreign),
        }
        let field = |at| word(at).ok_or_else(truncated);
        let version = field(offset_of!(Page, version))?;
        if version != VERSION {
            return Err(PageError::Version(version));
        }
        let layout = (field(offset_of!(Page, counters))?, field(offset_of!(Page, blocks))?);
        if layout != (COUNT as u32, BLOCKS as u32) {
            return Err(PageError::Layout { counters: layout.0, blocks: layout.1 });
        }
        if bytes.len() < size_of::<Page>() {
            return Err(truncated());
        }
        let mut sum = Self { pid: field(offset_of!(Page, pid))?, values: [0; COUNT] };
        for block in 0..BLOCKS {
            let start = offset_of!(Page, block) + block * size_of::<Block>();
            for (i, value) in sum.values.iter_mut().enumerate() {
                *value = value.wrapping_add(long(start + 8 * i).ok_or_else(truncated)?);
            }
        }
        Ok(sum)
    }

    /// The sum over several processes.
    pub fn sum(of: &[Self]) -> Self {
        let mut values = [0u64; COUNT];
        for page in of {
            for (sum, value) in values.iter_mut().zip(page.values) {
                *sum = sum.saturating_add(value);
            }
        }
        Self { pid: 0, values }
    }

    /// Made up, for tests.
    #[cfg(test)]
    pub fn from_values(pid: u32, values: impl Iterator<Item = u64>) -> Self {
        let mut counters = Self { pid, values: [0; COUNT] };
        counters.values.iter_mut().zip(values).for_each(|(to, from)| *to = from);
        counters
    }

    /// One of them.
    pub fn get(&self, counter: Counter) -> u64 {
        self.values[counter as usize]
    }

    /// Whether anything was done for the process: a request served, or huge pages advised.
    pub fn is_served(&self) -> bool {
        [Counter::MmapServed, Counter::MallocServed, Counter::BytesAdvised].iter().any(|c| self.get(*c) > 0)
    }

    /// How many requests were left to the kernel or the C library, by reason.
    pub fn left(&self) -> Vec<(&'static str, u64)> {
        let reason = |(declared, n): (&Declared, &u64)| Some((declared.name.strip_prefix("kernel_")?, *n));
        COUNTERS.iter().zip(&self.values).filter_map(reason).filter(|(_, n)| *n > 0).collect()
    }

    /// All of them, in the order of [`faultless_mm::stats::COUNTERS`].
    pub fn values(&self) -> &[u64; COUNT] {
        &self.values
    }
}

/// Why a file is no counters page.
#[derive(Debug)]
pub enum PageError {
    /// It cannot be read.
    Read(io::Error),
    /// It ends after so many bytes.
    Truncated(usize),
    /// Its header was never filled in: the process ended, or is, at its first large request.
    Unfinished,
    /// It is something else.
    Foreign,
    /// It has another version's layout.
    Version(u32),
    /// It has other numbers of counters or blocks.
    Layout {
        /// Counters in a block.
        counters: u32,
        /// Blocks.
        blocks: u32,
    },
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => write!(f, "cannot be read: {error}"),
            Self::Truncated(bytes) => write!(f, "ends after {bytes} of {} bytes", size_of::<Page>()),
            Self::Unfinished => write!(f, "has no header yet"),
            Self::Foreign => write!(f, "is not a counters page"),
            Self::Version(version) => write!(
                f,
                "has layout version {version}, this command reads {VERSION}: command and library do not belong together"
            ),
            Self::Layout { counters, blocks } => write!(
                f,
                "has {counters} counters in {blocks} blocks, this command reads {COUNT} in {BLOCKS}: command and \
                 library do not belong together"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page of process 42 with 1, 2, 3… in every block.
    fn page() -> Vec<u8> {
        let mut bytes = vec![0u8; size_of::<Page>()];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        for (at, word) in [(8, VERSION), (12, 42), (16, COUNT as u32), (20, BLOCKS as u32)] {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        let stride = (COUNT * 8).next_multiple_of(64);
        for block in 0..BLOCKS {
            for i in 0..COUNT {
                let at = 64 + block * stride + 8 * i;
                bytes[at..at + 8].copy_from_slice(&(i as u64 + 1).to_le_bytes());
            }
        }
        bytes
    }

    #[test]
    fn blocks_and_processes_are_added_up() {
        let one = Counters::parse(&page()).unwrap();
        assert_eq!(one.pid, 42);
        let expected = |i: usize| (i as u64 + 1) * BLOCKS as u64;
        assert!((0..COUNT).all(|i| one.values()[i] == expected(i)));
        assert_eq!(one.get(Counter::MmapBytes), expected(Counter::MmapBytes as usize));
        let two = Counters::sum(&[one.clone(), one]);
        assert!((0..COUNT).all(|i| two.values()[i] == 2 * expected(i)));
    }

    #[test]
    fn what_is_not_a_page_is_told() {
        let good = page();
        for len in [0, 7, 8, 15, 23, 63, 64, good.len() - 1] {
            assert!(matches!(Counters::parse(&good[..len]), Err(PageError::Truncated(n)) if n == len), "{len}");
        }
        let changed = |at: usize| {
            let mut bytes = good.clone();
            bytes[at] ^= 0x80;
            Counters::parse(&bytes).unwrap_err()
        };
        assert!(matches!(changed(0), PageError::Foreign));
        assert!(matches!(changed(8), PageError::Version(v) if v == VERSION ^ 0x80));
        assert!(matches!(changed(16), PageError::Layout { .. }));
        assert!(matches!(changed(20), PageError::Layout { .. }));
        assert!(matches!(Counters::parse(&vec![0; good.len()]), Err(PageError::Unfinished)));
    }

    #[test]
    fn a_directory_is_private_read_and_removed() {
        use std::os::unix::fs::PermissionsExt;
        let dir = Dir::create().unwrap();
        let path = dir.path().to_owned();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert_ne!(Dir::create().unwrap().path(), path);
        std::fs::write(path.join("42"), page()).unwrap();
        std::fs::write(path.join("43"), b"something else").unwrap();
        let (pages, wrong) = dir.read().unwrap();
        assert_eq!(pages, [Counters::parse(&page()).unwrap()]);
        assert_eq!(wrong.len(), 1);
        assert!(wrong[0].contains("/43: is not a counters page"), "{wrong:?}");
        drop(dir);
        assert!(!path.exists());
    }
}
