//! Calls on files that may take long. Signals are handled meanwhile, so that Ctrl-C ends them.

use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use faultless::file::File as Cached;
use pyo3::prelude::*;

use super::failed;
use super::mapping::Kind;
use crate::turns::{LONG, aside, by_turns};

/// Reads bytes from `offset` on. How many: fewer than asked for only at the end of the file.
pub fn read(py: Python<'_>, file: &Cached, bytes: &mut [u8], offset: usize) -> PyResult<usize> {
    let mut done = 0;
    by_turns(py, || {
        let end = bytes.len().min(done + LONG);
        while done < end {
            match file
                .read_at(&mut bytes[done..end], (offset as u64).saturating_add(done as u64))
                .map_err(failed)?
            {
                0 => return Ok(Some(done)),
                read => done += read,
            }
        }
        Ok((done == bytes.len()).then_some(done))
    })
}

/// Writes all bytes from `offset` on.
pub fn write(py: Python<'_>, file: &Cached, bytes: &[u8], offset: usize) -> PyResult<usize> {
    let write = || {
        let mut done = 0;
        while done < bytes.len() {
            done += file.write_at(&bytes[done..], (offset + done) as u64)?;
        }
        io::Result::Ok(done)
    };
    py.detach(write).map_err(failed)
}

/// Maps a part. All of it comes before, unless its pages come later.
pub fn map(
    py: Python<'_>,
    file: &Cached,
    part: Range<u64>,
    (writable, lazy, private): (bool, bool, bool),
) -> PyResult<Kind> {
    let length = part.end.saturating_sub(part.start) as usize;
    let map = || match (writable, lazy) {
        _ if private => file.map_private(part.start, length).map(Kind::write),
        (true, true) => file.map_lazy_mut(part.start, length).map(Kind::write),
        (true, false) => file.map_mut(part.start, length).map(Kind::write),
        (false, true) => file.map_lazy(part.start, length).map(Kind::Read),
        (false, false) => file.map(part.start, length).map(Kind::Read),
    };
    let is_refused = writable && !file.is_writable();
    if private || lazy || is_refused {
        return py.detach(map).map_err(failed);
    }
    let mut held = Vec::new();
    // A part that is not inside the file is an error before anything comes.
    if part.end <= file.len() && part.end.saturating_sub(part.start) > LONG as u64 {
        let mut at = part.start;
        by_turns(py, || {
            let next = (at + 1).next_multiple_of(LONG as u64).min(part.end);
            held.push(file.map(at, (next - at) as usize).map_err(failed)?);
            at = next;
            Ok((at == part.end).then_some(()))
        })?;
    }
    py.detach(move || {
        let mapped = map();
        drop(held);
        mapped
    })
    .map_err(failed)
}

/// Brings parts into memory.
pub fn prefetch(
    py: Python<'_>,
    file: Arc<Cached>,
    parts: Vec<Range<u64>>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<usize> {
    if let Some(progress) = progress {
        return prefetch_with(py, &file, &parts, progress);
    }
    let bytes = parts.iter().fold(0_u64, |sum, part| sum.saturating_add(part.end.saturating_sub(part.start)));
    aside(py, bytes, move || file.prefetch(&parts))?.map_err(failed)
}

/// The same, by pieces, between which `progress` is called with the bytes that are done, and signals are handled.
fn prefetch_with(
    py: Python<'_>,
    file: &Cached,
    parts: &[Range<u64>],
    progress: &Bound<'_, PyAny>,
) -> PyResult<usize> {
    let progress = progress.clone().unbind();
    let mut raised = None;
    let brought = py.detach(|| {
        file.prefetch_with(parts, |done| {
            let tell = |py: Python<'_>| progress.call1(py, (done,)).and_then(|_| py.check_signals());
            Python::attach(tell).map_or_else(
                |error| {
                    raised = Some(error);
                    ControlFlow::Break(io::ErrorKind::Interrupted.into())
                },
                |()| ControlFlow::Continue(()),
            )
        })
    });
    raised.map_or_else(|| brought.map_err(failed), Err)
}

/// Writes a part back.
pub fn sync(py: Python<'_>, file: Arc<Cached>, part: Range<u64>) -> PyResult<()> {
    let bytes = part.end.min(file.len()).saturating_sub(part.start);
    aside(py, bytes, move || file.sync_range(part.clone()))?.map_err(failed)
}
