//! `zeros` and `empty`: small arrays go straight to NumPy, with hardly more than the cost of that. All others are `_arrays.py`'s.
//!
//! Whether an array is small is guessed by a bound that is cheap. A guess that is wrong costs time, and changes nothing: the array is
//! NumPy's, which is right for all of them.

use std::ffi::CStr;
use std::ptr::null_mut;

use pyo3::ffi::{PyObject, PyObject_Call};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCFunction, PyDict, PyInt, PyString, PyTuple, PyType};

/// As in `_arrays.py`.
const SMALL: usize = 4 << 20;
/// No scalar type has more bytes.
const SCALAR: usize = 32;
/// Bytes of what a text of one or two characters, or of three, may name: `U9`, `U99`.
const SHORT: [usize; 4] = [64, 64, 64, 512];

/// A function of NumPy's, and the one that makes large arrays.
struct Makers {
    plain: Py<PyAny>,
    large: Py<PyAny>,
}

static ZEROS: PyOnceLock<Makers> = PyOnceLock::new();
static EMPTY: PyOnceLock<Makers> = PyOnceLock::new();

/// How many elements a shape has, if it is a number or a tuple of numbers.
fn elements(shape: &Bound<'_, PyAny>) -> Option<usize> {
    if shape.is_exact_instance_of::<PyInt>() {
        return shape.extract().ok();
    }
    let numbers = shape.cast_exact::<PyTuple>().ok()?;
    let number = |n: Bound<'_, PyAny>| if n.is_exact_instance_of::<PyInt>() { n.extract().ok() } else { None };
    numbers.iter().try_fold(1_usize, |all, n| all.checked_mul(number(n)?))
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

/// Whether an array of these arguments is small for sure.
fn is_small(args: &Bound<'_, PyTuple>, named: Option<&Bound<'_, PyDict>>) -> Option<bool> {
    // An argument that is not there is not asked for: making the error takes longer than the array.
    if args.is_empty() {
        // Without anything NumPy says what is missing.
        return Some(named.is_none_or(|named| named.is_empty()));
    }
    let dtype = match named.filter(|named| !named.is_empty()) {
        None if args.len() > 1 => args.get_item(1).ok(),
        None => None,
        // Nothing but the type: the rest may be options.
        Some(named) if named.len() == 1 && args.len() == 1 => {
            Some(named.get_item(intern!(args.py(), "dtype")).ok()??)
        }
        Some(_) => return None,
    };
    let element = dtype.map_or(Some(SCALAR), |dtype| element(&dtype))?;
    Some(elements(&args.get_item(0).ok()?)?.checked_mul(element)? < SMALL)
}

/// Who makes an array of these arguments.
fn maker(
    makers: &'static PyOnceLock<Makers>,
    name: &CStr,
    args: &Bound<'_, PyTuple>,
    named: Option<&Bound<'_, PyDict>>,
) -> PyResult<&'static Py<PyAny>> {
    let py = args.py();
    let makers = makers.get_or_try_init(py, || {
        let name = &*name.to_string_lossy();
        let plain = py.import("numpy")?.getattr(name)?.unbind();
        let large = py.import("faultless._arrays")?.getattr(name)?.unbind();
        PyResult::Ok(Makers { plain, large })
    })?;
    Ok(if is_small(args, named) == Some(true) { &makers.plain } else { &makers.large })
}

/// Has an array made. The arguments go on as they came: to take them apart and put them together again would cost a third of a small
/// array.
///
/// # Safety
/// Called by the interpreter, with a tuple, and a dictionary or null.
unsafe fn make(
    makers: &'static PyOnceLock<Makers>,
    name: &CStr,
    args: *mut PyObject,
    named: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: by contract.
    unsafe {
        let py = Python::assume_attached();
        let tuple = Bound::from_borrowed_ptr(py, args).cast_into_unchecked::<PyTuple>();
        let dict = Bound::from_borrowed_ptr_or_opt(py, named).map(|named| named.cast_into_unchecked::<PyDict>());
        match maker(makers, name, &tuple, dict.as_ref()) {
            Ok(maker) => PyObject_Call(maker.as_ptr(), args, named),
            Err(error) => {
                error.restore(py);
                null_mut()
            }
        }
    }
}

unsafe extern "C" fn zeros(_module: *mut PyObject, args: *mut PyObject, named: *mut PyObject) -> *mut PyObject {
    // SAFETY: the interpreter's.
    unsafe { make(&ZEROS, c"zeros", args, named) }
}

unsafe extern "C" fn empty(_module: *mut PyObject, args: *mut PyObject, named: *mut PyObject) -> *mut PyObject {
    // SAFETY: the interpreter's.
    unsafe { make(&EMPTY, c"empty", args, named) }
}

const ZEROS_DOC: &CStr = c"zeros(shape, dtype=None, order='C', **options)
--

An array of zeroes, as `numpy.zeros`.

Parameters
----------
shape, dtype, order
    As for `numpy.zeros`.
delivery, window, huge_pages, handlers, budget, events
    How the memory of a large array is brought, as for `Region`. Arrays below 4 MiB do not need it.

Raises
------
TypeError, ValueError, MemoryError
    As `numpy.zeros`, or an option makes no sense.
RegionError
    The kernel does not allow what the options ask for; the message says what to do.

Examples
--------
>>> faultless.zeros((2, 3), dtype=\"i4\")
array([[0, 0, 0],
       [0, 0, 0]], dtype=int32)
";

const EMPTY_DOC: &CStr = c"empty(shape, dtype=None, order='C', **options)
--

An array of any content, as `numpy.empty`: zeroes, or old bytes of this process.

Parameters
----------
shape, dtype, order
    As for `numpy.empty`.
delivery, window, huge_pages, handlers, budget, events
    How the memory of a large array is brought, as for `Region`. Arrays below 4 MiB do not need it.

Raises
------
TypeError, ValueError, MemoryError, RegionError
    As `zeros`.

Examples
--------
>>> faultless.empty((2, 3)).shape
(2, 3)
";

/// Adds both to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add_function(PyCFunction::new_with_keywords(py, zeros, c"zeros", ZEROS_DOC, Some(module))?)?;
    module.add_function(PyCFunction::new_with_keywords(py, empty, c"empty", EMPTY_DOC, Some(module))?)
}
