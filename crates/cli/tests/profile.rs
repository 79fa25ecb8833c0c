//! What is known of programs from earlier runs: when the library is left out, and what becomes of files that are no
//! profiles.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use common::{Scratch, faultless, text, within};

fn with(cache: &Scratch, args: &[&str]) -> Command {
    let mut command = faultless(args);
    command.env("XDG_CACHE_HOME", &cache.0).env("SIZE", "4096");
    command
}

fn say(cache: &Scratch, args: &[&str]) -> String {
    let out = with(cache, args).output().unwrap();
    assert!(out.status.success(), "{args:?}: {out:?}");
    text(&out.stdout).to_owned()
}

/// What a program says that reads `SIZE` bytes at a time: whether it has the library.
const WORDS: [&str; 5] = [
    "run",
    "--",
    "sh",
    "-c",
    "echo \"${LD_PRELOAD:+covered}\"; dd if=/dev/zero of=/dev/null bs=$SIZE count=1 status=none",
];

fn is_covered(cache: &Scratch, size: &str) -> bool {
    let out = with(cache, &WORDS).env("SIZE", size).output().unwrap();
    assert!(out.status.success(), "{out:?}");
    let said = said(&out);
    let is_covered = text(&out.stdout) == "covered\n";
    assert_eq!(!is_covered, said.contains("few large requests when it ran last, or none"), "{said}");
    is_covered
}

