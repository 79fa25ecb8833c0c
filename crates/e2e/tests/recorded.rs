//! `faultless record` on real programs: the kind of fault and the mapping that dominate are those of the program's
//! nature, and of what the kernel says of its memory.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use faultless_e2e::{command, find, naming_python, need, python, scratch, script, skip};
use serde_json::Value;

/// What `faultless report --json` says of a recording; nothing where faults cannot be sampled.
fn report(dir: &Path) -> Option<Value> {
    let out = command(["report", "--json"]).arg(dir.join("it.rec")).output().expect("the command");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let summary: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    if summary["recording"]["period"] == 0 {
        skip("faults cannot be sampled here");
        return None;
    }
    assert_eq!(summary["recording"]["complete"], true, "{}", summary["notes"]);
    Some(summary)
}

/// Records a program in a directory, as that user if one is given.
fn record(dir: &Path, user: Option<(u32, u32)>, program: impl FnOnce(&mut Command)) -> Option<Value> {
    record_with(&["--period", "13"], dir, user, program)
}

fn record_with(
    options: &[&str],
    dir: &Path,
    user: Option<(u32, u32)>,
    program: impl FnOnce(&mut Command),
) -> Option<Value> {
    let mut command = command(["record"]);
    command.args(options).arg("-o").arg(dir.join("it.rec")).arg("--").current_dir(dir).env("LC_ALL", "C.UTF-8");
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    program(&mut command);
    let out = command.output().expect("the command");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    report(dir)
}

/// The share of the rows of a table for which that holds.
fn share(summary: &Value, table: &str, holds: impl Fn(&Value) -> bool) -> f64 {
    let rows = summary[table].as_array().expect("a table");
    rows.iter().filter(|row| holds(row)).map(|row| row["share"].as_f64().expect("a share")).sum()
}

fn of_kind(summary: &Value, kinds: &[&str]) -> f64 {
    share(summary, "kinds", |row| kinds.iter().any(|kind| row["kind"] == *kind))
}

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_default()
}

/// Many parts of memory that a program has for itself alone.
fn is_private(row: &Value) -> bool {
    ["anonymous", "heap"].contains(&text(row, "class"))
}

#[test]
fn gcc_touches_new_memory_in_the_compiler_proper() {
    let Some(gcc) = need("gcc") else { return };
    let dir = scratch();
    let functions = (0..300).map(|i| {
        format!("long f{i}(long n, const char *p) {{ long r = n; for (int k = 0; k < 9; k++) r ^= p[k] * {i}; return r; }}\n")
    });
    std::fs::write(dir.path().join("big.c"), functions.collect::<String>()).expect("a file of our own");
    let recorded = record(dir.path(), None, |command| {
        command.arg(gcc).args(["-O1", "-c", "big.c"]);
    });
    let Some(summary) = recorded else { return };
    assert!(of_kind(&summary, &["first_touch", "huge"]) > 0.7, "{}", summary["kinds"]);
    assert!(share(&summary, "mappings", is_private) > 0.7, "{}", summary["mappings"]);
    assert_eq!(text(&summary["processes"][0], "name"), "cc1");
}

#[test]
fn polars_touches_new_memory_in_its_own_threads() {
    let Some(python) = python() else { return };
    let dir = scratch();
    let recorded = record(dir.path(), None, |command| {
        command.arg(python).arg(script("polars_frames.py")).env("POLARS_MAX_THREADS", "2");
    });
    let Some(summary) = recorded else { return };
    // On a busy machine, records of mappings may be lost; what was touched there has no kind.
    let known = 1.0 - of_kind(&summary, &["unknown"]);
    assert!(known > 0.5, "{}", summary["notes"]);
    assert!(of_kind(&summary, &["first_touch", "huge"]) > 0.9 * known, "{}", summary["kinds"]);
    let is_large =
        |row: &Value| text(row, "class") == "anonymous" && row["largest_bytes"].as_u64() >= Some(1 << 20);
    assert!(share(&summary, "mappings", is_large) > 0.8 * known, "{}", summary["mappings"]);
    let is_polars = |row: &Value| text(row, "file").contains("polars");
    assert!(share(&summary, "functions", is_polars) > 0.5, "{}", summary["functions"]);
    assert!(
        share(&summary, "threads", |row| text(row, "name").starts_with("polars")) > 0.3,
        "{}",
        summary["threads"]
    );
}

