//! Whether an array is small, by a bound that is cheap. A guess that is wrong costs time, and changes nothing: the array is NumPy's,
//! which is right for all of them.

use pyo3::ffi::{self, PyObject};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use crate::arrays::{First, Makers};

/// As in `_arrays.py`.
const SMALL: usize = 4 << 20;
/// No scalar type has more bytes.
const SCALAR: usize = 32;
/// Bytes of what a text of one or two characters, or of three, may name: `U9`, `U99`.
const SHORT: [usize; 4] = [64, 64, 64, 512];

/// A number of elements, if it is one.
///
/// # Safety
/// The object lives.
unsafe fn number(given: *mut PyObject) -> Option<usize> {
    // SAFETY: by contract; an error that this call makes is taken away.
    unsafe {
        if ffi::PyLong_CheckExact(given) == 0 {
            return None;
        }
        let number = ffi::PyLong_AsSsize_t(given);
        if number == -1 {
            ffi::PyErr_Clear();
        }
        usize::try_from(number).ok()
    }
}

/// How many elements a shape has, if it is a number or a tuple of numbers.
///
/// # Safety
/// The object lives.
unsafe fn elements(shape: *mut PyObject) -> Option<usize> {
    // SAFETY: by contract; items of a tuple live as long as it does.
    unsafe {
        if ffi::PyTuple_CheckExact(shape) == 0 {
            return number(shape);
        }
        (0..ffi::PyTuple_Size(shape))
            .try_fold(1_usize, |all, i| all.checked_mul(number(ffi::PyTuple_GetItem(shape, i))?))
    }
}

/// Bytes of an element at most, where that is known at once.
fn element(dtype: &Bound<'_, PyAny>) -> Option<usize> {
    if dtype.is_instance_of::<PyType>() || dtype.is_none() {
        return Some(SCALAR);
    }
    match dtype.cast::<PyString>() {
        Ok(text) => SHORT.get(text.len().ok()?).copied(),
        // A dtype; anything else has to be asked what it is.
        Err(_) => dtype.getattr(intern!(dtype.py(), "itemsize")).ok()?.extract().ok(),
    }
}

/// Whether an array of these arguments, and of a type that is given by name, is NumPy's own for sure.
pub fn is_small(
    py: Python<'_>,
    first: First,
    makers: &Makers,
    placed: &[*mut PyObject],
    named_dtype: Option<*mut PyObject>,
) -> bool {
    let bytes = || {
        // An argument that is not there is not asked for: making the error takes longer than the array.
        let begins = *placed.get(first.count() - 1).and(placed.first())?;
        let dtype = named_dtype.or_else(|| placed.get(first.count()).copied());
        // SAFETY: arguments live as long as the call.
        let dtype = dtype.map(|dtype| unsafe { Borrowed::from_ptr(py, dtype) });
        if first.is_shape() {
            // SAFETY: the same.
            let elements = unsafe { elements(begins) }?;
            return elements.checked_mul(dtype.as_ref().map_or(Some(SCALAR), |dtype| element(dtype))?);
        }
        // Behind the type there are order and subok, and then a shape.
        if placed.len() > first.count() + 3 {
            return None;
        }
        // SAFETY: the same.
        let prototype = unsafe { Borrowed::from_ptr(py, begins) };
        if !prototype.get_type().is(&makers.ndarray) {
            return Some(0);
        }
        let number = |name| prototype.getattr(name).ok()?.extract::<usize>().ok();
        match dtype.filter(|dtype| !dtype.is_none()) {
            None => number(intern!(py, "nbytes")),
            Some(dtype) => number(intern!(py, "size"))?.checked_mul(element(&dtype)?),
        }
    };
    bytes().is_some_and(|bytes| bytes < SMALL)
}
