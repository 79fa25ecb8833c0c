//! `faultless report`: what a recording of `faultless record` holds.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use faultless_record::summary::{self, Summary};
use faultless_record::view::{collapsed, diff, html, text, trace};

use crate::output::Out;
use crate::record::FILE;
use crate::run::complain;
use crate::stat::UNREACHED;

/// Options of `faultless report`.
#[derive(clap::Args)]
pub struct Args {
    /// The recording; - for standard input.
    #[arg(default_value = FILE)]
    pub file: PathBuf,
    /// One JSON object.
    #[arg(long, group = "form")]
    pub json: bool,
    /// Call stacks, a line each, with their faults: what tools for flame graphs read.
    #[arg(long, group = "form", conflicts_with = "diff")]
    pub collapsed: bool,
    /// Faults over time in Chrome's trace format, which Perfetto reads.
    #[arg(long, group = "form", conflicts_with = "diff")]
    pub chrome_trace: bool,
    /// One page for a browser, written to a file; it loads nothing. - for standard output.
    #[arg(long, value_name = "OUT", group = "form", conflicts_with_all = ["diff", "output"])]
    pub html: Option<PathBuf>,
    /// Compare two recordings.
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with = "file")]
    pub diff: Vec<PathBuf>,
    /// Rows of each table.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    pub rows: usize,
    /// Write to a file.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Reads, and says.
pub fn main(args: &Args) -> ExitCode {
    match report(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("{error:#}"));
            ExitCode::from(UNREACHED)
        }
    }
}

fn open(path: &Path) -> Result<Summary> {
    let shown = || path.display().to_string();
    let from: Box<dyn Read> = if path == Path::new("-") {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(File::open(path).with_context(shown)?)
    };
    summary::read(BufReader::with_capacity(1 << 16, from)).with_context(shown)
}

fn pretty(value: &impl serde::Serialize) -> Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

fn report(args: &Args) -> Result<()> {
    let style = |out: &Out| text::Style { columns: out.columns(), rows: args.rows };
    let to = args.html.as_deref().filter(|path| *path != Path::new("-")).or(args.output.as_deref());
    let new = || Out::new(to, Out::Stdout);
    // All is read before the output is opened: a recording that cannot be read leaves that alone.
    let (text, mut out) = if let [a, b] = &args.diff[..] {
        let diff = diff::diff(&open(a)?, &open(b)?);
        let out = new()?;
        (if args.json { pretty(&diff)? } else { diff.text(style(&out)) }, out)
    } else {
        let summary = open(&args.file)?;
        let out = new()?;
        let text = match args {
            Args { json: true, .. } => pretty(&summary)?,
            Args { collapsed: true, .. } => collapsed::collapsed(&summary),
            Args { html: Some(_), .. } => html::html(&summary)?,
            Args { chrome_trace: true, .. } => trace::trace(&summary).to_string() + "\n",
            _ => text::report(&summary, style(&out)),
        };
        (text, out)
    };
    out.write(&text)
}
