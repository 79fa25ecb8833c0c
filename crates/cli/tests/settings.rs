//! Settings: which of several counts, and the user's file of them.

mod common;

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use common::{Scratch, faultless, is_root, text};
use faultless_testkit::copy_program;
use faultless_testkit::limit::limit;

/// A directory for a user's settings, and in it the one for those of `faultless`.
fn config(name: &str) -> (Scratch, PathBuf) {
    let config = Scratch::new(name);
    let dir = config.0.join("faultless");
    std::fs::create_dir(&dir).unwrap();
    (config, dir)
}

#[test]
fn a_flag_comes_before_the_environment_and_that_before_the_file() {
    let config = Scratch::new("config");
    let faultless = |args: &[&str]| {
        let mut command = faultless(args);
        command.env("XDG_CONFIG_HOME", &config.0);
        command
    };
    let print =
        ["--", "sh", "-c", "echo $FAULTLESS_BUDGET $FAULTLESS_PREFAULT_BY $FAULTLESS_SCRUB $FAULTLESS_AHEAD"];
    let saved = faultless(&["sysctl", "budget=80M", "prefault_by=thread", "scrub=0"]).output().unwrap();
    assert_eq!(saved.status.code(), Some(0), "{}", text(&saved.stderr));
    let run = |options: &[&str]| {
        let args = [&["run", "--quiet"], options, &print].concat();
        let out =
            faultless(&args).env("FAULTLESS_PREFAULT_BY", "area").env("FAULTLESS_AHEAD", "1").output().unwrap();
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        text(&out.stdout).to_owned()
    };
    assert_eq!(run(&[]), "80M area 0 1\n");
    assert_eq!(run(&["-s", "prefault_by=thread", "-s", "budget=90M", "--no-ahead"]), "90M thread 0 0\n");
    let shown = faultless(&["sysctl", "prefault_by", "budget", "ahead"])
        .env("FAULTLESS_PREFAULT_BY", "area")
        .output()
        .unwrap();
    let words: Vec<_> = text(&shown.stdout).split_whitespace().collect();
    assert_eq!(words.join(" "), "prefault_by = area # environment budget = 80M # file ahead = 1 # default");
    // What the environment says has to be something, too.
    for args in [
        &["sysctl", "budget"][..],
        &["sysctl", "budget=1G"],
        &["run", "--", "echo", "ran"],
        &["stat", "--", "echo"],
    ] {
        let out = faultless(args).env("FAULTLESS_PREFAULT_BY", "lax").output().unwrap();
        assert!(!out.status.success() && text(&out.stdout).is_empty(), "{args:?}");
        assert!(
            text(&out.stderr).contains("FAULTLESS_PREFAULT_BY: \"lax\" is not one of"),
            "{}",
            text(&out.stderr)
        );
    }
    // What is wrong with the file is told with its place, and nothing runs.
    std::fs::write(config.0.join("faultless/settings"), "budget = 80M\nscrb = 0\n").unwrap();
    let out = faultless(&["run", "--", "echo", "ran"]).output().unwrap();
    assert_eq!((out.status.code(), text(&out.stdout)), (Some(125), ""));
    assert!(text(&out.stderr).contains("settings:2: there is no knob \"scrb\"; did you mean scrub?"));
}

#[test]
fn settings_are_not_read_from_a_pipe() {
    limit();
    let (config, dir) = config("pipe");
    assert!(Command::new("mkfifo").arg(dir.join("settings")).status().unwrap().success());
    let out = faultless(["run", "--", "echo", "ran"]).env("XDG_CONFIG_HOME", &config.0).output().unwrap();
    assert_eq!((out.status.code(), text(&out.stdout)), (Some(125), ""));
    assert!(text(&out.stderr).contains("this is a pipe: remove it"), "{}", text(&out.stderr));
}

