//! The tasks of this repository: `cargo xtask TASK`.

mod capi;
mod check;
mod demo;
mod deny;
mod generate;
mod guest;
mod nodes;
mod package;
mod pages;
mod pictures;
mod sanitize;
mod seen;
mod setup;
mod shell;
mod site;
mod structure;
mod suite;
mod watched;

use std::process::ExitCode;

use anyhow::Result;

struct Task {
    name: &'static str,
    about: &'static str,
    run: fn(&[String]) -> Result<()>,
}

const fn task(name: &'static str, about: &'static str, run: fn(&[String]) -> Result<()>) -> Task {
    Task { name, about, run }
}

const TASKS: &[Task] = &[
    task("setup", "install what the tests and the demo need", |_| setup::run()),
    task("demo", "run a program plain and under faultless, and compare", |_| demo::run()),
    task("test", "everything that has to pass: setup, lint, build, tests, models, docs", |_| check::test()),
    task("lint", "formatting, clippy, structure", |_| check::lint()),
    task("structure", "layers, unsafe code, file sizes", |_| structure::run()),
    task("deny", "licences and sources of dependencies, by cargo-deny", |_| deny::run()),
    task("models", "model checks of what runs at the same time", |_| check::models()),
    task("sanitize", "unsafe code and the C API under sanitizers and valgrind: some minutes", |_| sanitize::run()),
    task("soak", "the library's features at once under memory pressure: 15 minutes, or SECONDS", check::soak),
    task(
        "seen",
        "real programs that `run` has seen before, with a warm reserve: half an hour; --pass chooses one, other \
         arguments go to cargo test",
        seen::run,
    ),
    task("python", "install the Python package where its tests are run, and run them", |_| {
        setup::run().and_then(|()| check::python())
    }),
    task("docs", "build the API documentation", |_| check::docs()),
    task(
        "pictures",
        "the pictures of the documentation, from a run and a browser; all, or those that are named",
        pictures::make,
    ),
    task("site", "the documentation as a site, in target/site/html, with its links checked", |_| site::run()),
    task("generate", "docs/reference.md, manual pages and completions, from the tables in the code", |_| {
        generate::generate()
    }),
    task("capi", "install the C library, header and pkg-config file below a prefix", capi::install),
    task("install", "command, library and benches, built here and installed below a prefix", package::install),
    task(
        "package",
        "wheel, deb or tarball, in target/package; check: all, installed in clean places",
        package::run,
    ),
    task(
        "nodes",
        "where memory lies on a machine with several nodes: in QEMU, with Debian's kernel or those that are named",
        nodes::run,
    ),
    task(
        "kernels",
        "tests of the engine and the library on other kernels: in QEMU, with those that are named",
        suite::run,
    ),
    task("bench", "faultless bench run, with the arguments given", check::bench),
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
