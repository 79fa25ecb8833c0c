//! The knob `skip`: by which names a program is left alone, and that the summary says so.

mod common;

use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use common::{Scratch, run, text};

/// A program that makes a large request, whatever its words are, in `dir`.
fn program(scratch: &Scratch) -> bool {
    let source = scratch.0.join("big.c");
    let code = "#include <stdlib.h>\n#include <string.h>\nint main() { char *volatile p = malloc(8 << 20); memset(p, 1, 8 << 20); return 0; }";
    std::fs::write(&source, code).unwrap();
    let built =
        Command::new("cc").arg(&source).arg("-o").arg(scratch.0.join("big_program_with_a_long_name")).status();
    let is_built = built.is_ok_and(|status| status.success());
    if !is_built {
        faultless_testkit::skip("no C compiler");
    }
    is_built
}

#[test]
fn each_name_of_a_program_counts() {
    let scratch = Scratch::new("skip");
    if !program(&scratch) {
        return;
    }
    let at = |name: &str| scratch.0.join(name);
    let script = |name: &str, first: &str| {
        std::fs::write(at(name), format!("#!{first}\n")).unwrap();
        std::fs::set_permissions(at(name), PermissionsExt::from_mode(0o755)).unwrap();
    };
    symlink("big_program_with_a_long_name", at("link")).unwrap();
    script("script", at("link").to_str().unwrap());
    script("by_env", "/usr/bin/env link");
    let path = format!("{}:{}", scratch.0.display(), std::env::var("PATH").unwrap_or_default());
    let said = |skip: &str, words: &[&str]| {
        let out =
            run(["--skip", skip, "--"]).args(words).env("PATH", &path).current_dir(&scratch.0).output().unwrap();
        assert!(out.status.success(), "{skip} {words:?}: {}", text(&out.stderr));
        text(&out.stderr).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let long = "big_program_with_a_long_name";
    // The program, and the names by which it is left alone; the last one of each is what the summary calls it.
    let cases: [(&[&str], &[&str]); 8] = [
        (
            &[long],
            &[long, "x,big_program_with_a_long_name", " x , ./big_program_with_a_long_name ", "big_program_wit"],
        ),
        (&["link"], &["link", long]),
        (&["./link"], &["link", long]),
        (&["script"], &["script", "link", long]),
        (&["by_env"], &["by_env", "link", long]),
        (&["link", "-u", "by/argument"], &["argument"]),
        (&["bash", "-c", "exec -a other link"], &["other", "link", long]),
        (&["sh", "-c", "exec env link"], &["link", long]),
    ];
    for (words, names) in cases {
        for name in names {
            let said = said(name, words);
            assert!(!said.contains("1 process covered"), "{name} {words:?}: {said}");
            assert!(said.contains("is to be skipped"), "{name} {words:?}: {said}");
        }
        let said = said("big,lin,scrip,big_program_with_a_lon,env_,long_name", words);
        assert!(said.contains("1 process covered;"), "{words:?}: {said}");
    }
    for words in [&["script"][..], &["link"], &["sh", "-c", "exec ./link"]] {
        let said = said("script,link", words);
        let last = words.last().unwrap().trim_start_matches("exec ./");
        assert!(said.contains(&format!("Nothing was covered: {last} is to be skipped.")), "{words:?}: {said}");
    }
    // Others of the tree are covered.
    let said = said("script", &["sh", "-c", "./script; ./link"]);
    assert!(said.contains("1 process covered;"), "{said}");
}
