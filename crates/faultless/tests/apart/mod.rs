//! A test in a process of its own: what it does to its process concerns no other test, and how it ends is seen.

use std::fs::File;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitStatus;

use faultless_testkit::limit::limit;

/// Seconds until a process is ended that waits for ever.
const SECONDS: u32 = 60;

/// Does `test` in a forked child; how that has ended: with 0, unless it has panicked or was killed.
pub fn apart(test: impl FnOnce()) -> ExitStatus {
    limit();
    // SAFETY: the child does the test and ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(SECONDS);
            // Around the capture of output, which ends with this process.
            std::panic::set_hook(Box::new(|info| _ = writeln!(ManuallyDrop::new(File::from_raw_fd(2)), "{info}")));
            let done = catch_unwind(AssertUnwindSafe(test));
            libc::_exit(done.is_err() as i32);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        ExitStatus::from_raw(status)
    }
}

/// The same where all has to be well.
#[allow(dead_code, reason = "not all tests that have this expect that")]
pub fn passes_apart(test: impl FnOnce()) {
    let status = apart(test);
    assert!(status.success(), "{status}");
}
