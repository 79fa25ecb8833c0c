//! Work that goes on in the background.

use faultless::region::Error;
use pyo3::prelude::*;

use crate::errors::{Size, failed, failed_to_save};
use crate::turns::{TURN, by_turns};

/// Work in the background: memory that is being made ready (`reserve`, `Region.populate_in_background`), or a snapshot
/// that is being saved (`save`).
///
/// It keeps what it works on alive. When it is dropped itself, the work goes on.
///
/// Examples
/// --------
/// >>> work = faultless.Region(8 << 20).populate_in_background()
/// >>> work.wait() == work.ready == work.bytes
/// True
#[pyclass(frozen, weakref, module = "faultless")]
pub struct Background {
    work: faultless::Background,
    /// What it works on.
    _keeps: Option<Py<PyAny>>,
    /// The exception for its error.
    failed: fn(Error) -> PyErr,
}

impl Background {
    pub fn new(work: faultless::Background, keeps: Option<Py<PyAny>>) -> Self {
        Self { work, _keeps: keeps, failed }
    }

    pub fn of_save(work: faultless::Background, keeps: Py<PyAny>) -> Self {
        Self { work, _keeps: Some(keeps), failed: failed_to_save }
    }
}

#[pymethods]
impl Background {
    fn __repr__(&self) -> String {
        format!("{:?}", self.work)
    }

    /// How many bytes it is to be in the end, in whole units of 2 MiB.
    ///
    /// Examples
    /// --------
    /// >>> faultless.reserve(1).bytes
    /// 2097152
    #[getter]
    fn bytes(&self) -> usize {
        self.work.bytes()
    }

    /// How many bytes were made ready so far.
    ///
    /// Examples
    /// --------
    /// >>> work = faultless.reserve(2 << 20)
    /// >>> 0 <= work.ready <= work.bytes
    /// True
    #[getter]
    fn ready(&self) -> usize {
        self.work.ready()
    }

    /// Whether no more will be made ready: all is, or it was ended, or no more is to be had.
    ///
    /// Examples
    /// --------
    /// >>> work = faultless.reserve(2 << 20)
    /// >>> work.cancel()
    /// >>> work.done
    /// True
    #[getter]
    fn done(&self) -> bool {
        self.work.is_done()
    }

    /// Helps until all is ready, or no more is to be had. Signals are handled meanwhile. An exception of a handler, such as
    /// `KeyboardInterrupt`, ends the wait, and the work goes on.
    ///
    /// Returns
    /// -------
    /// int
    ///     How many bytes are ready.
    ///
    /// Raises
    /// ------
    /// RegionError
    ///     The work was cancelled, the region was closed meanwhile, or this is a forked child.
    /// MemoryError
    ///     There is no memory.
    /// OSError
    ///     The file of `save` cannot be written: FileNotFoundError, PermissionError and so on, as of Python's `open`.
    ///
    /// Examples
    /// --------
    /// >>> faultless.Region(4 << 20).populate_in_background().wait()
    /// 4194304
    fn wait(&self, py: Python<'_>) -> PyResult<usize> {
        by_turns(py, || self.work.wait_timeout(TURN).map_err(self.failed))
    }

    /// Ends it, and waits for the step under way. What is ready stays so. `wait` is a `RegionError` then, unless the
    /// last step had begun.
    ///
    /// Examples
    /// --------
    /// >>> work = faultless.Region(64 << 20).populate_in_background()
    /// >>> work.cancel()
    /// >>> work.done
    /// True
    fn cancel(&self, py: Python<'_>) {
        py.detach(|| self.work.cancel());
    }
}

/// Makes memory ready in the background for faults of regions to take, in huge pages.
///
/// Parameters
/// ----------
/// bytes : int
///     How much, in addition to what is ready already; rounded up to 2 MiB.
///
/// Returns
/// -------
/// Background
///     The work. It ends early where no huge page is to be had any more.
///
/// Raises
/// ------
/// ValueError
///     ``bytes`` is negative.
/// MemoryError
///     The kernel refuses the address space.
/// RegionError
///     No thread can be started.
///
/// Examples
/// --------
/// >>> work = faultless.reserve(4 << 20)
/// >>> work.wait() <= 4 << 20
/// True
/// >>> released = faultless.release_reserved()
#[pyfunction]
pub fn reserve(bytes: Size) -> PyResult<Background> {
    faultless::reserve(bytes.0).map(|work| Background::new(work, None)).map_err(failed)
}

/// How many bytes are ready for regions to take, and were not taken.
///
/// Examples
/// --------
/// >>> _ = faultless.release_reserved()
/// >>> faultless.reserved()
/// 0
#[pyfunction]
pub fn reserved() -> usize {
    faultless::reserved()
}

/// Gives what is ready and was not taken back to the system, and what was kept of memory with old bytes.
///
/// Returns
/// -------
/// int
///     How many bytes that were.
///
/// Examples
/// --------
/// >>> _ = faultless.reserve(2 << 20).wait()
/// >>> faultless.release_reserved() % (2 << 20)
/// 0
#[pyfunction]
pub fn release_reserved(py: Python<'_>) -> usize {
    py.detach(faultless::release_reserved)
}
