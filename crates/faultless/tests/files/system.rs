//! What the system refuses: a full or read-only file system, descriptors; and files that others remove or cut.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use faultless::file::{File, sync_all};
use faultless::region::Error;

use crate::lazy::{BOTH, can_be_lazy};
use crate::{PAGE, SLOT, budget, bytes, filled, hole, mapped, named, passes_in_child, read_all};

/// Mounts a tmpfs, or changes one, which this thread alone sees.
fn mount(at: &Path, flags: libc::c_ulong, options: &str) {
    let at = CString::new(at.as_os_str().as_bytes()).unwrap();
    let (kind, options) = (c"tmpfs".as_ptr(), CString::new(options).unwrap());
    // SAFETY: strings that end with a zero byte.
    assert_eq!(unsafe { libc::mount(kind, at.as_ptr(), kind, flags, options.as_ptr().cast()) }, 0);
}

/// Does a test in a child that may mount what it wants; its folder. Nothing where that takes other rights.
fn passes_with_mounts(test: impl Fn(&Path)) {
    // SAFETY: a question.
    if unsafe { libc::geteuid() } != 0 {
        return faultless_testkit::skip_optional("mounting takes root");
    }
    let folder = tempfile::tempdir().unwrap();
    let passes = passes_in_child(|| {
        let none = std::ptr::null();
        // SAFETY: the mounts are this child's alone.
        unsafe {
            assert_eq!(libc::unshare(libc::CLONE_NEWNS), 0);
            assert_eq!(libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast()), 0);
        }
        test(folder.path());
    });
    assert!(passes);
}

/// A sync tells of it once to each handle, and the bytes stay. When there is room they are written.
#[test]
fn a_full_file_system_is_told_of_and_nothing_is_lost() {
    let _alone = budget(64 << 20);
    passes_with_mounts(|folder| {
        mount(folder, 0, "size=1m");
        let path = folder.join("data");
        fs::write(&path, b"").unwrap();
        let file = File::open_writable(&path).unwrap();
        let other = File::open_writable(&path).unwrap();
        let all = bytes(3 * SLOT + 5, 3);
        assert_eq!(file.write_at(&all, 0).unwrap(), all.len());
        assert_eq!(file.sync().unwrap_err().raw_os_error(), Some(libc::ENOSPC));
        file.drop_cache();
        assert!(read_all(&file) == all && mapped(&other.map(0, all.len()).unwrap()) == all);
        mount(folder, libc::MS_REMOUNT, "size=16m");
        assert_eq!(
            other.sync().unwrap_err().raw_os_error(),
            Some(libc::ENOSPC),
            "it is told what the first one met"
        );
        other.sync().unwrap();
        file.sync().unwrap();
        assert!(fs::read(&path).unwrap() == all);
    });
}

#[test]
fn a_file_on_a_read_only_system_is_read() {
    let _alone = budget(64 << 20);
    passes_with_mounts(|folder| {
        mount(folder, 0, "size=16m");
        let (path, all) = (folder.join("data"), bytes(SLOT + 5, 3));
        fs::write(&path, &all).unwrap();
        mount(folder, libc::MS_REMOUNT | libc::MS_RDONLY, "");
        assert_eq!(File::open_writable(&path).err().unwrap().raw_os_error(), Some(libc::EROFS));
        let file = File::open(&path).unwrap();
        for refused in [file.write_at(b"x", 0).map(drop), file.set_len(1), file.punch_hole(0..5), file.sync()] {
            assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EBADF));
        }
        assert!(read_all(&file) == all && mapped(&file.map(0, all.len()).unwrap()) == all);
        if let Ok(lazy) = file.map_lazy(0, all.len()) {
            assert!(mapped(&lazy) == all);
        }
    });
}

/// An open file goes on, by its handle and by a mapping. The name is another file's.
#[test]
fn a_file_that_was_removed_goes_on() {
    let _alone = budget(4 << 20);
    let (mut all, named) = filled(4 * SLOT + 9, 3);
    let file = File::open_writable(named.path()).unwrap();
    let lazy = can_be_lazy().then(|| file.map_lazy_mut(0, all.len()).unwrap());
    fs::remove_file(named.path()).unwrap();
    fs::write(named.path(), b"another").unwrap();
    assert_eq!(read_all(&File::open(named.path()).unwrap()), b"another");
    file.write_at(b"by a call", SLOT as u64 - 3).unwrap();
    all[SLOT - 3..SLOT + 6].copy_from_slice(b"by a call");
    if let Some(lazy) = &lazy {
        lazy.write(3 * SLOT, b"by a mapping").unwrap();
        all[3 * SLOT..][..12].copy_from_slice(b"by a mapping");
    }
    file.sync().unwrap();
    file.drop_cache();
    assert!(read_all(&file) == all && lazy.is_none_or(|lazy| mapped(&lazy) == all));
    drop(file);
    assert_eq!(fs::read(named.path()).unwrap(), b"another");
}

