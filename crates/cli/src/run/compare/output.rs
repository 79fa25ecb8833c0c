//! What a run wrote and how it ended, beside the first plain run.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result};

use crate::run::child::End;
use crate::run::sys;

/// A file without a name: among temporary files, wherever there is a place for them.
pub fn unnamed() -> io::Result<File> {
    tempfile::tempfile()
        .or_else(|error| tempfile::tempfile_in("/tmp").map_err(|_| error))
        .or_else(|error| tempfile::tempfile_in("/dev/shm").map_err(|_| error))
}

/// What a run writes, kept in files that have no name.
pub struct Captured {
    out: File,
    err: File,
}

impl Captured {
    /// Nothing yet.
    pub fn new() -> Result<Self> {
        let file = || unnamed().context("no place for the program's output (TMPDIR, /tmp, /dev/shm)");
        Ok(Self { out: file()?, err: file()? })
    }

    /// Where standard output and error go.
    pub fn files(&self) -> [RawFd; 2] {
        [self.out.as_raw_fd(), self.err.as_raw_fd()]
    }

    /// An error where the files have no room for more: then the program may not have written all either.
    pub fn had_room(&self) -> io::Result<()> {
        let Self { out, err } = self;
        [out, err].into_iter().try_for_each(|file| {
            let end = file.metadata()?.len();
            // More than the rest of a block.
            let more = sys::with_long_files(|| file.write_all_at(&[0; 2 << 12], end));
            let is_full = |error: &io::Error| matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT));
            more.or_else(|error| if is_full(&error) { Err(error) } else { Ok(()) }).and(file.set_len(end))
        })
    }

    /// Shows what the run said on its standard error.
    pub fn show_errors(&self) {
        let mut file = &self.err;
        let _ = file.rewind().and_then(|()| io::copy(&mut file, &mut io::stderr()));
    }
}

/// Where two files first differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    byte: u64,
    line: u64,
    lengths: [u64; 2],
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { byte, line, lengths: [plain, faultless] } = self;
        write!(f, "first at byte {byte} (line {line}); {plain} bytes plain, {faultless} faultless")
    }
}

/// Where they first differ; `None`: nowhere.
fn difference(one: &File, other: &File) -> io::Result<Option<Place>> {
    let lengths = [one.metadata()?.len(), other.metadata()?.len()];
    let (mut one, mut other) = (one, other);
    one.rewind()?;
    other.rewind()?;
    let (mut byte, mut line) = (1, 1);
    let (mut a, mut b) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let (n, m) = (fill(&mut one, &mut a)?, fill(&mut other, &mut b)?);
        let same = a[..n].iter().zip(&b[..m]).take_while(|(a, b)| a == b).count();
        byte += same as u64;
        line += a[..same].iter().filter(|b| **b == b'\n').count() as u64;
        if same < n.max(m) {
            return Ok(Some(Place { byte, line, lengths }));
        }
        if n == 0 {
            return Ok(None);
        }
    }
}

/// As many bytes as fit, or as there are.
fn fill(from: &mut &File, bytes: &mut [u8]) -> io::Result<usize> {
    let most = bytes.len() as u64;
    io::copy(&mut from.take(most), &mut &mut *bytes).map(|n| n as usize)
}

/// What of a run is compared.
pub const PARTS: [&str; 3] = ["output", "error output", "end"];

/// How the runs compare with the first plain one.
#[derive(Default)]
pub struct Outputs {
    first: Option<(Captured, End)>,
    parts: [Part; 3],
}

/// One part of all runs.
#[derive(Clone, Debug, Default)]
struct Part {
    /// Plain runs, and those of them that are not as the first one.
    plain: (usize, usize),
    /// The same of runs under faultless.
    faultless: (usize, usize),
    /// Where the first of these differs.
    how: Option<String>,
}

/// What is said of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// All runs are the same.
    Same,
    /// Plain runs are the same, and this many under faultless are not: how the first of them differs.
    Differs(usize, String),
    /// Plain runs are not the same either.
    Varies,
}

