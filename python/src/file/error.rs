//! Errors of files, as Python knows them, and parts of files.

use std::io;

use faultless::file::File as Cached;
use pyo3::exceptions::{PyMemoryError, PyOSError};
use pyo3::prelude::*;

use crate::errors::Size;

/// An error with its number, by which Python knows what it is.
pub fn failed(error: io::Error) -> PyErr {
    match error.raw_os_error() {
        Some(libc::ENOMEM) => PyMemoryError::new_err(error.to_string()),
        Some(number) => PyOSError::new_err((number, error.to_string())),
        None => PyOSError::new_err(error.to_string()),
    }
}

/// The bytes from `start` to `stop`, or to the end of the file.
pub fn part(file: &Cached, start: Size, stop: Option<Size>) -> std::ops::Range<u64> {
    start.0 as u64..stop.map_or(file.len(), |stop| stop.0 as u64)
}
