//! Buffers of others.

use std::ffi::c_int;

use pyo3::ffi::{self, Py_buffer};
use pyo3::prelude::*;

/// The bytes of a buffer without gaps, until this is dropped, with the interpreter's lock.
pub struct View<'py>(Box<Py_buffer>, Python<'py>);

impl<'py> View<'py> {
    pub fn of(object: &Bound<'py, PyAny>, flags: c_int) -> PyResult<Self> {
        let mut view = Box::new(Py_buffer::new());
        // SAFETY: an object, and a view to fill in, which stays where it is.
        match unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &mut *view, flags) } {
            0 => Ok(Self(view, object.py())),
            _ => Err(PyErr::fetch(object.py())),
        }
    }

    /// Where it is, and how many bytes. There may be no address where there are none.
    pub fn bytes(&self) -> (usize, usize) {
        let address = if self.0.buf.is_null() { 1 } else { self.0.buf as usize };
        (address, self.0.len as usize)
    }
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        let _ = self.1;
        // SAFETY: filled in by `of`.
        unsafe { ffi::PyBuffer_Release(&mut *self.0) };
    }
}
