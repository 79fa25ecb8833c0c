//! One real program, plain and under faultless.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::setup;
use crate::shell::{self, cargo, command, target};

const SCRIPT: &str = "xtask/demo/standardise.py";
const ROUNDS: &str = "15";
const PAIRS: &str = "8";
/// Runs before, after which the machine has brought its memory.
const WARMUP: &str = "2";

/// Sets up, builds what is run, runs and compares.
pub fn run() -> Result<()> {
    setup::run()?;
    let faultless = build()?;
    let python = setup::python_path();
    ensure!(python.exists(), "the demo needs Python with the packages in tests/requirements.txt");
    let file = target().join("demo.json");
    let compare = ["run", "--compare", PAIRS, "--warmup", WARMUP, "--export-json"];
    shell::run(command(faultless).args(compare).arg(&file).arg("--").arg(python).args([SCRIPT, ROUNDS]))?;
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    println!("\n{}", lines(&serde_json::from_str(&text)?).context("the comparison lacks a figure")?);
    Ok(())
}

/// The command, beside the library as packages have both. What is measured is the library, in its release build. The
/// command only starts programs and does sums: it is built as tests need it, in half the time.
fn build() -> Result<PathBuf> {
    shell::run(&mut cargo("build --package faultless-cli"))?;
    shell::run(&mut cargo("build --release --package faultless-preload"))?;
    let demo = target().join("demo");
    let place = |from: &str, to: &str| -> Result<PathBuf> {
        let to = demo.join(to);
        std::fs::create_dir_all(to.parent().context("a folder")?)?;
        std::fs::copy(target().join(from), &to).with_context(|| to.display().to_string())?;
        Ok(to)
    };
    place("release/libfaultless_preload.so", "lib/faultless/libfaultless_preload.so")?;
    place("debug/faultless", "bin/faultless")
}

/// What was faster, by how much, what it cost.
fn lines(figures: &Value) -> Option<String> {
    let median = |of: &str, who: &str| figures[of][who]["median"].as_f64();
    let both = |of: &str| Some((median(of, "plain")?, median(of, "faultless")?));
    let (wall, ours) = both("wall_s")?;
    let (faults, left) = both("minor_faults")?;
    let (system, less) = both("system_s")?;
    let (resident, more) = both("max_rss_bytes")?;
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    Some(format!(
        "NumPy, columns of a table standardised: {wall:.2} s plain, {ours:.2} s under faultless ({:.2} of plain).\n\
         Page faults: {faults:.0} plain, {left:.0} under faultless; time in the kernel: {system:.2} s, {less:.2} s.\n\
         What it cost: {:.0} MiB more resident memory at most, of {:.0} plain.",
        ours / wall,
        mib((more - resident).max(0.0)),
        mib(resident),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_ends_in_three_lines() {
        let both =
            |plain: f64, ours: f64| serde_json::json!({"plain": {"median": plain}, "faultless": {"median": ours}});
        let mut figures = serde_json::json!({
            "wall_s": both(2.0, 1.0), "system_s": both(1.0, 0.1),
            "minor_faults": both(40000.0, 400.0), "max_rss_bytes": both(1048576.0 * 200.0, 1048576.0 * 250.0),
        });
        let said = lines(&figures).unwrap();
        assert_eq!(said.lines().count(), 3);
        assert!(
            said.contains("(0.50 of plain)") && said.contains("50 MiB more") && said.contains("400 under"),
            "{said}"
        );
        figures["wall_s"] = Value::Null;
        assert_eq!(lines(&figures), None);
    }
}
