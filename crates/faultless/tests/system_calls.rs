//! Requests that the kernel serves later, or in the middle of something else: io_uring, and constructors of libraries
//! that are being loaded, on memory that was not touched yet.

use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::process::Command;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use faultless::region::{Delivery, Error, Region};
use faultless_testkit::limit::limit;

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;

/// A region of each mode that can be made.
fn each(test: impl Fn(&Region)) {
    limit();
    for delivery in [Delivery::Direct, Delivery::Thread, Delivery::Signal] {
        match Region::builder(8 * MIB).delivery(delivery).windows(PAGE, PAGE).build() {
            Ok(region) => test(&region),
            Err(Error::NoUserfaultfd(error)) => {
                faultless_testkit::skip(format_args!("{delivery:?}, error {error}"))
            }
            Err(error) => panic!("{delivery:?}: {error}"),
        }
    }
}

fn read(region: &Region, at: usize) -> u8 {
    // SAFETY: mapped for reading.
    unsafe { region.as_ptr().add(at).read_volatile() }
}

/// A ring for one request at a time (`linux/io_uring.h`).
struct Ring {
    fd: File,
    rings: *mut u8,
    requests: *mut u8,
    parameters: [u32; 30],
}

const READ: u8 = 22;
const WRITE: u8 = 23;
const RINGS: usize = 4096;
/// Words of the parameters where the offsets of the rings begin.
const SUBMISSION: usize = 10;
const COMPLETION: usize = 20;

impl Ring {
    /// `None` where the kernel has none, or gives none.
    fn new() -> Option<Self> {
        let mut parameters = [0u32; 30];
        // SAFETY: the structure has 120 bytes; two mappings of the new descriptor's, never unmapped.
        unsafe {
            let fd = libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr());
            if fd < 0 {
                faultless_testkit::skip(format_args!("io_uring, {}", std::io::Error::last_os_error()));
                return None;
            }
            let fd = File::from_raw_fd(fd as i32);
            let map = |offset: libc::off_t| {
                let prot = libc::PROT_READ | libc::PROT_WRITE;
                let at = libc::mmap(null_mut(), RINGS, prot, libc::MAP_SHARED, fd.as_raw_fd(), offset);
                assert_ne!(at, libc::MAP_FAILED);
                at.cast::<u8>()
            };
            let (rings, requests) = (map(0), map(0x1000_0000));
            Some(Self { fd, rings, requests, parameters })
        }
    }

    /// A word of the rings: the one whose offset is at this place of the parameters.
    fn word(&self, place: usize) -> &AtomicU32 {
        // SAFETY: an offset inside the mapping, of a word that both sides access atomically.
        unsafe { &*self.rings.add(self.parameters[place] as usize).cast() }
    }

    /// Makes a request and waits for its result: bytes, or a negated error number.
    fn request(&self, code: u8, fd: i32, at: *mut u8, bytes: u32) -> i32 {
        // SAFETY: one request, as long as it says, in its place; then one result from its place.
        unsafe {
            self.requests.write_bytes(0, 64);
            self.requests.write(code);
            self.requests.add(4).cast::<i32>().write(fd);
            // At the file's position, as read and write do.
            self.requests.add(8).cast::<u64>().write(u64::MAX);
            self.requests.add(16).cast::<u64>().write(at as u64);
            self.requests.add(24).cast::<u32>().write(bytes);
            self.word(SUBMISSION + 6).store(0, Ordering::Relaxed);
            self.word(SUBMISSION + 1).fetch_add(1, Ordering::Release);
            const WAIT: u32 = 1;
            let done = libc::syscall(libc::SYS_io_uring_enter, self.fd.as_raw_fd(), 1, 1, WAIT, 0, 0);
            assert_eq!(done, 1, "{}", std::io::Error::last_os_error());
            let head = self.word(COMPLETION).load(Ordering::Relaxed);
            assert_ne!(self.word(COMPLETION + 1).load(Ordering::Acquire), head, "no result");
            let mask = self.word(COMPLETION + 2).load(Ordering::Relaxed);
            let results = self.rings.add(self.parameters[COMPLETION + 5] as usize);
            let result = results.add((head & mask) as usize * 16 + 8).cast::<i32>().read();
            self.word(COMPLETION).store(head + 1, Ordering::Release);
            result
        }
    }
}

#[test]
fn io_uring_meets_untouched_memory() {
    let Some(ring) = Ring::new() else { return };
    each(|region| {
        let mut file = tempfile::tempfile().unwrap();
        let at = |offset: usize| region.as_ptr().wrapping_add(offset);
        let expected = |bytes: i32| if region.serves_system_calls() { bytes } else { -libc::EFAULT };
        assert_eq!(ring.request(WRITE, file.as_raw_fd(), at(MIB), 100), expected(100), "{region:?}");
        if !region.serves_system_calls() {
            region.populate(0..8 * MIB).unwrap();
            assert_eq!(ring.request(WRITE, file.as_raw_fd(), at(MIB), 100), 100, "populated");
        }
        std::io::Seek::rewind(&mut file).unwrap();
        let mut bytes = [1; 200];
        assert_eq!(file.read(&mut bytes).unwrap(), 100);
        assert_eq!(bytes[..100], [0; 100], "untouched memory is written as zero");
        file.write_all(&[7; 50]).unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        assert_eq!(ring.request(READ, file.as_raw_fd(), at(3 * MIB), 150), 150, "{region:?}");
        assert_eq!([3 * MIB, 3 * MIB + 100, 3 * MIB + 149].map(|at| read(region, at)), [0, 7, 7]);
        assert_eq!(read(region, 3 * MIB + 150), 0);
    });
}

const LIBRARY: &str = "#include <stdlib.h>
__attribute__((constructor)) static void start(void) {
    volatile char *page = (volatile char *)strtoull(getenv(\"FAULTLESS_TEST_ADDRESS\"), 0, 10);
    for (int i = 0; i < 16; i++)
        page[i * 4096] += 5;
}
";

/// The loader holds its locks then.
#[test]
fn a_library_that_is_being_loaded_faults() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("fault.c");
    std::fs::write(&source, LIBRARY).unwrap();
    each(|region| {
        // Another file each time: one that is there already is not loaded again.
        let library = dir.path().join(format!("{:?}.so", region.delivery()));
        match Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status() {
            Ok(status) => assert!(status.success()),
            Err(error) => return faultless_testkit::skip(format_args!("no C compiler ({error})")),
        }
        let path = CString::new(library.to_str().unwrap()).unwrap();
        // SAFETY: this program has one test that looks at the environment; the library does what is written above.
        unsafe {
            std::env::set_var("FAULTLESS_TEST_ADDRESS", (region.as_ptr() as usize).to_string());
            assert!(!libc::dlopen(path.as_ptr(), libc::RTLD_NOW).is_null());
        }
        assert!((0..16).all(|page| read(region, page * PAGE) == 5), "{region:?}");
    });
}
