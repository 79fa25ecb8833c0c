//! `faultless bench`.

use std::process::ExitCode;

/// Options of `faultless bench`.
#[derive(clap::Args)]
pub struct Args {}

/// Runs the benchmark.
pub fn main(_args: Args) -> ExitCode {
    eprintln!("faultless: no benchmark yet");
    ExitCode::FAILURE
}
