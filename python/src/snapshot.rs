//! What blocks held at a moment. Which bytes of it an array had, Python's part says (`_snapshots.py`).

use std::path::PathBuf;

use faultless::region::{Save, Snapshot};
use pyo3::prelude::*;
use pyo3::types::PyByteArray;

use crate::errors::{failed, failed_to_save};
use crate::region::background::Background;
use crate::turns::{PIECE, by_turns};

/// Writes what an array has that needs no snapshot, as `Memories.save` does.
#[pyfunction]
#[pyo3(name = "_save_bytes")]
pub fn save_bytes(py: Python<'_>, path: PathBuf, header: Vec<u8>, data: &[u8]) -> PyResult<()> {
    let mut file = py.detach(|| Save::new().header(header).create(&path)).map_err(failed_to_save)?;
    let mut pieces = data.chunks(PIECE);
    by_turns(py, || match pieces.next() {
        Some(piece) => file.write(piece).map(|()| None).map_err(failed_to_save),
        None => Ok(Some(())),
    })?;
    py.detach(|| file.end()).map_err(failed_to_save)
}

/// A snapshot, and what it keeps alive.
#[pyclass(frozen, weakref, module = "faultless", name = "_Memories")]
pub struct Memories {
    // Ends first.
    pub snapshot: Snapshot,
    pub keeps: Py<PyAny>,
}

#[pymethods]
impl Memories {
    /// Bytes of it.
    fn read<'py>(&self, py: Python<'py>, offset: usize, length: usize) -> PyResult<Bound<'py, PyByteArray>> {
        PyByteArray::new_with(py, length, |bytes| {
            py.detach(|| self.snapshot.read_at(offset, bytes)).map_err(failed)
        })
    }

    /// How many bytes of copies it has.
    #[getter]
    fn held(&self) -> usize {
        self.snapshot.held()
    }

    /// Writes a part of it to a file, behind a header.
    #[pyo3(signature = (path, header, offset, length, rate))]
    fn save(
        slf: Bound<'_, Self>,
        path: PathBuf,
        header: Vec<u8>,
        offset: usize,
        length: usize,
        rate: Option<u64>,
    ) -> PyResult<Background> {
        let save = Save::new().header(header).part(offset..offset.saturating_add(length));
        let save = if let Some(rate) = rate { save.rate(rate) } else { save };
        let snapshot = &slf.get().snapshot;
        let saving = slf.py().detach(|| save.start(snapshot, &path)).map_err(failed_to_save)?;
        Ok(Background::of_save(saving, slf.get().keeps.clone_ref(slf.py())))
    }
}
