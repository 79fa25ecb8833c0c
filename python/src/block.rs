//! Blocks: memory of arrays, many of which share a region.

use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use faultless::region::{Block as Memory, Heap};
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi::{self, Py_buffer, PyBuffer_FillInfo};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{Size, failed};
use crate::options::{Options, name};
use crate::sigbus::User;
use crate::snapshot::Memories;
use crate::turns::{self, PAGE};

/// A heap for each set of options that was asked for.
static HEAPS: Mutex<Vec<(Options, &Heap)>> = Mutex::new(Vec::new());

/// The heap of these options. With the interpreter's lock, so that no thread holds that of the list while another one forks.
fn heap(_py: Python<'_>, options: Options) -> &'static Heap {
    let mut heaps = HEAPS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, heap)) = heaps.iter().find(|(known, _)| *known == options) {
        return heap;
    }
    let choose = move |builder| options.apply(builder);
    let heap = if options.are_defaults() { Heap::lasting(choose) } else { Heap::new(choose) };
    heaps.push((options, heap));
    heap
}

/// The memory of one large array: ``array.base``, unless the array is a view.
///
/// Blocks with the same options share a region, and with it handler threads and descriptors. A block supports the buffer protocol,
/// and each buffer keeps it alive. Its memory goes with it.
///
/// Parameters
/// ----------
/// length : int
///     In bytes, at least 1.
/// delivery, window, huge_pages, handlers, budget, zeroed, events, swap
///     As for `Region`.
///
/// Raises
/// ------
/// ValueError
///     An option makes no sense, or the length is 0 or less.
/// MemoryError
///     So much is not to be had.
/// RegionError
///     The kernel does not allow what the options ask for; the message says what to do.
///
/// Examples
/// --------
/// >>> block = faultless.Block(4 << 20)
/// >>> memoryview(block)[5] = 7
/// >>> len(block)
/// 4194304
#[pyclass(frozen, weakref, module = "faultless")]
pub struct Block {
    // Ends first: what follows says that it needs SIGBUS.
    memory: Memory,
    _user: User,
}

#[pymethods]
impl Block {
    #[new]
    #[pyo3(signature = (length, **options),
           text_signature = "(length, *, delivery='best', window=None, huge_pages=True, handlers=1, budget=None, zeroed=True, events=False, swap=None)")]
    fn new(py: Python<'_>, length: Size, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let (options, user) = Options::begin(py, ["Block()", "a block"], length, options)?;
        let heap = heap(py, options);
        let memory = py.detach(|| heap.allocate(length.0)).map_err(failed)?;
        Ok(Self { memory, _user: user })
    }

    fn __len__(&self) -> usize {
        self.memory.len()
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.memory)
    }

    /// How faults are delivered: ``"thread"``, ``"kernel"``, ``"signal"`` or ``"direct"``.
    ///
    /// Examples
    /// --------
    /// >>> faultless.Block(1, delivery="kernel").delivery
    /// 'kernel'
    #[getter]
    fn delivery(&self) -> &'static str {
        name(self.memory.delivery())
    }

    /// Whether system calls may be given memory that was not touched yet; otherwise they fail with EFAULT, and `populate` helps.
    ///
    /// Examples
    /// --------
    /// >>> faultless.Block(1).serves_system_calls
    /// True
    #[getter]
    fn serves_system_calls(&self) -> bool {
        self.memory.serves_system_calls()
    }

    /// The address of the first byte.
    ///
    /// Examples
    /// --------
    /// >>> faultless.Block(1).address % (2 << 20)
    /// 0
    #[getter]
    fn address(&self) -> usize {
        self.memory.as_ptr() as usize
    }

    /// Brings all pages, so that system calls find them in every delivery mode.
    ///
    /// Raises
    /// ------
    /// MemoryError
    ///     There is no memory.
    /// RegionError
    ///     This is a forked child, and the block its parent's.
    ///
    /// Examples
    /// --------
    /// >>> faultless.Block(4 << 20).populate()
    fn populate(&self, py: Python<'_>) -> PyResult<()> {
        let (address, length) = (self.memory.as_ptr() as usize, self.memory.len().next_multiple_of(PAGE));
        turns::populate(py, [address, length], 0..length, |part| self.memory.populate_range(part))
    }

    fn _snapshot(slf: Bound<'_, Self>) -> PyResult<Memories> {
        let block = slf.get();
        let snapshot = slf.py().detach(|| block.memory.snapshot()).map_err(failed)?;
        Ok(Memories { snapshot, keeps: slf.into_any().unbind() })
    }

    /// # Safety
    /// Called by the interpreter, with a view to fill in.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view"));
        }
        let memory = &slf.get().memory;
        memory.check_thread().map_err(failed)?;
        let length = memory.len() as ffi::Py_ssize_t;
        // SAFETY: the view is the interpreter's; the memory lives as long as the block, which the view keeps alive.
        match unsafe { PyBuffer_FillInfo(view, slf.as_ptr(), memory.as_ptr().cast(), length, 0, flags) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }
}

/// Whether options of a function make sense, for an array that may not need them.
#[pyfunction]
#[pyo3(name = "_check_options", signature = (who, /, **options),
       text_signature = "(who, /, *, delivery='best', window=None, huge_pages=True, handlers=1, budget=None, events=False, swap=None)")]
pub fn check_options(who: &str, options: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
    match options.map(|options| options.contains("zeroed")).transpose()? {
        Some(true) => {
            Err(PyTypeError::new_err("an array has no option zeroed: `zeros` is zeroed, and `empty` is not"))
        }
        _ => Options::read(who, options)?.check(),
    }
}
