//! The functions that make arrays: small ones go straight to NumPy, at hardly more than NumPy's cost. All others are
//! `_arrays.py`'s.
//!
//! The interpreter gives arguments as an array (`METH_FASTCALL`), and they go on like that, so that no tuple and no dictionary is made.
//! Options are read here and left out. Whether an array is small is `small.rs`'s to say.

mod small;

use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyType};

use crate::options::Options;
use small::is_small;

unsafe extern "C" {
    // In the limited API from 3.12 on; 3.11 has the same function.
    fn PyObject_Vectorcall(
        callable: *mut PyObject,
        args: *const *mut PyObject,
        count: usize,
        names: *mut PyObject,
    ) -> *mut PyObject;
}

/// What a function takes first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum First {
    Shape,
    /// A shape and what to fill it with.
    ShapeAndValue,
    Prototype,
    PrototypeAndValue,
}

impl First {
    /// How many arguments that are, after which the type comes.
    pub fn count(self) -> usize {
        match self {
            Self::Shape | Self::Prototype => 1,
            Self::ShapeAndValue | Self::PrototypeAndValue => 2,
        }
    }

    pub fn is_shape(self) -> bool {
        matches!(self, Self::Shape | Self::ShapeAndValue)
    }
}

struct Function {
    name: &'static CStr,
    first: First,
    doc: &'static CStr,
    /// Null until they are known. Without a lock, which a fork could leave held.
    makers: AtomicPtr<Makers>,
}

/// Who makes arrays.
pub struct Makers {
    /// NumPy's function of the same name.
    plain: Py<PyAny>,
    /// The one for arrays that may be large.
    large: Py<PyAny>,
    /// NumPy's class of arrays.
    pub ndarray: Py<PyType>,
}

/// Most arguments of a function of NumPy's that go on from here: the others are `_arrays.py`'s.
const MOST: usize = 5;

/// What is left of the arguments by name without the options.
#[derive(Default)]
struct Left {
    names: [*mut PyObject; MOST],
    values: [*mut PyObject; MOST],
    count: usize,
    dtype: Option<*mut PyObject>,
}

impl Left {
    /// Reads the options among `named`. `None` where an argument is not known here.
    ///
    /// # Safety
    /// As many names in the tuple as there are arguments.
    unsafe fn of(
        py: Python<'_>,
        named: &[*mut PyObject],
        names: *mut PyObject,
        options: &mut Options,
    ) -> PyResult<Option<Self>> {
        let mut left = Self::default();
        for (i, value) in named.iter().enumerate() {
            // SAFETY: by contract; names of arguments are strings.
            let (name, text) = unsafe {
                let name = ffi::PyTuple_GetItem(names, i as ffi::Py_ssize_t);
                (name, Borrowed::from_ptr(py, name).cast_unchecked::<PyString>())
            };
            match text.to_str()? {
                "zeroed" => return Ok(None),
                known @ ("dtype" | "order" | "subok") if left.count < MOST => {
                    if known == "dtype" {
                        left.dtype = Some(*value);
                    }
                    (left.names[left.count], left.values[left.count]) = (name, *value);
                    left.count += 1;
                }
                // SAFETY: values live as long as the call.
                option => match options.set(option, &*unsafe { Borrowed::from_ptr(py, *value) })? {
                    true => {}
                    false => return Ok(None),
                },
            }
        }
        Ok(Some(left))
    }

    /// The tuple of names, as a call wants it.
    fn names(&self, py: Python<'_>) -> PyResult<Option<Py<PyTuple>>> {
        if self.count == 0 {
            return Ok(None);
        }
        // SAFETY: of a tuple that lives as long as the call.
        let names = self.names[..self.count].iter().map(|name| unsafe { Borrowed::from_ptr(py, *name) });
        Ok(Some(PyTuple::new(py, names)?.unbind()))
    }
}

impl Function {
    fn makers(&self, py: Python<'_>) -> PyResult<&Makers> {
        // SAFETY: null, or never freed.
        if let Some(known) = unsafe { self.makers.load(Ordering::Acquire).as_ref() } {
            return Ok(known);
        }
        let name = &*self.name.to_string_lossy();
        let numpy = py.import("numpy")?;
        let plain = numpy.getattr(name)?.unbind();
        let arrays = py.import("faultless._arrays")?;
        arrays.setattr("numpy", &numpy)?;
        let large = arrays.getattr(name)?.unbind();
        let makers = Makers { plain, large, ndarray: numpy.getattr("ndarray")?.cast_into()?.unbind() };
        // Where two threads come here, both find the same, and one is used no more.
        let makers = Box::leak(Box::new(makers));
        self.makers.store(makers, Ordering::Release);
        Ok(makers)
    }

