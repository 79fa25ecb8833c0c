//! Snapshots that are saved: where their file lies, what it is called, and what ends it early.

use std::ffi::CString;
use std::fs::{self, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use faultless::Background;
use faultless::region::{Delivery, Error, Region, Save, Snapshot};
use faultless_testkit::limit::limit;

const SLOT: usize = 2 << 20;
const PAGE: usize = 4096;

/// A region of fives, and a snapshot of it, if one can be had here.
fn taken(slots: usize) -> Option<(Region, Snapshot)> {
    limit();
    let made = Region::builder(slots * SLOT).delivery(Delivery::Thread).build();
    let Some(mut region) = made.ok().filter(Region::serves_system_calls) else {
        faultless_testkit::skip("no region of which snapshots can be had");
        return None;
    };
    region.as_mut_slice().unwrap().fill(5);
    let snapshot = region.snapshot().unwrap();
    Some((region, snapshot))
}

/// A save that does not end by itself: one step, and then none for hours.
fn slow(snapshot: &Snapshot, path: &Path) -> Background {
    let saving = Save::new().rate(100).start(snapshot, path).unwrap();
    while saving.ready() == 0 {
        thread::yield_now();
    }
    saving
}

/// Names in a directory.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn is_saved(path: &Path, slots: usize) -> bool {
    fs::read(path).unwrap() == vec![5; slots * SLOT]
}

/// Runs one test of this file alone in a process of its own, in a directory for it.
fn alone(test: &str, program: &[&str], directory: &Path) -> std::process::Output {
    let exe = std::env::current_exe().unwrap();
    let exe = exe.to_str().unwrap();
    let all: Vec<_> = program.iter().copied().chain([exe, "--exact", test, "--ignored", "--nocapture"]).collect();
    Command::new(all[0]).args(&all[1..]).current_dir(directory).output().unwrap()
}

/// The file of a relative path lies where the working directory was when the save began, whatever that is called later.
#[test]
fn a_save_ends_in_the_directory_in_which_it_began() {
    limit();
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    fs::create_dir(here.join("begin")).unwrap();
    let out = alone("changes_its_directory", &[], &here.join("begin"));
    assert!(out.status.success(), "{out:?}");
    if names(here) != ["moved"] {
        return faultless_testkit::skip("no region of which snapshots can be had");
    }
    assert_eq!(names(&here.join("moved")), ["state"]);
    assert!(is_saved(&here.join("moved/state"), 4));
}

#[test]
#[ignore = "a part of another test, which runs it in a process of its own"]
fn changes_its_directory() {
    let Some((_region, snapshot)) = taken(4) else { return };
    let begin: PathBuf = std::env::current_dir().unwrap();
    let saving = Save::new().rate(40 << 20).start(&snapshot, "state".as_ref()).unwrap();
    std::env::set_current_dir("/").unwrap();
    fs::rename(&begin, begin.with_file_name("moved")).unwrap();
    assert_eq!(saving.wait(), Ok(4 * SLOT));
}

/// What a process left that was killed, a later one of the same number does not meet. In a container all have the same.
#[test]
fn a_process_of_the_number_of_one_that_was_killed_saves() {
    limit();
    let directory = tempfile::tempdir().unwrap();
    // The first process of a namespace cannot kill itself.
    let second = ["sh", "-c", "\"$@\"; exit $?", "sh"];
    let namespace = [&["unshare", "--user", "--map-root-user", "--pid", "--fork"][..], &second].concat();
    let can = Command::new(namespace[0]).args(&namespace[1..]).arg("true").status();
    let namespace = match can {
        Ok(status) if status.success() => &namespace[..],
        // Without a namespace of its own the number is another, and the rest the same.
        _ => &[],
    };
    let out = alone("is_killed_as_it_saves", namespace, directory.path());
    if names(directory.path()).is_empty() {
        return faultless_testkit::skip("no region of which snapshots can be had");
    }
    assert!(!out.status.success(), "it was not killed: {out:?}");
    let out = alone("saves", namespace, directory.path());
    assert!(out.status.success(), "{out:?}");
    assert!(is_saved(&directory.path().join("state"), 2));
    let left = names(directory.path());
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left.iter().any(|name| name.starts_with("state.partial-")), "{left:?}");
}

