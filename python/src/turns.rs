//! Long work without the interpreter's lock, by turns. Signals are handled between them, so that Ctrl-C ends it. Work
//! that cannot end between turns goes on aside.

use std::ops::Range;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use faultless::region::Error;
use pyo3::prelude::*;

use crate::errors::failed;

/// How long a turn is, but for the piece of work that is under way then.
pub const TURN: Duration = Duration::from_millis(50);

pub const PAGE: usize = 4096;

/// Bytes of a piece.
pub const PIECE: usize = 2 << 20;

/// Does pieces of work until one of them has an answer, an error, or a signal handler raises an exception.
pub fn by_turns<T: Send>(py: Python<'_>, mut piece: impl FnMut() -> PyResult<Option<T>> + Send) -> PyResult<T> {
    loop {
        let turn = || {
            let begun = Instant::now();
            loop {
                match piece() {
                    Ok(None) if begun.elapsed() < TURN => {}
                    other => return other,
                }
            }
        };
        match py.detach(turn)? {
            Some(answer) => return Ok(answer),
            None => py.check_signals()?,
        }
    }
}

/// Bytes on which one call works without a look at signals, at most.
pub const LONG: usize = 32 << 20;

/// Does work on this many bytes. Where they are many, another thread does it: an exception of a signal handler ends the
/// wait here, and the work goes on.
pub fn aside<T: Send + 'static>(
    py: Python<'_>,
    bytes: u64,
    work: impl Fn() -> T + Clone + Send + 'static,
) -> PyResult<T> {
    if bytes <= LONG as u64 {
        return Ok(py.detach(work));
    }
    let (tells, told) = mpsc::channel();
    let task = work.clone();
    let begun = faultless::aside(move || {
        let answer = task();
        // What it used is dropped before the wait ends.
        drop(task);
        // No one may wait any more.
        let _ = tells.send(answer);
    });
    if begun.is_err() {
        return Ok(py.detach(work));
    }
    drop(work);
    by_turns(py, move || match told.recv_timeout(TURN) {
        Ok(answer) => Ok(Some(answer)),
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => panic!("work aside has panicked"),
    })
}

/// Populates a part of memory of `length` bytes at an address.
pub fn populate(
    py: Python<'_>,
    [address, length]: [usize; 2],
    part: Range<usize>,
    populate: impl Fn(Range<usize>) -> Result<(), Error> + Sync,
) -> PyResult<()> {
    if part.is_empty() || part.end > length || part.start % PAGE != 0 || part.end % PAGE != 0 {
        // It says what is wrong with that, before anything is brought.
        return py.detach(|| populate(part)).map_err(failed);
    }
    let mut at = part.start;
    by_turns(py, || {
        let next = (address + at + 1).next_multiple_of(PIECE) - address;
        let stop = next.min(part.end);
        populate(at..stop).map_err(failed)?;
        at = stop;
        Ok((at == part.end).then_some(()))
    })
}