/// A device may have no end. /dev/null says nothing, and stays what it is.
#[test]
fn settings_are_read_from_a_file() {
    limit();
    let (config, dir) = config("device");
    let settings = dir.join("settings");
    let ran = |args: &[&str]| {
        let out = faultless(args).env("XDG_CONFIG_HOME", &config.0).output().unwrap();
        (out.status.code(), text(&out.stderr).to_owned())
    };
    let program = &["run", "--quiet", "--", "true"];
    for (target, words) in [("/dev/zero", "this is none"), ("/", "this is a directory"), ("/dev/null", "")] {
        std::os::unix::fs::symlink(target, &settings).unwrap();
        let (status, said) = ran(program);
        assert_eq!(status, Some(if words.is_empty() { 0 } else { 125 }), "{target}: {said}");
        assert!(said.contains(words), "{target}: {said}");
        if target != "/" {
            // Where the link leads cannot be replaced by this test's user, and must not be by root.
            let (status, said) = ran(&["sysctl", "scrub=0"]);
            assert_eq!(status, Some(1), "{target}: {said}");
            assert!(!std::path::Path::new(target).metadata().unwrap().is_file(), "{target}");
        }
        std::fs::remove_file(&settings).unwrap();
    }
    std::fs::write(&settings, "#".repeat(2 << 20)).unwrap();
    assert!(ran(program).1.contains("no longer than 1 MiB"));
}

#[test]
fn a_settings_file_that_is_a_link_stays_one() {
    let (config, dir) = config("link");
    let kept = config.0.join("kept");
    std::fs::write(&kept, "# mine\n").unwrap();
    std::os::unix::fs::symlink(&kept, dir.join("settings")).unwrap();
    let out = faultless(["sysctl", "scrub=0"]).env("XDG_CONFIG_HOME", &config.0).output().unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), "# mine\nscrub = 0\n");
    assert!(dir.join("settings").is_symlink());
}

/// HOME may be another user's: after a change of user, or for a service.
#[test]
fn settings_where_the_user_may_not_look_are_none() {
    if !is_root() {
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let home = Scratch::new("home");
    std::fs::create_dir_all(home.0.join("faultless")).unwrap();
    std::fs::write(home.0.join("faultless/settings"), "scrub = 0\n").unwrap();
    let copy = Scratch::new("foreign-sysctl");
    copy_program(env!("CARGO_BIN_EXE_faultless"), copy.0.join("faultless"));
    let sysctl = |mode| {
        std::fs::set_permissions(&home.0, std::fs::Permissions::from_mode(mode)).unwrap();
        let mut command = Command::new(copy.0.join("faultless"));
        command.args(["sysctl", "scrub"]).env("XDG_CONFIG_HOME", &home.0).uid(65534).gid(65534).current_dir("/");
        let out = command.output().unwrap();
        (out.status.code(), text(&out.stdout).split_whitespace().collect::<Vec<_>>().join(" "))
    };
    assert_eq!(sysctl(0o700), (Some(0), "scrub = 1 # default".into()));
    assert_eq!(sysctl(0o755), (Some(0), "scrub = 0 # file".into()));
    std::fs::set_permissions(home.0.join("faultless/settings"), std::fs::Permissions::from_mode(0o000)).unwrap();
    assert_eq!(sysctl(0o755), (Some(0), "scrub = 1 # default".into()));
}

/// A link to a file that is not there yet stays, and so do rights and an owner of the user's choice.
#[test]
fn a_changed_file_is_whose_it_was() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    let (config, dir) = config("owner");
    let (kept, settings) = (config.0.join("kept"), dir.join("settings"));
    symlink("../kept", &settings).unwrap();
    let set = |setting: &str| {
        let out = faultless(["sysctl", setting]).env("XDG_CONFIG_HOME", &config.0).output().unwrap();
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    };
    set("scrub=0");
    assert!(settings.is_symlink());
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), "scrub = 0\n");
    std::fs::set_permissions(&kept, std::fs::Permissions::from_mode(0o640)).unwrap();
    let owner = if is_root() { 65534 } else { kept.metadata().unwrap().uid() };
    std::os::unix::fs::chown(&kept, Some(owner), None).unwrap();
    set("scrub=1");
    let about = kept.metadata().unwrap();
    assert_eq!((about.mode() & 0o7777, about.uid()), (0o640, owner));
}

#[test]
fn of_commands_at_once_none_loses_what_another_set() {
    let (config, dir) = config("at-once");
    let settings = ["scrub=0", "budget=1G", "ahead=0", "check=1", "profile=0", "quiet=1", "prefault_by=thread"];
    for _ in 0..5 {
        let _ = std::fs::remove_file(dir.join("settings"));
        let set =
            |setting: &&str| faultless(["sysctl", *setting]).env("XDG_CONFIG_HOME", &config.0).spawn().unwrap();
        let all: Vec<_> = settings.iter().map(set).collect();
        all.into_iter().for_each(|mut child| assert!(child.wait().unwrap().success()));
        let text = std::fs::read_to_string(dir.join("settings")).unwrap();
        assert_eq!(text.lines().count(), settings.len(), "{text}");
    }
}
