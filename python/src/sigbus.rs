//! The owner of SIGBUS. While there is a region with signal delivery, a handler that Python installs would take its
//! faults away, and the next fault would end the process. `faultless/_sigbus.py` refuses that.

use std::sync::atomic::{AtomicUsize, Ordering};

use faultless::region::Delivery;
use pyo3::prelude::*;

/// What there is in this process that needs SIGBUS.
static USERS: AtomicUsize = AtomicUsize::new(0);

/// Something that may need SIGBUS, until it is dropped.
pub struct User(bool);

impl User {
    /// For memory that is delivered like this. From now on Python's own ways to SIGBUS are watched.
    pub fn new(py: Python<'_>, delivery: Delivery) -> PyResult<Self> {
        let needs = delivery == Delivery::Signal;
        if needs {
            py.import("faultless._sigbus")?.call_method0("watch")?;
            USERS.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Self(needs))
    }
}

impl Drop for User {
    fn drop(&mut self) {
        if self.0 {
            USERS.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Whether some memory needs SIGBUS now.
#[pyfunction]
#[pyo3(name = "_needs_sigbus")]
pub fn needs_sigbus() -> bool {
    USERS.load(Ordering::Relaxed) > 0
}