#[test]
#[ignore = "a part of another test, which runs it in a process of its own"]
fn is_killed_as_it_saves() {
    let Some((_region, snapshot)) = taken(2) else { return };
    let _saving = slow(&snapshot, "state".as_ref());
    // SAFETY: the process ends.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

#[test]
#[ignore = "a part of another test, which runs it in a process of its own"]
fn saves() {
    let Some((_region, snapshot)) = taken(2) else { return };
    assert_eq!(Save::new().start(&snapshot, "state".as_ref()).unwrap().wait(), Ok(2 * SLOT));
}

/// A program may close descriptors that it does not know.
#[test]
fn a_save_whose_file_was_closed_leaves_nothing() {
    limit();
    let directory = tempfile::tempdir().unwrap();
    let out = alone("closes_all_descriptors", &[], directory.path());
    assert!(out.status.success(), "{out:?}");
    assert_eq!(names(directory.path()), Vec::<String>::new());
}

#[test]
#[ignore = "a part of another test, which runs it in a process of its own"]
fn closes_all_descriptors() {
    let Some((_region, snapshot)) = taken(2) else { return };
    let saving = Save::new().rate(2 << 20).start(&snapshot, "state".as_ref()).unwrap();
    // SAFETY: what a program may do that is not aware of libraries.
    assert_eq!(unsafe { libc::close_range(3, u32::MAX, 0) }, 0);
    assert!(saving.wait().is_err());
}

/// Each name that a file may have, a saved one may have.
#[test]
fn names_may_be_as_long_as_names_can_be() {
    let Some((_region, snapshot)) = taken(1) else { return };
    let directory = tempfile::tempdir().unwrap();
    for name in ["n".repeat(255), "ü".repeat(127), "a".into()] {
        let path = directory.path().join(name);
        let (one, other) = (Save::new().start(&snapshot, &path), Save::new().start(&snapshot, &path));
        assert_eq!([one, other].map(|saving| saving.unwrap().wait()), [Ok(SLOT); 2]);
        assert!(is_saved(&path, 1));
    }
    assert_eq!(names(directory.path()).len(), 3);
    let too_long = Save::new().start(&snapshot, &directory.path().join("n".repeat(256)));
    assert_eq!(too_long.err(), Some(Error::Kernel(libc::ENAMETOOLONG)));
}

/// What cannot become a file is refused before anything is written, and left as it was.
#[test]
fn what_is_no_file_is_refused_at_once() {
    let Some((region, snapshot)) = taken(1) else { return };
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("directory")).unwrap();
    let _socket = UnixListener::bind(at("socket")).unwrap();
    let fifo = CString::new(at("fifo").into_os_string().into_encoded_bytes()).unwrap();
    // SAFETY: a path that ends with a zero byte.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
    let save = |path: &Path| Save::new().start(&snapshot, path).err();
    assert_eq!(save(&at("directory")), Some(Error::Kernel(libc::EISDIR)));
    assert_eq!(save(&at("directory/")), Some(Error::Kernel(libc::EISDIR)));
    assert_eq!(save(&at("directory/..")), Some(Error::Kernel(libc::EISDIR)));
    assert_eq!(save(&at("nowhere/state")), Some(Error::Kernel(libc::ENOENT)));
    assert_eq!(save(&at("fifo/state")), Some(Error::Kernel(libc::ENOTDIR)));
    for name in ["socket", "fifo"] {
        assert_eq!(save(&at(name)), Some(Error::NoFile), "{name}");
    }
    assert_eq!(save("/dev/null".as_ref()), Some(Error::NoFile));
    assert_eq!(names(directory.path()).len(), 3);
    // A link is replaced, and what it led to stays.
    fs::write(at("file"), "old").unwrap();
    std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
    assert_eq!(Save::new().start(&snapshot, &at("link")).unwrap().wait(), Ok(SLOT));
    assert_eq!(fs::read(at("file")).unwrap(), b"old");
    assert!(fs::symlink_metadata(at("link")).unwrap().is_file() && is_saved(&at("link"), 1));
    // Nor is anything begun that cannot be done.
    let (ended, path) = (at("ended"), at("forked"));
    // SAFETY: the child makes system calls and small allocations, and ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(60);
            libc::_exit((save(&path) != Some(Error::Forked)) as i32);
        }
        let mut status = -1;
        assert_eq!((libc::waitpid(child, &mut status, 0), status), (child, 0));
    }
    drop(region);
    assert_eq!(save(&ended), Some(Error::Ended));
    assert_eq!(names(directory.path()).len(), 5);
}

/// A directory that may be written to suffices.
#[test]
fn a_directory_need_not_be_readable() {
    limit();
    let directory = tempfile::tempdir().unwrap();
    let shut = directory.path().join("shut");
    fs::create_dir(&shut).unwrap();
    let out = alone("saves_where_it_may_not_read", &[], directory.path());
    fs::set_permissions(&shut, Permissions::from_mode(0o700)).unwrap();
    assert!(out.status.success(), "{out:?}");
    match &names(&shut)[..] {
        [] => faultless_testkit::skip("no region of which snapshots can be had"),
        left => assert!(left == ["state"] && is_saved(&shut.join("state"), 1), "{left:?}"),
    }
}

