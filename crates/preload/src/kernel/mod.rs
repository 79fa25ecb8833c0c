//! The kernel and the C library as this library meets them, without the engine.
//!
//! Owns no state but the addresses of functions in libraries behind ours ([`behind`], [`dispatch`]), which
//! are looked up before `main`. What a call means for memory is the business of the rooms above.

pub mod behind;
pub mod call;
pub mod dispatch;
mod elf;
pub mod libraries_behind;
pub mod linked;
pub mod moved_ranges;
pub mod preloads;
pub mod smaps;
pub mod thread_pointer;
