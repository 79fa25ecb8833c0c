//! Service that ends: an access fails and a message says why; nothing hangs and nothing reads zeroes that are none.
//!
//! Each scenario runs in a process of its own: this test program again, with its name in the environment.

use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use faultless::region::{Backing, Delivery, Error, Region, Rights};
use faultless_testkit::limit::limit;

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;
const SCENARIO: &str = "FAULTLESS_TEST_SCENARIO";
const NO_UFFD: i32 = 77;

/// How a scenario ended: the signal that killed it, if one did, and what it said.
struct End {
    signal: Option<i32>,
    code: Option<i32>,
    said: String,
}

/// Runs a scenario; `None` where such regions cannot be made.
fn run(scenario: &str) -> Option<End> {
    limit();
    let out = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "scenario", "--nocapture"])
        .env(SCENARIO, scenario)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    if out.status.code() == Some(NO_UFFD) {
        faultless_testkit::skip("no userfaultfd");
        return None;
    }
    println!("{scenario}: {:?}\n{said}", out.status);
    Some(End { signal: out.status.signal(), code: out.status.code(), said })
}

/// What a backing does that is asked for bytes.
enum Answer {
    Error,
    /// The same for two at a time.
    Together(Barrier),
    Panic,
    /// It comes when the stall has been reported, and some more time has passed.
    Reported(Arc<Mutex<Said>>),
}

const PATIENCE: Duration = Duration::from_millis(200);

/// What this process says, looked at before it goes where it went.
struct Said {
    from: BufReader<PipeReader>,
    stderr: OwnedFd,
}

impl Said {
    fn new() -> Self {
        let (from, to) = std::io::pipe().unwrap();
        let stderr = std::io::stderr().as_fd().try_clone_to_owned().unwrap();
        put_in_the_place_of_stderr(&to);
        Self { from: BufReader::new(from), stderr }
    }

    /// Passes lines on up to one that has this.
    fn pass_up_to(&mut self, what: &str) {
        let mut line = String::new();
        while !line.contains(what) {
            line.clear();
            assert!(self.from.read_line(&mut line).unwrap() > 0, "never said: {what}");
            File::from(self.stderr.try_clone().unwrap()).write_all(line.as_bytes()).unwrap();
        }
    }
}

impl Drop for Said {
    fn drop(&mut self) {
        put_in_the_place_of_stderr(&self.stderr);
        std::io::copy(&mut self.from, &mut std::io::stderr()).unwrap();
    }
}

fn put_in_the_place_of_stderr(fd: &impl AsFd) {
    // SAFETY: descriptors of this process.
    assert_eq!(unsafe { libc::dup2(fd.as_fd().as_raw_fd(), libc::STDERR_FILENO) }, libc::STDERR_FILENO);
}

impl Backing for Answer {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), i32> {
        match self {
            Self::Error if offset >= MIB as u64 => return Err(libc::EIO),
            Self::Together(both) if offset >= MIB as u64 => {
                both.wait();
                return Err(libc::EIO);
            }
            Self::Panic if offset >= MIB as u64 => panic!("the backing is broken"),
            Self::Reported(said) if offset >= MIB as u64 => {
                said.lock().unwrap().pass_up_to("the backing");
                std::thread::sleep(3 * PATIENCE);
            }
            _ => {}
        }
        buffer.fill(3);
        Ok(())
    }
}

fn region(delivery: Delivery, backing: Option<Answer>) -> Region {
    let mut builder = Region::builder(4 * MIB).delivery(delivery).windows(PAGE, PAGE).patience(PATIENCE);
    if let Some(backing) = backing {
        builder = builder.backing(backing);
    }
    builder.build().unwrap_or_else(|error| {
        assert!(matches!(error, Error::NoUserfaultfd(_)), "{error}");
        std::process::exit(NO_UFFD)
    })
}

fn read(region: &Region, at: usize) -> u8 {
    // SAFETY: memory of the region; that it may be an error is what is tested.
    unsafe { region.as_ptr().add(at).read_volatile() }
}

static REGION: Mutex<Option<Region>> = Mutex::new(None);
static HANDLED: AtomicBool = AtomicBool::new(false);