#[test]
#[ignore = "a part of another test, which runs it in a process of its own"]
fn saves_where_it_may_not_read() {
    let Some((_region, snapshot)) = taken(1) else { return };
    let directory = Path::new("shut");
    fs::set_permissions(directory, Permissions::from_mode(0o333)).unwrap();
    let saved = thread::spawn(move || {
        // SAFETY: a system call of this thread alone, from which the one that writes is started. It takes away what
        // lets root read everything; another user has none of it.
        unsafe {
            let header = [0x2008_0522_u32, 0];
            let none = [0_u32; 6];
            libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr());
        }
        assert!(fs::read_dir(directory).is_err(), "it may be read");
        Save::new().start(&snapshot, &directory.join("state")).unwrap().wait()
    });
    assert_eq!(saved.join().unwrap(), Ok(SLOT));
}

/// What waits for its turn is ended at once: otherwise this would take hours.
#[test]
fn what_waits_for_the_rate_can_be_ended() {
    let Some((region, snapshot)) = taken(3) else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let saving = slow(&snapshot, &path);
    saving.cancel();
    assert!(saving.is_done() && saving.ready() == SLOT);
    let saving = slow(&snapshot, &path);
    thread::scope(|scope| {
        let waits = [(); 2].map(|()| scope.spawn(|| saving.wait()));
        thread::yield_now();
        drop(region);
        for wait in waits {
            assert_eq!(wait.join().unwrap(), Err(Error::Ended));
        }
    });
}

/// A thread that waits hears of signals.
#[test]
fn who_waits_for_a_save_hears_of_signals() {
    static HEARD: AtomicBool = AtomicBool::new(false);
    extern "C" fn hear(_: i32) {
        HEARD.store(true, Ordering::SeqCst);
    }
    let Some((_region, snapshot)) = taken(3) else { return };
    // SAFETY: the handler sets a flag.
    unsafe { libc::signal(libc::SIGUSR1, hear as *const () as libc::sighandler_t) };
    let directory = tempfile::tempdir().unwrap();
    let saving = slow(&snapshot, &directory.path().join("state"));
    thread::scope(|scope| {
        let (tell, told) = channel();
        let saving = &saving;
        scope.spawn(move || {
            // SAFETY: no memory is given.
            let me = unsafe { (libc::pthread_self(), libc::gettid()) };
            tell.send(me).unwrap();
            saving.wait()
        });
        let (thread, number) = told.recv().unwrap();
        let state = || fs::read_to_string(format!("/proc/self/task/{number}/stat")).unwrap();
        while !state().contains(") S ") {
            thread::yield_now();
        }
        // SAFETY: it has not ended: nothing ends what it waits for but this test.
        unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
        while !HEARD.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        assert!(!saving.is_done());
        saving.cancel();
    });
}

/// A wait for so long at most says that the work goes on, and else what a wait says.
#[test]
fn a_wait_may_end_before_the_work() {
    let Some((region, snapshot)) = taken(3) else { return };
    let directory = tempfile::tempdir().unwrap();
    let saving = slow(&snapshot, &directory.path().join("state"));
    for timeout in [Duration::ZERO, Duration::from_millis(1)] {
        assert_eq!(saving.wait_timeout(timeout), Ok(None));
    }
    saving.cancel();
    assert_eq!(saving.wait_timeout(Duration::MAX), Err(Error::Cancelled));
    assert_eq!(
        region.populate_in_background(0..3 * SLOT).unwrap().wait_timeout(Duration::MAX),
        Ok(Some(3 * SLOT))
    );
    let populating = region.populate_in_background(0..3 * SLOT).unwrap();
    let ready = loop {
        if let Some(ready) = populating.wait_timeout(Duration::from_millis(1)).unwrap() {
            break ready;
        }
    };
    assert_eq!(ready, 3 * SLOT);
}

