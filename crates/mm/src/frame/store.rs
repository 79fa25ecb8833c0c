//! What a user of whole frames asks of the owner of all frames.
//!
//! Blocks and mappings are rooms of the owner's. Regions come here, and so does whatever else puts frames to use at
//! addresses of its own. A frame that was taken is the caller's until it gives the place back, with what is in it
//! then. The owner's side is [`crate::space::lend`].
//!
//! No call waits for another thread, so a signal handler may make each of them. Where a lock is taken, the answer is
//! that there is nothing.

use crate::frame::buddy::Kind;
use crate::frame::purpose::Need;

/// A frame of 2 MiB in a caller's hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its address.
    pub at: usize,
    /// What is in it.
    pub kind: Kind,
}

/// The owner of all frames.
pub trait Store: Sync {
    /// An idle frame: of zeroes, or one with old bytes where these will do. None is made for this.
    fn take(&self, need: Need) -> Option<Frame>;
    /// A place without memory, for a frame that the caller makes there. No forked child has its memory.
    fn place(&self) -> Option<usize>;
    /// The same for a frame that the caller moves there because it needs it no more. `None` where the budget does not
    /// allow to keep it.
    fn place_to_keep(&self) -> Option<usize>;
    /// The caller is done with a frame or a place; `kind` says what is in it now.
    fn give(&self, at: usize, kind: Kind);
    /// How many idle frames [`Store::take`] could give.
    fn ready(&self, need: Need) -> usize;
    /// Has this number of frames be ready soon, made by the background thread as far as the budget goes.
    fn ask(&self, frames: usize);
    /// How many slots more may be kept now.
    fn room(&self) -> usize;
    /// Idle frames that no program has reserved: who takes one and keeps it does not make the process larger.
    fn idle(&self) -> usize;
    /// Gives one of these back to the kernel, wherever it lies; whether there was one.
    fn drop_idle(&self) -> bool;
    /// Memory that the caller has at its own addresses, and gives back on request ([`Reclaim`]), was as much as `from`
    /// slots, and is as much as `to`. It counts as kept.
    fn cached(&self, from: usize, to: usize);
    /// The time, in ms, from some moment on.
    fn now_ms(&self) -> u32;
}

/// What has memory that can go back on request.
pub trait Reclaim: Sync {
    /// Gives up to `slots` slots of it back to the kernel; how many. It waits for no other thread.
    fn reclaim(&self, slots: usize) -> usize;
}
