//! `faultless run --files`: what comes into the page cache, and what is said of it.

mod common;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use common::{Scratch, run, text};
use faultless_testkit::lease::{has_write_lease, write_lease};
use faultless_testkit::{cached, skip, uncache};
use serde_json::Value;

const MIB: u64 = 1 << 20;
/// No multiple of a piece, of a huge page, nor of a page.
const ODD: u64 = 9 * MIB + 4097;

/// A file of which the page cache has nothing; `None` where it would stay there.
fn cold(path: PathBuf, bytes: u64) -> Option<PathBuf> {
    let block: Vec<u8> = (0..MIB).map(|i| (i % 251) as u8).collect();
    let mut file = File::create(&path).unwrap();
    for at in (0..bytes).step_by(MIB as usize) {
        file.write_all(&block[..(bytes - at).min(MIB) as usize]).unwrap();
    }
    uncache(&path).then_some(path)
}

/// The same of two files. Says when it is skipped.
fn cold_files(scratch: &Scratch) -> Option<[PathBuf; 2]> {
    let [a, b] = ["a", "b"].map(|name| cold(scratch.0.join(format!("{name}.bin")), ODD));
    let both = a.zip(b).map(|(a, b)| [a, b]);
    if both.is_none() {
        skip("temporary files are in memory");
    }
    both
}

/// Runs `cat` until nothing more is brought; what it printed, and what the file of `--json` says.
fn until_brought(scratch: &Scratch, mut command: Command) -> (Output, Value) {
    let json = scratch.0.join("it.json");
    command.arg("--json").arg(&json).args(["--", "cat"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"first\n").unwrap();
    // It has begun to bring them when it waits for the program's signals, and is done when it has one thread again.
    let is_waiting = || {
        let call = fs::read_to_string(format!("/proc/{}/syscall", child.id())).unwrap();
        call.split(' ').next() == Some(&libc::SYS_rt_sigtimedwait.to_string())
    };
    let threads = || fs::read_dir(format!("/proc/{}/task", child.id())).unwrap().count();
    while !is_waiting() || threads() > 1 {
        sleep(Duration::from_millis(5));
    }
    input.write_all(b"last\n").unwrap();
    drop(input);
    let out = child.wait_with_output().unwrap();
    assert_eq!((out.status.code(), text(&out.stdout)), (Some(0), "first\nlast\n"), "{}", text(&out.stderr));
    let json = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    (out, json)
}

fn number(files: &Value, name: &str) -> u64 {
    files[name].as_u64().unwrap_or_else(|| panic!("{name} in {files}"))
}

/// Whole pages.
fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(4096) * 4096
}

#[test]
fn named_files_come_into_the_page_cache() {
    let scratch = Scratch::new("named");
    let Some(both) = cold_files(&scratch) else { return };
    let (out, json) = until_brought(&scratch, run(["--files", scratch.0.join("*.bin").to_str().unwrap()]));
    assert_eq!(both.each_ref().map(|path| cached(path)), [pages(ODD); 2]);
    let files = &json["files"];
    assert_eq!(["files", "bytes", "brought_bytes"].map(|name| number(files, name)), [2, 2 * ODD, 2 * ODD]);
    assert_eq!(
        (&files["cached_bytes"], &files["stopped"], &files["skipped"]),
        (&0.into(), &Value::Null, &Value::Array(vec![]))
    );
    assert!(text(&out.stderr).contains("files brought into memory"), "{}", text(&out.stderr));
    // The second time they are there.
    let (_, json) = until_brought(&scratch, run(["--files", scratch.0.to_str().unwrap()]));
    let files = &json["files"];
    assert_eq!(number(files, "brought_bytes") + number(files, "cached_bytes"), number(files, "bytes"));
    assert!(number(files, "cached_bytes") >= 2 * ODD, "{files}");
}

/// Without anything to say the command stays all the same.
#[test]
fn quiet_brings_them_too() {
    let scratch = Scratch::new("quiet");
    let Some([a, _]) = cold_files(&scratch) else { return };
    let (out, _) = until_brought(&scratch, run(["--quiet", "--files", a.to_str().unwrap()]));
    assert_eq!((text(&out.stderr), cached(&a)), ("", pages(ODD)));
}

#[test]
fn of_a_sparse_file_only_the_data_comes() {
    const END: u64 = 1 << 40;
    let scratch = Scratch::new("sparse");
    let path = scratch.0.join("sparse");
    let file = File::create(&path).unwrap();
    file.write_all_at(b"data", 3).unwrap();
    if file.write_all_at(b"data", END - 4).is_err() || !uncache(&path) {
        return skip("no sparse file of 1 TiB");
    }
    let (_, json) = until_brought(&scratch, run(["--files", path.to_str().unwrap()]));
    let files = &json["files"];
    assert_eq!(number(files, "brought_bytes") + number(files, "hole_bytes"), END, "{files}");
    assert!((8192..=16 * MIB).contains(&cached(&path)), "{} of {files}", cached(&path));
}

