//! One run of one program: how long it took, what it used, what it printed.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::peak::{self, Peak, Watch};
use super::process::{self, Usage};
use super::undo::Undo;
use faultless_measure::pages::Counters;

/// What one run used.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Sample {
    /// Seconds from start to end.
    pub wall: f64,
    /// What the kernel says of it at its end.
    #[serde(flatten)]
    pub used: Usage,
    /// The most memory of all its processes together; `None` where the sampler saw none.
    pub peak: Option<Peak>,
    /// What it printed.
    #[serde(skip)]
    pub output: String,
    /// What faultless counted, where that was asked for.
    #[serde(skip)]
    pub counters: Option<Counters>,
}

/// Runs the command to its end; the error says in a few words why there is no figure.
pub fn measure(command: &mut Command, limit: Duration) -> Result<Sample, String> {
    let mut output = tempfile::tempfile().map_err(text)?;
    let mut errors = tempfile::tempfile().map_err(text)?;
    command.stdin(Stdio::null()).stdout(output.try_clone().map_err(text)?);
    command.stderr(errors.try_clone().map_err(text)?);
    process::tie(command);

    let start = Instant::now();
    let pid = command.spawn().map_err(text)?.id();
    let group = Undo::by(move || process::kill_group(pid));
    let ended = AtomicBool::new(false);
    let (usage, wall, watch, late) = thread::scope(|scope| {
        let sampler = scope.spawn(|| watch(pid, &ended, start + limit));
        let usage = process::wait(pid);
        let wall = start.elapsed().as_secs_f64();
        ended.store(true, Ordering::Relaxed);
        sampler.thread().unpark();
        let (watch, late) = sampler.join().expect("the sampler does not panic");
        (usage, wall, watch, late)
    });
    drop(group);
    if late {
        return Err(format!("over {} s", limit.as_secs()));
    }
    let (status, used) = usage.map_err(text)?;
    if !status.success() {
        return Err(format!("{}{}", describe(status), last_line(&mut errors)));
    }
    Ok(Sample {
        wall,
        used,
        peak: watch.and_then(|watch| watch.peak()),
        output: contents(&mut output).map_err(text)?,
        counters: None,
    })
}

/// Watches the child's processes until it has ended; kills its group at the deadline. Returns what was seen, and
/// whether the deadline passed.
fn watch(pid: u32, ended: &AtomicBool, deadline: Instant) -> (Option<Watch>, bool) {
    let mut watch = Watch::new(pid).ok();
    let mut late = false;
    while !ended.load(Ordering::Relaxed) {
        if watch.as_mut().is_some_and(|watch| watch.sample().is_err()) {
            watch = None;
        }
        if !late && Instant::now() > deadline {
            late = true;
            process::kill_group(pid);
        }
        thread::park_timeout(peak::EVERY);
    }
    (watch, late)
}

fn text(error: io::Error) -> String {
    error.to_string()
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "did not end".into(),
    }
}

fn contents(file: &mut File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn last_line(errors: &mut File) -> String {
    let all = contents(errors).unwrap_or_default();
    let line = all.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let short: String = line.trim().chars().take(60).collect();
    if short.is_empty() { short } else { format!(": {short}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_and_usage() {
        let sample = measure(&mut shell("echo out; echo err >&2"), Duration::from_secs(60)).unwrap();
        assert_eq!(sample.output, "out\n");
        assert!(sample.wall > 0.0 && sample.used.faults > 0 && sample.used.resident > 0);
    }

    #[test]
    fn a_failure_names_its_reason() {
        let run = |script| measure(&mut shell(script), Duration::from_secs(60)).unwrap_err();
        assert_eq!(run("echo no such thing >&2; exit 3"), "exit status 3: no such thing");
        assert_eq!(run("kill -SEGV $$"), "killed by signal 11");
    }

    #[test]
    fn a_run_that_does_not_end_is_killed_with_its_children() {
        let error = measure(&mut shell("sleep 1000 & sleep 1000"), Duration::ZERO).unwrap_err();
        assert_eq!(error, "over 0 s");
    }
}
