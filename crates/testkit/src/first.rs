//! Processes that send a datagram before they become a program: the receiver takes it for that program's.

use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Has the child of `command` send `bytes` to the socket at `path` first. A child that cannot is no child: the command
/// fails.
pub fn sends_first(command: &mut Command, path: &Path, bytes: Vec<u8>) -> std::io::Result<()> {
    let (socket, path) = (UnixDatagram::unbound()?, path.to_owned());
    // SAFETY: between fork and exec: one system call, on memory and a descriptor that were there before.
    unsafe { command.pre_exec(move || socket.send_to(&bytes, &path).map(drop)) };
    Ok(())
}
