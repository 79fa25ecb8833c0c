//! Cache misses of a thread, by the processor's counters, where the machine has them and the kernel lets us.

use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;

/// `PERF_TYPE_HARDWARE` and `PERF_COUNT_HW_CACHE_MISSES` (perf_event_open(2)).
const HARDWARE: u32 = 0;
const CACHE_MISSES: u64 = 3;
/// Not in the kernel, nor in the hypervisor: bits 5 and 6 of the flags.
const USER_ONLY: u64 = 1 << 5 | 1 << 6;

/// The first version of `perf_event_attr`, which every kernel takes.
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    breakpoint_address: u64,
}

const _: () = assert!(size_of::<Attributes>() == 64);

/// A counter of this thread's, that runs.
pub struct Misses(File);

impl Misses {
    /// `None` where there is none.
    pub fn start() -> Option<Self> {
        let attributes = Attributes {
            kind: HARDWARE,
            size: size_of::<Attributes>() as u32,
            config: CACHE_MISSES,
            sample_period: 0,
            sample_type: 0,
            read_format: 0,
            flags: USER_ONLY,
            wakeup_events: 0,
            breakpoint_type: 0,
            breakpoint_address: 0,
        };
        let (this_thread, any_cpu, no_group) = (0, -1, -1);
        // SAFETY: the kernel reads the attributes, whose size they say.
        let fd = unsafe {
            libc::syscall(libc::SYS_perf_event_open, &raw const attributes, this_thread, any_cpu, no_group, 0)
        };
        // SAFETY: a new descriptor, this value's alone.
        (fd >= 0).then(|| Self(unsafe { File::from_raw_fd(fd as i32) }))
    }

    /// How many there were.
    pub fn read(&mut self) -> Option<u64> {
        let mut count = [0; 8];
        self.0.read_exact(&mut count).ok()?;
        Some(u64::from_ne_bytes(count))
    }
}
