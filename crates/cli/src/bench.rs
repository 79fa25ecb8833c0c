//! `faultless bench` is a program of its own, beside this one: `faultless-bench`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use crate::run::{FAILED, complain};

/// Options of `faultless bench`.
#[derive(clap::Args)]
pub struct Args {
    /// What to measure, with its options; `--help` lists both.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "BENCH")]
    args: Vec<OsString>,
}

/// Becomes that program.
pub fn main(args: &Args) -> ExitCode {
    let path = std::env::current_exe().map(|exe| exe.with_file_name("faultless-bench"));
    let error = match path {
        Ok(path) => {
            let error = Command::new(&path).args(&args.args).exec();
            format!("cannot run {}: {error} (packages lack it: cargo xtask install PREFIX)", path.display())
        }
        Err(error) => format!("cannot find this program: {error}"),
    };
    complain(&error);
    ExitCode::from(FAILED)
}
