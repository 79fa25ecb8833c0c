//! `faultless doctor` from outside: status, JSON against its documentation, narrow terminals, missing rights.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use faultless_testkit::copy_program;
use faultless_testkit::limit::limit;
use serde_json::Value;

/// `faultless doctor` with `args`, and any file in place of the library, which is not loaded here.
fn doctor<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    limit();
    let mut command = Command::new(env!("CARGO_BIN_EXE_faultless"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"FAULTLESS_")) {
        command.env_remove(name);
    }
    command
        .env_remove("COLUMNS")
        .env("XDG_CONFIG_HOME", "/dev/null")
        .env("FAULTLESS_LIBRARY", "/proc/self/exe")
        .arg("doctor")
        .args(args);
    command
}

fn json(command: &mut Command) -> (Value, Option<i32>) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&stderr), "");
    (serde_json::from_slice(&stdout).expect("JSON"), status.code())
}

fn looked_at(args: &[&str]) -> (Value, Option<i32>) {
    json(doctor(["--json", "--no-measure"]).args(args))
}

fn finding<'a>(report: &'a Value, id: &str) -> &'a Value {
    let list = report["findings"].as_array().unwrap();
    list.iter().find(|finding| finding["id"] == id).unwrap_or_else(|| panic!("no {id} in {report:#}"))
}

/// The documentation: the type of each path, and all the names in its lists.
struct Documented {
    types: BTreeMap<String, String>,
    names: BTreeSet<String>,
}

fn documented() -> Documented {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/doctor.md");
    let text = std::fs::read_to_string(file).unwrap();
    let (mut types, mut names) = (BTreeMap::new(), BTreeSet::new());
    for row in text.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let quoted = cells[0].split('`').skip(1).step_by(2).map(str::to_owned);
        match cells.len() {
            3 => types.extend(quoted.map(|path| (path, cells[1].to_owned()))),
            _ => names.extend(quoted),
        }
    }
    Documented { types, names }
}

/// Each path of a value that is no container, or an empty one, with its type.
fn paths(value: &Value, at: &str, found: &mut Vec<(String, &'static str)>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            paths(value, &if at.is_empty() { key.clone() } else { format!("{at}.{key}") }, found);
        }),
        Value::Array(list) => list.iter().for_each(|value| paths(value, &format!("{at}[]"), found)),
        Value::Null => found.push((at.to_owned(), "null")),
        Value::Bool(_) => found.push((at.to_owned(), "boolean")),
        Value::Number(_) => found.push((at.to_owned(), "number")),
        Value::String(_) => found.push((at.to_owned(), "string")),
    }
}

#[test]
fn the_json_is_what_the_documentation_says() {
    let (report, status) = json(&mut doctor(["--json", "--", "sh", "-c", "true"]));
    let documented = documented();
    let mut found = Vec::new();
    paths(&report, "", &mut found);
    for (path, kind) in &found {
        let expected = documented.types.get(path).unwrap_or_else(|| panic!("{path} is not documented"));
        let fits = expected.trim_end_matches('?') == *kind || *kind == "null" && expected.ends_with('?');
        assert!(fits, "{path} is a {kind}, documented as {expected}");
    }
    for path in documented.types.keys().filter(|path| *path != "costs") {
        assert!(found.iter().any(|(there, _)| there == path), "{path} is documented but not there");
    }
    let ids: Vec<_> = [&report["findings"], &report["costs"]["costs"]]
        .into_iter()
        .flat_map(|list| list.as_array().unwrap())
        .map(|entry| entry["id"].as_str().unwrap())
        .collect();
    for id in &ids {
        assert!(documented.names.contains(*id), "{id} is not documented");
    }
    let only_sometimes = ["proc", "program_mode", "program_settings", "program_libraries"];
    for name in documented.names.iter().filter(|name| !only_sometimes.contains(&name.as_str())) {
        assert!(ids.contains(&name.as_str()), "{name} is documented but not there");
    }
    let verdicts = ["good", "limited", "cannot"];
    assert_eq!(status, verdicts.iter().position(|verdict| report["verdict"] == *verdict).map(|i| i as i32));
}

