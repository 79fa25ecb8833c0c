//! What a device writes to a lazy mapping is told of by no page table once it has begun: a sync in between loses nothing.

use std::fs;
use std::os::fd::AsRawFd;

use faultless::file::File;
use io_uring::{IoUring, opcode, types};

use crate::lazy::budget_if_lazy;
use crate::{PAGE, SLOT, filled, hole};

/// A device that is about to write to memory, which is pinned for that.
struct Device(IoUring);

impl Device {
    /// `None`: the kernel refuses.
    fn begin(to: &mut [u8]) -> Option<Self> {
        let ring = IoUring::new(2).ok()?;
        let part = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
        // SAFETY: memory that stays mapped until this is dropped.
        unsafe { ring.submitter().register_buffers(&[part]) }.ok()?;
        Some(Self(ring))
    }

    /// Writes bytes of a file there, by the kernel's own addresses.
    fn write(&mut self, to: *mut u8, bytes: usize, from: &fs::File) {
        let read = opcode::ReadFixed::new(types::Fd(from.as_raw_fd()), to, bytes as u32, 0).build();
        // SAFETY: a part of what was registered.
        unsafe { self.0.submission().push(&read) }.unwrap();
        self.0.submit_and_wait(1).unwrap();
        assert_eq!(self.0.completion().next().unwrap().result(), bytes as i32);
    }
}

/// A device writes to pages of a lazy mapping, some of which were written to before by the program.
fn loses_nothing(named: tempfile::NamedTempFile, length: usize) {
    let source = tempfile::NamedTempFile::new().unwrap();
    fs::write(source.path(), vec![0x77; 4 * PAGE]).unwrap();
    let from = fs::File::open(source.path()).unwrap();
    let file = File::open_writable(named.path()).unwrap();
    let mut mapping = file.map_lazy_mut(0, length).unwrap();
    // SAFETY: no other thread uses the file.
    let memory = unsafe { mapping.as_mut_slice() };
    let mut expected = memory.to_vec();
    for at in [3 * PAGE, SLOT - 2 * PAGE, SLOT + 40 * PAGE] {
        let pages = at..at + 4 * PAGE;
        memory[at] = 5;
        let Some(mut device) = Device::begin(&mut memory[pages.clone()]) else {
            return faultless_testkit::skip("no io_uring");
        };
        file.sync().unwrap();
        assert_eq!(fs::read(named.path()).unwrap()[at], 5);
        file.drop_cache();
        device.write(memory[pages.clone()].as_mut_ptr(), 4 * PAGE, &from);
        expected[pages].fill(0x77);
        file.sync().unwrap();
        assert!(fs::read(named.path()).unwrap() == expected, "not in the file");
        // Again, where it was not synced since.
        device.write(memory[at..].as_mut_ptr(), PAGE, &source_of(0x78));
        expected[at..at + PAGE].fill(0x78);
        drop(device);
        file.sync().unwrap();
        file.drop_cache();
        assert!(memory == expected, "old bytes came back");
        assert!(fs::read(named.path()).unwrap() == expected);
    }
}

fn source_of(byte: u8) -> fs::File {
    let named = tempfile::NamedTempFile::new().unwrap();
    fs::write(named.path(), vec![byte; PAGE]).unwrap();
    fs::File::open(named.path()).unwrap()
}

#[test]
fn what_a_device_writes_beside_syncs_is_in_the_file() {
    let Some(_alone) = budget_if_lazy(64 << 20) else { return };
    loses_nothing(filled(2 * SLOT, 3).1, 2 * SLOT);
}

#[test]
fn what_a_device_writes_to_a_hole_is_in_the_file() {
    let Some(_alone) = budget_if_lazy(64 << 20) else { return };
    loses_nothing(hole(2 * SLOT as u64), 2 * SLOT);
}
