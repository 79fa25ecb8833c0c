//! `faultless sysctl`: what is set, in programs that run and for those to come.
//!
//! With `-p` it reads and turns knobs on the pages of running processes. Without, it reads the settings of a program
//! that `run` starts now, and changes the user's file. Everything is checked before anything is changed.
//!
//! Exit status: 0. It is 1 if the process or the file cannot be changed, 77 if this user may not look
//! at it, and 125 if names or values are wrong.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use faultless_page::knobs::{Kind, Knob, Size, When};

use crate::limits;
use crate::output::Out;
use crate::run::{FAILED, complain};
use crate::settings::{self, Setting};
use crate::stat::{self, Target};
use faultless_measure::figures::wrap_at;
use faultless_measure::pages::find::Covered;

/// Options of `faultless sysctl`.
#[derive(clap::Args)]
pub struct Args {
    /// This running process; with the number of `faultless run`, all that it runs.
    #[arg(short, long, value_name = "PID")]
    pid: Option<u32>,
    /// Explain each knob: unit, range, default and variable.
    #[arg(short, long, conflicts_with = "pid")]
    list: bool,
    /// What to read, or what to change; nothing reads everything.
    #[arg(value_name = "NAME[=VALUE]")]
    knobs: Vec<String>,
}

impl Args {
    /// Whether that can be done here.
    fn may(&self, request: &Request) -> Result<(), String> {
        match (request, self.pid) {
            (Request::Change(Setting { knob, .. }), _) if self.list => {
                Err(format!("--list only explains; to change {}, leave it out", knob.declared().name))
            }
            (Request::Change(Setting { knob, .. }), Some(_)) => may_change(*knob),
            (Request::Read(knob), Some(_)) if !is_on_page(*knob) => {
                Err(format!("{} is not known of a running program", knob.declared().name))
            }
            _ => Ok(()),
        }
    }
}

enum Request {
    Read(Knob),
    Change(Setting),
}

impl Request {
    fn new(text: &str) -> Result<Self, String> {
        if text.contains('=') {
            settings::assignment(text).map(Self::Change)
        } else {
            settings::knob(text.trim()).map(Self::Read)
        }
    }

    fn knob(&self) -> Knob {
        match self {
            Self::Read(knob) | Self::Change(Setting { knob, .. }) => *knob,
        }
    }
}

/// One request for each knob. Of several values the last counts, as in `run`. A changed knob is shown anyway.
fn once_each(requests: Vec<Request>) -> Vec<Request> {
    let mut each: Vec<Request> = Vec::new();
    for request in requests {
        match each.iter_mut().find(|known| known.knob() == request.knob()) {
            Some(known) if matches!(request, Request::Change(_)) => *known = request,
            Some(_) => {}
            None => each.push(request),
        }
    }
    each
}

/// Reads and changes.
pub fn main(args: &Args) -> ExitCode {
    let mut requests = Vec::new();
    for text in &args.knobs {
        match Request::new(text).and_then(|request| args.may(&request).map(|()| request)) {
            Ok(request) => requests.push(request),
            Err(error) => {
                complain(&error);
                return ExitCode::from(FAILED);
            }
        }
    }
    let mut requests = once_each(requests);
    if requests.is_empty() {
        let all = Knob::ALL.iter().filter(|knob| args.pid.is_none() || is_on_page(**knob));
        requests = all.map(|knob| Request::Read(*knob)).collect();
    }
    let mut out = Out::Stdout;
    let text = match args.pid {
        _ if args.list => Ok(list(&requests, out.columns())),
        Some(pid) => running(pid, &requests),
        None => to_come(&requests, out.columns()),
    };
    match text.and_then(|text| out.write(&text)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("{error:#}"));
            ExitCode::from(stat::status_of(&error))
        }
    }
}

/// Whether a knob can be turned while a program runs.
pub fn may_change(knob: Knob) -> Result<(), String> {
    let declared = knob.declared();
    match declared.when {
        When::Live => Ok(()),
        When::Start | When::Run => Err(format!(
            "{} counts at the start of a program only: set {} before, or use `faultless run -s`",
            declared.name, declared.variable
        )),
    }
}

/// Whether a running program's page says what a knob is set to.
pub fn is_on_page(knob: Knob) -> bool {
    knob.declared().kind != Kind::Text && knob.declared().when != When::Run
}

/// What a knob can be set to, for people.
pub fn range(kind: Kind) -> String {
    match kind {
        Kind::Bytes(least, most) => format!("{} to {}", Size(least), Size(most)),
        Kind::Number(least, most) => format!("{least} to {most}"),
        Kind::Switch => "0, 1".into(),
        Kind::Choice(words) => words.join(", "),
        Kind::Text => "any text".into(),
    }
}

/// The unit of a knob.
pub fn unit(kind: Kind) -> &'static str {
    match kind {
        Kind::Bytes(..) => "bytes (K, M, G)",
        Kind::Number(..) => "number",
        Kind::Switch => "switch",
        Kind::Choice(_) => "word",
        Kind::Text => "text",
    }
}

/// When a knob counts, for people.
pub fn when(when: When) -> &'static str {
    match when {
        When::Live => "at any time",
        When::Start => "at the start of a program",
        When::Run => "in the command that starts a program",
    }
}

