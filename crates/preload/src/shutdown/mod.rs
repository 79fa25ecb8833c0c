//! When the engine ends its service: before the program limits its memory, or its system calls.
//!
//! Owns whether the program has confined itself. Memory of the arena that the program has stays its own.

pub mod limits;
pub mod sandbox;
