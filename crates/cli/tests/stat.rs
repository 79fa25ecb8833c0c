//! `faultless stat` and `faultless sysctl` from outside: what they show and change, and what is wrong with what.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use common::{Scratch, faultless, is_root, library, run, text};
use faultless_testkit::Killed;
use faultless_testkit::copy_program;
use faultless_testkit::limit::limit;
use serde_json::Value;

/// A program with one block from the library, that waits until its output is read.
struct Covered(Killed);

impl Covered {
    fn start() -> Self {
        Self::of("dd".as_ref())
    }

    /// With `dd` of another name.
    fn of(dd: &Path) -> Self {
        let library = library();
        limit();
        let mut command = Command::new(dd);
        command.args(["if=/dev/zero", "bs=8M", "count=2"]).env("LD_PRELOAD", library);
        command.env("FAULTLESS_BUDGET", "64M").env_remove("FAULTLESS_STATS");
        let mut child = Self(Killed(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()));
        // Its first byte comes after the block.
        child.0.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        child
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    /// Reads the rest, so that it ends.
    fn end(&mut self) {
        std::io::copy(&mut self.0.stdout.take().unwrap(), &mut std::io::sink()).unwrap();
        self.0.wait().unwrap();
    }
}

fn output(args: &[&str]) -> Output {
    faultless(args).output().unwrap()
}

fn json(args: &[&str]) -> Value {
    let out = output(args);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

/// Whether the kernel has a segment of this process's.
fn has_segment(pid: &str) -> bool {
    let segments = std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
    segments.lines().any(|line| line.split_whitespace().nth(4) == Some(pid))
}

#[test]
fn what_a_process_counted_is_shown() {
    let program = Covered::start();
    let report = json(&["stat", "-p", &program.pid(), "--once", "--json", "-e", "malloc_*"]);
    assert_eq!((&report["version"], &report["kind"]), (&1.into(), &"total".into()));
    let process = &report["processes"][0];
    assert_eq!((&process["command"], &process["running"]), (&"dd".into(), &true.into()));
    assert_eq!(process["knobs"]["prefault_by"], "area");
    assert_eq!(process["knobs"]["budget"], 64 << 20);
    assert_eq!(process["counters"].as_object().unwrap().len(), 2);
    assert_eq!(
        (&process["counters"]["malloc_served"], &report["totals"]["malloc_served"]),
        (&1.into(), &1.into())
    );
    let reference = include_str!("../../../docs/reference.md");
    let is_told = |field: &str| reference.contains(&format!("`{field}`"));
    assert!(report.as_object().unwrap().keys().all(|field| is_told(field)), "{report}");
    assert!(process.as_object().unwrap().keys().all(|field| is_told(&format!(".{field}"))), "{report}");
    let list = json(&["stat", "--json"]);
    let pids = list["processes"].as_array().unwrap().iter().map(|process| process["pid"].to_string());
    assert!(pids.into_iter().any(|pid| pid == program.pid()), "{list}");
}

/// A program that touches memory has page faults, also where it has no region and asks the library for nothing.
#[test]
fn the_kernels_page_faults_of_a_program_are_shown() {
    let args = ["stat", "-e", "faults", "--", "dd", "if=/dev/zero", "of=/dev/null", "bs=64K", "count=1"];
    let out = output(&args);
    let said = text(&out.stderr);
    let line = |name: &str| {
        let words = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let found = words.into_iter().find(|words| words.get(1) == Some(&name));
        found.and_then(|words| words[0].parse::<u64>().ok()).unwrap_or_else(|| panic!("no {name}: {said}"))
    };
    assert!(line("faults") > 16, "{said}");
    assert_eq!(line("faults_regions"), 0, "{said}");
    // A process that runs, as JSON.
    let program = Covered::start();
    let report = json(&["stat", "-p", &program.pid(), "--once", "--json", "-e", "faults"]);
    assert!(report["page_faults"].as_u64().unwrap() > 16, "{report}");
    let other = json(&["stat", "-p", &program.pid(), "--once", "--json", "-e", "spf"]);
    assert_eq!(other.get("page_faults"), None);
}

#[test]
fn metrics_are_what_the_json_says() {
    let program = Covered::start();
    let pid = program.pid();
    let all = json(&["stat", "-p", &pid, "--once", "--json", "-e", "*"]);
    let out = output(&["stat", "--openmetrics", "-p", &pid, "-e", "malloc_*,worker_starts"]);
    assert_eq!((out.status.code(), text(&out.stderr)), (Some(0), ""));
    let metrics = text(&out.stdout);
    let labels = format!("{{pid=\"{pid}\",command=\"dd\"");
    for counter in ["malloc_served", "malloc_bytes", "worker_starts"] {
        let line = format!("faultless_{counter}_total{labels}}} {}\n", all["processes"][0]["counters"][counter]);
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
    assert!(!metrics.contains("mmap_served"), "{metrics}");
    let budget = format!("faultless_knob{labels},knob=\"budget\"}} {}\n", 64 << 20);
    assert!(metrics.contains(&budget), "{metrics}");
    assert!(metrics.contains(&format!("faultless_process_info{labels},plain=\"\"}} 1\n")), "{metrics}");
    assert!(metrics.ends_with("\n# EOF\n"));
    let everybody = output(&["stat", "--openmetrics"]);
    assert!(text(&everybody.stdout).contains(&labels), "{}", text(&everybody.stdout));
    let none = output(&["stat", "--openmetrics", "-p", "2147483000"]);
    assert_eq!((none.status.code(), text(&none.stdout)), (Some(1), ""));
}

#[test]
fn nothing_is_left_of_a_process_that_was_killed() {
    let mut program = Covered::start();
    assert!(has_segment(&program.pid()));
    program.0.kill().unwrap();
    program.0.wait().unwrap();
    // Unless another process looks at it right now: another test's command looks at all.
    while has_segment(&program.pid()) {
        std::thread::yield_now();
    }
    let out = output(&["stat", "-p", &program.pid()]);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).ends_with("there is no such process, or it has ended\n"), "{}", text(&out.stderr));
}

#[test]
fn a_process_that_ends_while_it_is_watched_ends_the_watch() {
    let mut program = Covered::start();
    let pid = program.pid();
    let mut stat = faultless(["stat", "-p", &pid, "--json", "-i", "0.05"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(stat.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    program.end();
    let last: Value = serde_json::from_str(&lines.last().unwrap().unwrap()).unwrap();
    assert_eq!((&last["kind"], &last["processes"][0]["running"]), (&"total".into(), &false.into()));
    assert_eq!(stat.wait().unwrap().code(), Some(0));
}

#[test]
fn intervals_add_up_to_the_totals() {
    // Several processes, which come and go.
    let dd = "dd if=/dev/zero of=/dev/null bs=8M count=2 2>/dev/null; sleep 0.1;";
    let scratch = Scratch::new("intervals");
    let file = scratch.0.join("out.json");
    let args = ["stat", "-i", "0.05", "--json", "-o", file.to_str().unwrap(), "--", "sh", "-c"];
    let out = faultless(args).arg(dd.repeat(3) + "echo out; exit 7").output().unwrap();
    assert_eq!((out.status.code(), text(&out.stdout), text(&out.stderr)), (Some(7), "out\n", ""));
    let lines = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (total, intervals) = lines.split_last().unwrap();
    assert_eq!(total["kind"], "total");
    assert_eq!(total["processes"].as_array().unwrap().len(), 3);
    assert_eq!(total["totals"]["malloc_served"], 3);
    assert!(intervals.iter().all(|line| line["kind"] == "interval"));
    for (name, sum) in total["totals"].as_object().unwrap() {
        let parts = intervals.iter().map(|line| line["totals"][name].as_u64().unwrap());
        assert_eq!(parts.sum::<u64>(), sum.as_u64().unwrap(), "{name}");
    }
}

/// Also those of programs that no look meets: too short, or plain.
#[test]
fn faults_of_intervals_add_up_to_the_totals() {
    let scratch = Scratch::new("faults");
    let file = scratch.0.join("out.json");
    let args = ["stat", "-i", "0.05", "--json", "-e", "faults", "-o", file.to_str().unwrap(), "--", "sh", "-c"];
    let script = "for i in 1 2 3 4 5 6 7 8; do /bin/true; done; sleep 0.2; /bin/true";
    assert!(faultless(args).arg(script).status().unwrap().success());
    let lines = std::fs::read_to_string(&file).unwrap();
    let lines =
        lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["page_faults"].as_u64().unwrap());
    let lines: Vec<u64> = lines.collect();
    let (total, intervals) = lines.split_last().unwrap();
    assert!(*total > 100, "{lines:?}");
    assert_eq!(intervals.iter().sum::<u64>(), *total, "{lines:?}");
}

/// Under `run`, the next program of a process counts on the page of the one before it.
#[test]
fn a_program_that_takes_anothers_place_is_counted_once() {
    let scratch = Scratch::new("exec");
    let file = scratch.0.join("out.json");
    let args = ["stat", "-i", "0.05", "--json", "-e", "malloc_served,malloc_bytes", "-o", file.to_str().unwrap()];
    let script = r#"$x = "x" x 8000000; select undef, undef, undef, 0.01 until -e $ARGV[0];
                    exec "dd", "if=/dev/zero", "of=/dev/null", "bs=8M", "count=1""#;
    let go = scratch.0.join("go");
    let mut stat = faultless(args).args(["--", "perl", "-e", script]).arg(&go).spawn().unwrap();
    let lines = || -> Vec<Value> {
        let lines = std::fs::read_to_string(&file).unwrap_or_default();
        lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    let counted = |line: &Value, name: &str| line["totals"][name].as_u64().unwrap();
    // The second program comes when the first one was seen to count.
    while !lines().iter().any(|line| counted(line, "malloc_served") > 0) && stat.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::fs::write(&go, "").unwrap();
    let status = stat.wait().unwrap();
    if status.code() == Some(127) {
        faultless_testkit::skip("there is no perl");
        return;
    }
    assert_eq!(status.code(), Some(0));
    let lines = lines();
    let (total, intervals) = lines.split_last().unwrap();
    let first = intervals.iter().find(|line| counted(line, "malloc_served") > 0).unwrap();
    assert_eq!(first["processes"][0]["command"], "perl");
    for name in ["malloc_served", "malloc_bytes"] {
        let parts: Vec<_> = intervals.iter().map(|line| counted(line, name)).collect();
        assert!(parts.iter().filter(|n| **n > 0).count() >= 2, "both programs count: {parts:?}");
        assert_eq!(parts.iter().sum::<u64>(), counted(total, name), "{name}: {parts:?}");
    }
}

/// A command finds the pages of another that has a place of its own for them.
#[test]
fn pages_are_found_wherever_they_are() {
    let runtime = Scratch::new("runtime");
    let mut tree = run(["--", "dd", "if=/dev/zero", "bs=8M", "count=2"]);
    tree.env("XDG_RUNTIME_DIR", &runtime.0).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut tree = tree.spawn().unwrap();
    tree.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    assert_eq!(runtime.entries(), 1);
    let of_tree = json(&["stat", "-p", &tree.id().to_string(), "--once", "--json"]);
    assert_eq!(of_tree["totals"]["malloc_served"], 1);
    let member = &of_tree["processes"][0]["pid"];
    let list = json(&["stat", "--json"]);
    let times = list["processes"].as_array().unwrap().iter().filter(|process| process["pid"] == *member).count();
    assert_eq!(times, 1, "{list}");
    drop(tree.stdout.take());
    tree.wait().unwrap();
}

#[test]
fn a_tree_is_watched_by_the_number_of_its_command() {
    let mut tree = run(["--", "sh", "-c", "dd if=/dev/zero bs=8M count=2 2>/dev/null"]);
    let mut tree = tree.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    tree.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let pid = tree.id().to_string();
    let report = json(&["stat", "-p", &pid, "--once", "--json"]);
    assert_eq!(report["totals"]["malloc_served"], 1, "{report}");
    let member = report["processes"][0]["pid"].to_string();
    assert_ne!(member, pid);
    assert_eq!(json(&["stat", "-p", &member, "--once", "--json"])["totals"]["malloc_served"], 1);
    let changed = output(&["sysctl", "-p", &pid, "scrub=0"]);
    assert_eq!(text(&changed.stdout), format!("{member} scrub = 0\n"), "{}", text(&changed.stderr));
    assert_eq!(text(&output(&["sysctl", "-p", &member, "scrub"]).stdout), "scrub = 0\n");
    drop(tree.stdout.take());
    tree.wait().unwrap();
}

#[test]
fn ctrl_c_ends_a_watch_with_the_totals() {
    let program = Covered::start();
    let stat =
        faultless(["stat", "-p", &program.pid(), "-i", "0.05", "-e", "forks"]).stdout(Stdio::piped()).spawn();
    let mut stat = stat.unwrap();
    let mut lines = BufReader::new(stat.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    let pid = rustix::process::Pid::from_child(&stat);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let lines: Vec<_> = lines.map(Result::unwrap).collect();
    assert!(lines.iter().any(|line| line.starts_with("faultless: process")), "{lines:?}");
    assert_eq!(stat.wait().unwrap().code(), Some(0));
}

#[test]
fn who_stops_reading_ends_it_quietly() {
    let program = Covered::start();
    let mut stat = faultless(["stat", "-p", &program.pid(), "-i", "0.01"]);
    let mut stat = stat.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(stat.stdout.take());
    let out = stat.wait_with_output().unwrap();
    assert_eq!((out.status.signal(), text(&out.stderr)), (Some(libc::SIGPIPE), ""));
}

#[test]
fn what_is_wrong_is_said_in_one_line_and_changes_nothing() {
    let program = Covered::start();
    let (pid, own) = (program.pid(), std::process::id().to_string());
    let table: &[(&[&str], i32, &str)] = &[
        (&["stat", "-e", "maloc_served"], 125, "did you mean malloc_served?"),
        (&["stat", "-e", ","], 125, "no counter is named"),
        (&["stat", "-i", "0"], 125, "from 0.01"),
        (&["stat", "-i", "1", "-n", "0"], 125, "0"),
        (&["stat", "-p", "x"], 125, "x"),
        (&["stat", "-p", &own], 1, "not started under faultless"),
        (&["stat", "-p", "4294967295"], 1, "no such process"),
        (&["stat", "-o", "/nonexistent/file"], 125, "cannot write"),
        (&["stat", "--", "faultless-no-such-command"], 127, "No such file"),
        (&["sysctl", "-p", &own, "scrub=0"], 1, "not started under faultless"),
        (&["sysctl", "-p", &pid, "scrub=0", "bugdet=1"], 125, "did you mean budget?"),
        (&["sysctl", "-p", &pid, "scrub=0", "mmap_threshold=1M"], 125, "less than 2M"),
        (&["sysctl", "-p", &pid, "scrub=0", "budget=999999999999G"], 125, "more than"),
        (&["sysctl", "-p", &pid, "scrub=0", "prefault_by=lax"], 125, "not one of area thread"),
        (&["sysctl", "-p", &pid, "scrub=0", "check=1"], 125, "FAULTLESS_CHECK"),
        (&["sysctl", "-p", &pid, "scrub=0", "skip"], 125, "not known of a running program"),
        (&["sysctl", "-p", &pid, "--list", "scrub=0"], 125, "cannot be used with"),
        (&["sysctl", "--list", "scrub=0"], 125, "only explains"),
        (&["sysctl", "scrub=0"], 1, "cannot change"),
        (&["run", "-s", "scrub", "--", "true"], 125, "NAME=VALUE"),
    ];
    for (args, status, reason) in table {
        let out = output(args);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(*status), "{args:?}: {said}");
        assert!(said.starts_with("faultless: ") && said.contains(reason) && said.lines().count() == 1, "{said}");
        assert_eq!(text(&out.stdout), "", "{args:?}");
    }
    assert_eq!(text(&output(&["sysctl", "-p", &pid, "scrub"]).stdout), "scrub = 1\n");
}

#[test]
fn another_users_process_is_not_shown() {
    let program = Covered::start();
    if !is_root() {
        return;
    }
    // A copy, which another user may run.
    let scratch = Scratch::new("foreign");
    let copy = scratch.0.join("faultless");
    copy_program(env!("CARGO_BIN_EXE_faultless"), &copy);
    for args in [&["stat", "-p", &program.pid()][..], &["sysctl", "-p", &program.pid(), "scrub=0"]] {
        let out = Command::new(&copy).args(args).uid(65534).gid(65534).output().unwrap();
        assert_eq!(out.status.code(), Some(77));
        assert!(text(&out.stderr).contains("belongs to another user"), "{}", text(&out.stderr));
    }
    let list = Command::new(&copy).arg("stat").uid(65534).gid(65534).output().unwrap();
    assert!(!text(&list.stdout).contains(&program.pid()), "{}", text(&list.stdout));
    assert_eq!(list.status.code(), Some(77));
    assert!(text(&list.stderr).contains("you may not look at"), "{}", text(&list.stderr));
    // All that a command of another user's runs.
    let mut tree = run(["--", "dd", "if=/dev/zero", "bs=8M", "count=2"]);
    let mut tree = tree.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    tree.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let of_tree = ["stat", "-p", &tree.id().to_string(), "--once"];
    let out = Command::new(&copy).args(of_tree).uid(65534).gid(65534).output().unwrap();
    assert_eq!((out.status.code(), text(&out.stdout)), (Some(77), ""), "{}", text(&out.stderr));
    drop(tree.stdout.take());
    tree.wait().unwrap();
}

#[test]
fn a_narrow_terminal_loses_nothing() {
    // A name as long as the kernel keeps.
    let scratch = Scratch::new("narrow");
    let name = "fifteen_letters";
    copy_program("/bin/dd", scratch.0.join(name));
    let program = Covered::of(&scratch.0.join(name));
    let pid = program.pid();
    let table: [(&[&str], &[&str]); 4] = [
        (&["stat", "-p", &pid, "--once", "-e", "*"], &[&pid, name, "malloc_served"]),
        (&["stat"], &[&pid, name, "1 requests", "8192K served", "0 left"]),
        (&["sysctl"], &["budget = the larger of", "# default"]),
        (&["sysctl", "--list"], &["FAULTLESS_MALLOC_THRESHOLD", "the larger of"]),
    ];
    for (args, parts) in table {
        let out = faultless(args).env("COLUMNS", "40").output().unwrap();
        let shown = text(&out.stdout);
        assert!(shown.lines().all(|line| line.chars().count() <= 40), "{shown}");
        assert!(parts.iter().all(|part| shown.contains(part)), "{shown}");
    }
    let args = ["stat", "-p", &program.pid(), "-i", "0.05", "-n", "1"];
    let out = faultless(args).env("COLUMNS", "40").output().unwrap();
    assert!(text(&out.stdout).contains(" s\n"), "lines of counters, not columns");
}

/// The program's status counts, and what is missing is said.
#[test]
fn a_program_goes_on_where_no_thread_can_report() {
    let mut command = faultless(["stat", "--", "sh", "-c", "exit 5"]);
    let limited = std::process::Command::new("sh")
        .args(["-c", "ulimit -d 1000 && exec \"$@\"", "sh"])
        .arg(command.get_program())
        .args(command.get_args())
        .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .output()
        .unwrap();
    assert_eq!(limited.status.code(), Some(5), "{}", text(&limited.stderr));
    assert!(text(&limited.stderr).contains("nothing is reported: no thread for it"), "{}", text(&limited.stderr));
    // Without the limit there is one.
    assert!(!text(&command.output().unwrap().stderr).contains("no thread"));
}
