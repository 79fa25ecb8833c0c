//! Locks that need neither an allocation nor a destructor.
mod lock;
pub use lock::{Guard, Lock};
