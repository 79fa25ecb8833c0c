//! How faults of a region are delivered, and the ladder of permissions.

use faultless_base::sys::uffd::{Uffd, Way, feature};

use super::error::Error;

/// How a missing page of a region is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Delivery {
    /// By a thread if the kernel allows that, else not at all.
    #[default]
    Best,
    /// Not at all: memory is brought when it is mapped.
    Direct,
    /// By handler threads, which read a userfaultfd. System calls on untouched memory work, if the kernel delivers its own
    /// faults; see [`super::Region::serves_system_calls`].
    Thread,
    /// By SIGBUS, in the thread that faults: faster, and each thread for itself. A system call on untouched memory fails
    /// with EFAULT, and no thread may block SIGBUS while it uses the region.
    Signal,
}

/// Descriptors for a region, and what they see.
pub struct Opened {
    pub uffds: Vec<Uffd>,
    pub way: Option<Way>,
}

/// Messages about what happens to a region without its knowledge.
const EVENTS: u64 = feature::EVENT_FORK | feature::EVENT_REMAP | feature::EVENT_REMOVE | feature::EVENT_UNMAP;

/// Opens `count` descriptors that send events.
pub fn open_with_events(delivery: Delivery, count: usize) -> Result<(Delivery, Opened), Error> {
    match delivery {
        Delivery::Best | Delivery::Thread => {
            let opened = open_all(feature::THREAD_ID | EVENTS, count)?;
            Ok((Delivery::Thread, opened))
        }
        Delivery::Direct | Delivery::Signal => Err(Error::NoEvents(libc::EOPNOTSUPP)),
    }
}

/// Opens `count` descriptors for a delivery mode; the mode that it became.
pub fn open(delivery: Delivery, count: usize) -> Result<(Delivery, Opened), Error> {
    let none = Opened { uffds: Vec::new(), way: None };
    let features = match delivery {
        Delivery::Direct => return Ok((delivery, none)),
        Delivery::Best | Delivery::Thread => feature::THREAD_ID,
        Delivery::Signal => feature::SIGBUS,
    };
    match (open_all(features, count), delivery) {
        (Ok(opened), Delivery::Best) => Ok((Delivery::Thread, opened)),
        (Err(_), Delivery::Best) => Ok((Delivery::Direct, none)),
        (opened, _) => Ok((delivery, opened?)),
    }
}

fn open_all(features: u64, count: usize) -> Result<Opened, Error> {
    let (first, way) = Uffd::open_best().map_err(Error::NoUserfaultfd)?;
    let more = (1..count).map(|_| Uffd::open(way).map_err(Error::NoUserfaultfd));
    let uffds: Vec<_> = std::iter::once(Ok(first)).chain(more).collect::<Result<_, _>>()?;
    for uffd in &uffds {
        // What more there is to have is for messages, and for memory that is no region's.
        let wished = features | feature::MOVE | feature::POISON;
        if uffd.enable(wished).is_err()
            && let Err(error) = uffd.enable(features)
        {
            return Err(if features & EVENTS != 0 { Error::NoEvents(error) } else { Error::NoFeature });
        }
    }
    Ok(Opened { uffds, way: Some(way) })
}
