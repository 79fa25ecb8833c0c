//! A work queue of the device's, as Linux's driver `idxd` gives it to user space.
//!
//! Queues are on the bus `dsa` in sysfs (Documentation/ABI/stable/sysfs-driver-dma-idxd). One of type `user` that is
//! enabled has a file in /dev/dsa. To open it binds this process's address space to the queue; to close it makes the
//! kernel wait for requests under way. The queue's portal is a page of this file (3.3 and 9.3 of the specification),
//! and a descriptor is stored to it as a whole. Where the queue is shared, that is done by ENQCMD, which says whether
//! there was room (3.3.1). Where it is this process's own, that is done by MOVDIR64B; then one request at a time
//! always has room (3.3.2). The kernel does not give the portal away where the device does not check what it is
//! given. Then a descriptor is written to the file.
//!
//! One thread uses it: it opens it when it starts and closes it when it ends. A child of a fork has neither the thread
//! nor the portal.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use super::{Descriptor, Portal, Record, Sent};
use crate::raw::{self, syscall};
use crate::zero::Features;
use crate::{Errno, PAGE};

/// How a request gets into the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By ENQCMD to the portal.
    Shared,
    /// By MOVDIR64B to the portal.
    Dedicated,
    /// By writing to the file.
    Write,
}

/// States of the queue: closed, or open one way or another.
const CLOSED: u32 = 0;
const WAYS: [Way; 3] = [Way::Shared, Way::Dedicated, Way::Write];

/// The queue. Words are relaxed: one thread writes them, and others ask only whether it is open.
#[derive(Debug)]
pub struct Queue {
    /// 1 + the place in [`WAYS`], or [`CLOSED`].
    state: AtomicU32,
    file: AtomicUsize,
    portal: AtomicUsize,
    largest: AtomicUsize,
    record: Record,
}

static QUEUE: Queue = Queue {
    state: AtomicU32::new(CLOSED),
    file: AtomicUsize::new(0),
    portal: AtomicUsize::new(0),
    largest: AtomicUsize::new(0),
    record: Record::new(),
};

/// Looks for a queue and opens it; whether there is one.
pub fn open() -> bool {
    forget();
    if !Features::detect().has(Features::MOVDIR64B) {
        // Every processor that has the device has the instruction: most machines need not look further.
        return false;
    }
    let found = find(b"/sys/bus/dsa/devices", |found| {
        let file = open_file(&[b"/dev/dsa/", found.name()], libc::O_RDWR)?;
        let portal = map(file);
        let way = match (portal, found.shared) {
            (None, _) => Way::Write,
            (Some(_), true) if Features::detect().has(Features::ENQCMD) => Way::Shared,
            (Some(_), true) => Way::Write,
            (Some(_), false) => Way::Dedicated,
        };
        QUEUE.file.store(file, Relaxed);
        QUEUE.portal.store(portal.unwrap_or(0), Relaxed);
        QUEUE.largest.store(found.largest, Relaxed);
        Some(way)
    });
    if let Some(way) = found {
        QUEUE.state.store(1 + way as u32, Relaxed);
    }
    found.is_some()
}

/// Whether there is an open queue.
pub fn is_open() -> bool {
    QUEUE.state.load(Relaxed) != CLOSED
}

/// Gives it up, when nothing of this process is under way any more.
pub fn close() {
    if let Some(queue) = Queue::opened() {
        queue.close();
    }
}

/// In a forked child: it stayed with the parent.
pub fn forget() {
    QUEUE.state.store(CLOSED, Relaxed);
}

impl Queue {
    /// The queue if it is open.
    pub fn opened() -> Option<&'static Self> {
        is_open().then_some(&QUEUE)
    }

    fn way(&self) -> Option<Way> {
        WAYS.get((self.state.load(Relaxed) as usize).wrapping_sub(1)).copied()
    }
}

