//! Pages of processes as `faultless stat` takes them: whose they are, what is wrong with them, and thousands of them.

mod common;

use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use common::{Scratch, faultless, is_root, text};
use faultless_page::layout::{MAGIC, Page, TABLES, VERSION};
use faultless_testkit::Killed;
use faultless_testkit::limit::limit;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use serde_json::Value;

fn output(args: &[&str]) -> Output {
    faultless(args).output().unwrap()
}

/// The page of process `pid`, with nothing counted but one request.
fn page(pid: u32) -> Vec<u8> {
    let (counters, blocks) = (faultless_page::stats::COUNT, faultless_page::stats::BLOCKS);
    let mut bytes = vec![0; size_of::<Page>()];
    let mut put = |at: usize, n: &[u8]| bytes[at..at + n.len()].copy_from_slice(n);
    put(0, &MAGIC.to_ne_bytes());
    let numbers = [
        VERSION,
        pid,
        size_of::<Page>() as u32,
        counters as u32,
        blocks as u32,
        faultless_page::knobs::COUNT as u32,
    ];
    numbers.iter().enumerate().for_each(|(i, n)| put(8 + 4 * i, &n.to_ne_bytes()));
    put(32, &TABLES.to_ne_bytes());
    // Made when the process was there already.
    put(40, &faultless_base::sys::raw::boot_ns().to_ne_bytes());
    put(std::mem::offset_of!(Page, block), &1u64.to_ne_bytes());
    bytes
}

/// A number that was taken again: the page that is there is an earlier process's.
#[test]
fn a_page_of_an_earlier_process_is_not_shown_for_its_number() {
    let scratch = Scratch::new("earlier");
    limit();
    let mut process = Command::new("sleep").arg("60").env("FAULTLESS_STATS", &scratch.0).spawn().unwrap();
    let pid = process.id();
    let mut earlier = page(pid);
    earlier[40..48].copy_from_slice(&1u64.to_ne_bytes());
    std::fs::write(scratch.0.join(pid.to_string()), earlier).unwrap();
    let of_process = output(&["stat", "-p", &pid.to_string(), "--once"]);
    let (list, changed) = (output(&["stat"]), output(&["sysctl", "-p", &pid.to_string(), "scrub=0"]));
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(
        (of_process.status.code(), changed.status.code()),
        (Some(1), Some(1)),
        "{}",
        text(&of_process.stdout)
    );
    assert!(!text(&list.stdout).contains(&format!("{pid} ")), "{}", text(&list.stdout));
}

/// Any user may make a directory such as those of `run`: what is in it counts for processes of his alone.
#[test]
fn another_user_forges_no_counters() {
    if !is_root() {
        return;
    }
    let runtime = Scratch::new("forged");
    let mut process = Killed(Command::new("sleep").arg("60").spawn().unwrap());
    let pid = process.id();
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap();
    let namespace: String = namespace.to_str().unwrap().chars().filter(char::is_ascii_digit).collect();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let started = stat.rsplit(") ").next().unwrap().split(' ').nth(19).unwrap();
    let dir = runtime.0.join(format!("faultless-{pid}-{started}-{namespace}-0"));
    std::fs::create_dir(&dir).unwrap();
    let file = dir.join(pid.to_string());
    let is_shown = || {
        let out = faultless(["stat"]).env("XDG_RUNTIME_DIR", &runtime.0).output().unwrap();
        let mut tree = faultless(["stat", "-p", &pid.to_string(), "--once"]);
        let tree = tree.env("XDG_RUNTIME_DIR", &runtime.0).output().unwrap();
        (text(&out.stdout).contains(&format!("{pid} ")), tree.status.success())
    };
    std::fs::write(&file, page(pid)).unwrap();
    assert_eq!(is_shown(), (true, true), "root's own");
    // In the directory of another user, and then a file of his.
    std::os::unix::fs::chown(&dir, Some(65534), None).unwrap();
    assert_eq!(is_shown(), (false, false));
    std::os::unix::fs::chown(&dir, Some(0), None).unwrap();
    std::os::unix::fs::chown(&file, Some(65534), None).unwrap();
    assert!(!is_shown().0);
    std::os::unix::fs::chown(&file, Some(0), None).unwrap();
    // Nor is a page one that begins in the future.
    let mut future = page(pid);
    future[40..48].copy_from_slice(&(1u64 << 62).to_ne_bytes());
    std::fs::write(&file, future).unwrap();
    assert!(!is_shown().0);
    process.kill().unwrap();
}

