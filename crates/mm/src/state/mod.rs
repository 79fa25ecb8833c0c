//! What the engine remembers from call to call beside the memory itself: one small owner for each concern.
//!
//! Each has private words and a few methods, and makes no system call. The rooms below act on what they say. A
//! word that threads share is atomic and orders nothing, unless its line says more. A thread that reads an old
//! value does something too early, too late or for nothing, and nothing wrong. What is more than a word is behind
//! a lock that no thread waits for.

pub(crate) mod advices;
pub(crate) mod ahead;
pub(crate) mod announced;
pub(crate) mod bounds;
pub(crate) mod decay;
pub(crate) mod files;
pub(crate) mod growths;
pub(crate) mod known;
pub(crate) mod looks;
pub(crate) mod moves;
pub(crate) mod scrubber;
pub(crate) mod supply;
pub(crate) mod worker;