    /// Has an array made.
    ///
    /// # Safety
    /// Arguments as the interpreter gives them.
    unsafe fn make(
        &self,
        py: Python<'_>,
        args: *const *mut PyObject,
        count: usize,
        names: *mut PyObject,
    ) -> PyResult<*mut PyObject> {
        let makers = self.makers(py)?;
        // SAFETY: what was given goes on as it came.
        let pass_on = |maker: &Py<PyAny>| unsafe { PyObject_Vectorcall(maker.as_ptr(), args, count, names) };
        // SAFETY: by contract: a tuple or null, and behind the arguments by place as many as there are names.
        let (placed, named) = unsafe {
            let named = if names.is_null() { 0 } else { ffi::PyTuple_Size(names) as usize };
            let all = if args.is_null() { &[] } else { std::slice::from_raw_parts(args, count + named) };
            all.split_at(count)
        };
        if placed.is_empty() && named.is_empty() {
            // It says what is missing.
            return Ok(pass_on(&makers.plain));
        }
        let mut options = Options::default();
        // SAFETY: by contract.
        let Some(left) = (unsafe { Left::of(py, named, names, &mut options) })? else {
            return Ok(pass_on(&makers.large));
        };
        if placed.len() > MOST || !is_small(py, self.first, makers, placed, left.dtype) {
            return Ok(pass_on(&makers.large));
        }
        if left.count == named.len() {
            return Ok(pass_on(&makers.plain));
        }
        options.check()?;
        let mut values = [null_mut(); 2 * MOST];
        values[..count].copy_from_slice(placed);
        values[count..count + left.count].copy_from_slice(&left.values[..left.count]);
        let names = left.names(py)?;
        let names = names.as_ref().map_or(null_mut(), Py::as_ptr);
        // SAFETY: arguments that live as long as the call; the names belong to the last ones.
        Ok(unsafe { PyObject_Vectorcall(makers.plain.as_ptr(), values.as_ptr(), count, names) })
    }
}

/// What the interpreter calls.
unsafe extern "C" fn entry<const N: usize>(
    _module: *mut PyObject,
    args: *const *mut PyObject,
    count: ffi::Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: the interpreter calls, with arguments of its own.
    unsafe {
        let py = Python::assume_attached();
        FUNCTIONS[N].make(py, args, count as usize, names).unwrap_or_else(|error| {
            error.restore(py);
            null_mut()
        })
    }
}

/// Adds all of them to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    add_one::<0>(module)?;
    add_one::<1>(module)?;
    add_one::<2>(module)?;
    add_one::<3>(module)?;
    add_one::<4>(module)?;
    add_one::<5>(module)?;
    add_one::<6>(module)?;
    add_one::<7>(module)
}

fn add_one<const N: usize>(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let Function { name, doc, .. } = &FUNCTIONS[N];
    // It lives as long as the function, which may be for ever.
    let method = Box::leak(Box::new(ffi::PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: entry::<N> },
        ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
        ml_doc: doc.as_ptr(),
    }));
    let name = &*name.to_string_lossy();
    // SAFETY: a method that stays, a module, and its name; the answer is a new reference or an error.
    let function = unsafe {
        let function = ffi::PyCFunction_NewEx(method, module.as_ptr(), module.name()?.as_ptr());
        Bound::from_owned_ptr_or_err(module.py(), function)?
    };
    module.add(name, function)
}

/// The help text of a function: its parameters before the options, what it raises, and an example.
macro_rules! doc {
    ($signature:literal, $says:literal, $parameters:literal, $as:literal, $raises:literal, $example:literal) => {
        match CStr::from_bytes_with_nul(
            concat!(
                $signature,
                "\n--\n\n",
                $says,
                "\n\nParameters\n----------\n",
                $parameters,
                "\n    ",
                $as,
                "\ndelivery, window, huge_pages, handlers, budget, events, swap\n    ",
                "How the memory of a large array is brought, as for `Region`. Arrays below 4 MiB do not need it.\n\n",
                "Raises\n------\n",
                $raises,
                "\n\nExamples\n--------\n",
                $example,
                "\n\0"
            )
            .as_bytes(),
        ) {
            Ok(text) => text,
            Err(_) => panic!("a text without zeroes"),
        }
    };
}