/// The files in these directories that were opened while `act` ran.
fn opened_during(dirs: &[&Path], act: impl FnOnce()) -> Vec<String> {
    let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
    for dir in dirs {
        inotify::add_watch(&events, *dir, WatchFlags::OPEN).unwrap();
    }
    act();
    let mut room = [MaybeUninit::uninit(); 1 << 12];
    let (mut events, mut names) = (inotify::Reader::new(&events, &mut room), Vec::new());
    // Directories are listed, without a name here.
    while let Ok(event) = events.next() {
        names.extend(event.file_name().map(|name| name.to_str().unwrap().to_owned()));
    }
    names
}

/// To open a terminal, a device or a pipe can do harm: others say where pages are, and what they name is looked at first.
#[test]
fn what_is_no_file_is_not_opened() {
    let scratch = Scratch::new("unopened");
    let make = |name: &str| {
        let dir = scratch.0.join(name);
        std::fs::create_dir(&dir).unwrap();
        dir
    };
    let (named, runtime, elsewhere) = (make("named"), make("runtime"), make("elsewhere"));
    let sleep = Killed(Command::new("sleep").arg("60").env("FAULTLESS_STATS", &named).spawn().unwrap());
    let pid = sleep.id().to_string();
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap();
    let namespace: String = namespace.to_str().unwrap().chars().filter(char::is_ascii_digit).collect();
    // Of a command that has ended: the next one looks whether its processes have.
    let left = runtime.join(format!("faultless-1-1-{namespace}-0"));
    std::fs::create_dir(&left).unwrap();
    std::os::unix::fs::symlink(&elsewhere, runtime.join(format!("faultless-1-1-{namespace}-1"))).unwrap();
    std::fs::write(elsewhere.join(&pid), page(sleep.id())).unwrap();
    for pipe in [named.join(&pid), left.join(&pid)] {
        assert!(Command::new("mkfifo").arg(pipe).status().unwrap().success());
    }
    while std::fs::read(format!("/proc/{pid}/environ")).unwrap().is_empty() {
        std::thread::yield_now();
    }
    let with_runtime = |mut command: Command| command.env("XDG_RUNTIME_DIR", &runtime).output().unwrap();
    let opened = opened_during(&[&named, &left, &elsewhere], || {
        with_runtime(faultless(["stat"]));
        with_runtime(faultless(["stat", "-p", &pid, "--once"]));
        with_runtime(faultless(["stat", "--openmetrics"]));
        with_runtime(faultless(["run", "--", "true"]));
    });
    assert_eq!(opened, Vec::<String>::new());
    assert!(elsewhere.join(&pid).exists());
    // A page is opened, or nothing would be seen here.
    std::fs::remove_file(named.join(&pid)).unwrap();
    std::fs::write(named.join(&pid), page(sleep.id())).unwrap();
    let opened = opened_during(&[&named], || drop(output(&["stat", "-p", &pid, "--once"])));
    assert!(opened.contains(&pid), "{opened:?}");
}

/// A process may name any file: one that is not its user's counts only where the process has it mapped.
#[test]
fn a_process_cannot_stand_for_another() {
    let scratch = Scratch::new("stands");
    let mut sleep = Command::new("sleep");
    sleep.arg("60").env("FAULTLESS_STATS", &scratch.0);
    let user = if is_root() { 65534 } else { rustix::process::getuid().as_raw() };
    let sleep = Killed(sleep.uid(user).spawn().unwrap());
    let (pid, file) = (sleep.id().to_string(), scratch.0.join(sleep.id().to_string()));
    while std::fs::read(format!("/proc/{pid}/environ")).unwrap().is_empty() {
        std::thread::yield_now();
    }
    let is_shown = || {
        let (one, all) = (output(&["stat", "-p", &pid, "--once"]), output(&["stat"]));
        assert!(one.status.success() || text(&one.stderr).contains("belongs to another"), "{}", text(&one.stderr));
        [one.status.success(), text(&all.stdout).contains(&format!("{pid} "))]
    };
    let write = |of: u32, owner: u32| {
        std::fs::write(&file, page(of)).unwrap();
        std::os::unix::fs::chown(&file, Some(owner), None).unwrap();
    };
    write(sleep.id(), user);
    assert_eq!(is_shown(), [true; 2], "its own");
    write(sleep.id() + 1, user);
    assert_eq!(is_shown(), [false; 2], "the page of another process");
    if user != rustix::process::getuid().as_raw() {
        write(sleep.id(), 0);
        assert_eq!(is_shown(), [false; 2], "a page of root's");
    }
}

