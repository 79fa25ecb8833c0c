//! How faults of a region are delivered, and the ladder of permissions.

pub mod follow;
pub mod handler_pool;
pub mod nodes;
pub mod served;
pub mod signal;
pub mod thread;
pub mod watchdog;

use faultless_base::sys::uffd::{Uffd, Way, feature};

use crate::error::Error;

/// How a missing page of a region is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Delivery {
    /// The way that is right everywhere, and fast in second place: [`Delivery::Thread`] if system calls on
    /// untouched memory work with it, else [`Delivery::Kernel`]. It is [`Delivery::Kernel`], too, where there is
    /// no thread or no descriptor for a handler. So it is where the process has a limit of addresses or data
    /// (`ulimit -v`, `-d`), which threads would use up. A region with a backing or events has [`Delivery::Thread`]
    /// in any case.
    #[default]
    Best,
    /// Not at all: memory is brought when it is mapped.
    Direct,
    /// By handler threads, which read a userfaultfd. System calls on untouched memory work, if the kernel delivers
    /// its own faults; see [`Region::serves_system_calls`](crate::region::Region::serves_system_calls).
    Thread,
    /// By SIGBUS, in the thread that faults: faster, and each thread for itself. A system call on untouched memory
    /// fails with EFAULT, and no thread may block SIGBUS while it uses the region.
    Signal,
    /// By the kernel, as for any memory, in huge pages where it has them. Every process may have it, and everything
    /// works with it.
    Kernel,
}

impl Delivery {
    /// Whether missing pages are noticed by the region at all.
    pub(crate) fn raises_faults(self) -> bool {
        matches!(self, Self::Thread | Self::Signal)
    }
}

/// Descriptors for a region, and what they see.
pub struct Opened {
    pub uffds: Vec<Uffd>,
    pub way: Option<Way>,
    /// The kernel lifts the protection of a page by itself at a write, and notes that.
    pub notes_writes: bool,
}

/// Messages about what happens to a region without its knowledge.
const EVENTS: u64 = feature::EVENT_FORK | feature::EVENT_REMAP | feature::EVENT_REMOVE | feature::EVENT_UNMAP;

/// Opens `count` descriptors that send events.
pub fn open_with_events(delivery: Delivery, count: usize) -> Result<(Delivery, Opened), Error> {
    match delivery {
        Delivery::Best | Delivery::Thread if under_valgrind() => Err(Error::Valgrind),
        Delivery::Best | Delivery::Thread => {
            let opened = open_all(feature::THREAD_ID | EVENTS, 0, count)?;
            Ok((Delivery::Thread, opened))
        }
        Delivery::Direct | Delivery::Signal | Delivery::Kernel => Err(Error::NoEvents(libc::EOPNOTSUPP)),
    }
}

/// Opens `count` descriptors for a region that goes to a store; they note writes where the kernel can.
pub fn open_for_swap(count: usize) -> Result<(Delivery, Opened), Error> {
    match under_valgrind() {
        true => Err(Error::Valgrind),
        false => Ok((Delivery::Thread, open_all(feature::THREAD_ID, feature::WP | feature::WP_ASYNC, count)?)),
    }
}

/// Opens `count` descriptors for a delivery mode; the mode that it became.
pub fn open(delivery: Delivery, count: usize) -> Result<(Delivery, Opened), Error> {
    let none = Opened { uffds: Vec::new(), way: None, notes_writes: false };
    let features = match delivery {
        Delivery::Direct | Delivery::Kernel => return Ok((delivery, none)),
        Delivery::Best if under_valgrind() => return Ok((Delivery::Kernel, none)),
        Delivery::Thread if under_valgrind() => return Err(Error::Valgrind),
        Delivery::Best | Delivery::Thread => feature::THREAD_ID,
        Delivery::Signal => feature::SIGBUS,
    };
    match (open_all(features, 0, count), delivery) {
        // Otherwise a system call on memory that was not touched yet would fail, where the kernel's own memory serves
        // it.
        (Ok(opened), Delivery::Best) if opened.way.is_some_and(Way::sees_kernel_faults) => {
            Ok((Delivery::Thread, opened))
        }
        (_, Delivery::Best) => Ok((Delivery::Kernel, none)),
        (opened, _) => Ok((delivery, opened?)),
    }
}

/// Opens a descriptor for the memory of a file, by thread or by signal: one that has `features`, too.
pub fn open_for_file(delivery: Delivery, features: u64) -> Result<(Uffd, Way), Error> {
    let own = match delivery {
        Delivery::Best | Delivery::Thread if under_valgrind() => return Err(Error::Valgrind),
        Delivery::Best | Delivery::Thread => feature::THREAD_ID,
        Delivery::Signal => feature::SIGBUS,
        Delivery::Direct | Delivery::Kernel => return Err(Error::DirectBacking),
    };
    let (uffd, way) = Uffd::open_best().map_err(|error| Error::NoUserfaultfd(error.number()))?;
    uffd.enable(own | features).map_err(|_| Error::NoFeature)?;
    Ok((uffd, way))
}

/// Opens descriptors that have `features`, and those that are `wished` where the kernel has them.
fn open_all(features: u64, wished: u64, count: usize) -> Result<Opened, Error> {
    let (first, way) = Uffd::open_best().map_err(|error| Error::NoUserfaultfd(error.number()))?;
    let more = (1..count).map(|_| Uffd::open(way).map_err(|error| Error::NoUserfaultfd(error.number())));
    let uffds: Vec<_> = std::iter::once(Ok(first)).chain(more).collect::<Result<_, _>>()?;
    let mut notes_writes = wished & feature::WP_ASYNC != 0;
    for uffd in &uffds {
        // Other features than those are for messages, and for memory that is no region's.
        let common = features | feature::MOVE | feature::POISON;
        if wished != 0 && uffd.enable(common | wished).is_ok() {
            continue;
        }
        notes_writes = false;
        if uffd.enable(common).is_err()
            && let Err(error) = uffd.enable(features)
        {
            return Err(if features & EVENTS != 0 { Error::NoEvents(error.number()) } else { Error::NoFeature });
        }
    }
    Ok(Opened { uffds, way: Some(way), notes_writes })
}

/// Whether valgrind runs this process. It lets one thread run at a time, and a thread that faults is one that runs: a
/// handler would never get its turn.
fn under_valgrind() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        /// RUNNING_ON_VALGRIND of valgrind.h, and its five arguments.
        static QUESTION: [usize; 6] = [0x1001, 0, 0, 0, 0, 0];
        let mut answer = 0_usize;
        // SAFETY: a processor turns a register round by 128 bits in all and exchanges another with itself. Valgrind
        // knows this sequence, reads the question, and writes nothing but the answer.
        unsafe {
            core::arch::asm!(
                "rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx",
                in("rax") &raw const QUESTION, inout("rdx") answer, inout("rdi") 0_usize => _,
            );
        }
        answer != 0
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}
