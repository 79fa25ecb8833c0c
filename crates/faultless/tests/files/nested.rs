//! Backings that have their bytes in other files of the library's, and open and end these at any time.

use std::io;
use std::path::PathBuf;
use std::thread;

use faultless::file::{Backing, File};

use crate::{PAGE, budget, bytes, named};

/// Part of a file that is open for as long as this.
struct Part(File, u64);

impl Backing for Part {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.len() - self.1)
    }
    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        assert_eq!(self.0.read_at(buffer, self.1 + offset)?, buffer.len());
        Ok(())
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        assert_eq!(self.0.write_at(bytes, self.1 + offset)?, bytes.len());
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}

/// A file that is opened for each call.
struct Opens(PathBuf);

impl Opens {
    fn part(&self) -> io::Result<Part> {
        Ok(Part(File::open_writable(&self.0)?, 0))
    }
}

impl Backing for Opens {
    fn length(&self) -> io::Result<u64> {
        self.part()?.length()
    }
    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.part()?.read(offset, buffer)
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.part()?.write(offset, bytes)
    }
    fn sync(&self) -> io::Result<()> {
        self.part()?.sync()
    }
}

/// Has a file of its own, and no more than that.
struct Refuses(#[allow(dead_code, reason = "it ends with this")] File);

impl Backing for Refuses {
    fn length(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }
    fn read(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn write(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_backing_ends_the_file_that_it_has() {
    let _alone = budget(64 << 20);
    let all = bytes(40 * PAGE, 5);
    let named = named(&all);
    let file = File::with_backing(Part(File::open_writable(named.path()).unwrap(), PAGE as u64)).unwrap();
    let mut part = [0; 100];
    assert_eq!(file.read_at(&mut part, 50).unwrap(), 100);
    assert!(part == all[PAGE + 50..PAGE + 150]);
    file.write_at(b"here", 7).unwrap();
    let mapping = file.map_mut(3 * PAGE as u64, PAGE).unwrap();
    mapping.write(0, b"there").unwrap();
    drop((file, mapping));
    let now = std::fs::read(named.path()).unwrap();
    assert!(now[PAGE + 7..PAGE + 11] == *b"here" && now[4 * PAGE..4 * PAGE + 5] == *b"there");
    assert!(!File::is_cached(named.as_file()).unwrap());
    // Also where its own file cannot be made.
    let file = File::open_writable(named.path()).unwrap();
    assert!(File::with_backing(Refuses(file)).is_err());
    assert!(!File::is_cached(named.as_file()).unwrap());
}

#[test]
fn a_backing_opens_a_file_for_each_call() {
    let _alone = budget(64 << 20);
    let named = named(&bytes(40 * PAGE, 5));
    let written = |at: usize, bytes: &[u8]| std::fs::read(named.path()).unwrap()[at..at + bytes.len()] == *bytes;
    let file = File::with_backing(Opens(named.path().into())).unwrap();
    file.write_at(b"first", 5).unwrap();
    file.sync().unwrap();
    assert!(written(5, b"first"));
    file.write_at(b"second", 5).unwrap();
    faultless::file::sync_all().unwrap();
    assert!(written(5, b"second"));
    file.write_at(b"third", 5).unwrap();
    drop(file);
    assert!(written(5, b"third"));
}

/// Handles of files, of their backings and of all files end and sync at the same time. The thread that
/// dropped the last handle finds its bytes in the file.
#[test]
fn many_threads_end_and_sync_them() {
    let _alone = budget(64 << 20);
    let files: Vec<_> = (0..4).map(|i| named(&bytes(8 * PAGE, i))).collect();
    faultless::region::set(faultless_page::knobs::Knob::DirtyExpire, 1);
    thread::scope(|s| {
        for (i, named) in files.iter().enumerate() {
            s.spawn(move || {
                for round in 0..100u8 {
                    let file = File::with_backing(Opens(named.path().into())).unwrap();
                    file.write_at(&[round; 10], (i * PAGE) as u64).unwrap();
                    let other = file.map(0, PAGE).unwrap();
                    thread::scope(|s| _ = s.spawn(|| drop(other)));
                    drop(file);
                    assert!(std::fs::read(named.path()).unwrap()[i * PAGE..][..10] == [round; 10]);
                }
            });
        }
        s.spawn(|| (0..200).for_each(|_| faultless::file::sync_all().unwrap()));
    });
}
