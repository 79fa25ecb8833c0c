//! The choices that a region is made with.

use faultless::region::{Builder, Delivery, Region, Swap, is_granted};
use pyo3::exceptions::{PyMemoryError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::errors::{Size, failed, word};
use crate::sigbus::User;

pub const DELIVERIES: &[(&str, Delivery)] = &[
    ("best", Delivery::Best),
    ("kernel", Delivery::Kernel),
    ("thread", Delivery::Thread),
    ("signal", Delivery::Signal),
    ("direct", Delivery::Direct),
];

/// The word for a delivery mode.
pub fn name(delivery: Delivery) -> &'static str {
    DELIVERIES.iter().find(|(_, known)| *known == delivery).map_or("", |(word, _)| word)
}

/// As [`Builder`] has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    pub delivery: Delivery,
    pub window: Option<(usize, usize)>,
    pub huge_pages: bool,
    pub handlers: usize,
    pub budget: Option<usize>,
    pub zeroed: bool,
    pub events: bool,
    pub swap: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            delivery: Delivery::Best,
            window: None,
            huge_pages: true,
            handlers: 1,
            budget: None,
            zeroed: true,
            events: false,
            swap: None,
        }
    }
}

impl Options {
    /// What Python gives by name to `who`.
    pub fn read(who: &str, named: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut options = Self::default();
        for (name, value) in named.into_iter().flatten() {
            let name = name.extract::<String>()?;
            if !options.set(&name, &value)? {
                let why = format!("{who} got an unexpected keyword argument '{name}'");
                return Err(PyTypeError::new_err(why));
            }
        }
        Ok(options)
    }

    /// What memory of this length begins with: its options, whether it needs SIGBUS, and that the kernel grants it, as it
    /// does for an array of NumPy's. The names are those of its constructor and of the memory.
    pub fn begin(
        py: Python<'_>,
        [who, what]: [&str; 2],
        length: Size,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<(Self, User)> {
        let options = Self::read(who, named)?;
        if length.0 == 0 {
            return Err(PyValueError::new_err(format!("{what} has at least 1 byte")));
        }
        if !is_granted(length.0) {
            let why = format!("{what} of {} bytes is more than the kernel grants with this much memory", length.0);
            return Err(PyMemoryError::new_err(why));
        }
        let user = User::new(py, options.delivery)?;
        Ok((options, user))
    }

    /// Takes one of them; whether there is such an option.
    pub fn set(&mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.take(name, value).map_err(|error| match error.is_instance_of::<PyTypeError>(value.py()) {
            true => PyTypeError::new_err(format!("argument '{name}': {}", error.value(value.py()))),
            false => error,
        })
    }

    fn take(&mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        match name {
            "delivery" => self.delivery = word(DELIVERIES, value.cast::<PyString>()?.to_str()?, "delivery")?,
            "window" => {
                let window: Option<(Size, Size)> = value.extract()?;
                self.window = window.map(|(first, most)| (first.0, most.0));
            }
            "huge_pages" => self.huge_pages = value.extract()?,
            "handlers" => self.handlers = value.extract::<Size>()?.0,
            "budget" => self.budget = value.extract::<Option<Size>>()?.map(|budget| budget.0),
            "zeroed" => self.zeroed = value.extract()?,
            "events" => self.events = value.extract()?,
            "swap" => self.swap = value.extract::<Option<Size>>()?.map(|swap| swap.0),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether they make sense, for memory that does not need them.
    pub fn check(&self) -> PyResult<()> {
        self.apply(Region::builder(1)).check().map_err(failed)
    }

    pub fn apply(&self, builder: Builder) -> Builder {
        let builder = builder
            .delivery(self.delivery)
            .huge_pages(self.huge_pages)
            .handlers(self.handlers)
            .zeroed(self.zeroed)
            .events(self.events);
        let builder = self.window.iter().fold(builder, |builder, (first, most)| builder.windows(*first, *most));
        let builder = self.swap.into_iter().fold(builder, |builder, budget| builder.swap(Swap::new(budget)));
        self.budget.into_iter().fold(builder, Builder::budget)
    }

    /// Whether nothing was chosen but whether memory is zeroed.
    pub fn are_defaults(&self) -> bool {
        Self { zeroed: true, ..*self } == Self::default()
    }
}
