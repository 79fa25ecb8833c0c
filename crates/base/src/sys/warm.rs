//! What a program tells the warm reserve (`faultless warm`): how much memory it is about to take from the kernel.
//!
//! A message is one datagram to a Unix socket. It is sent by a socket of its own, which is closed at once, and never
//! waits: if the daemon is slow, the message is lost. If there is none, this process does not try again. The amount
//! counts from the start of the process, so a lost message is made good by the next one.

use core::cell::UnsafeCell;
use core::mem::{offset_of, size_of};
use core::sync::atomic::{AtomicUsize, Ordering};

use super::open;
use super::raw::syscall;
use crate::Errno;

/// Bytes of a message.
pub const BYTES: usize = 24;
/// First bytes of a message.
const MAGIC: u64 = u64::from_le_bytes(*b"fltwarm1");
/// The longest path of a socket, without the zero at its end.
pub const LONGEST: usize = 107;

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// How many bytes the sender has taken, or is about to take, since it began.
    Grow(u64),
    /// The sender wants to know how the reserve stands.
    Status,
    /// The daemon is to end.
    Stop,
}

impl Message {
    /// As it is sent.
    pub fn encode(self) -> [u8; BYTES] {
        let (kind, amount) = match self {
            Self::Grow(bytes) => (1u64, bytes),
            Self::Status => (2, 0),
            Self::Stop => (3, 0),
        };
        let mut bytes = [0; BYTES];
        for (to, number) in bytes.chunks_exact_mut(8).zip([MAGIC, kind, amount]) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// What was received; `None`: it is no message.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != BYTES {
            return None;
        }
        let number = |i: usize| Some(u64::from_le_bytes(bytes.get(i * 8..i * 8 + 8)?.try_into().ok()?));
        match (number(0)?, number(1)?, number(2)?) {
            (MAGIC, 1, bytes) => Some(Self::Grow(bytes)),
            (MAGIC, 2, 0) => Some(Self::Status),
            (MAGIC, 3, 0) => Some(Self::Stop),
            _ => None,
        }
    }
}

/// The address of the daemon's socket, as the kernel takes it.
struct Address(UnsafeCell<libc::sockaddr_un>);
// SAFETY: written before LENGTH says that it is there, and not again.
unsafe impl Sync for Address {}

static ADDRESS: Address = Address(UnsafeCell::new(libc::sockaddr_un { sun_family: 0, sun_path: [0; 108] }));
/// Bytes of the address; 0: there is no daemon.
static LENGTH: AtomicUsize = AtomicUsize::new(0);

/// Names the daemon's socket. Once, before this process has a second thread.
pub fn name(path: &[u8]) {
    if path.is_empty() || path.len() > LONGEST || path.contains(&0) || LENGTH.load(Ordering::Acquire) != 0 {
        return;
    }
    // SAFETY: no other thread is there, and nothing reads it before the length is stored.
    let address = unsafe { &mut *ADDRESS.0.get() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    address.sun_path.iter_mut().zip(path).for_each(|(to, from)| *to = *from as libc::c_char);
    LENGTH.store(offset_of!(libc::sockaddr_un, sun_path) + path.len() + 1, Ordering::Release);
}

/// Tells the daemon, if there is one, that this process has taken that many bytes since it began, or is about to.
pub fn announce(bytes: usize) {
    if LENGTH.load(Ordering::Acquire) != 0 {
        open::apart(|| send(Message::Grow(bytes as u64)));
    }
}

/// Sends a message, from where a descriptor may be opened for a moment.
fn send(message: Message) {
    let length = LENGTH.load(Ordering::Acquire);
    if length == 0 {
        return;
    }
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers.
    let made = unsafe { syscall(libc::SYS_socket, [libc::AF_UNIX as usize, kind as usize, 0, 0, 0, 0]) };
    let Ok(socket) = made else { return };
    let bytes = message.encode();
    let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as usize;
    let args = [socket, bytes.as_ptr() as usize, BYTES, flags, ADDRESS.0.get() as usize, length];
    // SAFETY: the message and the address are readable; the descriptor was opened here, and is closed here.
    let sent = unsafe {
        let sent = syscall(libc::SYS_sendto, args);
        let _ = syscall(libc::SYS_close, [socket, 0, 0, 0, 0, 0]);
        sent
    };
    // A queue that is full, or no memory for the message: the next one may arrive.
    if sent.is_err_and(|error| !matches!(error, Errno::EAGAIN | Errno::ENOMEM | Errno::EINTR)) {
        LENGTH.store(0, Ordering::Release);
    }
}

const _: () = assert!(LONGEST + 1 == size_of::<libc::sockaddr_un>() - offset_of!(libc::sockaddr_un, sun_path));

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;
    use faultless_testkit::foreign::{cases, garbled};
    use proptest::prelude::*;

    #[test]
    fn an_amount_is_sent_and_a_dead_daemon_is_left_alone() {
        let dir = std::env::temp_dir().join(std::format!("faultless-warm-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("socket");
        let socket = UnixDatagram::bind(&path).unwrap();
        name(b"");
        name(&[b'x'; LONGEST + 1]);
        assert_eq!(LENGTH.load(Ordering::Relaxed), 0, "neither is a path");
        name(path.as_os_str().as_encoded_bytes());
        announce(5 << 20);
        let mut bytes = [0; 64];
        let n = socket.recv(&mut bytes).unwrap();
        assert_eq!(Message::decode(&bytes[..n]), Some(Message::Grow(5 << 20)));
        // Nothing reads: the queue fills, and the sender goes on.
        (0..5000).for_each(|_| announce(1));
        assert_ne!(LENGTH.load(Ordering::Relaxed), 0, "a full queue is no end");
        drop(socket);
        announce(6 << 20);
        assert_eq!(LENGTH.load(Ordering::Relaxed), 0, "it is not tried again");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    proptest! {
        #![proptest_config(cases())]

        /// A reader gets what was written, and nothing else.
        #[test]
        fn any_bytes_are_a_message_or_none(bytes in garbled(&["fltwarm1\u{1}\0\0\0\0\0\0\0abcdefgh"]), amount: u64) {
            for message in [Message::Grow(amount), Message::Status, Message::Stop] {
                prop_assert_eq!(Message::decode(&message.encode()), Some(message));
            }
            if let Some(message) = Message::decode(&bytes) {
                prop_assert_eq!(&message.encode()[..], &bytes[..]);
            }
        }
    }
}
