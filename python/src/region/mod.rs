//! Regions: each for itself, with the buffer protocol.

pub mod background;

use std::ffi::c_int;
use std::ops::{Deref, Range};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faultless::region::{Advice, Region as Memory, Rights};
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi::{self, Py_buffer, PyBuffer_FillInfo};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::errors::{Size, failed, word};
use crate::options::{Options, name};
use crate::sigbus::User;
use crate::turns::{self, PAGE};
use background::Background;

const RIGHTS: &[(&str, Rights)] = &[("none", Rights::None), ("r", Rights::Read), ("rw", Rights::Write)];
const ADVICE: &[(&str, Advice)] = &[
    ("normal", Advice::Normal),
    ("random", Advice::Random),
    ("huge", Advice::Huge),
    ("nohuge", Advice::NoHuge),
    ("dontneed", Advice::DontNeed),
];

/// A region that is not closed, or is in use by a call.
struct Open {
    // Ends first: what follows says that it needs SIGBUS.
    memory: Memory,
    _user: User,
}

impl Deref for Open {
    type Target = Memory;
    fn deref(&self) -> &Memory {
        &self.memory
    }
}

/// What changes of a region. A thread that holds it has the interpreter's lock, too, and keeps that: so a fork of
/// Python's never leaves it held in the child.
struct State {
    /// None: it is closed.
    memory: Option<Arc<Open>>,
    /// Buffers that there are, and those of them that may be written to.
    buffers: usize,
    writable: usize,
}

/// Memory of its own, the missing pages of which the library brings itself. It supports the buffer protocol; each buffer keeps it
/// alive. `numpy.frombuffer(region)` is an array of it.
///
/// Parameters
/// ----------
/// length : int
///     In bytes, at least 1.
/// delivery : {"best", "thread", "kernel", "signal", "direct"}
///     How a missing page is noticed. ``"thread"``: a handler thread brings windows that grow. ``"kernel"``: by the kernel, as for any
///     memory, with huge pages. ``"signal"``: by SIGBUS in the thread that faults, which is faster. **A system call on a page that was
///     not touched yet fails with EFAULT** then (`readinto`, `numpy.save`, `socket.send`): call `populate` before. ``"direct"``: all of
///     it is brought at once. ``"best"`` is ``"thread"`` if system calls work with it, and else ``"kernel"``. They do for root, and
///     for a user who may open ``/dev/userfaultfd``.
/// window : (int, int), optional
///     Bytes that a fault brings at first and at most, while faults follow each other: 4096 or more, the smaller one first.
/// huge_pages : bool
///     Whether large windows are made of huge pages.
/// handlers : int
///     Threads of ``"thread"``, or descriptors of ``"signal"``: 1 to 16. More count as 16.
/// budget : int, optional
///     Bytes beyond what was asked for: made ready beforehand, and brought by a fault. 64 MiB beforehand unless it is given.
///     With ``"kernel"`` a budget or a largest window below 2 MiB means small pages.
/// zeroed : bool
///     Whether memory is zero at first. If not, it may have old bytes of this process.
/// events : bool
///     Whether the kernel tells the region what the program does to its memory by other calls. It takes root.
/// swap : int, optional
///     Bytes that are in memory at most: 4 MiB or more. Other pages go to a file, and come back when they are touched. The file has no
///     name, and is in ``TMPDIR``. Arrays with the same options share these bytes. It takes ``"thread"``, with system calls that work.
///
/// Raises
/// ------
/// ValueError
///     An option makes no sense, or the length is 0 or less.
/// MemoryError
///     So much is not to be had, or is more than the kernel grants to an array (``vm.overcommit_memory``).
/// RegionError
///     The kernel does not allow what the options ask for; the message says what to do.
///
/// Examples
/// --------
/// >>> with faultless.Region(1 << 20) as region:
/// ...     view = memoryview(region)
/// ...     view[12345] = 1
/// ...     view.release()
#[pyclass(frozen, weakref, module = "faultless")]
pub struct Region(Mutex<State>);

impl Region {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its memory, for one call: another thread that closes the region meanwhile does not take it away.
    fn memory(&self) -> PyResult<Arc<Open>> {
        self.state().memory.clone().ok_or_else(|| PyValueError::new_err("the region is closed"))
    }

    /// A part of it; to the end unless a stop is given.
    fn part(memory: &Memory, start: Size, stop: Option<Size>) -> Range<usize> {
        start.0..stop.map_or(memory.len().next_multiple_of(PAGE), |stop| stop.0)
    }
}

