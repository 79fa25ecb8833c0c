//! What the library needs of its process: which one it is, signals held back, descriptors of its own, words on stderr.
//!
//! Owns nothing of a region. By a look at memory, [`owner`] tells whether a fork came between. A thread inside the
//! engine holds signals back by [`masked`], and waits by a [`bell`] without that. The module [`descriptors`] has those
//! that the program does not see. Values of the process are made by [`once`] or [`owner`], and threads by [`thread`]:
//! all of them bear a fork at any moment. A thread is told what to do by a [`mailbox`].

pub mod bell;
pub mod descriptors;
pub mod limits;
pub mod mailbox;
pub mod masked;
pub mod message;
pub mod once;
pub mod owner;
pub mod thread;
