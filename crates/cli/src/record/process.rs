//! Recording a process that runs already.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use faultless_record::collect::{self, Recorder, Running};
use faultless_record::file::End as Last;
use faultless_record::sys::now;

use super::{Args, LOOK, Target, fail, said};
use crate::run::complain;
use crate::stat::{NOT_ALLOWED, UNREACHED, signals};

/// Records until the process ends, or a signal ends this command.
pub fn record(pid: u32, args: &Args) -> ExitCode {
    let done = process(pid, args);
    done.map_or_else(
        |error| {
            let is_right = error.downcast_ref::<NotAllowed>().is_some();
            fail(&error, if is_right { NOT_ALLOWED } else { UNREACHED })
        },
        |()| ExitCode::SUCCESS,
    )
}

/// The kernel refuses.
#[derive(Debug)]
struct NotAllowed(String);

impl std::fmt::Display for NotAllowed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotAllowed {}

/// The threads of a process.
fn threads(pid: u32) -> Vec<u32> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Whether it is there, and has not ended.
fn runs(pid: u32) -> bool {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let text = String::from_utf8_lossy(&stat);
    let state = text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !"ZX".contains(state))
}

fn process(pid: u32, args: &Args) -> Result<()> {
    let tids = threads(pid);
    if tids.is_empty() || !runs(pid) {
        bail!("process {pid}: there is none");
    }
    signals::hold();
    let mut head = collect::head();
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = words.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    head.command = words.map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    head.pid = Some(pid);
    head.cost = collect::cost(args.options());
    let recorder = Recorder::threads(&tids, args.options());
    let recorder = recorder.map_err(|refused| NotAllowed(format!("process {pid}: {refused}")))?;
    let shown = || format!("cannot write {}", args.output.display());
    let mut writer = Target::open(&args.output)?.begin().with_context(shown)?;
    head.start_ns = now();
    let start = head.start_ns;
    recorder.describe(&mut head);
    writer.head(&head).with_context(shown)?;
    // Mappings that are made while this is read are told by the kernel too.
    recorder.enable().context("perf events")?;
    let names: String = tids
        .iter()
        .filter_map(|tid| Some((tid, std::fs::read(format!("/proc/{pid}/task/{tid}/comm")).ok()?)))
        .map(|(tid, name)| format!("{tid} {}\n", String::from_utf8_lossy(&name).trim_end()))
        .collect();
    writer.threads(pid, names.as_bytes()).with_context(shown)?;
    let maps = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    writer.maps(pid, &maps).with_context(shown)?;
    let collecting = recorder.collect(writer, Running::of(pid)).context("no thread")?;
    if !args.quiet {
        complain(&format!("recording process {pid} until it ends, or until Ctrl-C"));
    }
    while runs(pid) && !collecting.has_failed() && !signals::wait(LOOK) {}
    let status = if runs(pid) { "recording stopped" } else { "the process's end" };
    let last = Last { wall_ns: now().saturating_sub(start), status: status.into(), ..Last::default() };
    let end = collecting.finish(last, None).with_context(shown)?;
    said(args, &end);
    Ok(())
}
