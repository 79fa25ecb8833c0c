//! A C program against the header and the library.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use faultless_testkit::limit::limit;
use tempfile::TempDir;

#[test]
fn a_c_program_uses_each_function() {
    let Some((program, _dir)) = compiled("tests/api.c") else { return };
    run(&mut Command::new(&program));
    if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
        // Most users are without privileges.
        run(Command::new(&program).uid(65534).gid(65534));
    }
}

#[test]
fn a_c_program_uses_files() {
    let Some((program, dir)) = compiled("tests/files.c") else { return };
    run(Command::new(&program).arg(dir.path().join("data")));
    assert_eq!(std::fs::read(dir.path().join("data")).unwrap(), b"at the end\0\0\0\0\0\0");
}

#[test]
fn a_c_program_takes_and_saves_snapshots() {
    let Some((program, dir)) = compiled("tests/snapshots.c") else { return };
    run(Command::new(&program).arg(dir.path().join("state")));
}

#[test]
fn large_thread_local_variables_leave_room_for_handlers() {
    let Some((program, _dir)) = compiled("tests/tls.c") else { return };
    run(&mut Command::new(&program));
}

#[test]
fn a_thread_that_is_cancelled_leaves_nothing_locked() {
    let Some((program, dir)) = compiled("tests/cancel.c") else { return };
    run(Command::new(&program).arg(dir.path().join("state")));
}

/// Threads of the library go on after a `dlclose`.
#[test]
fn the_library_is_loaded_and_closed_by_its_name() {
    let Some((program, _dir)) = compiled("tests/dlclose.c") else { return };
    run(Command::new(&program).arg(libraries().join("libfaultless_c.so")));
}

/// The example of the documentation, as it stands there.
#[test]
fn the_documented_example_works() {
    limit();
    let text = std::fs::read_to_string(here().join("../../docs/c.md")).unwrap();
    let (_, rest) = text.split_once("```c\n").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("example.c");
    std::fs::write(&source, rest.split_once("```").unwrap().0).unwrap();
    let Some(program) = compile(&source, dir.path()) else { return };
    assert_eq!(run(&mut Command::new(&program)), "1\n");
    // What links it is in the text, with what the loader needs.
    assert!(text.contains("--libs faultless) -Wl,-rpath,$(pkg-config --variable=libdir faultless)"));
    let pc = std::fs::read_to_string(here().join("faultless.pc.in")).unwrap();
    assert!(pc.contains("libdir="));
}

/// Programs of other standards include it, too, however strict their compiler is.
#[test]
fn the_header_is_for_all_standards_and_for_cpp() {
    limit();
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("includes.c");
    let text = "#include <faultless.h>\nint main(void) { return faultless_region_new(1, 0, 0) == 0; }\n";
    std::fs::write(&source, text).unwrap();
    for (compiler, language, standards) in
        [("cc", "c", &["c89", "c99", "c11", "c17"][..]), ("c++", "c++", &["c++98", "c++11", "c++17", "c++20"])]
    {
        for standard in standards {
            let compiled = Command::new(compiler)
                .args([
                    "-x",
                    language,
                    &format!("-std={standard}"),
                    "-Wall",
                    "-Wextra",
                    "-pedantic",
                    "-Werror",
                    "-I",
                ])
                .arg(here().join("include"))
                .args(["-fsyntax-only".as_ref(), source.as_os_str()])
                .status();
            match compiled {
                Ok(status) => assert!(status.success(), "{compiler} {standard}"),
                Err(error) => faultless_testkit::skip(format_args!("no {compiler} ({error})")),
            }
        }
    }
}

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where the library is.
fn libraries() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().into()
}

/// The program of a source of this crate, in a directory for this test. `None` without a compiler.
fn compiled(source: &str) -> Option<(PathBuf, TempDir)> {
    limit();
    let dir = tempfile::tempdir().unwrap();
    Some((compile(&here().join(source), dir.path())?, dir))
}

/// The program of a source; `None` without a compiler.
fn compile(source: &Path, dir: &Path) -> Option<PathBuf> {
    let libraries = libraries();
    let program = dir.join("program");
    // The user without privileges has to reach both.
    std::fs::set_permissions(dir, Permissions::from_mode(0o755)).unwrap();
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(here().join("include"))
        .arg(source)
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(&libraries)
        // Not by a program that loads it itself.
        .args(["-Wl,--as-needed", "-lfaultless_c"])
        // Comes before LD_LIBRARY_PATH, where cargo may have an older library.
        .arg("-Wl,--disable-new-dtags")
        .arg(format!("-Wl,-rpath,{}", libraries.display()))
        .status();
    match compiled {
        Ok(status) => assert!(status.success(), "does not compile"),
        Err(error) => {
            faultless_testkit::skip(format_args!("no C compiler ({error})"));
            return None;
        }
    }
    Some(program)
}

fn run(command: &mut Command) -> String {
    let out = command.output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{}: {said}", out.status);
    said.lines().filter_map(|line| line.strip_prefix("skipped: ")).for_each(faultless_testkit::skip);
    String::from_utf8(out.stdout).unwrap()
}

/// Each function of the header is in the library, and each of the library in the header.
#[test]
fn header_and_library_have_the_same_functions() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |file: &str| std::fs::read_to_string(here.join(file)).unwrap();
    let header = read("include/faultless.h");
    let sources = read("src/lib.rs") + &read("src/error.rs") + &read("src/file.rs") + &read("src/snapshot.rs");
    let mut declared: Vec<_> = header
        .lines()
        .filter_map(|line| line.split_once('(').filter(|_| line.ends_with(");")))
        .filter_map(|(before, _)| before.split([' ', '*']).next_back())
        .filter(|name| name.starts_with("faultless_"))
        .collect();
    declared.sort_unstable();
    assert!(declared.len() > 12, "{declared:?}");
    let defined = sources.matches("no_mangle").count();
    // Those that macros make are named where they are called.
    assert!(defined <= declared.len(), "a function that the header does not have");
    for name in declared {
        assert!(sources.contains(&format!(" {name}(")) || sources.contains(&format!("{name}: ")), "{name}");
    }
}