#[test]
fn a_cost_has_figures_or_a_reason() {
    let (report, _) = json(&mut doctor(["--json"]));
    let costs = report["costs"]["costs"].as_array().unwrap();
    for cost in costs {
        let (ns, fastest, slowest) = (&cost["ns"], &cost["fastest_ns"], &cost["slowest_ns"]);
        let figures = [fastest, ns, slowest].map(Value::as_f64);
        assert!(figures.is_sorted(), "{cost}");
        assert_eq!(ns.is_null(), cost["missing"].is_string(), "{cost}");
    }
    let has_figure =
        |id| costs.iter().any(|cost| cost["id"] == id && cost["ns"].as_f64().is_some_and(|ns| ns > 0.0));
    assert!(["touch", "small_fault", "zero_string_beyond"].into_iter().all(has_figure), "these work everywhere");
}

#[test]
fn the_worst_finding_decides_the_status() {
    let (report, status) = looked_at(&[]);
    let levels: BTreeSet<_> =
        report["findings"].as_array().unwrap().iter().map(|finding| finding["level"].as_str().unwrap()).collect();
    let expected = if levels.contains("cannot") { 2 } else { i32::from(levels.contains("limited")) };
    assert_eq!(status, Some(expected));
    assert!(report["costs"].is_null());
}

#[test]
fn a_limit_on_address_space_rules_programs_out() {
    let shell = |limit: &str| {
        let mut command = Command::new("sh");
        let script = format!("ulimit -S {limit}; exec \"$0\" doctor --no-measure --json");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_faultless")]).env("FAULTLESS_LIBRARY", "/proc/self/exe");
        json(&mut command)
    };
    for (limit, id) in [("-v 4000000", "limit_as"), ("-d 4000000", "limit_data")] {
        let (report, status) = shell(limit);
        assert_eq!((finding(&report, id)["level"].as_str(), status), (Some("cannot"), Some(2)), "{limit}");
    }
}

#[test]
fn programs_that_run_plain_are_told_beforehand() {
    let (report, _) = looked_at(&["--", "sh"]);
    assert_eq!(finding(&report, "program")["level"], "good");
    assert_eq!(finding(&report, "program_allocator")["level"], "good");
    let (report, status) = json(doctor(["--json", "--no-measure", "--", "sh"]).env("FAULTLESS_DISABLE", "1"));
    assert_eq!((finding(&report, "program_settings")["level"].as_str(), status), (Some("cannot"), Some(2)));
}

/// As for `run`: what it refuses to start is an error, and no report.
#[test]
fn what_run_refuses_is_an_error() {
    let refused = |command: &mut Command| {
        let Output { status, stdout, stderr } = command.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&stdout), "");
        (status.code(), String::from_utf8_lossy(&stderr).into_owned())
    };
    for (program, status) in [("/nonexistent/program", 127), ("faultless-no-such-command", 127), ("/", 126)] {
        let (code, said) = refused(&mut doctor(["--no-measure", "--", program]));
        assert!(
            code == Some(status) && said.starts_with("faultless: cannot run ") && said.lines().count() == 1,
            "{said}"
        );
    }
    for args in [&["--no-measure"][..], &["--no-measure", "--", "sh"]] {
        let (code, said) = refused(doctor(args).env("FAULTLESS_PREFAULT_BY", "lax"));
        assert!(code == Some(125) && said.contains("FAULTLESS_PREFAULT_BY: \"lax\" is not one of"), "{said}");
    }
    let (code, said) = refused(doctor(["--no-measure"]).env("FAULTLESS_BUGDET", "1G"));
    assert!(code == Some(125) && said.contains("did you mean FAULTLESS_BUDGET?"), "{said}");
    let config = tempfile::tempdir().unwrap();
    std::fs::create_dir(config.path().join("faultless")).unwrap();
    std::fs::write(config.path().join("faultless/settings"), "bugdet = 1").unwrap();
    let (code, said) = refused(doctor(["--no-measure"]).env("XDG_CONFIG_HOME", config.path()));
    assert!(code == Some(125) && said.contains("settings:1: "), "{said}");
}

#[test]
fn what_is_good_has_no_command() {
    let (report, _) = looked_at(&["--", "sh"]);
    for finding in report["findings"].as_array().unwrap() {
        assert!(finding["level"] != "good" || finding["change"].is_null(), "{finding}");
    }
}

