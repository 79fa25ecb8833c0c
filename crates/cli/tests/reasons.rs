//! Why a program was not covered: each state has its own words, and none is said to have "made no large request" that
//! did.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{Scratch, is_root, library, run, text};
use serde_json::Value;

const DD: &str = "dd if=/dev/zero of=/dev/null bs=8M count=1 status=none";
/// What is said of a program of which everything is known.
const NONE: &str = "covered: it made no large request";

fn said(out: &Output) -> String {
    text(&out.stderr).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn script(script: &str) -> String {
    said(&run(["--", "sh", "-c", script]).output().unwrap())
}

fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    let found = found.is_ok_and(|out| out.status.success());
    if !found {
        faultless_testkit::skip(format_args!("there is no {program}"));
    }
    found
}

/// The library where every user may read it.
fn readable_library(scratch: &Scratch) -> PathBuf {
    std::fs::set_permissions(&scratch.0, PermissionsExt::from_mode(0o755)).unwrap();
    let copy = scratch.0.join("libfaultless_preload.so");
    std::fs::copy(library(), &copy).unwrap();
    copy
}

/// A directory and a library for a test with another user; `None` where it cannot be another user.
fn another_user(name: &str) -> Option<(Scratch, PathBuf)> {
    (is_root() && has("setpriv")).then(|| {
        let scratch = Scratch::new(name);
        let library = readable_library(&scratch);
        (scratch, library)
    })
}

#[test]
fn a_program_that_asks_for_nothing_is_known() {
    let said = said(&run(["--", "true"]).output().unwrap());
    assert!(said.starts_with("faultless: nothing covered;") && said.contains(NONE), "{said}");
}

/// The library itself says what rules it out, also when that came after the start.
#[test]
fn what_the_library_found_is_said() {
    let table = [
        ("ulimit -v 4000000", "Nothing was covered: its address space is limited"),
        ("ulimit -d 4000000", "Nothing was covered: its data is limited"),
        ("export FAULTLESS_BUDGET=0", "Nothing was covered: its budget is less than 2 MiB"),
    ];
    for (first, words) in table {
        let said = script(&format!("{first}; exec {DD}"));
        assert!(said.contains(words) && !said.contains(NONE), "{first}: {said}");
    }
    if has("prlimit") {
        let said = script(&format!("exec prlimit --as=4000000000 {DD}"));
        assert!(said.contains("its address space is limited"), "{said}");
    }
}

/// Another user may not leave counters: that it was covered is not said to be nothing.
#[test]
fn what_another_user_did_is_not_known() {
    let Some((scratch, library)) = another_user("user") else { return };
    let file = scratch.0.join("out.json");
    let user = "setpriv --reuid 65534 --regid 65534 --clear-groups";
    for (script, words) in [
        (format!("exec {user} {DD}"), "ran as another user (65534)"),
        // A child, as of su.
        (format!("{user} {DD}; true"), "a process was covered that could not leave its counters here"),
    ] {
        let mut command = run(["--json", file.to_str().unwrap(), "--", "sh", "-c", &script]);
        let out = command.env("FAULTLESS_LIBRARY", &library).current_dir("/").output().unwrap();
        let said = said(&out);
        assert!(
            said.starts_with("faultless: what was covered is not known;") && said.contains("not leave"),
            "{said}"
        );
        // A look at the right moment may know more.
        assert!(said.contains(words) || said.contains("The program was covered"), "{said}");
        let json: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(json["lost"], true, "{json:#}");
        assert_ne!(json["covered"], false, "{json:#}");
    }
    // One that asks for nothing loses nothing.
    let mut command = run(["--", "sh", "-c", &format!("{user} true; true")]);
    let said = said(&command.env("FAULTLESS_LIBRARY", &library).current_dir("/").output().unwrap());
    assert!(said.starts_with("faultless: nothing covered;"), "{said}");
}

/// The loader cannot read the library for that user.
#[test]
fn a_library_that_cannot_be_read_is_not_said_to_have_seen_nothing() {
    let Some((scratch, library)) = another_user("unreadable") else { return };
    std::fs::set_permissions(&scratch.0, PermissionsExt::from_mode(0o700)).unwrap();
    let mut command =
        run(["--", "setpriv", "--reuid", "65534", "dd", "if=/dev/zero", "of=/dev/null", "bs=8M", "count=1"]);
    let said = said(&command.env("FAULTLESS_LIBRARY", &library).current_dir("/").output().unwrap());
    assert!(!said.contains(NONE), "{said}");
    assert!(said.contains("not known") || said.contains("could not be loaded"), "{said}");
}

/// A root directory without the library, but with what `dd` needs.
fn root(scratch: &Scratch) -> bool {
    let listed = Command::new("ldd").arg("/bin/dd").output().unwrap();
    let files = text(&listed.stdout).split_whitespace().filter(|word| word.starts_with('/')).chain(["/bin/dd"]);
    files.clone().count() > 1
        && files.into_iter().all(|file| {
            let to = scratch.0.join(&file[1..]);
            std::fs::create_dir_all(to.parent().unwrap()).is_ok() && std::fs::copy(file, to).is_ok()
        })
}

