//! The rows that real programs fill, as found on the machine.

pub mod find;
mod generate;
mod heap;
pub mod job;
mod quiet;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use super::plan::{Against, Bound, Context, Field, Launch, Metric, Row, Section, Start};
use find::{on_path, python, write};
pub use heap::{ld, magick, make, pandas};

/// All of them.
pub fn rows(context: &Context) -> Vec<Row> {
    let mut rows = vec![polars("polars"), polars("polars-cold").cold(), numpy(), node()];
    rows.extend(java(context.full));
    rows.extend([gcc(), read(), configure(), start_beside("start-mmap", "mmap", 16 << 20)]);
    if context.full {
        rows.extend([duckdb(), pyarrow(), start_beside("start-array", "array", 64 << 20)]);
    }
    rows.extend(quiet::rows());
    rows
}

/// Those of which much memory is fresh, with the time that each may take.
pub fn of_fresh_memory() -> Vec<Row> {
    let java = java(false).into_iter();
    let rows = [(polars("polars"), 20.0), (duckdb(), 16.0), (pyarrow(), 16.0)];
    rows.into_iter()
        .chain(java.map(|row| (row, 12.0)))
        .chain([(gcc(), 14.0), (numpy(), 8.0)])
        .map(|(row, seconds)| row.rounds(6, seconds).field(Field::Moves).counted())
        .collect()
}

fn program(id: &'static str, title: &str, rounds: usize, seconds: f64) -> Row {
    Row::new(id, Section::Programs, title).rounds(rounds, seconds).warm(1 << 30)
}

/// Join and group by; most of its faults are first touches.
pub fn polars(id: &'static str) -> Row {
    let row = |title, rounds, seconds| {
        program(id, title, rounds, seconds).program(|c| {
            let script = include_str!("scripts/join.py");
            python(c, "polars", script, &[c.size(POLARS_ROWS).to_string()])
        })
    };
    match id {
        "polars" => row("Polars, join and group by", 6, 30.0)
            .warm(3 << 30)
            .line(Metric::Wall, &[(Bound::Share(0.6), Against::PLAIN), (Bound::Share(1.01), Against::HUGE)]),
        _ => row("Polars, join and group by, cold", 2, 60.0)
            .warm(0)
            .line(Metric::Wall, &[(Bound::Share(1.05), Against::BestKernel)]),
    }
}

/// Rows of the larger table: 1.6 GiB resident at the peak.
const POLARS_ROWS: u64 = 24_000_000;

/// Arrays, and temporaries of expressions.
pub fn numpy() -> Row {
    program("numpy", "NumPy, FFT, sort and temporaries", 5, 24.0)
        .field(Field::Malloc)
        .program(|c| python(c, "numpy", include_str!("scripts/numpy_arrays.py"), &[c.count(16).to_string()]))
        .line(Metric::Wall, &[(Bound::Share(0.8), Against::PLAIN)])
}

/// Queries of a module of Python.
fn queries(id: &'static str, title: &str, rows: u64, script: &'static str) -> Row {
    program(id, title, 4, 20.0)
        .program(move |c| python(c, id, script, &[c.size(rows).to_string()]))
        .line(Metric::Wall, &[(Bound::Share(1.01), Against::BestKernel)])
}

/// Queries of a database in the process.
pub fn duckdb() -> Row {
    let title = "DuckDB, joins, window functions and a sort";
    queries("duckdb", title, 12_000_000, include_str!("scripts/duckdb_queries.py"))
}

/// Tables in columns.
pub fn pyarrow() -> Row {
    let title = "PyArrow, Parquet, group by and sort";
    queries("pyarrow", title, 3_000_000, include_str!("scripts/arrow_tables.py"))
}

/// A runtime with a collector of its own.
pub fn node() -> Row {
    program("node", "Node, JSON", 6, 12.0)
        .program(|c| {
            let node = on_path("node", "Debian's nodejs")?;
            let script = write(c, "json.js", include_str!("scripts/json.js"))?;
            Ok(Launch::new(node, [script.into_os_string(), c.size(240_000).to_string().into()]))
        })
        .line(Metric::Wall, &[(Bound::Share(1.01), Against::PLAIN)])
}

