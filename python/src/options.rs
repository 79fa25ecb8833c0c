//! The choices that a region is made with.

use faultless::region::{Builder, Delivery};
use pyo3::prelude::*;

use crate::errors::{Size, word};

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
        }
    }
}

impl Options {
    /// What Python gives by name.
    pub fn read(
        delivery: &str,
        window: Option<(Size, Size)>,
        huge_pages: bool,
        handlers: Size,
        budget: Option<Size>,
        zeroed: bool,
        events: bool,
    ) -> PyResult<Self> {
        Ok(Self {
            delivery: word(DELIVERIES, delivery, "delivery")?,
            window: window.map(|(first, most)| (first.0, most.0)),
            huge_pages,
            handlers: handlers.0,
            budget: budget.map(|budget| budget.0),
            zeroed,
            events,
        })
    }

    pub fn apply(&self, builder: Builder) -> Builder {
        let builder = builder
            .delivery(self.delivery)
            .huge_pages(self.huge_pages)
            .handlers(self.handlers)
            .zeroed(self.zeroed)
            .events(self.events);
        let builder = self.window.iter().fold(builder, |builder, (first, most)| builder.windows(*first, *most));
        self.budget.into_iter().fold(builder, Builder::budget)
    }

    /// Whether nothing was chosen but whether memory is zeroed.
    pub fn are_defaults(&self) -> bool {
        Self { zeroed: true, ..*self } == Self::default()
    }
}
