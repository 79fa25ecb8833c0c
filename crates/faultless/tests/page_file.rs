//! The file of counters that `faultless run` asks for: which it is, and what is where it may not be made.

mod apart;

use std::fs;
use std::path::Path;

use apart::passes_apart;
use faultless::region::{Delivery, Region};

/// A region in this process, which has `dir` for its counters; its memory works.
fn region(dir: &Path) {
    // SAFETY: this process has one thread.
    unsafe { std::env::set_var("FAULTLESS_STATS", dir) };
    let mut region = Region::builder(1 << 20).delivery(Delivery::Kernel).build().unwrap();
    region.as_mut_slice().unwrap()[5] = 1;
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_directory_of_another_namespace_has_another_name() {
    passes_apart(|| {
        let place = tempfile::tempdir().unwrap();
        let own = fs::read_link("/proc/self/ns/pid").unwrap();
        let own = own.to_str().unwrap().strip_prefix("pid:[").unwrap().strip_suffix(']').unwrap();
        let pid = std::process::id();
        for (namespace, expected) in [(own, pid.to_string()), ("1", format!("{pid}.{own}"))] {
            let dir = place.path().join(format!("faultless-7-8-{namespace}-0"));
            fs::create_dir(&dir).unwrap();
            passes_apart(|| {
                let renamed = expected.replace(&pid.to_string(), &std::process::id().to_string());
                region(&dir);
                assert_eq!(names(&dir), [renamed]);
            });
        }
    });
}

/// To make a longer file than the limit would be SIGXFSZ.
#[test]
fn files_are_not_made_longer_than_they_may_be() {
    for (most, is_made) in [(0, false), (4096, false), (1 << 30, true)] {
        passes_apart(|| {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join("lost"), "").unwrap();
            let before = std::time::SystemTime::UNIX_EPOCH;
            fs::File::open(dir.path().join("lost")).unwrap().set_modified(before).unwrap();
            let limit = libc::rlimit { rlim_cur: most, rlim_max: libc::RLIM_INFINITY };
            // SAFETY: this process's own limit.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
            region(dir.path());
            assert_eq!(names(dir.path()).len(), 1 + is_made as usize, "{most} bytes");
            let touched = dir.path().join("lost").metadata().unwrap().modified().unwrap() != before;
            assert_eq!(touched, !is_made, "who reads the counters is told that some are missing");
        });
    }
}

#[test]
fn links_of_others_are_not_followed() {
    passes_apart(|| {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        fs::write(&victim, "").unwrap();
        std::os::unix::fs::symlink(&victim, dir.path().join(std::process::id().to_string())).unwrap();
        region(dir.path());
        assert_eq!(victim.metadata().unwrap().len(), 0);
    });
}
