//! What the library needs of its process: which one it is, signals held back, descriptors of its own, words on stderr.
//!
//! Owns nothing of a region. [`owner`] tells by a look at memory whether a fork came between; [`masked`] holds signals
//! back while a thread is inside the engine; [`descriptors`] are those that the program does not see.

pub mod descriptors;
pub mod masked;
pub mod message;
pub mod owner;
