//! `faultless run`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// Options of `faultless run`.
#[derive(clap::Args)]
pub struct Args {
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Runs the program.
pub fn main(args: Args) -> ExitCode {
    let library = std::env::current_exe().unwrap_or_default().with_file_name("libfaultless_preload.so");
    let error = Command::new(&args.program[0]).args(&args.program[1..]).env("LD_PRELOAD", library).exec();
    eprintln!("faultless: {}: {error}", args.program[0].display());
    ExitCode::from(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 })
}