extern "C" fn own_handler(_: i32) {
    HANDLED.store(true, Ordering::SeqCst);
    std::process::exit(42);
}

fn set_handler(signal: i32, handler: extern "C" fn(i32)) {
    // SAFETY: a handler of this program.
    unsafe { libc::signal(signal, handler as *const () as usize) };
}

/// A handler for SIGBUS that maps a page where one is lost.
fn replace_lost_pages() {
    extern "C" fn replace(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the kernel's structure; a page of the region that cannot be had.
        unsafe {
            let at = ((*info).si_addr() as usize & !(PAGE - 1)) as *mut libc::c_void;
            libc::mmap(at, PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        }
    }
    // SAFETY: zero bytes are a value; a handler of the right kind.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction =
            replace as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
    }
}

/// The scenarios; does nothing when it runs as one of the tests.
#[test]
fn scenario() {
    let Ok(name) = std::env::var(SCENARIO) else { return };
    limit();
    match name.as_str() {
        "error-thread" => _ = read(&region(Delivery::Thread, Some(Answer::Error)), 2 * MIB),
        "error-signal" => _ = read(&region(Delivery::Signal, Some(Answer::Error)), 2 * MIB),
        "error-handled" => {
            set_handler(libc::SIGBUS, own_handler);
            read(&region(Delivery::Signal, Some(Answer::Error)), 2 * MIB);
        }
        "error-twice" => {
            replace_lost_pages();
            let region = region(Delivery::Signal, Some(Answer::Together(Barrier::new(2))));
            let access = |at| read(&region, at);
            std::thread::scope(|scope| (0..2).for_each(|_| _ = scope.spawn(|| access(2 * MIB))));
            assert_eq!(region.check_thread(), Ok(()), "one page is lost, and no more");
            assert_eq!(read(&region, 0), 3);
        }
        "broken" => {
            set_handler(libc::SIGBUS, own_handler);
            let region = region(Delivery::Signal, None);
            assert_eq!(read(&region, 0), 0);
            // SAFETY: zero bytes are a value, with an address behind the first words; a thread may send itself any
            // code.
            unsafe {
                let mut info: libc::siginfo_t = std::mem::zeroed();
                (info.si_signo, info.si_code) = (libc::SIGBUS, libc::BUS_MCEERR_AR);
                (&raw mut info).cast::<*mut u8>().add(2).write(region.as_ptr());
                let (process, thread) = (libc::getpid(), libc::gettid());
                libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, libc::SIGBUS, &raw const info);
            }
        }
        "panic" => _ = read(&region(Delivery::Thread, Some(Answer::Panic)), 2 * MIB),
        "stall-thread" | "stall-signal" => {
            let delivery = if name.ends_with("thread") { Delivery::Thread } else { Delivery::Signal };
            let region = region(delivery, Some(Answer::Reported(Arc::new(Mutex::new(Said::new())))));
            assert_eq!(read(&region, 2 * MIB), 3);
        }
        "unmapped-thread" | "unmapped-signal" => {
            let delivery = if name.ends_with("thread") { Delivery::Thread } else { Delivery::Signal };
            let region = region(delivery, None);
            region.unmap(MIB..2 * MIB).unwrap();
            assert_eq!(read(&region, 2 * MIB), 0);
            read(&region, MIB);
        }
        "taken-thread" | "taken-signal" => {
            let delivery = if name.ends_with("thread") { Delivery::Thread } else { Delivery::Signal };
            let region = region(delivery, None);
            // SAFETY: a part of the region without a reference to it; that it is not the region's business is
            // tested.
            assert_eq!(unsafe { libc::munmap(region.as_ptr().add(MIB).cast(), MIB) }, 0);
            assert_eq!(region.protect(MIB..2 * MIB, Rights::Read), Err(Error::Kernel(libc::ENOMEM)));
            assert_eq!([0, MIB - 1, 2 * MIB].map(|at| read(&region, at)), [0; 3], "what is beside it goes on");
            read(&region, MIB);
        }
        "read-only" => {
            let region = region(Delivery::Thread, None);
            region.protect(0..MIB, Rights::Read).unwrap();
            assert_eq!(read(&region, 0), 0);
            // SAFETY: this is what is tested.
            unsafe { region.as_ptr().write_volatile(1) };
        }
        "descriptor" => {
            let region = region(Delivery::Thread, None);
            assert_eq!(read(&region, 0), 0);
            for entry in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
                let link = std::fs::read_link(entry.path()).unwrap_or_default();
                if link.to_string_lossy().contains("userfaultfd") {
                    // SAFETY: this is what is tested.
                    unsafe { libc::close(entry.file_name().to_string_lossy().parse().unwrap()) };
                }
            }
            while region.check_thread().is_ok() {
                std::thread::sleep(Duration::from_millis(10));
            }
            assert_eq!(region.unmap(0..MIB), Err(Error::Closed));
            // What is there can be read until another thread has shut it, a moment later.
            loop {
                read(&region, 0);
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        "child" => {
            *REGION.lock().unwrap() = Some(region(Delivery::Thread, None));
            // SAFETY: the child only ends what it has of the region.
            unsafe {
                let child = libc::fork();
                if child == 0 {
                    drop(REGION.lock().unwrap().take());
                    libc::_exit(0);
                }
                let mut status = 0;
                libc::waitpid(child, &mut status, 0);
                assert_eq!(status, 0);
            }
            let region = REGION.lock().unwrap().take().unwrap();
            assert_eq!(read(&region, MIB), 0, "what a child drops is there for its parent");
        }
        "child-backing" => {
            let region = region(Delivery::Thread, Some(Answer::Error));
            assert_eq!(read(&region, 0), 3);
            // SAFETY: the child reads, which is what is tested.
            unsafe {
                let child = libc::fork();
                if child == 0 {
                    read(&region, PAGE);
                    libc::_exit(0);
                }
                let mut status = 0;
                libc::waitpid(child, &mut status, 0);
                assert_eq!(libc::WTERMSIG(status), libc::SIGSEGV);
            }
        }
        other => panic!("no scenario {other}"),
    }
}

