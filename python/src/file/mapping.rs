//! Parts of files that stay in memory, with the buffer protocol.

use std::ffi::c_int;
use std::sync::Arc;

use faultless::file::{Mapping as Part, MappingMut};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi::{self, Py_buffer, PyBuffer_FillInfo};
use pyo3::prelude::*;

use super::failed;
use crate::errors::Size;
use crate::snapshot::Memories;
use crate::turns::aside;

/// What it may be used for.
pub enum Kind {
    Read(Part),
    Write(Arc<MappingMut>),
}

/// A part of a file that is in memory, and stays there while this or an array of it lives; of a lazy one pages come when
/// they are touched. It supports the buffer protocol. `File.map` and `memmap` make it.
///
/// What is written there is in the file after `flush`, after `File.sync`, or when nothing of the file is open any more.
///
/// Examples
/// --------
/// >>> import tempfile
/// >>> plain = tempfile.TemporaryFile()
/// >>> file = faultless.File(plain.fileno())
/// >>> file.truncate(8)
/// >>> mapping = file.map(writable=True)
/// >>> memoryview(mapping)[:] = b"12345678"
/// >>> len(mapping)
/// 8
#[pyclass(frozen, weakref, module = "faultless")]
pub struct Mapping(pub Kind);

impl Kind {
    pub fn write(part: MappingMut) -> Self {
        Self::Write(Arc::new(part))
    }
}

impl Mapping {
    fn part(&self) -> &Part {
        match &self.0 {
            Kind::Read(part) => part,
            Kind::Write(part) => part,
        }
    }
}

#[pymethods]
impl Mapping {
    fn __len__(&self) -> usize {
        self.part().len()
    }

    fn __repr__(&self) -> String {
        let rights = if matches!(self.0, Kind::Write(_)) { "rw" } else { "r" };
        format!("Mapping({} bytes, {rights})", self.part().len())
    }

    /// Whether its pages come when they are touched.
    ///
    /// Examples
    /// --------
    /// >>> import tempfile
    /// >>> file = tempfile.TemporaryFile()
    /// >>> _ = file.truncate(4096)
    /// >>> faultless.File(file.fileno()).map().is_lazy
    /// False
    #[getter]
    fn is_lazy(&self) -> bool {
        self.part().is_lazy()
    }

    /// Whether a system call may be given any memory of it. Where not, one that is given a page that is missing fails:
    /// `array.tofile` of an ordinary user's lazy mapping, say.
    ///
    /// Examples
    /// --------
    /// >>> import tempfile
    /// >>> file = tempfile.TemporaryFile()
    /// >>> _ = file.truncate(4096)
    /// >>> faultless.File(file.fileno()).map().serves_system_calls
    /// True
    #[getter]
    fn serves_system_calls(&self) -> bool {
        self.part().serves_system_calls()
    }

    /// Writes it to the file, if it may be written to, and waits until it is durable. Signals are handled meanwhile. An
    /// exception of a handler, such as `KeyboardInterrupt`, ends the wait, and the work goes on.
    ///
    /// Raises
    /// ------
    /// OSError
    ///     It could not be written. It stays in memory, and the next call tries again.
    ///
    /// Examples
    /// --------
    /// >>> import tempfile
    /// >>> plain = tempfile.TemporaryFile()
    /// >>> file = faultless.File(plain.fileno())
    /// >>> file.map().flush()
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        match &self.0 {
            Kind::Read(_) => Ok(()),
            Kind::Write(part) => {
                let part = Arc::clone(part);
                aside(py, part.len() as u64, move || part.sync())?.map_err(failed)
            }
        }
    }

    /// Says how a part will be used, as `File.advise`. A private mapping keeps what was changed with ``"dontneed"``.
    ///
    /// Parameters
    /// ----------
    /// advice : {"normal", "sequential", "random", "willneed", "dontneed", "huge", "nohuge"}
    ///     What it says.
    /// start, stop : int
    ///     In bytes, inside the mapping; to its end unless a stop is given.
    ///
    /// Raises
    /// ------
    /// OSError
    ///     The part is not inside the mapping, or some of it cannot be read.
    /// ValueError
    ///     There is no such advice.
    ///
    /// Examples
    /// --------
    /// >>> import tempfile
    /// >>> file = tempfile.TemporaryFile()
    /// >>> _ = file.truncate(4096)
    /// >>> faultless.File(file.fileno()).map().advise("random")
    #[pyo3(signature = (advice, start = Size(0), stop = None), text_signature = "($self, advice, start=0, stop=None)")]
    fn advise(&self, py: Python<'_>, advice: &str, start: Size, stop: Option<Size>) -> PyResult<()> {
        let advice = super::group::advice(advice)?;
        let part = start.0..stop.map_or(self.part().len(), |stop| stop.0);
        py.detach(|| self.part().advise(part, advice)).map_err(failed)
    }

    fn _snapshot(slf: Bound<'_, Self>) -> PyResult<Memories> {
        let mapping = slf.get();
        let snapshot = slf.py().detach(|| mapping.part().snapshot()).map_err(failed)?;
        Ok(Memories { snapshot, keeps: slf.into_any().unbind() })
    }

    /// # Safety
    /// Called by the interpreter, with a view to fill in.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view"));
        }
        let mapping = slf.get();
        let only_read = matches!(mapping.0, Kind::Read(_)) as c_int;
        let (at, length) = (mapping.part().as_ptr(), mapping.part().len() as ffi::Py_ssize_t);
        // SAFETY: the view is the interpreter's; the memory lives as long as the mapping, which the view keeps alive.
        match unsafe { PyBuffer_FillInfo(view, slf.as_ptr(), at.cast_mut().cast(), length, only_read, flags) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }
}
