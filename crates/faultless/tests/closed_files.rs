//! A program closes all descriptors that it does not know, and opens files of its own by those numbers. Then calls on
//! the library's files are errors, and its own files are as they were.

mod apart;

use std::fs;
use std::os::fd::{AsRawFd, FromRawFd};

use apart::passes_apart;
use faultless::file::File;

const MIB: usize = 1 << 20;

fn is_closed<T: std::fmt::Debug>(result: std::io::Result<T>) {
    assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EBADF));
}

/// The program's files come by the numbers of the library's, and have a mark in their length.
fn take_all_numbers(mine: &std::path::Path, append: bool) -> Vec<fs::File> {
    // SAFETY: what a program may do that is not aware of libraries.
    assert_eq!(unsafe { libc::close_range(3, u32::MAX, 0) }, 0);
    fs::write(mine, vec![0xAA; 4 * MIB]).unwrap();
    let first = fs::File::options().read(true).write(!append).append(append).open(mine).unwrap();
    // SAFETY: numbers of this test's alone.
    let more = (0..12).map(|_| unsafe { fs::File::from_raw_fd(libc::dup(first.as_raw_fd())) });
    let more: Vec<_> = more.collect();
    more.into_iter().chain([first]).collect()
}

fn check(mine: &std::path::Path, files: &[fs::File]) {
    assert!(fs::read(mine).unwrap() == vec![0xAA; 4 * MIB], "a file of the program's was written to");
    for file in files {
        // SAFETY: a question about a number.
        assert!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFD) } >= 0, "it was closed");
    }
}

#[test]
fn files_of_the_program_are_left_alone() {
    passes_apart(|| {
        let directory = tempfile::tempdir().unwrap();
        let (path, mine) = (directory.path().join("data"), directory.path().join("mine"));
        fs::write(&path, vec![0x11; 6 * MIB]).unwrap();
        let file = File::open_writable(&path).unwrap();
        let eager = file.map_mut(0, MIB).unwrap();
        file.write_at(b"changed", 5).unwrap();
        eager.write(10_000, b"changed").unwrap();
        let files = take_all_numbers(&mine, false);
        is_closed(file.sync());
        is_closed(file.read_at(&mut [0; 4], 5 << 20));
        is_closed(file.prefetch(&[4 << 20..5 << 20, 5 << 20..6 << 20]));
        is_closed(file.map(4 << 20, MIB).map(drop));
        is_closed(file.grow(7 << 20));
        is_closed(file.write_at(b"more", 8 << 20));
        is_closed(file.set_len(100_000 + (4 << 20)));
        is_closed(file.punch_hole(0..4096));
        is_closed(faultless::file::sync_all());
        // What is in memory is there.
        let mut there = [0; 7];
        assert_eq!(file.read_at(&mut there, 5).unwrap(), 7);
        assert_eq!(&there, b"changed");
        check(&mine, &files);
        drop((eager, file));
        check(&mine, &files);
        assert!(fs::read(&path).unwrap() == vec![0x11; 6 * MIB]);
        // A new one, once the last handle has ended.
        let file = File::open_writable(&path).unwrap();
        file.write_at(b"changed", 5).unwrap();
        file.sync().unwrap();
        assert_eq!(&fs::read(&path).unwrap()[5..12], b"changed");
    });
}

/// The same file, opened by the same number: what is written there goes to its end.
#[test]
fn nothing_is_appended_to_the_same_file() {
    passes_apart(|| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        fs::write(&path, vec![0xAA; 4 * MIB]).unwrap();
        let file = File::open_writable(&path).unwrap();
        file.write_at(b"changed", 5).unwrap();
        let files = take_all_numbers(&path, true);
        is_closed(file.sync());
        assert!(fs::read(&path).unwrap() == vec![0xAA; 4 * MIB]);
        // A number of the same file is taken for the library's own.
        std::mem::forget(files);
    });
}
