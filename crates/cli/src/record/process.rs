//! Recording a process that runs already.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use faultless_measure::pages::find;
use faultless_measure::pages::process::of_thread;
use faultless_record::collect::{self, Recorder, Running};
use faultless_record::file::{End as Last, Writer};
use faultless_record::sys::now;

use super::{Args, LOOK, NO_MEMORY, Target, fail, has_memory, said};
use crate::run::{complain, program};
use crate::stat::{self, NOT_ALLOWED, signals};

/// Records until the process ends, or a signal ends this command.
pub fn record(pid: u32, args: &Args) -> ExitCode {
    let done = process(pid, args);
    done.map_or_else(
        |error| {
            let is_right = error.downcast_ref::<NotAllowed>().is_some();
            fail(&error, if is_right { NOT_ALLOWED } else { stat::status_of(&error) })
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
    goes_on(&String::from_utf8_lossy(&stat))
}

/// The same from its `stat`: a process whose first thread has ended goes on with the others.
fn goes_on(stat: &str) -> bool {
    let Some((_, rest)) = stat.rsplit_once(") ") else { return false };
    let mut fields = rest.split(' ');
    let has_ended = fields.next().is_none_or(|state| ["Z", "X", ""].contains(&state));
    let threads: u64 = fields.nth(16).and_then(|text| text.parse().ok()).unwrap_or(0);
    !has_ended || threads > 1
}

/// A name as a part of a line.
fn in_line(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    // The kernel ends it with a line break; others are the name's own.
    name.strip_suffix('\n').unwrap_or(&name).replace('\n', "\\n").replace('\r', "\\r")
}

fn process(asked: u32, args: &Args) -> Result<()> {
    let pid = of_thread(asked).unwrap_or(asked);
    let tids = threads(pid);
    if tids.is_empty() || !runs(pid) {
        return Err(find::absent(pid)).with_context(|| format!("process {pid}"));
    }
    if !has_memory() {
        bail!("{NO_MEMORY}");
    }
    signals::hold();
    let mut head = collect::head();
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = words.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    head.program.command = words.map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    head.program.pid = Some(pid);
    let file = PathBuf::from(format!("/proc/{pid}/exe"));
    let kind = program::kind(&file);
    let name = || std::fs::read_link(&file).unwrap_or_default().display().to_string();
    head.program.not_covered = kind.is_plain().then(|| format!("{} {kind}", name()));
    head.cost = collect::cost(args.options());
    let recorder = Recorder::threads(&tids, args.options());
    let recorder = recorder.map_err(|refused| NotAllowed(format!("process {pid}: {refused}")))?;
    let shown = || format!("cannot write {}", args.output.display());
    let writer = Target::open(&args.output)?.begin().with_context(shown)?;
    head.begin();
    let start = head.start_ns;
    recorder.describe(&mut head);
    // Mappings that are made while this is read are told by the kernel too.
    recorder.enable().context("perf events")?;
    let names: String = tids
        .iter()
        .filter_map(|tid| Some((tid, std::fs::read(format!("/proc/{pid}/task/{tid}/comm")).ok()?)))
        .map(|(tid, name)| format!("{tid} {}\n", in_line(&name)))
        .collect();
    // A thread that has ended has none.
    let maps = tids.iter().filter_map(|tid| std::fs::read(format!("/proc/{pid}/task/{tid}/maps")).ok());
    let maps = maps.into_iter().find(|maps| !maps.is_empty()).unwrap_or_default();
    let begin = move |writer: &mut Writer<_>| {
        writer.head(&head)?;
        writer.threads(pid, names.as_bytes())?;
        writer.maps(pid, &maps)
    };
    let collecting = recorder.collect(writer, Running::of(pid), begin).context("no thread")?;
    if !args.quiet {
        if pid != asked {
            complain(&format!("{asked} is a thread of process {pid}"));
        }
        complain(&format!("recording process {pid} until it ends, or until Ctrl-C"));
    }
    while runs(pid) && !collecting.has_failed() && !signals::wait(LOOK) {}
    // The next one ends this command, also while it waits for the reader of a pipe.
    signals::release();
    let status = if runs(pid) { "recording stopped" } else { "the process's end" };
    let last = Last { wall_ns: now().saturating_sub(start), status: status.into(), ..Last::default() };
    let end = collecting.finish(last, None).with_context(shown)?;
    said(args, &end);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_goes_on_without_its_first_thread() {
        let stat = |state: &str, threads: u32| format!("7 (a) b) {state} {}{threads} 0 12345", "0 ".repeat(16));
        assert!(goes_on(&stat("S", 1)) && goes_on(&stat("Z", 2)));
        assert!(!goes_on(&stat("Z", 1)) && !goes_on("") && !goes_on("7 (x) "));
        assert!(runs(std::process::id()));
    }

    #[test]
    fn a_name_stays_within_its_line() {
        assert_eq!(in_line(b"a\n7 b \n"), "a\\n7 b ");
    }
}