#[test]
fn a_page_that_is_none_is_told() {
    let scratch = Scratch::new("pages");
    let mut sleep = Command::new("sleep").arg("60").env("FAULTLESS_STATS", &scratch.0).spawn().unwrap();
    let good = page(sleep.id());
    let changed = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 0x40;
        bytes
    };
    let table = [
        (good.clone(), None),
        (good[..100].to_vec(), Some("ends after 100 of")),
        (changed(0), Some("is not a counters page")),
        (changed(8), Some("layout version")),
        (changed(32), Some("do not belong together")),
        (vec![0; good.len()], Some("was not started under faultless")),
    ];
    let pid = sleep.id().to_string();
    // A process that has just been started has no environment at first.
    while std::fs::read(format!("/proc/{pid}/environ")).unwrap().is_empty() {
        std::thread::yield_now();
    }
    for (bytes, reason) in table {
        std::fs::write(scratch.0.join(&pid), &bytes).unwrap();
        // No program has it mapped, so that no knob on it counts.
        let deaf = Some(reason.unwrap_or("was replaced"));
        let of_stat = (&["stat", "-p", &pid, "--once"][..], reason);
        for (args, reason) in [of_stat, (&["sysctl", "-p", &pid, "scrub=1"], deaf)] {
            let out = output(args);
            let said = text(&out.stderr);
            assert_eq!(out.status.code(), Some(reason.is_some() as i32), "{said}");
            assert!(reason.is_none_or(|reason| said.contains(reason) && said.lines().count() == 1), "{said}");
        }
        let now = std::fs::read(scratch.0.join(&pid)).unwrap();
        assert!(now == bytes, "{reason:?}: it was written to");
    }
    sleep.kill().unwrap();
    sleep.wait().unwrap();
}

#[test]
fn thousands_of_processes_are_added_up() {
    let runtime = Scratch::new("thousands");
    let own = |file: &str| std::fs::read_to_string(format!("/proc/self/{file}")).unwrap();
    let (stat, namespace) = (own("stat"), std::fs::read_link("/proc/self/ns/pid").unwrap());
    let started = stat.rsplit(") ").next().unwrap().split(' ').nth(19).unwrap();
    let namespace: String = namespace.to_str().unwrap().chars().filter(char::is_ascii_digit).collect();
    let dir = runtime.0.join(format!("faultless-{}-{started}-{namespace}-7", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    // Beyond the numbers that processes have: all of them have ended.
    for pid in 10_000_001..=10_003_000 {
        std::fs::write(dir.join(pid.to_string()), page(pid)).unwrap();
    }
    let own = std::process::id().to_string();
    let stat = |limit: &str| {
        let inner = faultless(["stat", "-p", &own, "--once", "--json", "-e", "mmap_served"]);
        let mut stat = Command::new("sh");
        stat.args(["-c", &format!("ulimit {limit}; exec \"$@\""), "sh"]).arg(inner.get_program());
        stat.args(inner.get_args()).env("XDG_RUNTIME_DIR", &runtime.0);
        let out = stat.output().unwrap();
        let report: Value = serde_json::from_slice(&out.stdout).unwrap();
        let processes = report["processes"].as_array().unwrap().len();
        (report["totals"]["mmap_served"].as_u64().unwrap(), processes, text(&out.stderr).to_owned())
    };
    for limit in ["-Sn 64", "-n 64"] {
        assert_eq!(stat(limit), (3000, 3000, String::new()), "{limit}");
    }
    // Those of processes that run stay open: what cannot be read is said.
    let mut sleeping: Vec<_> =
        (0..100).map(|_| Killed(Command::new("sleep").arg("600").spawn().unwrap())).collect();
    for process in &sleeping {
        std::fs::write(dir.join(process.id().to_string()), page(process.id())).unwrap();
    }
    let (total, _, said) = stat("-n 64");
    assert!(
        total < 3000 && said.contains("not all could be read") && said.contains("counts are missing"),
        "{said}"
    );
    let (total, processes, said) = stat("-Sn 64");
    assert_eq!((total, processes, said.as_str()), (3100, 3100, ""));
    sleeping.clear();
}
