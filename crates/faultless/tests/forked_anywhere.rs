//! A fork at any moment of the first region, of its changes and of its end: the child has regions as any process has.
//!
//! A filter stops the thread that makes the region at each of its system calls, and those of the threads that it
//! starts (seccomp's notifications). Another thread forks then. Calls that the allocator makes under its lock are left
//! out: a fork waits for that lock.
#![cfg(target_arch = "x86_64")]

use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;

use faultless::region::{Advice, Delivery, Error, Heap, Region, Rights};
use faultless_testkit::limit::limit;
use libc::sock_filter;

const MIB: usize = 1 << 20;
const SCENARIO: &str = "FAULTLESS_TEST_SCENARIO";
const DELIVERIES: [Delivery; 4] = [Delivery::Thread, Delivery::Signal, Delivery::Kernel, Delivery::Direct];

/// Where a thread is stopped.
const CALLS: [i64; 24] = [
    libc::SYS_ioctl,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_openat,
    libc::SYS_userfaultfd,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_pipe2,
    libc::SYS_prctl,
    libc::SYS_getpid,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_close,
    libc::SYS_sched_getaffinity,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_mremap,
    libc::SYS_get_mempolicy,
    libc::SYS_write,
    libc::SYS_read,
];

const NEW_LISTENER: libc::c_ulong = 1 << 3;
/// `_IOWR('!', 0, struct seccomp_notif)` and `_IOWR('!', 1, struct seccomp_notif_resp)`.
const RECEIVE: libc::c_ulong = 0xC050_2100;
const SEND: libc::c_ulong = 0xC018_2101;

/// `struct seccomp_notif`.
#[repr(C)]
#[derive(Default)]
struct Stopped {
    id: u64,
    thread: u32,
    flags: u32,
    number: i32,
    arch: u32,
    at: u64,
    args: [u64; 6],
}

/// `struct seccomp_notif_resp`.
#[repr(C)]
struct Answer {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// From now on this thread stops at each of these calls; where that is told.
fn stop_at_calls() -> Option<i32> {
    let code = |code: u32| code as u16;
    let mut filter =
        vec![sock_filter { code: code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS), jt: 0, jf: 0, k: 0 }];
    for (i, call) in CALLS.iter().enumerate() {
        let is_it = code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K);
        filter.push(sock_filter { code: is_it, jt: (CALLS.len() - i) as u8, jf: 0, k: *call as u32 });
    }
    let answer = |k| sock_filter { code: code(libc::BPF_RET | libc::BPF_K), jt: 0, jf: 0, k };
    filter.extend([answer(libc::SECCOMP_RET_ALLOW), answer(libc::SECCOMP_RET_USER_NOTIF)]);
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: a filter for this thread; the kernel copies it.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        let listener =
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, NEW_LISTENER, &raw const program);
        (listener >= 0).then_some(listener as i32)
    }
}

/// Whether a region of this kind works, or cannot be had here.
fn works(delivery: Delivery, heap: &Heap) -> bool {
    let works = || {
        let region = Region::builder(4 * MIB).delivery(delivery).zeroed(false).build()?;
        // SAFETY: a byte of the region, and nothing else uses it.
        unsafe { region.as_ptr().write_volatile(7) };
        region.protect(0..MIB, Rights::Read)?;
        region.advise(MIB..4 * MIB, Advice::DontNeed)?;
        let block = heap.allocate(4 * MIB)?;
        // SAFETY: a byte of the block.
        let zero = unsafe { block.as_ptr().add(MIB).read_volatile() };
        // SAFETY: as above.
        Ok(zero == 0 && unsafe { region.as_ptr().read_volatile() } == 7)
    };
    match works() {
        Ok(works) => works,
        Err(Error::NoUserfaultfd(_)) => true,
        Err(error) => panic!("{error}"),
    }
}

/// Forks, and has the child make regions of all kinds. Whether they work.
fn child_works(heap: &Heap) -> bool {
    // SAFETY: the child ends in here, and so does a second thread that it has.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(30);
            libc::_exit(!DELIVERIES.iter().all(|delivery| works(*delivery, heap)) as i32);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        status == 0
    }
}

const NO_NOTIFICATIONS: &str = "0 forks: no notifications";

/// Makes a region while another thread forks at each of its calls.
fn make_and_fork(delivery: Delivery) {
    let heap = Heap::lasting(move |builder| builder.delivery(delivery));
    let (tell, told) = channel();
    let (finish, finished) = channel();
    thread::spawn(move || {
        tell.send(stop_at_calls()).unwrap();
        finish.send(works(delivery, heap)).unwrap();
    });
    let Some(listener) = told.recv().unwrap() else { return println!("{NO_NOTIFICATIONS}") };
    let mut forks = 0;
    let works = loop {
        if let Ok(works) = finished.try_recv() {
            break works;
        }
        let mut poll = libc::pollfd { fd: listener, events: libc::POLLIN, revents: 0 };
        let mut stopped = Stopped::default();
        // SAFETY: one structure to poll, and room for a notification, which is zero.
        let is_one =
            unsafe { libc::poll(&mut poll, 1, 20) == 1 && libc::ioctl(listener, RECEIVE, &raw mut stopped) == 0 };
        if !is_one {
            continue;
        }
        forks += 1;
        let works = child_works(heap);
        let go_on = Answer { id: stopped.id, value: 0, error: 0, flags: 1 };
        // SAFETY: an answer to read.
        unsafe { libc::ioctl(listener, SEND, &raw const go_on) };
        if !works {
            println!("{delivery:?}: a child of a fork at system call {}, the {forks}th", stopped.number);
            break false;
        }
    };
    println!("{forks} forks");
    // Threads that go on stop for good, the maker at its end.
    // SAFETY: nothing is to be done.
    unsafe { libc::_exit(!works as i32) }
}

#[test]
fn scenario() {
    let Ok(scenario) = std::env::var(SCENARIO) else { return };
    make_and_fork(DELIVERIES[scenario.parse::<usize>().unwrap()]);
}

#[test]
fn a_child_has_regions_whatever_its_parent_was_doing() {
    for (number, delivery) in DELIVERIES.iter().enumerate() {
        limit();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "scenario", "--nocapture"]).env(SCENARIO, number.to_string());
        let out = command.output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success(), "{text}{}", String::from_utf8_lossy(&out.stderr));
        if text.contains(NO_NOTIFICATIONS) {
            return faultless_testkit::skip("a filter's notifications cannot be had");
        }
        println!("{delivery:?}: {}", text.lines().last().unwrap_or_default());
    }
}