#[pymethods]
impl Region {
    #[new]
    #[pyo3(signature = (length, **options),
           text_signature = "(length, *, delivery='best', window=None, huge_pages=True, handlers=1, budget=None, zeroed=True, events=False, swap=None)")]
    fn new(py: Python<'_>, length: Size, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let (options, user) = Options::begin(py, ["Region()", "a region"], length, options)?;
        let memory = py.detach(|| options.apply(Memory::builder(length.0)).build()).map_err(failed)?;
        let open = Open { memory, _user: user };
        Ok(Self(Mutex::new(State { memory: Some(Arc::new(open)), buffers: 0, writable: 0 })))
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(self.memory()?.len())
    }

    fn __repr__(&self) -> String {
        self.memory().map_or_else(|_| "Region(closed)".into(), |open| format!("{:?}", open.memory))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    /// Ends the region and its threads; its memory is gone. A closed region stays so, and all but this and `closed` is an error then.
    /// ``numpy.ndarray(buffer=region)`` does not say that it has a buffer: use `numpy.frombuffer`, which does.
    ///
    /// Raises
    /// ------
    /// BufferError
    ///     There is a buffer of it: an array or a memoryview, which would lose its memory.
    ///
    /// Examples
    /// --------
    /// >>> region = faultless.Region(1 << 20)
    /// >>> region.close()
    /// >>> region.closed
    /// True
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let memory = {
            let mut state = self.state();
            if state.buffers > 0 {
                return Err(PyBufferError::new_err(
                    "the region has buffers: drop arrays and release views of it first",
                ));
            }
            state.memory.take()
        };
        py.detach(|| drop(memory));
        Ok(())
    }

    /// Whether it is closed.
    ///
    /// Examples
    /// --------
    /// >>> faultless.Region(1).closed
    /// False
    #[getter]
    fn closed(&self) -> bool {
        self.state().memory.is_none()
    }

    /// How faults are delivered: what ``"best"`` has become.
    ///
    /// Examples
    /// --------
    /// >>> faultless.Region(1, delivery="direct").delivery
    /// 'direct'
    #[getter]
    fn delivery(&self) -> PyResult<&'static str> {
        Ok(name(self.memory()?.delivery()))
    }

    /// Whether system calls may be given memory that was not touched yet; otherwise they fail with EFAULT, and `populate` helps.
    ///
    /// Examples
    /// --------
    /// >>> faultless.Region(1).serves_system_calls
    /// True
    #[getter]
    fn serves_system_calls(&self) -> PyResult<bool> {
        Ok(self.memory()?.serves_system_calls())
    }

    /// The address of the first byte.
    ///
    /// Examples
    /// --------
    /// >>> faultless.Region(1).address % 4096
    /// 0
    #[getter]
    fn address(&self) -> PyResult<usize> {
        Ok(self.memory()?.as_ptr() as usize)
    }

    /// How many bytes of it are there.
    ///
    /// Examples
    /// --------
    /// >>> faultless.Region(2 << 20, delivery="direct").present
    /// 2097152
    #[getter]
    fn present(&self) -> PyResult<usize> {
        Ok(self.memory()?.present())
    }

    /// What was counted for this region alone.
    ///
    /// Parameters
    /// ----------
    /// name : str
    ///     ``region_pgfault``, ``region_pages``, ``region_window_hits``, ``region_window_misses``, ``region_prefaulted``,
    ///     ``region_unused``, ``region_fault_ns`` …, as ``faultless stat`` has them.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     There is no such counter of a region.
    ///
    /// Examples
    /// --------
    /// >>> faultless.Region(1).counter("region_pgfault")
    /// 0
    fn counter(&self, name: &str) -> PyResult<u64> {
        let counted = self.memory()?.own_count_as(name.as_bytes());
        counted.ok_or_else(|| PyValueError::new_err(format!("no counter {name} of a region")))
    }

    /// Brings all pages of a part, so that system calls find them in every delivery mode.
    ///
    /// Parameters
    /// ----------
    /// start, stop : int
    ///     In bytes, whole pages of 4096; all of it unless they are given.
    ///
    /// Raises
    /// ------
    /// MemoryError
    ///     There is no memory.
    /// RegionError
    ///     The part is not inside the region, not whole pages, or without any rights.
    ///
    /// Examples
    /// --------
    /// >>> region = faultless.Region(4 << 20)
    /// >>> region.populate(0, 1 << 20)
    #[pyo3(signature = (start = Size(0), stop = None), text_signature = "($self, start=0, stop=None)")]
    fn populate(&self, py: Python<'_>, start: Size, stop: Option<Size>) -> PyResult<()> {
        let memory = self.memory()?;
        let (address, length) = (memory.as_ptr() as usize, memory.len().next_multiple_of(PAGE));
        let part = Self::part(&memory, start, stop);
        turns::populate(py, [address, length], part, |part| memory.populate(part))
    }

    /// The same in the background.
    ///
    /// Parameters
    /// ----------
    /// start, stop : int
    ///     In bytes, whole pages of 4096; all of it unless they are given.
    ///
    /// Returns
    /// -------
    /// Background
    ///     The work, which keeps the region alive. `close` ends it with an error.
    ///
    /// Raises
    /// ------
    /// RegionError
    ///     The part is not inside the region or not whole pages, or no thread can be started.
    ///
    /// Examples
    /// --------
    /// >>> faultless.Region(4 << 20).populate_in_background().wait()
    /// 4194304
    #[pyo3(signature = (start = Size(0), stop = None), text_signature = "($self, start=0, stop=None)")]
    fn populate_in_background(slf: Bound<'_, Self>, start: Size, stop: Option<Size>) -> PyResult<Background> {
        let memory = slf.get().memory()?;
        let work = memory.populate_in_background(Self::part(&memory, start, stop)).map_err(failed)?;
        Ok(Background::new(work, Some(slf.unbind().into_any())))
    }

    /// Takes advice about a part.
    ///
    /// Parameters
    /// ----------
    /// start, stop : int
    ///     In bytes, whole pages of 4096.
    /// advice : {"normal", "random", "huge", "nohuge", "dontneed"}
    ///     ``"dontneed"`` drops what is there: it is zero again, also in arrays of it.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     There is no such advice.
    /// RegionError
    ///     The part is not inside the region or not whole pages.
    ///
    /// Examples
    /// --------
    /// >>> region = faultless.Region(4 << 20)
    /// >>> region.advise(0, 4 << 20, "random")
    fn advise(&self, py: Python<'_>, start: Size, stop: Size, advice: &str) -> PyResult<()> {
        let advice = word(ADVICE, advice, "advice")?;
        let memory = self.memory()?;
        py.detach(|| memory.advise(start.0..stop.0, advice)).map_err(failed)
    }

    /// Changes what a part may be used for.
    ///
    /// Parameters
    /// ----------
    /// start, stop : int
    ///     In bytes, whole pages of 4096.
    /// rights : {"none", "r", "rw"}
    ///     New buffers are read-only if a part of the region is.
    ///
    /// Raises
    /// ------
    /// BufferError
    ///     A buffer of the region may be used for more than that.
    /// ValueError
    ///     There are no such rights.
    /// RegionError
    ///     The part is not inside the region or not whole pages.
    ///
    /// Examples
    /// --------
    /// >>> region = faultless.Region(4 << 20)
    /// >>> region.protect(0, 4096, "r")
    /// >>> memoryview(region).readonly
    /// True
    fn protect(&self, start: Size, stop: Size, rights: &str) -> PyResult<()> {
        let rights = word(RIGHTS, rights, "rights")?;
        // No buffer is given out meanwhile. What this waits for needs no interpreter.
        let state = self.state();
        let memory = state.memory.as_ref().ok_or_else(|| PyValueError::new_err("the region is closed"))?;
        let in_use = match rights {
            Rights::None => state.buffers,
            Rights::Read => state.writable,
            Rights::Write => 0,
        };
        if in_use > 0 {
            let why = "buffers of the region may be used for more: drop arrays and release views of it first";
            return Err(PyBufferError::new_err(why));
        }
        memory.protect(start.0..stop.0, rights).map_err(failed)
    }

    /// # Safety
    /// Called by the interpreter, with a view to fill in.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view"));
        }
        let mut state = slf.get().state();
        let Some(memory) = &state.memory else { return Err(PyValueError::new_err("the region is closed")) };
        memory.check(Rights::Read).map_err(failed)?;
        let length = memory.len() as ffi::Py_ssize_t;
        let only_read = memory.check(Rights::Write).is_err();
        // SAFETY: the view is the interpreter's; the memory lives as long as the region, which the view keeps alive, and is not closed
        // while there are buffers.
        match unsafe {
            PyBuffer_FillInfo(view, slf.as_ptr(), memory.as_ptr().cast(), length, only_read as c_int, flags)
        } {
            0 => {
                state.buffers += 1;
                state.writable += usize::from(!only_read);
                Ok(())
            }
            _ => Err(PyErr::fetch(slf.py())),
        }
    }

    /// # Safety
    /// Called by the interpreter, with a view that was filled in above.
    unsafe fn __releasebuffer__(&self, view: *mut Py_buffer) {
        let mut state = self.state();
        state.buffers -= 1;
        // SAFETY: by contract.
        state.writable -= usize::from(unsafe { (*view).readonly } == 0);
    }
}
