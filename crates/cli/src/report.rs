//! `faultless report`: what a recording of `faultless record` holds.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use faultless_record::summary::{self, Summary};
use faultless_record::view::text;

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
    #[arg(long)]
    pub json: bool,
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

fn report(args: &Args) -> Result<()> {
    let summary = open(&args.file)?;
    let mut out = Out::new(args.output.as_deref(), Out::Stdout)?;
    let text = if args.json {
        serde_json::to_string_pretty(&summary)? + "\n"
    } else {
        text::report(&summary, text::Style { columns: out.columns(), rows: args.rows })
    };
    out.write(&text).context("cannot write")
}