fn list(requests: &[Request], columns: usize) -> String {
    let mut text = String::new();
    for declared in requests.iter().map(|request| request.knob().declared()) {
        let default = if declared.default.is_empty() { "none" } else { declared.default };
        text += &format!("{}\n{}\n", declared.name, wrap_at(declared.meaning.trim(), "    ", columns));
        let rows = [
            ("unit", unit(declared.kind)),
            ("range", &range(declared.kind)),
            ("default", default),
            ("variable", declared.variable),
            ("counts", when(declared.when)),
        ];
        for (name, value) in rows {
            let longest = value.split(' ').map(str::len).max().unwrap_or(0);
            let room = columns.saturating_sub(longest);
            // What follows the first line of a value stands below it; a long word begins there.
            let lines = wrap_at(value, &" ".repeat(room.min(14)), columns);
            text += &match room >= 14 {
                true => format!("    {name:<9} {}\n", lines.trim_start()),
                false => format!("    {name}\n{lines}\n"),
            };
        }
    }
    text
}

/// A line for a knob of a running process.
fn line(covered: &mut Covered, knob: Knob, with_pid: bool) -> String {
    let value = knob.declared().show(covered.counters().knob(knob));
    let line = format!("{} = {value}\n", knob.declared().name);
    if with_pid { format!("{} {line}", covered.pid) } else { line }
}

fn running(pid: u32, requests: &[Request]) -> Result<String> {
    limits::more_files();
    let target = Target::process(pid)?;
    let with_pid = target.is_tree();
    let mut processes = target.into_processes();
    processes.retain(Covered::runs);
    if processes.is_empty() {
        bail!("process {pid}: nothing that it runs is covered now, as far as can be told from here");
    }
    let mut text = String::new();
    let mut deaf = Vec::new();
    for covered in &mut processes {
        match deaf_because(covered) {
            Some(why) => {
                deaf.push(format!("process {}: {why}", covered.pid));
                // What it was set to last is of no use to know, but to tell that is no error.
                if requests.iter().any(|request| matches!(request, Request::Change(_))) {
                    continue;
                }
            }
            None => change(covered, requests)?,
        }
        for request in requests {
            text += &line(covered, request.knob(), with_pid);
        }
    }
    if text.is_empty() {
        bail!(deaf.join("; "));
    }
    deaf.iter().for_each(|why| complain(why));
    Ok(text)
}

/// Why no knob counts in a process, if it has a page.
pub fn deaf_because(covered: &mut Covered) -> Option<String> {
    if covered.listens() == Some(false) {
        return Some(
            "the program that counted there was replaced, and the present one made no large request so far".into(),
        );
    }
    covered.counters().plain().map(|why| format!("it runs plain, and no knob counts: {why}"))
}

fn change(covered: &mut Covered, requests: &[Request]) -> Result<()> {
    let pid = covered.pid;
    for request in requests {
        if let Request::Change(Setting { knob, value }) = request {
            let number = knob.declared().parse(value.as_bytes()).map_err(anyhow::Error::msg)?;
            covered.set(*knob, number).with_context(|| format!("process {pid}: cannot write to its page"))?;
        }
    }
    let is_changed = requests.iter().any(|request| matches!(request, Request::Change(_)));
    if is_changed && (!covered.runs() || covered.listens() == Some(false)) {
        bail!("process {pid}: it has ended, or was replaced by another program, meanwhile");
    }
    Ok(())
}

/// Columns from which on the origin stands beside the setting.
const WIDE: usize = 60;

fn to_come(requests: &[Request], columns: usize) -> Result<String> {
    let changes = requests.iter().filter_map(|request| match request {
        Request::Change(setting) => Some(setting.clone()),
        Request::Read(_) => None,
    });
    let changes: Vec<_> = changes.collect();
    // What a program would start with can only be told of what is understood.
    settings::check_environment().map_err(anyhow::Error::msg)?;
    if !changes.is_empty() {
        settings::save(&changes)?;
    }
    let file = settings::file()?;
    let line = |request: &Request| {
        let (value, origin) = settings::resolve(request.knob(), &[], &file);
        let setting = format!("{} = {}", request.knob().declared().name, value.display());
        match columns {
            WIDE.. => format!("{setting:<39} # {}\n", origin.name()),
            _ => format!("{}\n    # {}\n", wrap_at(&setting, "", columns), origin.name()),
        }
    };
    Ok(requests.iter().map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_explains_every_knob_in_any_width() {
        let all: Vec<_> = Knob::ALL.iter().map(|knob| Request::Read(*knob)).collect();
        let text = list(&all, 40);
        for declared in faultless_page::knobs::KNOBS {
            let count = |part: &str| text.matches(part).count();
            assert!(count(&format!("{}\n", declared.name)) >= 1, "{}", declared.name);
            assert!(count(&format!("{}\n", declared.variable)) == 1, "{}", declared.name);
            assert!(count(&range(declared.kind)) >= 1, "{}", declared.name);
        }
        assert!(text.lines().all(|line| line.len() <= 40), "{text}");
    }

    #[test]
    fn the_last_value_of_a_knob_counts() {
        let words = ["scrub", "budget=1G", "budget", "budget=2G", "scrub=0", "scrub"];
        let requests = once_each(words.map(|text| Request::new(text).unwrap()).into());
        let set = |request: &Request| match request {
            Request::Change(Setting { knob, value }) => (*knob, value.clone()),
            Request::Read(knob) => (*knob, "read".into()),
        };
        let each: Vec<_> = requests.iter().map(set).collect();
        assert_eq!(each, [(Knob::Scrub, "0".into()), (Knob::Budget, "2G".into())]);
    }

    #[test]
    fn only_live_knobs_are_turned() {
        assert!(may_change(Knob::Budget).is_ok());
        assert!(may_change(Knob::Check).unwrap_err().contains("FAULTLESS_CHECK"));
    }
}
