//! `faultless doctor`: what this machine allows, what its memory costs, and what of a program can be covered.

mod checks;
mod finding;
mod libraries;
mod program;
mod root;
mod text;
mod tried;

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;

use faultless_base::zero::Features;
use serde::Serialize;

use crate::output::Out;
use crate::run;
use checks::Topic;
use faultless_measure::costs as measure;
use finding::{Finding, Level, Verdict};
use measure::Measured;
use root::Root;
use tried::Tried;

/// Options of `faultless doctor`.
#[derive(clap::Args)]
pub struct Args {
    /// Print JSON (docs/doctor.md says what is in it).
    #[arg(long)]
    json: bool,
    /// Look only; measure nothing.
    #[arg(long)]
    no_measure: bool,
    /// Say what each finding means, also where all is good.
    #[arg(short, long)]
    verbose: bool,
    /// A program, to say what of it can be covered.
    #[arg(trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Version of the JSON: a higher one may lack what a lower one had.
const VERSION: u32 = 1;

/// All that was found.
pub struct Report {
    topics: Vec<Topic>,
    costs: Option<Measured>,
    program: Vec<String>,
    verdict: Verdict,
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Json<'a> {
    version: u32,
    verdict: Verdict,
    program: &'a [String],
    findings: Vec<&'a Finding>,
    costs: Option<&'a Measured>,
}

impl Report {
    fn new(topics: Vec<Topic>, costs: Option<Measured>, program: Vec<String>) -> Self {
        let verdict = Verdict::of(topics.iter().flat_map(|(_, findings)| findings));
        Self { topics, costs, program, verdict }
    }

    fn json(&self) -> Json<'_> {
        let findings = self.topics.iter().flat_map(|(_, findings)| findings).collect();
        let Self { costs, program, verdict, .. } = self;
        Json { version: VERSION, verdict: *verdict, program, findings, costs: costs.as_ref() }
    }
}

/// Looks, measures and prints; the status says how it stands. A program that is not there and settings that `run` refuses are errors.
pub fn main(args: Args) -> ExitCode {
    if let Err(error) = program::refused(&args.program) {
        run::complain(&format!("{error:#}"));
        return ExitCode::from(run::status_of(&error));
    }
    let report = examine(&args);
    let text = match args.json {
        true => serde_json::to_string_pretty(&report.json()).unwrap_or_default() + "\n",
        false => text::Text { report: &report, columns: Out::Stdout.columns(), verbose: args.verbose }.to_string(),
    };
    match run::print(&text) {
        // A reader who stops has seen enough.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            run::complain(&format!("cannot write the report: {error}"));
            ExitCode::from(run::FAILED)
        }
        _ => ExitCode::from(report.verdict.status()),
    }
}

fn examine(args: &Args) -> Report {
    let root = Root(Path::new("/"));
    let program = args.program.iter().map(|word| word.display().to_string()).collect();
    let alone = if root.has("proc/self") { run::filters::ruled_out().map(filter) } else { Some(no_proc()) };
    if let Some(finding) = alone {
        let mut topics = vec![("Kernel", vec![finding])];
        if !args.program.is_empty() {
            topics.push(("Program", program::check(&args.program)));
        }
        return Report::new(topics, None, program);
    }
    // Before anything starts a thread: a child is forked for a part of it.
    let tried = Tried::new();
    let mut topics = checks::all(root, &tried, Features::detect(), &measure::allowed_cpus());
    topics[0].1.push(library());
    if !args.program.is_empty() {
        topics.push(("Program", program::check(&args.program)));
    }
    let costs = (!args.no_measure).then(|| measure::measure(checks::spare(root, &tried)));
    topics.iter_mut().find(|(name, _)| *name == "Machine").into_iter().for_each(|(_, findings)| {
        findings.extend(costs.as_ref().and_then(reserve));
    });
    Report::new(topics, costs, program)
}

/// A filter of system calls that kills: all else that is tried here might be killed, too.
fn filter(why: String) -> Finding {
    let means = "`faultless run` runs programs plain. Nothing else is tried or measured here: the filter might end this \
                 command.";
    Finding::new("seccomp", Level::Cannot, why.trim_start_matches("its ").to_owned(), means)
}

/// Nearly all that is looked at stands in /proc.
fn no_proc() -> Finding {
    let means = "`faultless run` finds neither its library nor the memory of a program. Nothing else can be told.";
    Finding::new("proc", Level::Cannot, "/proc is not mounted here", means).change("sudo mount -t proc proc /proc")
}

/// Whether a warm reserve would help: what the first touch of idle memory costs beside that of memory just freed.
fn reserve(costs: &Measured) -> Option<Finding> {
    let factor = costs.first_touch_ns? / costs.second_touch_ns.filter(|ns| *ns > 0.0)?;
    let found = format!("the first touch of memory took {factor:.1} times as long as that of memory just freed");
    let id = "warm_reserve";
    Some(match costs.warm {
        Some(false) => Finding::new(
            id,
            Level::Note,
            found,
            "Idle memory was with the host. A warm reserve gives memory that is not idle back to the kernel, just \
             before a covered program needs it.",
        )
        .change("faultless warm start"),
        _ => Finding::new(id, Level::Good, found, "A warm reserve would not have helped now."),
    })
}

/// Whether `faultless run` has what it loads into programs.
fn library() -> Finding {
    match run::library() {
        Ok(path) => Finding::new(
            "library",
            Level::Good,
            format!("the preload library is {}", path.display()),
            "`faultless run` loads it into programs.",
        ),
        Err(error) => Finding::new(
            "library",
            Level::Cannot,
            "the preload library is not there",
            format!("`faultless run` does not work: {error:#}."),
        )
        .change("cargo build --release --workspace"),
    }
}