#[test]
fn a_page_that_cannot_be_read_is_a_sigbus() {
    for name in ["error-thread", "error-signal"] {
        let Some(end) = run(name) else { continue };
        assert_eq!(end.signal, Some(libc::SIGBUS), "{name}");
        assert!(end.said.contains("cannot be had (error 5)"), "{name}");
    }
    let Some(end) = run("error-handled") else { return };
    assert_eq!(end.code, Some(42), "the program's own handler gets it");
    let Some(end) = run("broken") else { return };
    assert_eq!(end.code, Some(42), "so it does where the memory itself is broken, which no fault mends");
    let Some(end) = run("error-twice") else { return };
    assert_eq!(end.code, Some(0), "each of two threads that need it gets it");
}

#[test]
fn a_handler_that_dies_closes_its_region() {
    let Some(end) = run("panic") else { return };
    assert_eq!(end.signal, Some(libc::SIGSEGV));
    assert!(end.said.contains("a handler thread has died"));
    let Some(end) = run("descriptor") else { return };
    assert_eq!(end.signal, Some(libc::SIGSEGV));
    assert!(end.said.contains("cannot be read"));
}

#[test]
fn a_stall_is_reported_and_survived() {
    for (name, what) in
        [("stall-thread", "waits for the backing"), ("stall-signal", "has been read at offset 0x200000")]
    {
        let Some(end) = run(name) else { continue };
        assert_eq!(end.code, Some(0), "{name}");
        assert_eq!(end.said.matches(what).count(), 1, "{name}: once");
    }
}

#[test]
fn an_access_without_right_is_a_sigsegv() {
    for name in ["unmapped-thread", "unmapped-signal", "taken-thread", "taken-signal", "read-only"] {
        let Some(end) = run(name) else { continue };
        assert_eq!(end.signal, Some(libc::SIGSEGV), "{name}");
    }
}

#[test]
fn children_do_not_harm_their_parent() {
    for name in ["child", "child-backing"] {
        let Some(end) = run(name) else { continue };
        assert_eq!(end.code, Some(0), "{name}");
    }
}
