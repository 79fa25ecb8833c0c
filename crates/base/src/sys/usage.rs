//! What the kernel counts of this process.

use core::mem::MaybeUninit;

use super::raw::syscall;

/// All threads together, those that have ended with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Page faults that waited for a device.
    pub major_faults: usize,
    /// Those that did not.
    pub minor_faults: usize,
    /// Time in the kernel, in microseconds.
    pub system_us: u64,
}

/// As `Sys::usage`.
pub fn usage() -> Option<Usage> {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the structure is writable, and any content of it is one.
    let usage = unsafe {
        syscall(libc::SYS_getrusage, [libc::RUSAGE_SELF as usize, usage.as_mut_ptr() as usize, 0, 0, 0, 0])
            .ok()?;
        usage.assume_init()
    };
    Some(Usage {
        major_faults: usage.ru_majflt as usize,
        minor_faults: usage.ru_minflt as usize,
        system_us: usage.ru_stime.tv_sec as u64 * 1_000_000 + usage.ru_stime.tv_usec as u64,
    })
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;
    use crate::PAGE;

    #[test]
    fn memory_that_comes_is_counted() {
        let before = usage().unwrap();
        let pages = 500;
        let mut memory = std::vec::Vec::<u8>::with_capacity(pages * PAGE);
        memory.spare_capacity_mut().iter_mut().step_by(PAGE).for_each(|byte| _ = byte.write(1));
        let after = usage().unwrap();
        assert!(after.major_faults >= before.major_faults && after.system_us >= before.system_us);
        assert!(after.minor_faults > before.minor_faults, "{before:?} {after:?}");
    }
}
