//! What goes wrong, as Python says it.

use faultless::region::Error;
use pyo3::create_exception;
use pyo3::exceptions::{PyMemoryError, PyOSError, PyOverflowError, PyValueError};
use pyo3::prelude::*;

create_exception!(
    faultless,
    RegionError,
    PyOSError,
    "A region cannot be made or changed; the message says what to do, and ``errno`` what the kernel said, if it was the kernel.

Examples
--------
>>> try:
...     faultless.Region(1 << 20).advise(1, 4096, \"dontneed\")
... except faultless.RegionError as error:
...     print(error)
the range is empty, outside the region, or not whole pages: use multiples of 4096"
);

/// The exception for an error: Python's own where it has one.
pub fn failed(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::Choice(_) => PyValueError::new_err(text),
        Error::Length | Error::NoAddressSpace | Error::Kernel(libc::ENOMEM) => PyMemoryError::new_err(text),
        Error::Kernel(errno) | Error::NoUserfaultfd(errno) | Error::NoEvents(errno) => {
            RegionError::new_err((errno, text))
        }
        _ => RegionError::new_err(text),
    }
}

/// The same of what is saved to a file. What the kernel says of the file is Python's own error, as `open` has it:
/// FileNotFoundError, PermissionError and so on.
pub fn failed_to_save(error: Error) -> PyErr {
    match error {
        Error::Kernel(libc::ENOMEM) => failed(error),
        Error::Kernel(errno) => PyOSError::new_err((errno, error.to_string())),
        _ => failed(error),
    }
}

/// What a word stands for.
pub fn word<T: Copy>(words: &[(&str, T)], given: &str, what: &str) -> PyResult<T> {
    let found = words.iter().find(|(word, _)| *word == given);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let all: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        PyValueError::new_err(format!("{what} is one of {}, not {given}", all.join(", ")))
    })
}

/// A number of bytes or of things, which is not negative. One that is too large for the machine is as large as can be.
#[derive(Clone, Copy)]
pub struct Size(pub usize);

impl<'a, 'py> FromPyObject<'a, 'py> for Size {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        match given.extract::<usize>() {
            Ok(size) => Ok(Self(size)),
            Err(error) if error.is_instance_of::<PyOverflowError>(given.py()) => match given.lt(0)? {
                true => Err(PyValueError::new_err(format!("{} is negative", given.str()?))),
                false => Ok(Self(usize::MAX)),
            },
            Err(error) => Err(error),
        }
    }
}
