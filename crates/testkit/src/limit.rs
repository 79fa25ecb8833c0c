//! A limit on how long a test may take. Where a mistake would be that a thread waits for ever, the test that found it
//! is to say so.

use std::cell::RefCell;
use std::fs;
use std::io::Write;
use std::panic::Location;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// Seconds in which this process could run. One in which it was stopped, or got no processor, counts once.
const SECONDS: usize = 110;
/// Others, where everything is slower: in an emulator.
const OTHERS: &str = "FAULTLESS_TEST_LIMIT";

thread_local! {
    /// Dropped when the thread ends.
    static LIMIT: RefCell<Option<Sender<()>>> = const { RefCell::new(None) };
}

/// Ends the program, and says so, unless the thread of this test ends before long, or comes here again.
#[track_caller]
pub fn limit() {
    let caller = Location::caller();
    let test = thread::current().name().unwrap_or("a test").to_owned();
    let seconds = std::env::var(OTHERS).ok().and_then(|text| text.parse().ok()).unwrap_or(SECONDS);
    let (limit, ended) = channel();
    LIMIT.set(Some(limit));
    let watch = move || {
        if is_too_long(&ended, seconds, Duration::from_secs(1)) {
            end(&test, caller, seconds);
        }
    };
    thread::Builder::new().name("limit".into()).spawn(watch).expect("a thread");
}

fn is_too_long(ended: &Receiver<()>, ticks: usize, tick: Duration) -> bool {
    (0..ticks).all(|_| ended.recv_timeout(tick) == Err(RecvTimeoutError::Timeout))
}

/// It goes around the capture of output, which would be lost.
fn end(test: &str, caller: &Location<'_>, seconds: usize) -> ! {
    // SAFETY: if a thread holds a lock that this needs, the signal ends it.
    unsafe { libc::alarm(10) };
    let mut stderr = std::io::stderr();
    let _ = writeln!(stderr, "\nerror: test {test} ({caller}) has not ended after {seconds} seconds");
    // Where its threads wait in the kernel.
    for thread in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let read = |name| fs::read_to_string(thread.path().join(name)).unwrap_or_default();
        let _ = writeln!(stderr, "    {}: {}", read("comm").trim_end(), read("wchan"));
    }
    // SAFETY: ends the process at once, without a core of its memory.
    unsafe { libc::_exit(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_does_not_end_is_too_long() {
        let tick = Duration::from_millis(1);
        let (test, ended) = channel();
        assert!(is_too_long(&ended, 3, tick));
        drop(test);
        assert!(!is_too_long(&ended, 3, tick));
    }

    /// A test that calls it often is not ended by what the first call started.
    #[test]
    fn a_thread_that_ends_or_begins_again_lets_go_of_its_limit() {
        let (limit, ended) = channel();
        let thread = thread::spawn(move || LIMIT.set(Some(limit)));
        thread.join().unwrap();
        assert_eq!(ended.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected));
        let (limit, ended) = channel();
        LIMIT.set(Some(limit));
        super::limit();
        assert_eq!(ended.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected));
    }
}
