//! What a fault costs that is delivered by userfaultfd, and what moving pages does.

use std::thread;

use faultless_base::sys::linux::Linux;
use faultless_base::sys::uffd::{Event, Uffd, feature};
use faultless_base::sys::{Huge, Sys};
use faultless_base::{PAGE, SLOT};

use super::area::{Area, serve, time};
use super::{Probe, Samples, cpus, errno, sigbus};

/// Pages of which each is a fault.
const PAGES: usize = 64;
const SLOTS: usize = 8;
/// When a fault that was met has not been delivered by then, it never will be.
const PATIENCE_MS: u32 = 1000;

fn open(features: u64) -> Result<Uffd, String> {
    let (uffd, _) = Uffd::open_best().map_err(|e| errno("userfaultfd", e))?;
    uffd.enable(features).map_err(|e| errno("userfaultfd features", e))?;
    Ok(uffd)
}

/// Meets one fault after the other.
fn faults(id: &'static str, area: &Area, samples: &mut Samples) {
    for i in 0..PAGES {
        samples.add(id, time(|| area.write(area.piece(i, PAGE).start)));
    }
}

/// A handler thread reads the descriptor.
pub fn by_thread() -> Result<Probe, String> {
    let uffd = open(0)?;
    let area = Area::new(PAGES * PAGE, Huge::Refused)?;
    area.register(&uffd)?;
    Ok(Box::new(move |samples: &mut Samples| {
        Linux.discard(area.span());
        let all_served = thread::scope(|scope| {
            let handler = thread::Builder::new().spawn_scoped(scope, || {
                cpus::leave_to_others();
                let served = (0..PAGES).all(|_| match uffd.next_event(PATIENCE_MS) {
                    Ok(Some(Event::Fault { address, .. })) => serve(&uffd, address),
                    _ => false,
                });
                if !served {
                    // The waiting thread goes on without us.
                    let _ = uffd.unregister(area.span());
                }
                served
            });
            let handler = handler.map_err(|error| format!("no handler thread: {error}"))?;
            faults("deliver_thread", &area, samples);
            Ok::<_, String>(handler.join().unwrap_or(false))
        })?;
        if all_served { Ok(()) } else { Err("a fault was not delivered to the handler thread".into()) }
    }))
}

/// The thread that meets the fault gets a signal.
pub fn by_signal() -> Result<Probe, String> {
    let uffd = open(feature::SIGBUS)?;
    let area = Area::new(PAGES * PAGE, Huge::Refused)?;
    area.register(&uffd)?;
    Ok(Box::new(move |samples: &mut Samples| {
        Linux.discard(area.span());
        sigbus::serving(&uffd, area.span(), || faults("deliver_signal", &area, samples));
        Ok(())
    }))
}

/// `UFFDIO_MOVE` to and fro, a piece of `piece` bytes in each call.
fn moves(id: &'static str, bytes: usize, piece: usize, huge: Huge) -> Result<Probe, String> {
    let uffd = open(feature::MOVE)?;
    let (here, there) = (Area::new(bytes, huge)?, Area::new(bytes, huge)?);
    if huge == Huge::Advised && !here.has_huge_pages() {
        return Err("the kernel gives no huge pages here".into());
    }
    here.touch(here.span());
    here.register(&uffd)?;
    there.register(&uffd)?;
    Ok(Box::new(move |samples: &mut Samples| {
        for (from, to) in [(&here, &there), (&there, &here)] {
            for i in 0..bytes / piece {
                let mut moved = Ok(());
                let taken = time(|| moved = from.move_to(&uffd, from.piece(i, piece), to, to.piece(i, piece)));
                moved.map_err(|stopped| errno("UFFDIO_MOVE", stopped.error))?;
                samples.add(id, taken);
            }
        }
        Ok(())
    }))
}

/// Single pages.
pub fn move_pages() -> Result<Probe, String> {
    moves("move_page", SLOT / 2, PAGE, Huge::Refused)
}

/// Huge pages.
pub fn move_huge() -> Result<Probe, String> {
    moves("move_huge", SLOTS * SLOT, SLOT, Huge::Advised)
}