/// A save that was cancelled is not taken for one that was done.
#[test]
fn a_cancelled_save_is_an_error_for_all_who_wait() {
    let Some((region, snapshot)) = taken(3) else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let saving = slow(&snapshot, &path);
    thread::scope(|scope| {
        let waits = [(); 3].map(|()| scope.spawn(|| saving.wait()));
        thread::yield_now();
        saving.cancel();
        for wait in waits {
            assert_eq!(wait.join().unwrap(), Err(Error::Cancelled));
        }
    });
    assert_eq!(saving.wait(), Err(Error::Cancelled));
    assert!(!path.exists());
    // Too late for that.
    let saving = Save::new().start(&snapshot, &path).unwrap();
    assert_eq!(saving.wait(), Ok(3 * SLOT));
    saving.cancel();
    assert_eq!(saving.wait(), Ok(3 * SLOT));
    // Nor what else was cancelled.
    let populating = region.populate_in_background(0..3 * SLOT).unwrap();
    populating.cancel();
    let is_all = populating.ready() == populating.bytes();
    assert_eq!(populating.wait(), if is_all { Ok(3 * SLOT) } else { Err(Error::Cancelled) });
}

/// What a save has written so far is gone when its end is told, though there is still a handle.
#[test]
fn what_ends_early_leaves_nothing() {
    let Some((region, snapshot)) = taken(3) else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let cancelled = slow(&snapshot, &path);
    assert_eq!(names(directory.path()).len(), 1);
    cancelled.cancel();
    assert!(cancelled.is_done() && names(directory.path()).is_empty());
    let ended = slow(&snapshot, &path);
    drop(region);
    while !ended.is_done() {
        thread::yield_now();
    }
    assert!(names(directory.path()).is_empty());
    assert_eq!(ended.wait(), Err(Error::Ended));
}

/// Bytes that are in memory anyway are written as a snapshot is.
#[test]
fn bytes_are_saved_as_snapshots_are() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    fs::write(&path, "something longer").unwrap();
    Save::new().header(*b"head").write(b"bytes", &path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"headbytes");
    assert_eq!(Save::new().write(b"", "/dev/null".as_ref()), Err(Error::NoFile));
    for ends in [false, true] {
        let mut file = Save::new().header(*b"more").create(&path).unwrap();
        file.write(b"by").unwrap();
        file.write(b"tes").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"headbytes");
        if ends {
            file.end().unwrap();
        }
    }
    assert_eq!(fs::read(&path).unwrap(), b"morebytes");
    assert_eq!(names(directory.path()), ["state"]);
}

/// How many pages of the first `bytes` of a file are in the page cache.
fn cached(path: &Path, bytes: usize) -> usize {
    let file = fs::File::open(path).unwrap();
    let (none, mut pages) = (std::ptr::null_mut(), vec![0_u8; bytes / PAGE]);
    // SAFETY: a new mapping, and a byte for each of its pages.
    unsafe {
        let at = libc::mmap(none, bytes, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0);
        assert_ne!(at, libc::MAP_FAILED);
        assert_eq!(libc::mincore(at, bytes, pages.as_mut_ptr()), 0);
        libc::munmap(at, bytes);
    }
    pages.iter().filter(|page| **page & 1 != 0).count()
}

/// Whole pages behind whole pages go past the page cache, where the file system is one that does that. A part that does
/// not end with a block goes through it, and so does all that stands behind a header of another length.
#[test]
fn what_goes_past_the_page_cache_is_what_was_there() {
    let Some((mut region, _)) = taken(4) else { return };
    let bytes = region.as_mut_slice().unwrap();
    bytes.chunks_mut(8).enumerate().for_each(|(i, word)| word.copy_from_slice(&i.to_le_bytes()));
    bytes[SLOT..2 * SLOT].fill(0);
    let expected = bytes.to_vec();
    let snapshot = region.snapshot().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let mut about = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    let name = CString::new(directory.path().as_os_str().as_bytes()).unwrap();
    // SAFETY: a name that ends, and room for the answer, which is numbers.
    let kind = unsafe { (libc::statfs(name.as_ptr(), about.as_mut_ptr()), about.assume_init().f_type).1 };
    let does = [libc::EXT4_SUPER_MAGIC, libc::XFS_SUPER_MAGIC].contains(&kind);
    for header in [0, PAGE, 100] {
        for part in [0..4 * SLOT, 4096..4 * SLOT - 512, 3000..3 * SLOT + 7] {
            let head = vec![b'h'; header];
            let saving = Save::new().header(head.clone()).part(part.clone()).start(&snapshot, &path).unwrap();
            saving.wait().unwrap();
            if does {
                // The last part of all is not whole.
                let is_direct = cached(&path, 2 * SLOT) <= header / PAGE;
                assert_eq!(is_direct, header.is_multiple_of(PAGE), "a header of {header} bytes, {part:?}");
            }
            let file = fs::read(&path).unwrap();
            assert!(file[..header] == head && file[header..] == expected[part.clone()], "{header}, {part:?}");
        }
    }
    if !does {
        faultless_testkit::skip("no file system here of which it is known that it writes past the page cache");
    }
}
