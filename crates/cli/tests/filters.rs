//! Programs behind a filter of system calls from before that kills: they end as they do plain.

mod common;

use std::path::PathBuf;
use std::process::{Command, Output};

use common::recording::compiled;
use common::{Scratch, faultless, text};

/// Kills for the system calls whose numbers are given up to "--", or refuses those below 0, and then is the program
/// behind that.
const CODE: &str = r#"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
int main(int count, char **words) {
    struct sock_filter code[200];
    int n = 0, i = 1;
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (; strcmp(words[i], "--"); i++) {
        int number = atoi(words[i]);
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, abs(number), 0, 1);
        int what = number < 0 ? SECCOMP_RET_ERRNO | 1 : SECCOMP_RET_KILL_PROCESS;
        code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, what);
    }
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {n, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) return 99;
    execvp(words[i + 1], words + i + 1);
    return 98;
}"#;

/// Makes a large request, and nothing else of note.
const PROGRAM: &str = r#"
#include <stdlib.h>
#include <string.h>
int main(void) { char *volatile p = malloc(8 << 20); memset(p, 1, 8 << 20); return 7; }"#;

struct Filtered {
    _scratch: [Scratch; 2],
    filter: PathBuf,
    program: PathBuf,
}

impl Filtered {
    fn new(name: &str) -> Self {
        let scratch = ["filter", "program"].map(|what| Scratch::new(&format!("{name}-{what}")));
        let (filter, program) = (compiled(&scratch[0], CODE, &[]), compiled(&scratch[1], PROGRAM, &[]));
        Self { _scratch: scratch, filter, program }
    }

    /// `faultless` with these words, and then the program, behind a filter that kills for these.
    fn behind(&self, numbers: &[i64], words: &[&str]) -> Output {
        let behind = faultless(words.iter().map(AsRef::as_ref).chain([self.program.as_os_str()]));
        let mut command = Command::new(&self.filter);
        command.args(numbers.iter().map(i64::to_string)).arg("--");
        // Without `env` before it, which makes calls of its own.
        command.args(behind.get_args().skip(1));
        command.envs(behind.get_envs().filter_map(|(name, value)| Some((name, value?)))).output().unwrap()
    }
}