impl Portal for &Queue {
    fn largest(&self) -> usize {
        self.largest.load(Relaxed)
    }

    unsafe fn send(&self, request: &Descriptor) -> Sent {
        let portal = self.portal.load(Relaxed);
        match self.way() {
            // SAFETY: the portal is mapped while the queue is open; the rest is the caller's promise.
            Some(Way::Shared) => unsafe { enqcmd(portal, request) },
            // SAFETY: as above.
            Some(Way::Dedicated) => unsafe { movdir64b(portal, request) },
            Some(Way::Write) => {
                let at = core::ptr::from_ref(request) as usize;
                let args = [self.file.load(Relaxed), at, size_of::<Descriptor>(), 0, 0, 0];
                // SAFETY: reads the request; the rest is the caller's promise.
                match unsafe { syscall(libc::SYS_write, args) } {
                    Ok(_) => Sent::Taken,
                    Err(Errno::EAGAIN | Errno::EINTR) => Sent::Full,
                    Err(_) => Sent::Refused,
                }
            }
            None => Sent::Refused,
        }
    }

    fn record(&self) -> &Record {
        &self.record
    }

    /// Unmapped first: when nothing refers to the file any more, the kernel waits for requests under way.
    fn close(&self) {
        let portal = self.portal.swap(0, Relaxed);
        if portal != 0 {
            // SAFETY: the portal that `open` mapped; requests go nowhere else from now on.
            unsafe { raw::unmap(portal, PAGE) };
        }
        // SAFETY: the descriptor that `open` opened.
        let _ = unsafe { syscall(libc::SYS_close, [self.file.load(Relaxed), 0, 0, 0, 0, 0]) };
        forget();
    }

    fn now_ns(&self) -> u64 {
        raw::now_ns()
    }

    fn relax(&self) {
        core::hint::spin_loop();
    }
}

/// # Safety
/// A mapped portal of a shared queue; the processor has the instruction; see [`Portal::send`].
#[cfg(target_arch = "x86_64")]
unsafe fn enqcmd(portal: usize, request: &Descriptor) -> Sent {
    let retry: u8;
    // SAFETY: the caller's promise. The zero flag says that there was no room. The fence before makes the cleared
    // record visible to the device first.
    unsafe {
        core::arch::asm!("sfence", "enqcmd {portal}, [{request}]", "setz {retry}",
            portal = in(reg) portal, request = in(reg) request, retry = out(reg_byte) retry, options(nostack));
    }
    if retry == 0 { Sent::Taken } else { Sent::Full }
}

