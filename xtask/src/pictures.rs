//! The pictures of the documentation, made anew from real runs: a browser shows the page of a report, and a terminal
//! the other tools. Figures in them are those of the run, on the machine where they were made.

mod drawing;
mod terminal;

use std::path::Path;

use anyhow::Result;

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

const TOOLS: [Tool; 4] = [
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
];

/// Makes them in docs/pictures.
pub fn make() -> Result<()> {
    run(&mut cargo("build --release -p faultless-cli -p faultless-preload"))?;
    let (dir, pictures) = (target().join("pictures"), root().join("docs/pictures"));
    std::fs::create_dir_all(&dir)?;
    std::fs::create_dir_all(&pictures)?;
    std::fs::write(dir.join("lasting.py"), LASTING)?;
    std::fs::write(dir.join("analysis.py"), ANALYSIS)?;
    page(&dir, &pictures)?;
    TOOLS.iter().try_for_each(|tool| picture(tool, &dir, &pictures))
}

fn picture(tool: &Tool, dir: &Path, pictures: &Path) -> Result<()> {
    println!("{}: {}", tool.name, tool.script);
    let path = format!("PATH='{}:/usr/bin:/bin'; export PATH; clear; ", target().join("release").display());
    let is_ready = |text: &str| !tool.ready.is_empty() && text.contains(tool.ready);
    let screen = terminal::screen((dir, tool.name), (TERMINAL.0, tool.lines), &(path + tool.script), is_ready)?;
    // Where it was made is of no interest.
    let screen = screen.replace(&root().display().to_string(), "…");
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
