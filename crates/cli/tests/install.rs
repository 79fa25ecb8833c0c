//! The script that installs a tarball: where it puts files, and what it refuses.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use common::{Scratch, text};

const FILES: [&str; 3] =
    ["bin/faultless", "lib/faultless/libfaultless_preload.so", "share/doc/faultless/README.md"];

fn unpack(to: &Path) {
    for file in FILES {
        let file = to.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "x").unwrap();
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/install.sh");
    fs::copy(script, to.join("install.sh")).unwrap();
}

#[test]
fn a_relative_prefix_is_one_of_the_caller() {
    let scratch = Scratch::new("install");
    let (unpacked, caller) = (scratch.0.join("unpacked"), scratch.0.join("caller"));
    unpack(&unpacked);
    fs::create_dir(&caller).unwrap();
    let install = |args: &[&str]| -> Output {
        Command::new("../unpacked/install.sh").args(args).current_dir(&caller).output().unwrap()
    };
    let has = |prefix: &str| FILES.map(|file| caller.join(prefix).join(file).exists());
    let out = install(&["a prefix"]);
    assert!(out.status.success() && has("a prefix") == [true; 3], "{}", text(&out.stderr));
    assert!(!unpacked.join("a prefix").exists());
    for words in [&["a prefix", "--remove"][..], &["a", "b"], &["--remove", "a", "b"], &["--help"], &[""]] {
        let out = install(words);
        assert!(out.status.code() == Some(2) && text(&out.stderr).starts_with("usage:"), "{words:?}");
        assert_eq!(fs::read_dir(&caller).unwrap().count(), 1, "{words:?}");
    }
    let absolute = caller.join("absolute");
    assert!(install(&[absolute.to_str().unwrap()]).status.success() && has("absolute") == [true; 3]);
    for prefix in ["a prefix", absolute.to_str().unwrap()] {
        assert!(install(&["--remove", prefix]).status.success());
        assert_eq!(has(prefix), [false; 3]);
    }
    assert_eq!(FILES.map(|file| unpacked.join(file).exists()), [true; 3]);
}