/// # Safety
/// A mapped portal of a dedicated queue; the processor has the instruction; see [`Portal::send`].
#[cfg(target_arch = "x86_64")]
unsafe fn movdir64b(portal: usize, request: &Descriptor) -> Sent {
    // SAFETY: the caller's promise. The store is not ordered after others without the fence.
    unsafe {
        core::arch::asm!("sfence", "movdir64b {portal}, [{request}]",
            portal = in(reg) portal, request = in(reg) request, options(nostack));
    }
    Sent::Taken
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn enqcmd(_: usize, _: &Descriptor) -> Sent {
    Sent::Refused
}

#[cfg(not(target_arch = "x86_64"))]
use enqcmd as movdir64b;

/// The portal's page; `None` where the kernel does not give it away.
fn map(file: usize) -> Option<usize> {
    let args = [0, PAGE, libc::PROT_WRITE as usize, libc::MAP_SHARED as usize, file, 0];
    // SAFETY: a new mapping at a place of the kernel's choice.
    unsafe { syscall(libc::SYS_mmap, args) }.ok()
}

/// A queue that can be used from user space.
pub(super) struct Found {
    name: [u8; 24],
    length: usize,
    pub(super) shared: bool,
    /// Whole pages.
    pub(super) largest: usize,
}

impl Found {
    pub(super) fn name(&self) -> &[u8] {
        self.name.get(..self.length).unwrap_or_default()
    }
}

/// Calls `f` for each queue of the bus in `folder` that is enabled for user space, until it has something.
pub(super) fn find<T>(folder: &[u8], mut f: impl FnMut(&Found) -> Option<T>) -> Option<T> {
    each_name(folder, |name| {
        let mut buffer = [0; 32];
        let mut is = |attribute: &[u8], value: &[u8]| {
            read(&[folder, b"/", name, b"/", attribute], &mut buffer).trim_ascii_end() == value
        };
        if !name.starts_with(b"wq") || !is(b"type", b"user") || !is(b"state", b"enabled") {
            return None;
        }
        let shared = is(b"mode", b"shared");
        if !shared && !is(b"mode", b"dedicated") {
            return None;
        }
        let largest = read(&[folder, b"/", name, b"/max_transfer_size"], &mut buffer).trim_ascii_end();
        let largest = raw::leading_number(largest)? as usize;
        // A request has 32 bits for its size.
        let largest = largest.min(1 << 31) & !(PAGE - 1);
        let mut found = Found { name: [0; 24], length: name.len(), shared, largest };
        found.name.get_mut(..name.len())?.copy_from_slice(name);
        if largest == 0 { None } else { f(&found) }
    })
}

/// Calls `f` for each name in a folder, until it has something.
fn each_name<T>(folder: &[u8], mut f: impl FnMut(&[u8]) -> Option<T>) -> Option<T> {
    /// An entry is its number and its place (8 bytes each), its length (2), its type (1) and its name.
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    #[repr(align(8))]
    struct Entries([u8; 2048]);

    let file = open_file(&[folder], libc::O_RDONLY | libc::O_DIRECTORY)?;
    let mut entries = Entries([0; 2048]);
    let mut found = None;
    while found.is_none() {
        let args = [file, entries.0.as_mut_ptr() as usize, entries.0.len(), 0, 0, 0];
        // SAFETY: the buffer is writable.
        let Ok(mut rest @ 1..) = (unsafe { syscall(libc::SYS_getdents64, args) }) else { break };
        let mut at = 0;
        while rest > NAME && found.is_none() {
            let Some(entry) = entries.0.get(at..at + rest) else { break };
            let Some(&[low, high]) = entry.get(LENGTH..LENGTH + 2) else { break };
            let length = u16::from_ne_bytes([low, high]) as usize;
            let Some(name) = entry.get(NAME..length) else { break };
            found = CStr::from_bytes_until_nul(name).ok().and_then(|name| f(name.to_bytes()));
            (at, rest) = (at + length, rest - length);
        }
    }
    // SAFETY: the descriptor opened above.
    let _ = unsafe { syscall(libc::SYS_close, [file, 0, 0, 0, 0, 0]) };
    found
}

fn path<'a>(parts: &[&[u8]], buffer: &'a mut [u8; 256]) -> Option<&'a CStr> {
    let mut end = 0;
    for part in parts.iter().copied().chain([&b"\0"[..]]) {
        buffer.get_mut(end..end + part.len())?.copy_from_slice(part);
        end += part.len();
    }
    CStr::from_bytes_until_nul(buffer.get(..end)?).ok()
}

fn open_file(parts: &[&[u8]], flags: i32) -> Option<usize> {
    let mut buffer = [0; 256];
    let at = path(parts, &mut buffer)?.as_ptr() as usize;
    let args = [libc::AT_FDCWD as usize, at, (flags | libc::O_CLOEXEC) as usize, 0, 0, 0];
    // SAFETY: the path ends with a zero byte.
    unsafe { syscall(libc::SYS_openat, args) }.ok()
}

/// The bytes of a file, as far as they fit the buffer.
fn read<'a>(parts: &[&[u8]], buffer: &'a mut [u8]) -> &'a [u8] {
    let mut name = [0; 256];
    path(parts, &mut name).map_or(&[], |path| raw::read_file(path, buffer))
}
