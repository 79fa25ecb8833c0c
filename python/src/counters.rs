//! What all regions of the process share: counters, and the one knob that has a function.

use faultless::region::Region;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// What was counted for all regions of the process.
///
/// Parameters
/// ----------
/// name : str
///     A name of ``faultless stat``.
///
/// Raises
/// ------
/// ValueError
///     There is no such counter.
///
/// Examples
/// --------
/// >>> faultless.counter("region_pgfault") >= 0
/// True
#[pyfunction]
pub fn counter(name: &str) -> PyResult<u64> {
    Region::counted_as(name.as_bytes()).ok_or_else(|| PyValueError::new_err(format!("no counter {name}")))
}

/// Turns speculative faults on or off, for all regions of the process.
///
/// Parameters
/// ----------
/// on : bool
///     They are on at first.
///
/// Examples
/// --------
/// >>> faultless.set_speculative(True)
#[pyfunction]
pub fn set_speculative(on: bool) {
    faultless::region::set_speculative(on);
}
