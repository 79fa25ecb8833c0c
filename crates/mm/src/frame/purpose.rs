//! What memory is taken for, and whether it has to be zero: every place that takes some says so.
//!
//! Only mappings and calloc need zeroes. A caller that overwrites what it takes gets memory with old bytes, and
//! nothing is zeroed for it.

/// Whether memory has to be zero when it is handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It has to be.
    Zero,
    /// The caller will overwrite it.
    Any,
}

/// What memory is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A mapping of the program: it must be zero.
    Map,
    /// A block that must be zero.
    Calloc,
    /// A block that the program will fill.
    Malloc,
    /// The place that pages move to.
    Copy,
    /// The bytes of a file, or what a cache keeps of one: they are read over whatever is there.
    File,
}

impl Purpose {
    /// Of a block.
    pub fn of_block(need: Need) -> Self {
        match need {
            Need::Zero => Self::Calloc,
            Need::Any => Self::Malloc,
        }
    }

    /// Whether it has to be zero.
    pub const fn need(self) -> Need {
        match self {
            Self::Map | Self::Calloc => Need::Zero,
            Self::Malloc | Self::Copy | Self::File => Need::Any,
        }
    }
}
