//! The compiled part of the Python package: regions and blocks with the buffer protocol. `faultless/_faultless.pyi` has the types.

mod arrays;
mod block;
mod counters;
mod errors;
mod file;
mod options;
mod region;
mod sigbus;
mod snapshot;
mod turns;

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

#[pymodule]
fn _faultless(module: &Bound<'_, PyModule>) -> PyResult<()> {
    check_interpreter(module.py())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("RegionError", module.py().get_type::<errors::RegionError>())?;
    module.add_class::<region::background::Background>()?;
    module.add_class::<block::Block>()?;
    module.add_class::<snapshot::Memories>()?;
    module.add_function(wrap_pyfunction!(snapshot::save_bytes, module)?)?;
    module.add_class::<region::Region>()?;
    module.add_class::<file::File>()?;
    module.add_class::<file::group::CacheGroup>()?;
    module.add_class::<file::mapping::Mapping>()?;
    module.add_function(wrap_pyfunction!(file::process::sync_all, module)?)?;
    module.add_function(wrap_pyfunction!(file::fork::before_fork, module)?)?;
    module.add_function(wrap_pyfunction!(file::fork::after_fork_in_parent, module)?)?;
    module.add_function(wrap_pyfunction!(file::fork::after_fork_in_child, module)?)?;
    module.add_function(wrap_pyfunction!(file::process::fits, module)?)?;
    module.add_function(wrap_pyfunction!(file::process::is_cached, module)?)?;
    arrays::add(module)?;
    module.add_function(wrap_pyfunction!(region::background::reserve, module)?)?;
    module.add_function(wrap_pyfunction!(region::background::reserved, module)?)?;
    module.add_function(wrap_pyfunction!(region::background::release_reserved, module)?)?;
    module.add_function(wrap_pyfunction!(block::check_options, module)?)?;
    module.add_function(wrap_pyfunction!(counters::counter, module)?)?;
    module.add_function(wrap_pyfunction!(counters::set_speculative, module)?)?;
    module.add_function(wrap_pyfunction!(sigbus::needs_sigbus, module)?)
}

/// The classes are the process's, and each interpreter needs its own. One that still lives at the end of the program would
/// also wait for ever in its first call that lets the interpreter's lock go: for its exit hook, say.
fn check_interpreter(py: Python<'_>) -> PyResult<()> {
    // SAFETY: this thread runs an interpreter. The first one of a process has the number 0.
    match unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) } {
        0 => Ok(()),
        ..0 => Err(PyErr::fetch(py)),
        _ => Err(PyImportError::new_err("faultless works in the main interpreter alone: import it there")),
    }
}
