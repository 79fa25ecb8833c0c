//! Bytes of a mapping that the kernel has a reference to stay the file's when the memory goes.

use std::io::{self, Read};
use std::os::fd::AsRawFd;

use faultless::file::File;

use crate::lazy::budget_if_lazy;
use crate::{PAGE, SLOT, budget, named};

const BYTES: usize = 4 * PAGE;

/// Gives pages to a pipe, which has references to them and no copies.
fn into_pipe(bytes: &[u8]) -> io::PipeReader {
    let (reader, writer) = io::pipe().unwrap();
    let part = libc::iovec { iov_base: bytes.as_ptr() as *mut _, iov_len: bytes.len() };
    // SAFETY: memory that is mapped.
    assert_eq!(unsafe { libc::vmsplice(writer.as_raw_fd(), &part, 1, 0) }, bytes.len() as isize);
    reader
}

/// Maps a file, has bytes of it in a pipe, ends the mapping, and has `goes` let its memory go. Then maps another one.
fn is_still_there(is_lazy: bool, goes: impl Fn(File)) {
    let (first, second) = (named(&vec![0xAA; 2 * SLOT]), named(&vec![0xBB; 2 * SLOT]));
    for _ in 0..10 {
        let file = File::open(first.path()).unwrap();
        let mapping = if is_lazy { file.map_lazy(0, 2 * SLOT) } else { file.map(0, 2 * SLOT) }.unwrap();
        // SAFETY: no other thread uses the file.
        let bytes = unsafe { mapping.as_slice() };
        assert!(bytes.iter().all(|byte| *byte == 0xAA));
        let mut pipe = into_pipe(&bytes[2 * PAGE..][..BYTES]);
        drop(mapping);
        goes(file);
        let other = File::open(second.path()).unwrap();
        let mapping = other.map(0, 2 * SLOT).unwrap();
        // SAFETY: as above.
        assert!(unsafe { mapping.as_slice() }.iter().all(|byte| *byte == 0xBB));
        let mut there = vec![0; BYTES];
        pipe.read_exact(&mut there).unwrap();
        assert!(there.iter().all(|byte| *byte == 0xAA), "another file's bytes came");
    }
}

#[test]
fn bytes_in_a_pipe_stay_when_the_file_ends() {
    let _alone = budget(64 << 20);
    is_still_there(false, drop);
}

#[test]
fn bytes_in_a_pipe_stay_when_the_cache_is_dropped() {
    let _alone = budget(64 << 20);
    is_still_there(false, |file| assert!(file.drop_cache() > 0));
}

#[test]
fn bytes_of_a_lazy_mapping_stay_in_a_pipe() {
    let Some(_alone) = budget_if_lazy(64 << 20) else { return };
    is_still_there(true, |file| drop((file.drop_cache(), file)));
}
