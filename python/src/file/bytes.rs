//! What is read, as an object of Python's: its memory is taken once, and a size that cannot be had is a MemoryError.

use std::mem::MaybeUninit;

use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::turns::{LONG, by_turns};

/// An object of this many bytes, of which `read` has as many as it says.
pub fn of(
    py: Python<'_>,
    length: usize,
    read: impl FnOnce(&mut [u8]) -> PyResult<usize>,
) -> PyResult<Bound<'_, PyBytes>> {
    let size = isize::try_from(length).map_err(|_| PyMemoryError::new_err(()))?;
    // SAFETY: Python makes the object, or says that there is no memory. No other code has it before this function ends,
    // so its bytes may change until then.
    let (object, all) = unsafe {
        let object = ffi::PyBytes_FromStringAndSize(std::ptr::null(), size);
        let object = Bound::from_owned_ptr_or_err(py, object)?.cast_into::<PyBytes>()?;
        let at = ffi::PyBytes_AsString(object.as_ptr()).cast::<MaybeUninit<u8>>();
        (object, std::slice::from_raw_parts_mut(at, length))
    };
    let mut pieces = all.chunks_mut(LONG);
    by_turns(py, || match pieces.next() {
        Some(piece) => {
            piece.fill(MaybeUninit::new(0));
            Ok(None)
        }
        None => Ok(Some(())),
    })?;
    // SAFETY: each byte was written.
    let read = read(unsafe { &mut *(std::ptr::from_mut(all) as *mut [u8]) })?;
    // The file may have become shorter meanwhile.
    Ok(if read < length { PyBytes::new(py, &object.as_bytes()[..read]) } else { object })
}
