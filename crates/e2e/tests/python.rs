//! Python and the libraries that move much memory.

use faultless_e2e::{Case, Run, python, script};

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

#[test]
fn multiprocessing_fork() {
    let Some(python) = python() else { return };
    let run = Case::new(python).args([script("processes.py")]).args(["fork"]).same_and_served();
    assert!(run.counters.processes > 1, "the children's counters are missing");
}

#[test]
fn multiprocessing_spawn() {
    let Some(python) = python() else { return };
    let run = Case::new(python).args([script("processes.py")]).args(["spawn"]).same_and_served();
    assert!(run.counters.processes > 1, "the children's counters are missing");
}

#[test]
fn subprocess() {
    run("subprocesses.py");
}