impl Outputs {
    /// Takes a run in. The first one has to be plain.
    pub fn add(&mut self, is_plain: bool, captured: Captured, end: End) -> Result<()> {
        let Some((first, first_end)) = &self.first else {
            captured.show_errors();
            self.parts.iter_mut().for_each(|part| part.plain.0 += 1);
            self.first = Some((captured, end));
            return Ok(());
        };
        let place = |one: &File, other: &File| -> io::Result<Option<String>> {
            Ok(difference(one, other)?.map(|place| place.to_string()))
        };
        let how = [
            place(&first.out, &captured.out).context("cannot read the program's output")?,
            place(&first.err, &captured.err).context("cannot read the program's output")?,
            (*first_end != end).then(|| format!("plain by {first_end}, faultless by {end}")),
        ];
        let was_said = self.parts[1].how.is_some();
        for (part, how) in self.parts.iter_mut().zip(how) {
            let count = if is_plain { &mut part.plain } else { &mut part.faultless };
            (count.0, count.1) = (count.0 + 1, count.1 + how.is_some() as usize);
            if !is_plain && part.how.is_none() {
                part.how = how;
            }
        }
        if !was_said && self.parts[1].how.is_some() {
            captured.show_errors();
        }
        Ok(())
    }

    /// How many runs under faultless were taken in.
    pub fn covered(&self) -> usize {
        self.parts[0].faultless.0
    }

    /// Whether another plain run would tell if the program varies by itself.
    pub fn is_undecided(&self) -> bool {
        self.parts.iter().any(|part| part.plain.0 == 1 && part.faultless.1 > 0)
    }

    /// What is said of each of [`PARTS`].
    pub fn findings(&self) -> [Finding; 3] {
        self.parts.clone().map(|part| match part {
            Part { plain: (_, 1..), .. } => Finding::Varies,
            Part { faultless: (_, n @ 1..), how, .. } => Finding::Differs(n, how.unwrap_or_default()),
            _ => Finding::Same,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn run(out: &[u8], err: &[u8]) -> Captured {
        let captured = Captured::new().unwrap();
        (&captured.out).write_all(out).unwrap();
        (&captured.err).write_all(err).unwrap();
        captured
    }

    #[test]
    fn the_first_byte_that_differs_is_found() {
        let place = |a: &[u8], b: &[u8]| difference(&run(a, b"").out, &run(b, b"").out).unwrap();
        assert_eq!(place(b"", b""), None);
        assert_eq!(place(b"a\nb\n", b"a\nb\n"), None);
        assert_eq!(place(b"a\nb\n", b"a\nc\n"), Some(Place { byte: 3, line: 2, lengths: [4, 4] }));
        assert_eq!(place(b"a\n", b"a\nb"), Some(Place { byte: 3, line: 2, lengths: [2, 3] }));
        let long = vec![b'x'; 200_000];
        let mut other = long.clone();
        other[150_000] = b'y';
        assert_eq!(place(&long, &other).unwrap().byte, 150_001);
    }

    /// A device without room stands for a file system without any.
    #[test]
    fn output_for_which_there_is_no_room_is_told() {
        assert!(run(b"x", b"").had_room().is_ok());
        let captured = run(b"all", b"");
        captured.had_room().unwrap();
        assert_eq!(captured.out.metadata().unwrap().len(), 3);
        let full = || File::options().write(true).open("/dev/full").unwrap();
        let error = Captured { out: full(), err: full() }.had_room().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    }

    #[test]
    fn what_varies_by_itself_is_no_difference() {
        let end = End::Status(0);
        let mut outputs = Outputs::default();
        outputs.add(true, run(b"x", b"1"), end).unwrap();
        outputs.add(false, run(b"y", b"2"), End::Status(3)).unwrap();
        assert!(outputs.is_undecided());
        outputs.add(true, run(b"x", b"3"), end).unwrap();
        assert!(!outputs.is_undecided());
        let [out, err, status] = outputs.findings();
        assert_eq!(err, Finding::Varies);
        assert!(matches!(out, Finding::Differs(1, how) if how.starts_with("first at byte 1 (line 1)")));
        assert_eq!(status, Finding::Differs(1, "plain by status 0, faultless by status 3".into()));
    }
}
