//! System calls of the daemon and of those who talk to it.

use std::fs::File;
use std::io::{self, Read as _};
use std::mem::{offset_of, size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use faultless_base::sys::warm::{BYTES, LONGEST, Message};

use crate::own;

fn checked(answer: i32) -> io::Result<i32> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

fn owned(answer: i32) -> io::Result<OwnedFd> {
    // SAFETY: a descriptor that was opened just now, and has no other owner.
    checked(answer).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The address of a socket, as the kernel takes it.
#[derive(Clone, Copy)]
pub struct Address {
    name: libc::sockaddr_un,
    length: libc::socklen_t,
}

impl Address {
    /// Of this path; `None`: it is too long for a socket.
    pub fn of(path: &Path) -> Option<Self> {
        let bytes = path.as_os_str().as_bytes();
        if bytes.is_empty() || bytes.len() > LONGEST || bytes.contains(&0) {
            return None;
        }
        // SAFETY: zero bytes are a value of the structure.
        let mut name: libc::sockaddr_un = unsafe { zeroed() };
        name.sun_family = libc::AF_UNIX as libc::sa_family_t;
        name.sun_path.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from as libc::c_char);
        let length = offset_of!(libc::sockaddr_un, sun_path) + bytes.len() + 1;
        Some(Self { name, length: length as libc::socklen_t })
    }

    fn pointer(&self) -> *const libc::sockaddr {
        (&raw const self.name).cast()
    }
}

fn datagram() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers.
    owned(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })
}

/// Who sent something, by the kernel's account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// Its process, as numbered here; 0 where it is not seen here.
    pub pid: i32,
    /// Its user.
    pub user: u32,
}

/// Something that came.
pub struct Packet {
    /// What it says; `None`: it is no message.
    pub message: Option<Message>,
    /// `None`: the kernel did not say.
    pub sender: Option<Sender>,
    /// Where an answer goes: only the sender reads there.
    pub answer: Option<Answer>,
}

/// One end of a pair of sockets, of which another process has the other end.
pub struct Answer(OwnedFd);

impl Answer {
    /// Sends this, if that can be done without waiting.
    pub fn send(&self, text: &[u8]) {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the text is readable.
        unsafe { libc::send(self.0.as_raw_fd(), text.as_ptr().cast(), text.len(), flags) };
    }
}

/// The daemon's socket.
pub struct Listener(OwnedFd);

impl Listener {
    /// Binds one for this user alone.
    pub fn bind(path: &Path) -> io::Result<Self> {
        let address = Address::of(path).ok_or(io::ErrorKind::InvalidInput)?;
        let socket = datagram()?;
        let on: libc::c_int = 1;
        // SAFETY: the option's value and the address are readable. No other thread makes files now.
        unsafe {
            let size = size_of::<libc::c_int>() as libc::socklen_t;
            let value = (&raw const on).cast();
            checked(libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PASSCRED, value, size))?;
            let mask = libc::umask(0o177);
            let bound = checked(libc::bind(socket.as_raw_fd(), address.pointer(), address.length));
            libc::umask(mask);
            bound?;
        }
        Ok(Self(socket))
    }

    /// To wait for.
    pub fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// The next thing that came, if there is one.
    pub fn receive(&self) -> Option<Packet> {
        // One byte more than a message, so that a longer one shows.
        let mut bytes = [0u8; BYTES + 1];
        let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let mut control = [0u64; 32];
        // SAFETY: zero bytes are a value of each structure; the header names buffers that live until the call is over,
        // and control messages are read within the length that the kernel gave.
        unsafe {
            let mut header: libc::msghdr = zeroed();
            header.msg_iov = &raw mut part;
            header.msg_iovlen = 1;
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = size_of_val(&control);
            let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
            let n = checked(libc::recvmsg(self.0.as_raw_fd(), &mut header, flags) as i32).ok()?;
            let (mut sender, mut answer) = (None, None);
            let mut at = libc::CMSG_FIRSTHDR(&header);
            while !at.is_null() {
                let data = libc::CMSG_DATA(at);
                match ((*at).cmsg_level, (*at).cmsg_type) {
                    (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) => {
                        let ucred: libc::ucred = data.cast::<libc::ucred>().read_unaligned();
                        sender = Some(Sender { pid: ucred.pid, user: ucred.uid });
                    }
                    // More than one were not asked for: the last one stays.
                    (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                        let all = ((*at).cmsg_len - (data as usize - at as usize)) / size_of::<RawFd>();
                        for i in 0..all {
                            answer = owned(data.cast::<RawFd>().add(i).read_unaligned()).ok().map(Answer);
                        }
                    }
                    _ => {}
                }
                at = libc::CMSG_NXTHDR(&header, at);
            }
            let message = bytes.get(..n as usize).and_then(Message::decode);
            Some(Packet { message, sender, answer })
        }
    }
}

/// Someone who talks to the daemon.
pub struct Speaker(OwnedFd);

