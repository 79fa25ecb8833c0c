//! A bench that a signal ends leaves nothing behind.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// Files below a folder.
fn below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { below(&path) } else { vec![path] }).collect()
}

fn groups(of: u32) -> Vec<PathBuf> {
    let pattern = format!("/sys/fs/cgroup/**/faultless-bench-{of}-*");
    glob::glob(&pattern).expect("a pattern").flatten().collect()
}

/// Waits for it, as long as the bench goes on.
fn wait(bench: &mut Child, is_there: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_there() {
        assert!(bench.try_wait().expect("a child").is_none(), "the bench ended before");
        assert!(begun.elapsed() < LIMIT, "it never came");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A bench with its files in a folder.
fn bench(place: &Path, words: &[&str], output: Stdio) -> Child {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_faultless-bench"));
    bench.args(words).env("TMPDIR", place).stdout(output).stderr(Stdio::null());
    bench.spawn().unwrap()
}

/// Ends it by a signal: it leaves no file and no control group.
fn end(mut bench: Child, place: &Path) {
    let pid = bench.id();
    assert!(Command::new("kill").arg(pid.to_string()).status().unwrap().success());
    let status = bench.wait().unwrap();
    assert_eq!((status.code(), status.signal()), (Some(128 + libc::SIGTERM), None));
    assert_eq!(fs::read_dir(place).unwrap().count(), 0, "{:?}", below(place));
    assert_eq!(groups(pid), [] as [PathBuf; 0]);
}

#[test]
fn files_and_control_groups_go() {
    let place = tempfile::tempdir().unwrap();
    let mut bench = bench(place.path(), &["hugecache", "--only", "random"], Stdio::null());
    wait(&mut bench, || below(place.path()).iter().any(|path| path.ends_with("large")));
    // Its control group is made when the file is; not every machine lets it have one.
    let is_large =
        || below(place.path()).iter().any(|path| path.metadata().is_ok_and(|about| about.len() >= 256 << 20));
    wait(&mut bench, is_large);
    end(bench, place.path());
}

#[test]
fn the_kernel_swaps_to_no_file_of_the_bench_any_more() {
    let place = tempfile::tempdir().unwrap();
    let name = place.path().display().to_string();
    let swaps = || fs::read_to_string("/proc/swaps").is_ok_and(|files| files.contains(&name));
    let said = tempfile::NamedTempFile::new().unwrap();
    let is_refused = || fs::read_to_string(said.path()).is_ok_and(|said| said.contains("The kernel's swap: "));
    let mut bench = bench(place.path(), &["rmap", "--only", "swap"], said.reopen().unwrap().into());
    wait(&mut bench, || swaps() || is_refused());
    if !swaps() {
        faultless_testkit::skip("the kernel swaps to no file here");
    }
    end(bench, place.path());
    assert!(!swaps());
}
