//! Programs whose service has ended, or never began: the summary, `stat` and `sysctl` say so, and claim no change.

mod common;

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use common::{Scratch, faultless, run, text};
use faultless_testkit::Killed;
use faultless_testkit::limit::limit;

const CODE: &str = r#"
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>
static void ask(void) { char *volatile p = malloc(8 << 20); memset(p, 1, 8 << 20); free(p); }
static void end(const char *how) {
    struct rlimit limit = {16ul << 30, 16ul << 30};
    struct sock_filter allow = {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
    struct sock_fprog all = {1, &allow};
    if (!strcmp(how, "limit")) setrlimit(RLIMIT_AS, &limit);
    if (!strcmp(how, "lock")) mlockall(MCL_CURRENT);
    if (!strcmp(how, "unshare")) unshare(CLONE_FILES);
    if (!strcmp(how, "filter")) {
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all, 0, 0);
    }
}
int main(int n, char **words) {
    char byte;
    if (!strcmp(words[2], "after")) ask();
    end(words[1]);
    if (strcmp(words[2], "never")) ask();
    if (!strcmp(words[1], "exec")) execlp("cat", "cat", "/proc/self/comm", "-", (char *)0);
    write(1, "x", 1);
    return read(0, &byte, 1) < 0;
}"#;

const ENDED: &str = "it limits or locks its memory, filters its calls, or changes its namespace";

fn program(scratch: &Scratch) -> Option<PathBuf> {
    let (source, program) = (scratch.0.join("main.c"), scratch.0.join("main"));
    std::fs::write(&source, CODE).unwrap();
    let built = Command::new("cc").arg(&source).arg("-o").arg(&program).status();
    let is_built = built.is_ok_and(|status| status.success());
    if !is_built {
        faultless_testkit::skip("no C compiler");
    }
    is_built.then_some(program)
}

