//! Snapshots that are saved: where their file lies, what it is called, and what ends it early.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use faultless::region::{Delivery, Region, Save, Snapshot};
use faultless_testkit::limit::limit;

const SLOT: usize = 2 << 20;

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
