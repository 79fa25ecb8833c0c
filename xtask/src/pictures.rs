//! The pictures of the documentation, made anew from real runs: a browser shows the page of a report, and a terminal
//! the other tools. Figures in them are those of the run, on the machine where they were made.

mod drawing;
mod terminal;

use std::path::Path;

use anyhow::{Result, bail};

use crate::shell::{cargo, command, root, run, target};

/// A program with faults of several kinds, a thread, a child, and frame pointers for the flame graph.
const PROGRAM: &str = "crates/e2e/programs/phases.c";
/// A program that `run` shows: it has new memory, copies after a fork, and files.
const ANALYSIS: &str = "\
import os
kept = [bytes(3000) for _ in range(40_000)]
table = {number: str(number) for number in range(300_000)}
if os.fork() == 0:
    for number in range(0, 300_000, 7): table[number] = None
    os._exit(0)
os.wait()
blocks = [bytearray(8 << 20) for _ in range(12)]
";
/// Python itself: what a search finds first may be a script that looks for one.
const PYTHON: &str = "/usr/bin/python3";
/// The picture of a report's page.
const REPORT: &str = "report";

/// A program that goes on for a while, with memory that comes and goes.
const LASTING: &str = "\
import time
end = time.monotonic() + 60
while time.monotonic() < end:
    blocks = [bytearray(16 << 20) for _ in range(4)]
    time.sleep(0.05)
";
/// Columns of a terminal's picture, and its lines at most.
const TERMINAL: (usize, usize) = (96, 100);

/// A tool in a terminal.
struct Tool {
    name: &'static str,
    /// The commands; `faultless` is found.
    script: &'static str,
    /// Lines of the terminal.
    lines: usize,
    /// What stands on the screen when it is worth a picture; empty: its end.
    ready: &'static str,
    /// What readers hear.
    title: &'static str,
}

const TOOLS: [Tool; 8] = [
    Tool {
        name: "run",
        script: "faultless run -- python3 analysis.py",
        lines: TERMINAL.1,
        ready: "",
        title: "faultless run: the summary after a Python program",
    },
    Tool {
        name: "stat",
        script: "faultless run --quiet -- python3 lasting.py & sleep 4; faultless stat; kill $!",
        lines: TERMINAL.1,
        ready: "",
        title: "faultless stat: what was done for a Python program that runs",
    },
    Tool {
        name: "top",
        script: "faultless run --quiet -- python3 lasting.py & python3 lasting.py & sleep 1; timeout --foreground 20 faultless top",
        lines: 16,
        ready: "M/s handed out",
        title: "faultless top: two Python programs, of which one is covered",
    },
    Tool {
        name: "doctor",
        script: "faultless doctor",
        lines: TERMINAL.1,
        ready: "",
        title: "faultless doctor: its verdict, and what it found",
    },
    Tool {
        name: "compare",
        script: "faultless run --compare 6 -- python3 analysis.py",
        lines: TERMINAL.1,
        ready: "",
        title: "faultless run --compare: a Python program, six times plain and six times under faultless",
    },
    Tool {
        name: "sysctl",
        script: "faultless sysctl --list | head -29",
        lines: TERMINAL.1,
        ready: "",
        title: "faultless sysctl --list: the first knobs, with unit, range, default and variable",
    },
    Tool {
        name: "profile",
        script: "export XDG_CACHE_HOME=$PWD/seen; rm -rf seen; for program in 'python3 analysis.py' 'ls'; do \
                 faultless run -- $program >/dev/null 2>&1; done; faultless profile show",
        lines: TERMINAL.1,
        ready: "",
        title: "faultless profile show: a program that runs covered, and one that runs without the library",
    },
    Tool {
        name: "warm",
        script: "export FAULTLESS_WARM=$PWD/warm; faultless warm start --force --size 256M >/dev/null 2>&1; sleep 3; \
                 faultless run --quiet -- python3 analysis.py; sleep 2; faultless warm status; \
                 faultless warm stop >/dev/null",
        lines: TERMINAL.1,
        ready: "",
        title: "faultless warm status: what the daemon holds, what it gave, what that cost",
    },
];

/// Makes them in docs/pictures: those that are named, or all.
pub fn make(names: &[String]) -> Result<()> {
    let is_wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    let known = |name: &String| name == REPORT || TOOLS.iter().any(|tool| tool.name == name);
    if let Some(other) = names.iter().find(|name| !known(name)) {
        bail!("there is no picture {other:?}");
    }
    run(&mut cargo("build --release -p faultless-cli -p faultless-preload"))?;
    let (dir, pictures) = (target().join("pictures"), root().join("docs/pictures"));
    std::fs::create_dir_all(&dir)?;
    std::fs::create_dir_all(&pictures)?;
    std::fs::write(dir.join("lasting.py"), LASTING)?;
    std::fs::write(dir.join("analysis.py"), ANALYSIS)?;
    if is_wanted(REPORT) {
        page(&dir, &pictures)?;
    }
    TOOLS.iter().filter(|tool| is_wanted(tool.name)).try_for_each(|tool| picture(tool, &dir, &pictures))
}

fn picture(tool: &Tool, dir: &Path, pictures: &Path) -> Result<()> {
    println!("{}: {}", tool.name, tool.script);
    let path = format!("PATH='{}:/usr/bin:/bin'; export PATH; clear; ", target().join("release").display());
    let is_ready = |text: &str| !tool.ready.is_empty() && text.contains(tool.ready);
    let screen = terminal::screen((dir, tool.name), (TERMINAL.0, tool.lines), &(path + tool.script), is_ready)?;
    // Where it was made is of no interest.
    let screen = screen.replace(&target().display().to_string(), "…").replace(&root().display().to_string(), "…");
    let svg = drawing::svg(&screen, TERMINAL.0, tool.title);
    std::fs::write(pictures.join(tool.name).with_extension("svg"), svg)?;
    Ok(())
}

/// The page of a report, in a browser: in both themes, with the flame graph zoomed, and on a phone.
fn page(dir: &Path, pictures: &Path) -> Result<()> {
    let (recording, page) = (dir.join("it.rec"), dir.join("report.html"));
    let faultless = target().join("release/faultless");
    let flags = ["-O1", "-g", "-pthread", "-fno-omit-frame-pointer", "-o"];
    run(command("cc").args(flags).arg(dir.join("phases")).arg(root().join(PROGRAM)))?;
    let mut record = command(&faultless);
    record.current_dir(dir).args(["record", "-o"]).arg(&recording);
    run(record.args(["--", "./phases"]))?;
    run(command(&faultless).arg("report").arg(&recording).arg("--html").arg(&page))?;
    let script = root().join("crates/e2e/scripts/page_pictures.py");
    run(command(PYTHON).arg("-B").arg(script).arg(&page).arg(pictures))
}