/// As for `run`, the user's file counts.
#[test]
fn settings_that_a_program_would_have_are_looked_at() {
    let config = tempfile::tempdir().unwrap();
    let dir = config.path().join("faultless");
    std::fs::create_dir(&dir).unwrap();
    let with = |settings: &str| {
        std::fs::write(dir.join("settings"), settings).unwrap();
        json(doctor(["--json", "--no-measure", "--", "sh"]).env("XDG_CONFIG_HOME", config.path()))
    };
    for (settings, why) in [("disable = 1", "switched off"), ("skip = x,sh", "sh is to be skipped")] {
        let (report, status) = with(settings);
        let finding = finding(&report, "program_settings");
        assert_eq!((finding["level"].as_str(), status), (Some("cannot"), Some(2)), "{settings}");
        assert!(finding["found"].as_str().unwrap().contains(why), "{finding}");
    }
    let (report, _) = with("malloc_threshold = 3M\nmmap_threshold = 5M\n");
    let means = &finding(&report, "program_allocator")["means"];
    assert_eq!(means, "Blocks from 3 MiB and mappings from 5 MiB are served.");
}

#[test]
fn a_library_that_is_missing_is_told() {
    let (report, status) = json(doctor(["--json", "--no-measure"]).env("FAULTLESS_LIBRARY", "/nonexistent.so"));
    assert_eq!((finding(&report, "library")["level"].as_str(), status), (Some("cannot"), Some(2)));
}

#[test]
fn a_terminal_of_40_columns() {
    let output = doctor(["--", "sh"]).env("COLUMNS", "40").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for line in text.lines().filter(|line| !line.trim_start().starts_with("$ ")) {
        let is_word = line.trim().split(' ').count() == 1;
        assert!(line.chars().count() <= 40 || is_word, "{line:?}");
    }
    assert!(text.contains("fault, small page"), "{text}");
}

#[test]
fn a_pipe_that_closes() {
    let mut child = doctor(["--no-measure"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.code().is_some_and(|status| status < 3), "{:?}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn an_output_that_is_full_is_an_error() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = doctor(["--no-measure"]).stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write the report"));
}

/// A user without rights, whom the kernel refuses more.
#[test]
fn a_user_without_rights() {
    // A copy, as the build's directory may be closed to others.
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("faultless");
    copy_program(env!("CARGO_BIN_EXE_faultless"), &copy);
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let nobody = 65534;
    let mut command = Command::new(&copy);
    command.args(["doctor", "--json"]).env("FAULTLESS_LIBRARY", "/proc/self/exe").current_dir("/");
    command.uid(nobody).gid(nobody);
    let output = match command.output() {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            faultless_testkit::skip("this user cannot become another");
            return;
        }
        output => output.unwrap(),
    };
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let level = &finding(&report, "uffd")["level"];
    // Full rights for all users may have been set up; then the sysctl or the device says so.
    let everybody = ["uffd_sysctl", "uffd_device"].iter().any(|id| finding(&report, id)["level"] == "good");
    assert_eq!(*level == "good", everybody, "{report:#}");
    assert_ne!(finding(&report, "uffd_ptrace")["level"], "good");
}

/// It measures the rest, and says what it could not.
#[test]
fn no_thread_is_no_end() {
    limit();
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("faultless");
    copy_program(env!("CARGO_BIN_EXE_faultless"), &copy);
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    // A user who has no process but this one.
    let user = 65_000 - std::process::id() % 1000;
    let mut command = Command::new("bash");
    command.args(["-c", "ulimit -u 1; exec \"$@\"", "bash"]).arg(&copy).args(["doctor", "--json"]);
    command.env("FAULTLESS_LIBRARY", "/proc/self/exe").current_dir("/").uid(user).gid(user);
    let output = match command.output() {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            faultless_testkit::skip("this user cannot become another");
            return;
        }
        output => output.unwrap(),
    };
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(!report["costs"].is_null(), "{report:#}");
}

/// The kernel's signal would end it without a word.
#[test]
fn a_limit_of_files_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let inner = doctor(["--json", "--no-measure"]);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 0; out=$1; shift; exec \"$@\" >\"$out\"", "sh"]).arg(dir.path().join("out"));
    command.arg(inner.get_program()).args(inner.get_args()).env("FAULTLESS_LIBRARY", "/proc/self/exe");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("cannot write the report: File too large"), "{said}");
}