fn said(out: &Output) -> String {
    text(&out.stderr).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_filter_that_kills_for_a_call_of_the_librarys_leaves_the_program_plain() {
    let filtered = Filtered::new("library");
    let numbers =
        [libc::SYS_userfaultfd, libc::SYS_process_vm_readv, libc::SYS_madvise, libc::SYS_sched_setaffinity];
    for number in numbers {
        let out = filtered.behind(&[number], &["run", "--"]);
        assert_eq!(out.status.code(), Some(7), "{number}: {}", said(&out));
        assert!(
            said(&out).contains("nothing covered") && said(&out).contains("the filter kills for"),
            "{}",
            said(&out)
        );
        let out = filtered.behind(&[number], &["run", "--quiet", "--"]);
        assert_eq!((out.status.code(), text(&out.stderr)), (Some(7), ""), "{number}");
    }
    let out = filtered.behind(&numbers[..2], &["stat", "--"]);
    assert_eq!(out.status.code(), Some(7), "{}", said(&out));
    // One that kills for none of them changes nothing.
    let out = filtered.behind(&[libc::SYS_reboot], &["run", "--"]);
    assert_eq!(out.status.code(), Some(7), "{}", said(&out));
    assert!(said(&out).contains("1 process covered"), "{}", said(&out));
}

#[test]
fn where_the_command_would_be_killed_the_program_takes_its_process() {
    let filtered = Filtered::new("command");
    let numbers = [
        libc::SYS_fcntl,
        libc::SYS_gettid,
        libc::SYS_getpid,
        libc::SYS_prctl,
        libc::SYS_statx,
        libc::SYS_sched_getaffinity,
        libc::SYS_rt_sigprocmask,
        libc::SYS_fallocate,
        libc::SYS_wait4,
    ];
    for number in numbers {
        let out = filtered.behind(&[number], &["run"]);
        assert_eq!(out.status.code(), Some(7), "{number}: {}", said(&out));
        assert!(said(&out).contains("the program runs plain, takes this process"), "{}", said(&out));
        let out = filtered.behind(&[number], &["run", "--quiet", "--"]);
        assert_eq!((out.status.code(), text(&out.stderr)), (Some(7), ""), "{number}");
    }
    let out = filtered.behind(&numbers, &["run", "--skip", "x", "--"]);
    assert_eq!(out.status.code(), Some(7), "{}", said(&out));
    // What cannot stand in says so before the program begins.
    let out = filtered.behind(&numbers, &["record", "--"]);
    assert_eq!(out.status.code(), Some(125), "{}", said(&out));
    assert!(said(&out).contains("this command cannot run here"), "{}", said(&out));
}

/// The command does without most calls that are refused. These it needs.
#[test]
fn where_the_command_is_refused_what_it_needs_the_program_takes_its_process() {
    let filtered = Filtered::new("refused");
    let mut sets = vec![vec![libc::SYS_rt_sigaction], vec![libc::SYS_wait4, libc::SYS_waitid]];
    #[cfg(target_arch = "x86_64")]
    sets.extend([vec![libc::SYS_poll], vec![libc::SYS_readlink]]);
    for set in sets {
        let numbers: Vec<_> = set.iter().map(|number| -number).collect();
        let out = filtered.behind(&numbers, &["run", "--"]);
        assert_eq!(out.status.code(), Some(7), "{set:?}: {}", said(&out));
        assert!(said(&out).contains("the filter refuses"), "{}", said(&out));
        let out = filtered.behind(&numbers, &["run", "--quiet", "--"]);
        assert_eq!((out.status.code(), text(&out.stderr)), (Some(7), ""), "{set:?}");
    }
    let out = filtered.behind(&[-libc::SYS_clone, -libc::SYS_clone3], &["run", "--"]);
    assert_eq!(out.status.code(), Some(7), "{}", said(&out));
    assert!(said(&out).contains("no process is left for the program"), "{}", said(&out));
    // One that is not needed changes nothing.
    for number in [libc::SYS_getxattr, libc::SYS_set_robust_list, libc::SYS_getppid] {
        let out = filtered.behind(&[-number], &["run", "--"]);
        assert_eq!(out.status.code(), Some(7), "{number}: {}", said(&out));
        assert!(said(&out).contains("1 process covered"), "{number}: {}", said(&out));
    }
}

/// What brings files makes calls that nothing else here makes.
#[test]
fn nothing_is_brought_where_a_filter_kills() {
    let filtered = Filtered::new("files");
    for number in [libc::SYS_fstatfs, 451] {
        let out = filtered.behind(&[number], &["run", "--files", "/bin/sh", "--"]);
        assert_eq!(out.status.code(), Some(7), "{number}: {}", said(&out));
        let said = said(&out);
        assert!(said.contains("1 process covered") && said.contains("(seccomp), and the filter kills"), "{said}");
    }
    // One that is refused says less.
    let out = filtered.behind(&[-451], &["run", "--files", "/bin/sh", "--"]);
    assert_eq!(out.status.code(), Some(7), "{}", said(&out));
    assert!(!said(&out).contains("(seccomp)"), "{}", said(&out));
}

#[test]
fn doctor_tries_nothing_that_kills() {
    let filtered = Filtered::new("doctor");
    let out = filtered.behind(&[libc::SYS_userfaultfd, libc::SYS_madvise], &["doctor", "--"]);
    assert_eq!(out.status.code(), Some(2), "{}", said(&out));
    let found = text(&out.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(found.contains("the filter kills for userfaultfd, which faultless uses, and 1 more"), "{found}");
    let out = filtered.behind(&[libc::SYS_gettid], &["doctor", "--"]);
    assert_eq!(out.status.code(), Some(125), "{}", said(&out));
}

/// Signals that cannot be held back are not waited for.
#[test]
fn where_signals_cannot_be_held_back_the_end_is_noticed() {
    faultless_testkit::limit::limit();
    let filtered = Filtered::new("signals");
    let out = filtered.behind(&[-libc::SYS_rt_sigprocmask], &["run", "--"]);
    assert_eq!(out.status.code(), Some(7), "{}", said(&out));
}