#[test]
fn another_root_directory_is_told() {
    let scratch = Scratch::new("root");
    if !is_root() || !has("chroot") || !root(&scratch) {
        return;
    }
    // Known without a look: it is not the program that was started.
    let said_of = |script: &str| script_in(&scratch.0, script);
    let short = said_of("exec chroot . /bin/dd --version >/dev/null");
    assert!(!short.contains(NONE), "{short}");
    // With one, if it comes while the program waits.
    let fifo = scratch.0.join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let long = said_of("(sleep 1; echo >fifo) & exec chroot . /bin/dd if=fifo of=/out bs=1");
    assert!(long.contains("root directory that") || long.contains("is not known"), "{long}");
    assert!(!long.contains(NONE), "{long}");
}

fn script_in(dir: &Path, script: &str) -> String {
    said(&run(["--", "sh", "-c", script]).current_dir(dir).output().unwrap())
}

#[test]
fn valgrind_is_told() {
    if has("valgrind") {
        let said = script(&format!("exec valgrind -q {DD}"));
        assert!(said.contains("valgrind runs it") || said.contains("is not known"), "{said}");
        assert!(!said.contains(NONE) && !said.contains("engine"), "{said}");
    }
}

/// A filter that was installed by a program before.
#[test]
fn filters_of_system_calls_are_told() {
    let scratch = Scratch::new("filter");
    let (source, program) = (scratch.0.join("main.c"), scratch.0.join("main"));
    let code = r#"
        #include <linux/filter.h>
        #include <linux/seccomp.h>
        #include <sys/prctl.h>
        #include <unistd.h>
        int main(int n, char **words) {
            struct sock_filter allow = {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
            struct sock_fprog all = {1, &allow};
            prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all, 0, 0)) return 9;
            execvp(words[1], words + 1);
            return 8;
        }"#;
    std::fs::write(&source, code).unwrap();
    let built = Command::new("cc").arg(&source).arg("-o").arg(&program).status();
    if !built.is_ok_and(|status| status.success()) {
        faultless_testkit::skip("no C compiler");
        return;
    }
    let out = run(["--".as_ref(), program.as_os_str()]).args(DD.split(' ')).output().unwrap();
    if out.status.code() == Some(9) {
        faultless_testkit::skip("no filter can be installed");
        return;
    }
    let said = said(&out);
    assert!(said.contains("filtered (seccomp)") && !said.contains(NONE), "{said}");
}

/// A place without room for another file: at the start another place is taken, and later it is said.
#[test]
fn no_room_for_counters_is_told() {
    let scratch = Scratch::new("room");
    if !is_root() || !has("unshare") {
        return;
    }
    let inner = run(["--", "sh", "-c"]);
    // The mount is gone with the namespace.
    let outside = |before: &str, script: &str| {
        let mount = "mount -t tmpfs -o nr_inodes=8,size=1m none . && cd . || exit 9";
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &format!("{mount}; {before} exec \"$@\""), "sh"]);
        command.arg(inner.get_program()).args(inner.get_args()).arg(script);
        command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.current_dir(&scratch.0).env("XDG_RUNTIME_DIR", &scratch.0).output().unwrap()
    };
    let full = "for i in 1 2 3 4 5 6 7 8 9; do touch full$i; done 2>/dev/null;";
    let at_once = outside(full, &format!("exec {DD}"));
    if at_once.status.code() == Some(9) {
        faultless_testkit::skip("nothing can be mounted");
        return;
    }
    assert!(said(&at_once).starts_with("faultless: 1 process covered;"), "{}", said(&at_once));
    let later = said(&outside("", &format!("cd {}; {full} exec {DD}", scratch.0.display())));
    assert!(later.starts_with("faultless: what was covered is not known;") && !later.contains(NONE), "{later}");
}

/// A command without a summary inside another's leaves its counters to that one.
#[test]
fn a_quiet_command_inside_counts_for_the_one_outside() {
    let inner = format!("{} run --quiet -- {DD}", env!("CARGO_BIN_EXE_faultless"));
    let said = script(&format!("{inner}; true"));
    assert!(said.starts_with("faultless: 1 process covered;"), "{said}");
}

/// Words and environment have a limit together. A program that reaches it has no room for more variables.
#[test]
fn a_program_without_room_for_variables_runs_plain() {
    // As many bytes as fit plain, in words of 100 KiB and a last one. With this command before them fewer fit,
    // by what its own words and the longer name of the file take.
    let script = r"
import os, resource, subprocess, sys
resource.setrlimit(resource.RLIMIT_STACK, (4 << 20, 4 << 20))
os.chdir(os.path.dirname(sys.argv[1]))
def start(n, first=()):
    words = ['x' * 102400] * (n // 102400) + ['x' * (n % 102400)]
    try: return subprocess.run([*first, '/bin/true', *words], stderr=subprocess.PIPE)
    except OSError: return None
low, high = 0, 2 << 20
while high - low > 1:
    middle = (low + high) // 2
    low, high = (middle, high) if start(middle) else (low, middle)
for options in [], ['--quiet']:
    run = ['./faultless', 'run', *options, '--']
    done = start(low - sum(len(word) + 9 for word in run) - 8, run)
    print('status', done.returncode, done.stderr.decode())
";
    let mut python = Command::new("python3");
    python.args(["-c", script, env!("CARGO_BIN_EXE_faultless")]).env("FAULTLESS_LIBRARY", library());
    python.env("XDG_CONFIG_HOME", "/dev/null").env("XDG_CACHE_HOME", "/dev/null");
    let out = python.output().expect("python3");
    let said = text(&out.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert_eq!(said.matches("no room for the variables").count(), 1, "{said}");
    assert_eq!(said.matches("status 0").count(), 2, "{said}");
}
