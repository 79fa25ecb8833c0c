//! What the library needs of its process: which one it is, signals held back, descriptors of its own, words on stderr.
//!
//! Owns nothing of a region. By a look at memory, [`owner`] tells whether a fork came between. A thread inside the
//! engine holds signals back by [`masked`]. The module [`descriptors`] has those that the program does not see.

pub mod descriptors;
pub mod masked;
pub mod message;
pub mod owner;
