//! The compiled part of the Python package: regions with the buffer protocol. `faultless/_faultless.pyi` has the types.

use std::ffi::c_int;

use faultless::region::{Advice, Delivery, Error, Region as Memory, Rights};
use pyo3::create_exception;
use pyo3::exceptions::{PyBufferError, PyOSError, PyValueError};
use pyo3::ffi::{self, Py_buffer, PyBuffer_FillInfo};
use pyo3::prelude::*;

create_exception!(
    _faultless,
    RegionError,
    PyOSError,
    "A region cannot be made or changed; the message says what to do."
);

fn failed(error: Error) -> PyErr {
    RegionError::new_err(error.to_string())
}

fn word<T: Copy>(words: &[(&str, T)], given: &str, what: &str) -> PyResult<T> {
    let found = words.iter().find(|(word, _)| *word == given);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let all: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        PyValueError::new_err(format!("{what} is one of {}, not {given}", all.join(", ")))
    })
}

const DELIVERIES: &[(&str, Delivery)] = &[
    ("best", Delivery::Best),
    ("direct", Delivery::Direct),
    ("thread", Delivery::Thread),
    ("signal", Delivery::Signal),
];
const RIGHTS: &[(&str, Rights)] = &[("none", Rights::None), ("r", Rights::Read), ("rw", Rights::Write)];
const ADVICE: &[(&str, Advice)] = &[
    ("normal", Advice::Normal),
    ("random", Advice::Random),
    ("huge", Advice::Huge),
    ("nohuge", Advice::NoHuge),
    ("dontneed", Advice::DontNeed),
];

/// Memory that is being made ready in the background, or is.
#[pyclass(frozen, module = "faultless")]
struct Background(faultless::Background);

#[pymethods]
impl Background {
    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }

    /// How many bytes it is to be in the end.
    #[getter]
    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// How many bytes were made ready so far.
    #[getter]
    fn ready(&self) -> usize {
        self.0.ready()
    }

    /// Whether no more will be.
    #[getter]
    fn done(&self) -> bool {
        self.0.is_done()
    }

    /// Helps until all is ready, or no more is to be had; how many bytes are ready then.
    fn wait(&self, py: Python<'_>) -> PyResult<usize> {
        py.detach(|| self.0.wait()).map_err(failed)
    }

    /// Ends it; what is ready stays so.
    fn cancel(&self, py: Python<'_>) {
        py.detach(|| self.0.cancel());
    }
}

/// Makes memory ready in the background for faults of regions to take, in huge pages.
#[pyfunction]
fn reserve(bytes: usize) -> PyResult<Background> {
    faultless::reserve(bytes).map(Background).map_err(failed)
}

/// How many bytes are ready for regions to take.
#[pyfunction]
fn reserved() -> usize {
    faultless::reserved()
}

/// Gives them back to the system; how many bytes that were.
#[pyfunction]
fn release_reserved(py: Python<'_>) -> usize {
    py.detach(faultless::release_reserved)
}

/// A region of memory. It supports the buffer protocol; each buffer keeps it alive.
#[pyclass(frozen, module = "faultless")]
struct Region(Memory);

#[pymethods]
impl Region {
    #[new]
    #[pyo3(signature = (length, *, delivery = "best", window = None, huge_pages = true, handlers = 1, budget = None, zeroed = true, events = false))]
    #[expect(clippy::too_many_arguments, reason = "Python gives them by name")]
    fn new(
        length: usize,
        delivery: &str,
        window: Option<(usize, usize)>,
        huge_pages: bool,
        handlers: usize,
        budget: Option<usize>,
        zeroed: bool,
        events: bool,
    ) -> PyResult<Self> {
        let mut builder = Memory::builder(length)
            .delivery(word(DELIVERIES, delivery, "delivery")?)
            .huge_pages(huge_pages)
            .handlers(handlers)
            .zeroed(zeroed)
            .events(events);
        if let Some((first, most)) = window {
            builder = builder.windows(first, most);
        }
        if let Some(budget) = budget {
            builder = builder.budget(budget);
        }
        builder.build().map(Self).map_err(failed)
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }

