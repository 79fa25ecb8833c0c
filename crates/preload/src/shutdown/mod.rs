//! When the engine ends its service: before the program limits its memory or its system calls, or has memory
//! mapped with other rights than it asks for.
//!
//! Owns whether the program has confined itself. Memory of the arena that the program has stays its own.

pub mod limits;
pub mod personality;
pub mod sandbox;
