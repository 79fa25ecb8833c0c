//! Python and the libraries that move much memory.

use faultless_e2e::{Case, Run, python, script, skip};

fn run(name: &str) -> Option<Run> {
    Some(Case::new(python()?).args([script(name)]).same_and_served())
}

#[test]
fn numpy() {
    run("numpy_arrays.py");
}

#[test]
fn pandas() {
    run("pandas_frames.py");
}

#[test]
fn polars() {
    run("polars_frames.py");
}

#[test]
fn duckdb() {
    run("duckdb_queries.py");
}

#[test]
fn pyarrow() {
    run("pyarrow_tables.py");
}

#[test]
fn scikit_learn() {
    run("sklearn_models.py");
}

fn multiprocessing(how: &str) {
    let Some(python) = python() else { return };
    if let Err(error) = tempfile::tempfile_in("/dev/shm") {
        return skip(format_args!("Python's locks need /dev/shm: {error}"));
    }
    let run = Case::new(python).args([script("processes.py")]).args([how]).same_and_served();
    assert!(run.counters.processes > 1, "the children's counters are missing");
}

#[test]
fn multiprocessing_fork() {
    multiprocessing("fork");
}

#[test]
fn multiprocessing_spawn() {
    multiprocessing("spawn");
}

#[test]
fn subprocess() {
    run("subprocesses.py");
}