/// Python's own functions are in the call stacks, also where the interpreter has no frame pointers.
#[test]
fn pythons_functions_are_named_in_call_stacks() {
    let Some(python) = naming_python() else { return };
    let dir = scratch();
    let source = "import mmap
def touch(pages):
    memory = mmap.mmap(-1, pages * 4096)
    for page in range(pages):
        memory[page * 4096] = 1
def touches_most():
    touch(60000)
def touches_less():
    touch(20000)
touches_most()
touches_less()
";
    std::fs::write(dir.path().join("two.py"), source).expect("a file of our own");
    let recorded = record_with(&["--python"], dir.path(), None, |command| {
        command.arg(python).arg("two.py");
    });
    let Some(summary) = recorded else { return };
    // Where each of them is called by the file itself, and has the inner one called, in that order.
    let of = |function: &str| {
        share(&summary, "stacks", |row| {
            let frames = row["frames"].as_array().expect("frames").iter().filter_map(Value::as_str);
            let of_file = frames.filter_map(|frame| frame.rsplit_once(':'));
            let ours: Vec<_> =
                of_file.filter(|(_, file)| file.ends_with("/two.py")).map(|(name, _)| name).collect();
            ours == ["py::<module>", function, "py::touch"]
        })
    };
    let (most, less) = (of("py::touches_most"), of("py::touches_less"));
    assert!(most + less > 0.9, "{most} and {less}: {}", summary["stacks"]);
    // On a busy machine some records are dropped.
    assert!((most / (most + less) - 0.75).abs() < 0.08, "{most} and {less}");
    let notes = summary["notes"].as_array().expect("a list");
    assert!(!notes.iter().any(|note| note.as_str().is_some_and(|note| note.contains("Python"))), "{notes:?}");
    // A program that names nothing is told so.
    let Some(summary) = record_with(&["--python"], dir.path(), None, |command| {
        command.arg("true");
    }) else {
        return;
    };
    assert!(summary["notes"].to_string().contains("no Python has named its functions"), "{}", summary["notes"]);
}

/// Node writes the names of functions that it compiles: they are in the report.
#[test]
fn node_is_named_by_its_own_functions() {
    let Some(node) = need("node") else { return };
    let dir = scratch();
    let source = "function fillWithObjects(n) { const a = []; for (let i = 0; i < n; i++) a.push({ i, s: 'x' + i }); return a; }
let sum = 0; for (let k = 0; k < 40; k++) sum += fillWithObjects(50000).length; console.log(sum);";
    std::fs::write(dir.path().join("fill.js"), source).expect("a file of our own");
    let recorded = record(dir.path(), None, |command| {
        command.arg(node).args(["--perf-basic-prof", "fill.js"]);
    });
    let Some(summary) = recorded else { return };
    assert!(of_kind(&summary, &["first_touch", "huge"]) > 0.7, "{}", summary["kinds"]);
    assert!(share(&summary, "mappings", is_private) > 0.7, "{}", summary["mappings"]);
    let is_ours = |row: &Value| {
        let frames = row["frames"].as_array().expect("frames");
        frames.iter().any(|frame| frame.as_str().is_some_and(|frame| frame.contains("fillWithObjects")))
    };
    assert!(share(&summary, "stacks", is_ours) > 0.1, "{}", summary["functions"]);
}

/// The user that PostgreSQL is to run as, for it refuses root.
fn postgres_user(dir: &Path) -> Option<Option<(u32, u32)>> {
    if dir.metadata().expect("our own directory").uid() != 0 {
        return Some(None);
    }
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let line = users.lines().find(|line| line.starts_with("postgres:"))?;
    let mut fields = line.split(':').skip(2).map(|field| field.parse().ok());
    let user = (fields.next()??, fields.next()??);
    std::os::unix::fs::chown(dir, Some(user.0), Some(user.1)).ok()?;
    Some(Some(user))
}

