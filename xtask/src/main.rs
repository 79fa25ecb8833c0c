//! The tasks of this repository: `cargo xtask TASK`.

mod capi;
mod check;
mod demo;
mod generate;
mod pages;
mod sanitize;
mod setup;
mod shell;
mod structure;
mod watched;

use std::process::ExitCode;

use anyhow::Result;

struct Task {
    name: &'static str,
    about: &'static str,
    run: fn(&[String]) -> Result<()>,
}

const TASKS: &[Task] = &[
    Task { name: "setup", about: "install what the tests and the demo need", run: |_| setup::run() },
    Task { name: "demo", about: "run a program plain and under faultless, and compare", run: |_| demo::run() },
    Task {
        name: "test",
        about: "everything that has to pass: setup, lint, build, tests, models, docs",
        run: |_| check::test(),
    },
    Task { name: "lint", about: "formatting, clippy, structure", run: |_| check::lint() },
    Task { name: "structure", about: "layers, unsafe code, file sizes", run: |_| structure::run() },
    Task { name: "models", about: "model checks of what runs at the same time", run: |_| check::models() },
    Task {
        name: "sanitize",
        about: "unsafe code and the C API under sanitizers and valgrind: some minutes",
        run: |_| sanitize::run(),
    },
    Task {
        name: "python",
        about: "install the Python package where its tests are run, and run them",
        run: |_| setup::run().and_then(|()| check::python()),
    },
    Task { name: "docs", about: "build the API documentation", run: |_| check::docs() },
    Task {
        name: "generate",
        about: "docs/reference.md, manual pages and completions, from the tables in the code",
        run: |_| generate::generate(),
    },
    Task {
        name: "capi",
        about: "install the C library, header and pkg-config file below a prefix",
        run: capi::install,
    },
    Task { name: "bench", about: "faultless bench run, with the arguments given", run: check::bench },
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some(task) = args.first().and_then(|name| TASKS.iter().find(|task| task.name == name)) else {
        eprintln!("usage: cargo xtask TASK");
        for task in TASKS {
            eprintln!("  {:10} {}", task.name, task.about);
        }
        return ExitCode::from(2);
    };
    match (task.run)(&args[1..]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask {}: {error:#}", task.name);
            ExitCode::FAILURE
        }
    }
}
