//! Messages of a userfaultfd, and of pipes that pass them on.

use core::mem::size_of_val;

use super::super::poll::poll;
use super::super::raw::syscall;
use crate::{Errno, Span};

/// A message as the kernel writes it (`struct uffd_msg`).
pub type Message = [u64; 4];

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A thread waits for the page at `address`.
    Fault {
        /// The page, or the exact address with [`super::feature::EXACT_ADDRESS`].
        address: usize,
        /// `UFFD_PAGEFAULT_FLAG_*`: 1 for a write, 2 for a protected page.
        flags: u64,
        /// The thread, with [`super::feature::THREAD_ID`]; else 0.
        thread: u32,
    },
    /// The process forked: a descriptor for the child.
    Fork(u32),
    /// A range was moved.
    Remap(Span, usize),
    /// Pages were dropped.
    Remove(Span),
    /// A range was unmapped.
    Unmap(Span),
    /// One that this code does not know.
    Other(u8),
}

impl From<Message> for Event {
    fn from([kind, a, b, c]: Message) -> Self {
        let range = || Span { start: a as usize, end: b as usize };
        match kind as u8 {
            0x12 => Self::Fault { flags: a, address: b as usize, thread: c as u32 },
            0x13 => Self::Fork(a as u32),
            0x14 => Self::Remap(Span::new(a as usize, c as usize), b as usize),
            0x15 => Self::Remove(range()),
            0x16 => Self::Unmap(range()),
            other => Self::Other(other),
        }
    }
}

/// Messages that are read at a time.
pub const BATCH: usize = 32;

/// What a wait for messages brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// This many messages.
    Messages(usize),
    /// Nothing in the time given.
    Nothing,
    /// The other descriptor can be read.
    Other,
}

/// Waits up to `timeout_ms` for messages of the descriptor `from`, as many as are there and have room, or until the
/// descriptor `other` can be read.
pub fn receive(from: i32, other: Option<i32>, timeout_ms: u32, messages: &mut [Message]) -> Result<Waited, Errno> {
    match wait(from, other, timeout_ms)? {
        Waited::Messages(_) => read_now(from, messages),
        nothing => Ok(nothing),
    }
}

/// Reads what there is after a wait.
pub fn read_now(from: i32, messages: &mut [Message]) -> Result<Waited, Errno> {
    match read(from, messages) {
        Ok(n) => Ok(Waited::Messages(n)),
        // Another thread has taken it, or the waiting thread was woken.
        Err(Errno::EAGAIN) => Ok(Waited::Nothing),
        Err(error) => Err(error),
    }
}

/// The same without reading them: there is one at least, or the descriptor has failed.
pub fn wait(from: i32, other: Option<i32>, timeout_ms: u32) -> Result<Waited, Errno> {
    // A negative number is passed over.
    let mut polls = [readable(from), readable(other.unwrap_or(-1))];
    if poll(&mut polls, timeout_ms)? == 0 {
        return Ok(Waited::Nothing);
    }
    if polls[1].revents != 0 {
        return Ok(Waited::Other);
    }
    Ok(Waited::Messages(1))
}

/// Reads what messages there are, without waiting; EAGAIN if there are none.
pub fn read(from: i32, messages: &mut [Message]) -> Result<usize, Errno> {
    let args = [from as usize, messages.as_mut_ptr() as usize, size_of_val(messages), 0, 0, 0];
    // SAFETY: a buffer for as many messages as it says.
    let bytes = unsafe { syscall(libc::SYS_read, args)? };
    if bytes > 0 { Ok(bytes / size_of::<Message>()) } else { Err(Errno::EIO) }
}

/// Writes a message to a pipe that does not block; whether there was room.
pub fn send(to: i32, message: &Message) -> bool {
    let args = [to as usize, message.as_ptr() as usize, size_of_val(message), 0, 0, 0];
    // SAFETY: the bytes of one message, which a pipe takes whole or not at all.
    unsafe { syscall(libc::SYS_write, args) }.is_ok()
}

/// Whether a message waits to be read.
pub fn is_waiting(from: i32) -> bool {
    let mut polls = [readable(from)];
    poll(&mut polls, 0).is_ok() && polls[0].revents & libc::POLLIN != 0
}

fn readable(fd: i32) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_testkit::foreign::cases;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(cases())]

        /// Of any four words something is made, and a range never ends before it begins by our own sum.
        #[test]
        fn any_words_are_a_message(kind in prop_oneof![0x10u64..0x18, any::<u64>()], rest in any::<[u64; 3]>()) {
            let [a, b, c] = rest;
            match Event::from([kind, a, b, c]) {
                Event::Fault { address, flags, thread } => {
                    prop_assert_eq!((address as u64, flags, thread), (b, a, c as u32));
                }
                Event::Fork(descriptor) => prop_assert_eq!(descriptor, a as u32),
                Event::Remap(from, to) => {
                    prop_assert_eq!((from.start as u64, to as u64), (a, b));
                    prop_assert!(from.end >= from.start && from.bytes() as u64 <= c);
                }
                Event::Remove(span) | Event::Unmap(span) => {
                    prop_assert_eq!((span.start as u64, span.end as u64), (a, b));
                }
                Event::Other(other) => prop_assert!(other == kind as u8 && !(0x12..=0x16).contains(&other)),
            }
        }
    }
}