    /// How faults are delivered.
    #[getter]
    fn delivery(&self) -> &'static str {
        DELIVERIES.iter().find(|(_, delivery)| *delivery == self.0.delivery()).map_or("", |(word, _)| word)
    }

    /// Whether system calls may be given memory that was not touched yet.
    #[getter]
    fn serves_system_calls(&self) -> bool {
        self.0.serves_system_calls()
    }

    /// The address of the first byte.
    #[getter]
    fn address(&self) -> usize {
        self.0.as_ptr() as usize
    }

    /// How many bytes of it are there.
    #[getter]
    fn present(&self) -> usize {
        self.0.present()
    }

    /// What was counted for this region alone, by name.
    fn counter(&self, name: &str) -> PyResult<u64> {
        let counted = self.0.own_count_as(name.as_bytes());
        counted.ok_or_else(|| PyValueError::new_err(format!("no counter {name} of a region")))
    }

    /// Brings all pages of a part.
    #[pyo3(signature = (start = 0, stop = None))]
    fn populate(&self, py: Python<'_>, start: usize, stop: Option<usize>) -> PyResult<()> {
        let stop = stop.unwrap_or(self.0.len().next_multiple_of(4096));
        py.detach(|| self.0.populate(start..stop)).map_err(failed)
    }

    /// The same in the background.
    #[pyo3(signature = (start = 0, stop = None))]
    fn populate_in_background(&self, start: usize, stop: Option<usize>) -> PyResult<Background> {
        let stop = stop.unwrap_or(self.0.len().next_multiple_of(4096));
        self.0.populate_in_background(start..stop).map(Background).map_err(failed)
    }

    /// Takes advice about a part.
    fn advise(&self, py: Python<'_>, start: usize, stop: usize, advice: &str) -> PyResult<()> {
        let advice = word(ADVICE, advice, "advice")?;
        py.detach(|| self.0.advise(start..stop, advice)).map_err(failed)
    }

    /// Changes what a part may be used for.
    fn protect(&self, py: Python<'_>, start: usize, stop: usize, rights: &str) -> PyResult<()> {
        let rights = word(RIGHTS, rights, "rights")?;
        py.detach(|| self.0.protect(start..stop, rights)).map_err(failed)
    }

    /// # Safety
    /// Called by the interpreter, with a view to fill in.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view"));
        }
        let memory = &slf.get().0;
        memory.check(Rights::Read).map_err(failed)?;
        let length = memory.len() as ffi::Py_ssize_t;
        let only_read = memory.check(Rights::Write).is_err() as c_int;
        // SAFETY: the view is the interpreter's; the memory lives as long as the region, which the view keeps alive.
        match unsafe { PyBuffer_FillInfo(view, slf.as_ptr(), memory.as_ptr().cast(), length, only_read, flags) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }
}

/// What was counted for all regions of the process, by name.
#[pyfunction]
fn counter(name: &str) -> PyResult<u64> {
    Memory::counted_as(name.as_bytes()).ok_or_else(|| PyValueError::new_err(format!("no counter {name}")))
}

/// Turns speculative faults on or off.
#[pyfunction]
fn set_speculative(on: bool) {
    faultless::region::set_speculative(on);
}

#[pymodule]
fn _faultless(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Region>()?;
    module.add_class::<Background>()?;
    module.add_function(wrap_pyfunction!(reserve, module)?)?;
    module.add_function(wrap_pyfunction!(reserved, module)?)?;
    module.add_function(wrap_pyfunction!(release_reserved, module)?)?;
    module.add("RegionError", module.py().get_type::<RegionError>())?;
    module.add_function(wrap_pyfunction!(counter, module)?)?;
    module.add_function(wrap_pyfunction!(set_speculative, module)?)
}
