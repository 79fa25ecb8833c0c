//! Programs that read large files, which `faultless run --files` brings ahead of them: they print what they print plain.

use std::path::Path;
use std::process::{Command, Output};

use faultless_e2e::{command, need, python, scratch, script, skip};
use faultless_testkit::{cached, uncache};

const BYTES: &str = "25165824";

/// Runs a program plain and with `files` brought, each from a cold page cache of `file`.
fn same(file: &Path, files: &Path, program: &Path, args: &[&str], dir: &Path) {
    let run = |mut command: Command| -> Output {
        command.args(args).current_dir(dir).env("LC_ALL", "C").output().expect("it runs")
    };
    if !uncache(file) {
        return skip("temporary files are in memory");
    }
    let plain = run(Command::new(program));
    assert!(plain.status.success(), "{}", String::from_utf8_lossy(&plain.stderr));
    uncache(file);
    let mut under = command(["run", "--quiet", "--files"]);
    under.arg(files).arg("--").arg(program);
    let brought = run(under);
    assert_eq!((plain.status, &plain.stdout, &plain.stderr), (brought.status, &brought.stdout, &brought.stderr));
    // The program reads all of it.
    assert!(cached(file) >= std::fs::metadata(file).expect("it is there").len(), "{}", file.display());
}

/// A script of the benches that makes its file, and then reads it.
fn reads(name: &str) {
    let Some(python) = python() else { return };
    let dir = scratch();
    let (script, file) = (script("../../bench/src/programs/scripts").join(name), dir.path().join("file"));
    let args = [script.to_str().expect("a path"), file.to_str().expect("a path"), BYTES];
    let made = Command::new(&python).args(args).output().expect("it runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    same(&file, &file, &python, &args, dir.path());
}

#[test]
fn numpy_adds_up_a_mapped_array() {
    reads("npy.py");
}

#[test]
fn safetensors_loads_all_tensors() {
    reads("weights.py");
}

#[test]
fn git_checks_a_pack() {
    let Some(git) = need("git") else { return };
    let dir = scratch();
    let run = |args: &[&str]| {
        let mut command = Command::new(&git);
        command.args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "core.compression=0"]);
        let made = command.args(args).current_dir(dir.path()).output().expect("it runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    };
    let text: String = (0..1 << 20).map(|i| format!("{i}\n")).collect();
    std::fs::write(dir.path().join("text"), text).expect("a file");
    for args in [&["init", "-q"][..], &["add", "."], &["commit", "-qm", "a"], &["repack", "-adq"]] {
        run(args);
    }
    let packs = dir.path().join(".git/objects/pack");
    let is_pack = |path: &std::path::PathBuf| path.extension().is_some_and(|end| end == "pack");
    let entries = std::fs::read_dir(&packs).expect("packs").flatten().map(|entry| entry.path());
    let pack = entries.into_iter().find(is_pack).expect("a pack");
    same(&pack, &packs.join("*.pack"), &git, &["fsck", "--full", "--no-progress"], dir.path());
}