impl Speaker {
    /// Error where no daemon listens at the path.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let address = Address::of(path).ok_or(io::ErrorKind::InvalidInput)?;
        let socket = datagram()?;
        // SAFETY: the address is readable.
        checked(unsafe { libc::connect(socket.as_raw_fd(), address.pointer(), address.length) })?;
        Ok(Self(socket))
    }

    /// Sends a message, without waiting.
    pub fn send(&self, message: Message) -> io::Result<()> {
        let bytes = message.encode();
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the message is readable.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), bytes.as_ptr().cast(), BYTES, flags) };
        checked(sent as i32).map(|_| ())
    }

    /// Sends a message, and returns the answer. It is empty if the daemon ended instead. `WouldBlock`: it did not come
    /// in time.
    pub fn ask(&self, message: Message, patience: Duration) -> io::Result<Vec<u8>> {
        let (here, there) = UnixStream::pair()?;
        self.hand(message, there.into())?;
        read_all(here, patience)
    }

    /// Sends a message with a descriptor, without waiting.
    fn hand(&self, message: Message, file: OwnedFd) -> io::Result<()> {
        let mut bytes = message.encode();
        let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: BYTES };
        let mut control = [0u64; 4];
        // SAFETY: zero bytes are a value of the header; it names buffers that live until the call is over, and the
        // descriptor has room in the second one.
        unsafe {
            let mut header: libc::msghdr = zeroed();
            (header.msg_iov, header.msg_iovlen) = (&raw mut part, 1);
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as usize;
            let about = &mut *libc::CMSG_FIRSTHDR(&header);
            (about.cmsg_level, about.cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
            about.cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize;
            libc::CMSG_DATA(about).cast::<RawFd>().write_unaligned(file.as_raw_fd());
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            checked(libc::sendmsg(self.0.as_raw_fd(), &header, flags) as i32).map(drop)
        }
    }
}

/// More than a daemon ever says.
const MOST_SAID: usize = 64 << 10;

/// All that somebody says who may be no daemon. `WouldBlock`: it did not end in time. `InvalidData`: it is too much.
pub fn read_all(mut from: UnixStream, patience: Duration) -> io::Result<Vec<u8>> {
    let (end, mut said) = (Instant::now() + patience, Vec::new());
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        from.set_read_timeout(Some(left))?;
        let mut bytes = [0; 4096];
        match from.read(&mut bytes) {
            Ok(0) => return Ok(said),
            Ok(n) => said.extend_from_slice(&bytes[..n]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if said.len() > MOST_SAID {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}

/// A descriptor, and what to wait for there.
pub fn waiting(fd: RawFd, events: libc::c_short) -> libc::pollfd {
    libc::pollfd { fd, events, revents: 0 }
}

/// Waits until one of them is ready, at most for this time.
pub fn poll(all: &mut [libc::pollfd], time: Option<Duration>) {
    // Rounded up: to wake just before a moment would be to wake twice.
    let ms = time.map_or(-1, |time| i32::try_from(time.as_micros().div_ceil(1000)).unwrap_or(i32::MAX));
    // SAFETY: a list of that length. A signal ends the wait, which the caller takes for a look.
    if unsafe { libc::poll(all.as_mut_ptr(), all.len() as libc::nfds_t, ms) } < 0 {
        all.iter_mut().for_each(|one| one.revents = 0);
    }
}

/// A descriptor that is readable once this process has ended.
pub fn process(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as i32)
}

/// Has the kernel run this thread only where a processor would be idle.
pub fn be_idle() {
    // SAFETY: zero bytes are a value of the structure, which is readable.
    unsafe {
        let parameters: libc::sched_param = zeroed();
        libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameters);
    }
}

/// Has the kernel end this process before others when memory runs out.
pub fn be_first_to_go() {
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
}

/// A file that at most one process has: it stays locked while the result lives. `None`: another one has it.
pub fn lock(path: &Path) -> io::Result<Option<File>> {
    let file = own::lock_file(path)?;
    file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    // SAFETY: a descriptor.
    match checked(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }) {
        Ok(_) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Processor time of this process so far, in the program and in the kernel.
pub fn time_used() -> (Duration, Duration) {
    // SAFETY: zero bytes are a value of the structure, which is writable.
    let usage = unsafe {
        let mut usage: libc::rusage = zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    (time(usage.ru_utime), time(usage.ru_stime))
}

/// Waits until a process has ended; whether it has.
pub fn has_ended(pid: i32, patience: Duration) -> bool {
    let Ok(process) = process(pid) else { return true };
    let mut wait = [waiting(process.as_raw_fd(), libc::POLLIN)];
    poll(&mut wait, Some(patience));
    wait[0].revents != 0
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::thread;

    use super::*;

    /// What somebody says who goes on for ever, slowly or fast, ends.
    #[test]
    fn what_never_ends_is_not_waited_for() {
        let hear = |pause: u64, bytes: &[u8], patience: u64| {
            let (here, mut there) = UnixStream::pair().unwrap();
            let bytes = bytes.to_owned();
            thread::spawn(move || {
                while there.write_all(&bytes).is_ok() {
                    thread::sleep(Duration::from_millis(pause));
                }
            });
            read_all(here, Duration::from_millis(patience)).unwrap_err().kind()
        };
        assert_eq!(hear(5, b"x", 200), io::ErrorKind::WouldBlock);
        assert_eq!(hear(0, &[b'x'; 4096], 60_000), io::ErrorKind::InvalidData);
        let (here, mut there) = UnixStream::pair().unwrap();
        there.write_all(b"all").unwrap();
        drop(there);
        assert_eq!(read_all(here, Duration::from_secs(60)).unwrap(), b"all");
    }
}
