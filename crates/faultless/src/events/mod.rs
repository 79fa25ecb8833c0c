//! Events: what the program does to a region's memory without its knowledge, as the kernel tells of it.
//!
//! A thread that forks, unmaps, moves or drops memory of the region waits in the kernel until the message about it
//! was read. It keeps its locks meanwhile: a range of this region, or the allocator's. So one thread reads all
//! messages, and does nothing that could make it wait for such a thread. It takes no lock that is held across a
//! system call, and allocates nothing. It hands faults on to the handlers through pipes. If a pipe is full, the
//! faulting thread is woken and faults again. With a backing the reader is a process apart, which lets go of children
//! also when the program is killed ([`helper_process`]).

mod children;
mod filter;
mod helper_process;
mod moved_ranges;
mod reader;
pub mod remote_fill;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use faultless_base::sys::descriptor::Descriptor;

use crate::error::Error;
use crate::events::reader::Reader;
use crate::events::remote_fill::Files;
use crate::process::descriptors::{End, pipe};
use crate::process::thread::Thread;
use crate::shared::Shared;

/// The reader of a region's messages; it ends with this, after the handlers.
pub struct Events {
    /// Of each handler: where it finds what it is to do.
    pub inboxes: Vec<Arc<Descriptor>>,
    /// For handlers of a backed region.
    pub files: Option<Arc<Files>>,
    _outboxes: Vec<Descriptor>,
    end: End,
    threads: Vec<Thread>,
}

impl Events {
    /// Starts it.
    pub fn start(shared: &Arc<Shared>) -> Result<Self, Error> {
        let pipes = shared.uffds().map(|_| pipe()).collect::<Result<Vec<_>, _>>()?;
        let (inboxes, outboxes): (Vec<_>, Vec<_>) =
            pipes.into_iter().map(|(read, write)| (Arc::new(read), write)).unzip();
        let end = End::new()?;
        let files = Arc::new(Files::default());
        let (started, start) = sync_channel(1);
        let numbers: Vec<_> = outboxes.iter().map(|outbox| outbox.number() as i32).collect();
        let (shared, end_number) = (shared.clone(), end.number());
        let is_backed = shared.memory.backing().is_some();
        let given = files.clone();
        let jobs = move || given.work();
        let work = move || {
            let reader = Reader::new(shared, numbers, end_number).and_then(|reader| {
                // It has the descriptors of the thread that starts it.
                let jobs = is_backed.then(|| Thread::start(c"faultless-files", jobs));
                Ok((reader, jobs.transpose()?))
            });
            match reader {
                Ok((mut reader, jobs)) => {
                    let _ = started.send(Ok(jobs));
                    let shared = reader.shared.clone();
                    // Children have to be let go of also when the program is killed.
                    let mut apart = None;
                    if is_backed {
                        apart = helper_process::run(&mut |starter| reader.run(&shared, Some(starter)));
                    }
                    let here = || catch_unwind(AssertUnwindSafe(|| reader.run(&shared, None))).is_ok();
                    if !apart.unwrap_or_else(here) {
                        shared.close("the reader of events has died");
                        reader.take_over();
                    }
                }
                Err(error) => drop(started.send(Err(error))),
            }
        };
        let reader = Thread::start(c"faultless-events", work)?;
        let jobs: Option<Thread> = start.recv().unwrap_or(Err(Error::NoThread))?;
        let files = is_backed.then_some(files);
        let threads = std::iter::once(reader).chain(jobs).collect();
        Ok(Self { inboxes, files, _outboxes: outboxes, end, threads })
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.end.tell();
        self.files.iter().for_each(|files| files.end());
        self.threads.drain(..).for_each(Thread::join);
    }
}
