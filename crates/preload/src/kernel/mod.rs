//! The kernel and the C library as this library meets them, without the engine.
//!
//! Owns no state but the addresses of functions in libraries behind ours ([`libraries_behind`], [`dispatch`]), which
//! are looked up before `main`. What a call means for memory is the business of the rooms above.

pub mod call;
pub mod dispatch;
pub mod libraries_behind;
pub mod library;
pub mod linked;
pub mod moved_ranges;
pub mod smaps;
