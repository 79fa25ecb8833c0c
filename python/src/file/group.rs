//! Files that share a budget, and advice.

use std::io;

use faultless::file::{Advice, CacheGroup as Cached, File};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::process::borrowed;
use crate::errors::Size;

/// Files whose pages in memory are together never more than a budget.
///
/// A read or an access that finds no room lets pages of the group go, or waits for some. What `File.map` keeps counts,
/// too: a mapping that would be more is a `MemoryError`, and so is a read for which mappings leave no room.
///
/// Parameters
/// ----------
/// budget : int
///     In bytes, 2 MiB at least.
///
/// Raises
/// ------
/// ValueError
///     It is less.
///
/// Examples
/// --------
/// >>> import tempfile
/// >>> plain = tempfile.TemporaryFile()
/// >>> group = faultless.CacheGroup(4 << 20)
/// >>> file = faultless.File(plain.fileno(), group=group)
/// >>> file.truncate(16 << 20)
/// >>> len(file.read(0, 16 << 20))
/// 16777216
/// >>> group.used <= group.budget
/// True
#[pyclass(frozen, weakref, module = "faultless")]
pub struct CacheGroup(pub Cached);

#[pymethods]
impl CacheGroup {
    #[new]
    fn new(budget: Size) -> PyResult<Self> {
        Cached::new(budget.0).map(Self).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    fn __repr__(&self) -> String {
        format!("CacheGroup({} of {} bytes)", self.0.used(), self.0.budget())
    }

    /// The budget, in bytes.
    ///
    /// Examples
    /// --------
    /// >>> faultless.CacheGroup(4 << 20).budget
    /// 4194304
    #[getter]
    fn budget(&self) -> usize {
        self.0.budget()
    }

    /// Bytes of it that are in use: pages in memory, and those that are coming.
    ///
    /// Examples
    /// --------
    /// >>> faultless.CacheGroup(4 << 20).used
    /// 0
    #[getter]
    fn used(&self) -> usize {
        self.0.used()
    }

    /// Bytes of it that mappings keep.
    ///
    /// Examples
    /// --------
    /// >>> faultless.CacheGroup(4 << 20).mapped
    /// 0
    #[getter]
    fn mapped(&self) -> usize {
        self.0.mapped()
    }
}

/// The cache of a descriptor, in a group if there is one.
pub fn open(fd: i32, huge_pages: bool, group: Option<Cached>) -> io::Result<File> {
    let file = borrowed(fd)?;
    match (group, huge_pages) {
        (None, true) => File::new(&file),
        (None, false) => File::with_small_pages(&file),
        (Some(group), true) => group.file(&file),
        (Some(group), false) => group.file_with_small_pages(&file),
    }
}

/// Advice by its name.
pub fn advice(name: &str) -> PyResult<Advice> {
    Ok(match name {
        "normal" => Advice::Normal,
        "sequential" => Advice::Sequential,
        "random" => Advice::Random,
        "willneed" => Advice::WillNeed,
        "dontneed" => Advice::DontNeed,
        "huge" => Advice::Huge,
        "nohuge" => Advice::NoHuge,
        _ => return Err(PyValueError::new_err(format!("no such advice: {name}"))),
    })
}
