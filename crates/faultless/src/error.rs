//! What can go wrong with a region, and what to do about it.

use std::fmt;
use std::io;

use faultless_base::sys::limits;
use faultless_mm::region::change::Refused;

/// Why a region cannot be made or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The length is 0, or too large to be rounded up to 2 MiB.
    Length,
    /// The kernel refused the address space.
    NoAddressSpace,
    /// No userfaultfd can be opened: the error number of the last try.
    NoUserfaultfd(i32),
    /// This kernel's userfaultfd lacks what the delivery mode needs.
    NoFeature,
    /// The delivery mode and the source of the bytes do not go together.
    DirectBacking,
    /// No thread could be started.
    NoThread,
    /// Under valgrind no handler thread runs while another thread faults.
    Valgrind,
    /// The choices that a region is made with make no sense: what is wrong.
    Choice(&'static str),
    /// There are too many regions with signal delivery.
    TooManyRegions,
    /// This thread blocks SIGBUS, which would kill it at a fault of a region with signal delivery.
    SigbusBlocked,
    /// The program replaced the handler for SIGBUS.
    SigbusTaken,
    /// The range is empty, not whole pages of 4096 bytes, or not inside the region.
    Outside,
    /// Something is mapped in the range already.
    Mapped,
    /// A part of the range is not mapped, or not with one set of attributes.
    NotMapped,
    /// The range is not readable, or not writable, all over.
    Rights,
    /// There are too many areas with different attributes.
    TooManyAreas,
    /// A part of the range was unmapped or moved away by a call of the program's own; known to a region with events.
    Lost,
    /// No snapshot can be taken of the region: why.
    NoSnapshots(&'static str),
    /// A region whose pages go to a store cannot be had like this: why.
    NoSwap(&'static str),
    /// There are too many snapshots of the region at a time.
    TooManySnapshots,
    /// A snapshot lacks bytes, because there was no memory for a copy.
    Incomplete,
    /// A device node, a FIFO or a socket has the name of the file to save to.
    NoFile,
    /// Events need thread delivery, and what the kernel asks for: the error number.
    NoEvents(i32),
    /// This process was forked from the process that made the region.
    Forked,
    /// The region was closed because its faults could not be served any more.
    Closed,
    /// The region ended before the work on it was done.
    Ended,
    /// The work was cancelled before it was done.
    Cancelled,
    /// The kernel refused, with this error number.
    Kernel(i32),
}

/// What a region with a store does not do.
const NOT_WITH_SWAP: &str = "a region whose pages go to a store can neither be moved nor have snapshots, so far";

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Outside => Self::Outside,
            Refused::Mapped => Self::Mapped,
            Refused::NotMapped => Self::NotMapped,
            Refused::Full => Self::TooManyAreas,
            Refused::Rights => Self::Rights,
            Refused::NoMemory => Self::NoAddressSpace,
            Refused::Swapped => Self::NoSwap(NOT_WITH_SWAP),
            Refused::Incomplete => Self::Incomplete,
            Refused::TooManySnapshots => Self::TooManySnapshots,
            Refused::Kernel(error) => Self::Kernel(error.number()),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let os = |error: &i32| io::Error::from_raw_os_error(*error);
        f.write_str(match self {
            Self::Length => "a region cannot have this length: give at least 1 byte, and less than the address space",
            Self::NoAddressSpace => return no_addresses(f),
            Self::NoUserfaultfd(error @ (libc::EMFILE | libc::ENFILE)) => {
                return write!(
                    f,
                    "no descriptor is left for a region ({}): raise `ulimit -n`, drop regions, or use blocks, which share one",
                    os(error)
                );
            }
            Self::NoUserfaultfd(error) => {
                return write!(
                    f,
                    "no userfaultfd can be had ({}): allow it (`faultless doctor` says how), or use direct delivery",
                    os(error)
                );
            }
            Self::NoFeature => "the kernel's userfaultfd lacks a feature for this delivery mode: use another mode",
            Self::DirectBacking => "with direct or kernel delivery no fault can be filled from a backing: use thread or signal",
            Self::NoThread => {
                let limit = limits::of_addresses().map_or(String::new(), |limit| format!(" or {limit}"));
                return write!(
                    f,
                    "no handler thread can be started: raise `ulimit -u`{limit}, or use signal or kernel delivery"
                );
            }
            Self::Valgrind => {
                "valgrind lets one thread run at a time, so a handler thread would wait for ever: use another delivery mode"
            }
            Self::Choice(what) | Self::NoSnapshots(what) | Self::NoSwap(what) => what,
            Self::TooManySnapshots => "too many snapshots of a region at a time: drop some",
            Self::Incomplete => "the snapshot lost bytes, because no memory was left to keep them: drop it, and take another",
            Self::NoFile => "a device, a FIFO or a socket has this name, and a save would replace it: give another name",
            Self::TooManyRegions => "too many regions with signal delivery: drop some, or use thread delivery",
            Self::SigbusBlocked => {
                "this thread blocks SIGBUS and would be killed at a fault: unblock it, or use thread delivery"
            }
            Self::SigbusTaken => {
                "another handler for SIGBUS was installed: install it while there is no region with signal delivery"
            }
            Self::Outside => "the range is empty, outside the region, or not whole pages: use multiples of 4096",
            Self::Mapped => "something is mapped in the range already: unmap it first",
            Self::NotMapped => {
                "a part of the range is not mapped, or has other attributes than the rest: map it, or use a part"
            }
            Self::Rights => "the range cannot be used like that all over: change its rights by protect",
            Self::TooManyAreas => {
                "too many areas with different attributes: unmap or protect larger parts, or raise the number of areas"
            }
            Self::Lost => "a part of the range was unmapped or moved away by a call that is not the region's: use the rest",
            Self::NoEvents(error) => {
                return write!(
                    f,
                    "no events can be had ({}): use thread delivery, and give the process CAP_SYS_PTRACE for those of fork",
                    os(error)
                );
            }
            Self::Forked => "the region belongs to the parent of this process: make one after the fork",
            Self::Closed => "the region was closed because its faults could not be served: see the message on stderr",
            Self::Ended => "the region ended before the work on it was done: keep it until then",
            Self::Cancelled => "the work was cancelled before it was done: start it again",
            Self::Kernel(error) => return write!(f, "the kernel refused: {}", os(error)),
        })
    }
}

/// Says that the kernel refused addresses, and names the limit, if it is one.
pub(crate) fn no_addresses(f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("the kernel refused the address space: ask for less")?;
    limits::of_addresses().map_or(Ok(()), |limit| write!(f, ", or raise {limit}"))
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error {
            Error::NoAddressSpace | Error::TooManyAreas | Error::Incomplete => io::ErrorKind::OutOfMemory,
            Error::NoUserfaultfd(error @ (libc::EMFILE | libc::ENFILE)) => {
                io::Error::from_raw_os_error(error).kind()
            }
            Error::NoUserfaultfd(_) | Error::NoEvents(_) => io::ErrorKind::PermissionDenied,
            Error::NoFeature => io::ErrorKind::Unsupported,
            Error::Cancelled => io::ErrorKind::Other,
            Error::Kernel(error) => io::Error::from_raw_os_error(error).kind(),
            _ => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}
