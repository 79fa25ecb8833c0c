//! The one engine of this process: its start, its thread, its page, and what a fork does to them.
//!
//! The module [`engine`] owns the engine: one thread writes it once, and every thread that has entered may use it.
//! It ends in [`retire`]. The module [`worker`] owns the background thread, [`page`] the page that others see. A
//! thread that is inside the engine ([`inside`]) does not enter it again: its request goes to the C library or to the
//! kernel. The same holds for a child that shares this memory and has confined itself ([`confined`]).

pub mod areas;
pub mod confined;
pub mod descriptors;
pub mod engine;
mod exit;
pub mod first_thread;
pub mod fork;
pub mod inside;
pub mod page;
pub mod retire;
pub mod seen;
pub mod settings;
mod variable;
mod vfork;
pub mod worker;
