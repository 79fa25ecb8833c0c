//! What is said on standard output and standard error.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU8, Ordering};

use faultless_measure::pages::shown;

/// Bits of the standard files that were closed when this process began. Rust's runtime opens /dev/null in their place.
pub static CLOSED: AtomicU8 = AtomicU8::new(0);

/// Whether a standard file was closed when this process began.
pub fn is_closed(fd: i32) -> bool {
    CLOSED.load(Ordering::Relaxed) & (1 << fd) != 0
}

/// Says something on stderr, in one line; unlike `eprintln!`, also works when stderr is closed. Names of others may hold
/// anything: what would disturb a terminal shows as `?`.
pub fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "faultless: {}", shown(text));
}

/// Writes to standard output, which has to be there.
pub fn print(text: &str) -> io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    check_output()?;
    let mut out = io::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// Whether standard output was there at the start. Where it was not, /dev/null stands there now and takes everything.
pub fn check_output() -> io::Result<()> {
    if is_closed(libc::STDOUT_FILENO) { Err(io::Error::from_raw_os_error(libc::EBADF)) } else { Ok(()) }
}
