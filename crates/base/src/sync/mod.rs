//! Locks that need neither an allocation nor a destructor, and the atomic types that the engine uses.
//!
//! With the feature `loom` or `shuttle` all of them are that checker's, so that the crate `faultless-models` checks
//! the very code that is shipped.

/// A constructor that is `const`, except with loom, whose atomic types have none that is.
macro_rules! const_unless_loom {
    ($(#[$meta:meta])* pub fn $name:ident $($rest:tt)*) => {
        #[cfg(not(feature = "loom"))]
        $(#[$meta])*
        pub const fn $name $($rest)*
        #[cfg(feature = "loom")]
        $(#[$meta])*
        pub fn $name $($rest)*
    };
}

use core::ops::Deref;

use atomic::{AtomicU32, AtomicUsize};

/// Whether a checker runs the code. That takes longer the more there is to look at.
pub const CHECKED: bool = cfg!(feature = "model");

mod epoch;
mod guarded;
mod late;
mod lock;
#[cfg(feature = "model")]
mod model;
pub mod per_cpu;
mod presence;
mod range;
#[cfg(not(feature = "model"))]
mod real;
mod starter;
mod try_lock;

pub use epoch::{Epoch, Pinned};
pub use late::Late;
pub use lock::{Guard, Lock};
#[cfg(feature = "model")]
pub use model::{Futex, Table, Words, atomic, pause, words};
pub use presence::{Found, Presence};
pub use range::{Access, PLACES as RANGE_PLACES, RangeGuard, RangeLock};
#[cfg(not(feature = "model"))]
pub use real::{Futex, Table, Words, atomic, pause, words};
pub use starter::Starter;
pub use try_lock::{TryGuard, TryLock};

impl Deref for Futex {
    type Target = AtomicU32;
    fn deref(&self) -> &AtomicU32 {
        &self.word
    }
}

impl Deref for Words {
    type Target = [AtomicUsize];
    fn deref(&self) -> &[AtomicUsize] {
        &self.0
    }
}