#[test]
fn what_cannot_be_brought_is_named_and_the_program_runs() {
    let scratch = Scratch::new("odd");
    let fifo = scratch.0.join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    fs::write(scratch.0.join("empty"), "").unwrap();
    // No writer ever comes, and none is waited for.
    for (what, said) in [
        (fifo.to_str().unwrap(), "it names no regular file"),
        ("/dev/zero", "it names no regular file"),
        (scratch.0.join("none*").to_str().unwrap(), "it names nothing"),
    ] {
        let (out, json) = until_brought(&scratch, run(["--files", what]));
        assert!(text(&out.stderr).contains(said), "{what}: {}", text(&out.stderr));
        assert_eq!(json["files"]["stopped"], "no file was named", "{what}");
    }
    let (_, json) = until_brought(&scratch, run(["--files", scratch.0.join("[ef]*").to_str().unwrap()]));
    assert_eq!(["files", "bytes", "brought_bytes"].map(|name| number(&json["files"], name)), [1, 0, 0]);
    // One that cannot be mapped, and one that is memory.
    let setting = Path::new("/sys/kernel/mm/transparent_hugepage/enabled");
    if setting.exists() {
        let (_, json) = until_brought(&scratch, run(["--files", setting.to_str().unwrap()]));
        assert_eq!(json["files"]["skipped"][0]["why"], "it cannot be mapped", "{json}");
    }
    let Ok(shared) = tempfile::NamedTempFile::new_in("/dev/shm") else { return skip("no /dev/shm") };
    shared.as_file().set_len(MIB).unwrap();
    let (out, json) = until_brought(&scratch, run(["--files", shared.path().to_str().unwrap()]));
    assert_eq!(json["files"]["skipped"][0]["why"], "its file system is in memory", "{json}");
    assert!(text(&out.stderr).contains("its file system is in memory"), "{}", text(&out.stderr));
}

/// A program may have its process told when another one opens a file: by default that signal ends it.
#[test]
fn a_file_with_a_lease_is_left_alone() {
    let scratch = Scratch::new("lease");
    let Some([a, b]) = cold_files(&scratch) else { return };
    let held = File::options().read(true).write(true).open(&a).unwrap();
    if !write_lease(&held) {
        return skip("no leases here");
    }
    let (_, json) = until_brought(&scratch, run(["--files", scratch.0.join("*.bin").to_str().unwrap()]));
    let files = &json["files"];
    assert_eq!(files["skipped"][0]["why"], "a process has a lease on it", "{files}");
    assert_eq!((cached(&b), number(files, "brought_bytes")), (pages(ODD), ODD));
    assert!(has_write_lease(&held), "the lease was to end");
}

#[test]
fn what_is_no_pattern_runs_nothing() {
    let out = run(["--files", "a[b", "--", "echo", "ran"]).output().unwrap();
    assert_eq!((out.status.code(), text(&out.stdout)), (Some(125), ""));
    assert!(text(&out.stderr).contains("invalid range pattern"), "{}", text(&out.stderr));
}

/// Wherever the end of the program meets them, all bytes are accounted for.
#[test]
fn a_program_that_ends_at_once_ends_it() {
    let scratch = Scratch::new("ends");
    let Some([a, b]) = cold_files(&scratch) else { return };
    for script in ["exit 7", "kill -9 $$", "rm a.bin; exit 7", ": > b.bin; exit 7"] {
        let json = scratch.0.join("it.json");
        let mut command = run([
            "--files",
            a.to_str().unwrap(),
            "--files",
            b.to_str().unwrap(),
            "--json",
            json.to_str().unwrap(),
        ]);
        let out = command.args(["--", "sh", "-c", script]).current_dir(&scratch.0).output().unwrap();
        assert!(matches!(out.status.code(), Some(7) | None), "{script}: {:?}", out.status);
        let json: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
        let files = &json["files"];
        let done: u64 =
            ["brought_bytes", "cached_bytes", "hole_bytes"].iter().map(|name| number(files, name)).sum();
        assert!(done <= number(files, "bytes"), "{files}");
        let is_all = done == number(files, "bytes");
        let is_explained = files["stopped"].is_string() || files["skipped"] != Value::Array(vec![]);
        assert!(is_all || is_explained || script.contains("b.bin"), "{script}: {files}");
    }
}

#[test]
fn compared_runs_bring_them() {
    let scratch = Scratch::new("compare");
    let Some([a, _]) = cold_files(&scratch) else { return };
    let out = run(["--compare", "1", "--files"]).arg(&a).args(["--", "cksum"]).arg(&a).output().unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
}
