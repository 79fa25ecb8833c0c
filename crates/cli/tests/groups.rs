//! Control groups: a limit counts wherever the group is, and a group that cannot be seen is not said to have none.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{Scratch, run, text};
use faultless_testkit::{cached, uncache};

const MOUNT: &str = "/sys/fs/cgroup/memory";
const DD: &str = "dd if=/dev/zero of=/dev/null bs=8M count=1 status=none";
const HIDDEN: &str = "its control group cannot be read, and may have a limit";

/// A control group of version 1, with those that are made below it.
struct Group(PathBuf);

impl Group {
    fn new(name: &str) -> Option<Self> {
        let path = Path::new(MOUNT).join(format!("faultless-{name}-{}", std::process::id()));
        if fs::create_dir(&path).is_ok() {
            let group = Self(path);
            if group.0.join("memory.limit_in_bytes").exists() {
                return Some(group);
            }
        }
        faultless_testkit::skip("no control group of version 1 can be made");
        None
    }

    fn limit(&self, bytes: u64) {
        fs::write(self.0.join("memory.limit_in_bytes"), bytes.to_string()).unwrap();
    }

    /// A group below it, with a name as long as one may be, `depth` times.
    fn below(&self, depth: usize) -> PathBuf {
        let path = (0..depth).fold(self.0.clone(), |path, _| path.join("x".repeat(200)));
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// `command` in `path`, in namespaces of its own of mounts and groups.
    fn run(path: &Path, unshare: &str, before: &str, command: &Command) -> Output {
        let words = "echo $$ >\"$1/cgroup.procs\" || exit 9; namespaces=$2; before=$3; shift 3
                     [ -z \"$namespaces\" ] && exec \"$@\"
                     exec unshare $namespaces sh -c \"$before && exec \\\"\\$@\\\"\" sh \"$@\"";
        let mut shell = Command::new("sh");
        shell.args(["-c", words, "sh"]).arg(path).args([unshare, before]);
        shell.arg(command.get_program()).args(command.get_args());
        shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        shell.output().unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let remove =
            "for i in 1 2 3 4 5 6 7 8 9; do find \"$1\" -depth -type d -exec rmdir {} + && break; sleep .2; done";
        let _ = Command::new("sh")
            .args(["-c", remove, "sh"])
            .arg(&self.0)
            .stderr(std::process::Stdio::null())
            .status();
    }
}

fn said(out: &Output) -> String {
    text(&out.stderr).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn program() -> Command {
    let mut command = run(["--"]);
    command.args(DD.split(' '));
    command
}

#[test]
fn a_limit_counts_however_long_the_path_of_the_group_is() {
    let Some(group) = Group::new("deep") else { return };
    group.limit(512 << 20);
    // About 200, 2,000 and 3,800 bytes; the text that names all groups takes more.
    for depth in [1, 10, 19] {
        let said = said(&Group::run(&group.below(depth), "", "true", &program()));
        assert!(said.contains("its budget is less than 2 MiB") || said.contains(HIDDEN), "{depth}: {said}");
    }
}

/// The group of a program whose first large request comes beside other threads is looked at, too.
#[test]
fn a_group_is_seen_beside_other_threads() {
    let scratch = Scratch::new("beside");
    let (source, program) = (scratch.0.join("main.c"), scratch.0.join("main"));
    let code = "#include <pthread.h>\n#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n\
                static void *wait(void *p) { pause(); return p; }\n\
                int main(void) { pthread_t t; for (int i = 0; i < 4; i++) pthread_create(&t, 0, wait, 0);\n\
                char *volatile p = malloc(8 << 20); memset(p, 1, 8 << 20); return 0; }";
    fs::write(&source, code).unwrap();
    let built = Command::new("cc").arg("-pthread").arg(&source).arg("-o").arg(&program).status();
    if !built.is_ok_and(|status| status.success()) {
        faultless_testkit::skip("no C compiler");
        return;
    }
    let out = run(["--".as_ref(), program.as_os_str()]).output().unwrap();
    assert!(said(&out).contains("1 process covered;"), "{}", said(&out));
}

/// Where the group's files lie is what the kernel's list of mounts says, and not where the path alone would be.
#[test]
fn a_group_that_cannot_be_seen_is_not_without_limit() {
    let Some(group) = Group::new("hidden") else { return };
    let unshare = Command::new("unshare").args(["-m", "-C", "true"]).output();
    if !unshare.is_ok_and(|out| out.status.success()) {
        faultless_testkit::skip("no namespaces can be made");
        return;
    }
    let (sub, other) = (group.0.join("sub"), group.0.join("other"));
    [&sub, &other].iter().for_each(|path| fs::create_dir(path).unwrap());
    let remount = format!("umount {MOUNT} && mount -t cgroup -o memory none {MOUNT}");
    let bind = |path: &Path| format!("mount --bind {} {MOUNT}", path.display());
    let cases = [
        // The mounted groups are another namespace's.
        ("-C", "true".into(), false, false),
        // The group is what is mounted, as in a container; then a group above it counts, as far as the kernel tells.
        ("-C -m", remount.clone(), true, false),
        ("-m", bind(&group.0), true, true),
        // Another group's, or nothing.
        ("-m", bind(&other), false, false),
        ("-m", "umount -R /sys/fs/cgroup".into(), false, false),
    ];
    for (namespaces, before, without, with) in cases {
        for limit in [None, Some(2u64 << 30)] {
            group.limit(limit.unwrap_or(1 << 62));
            let out = Group::run(&sub, namespaces, &before, &program());
            let said = said(&out);
            let covered = if limit.is_some() { with } else { without };
            assert_eq!(said.contains("1 process covered;"), covered, "{namespaces} {before} {limit:?}: {said}");
            assert_eq!(said.contains(HIDDEN), !covered, "{namespaces} {before} {limit:?}: {said}");
        }
    }
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_faultless"));
    doctor.args(["doctor", "--no-measure"]);
    let out = Group::run(&sub, "-C", "true", &doctor);
    let words = text(&out.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("it cannot be read, and may have a limit"), "{words}");
    assert_eq!(out.status.code(), Some(2), "{words}");
}

/// What comes into memory beside a program leaves the program its memory.
#[test]
fn files_are_brought_as_far_as_the_group_has_room_beside_them() {
    // Until the command waits for the program's signals, and has one thread: nothing more is brought.
    let until_done = format!(
        "until read -r call rest </proc/$PPID/syscall && [ $call = {} ] && set -- /proc/$PPID/task/* && [ $# = 1 ]
         do sleep .01; done",
        libc::SYS_rt_sigtimedwait
    );
    for (limit, is_enough) in [(200 << 20, false), (2 << 30, true)] {
        let scratch = Scratch::new("brought");
        let Some(group) = Group::new("brought") else { return };
        let (file, json) = (scratch.0.join("file"), scratch.0.join("json"));
        fs::write(&file, vec![1; 5 << 20]).unwrap();
        if !uncache(&file) {
            return faultless_testkit::skip("temporary files are in memory");
        }
        group.limit(limit);
        let mut command = run(["--files"]);
        command.arg(&file).arg("--json").arg(&json).args(["--", "sh", "-c", &until_done]);
        let out = Group::run(&group.0, "", "", &command);
        assert_eq!(out.status.code(), Some(0), "{}", said(&out));
        let json: serde_json::Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
        let stopped = if is_enough { serde_json::Value::Null } else { "too little memory is available".into() };
        assert_eq!(json["files"]["stopped"], stopped, "{limit}: {json}");
        assert_eq!(cached(&file), if is_enough { 5 << 20 } else { 0 }, "{limit}");
    }
}