fn said(out: &Output) -> String {
    text(&out.stderr).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn files(cache: &Scratch) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(cache.0.join("faultless/profiles")).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn a_program_without_large_requests_goes_without_the_library() {
    let cache = Scratch::new("small");
    assert_eq!([(); 3].map(|()| is_covered(&cache, "4096")), [true, false, false]);
    assert_eq!(files(&cache).len(), 1);
    // Other words, other settings, and a place to say so: covered.
    let covered = |args: &[&str]| say(&cache, args) == "covered\n";
    let words = "echo ${LD_PRELOAD:+covered}";
    assert!(covered(&["run", "--", "sh", "-c", words]));
    assert!(!covered(&["run", "--", "sh", "-c", words]));
    assert!(covered(&["run", "--malloc-threshold", "64K", "--", "sh", "-c", words]));
    assert!(covered(&["run", "--no-profile", "--", "sh", "-c", words]));
    assert!(covered(&["run", "-s", "profile=0", "--", "sh", "-c", words]));
    // It could not be corrected there.
    assert!(covered(&["run", "--quiet", "--", "sh", "-c", words]));
}

/// Below another `run` it has the library anyway, and counts for the inner command.
#[test]
fn a_program_that_another_command_covers_is_covered() {
    let cache = Scratch::new("inner");
    assert_eq!([(); 2].map(|()| is_covered(&cache, "4096")), [true, false]);
    let inner = with(&cache, &WORDS);
    let out = within(with(&cache, &["run", "--no-profile", "--"]), &inner).env("SIZE", "64M").output().unwrap();
    let said = said(&out);
    assert_eq!(text(&out.stdout), "covered\n");
    assert!(said.contains("1 process covered") && !said.contains("when it ran last"), "{said}");
}

#[test]
fn what_takes_more_than_before_is_covered_again() {
    let cache = Scratch::new("more");
    assert_eq!(
        ["4096", "4096", "64M", "64M", "64M"].map(|size| is_covered(&cache, size)),
        [true, false, false, true, true]
    );
    // Runs of one shape differ: it is seen some times to make no large request before it goes without the library.
    assert_eq!([(); 5].map(|()| is_covered(&cache, "4096")), [true, true, true, true, false]);
}

/// Which way is faster is tried: the second run goes without the library, whatever its time.
#[test]
fn a_script_whose_programs_make_few_large_requests_goes_without_the_library() {
    let cache = Scratch::new("few");
    let script = "echo ${LD_PRELOAD:+covered}; for i in 1 2 3 4 5 6 7 8 9; do \
        dd if=/dev/zero of=/dev/null bs=1M count=1 status=none; done; \
        i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done";
    let run = || say(&cache, &["run", "--", "sh", "-c", script]);
    assert_eq!([run(), run()], ["covered\n", "\n"]);
    let shown = say(&cache, &["profile", "show"]);
    assert!(shown.contains("few large requests, peak"), "{shown}");
}

/// The words name another input of the same kind and size and another output each time.
#[test]
fn a_program_with_other_files_of_the_same_kind_is_known() {
    let cache = Scratch::new("names");
    let place = |name: &str| cache.0.join(name);
    for (name, bytes) in [("a.bin", 9000), ("b.bin", 15000), ("c.bin", 900_000)] {
        fs::write(place(name), vec![1; bytes]).unwrap();
    }
    let is_known = |input: &str, output: &str| {
        let words = [&format!("if={input}"), &format!("of={output}"), "bs=1000", "status=none"];
        let mut command = with(&cache, &["run", "--", "dd"]);
        let out = command.args(words).current_dir(&cache.0).output().unwrap();
        assert!(out.status.success() && place(output).exists(), "{out:?}");
        said(&out).contains("few large requests when it ran last, or none")
    };
    assert_eq!(
        [("a.bin", "1.out"), ("b.bin", "2.out"), ("a.bin", "3.out"), ("c.bin", "4.out")]
            .map(|(input, output)| is_known(input, output)),
        [false, true, true, false]
    );
    assert_eq!(files(&cache).len(), 2);
}

#[test]
fn a_run_that_failed_says_nothing() {
    let cache = Scratch::new("failed");
    for _ in 0..2 {
        let out =
            with(&cache, &["run", "--", "sh", "-c", "echo ${LD_PRELOAD:+covered}; exit 3"]).output().unwrap();
        assert_eq!((text(&out.stdout), out.status.code()), ("covered\n", Some(3)));
    }
    assert!(files(&cache).is_empty());
}

#[test]
fn nothing_is_noted_where_it_is_not_wanted() {
    let cache = Scratch::new("off");
    let run = |args: &[&str]| say(&cache, &[&["run"], args, &["--", "true"]].concat());
    for args in [&["--no-profile"][..], &["--quiet"], &["--skip", "x"], &["--no-children"], &["--budget", "0"]] {
        run(args);
        assert!(files(&cache).is_empty(), "{args:?}");
    }
    let out = with(&cache, &["run", "--", "true"]).env("FAULTLESS_PROFILE", "0").status().unwrap();
    assert!(out.success() && files(&cache).is_empty());
    run(&[]);
    assert_eq!(files(&cache).len(), 1);
}

#[test]
fn profiles_are_shown_forgotten_and_carried() {
    let cache = Scratch::new("carried");
    assert!(say(&cache, &["profile", "show"]).starts_with("0 profiles"));
    say(&cache, &["run", "--", "true"]);
    is_covered(&cache, "4096");
    let shown = say(&cache, &["profile", "show"]);
    assert!(shown.starts_with("2 profiles") && shown.matches("next: plain").count() == 2, "{shown}");
    assert!(!shown.contains("LD_PRELOAD"), "words may hold secrets");
    let file = cache.0.join("carried.json");
    let file = file.to_str().unwrap();
    say(&cache, &["profile", "export", file]);
    assert_eq!(say(&cache, &["profile", "export"]), fs::read_to_string(file).unwrap());
    let link = cache.0.join("named");
    std::os::unix::fs::symlink("/bin/true", &link).unwrap();
    assert_eq!(say(&cache, &["profile", "forget", link.to_str().unwrap()]), "forgot 1 profile\n");
    assert_eq!(say(&cache, &["profile", "forget", "true"]), "forgot 0 profiles\n");
    assert_eq!(say(&cache, &["profile", "forget"]), "forgot 1 profile\n");
    assert!(is_covered(&cache, "4096"));
    say(&cache, &["profile", "forget"]);
    assert_eq!(say(&cache, &["profile", "import", file]), "took 2 profiles\n");
    assert!(!is_covered(&cache, "4096"));
    fs::write(file, "[{\"version\":2}]").unwrap();
    assert_eq!(with(&cache, &["profile", "import", file]).output().unwrap().status.code(), Some(125));
}

#[test]
fn random_bytes_and_links_disturb_nothing() {
    let cache = Scratch::new("random");
    assert!(is_covered(&cache, "4096"));
    let [file] = &files(&cache)[..] else { panic!("one profile") };
    let random = |path: &Path| {
        let read = Command::new("head").args(["-c", "3000", "/dev/urandom"]).output().unwrap();
        fs::write(path, read.stdout).unwrap();
    };
    random(file);
    (0..20).for_each(|i| random(&file.with_file_name(format!("{i:016x}"))));
    assert!(is_covered(&cache, "4096"));
    assert!(!is_covered(&cache, "4096"));
    // A link to a good one.
    let aside = cache.0.join("aside");
    fs::rename(file, &aside).unwrap();
    std::os::unix::fs::symlink(&aside, file).unwrap();
    assert!(is_covered(&cache, "4096"));
    assert!(file.symlink_metadata().unwrap().is_file(), "the link is replaced");
    // A directory that is a link, too.
    let dir = cache.0.join("faultless/profiles");
    fs::rename(&dir, cache.0.join("elsewhere")).unwrap();
    std::os::unix::fs::symlink(cache.0.join("elsewhere"), &dir).unwrap();
    assert!(is_covered(&cache, "4096") && is_covered(&cache, "4096"));
}

#[test]
fn many_at_once_leave_whole_profiles() {
    let cache = Scratch::new("many");
    let start =
        |i: usize| with(&cache, &["run", "--", "sh", "-c", &format!("exit $(({i} - {i}))")]).spawn().unwrap();
    let mut all: Vec<_> = (0..24).map(|i| start(i % 4)).collect();
    assert!(all.iter_mut().all(|child| child.wait().unwrap().success()));
    assert!(say(&cache, &["profile", "show"]).starts_with("4 profiles"));
    assert_eq!(files(&cache).len(), 4, "nothing half done is left");
}