fn words(bytes: &[u8]) -> String {
    text(bytes).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A program whose service was called off before its first large request did make one.
#[test]
fn the_summary_says_what_ended_the_service_before_it_began() {
    let scratch = Scratch::new("called-off");
    let Some(program) = program(&scratch) else { return };
    let said = |how: &str, when: &str| {
        let out =
            run(["--".as_ref(), program.as_os_str()]).args([how, when]).stdin(Stdio::null()).output().unwrap();
        assert!(out.status.success(), "{how} {when}: {}", text(&out.stderr));
        words(&out.stderr)
    };
    for (how, why) in [
        ("limit", "its address space is limited"),
        ("lock", ENDED),
        ("unshare", ENDED),
        ("filter", "its system calls are filtered"),
    ] {
        assert!(
            said(how, "before").contains(&format!("Nothing was covered: {why}")),
            "{how}: {}",
            said(how, "before")
        );
        let never = said(how, "never");
        assert!(never.contains("made no large request") || how == "filter", "{how}: {never}");
        assert!(said(how, "after").contains("1 process covered;"), "{how}: {}", said(how, "after"));
    }
}

/// A process that has printed a byte, and waits.
struct Waiting(Child);

impl Waiting {
    fn start(mut command: Command) -> Self {
        limit();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        Self(child)
    }

    fn end(mut self) -> String {
        drop(self.0.stdin.take());
        let mut said = Vec::new();
        self.0.stderr.take().unwrap().read_to_end(&mut said).unwrap();
        self.0.wait().unwrap();
        words(&said)
    }
}

#[test]
fn sysctl_changes_nothing_where_no_knob_counts() {
    let scratch = Scratch::new("deaf");
    let Some(program) = program(&scratch) else { return };
    for (how, why) in [
        ("none", None),
        ("limit", Some(ENDED)),
        ("lock", Some(ENDED)),
        ("unshare", Some(ENDED)),
        ("filter", Some(ENDED)),
        ("exec", Some("was replaced")),
    ] {
        let mut command = run(["--".as_ref(), program.as_os_str()]);
        command.args([how, "after"]);
        let waiting = Waiting::start(command);
        let tree = waiting.0.id().to_string();
        let member = std::fs::read_to_string(format!("/proc/{tree}/task/{tree}/children")).unwrap();
        for pid in [tree.as_str(), member.trim()] {
            let changed = faultless(["sysctl", "-p", pid, "budget=100M", "scrub=0"]).output().unwrap();
            let (said, told) = (words(&changed.stdout), words(&changed.stderr));
            match why {
                Some(why) => {
                    assert_eq!((changed.status.code(), said.as_str()), (Some(1), ""), "{how} {pid}: {told}");
                    assert!(told.contains(why), "{how} {pid}: {told}");
                }
                None => {
                    assert_eq!(changed.status.code(), Some(0), "{how} {pid}: {told}");
                    assert!(said.contains("budget = 100M") && said.contains("scrub = 0"), "{how} {pid}: {said}");
                }
            }
            let read = faultless(["sysctl", "-p", pid, "scrub"]).output().unwrap();
            let value = if why.is_some() { "scrub = 1" } else { "scrub = 0" };
            assert!(words(&read.stdout).ends_with(value), "{how} {pid}: {}", words(&read.stdout));
            assert_eq!(why.is_some(), !read.stderr.is_empty(), "{how} {pid}");
            let stat = faultless(["stat", "-p", pid, "--once"]).output().unwrap();
            let said = words(&stat.stdout);
            assert_eq!(said.contains(&format!("runs plain: {ENDED}")), why == Some(ENDED), "{how} {pid}: {said}");
        }
        waiting.end();
    }
}

/// Also where no directory for pages is named.
#[test]
fn a_library_of_another_name_is_known_by_what_is_in_it() {
    let scratch = Scratch::new("name");
    let other = scratch.0.join("other.so");
    std::fs::copy(common::library(), &other).unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let foreign =
        maps.lines().find(|line| line.ends_with("libgcc_s.so.1")).unwrap().split_whitespace().last().unwrap();
    for (file, said) in
        [(other.to_str().unwrap(), "made no large request"), (foreign, "was not started under faultless")]
    {
        let mut command = Command::new("cat");
        command.env("LD_PRELOAD", file).env_remove("FAULTLESS_STATS").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Killed(command.spawn().unwrap());
        // Its answer comes after it was linked.
        child.0.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        child.0.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let out = faultless(["stat", "-p", &child.0.id().to_string(), "--once"]).output().unwrap();
        assert!(text(&out.stderr).contains(said), "{}", text(&out.stderr));
    }
}

/// It belongs to no user, and has no environment.
#[test]
fn a_thread_of_the_kernels_is_no_foreign_process() {
    let is_kernels = |pid: &u32| {
        std::fs::read(format!("/proc/{pid}/environ")).is_err_and(|error| error.raw_os_error() == Some(libc::ESRCH))
            && std::path::Path::new(&format!("/proc/{pid}/stat")).exists()
    };
    let Some(pid) = (2..20).find(is_kernels) else { return faultless_testkit::skip("no thread of the kernel's") };
    let out = faultless(["stat", "-p", &pid.to_string(), "--once"]).output().unwrap();
    assert_eq!(out.status.code(), Some(1), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("was not started under faultless"), "{}", text(&out.stderr));
}

/// A process of another PID namespace has a number of its own there, by which its page is named.
#[test]
fn a_process_of_another_namespace_is_found_by_its_number_here() {
    let scratch = Scratch::new("namespace");
    let Some(program) = program(&scratch) else { return };
    let unshare = ["unshare", "--pid", "--fork", "--mount-proc"];
    if !Command::new(unshare[0]).args(&unshare[1..]).arg("true").output().is_ok_and(|out| out.status.success()) {
        faultless_testkit::skip("no namespaces can be made");
        return;
    }
    let mut command = run(["--"]);
    command.args(unshare).arg(&program).args(["none", "after"]);
    let waiting = Waiting::start(command);
    let child = |pid: String| {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        children.trim().to_owned()
    };
    let pid = child(child(waiting.0.id().to_string()));
    let stat = faultless(["stat", "-p", &pid, "--once", "-e", "malloc_served"]).output().unwrap();
    assert!(words(&stat.stdout).contains("2 malloc_served"), "{} {}", words(&stat.stdout), words(&stat.stderr));
    let changed = faultless(["sysctl", "-p", &pid, "scrub=0"]).output().unwrap();
    assert_eq!(words(&changed.stdout), "scrub = 0", "{}", words(&changed.stderr));
    waiting.end();
}
