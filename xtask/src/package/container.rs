//! What a container does, without one. The entry point of `packaging/Containerfile` runs in a root directory that has
//! the package. It runs behind a filter that forbids what the usual filters of containers forbid of the calls that are
//! of use here.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::tried::{PROGRAM, Root};
use crate::setup;
use crate::shell::{command, output, root};

/// Sets the filter, and becomes the program that is named. The calls: perf_event_open, userfaultfd, io_uring_setup.
/// They get EPERM, as from the profile that Podman and Docker have.
const FILTER: &str = "
import ctypes, os, struct, sys
CALLS = [298, 323, 425]
def step(code, k, yes=0, no=0):
    return struct.pack('HBBI', code, yes, no, k)
steps = [step(0x20, 0)]
for at, call in enumerate(CALLS):
    steps.append(step(0x15, call, len(CALLS) - at, 0))
steps += [step(0x06, 0x7fff0000), step(0x06, 0x00050000 | 1)]
code = ctypes.create_string_buffer(b''.join(steps))
program = ctypes.create_string_buffer(struct.pack('HxxxxxxP', len(steps), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execvp(sys.argv[1], sys.argv[1:])
";

/// Runs a program by the entry point, behind the filter, and asks `doctor` there.
pub fn check(installed: &Root) -> Result<()> {
    // Set outside, where there is all of Python.
    let behind = |args: &[&str]| {
        let inner = installed.command(args[0]);
        let mut outer = command(setup::python_path());
        outer.args(["-c", FILTER]).arg(inner.get_program()).args(inner.get_args()).args(&args[1..]);
        outer
    };
    let entry = entry()?;
    let mut words: Vec<&str> = entry.iter().map(String::as_str).collect();
    words.extend(["python3", "-c", PROGRAM]);
    let said = output(&mut behind(&words))?;
    ensure!(said == "right\n", "the program printed {said:?}");
    let json = ["/usr/bin/faultless", "run", "--json", "/proc/self/fd/1", "--", "python3", "-c", PROGRAM];
    let said = output(&mut behind(&json))?;
    let json: Value = serde_json::from_str(said.strip_prefix("right\n").context("it does not end well")?)?;
    ensure!(json["covered"] == true, "behind the filter the program runs plain: {json}");
    let doctor = behind(&["/usr/bin/faultless", "doctor", "--no-measure", "--json"]).output()?;
    let report: Value = serde_json::from_slice(&doctor.stdout)?;
    let level = |id: &str| {
        let mut findings = report["findings"].as_array().into_iter().flatten();
        findings.find(|finding| finding["id"] == id).map(|finding| finding["level"].clone())
    };
    ensure!(level("seccomp") == Some("note".into()), "doctor does not see the filter: {report}");
    ensure!(report["verdict"] != "cannot", "doctor: programs would run plain: {report}");
    eprintln!("container: covered behind its filter");
    Ok(())
}

/// The entry point that the Containerfile names.
fn entry() -> Result<Vec<String>> {
    let text = std::fs::read_to_string(root().join("packaging/Containerfile"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("ENTRYPOINT ")).context("it has no entry point")?;
    Ok(serde_json::from_str(line)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_point_runs_a_program() {
        let entry = entry().unwrap();
        assert_eq!((entry[1].as_str(), entry.last().unwrap().as_str()), ("run", "--"));
    }
}