/// A file needs some of its own to be opened. Open files go on without any more.
#[test]
fn without_descriptors_no_file_is_opened_and_open_ones_go_on() {
    let _alone = budget(4 << 20);
    let (all, first) = filled(4 * SLOT, 3);
    let second = named(&bytes(PAGE, 1));
    let test = || {
        let file = File::open_writable(first.path()).unwrap();
        let lazy = file.map_lazy(0, all.len()).ok();
        let open = |path| fs::File::options().read(true).write(true).open(path).unwrap();
        let (mine, number) = (open(second.path()), fs::read_dir("/proc/self/fd").unwrap().count() as u64);
        for more in 0..4 {
            let limit = libc::rlimit { rlim_cur: number - 1 + more, rlim_max: 1024 };
            // SAFETY: a structure that is read by the call.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
            match File::new(&mine) {
                Ok(file) => {
                    assert!(read_all(&file) == bytes(PAGE, 1));
                    if let Some(error) = file.map_lazy(0, PAGE).err().filter(|_| lazy.is_some()) {
                        let why = error.get_ref().and_then(|why| why.downcast_ref());
                        assert!(matches!(why, Some(Error::NoUserfaultfd(libc::EMFILE))), "{error}");
                    }
                }
                Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EMFILE)),
            }
            file.drop_cache();
            file.prefetch(&[0..SLOT as u64, 2 * SLOT as u64..3 * SLOT as u64]).unwrap();
            assert!(read_all(&file) == all && lazy.as_ref().is_none_or(|lazy| mapped(lazy) == all));
            file.write_at(&all[..PAGE], 0).unwrap();
            file.sync().unwrap();
            sync_all().unwrap();
        }
    };
    assert!(passes_in_child(test));
}

/// The test that does this again, in a process that a signal ends.
const CUT: &str = "FAULTLESS_TEST_CUT";

/// Another process makes a file shorter that is mapped lazily: an access behind the new end is a SIGBUS that says why,
/// and never zeroes. A call has the error, and the rest is there.
#[test]
fn a_lazy_mapping_of_a_file_that_others_cut_is_an_error() {
    let Ok(which) = std::env::var(CUT) else {
        let _alone = budget(64 << 20);
        for which in if can_be_lazy() { ["0", "1"].as_slice() } else { &[] } {
            let mut run = Command::new(std::env::current_exe().unwrap());
            run.args(["system::a_lazy_mapping_of_a_file_that_others_cut_is_an_error", "--exact", "--nocapture"]);
            let run = run.env(CUT, which).output().unwrap();
            let said = String::from_utf8_lossy(&run.stderr);
            assert_eq!(run.status.signal(), Some(libc::SIGBUS), "{said}");
            assert!(
                said.contains("so far") && said.contains("(error 5)") && !said.contains("it was read"),
                "{said}"
            );
        }
        return;
    };
    let _alone = budget(64 << 20);
    let (all, named) = filled(3 * SLOT, 5);
    let file = File::open(named.path()).unwrap();
    file.deliver(BOTH[which.parse::<usize>().unwrap()]).unwrap();
    let mapping = file.map_lazy(0, all.len()).unwrap();
    named.as_file().set_len((SLOT + PAGE) as u64).unwrap();
    // SAFETY: no thread writes.
    let memory = unsafe { mapping.as_slice() };
    assert!(memory[..SLOT + PAGE] == all[..SLOT + PAGE]);
    let mut got = [0; 10];
    assert_eq!(mapping.read(2 * SLOT, &mut got).unwrap_err().raw_os_error(), Some(libc::EIO));
    eprintln!("so far");
    std::hint::black_box(memory[2 * SLOT + PAGE]);
    eprintln!("it was read");
}

/// Files of any length, also of holes alone, are mapped, written and synced by each kind of mapping.
#[test]
fn mappings_of_files_of_any_length_end_where_the_file_does() {
    let _alone = budget(64 << 20);
    let is_lazy = can_be_lazy();
    for n in [0, 1, PAGE - 1, PAGE, PAGE + 1, SLOT - 1, SLOT, SLOT + 1, 2 * SLOT + 3 * PAGE + 7] {
        for (kind, is_sparse) in [(0, false), (1, false), (2, false), (0, true), (1, true), (2, true)] {
            let named = if is_sparse { hole(n as u64) } else { named(&bytes(n, 4)) };
            let mut all = if is_sparse { vec![0; n] } else { bytes(n, 4) };
            let file = File::open_writable(named.path()).unwrap();
            let map = [File::map_mut, File::map_lazy_mut, File::map_private][kind];
            if kind > 0 && !is_lazy {
                continue;
            }
            let mapping = map(&file, 0, n).unwrap();
            assert!(mapped(&mapping) == all, "{n} bytes, {kind}");
            assert!(mapping.write(n, b"x").is_err() && map(&file, 0, n + 1).is_err());
            if n > 0 {
                mapping.write(n - 1, b"x").unwrap();
            }
            drop(mapping);
            if let Some(last) = all.last_mut().filter(|_| kind < 2) {
                *last = b'x';
            }
            file.sync().unwrap();
            assert!(fs::read(named.path()).unwrap() == all && read_all(&file) == all, "{n} bytes, {kind}");
        }
    }
}
