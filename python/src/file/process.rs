//! What concerns all files of this process, and those that are not open here.

use std::fs;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;

use faultless::file::File as Cached;
use pyo3::prelude::*;

use super::failed;
use crate::errors::Size;

/// A descriptor of the caller's, which stays open.
pub fn borrowed(fd: i32) -> io::Result<ManuallyDrop<fs::File>> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: it is not closed here. Of a number that is no descriptor the kernel says so.
    Ok(ManuallyDrop::new(unsafe { fs::File::from_raw_fd(fd) }))
}

/// Writes back what has changed in all files of this process. No signal ends it: the process may end next.
#[pyfunction]
#[pyo3(name = "_sync_all")]
pub fn sync_all(py: Python<'_>) -> PyResult<()> {
    py.detach(faultless::file::sync_all).map_err(failed)
}

/// Whether that many bytes are no more than half of the memory that there is now.
#[pyfunction]
#[pyo3(name = "_fits")]
pub fn fits(py: Python<'_>, bytes: Size) -> bool {
    py.detach(|| faultless::file::fits(bytes.0))
}

/// Whether the file of a descriptor is open here.
#[pyfunction]
#[pyo3(name = "_is_cached")]
pub fn is_cached(fd: i32) -> PyResult<bool> {
    borrowed(fd).and_then(|file| Cached::is_cached(&file)).map_err(failed)
}
