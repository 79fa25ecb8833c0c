//! Programs that hardly fault, or fault where nothing can be gained: they must not lose.

use std::path::PathBuf;
use std::process::Command;

use super::find::{on_path, python, write};
use super::generate;
use crate::plan::{Against, Bound, Field, Launch, Metric, Row, Section};

/// Enough pairs for a narrow interval.
const PAIRS: usize = 20;

/// All of them.
pub fn rows() -> Vec<Row> {
    vec![rustc(), zstd(), sort(), scikit_learn(), start(), tsc()]
}

fn row(id: &'static str, title: &str, seconds: f64) -> Row {
    Row::new(id, Section::Quiet, title)
        .field(Field::Pair)
        .rounds(PAIRS, seconds)
        .line(Metric::Wall, &[(Bound::Share(1.01), Against::PLAIN)])
}

fn rustc() -> Row {
    row("rustc", "rustc, a small crate, metadata only", 20.0).program(|c| {
        let rustc = on_path("rustc", "rustup.rs")?;
        // On PATH there is often only a proxy that looks for the compiler.
        let asked = Command::new(&rustc).args(["--print", "sysroot"]).output().map_err(|e| e.to_string())?;
        let real = PathBuf::from(String::from_utf8_lossy(&asked.stdout).trim()).join("bin/rustc");
        let source = write(c, "small.rs", &generate::rust_source(c.count(160)))?;
        let output = c.dir.join("small.rmeta");
        let mut launch =
            Launch::new(if real.is_file() { real } else { rustc }, ["--edition=2021", "--emit=metadata"]);
        launch.args.extend(["-o".into(), output.clone().into_os_string(), source.into_os_string()]);
        Ok(Launch { outputs: vec![output], ..launch })
    })
}

/// A program that reads one file and writes another.
fn to_file(program: PathBuf, flags: &[&str], input: PathBuf, output: PathBuf) -> Launch {
    let mut launch = Launch::new(program, flags);
    launch.args.extend([input.into_os_string(), "-o".into(), output.clone().into_os_string()]);
    Launch { outputs: vec![output], ..launch }
}

fn zstd() -> Row {
    row("zstd", "zstd -3, 64 MiB of text", 16.0).program(|c| {
        let input = write(c, "lines.txt", &generate::lines(c.size(64 << 20)))?;
        Ok(to_file(on_path("zstd", "Debian's zstd")?, &["-3", "-q", "-f"], input, c.dir.join("lines.zst")))
    })
}

fn sort() -> Row {
    row("sort", "sort, 16 MiB of lines", 16.0).program(|c| {
        let input = write(c, "unsorted.txt", &generate::lines(c.size(16 << 20)))?;
        Ok(to_file(on_path("sort", "Debian's coreutils")?, &[], input, c.dir.join("sorted.txt")))
    })
}

fn scikit_learn() -> Row {
    row("sklearn", "scikit-learn, a fit", 30.0)
        .program(|c| python(c, "sklearn", include_str!("scripts/fit.py"), &[c.count(800).to_string()]))
}

/// An application that comes up: hundreds of files, libraries with threads of their own, and little else.
fn start() -> Row {
    row("start", "an application's start: Python with scikit-learn and its libraries", 30.0)
        .program(|c| python(c, "sklearn", include_str!("scripts/start.py"), &[]))
}

fn tsc() -> Row {
    row("tsc", "tsc, type check of one file", 30.0).program(|c| {
        let tsc = on_path("tsc", "npm install -g typescript")?;
        let source = write(c, "large.ts", &generate::typescript_source(c.count(400)))?;
        let mut launch = Launch::new(tsc, ["--noEmit", "--strict", "--target", "es2020"]);
        launch.args.push(source.into_os_string());
        Ok(launch)
    })
}