#[test]
fn postgresql_shares_memory_among_processes_that_it_forks() {
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let bin = debian.map(|entry| entry.path().join("bin")).filter(|bin| bin.join("pgbench").exists()).max();
    let Some(bin) = bin else {
        need("pg_ctlcluster");
        return;
    };
    let dir = scratch();
    let Some(user) = postgres_user(dir.path()) else {
        return skip("PostgreSQL refuses root, and has no user here");
    };
    std::fs::copy(script("postgres.sh"), dir.path().join("run.sh")).expect("a copy that the user can read");
    let recorded = record(dir.path(), user, |command| {
        command.args(["sh", "run.sh"]).arg(bin);
    });
    let Some(summary) = recorded else { return };
    // Its buffers of 64 MiB, and what goes with them: one mapping, of all kinds of memory that it shares the largest.
    let mut shared =
        summary["mappings"].as_array().expect("a table").iter().filter(|row| row["class"] == "shared");
    let first = shared.next().expect("shared memory");
    assert!(text(first, "name").starts_with("shared anonymous, 64 MiB to"), "{first}");
    assert!(first["largest_bytes"].as_u64() >= Some(64 << 20), "{first}");
    assert!(of_kind(&summary, &["shared"]) > 0.05, "{}", summary["kinds"]);
    assert!(of_kind(&summary, &["copy"]) > 0.05, "a process for each connection: {}", summary["kinds"]);
    assert!(share(&summary, "processes", |row| row["name"] == "postgres") > 0.5, "{}", summary["processes"]);
    // The server is not waited for: its faults count all the same.
    assert!(summary["recording"]["processes"].as_u64() > Some(30), "{}", summary["recording"]);
}

/// The mapping that has most of its own changed memory: its bytes. From `smaps`.
fn most_changed(smaps: &str) -> (u64, u64) {
    let (mut bytes, mut most) = (0, (0, 0));
    for line in smaps.lines() {
        let number = |rest: &str| rest.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) << 10;
        if let Some(rest) = line.strip_prefix("Size:") {
            bytes = number(rest);
        } else if let Some(rest) = line.strip_prefix("Private_Dirty:") {
            most = most.max((number(rest), bytes));
        }
    }
    most
}

#[test]
fn redis_copies_on_write_while_it_saves() {
    let (Some(sh), Some(_), Some(_)) = (need("sh"), need("redis-server"), need("redis-cli")) else { return };
    let dir = scratch();
    let recorder = command([]);
    let out = Command::new(sh)
        .arg(script("redis_saves.sh"))
        .env("RECORD", recorder.get_program())
        .env("XDG_CONFIG_HOME", "/dev/null")
        .current_dir(dir.path())
        .output()
        .expect("a shell");
    let said = String::from_utf8_lossy(&out.stderr);
    if said.contains("perf_event") {
        return skip("faults cannot be sampled here");
    }
    assert!(out.status.success(), "{said}");
    let Some(summary) = report(dir.path()) else { return };
    assert!(of_kind(&summary, &["copy"]) > 0.9, "{}", summary["kinds"]);
    assert_eq!(text(&summary["processes"][0], "name"), "redis-server");
    // The mapping with the most copies is the largest among those that the kernel calls changed.
    let smaps = std::fs::read_to_string(dir.path().join("smaps")).expect("written by the script");
    let (changed, bytes) = most_changed(&smaps);
    assert!(changed > 50 << 20, "{changed}");
    let first = &summary["mappings"][0];
    assert!(is_private(first), "{first}");
    let told = first["largest_bytes"].as_u64().expect("a number");
    assert!(told.abs_diff(bytes) <= bytes / 2, "the report says {told}, smaps {bytes}");
    assert!(find("redis-server").is_some());
}
