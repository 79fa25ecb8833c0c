//! One real program, plain and under faultless.

use anyhow::{Result, ensure};

use crate::shell::{self, command, target};
use crate::{check, setup};

const SCRIPT: &str = "crates/bench/src/programs/scripts/numpy_arrays.py";
const ROUNDS: &str = "40";
const PAIRS: &str = "8";

/// Sets up, builds, runs and compares.
pub fn run() -> Result<()> {
    setup::run()?;
    check::release()?;
    let python = setup::python_path();
    ensure!(python.exists(), "the demo needs Python with the packages in tests/requirements.txt");
    let faultless = target().join("release/faultless");
    shell::run(command(faultless).args(["run", "--compare", PAIRS, "--"]).arg(python).args([SCRIPT, ROUNDS]))
}
