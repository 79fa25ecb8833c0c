//! The concurrency of faultless under model checkers; the models are in `tests`.
//!
//! They run the code that is shipped: with the feature `loom` or `shuttle`, `faultless_base::sync` takes its atomic
//! types from that checker. Which model covers what: `docs/locking.md`.

#[cfg(feature = "shuttle")]
mod access;
#[cfg(feature = "shuttle")]
mod check;
#[cfg(feature = "shuttle")]
mod stepped;
#[cfg(feature = "shuttle")]
pub mod stopping;
#[cfg(feature = "shuttle")]
pub use access::accessed;
#[cfg(feature = "shuttle")]
pub use check::{check_runs, check_stopping, run_threads};
#[cfg(feature = "shuttle")]
pub use stepped::{LeftBehind, Stepped};
