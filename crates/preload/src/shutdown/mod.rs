//! When the engine ends its service: before the program limits its memory, or its system calls.
//!
//! Owns whether the program has confined itself. What the program has of the arena stays its own.

pub mod limits;
pub mod sandbox;
