//! Forks of Python's are announced.

use std::cell::Cell;

use faultless::file::Fork;
use pyo3::prelude::*;

thread_local! {
    /// The fork that this thread is about to make.
    static FORK: Cell<Option<Fork>> = const { Cell::new(None) };
}

/// Called around forks: a child reads what is mapped, as it was.
#[pyfunction]
#[pyo3(name = "_before_fork")]
pub fn before_fork() {
    FORK.set(Some(faultless::file::before_fork()));
}

#[pyfunction]
#[pyo3(name = "_after_fork_in_parent")]
pub fn after_fork_in_parent() {
    drop(FORK.take());
}

#[pyfunction]
#[pyo3(name = "_after_fork_in_child")]
pub fn after_fork_in_child() {
    if let Some(fork) = FORK.take() {
        fork.in_child();
    }
}
