//! Regions that are told of what the program does by calls of its own, and those calls.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use faultless::region::{Advice, Backing, Builder, Delivery, Error, Region};
use faultless_testkit::limit::limit;

pub const PAGE: usize = 4096;
pub const MIB: usize = 1 << 20;
pub const BYTES: usize = 8 * MIB;
pub const ROUNDS: usize = 40;

/// What the backing has at an offset.
pub fn backed(at: usize) -> u8 {
    (at / PAGE % 250) as u8 + 1
}

/// A backing that allocates, as any may.
pub struct Allocating;

impl Backing for Allocating {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), i32> {
        for (i, page) in buffer.chunks_mut(PAGE).enumerate() {
            page.copy_from_slice(&vec![backed(offset as usize + i * PAGE); page.len()]);
        }
        Ok(())
    }
}

pub fn build(builder: Builder) -> Option<Region> {
    match builder.events(true).delivery(Delivery::Thread).handlers(2).build() {
        Ok(region) => Some(region),
        Err(error @ (Error::NoUserfaultfd(_) | Error::NoEvents(_))) => {
            faultless_testkit::skip(format_args!("{error}"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A region of zeroes and one with a backing, with what a page of it has at first.
pub fn each(test: impl Fn(Region, &(dyn Fn(usize) -> u8 + Sync))) {
    limit();
    if let Some(region) = build(Region::builder(BYTES)) {
        test(region, &|_| 0);
    }
    if let Some(region) = build(Region::builder(BYTES).backing(Allocating)) {
        test(region, &backed);
    }
}

pub fn read(at: *const u8) -> u8 {
    // SAFETY: the tests read what is mapped.
    unsafe { at.read_volatile() }
}

pub fn write(at: *mut u8, byte: u8) {
    // SAFETY: the tests write to what is mapped, and no other code does.
    unsafe { at.write_volatile(byte) }
}

pub fn munmap(at: *mut u8, bytes: usize) {
    // SAFETY: memory that is not used any more, which is what is tested.
    assert_eq!(unsafe { libc::munmap(at.cast(), bytes) }, 0);
}

/// Moves memory to where there is room; where it was is nothing then.
pub fn mremap(at: *mut u8, bytes: usize) -> *mut u8 {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: moved to addresses that were reserved for it.
    unsafe {
        let to = libc::mmap(null_mut(), bytes, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
        let moved = libc::mremap(at.cast(), bytes, bytes, flags, to);
        assert_ne!(moved, libc::MAP_FAILED);
        moved.cast()
    }
}

/// How a child ends that does this: its status.
pub fn forked(child: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child only reads and writes memory, makes system calls, and ends.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0);
        if pid == 0 {
            libc::_exit(!child() as i32);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
        status
    }
}

/// Tells other threads to end, also when its own fails.
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Faults in the last quarter of the region, by two threads, while `change` works on the rest.
pub fn beside(region: &Region, fresh: &(dyn Fn(usize) -> u8 + Sync), change: impl FnOnce()) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let faulting: Vec<_> = (0..2)
            .map(|id| {
                let done = &done;
                scope.spawn(move || {
                    let part = 6 * MIB + id * MIB..7 * MIB + id * MIB;
                    while !done.load(Ordering::Relaxed) {
                        for at in part.clone().step_by(PAGE) {
                            let page = region.as_ptr().wrapping_add(at);
                            assert_eq!(read(page), fresh(at), "at {at:#x}");
                            write(page, 251);
                        }
                        for at in part.clone().step_by(PAGE) {
                            assert_eq!(read(region.as_ptr().wrapping_add(at)), 251, "at {at:#x}");
                        }
                        region.advise(part.clone(), Advice::DontNeed).unwrap();
                    }
                })
            })
            .collect();
        let ends = Ends(&done);
        change();
        drop(ends);
        faulting.into_iter().for_each(|thread| thread.join().unwrap());
    });
}
