//! When the engine ends its service: before the program limits its memory or its system calls, or has memory
//! mapped with other rights than it asks for. And when the background thread ends: before the program's threads do.
//!
//! Owns whether the program has confined itself. Memory of the arena that the program has stays its own.

mod clone;
pub mod limits;
pub mod personality;
pub mod sandbox;
mod thread_exit;