const fn function(name: &'static CStr, first: First, doc: &'static CStr) -> Function {
    Function { name, first, doc, makers: AtomicPtr::new(null_mut()) }
}

static FUNCTIONS: [Function; 8] = [
    function(
        c"zeros",
        First::Shape,
        doc!(
            "zeros(shape, dtype=None, order='C', **options)",
            "An array of zeroes, as `numpy.zeros`.",
            "shape, dtype, order",
            "As for `numpy.zeros`.",
            "TypeError, ValueError, MemoryError\n    As `numpy.zeros`, or an option makes no sense.\n\
             RegionError\n    The kernel does not allow what the options ask for; the message says what to do.",
            ">>> faultless.zeros((2, 3), dtype=\"i4\")\narray([[0, 0, 0],\n       [0, 0, 0]], dtype=int32)"
        ),
    ),
    function(
        c"empty",
        First::Shape,
        doc!(
            "empty(shape, dtype=None, order='C', **options)",
            "An array of any content, as `numpy.empty`: zeroes, or old bytes of this process.",
            "shape, dtype, order",
            "As for `numpy.empty`.",
            "TypeError, ValueError, MemoryError, RegionError\n    As `zeros`.",
            ">>> faultless.empty((2, 3)).shape\n(2, 3)"
        ),
    ),
    function(
        c"ones",
        First::Shape,
        doc!(
            "ones(shape, dtype=None, order='C', **options)",
            "An array of ones, as `numpy.ones`.",
            "shape, dtype, order",
            "As for `numpy.ones`.",
            "TypeError, ValueError, MemoryError, RegionError\n    As `zeros`.",
            ">>> faultless.ones(3)\narray([1., 1., 1.])"
        ),
    ),
    function(
        c"full",
        First::ShapeAndValue,
        doc!(
            "full(shape, fill_value, dtype=None, order='C', **options)",
            "An array of one value, as `numpy.full`.",
            "shape, fill_value, dtype, order",
            "As for `numpy.full`.",
            "TypeError, ValueError, MemoryError, RegionError\n    As `zeros`.",
            ">>> faultless.full((2, 2), 7)\narray([[7, 7],\n       [7, 7]])"
        ),
    ),
    function(
        c"zeros_like",
        First::Prototype,
        doc!(
            "zeros_like(prototype, dtype=None, order='K', subok=True, shape=None, **options)",
            "An array of zeroes with the shape, type and order of another, as `numpy.zeros_like`.",
            "prototype, dtype, order, subok, shape",
            "As for `numpy.zeros_like`. Arrays like anything but a plain array (a subclass, a list) are NumPy's own.",
            "TypeError, ValueError, MemoryError, RegionError\n    As `zeros`.",
            ">>> faultless.zeros_like(faultless.ones(3))\narray([0., 0., 0.])"
        ),
    ),
    function(
        c"empty_like",
        First::Prototype,
        doc!(
            "empty_like(prototype, dtype=None, order='K', subok=True, shape=None, **options)",
            "An array of any content with the shape, type and order of another, as `numpy.empty_like`.",
            "prototype, dtype, order, subok, shape",
            "As for `zeros_like`.",
            "TypeError, ValueError, MemoryError, RegionError\n    As `zeros`.",
            ">>> faultless.empty_like(faultless.ones((2, 3)), dtype=bool).shape\n(2, 3)"
        ),
    ),
    function(
        c"ones_like",
        First::Prototype,
        doc!(
            "ones_like(prototype, dtype=None, order='K', subok=True, shape=None, **options)",
            "An array of ones with the shape, type and order of another, as `numpy.ones_like`.",
            "prototype, dtype, order, subok, shape",
            "As for `zeros_like`.",
            "TypeError, ValueError, MemoryError, RegionError\n    As `zeros`.",
            ">>> faultless.ones_like(faultless.zeros(3, dtype=int))\narray([1, 1, 1])"
        ),
    ),
    function(
        c"full_like",
        First::PrototypeAndValue,
        doc!(
            "full_like(prototype, fill_value, dtype=None, order='K', subok=True, shape=None, **options)",
            "An array of one value with the shape, type and order of another, as `numpy.full_like`.",
            "prototype, fill_value, dtype, order, subok, shape",
            "As for `numpy.full_like`, and `zeros_like`.",
            "TypeError, ValueError, MemoryError, RegionError\n    As `zeros`.",
            ">>> faultless.full_like(faultless.zeros(3), 7)\narray([7., 7., 7.])"
        ),
    ),
];