/// A heap that is committed at once, by the default collector; the others too if `full`.
pub fn java(full: bool) -> Vec<Row> {
    let row = |id, title: &str, collector: Option<&'static str>| {
        program(id, title, 5, 18.0)
            .warm(2 << 30)
            .program(move |c| {
                let java = on_path("java", "Debian's default-jdk")?;
                let javac = on_path("javac", "Debian's default-jdk")?;
                let source = write(c, "Allocate.java", include_str!("scripts/Allocate.java"))?;
                find::done(std::process::Command::new(javac).arg("-d").arg(&c.dir).arg(source))?;
                // The heap is committed at once; the program comes to touch a quarter of it.
                let heap = c.size(3 << 30).min(c.memory / 4);
                let mut launch = Launch::new(java, [format!("-Xms{heap}"), format!("-Xmx{heap}")]);
                launch.args.extend(collector.map(Into::into));
                launch.args.extend(["-cp".into(), c.dir.clone().into_os_string()]);
                launch.args.extend(["Allocate".into(), c.size(22_000_000).to_string().into()]);
                Ok(launch)
            })
            .line(Metric::Wall, &[(Bound::Share(0.9), Against::PLAIN)])
    };
    let mut rows = vec![row("java", "Java, allocation, default collector", None)];
    if full {
        rows.push(row("java-serial", "Java, allocation, serial collector", Some("-XX:+UseSerialGC")));
        rows.push(row("java-parallel", "Java, allocation, parallel collector", Some("-XX:+UseParallelGC")));
        rows.push(row("java-z", "Java, allocation, Z collector", Some("-XX:+UseZGC")));
    }
    rows
}

/// A compiler, which maps much of its memory in small pieces.
pub fn gcc() -> Row {
    program("gcc", "gcc -O0 of sqlite3.c", 6, 40.0)
        .program(|c| {
            let gcc = on_path("gcc", "Debian's gcc")?;
            let (source, note) = match find::sqlite_source().filter(|_| !c.quick) {
                Some(found) => {
                    let version = find::sqlite_version(&found).unwrap_or_default();
                    (found, format!("SQLite {version}"))
                }
                None => {
                    let functions = c.count(2_500);
                    let made = write(c, "large.c", &generate::c_source(functions))?;
                    (made, format!("no sqlite3.c here: {functions} generated functions"))
                }
            };
            let object = c.dir.join("large.o");
            let mut launch = Launch::new(gcc, ["-O0", "-w", "-c", "-o"]);
            launch.args.extend([object.clone().into_os_string(), source.into_os_string()]);
            Ok(Launch { outputs: vec![object], note: Some(note), ..launch })
        })
        .line(Metric::Wall, &[(Bound::Share(1.01), Against::PLAIN)])
        .line(Metric::System, &[(Bound::Share(0.6), Against::PLAIN)])
}

/// The file is in memory, unnamed, so that it is gone whenever and however this process ends.
fn read() -> Row {
    program("read", "reading a file of 1 GiB (in memory) into fresh memory", 6, 16.0)
        .field(Field::Malloc)
        .program(|c| {
            let size = c.size(1 << 30).min(c.memory / 6);
            let file = large_file(Path::new("/dev/shm"), size)
                .or_else(|_| large_file(&c.dir, size))
                .map_err(|error| format!("the file: {error}"))?;
            Ok(Launch { input: Some(file), ..Launch::new(&c.own, ["loop", "read"]) })
        })
        .starting(Start::Loop)
        .line(Metric::Wall, &[(Bound::Share(1.01), Against::PLAIN)])
}

fn large_file(dir: &Path, size: u64) -> std::io::Result<File> {
    let file = tempfile::tempfile_in(dir)?;
    let mut writer = BufWriter::with_capacity(1 << 20, &file);
    for word in 0..size / 8 {
        writer.write_all(&word.wrapping_mul(generate::ODD).to_le_bytes())?;
    }
    writer.flush()?;
    drop(writer);
    Ok(file)
}

/// An application that comes up while another of its threads maps, writes and unmaps 1 GiB in all. What the kernel does
/// for one of them may wait for the other.
fn start_beside(id: &'static str, how: &'static str, bytes: u64) -> Row {
    let rounds = (1 << 30) / bytes;
    let what = format!("a thread maps, writes and unmaps {} MiB {rounds} times (by {how})", bytes >> 20);
    Row::new(id, Section::Programs, format!("an application's start, Python with scikit-learn, while {what}"))
        .rounds(20, 40.0)
        .program(move |c| {
            let args = [how.to_owned(), bytes.to_string(), c.count(rounds).to_string()];
            python(c, "sklearn", include_str!("scripts/start.py"), &args)
        })
        .line(Metric::Wall, &[(Bound::Share(1.01), Against::BestKernel)])
        .line(Metric::System, &[(Bound::Share(0.6), Against::PLAIN)])
}

/// Many programs that live shortly.
pub fn configure() -> Row {
    program("configure", "shell script like configure (many short programs)", 6, 20.0)
        .warm(0)
        .program(|c| {
            for needed in ["cc", "sed", "expr", "grep"] {
                on_path(needed, "Debian's build-essential")?;
            }
            let script = write(c, "configure.sh", include_str!("scripts/configure.sh"))?;
            let mut launch = Launch::new("/bin/sh", [script.into_os_string(), c.count(48).to_string().into()]);
            launch.dir = Some(c.dir.clone());
            Ok(launch)
        })
        .line(Metric::Wall, &[(Bound::Share(1.01), Against::PLAIN)])
}
