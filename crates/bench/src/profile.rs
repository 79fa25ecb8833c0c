//! Where processor time goes, by function: a program is run once more under `perf`, where that is installed. Functions of
//! the kernel have names where the machine allows to read them, as it does to root.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::measure::measure;
use super::programs::find::on_path;
use super::table;

/// Functions that are shown.
const SHOWN: usize = 12;
/// Letters of a name that are shown.
const LETTERS: usize = 48;
/// Samples of each processor in a second: not a multiple of the ticks of a clock.
const RATE: &str = "997";

/// Functions with their shares of the samples, in per cent, the largest first.
pub type Shares = Vec<(f64, String)>;

/// Runs a command to its end, with all that it starts. The error says in a few words why there is nothing to show.
pub fn of(command: &Command, dir: &Path, limit: Duration) -> Result<Shares, String> {
    let perf = on_path("perf", "Debian's linux-perf")?;
    let file = dir.join("perf.data");
    let mut record = Command::new(&perf);
    record.args(["record", "--quiet", "--event", "cpu-clock", "--freq", RATE, "--output"]).arg(&file).arg("--");
    record.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => record.env(name, value),
            None => record.env_remove(name),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        record.current_dir(dir);
    }
    measure(&mut record, limit)?;
    let mut report = Command::new(&perf);
    report.args(["report", "--stdio", "--no-children", "--sort", "symbol", "--field-separator", ";", "--input"]);
    let said = measure(report.arg(&file), limit)?.output;
    let _ = std::fs::remove_file(&file);
    Ok(shares(&said))
}

/// What `perf report` says: a share, and `[k]` or `[.]` before a name. Other columns may follow.
fn shares(report: &str) -> Shares {
    let line = |line: &str| {
        let (share, rest) = line.split_once(';')?;
        let share = share.trim().trim_end_matches('%').parse().ok()?;
        let symbol = rest.split(';').next()?.trim();
        let name = match symbol.strip_prefix("[k] ") {
            Some(kernel) => short(kernel),
            None => format!("{} (user)", short(symbol.strip_prefix("[.] ")?)),
        };
        Some((share, name))
    };
    let lines = report.lines().filter(|line| !line.starts_with('#'));
    let mut all: Shares = lines.filter_map(line).collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    all
}

fn short(name: &str) -> String {
    let name = name.trim();
    match name.char_indices().nth(LETTERS) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// Prints a table with a column for each that could be looked at, and says why for the others.
pub fn print(what: &str, all: Vec<(String, Result<Shares, String>)>) {
    let mut columns = Vec::new();
    for (name, shares) in all {
        match shares {
            Ok(shares) => columns.push((name, shares)),
            Err(why) => println!("No functions of {name}: {why}.\n"),
        }
    }
    let header: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
    let mut rows = table::new_table(&header);
    for at in 0..SHOWN {
        let cell = |(_, shares): &(String, Shares)| match shares.get(at) {
            Some((share, name)) => format!("{share:.1} % `{name}`"),
            None => String::new(),
        };
        rows.add_row(columns.iter().map(cell).collect::<Vec<_>>());
    }
    if !columns.is_empty() {
        println!("Processor time by function, {what}, of one more run each\n\n{rows}\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_from_a_report() {
        let report = "# Samples: 249  of event 'cpu-clock'\n#\n# Overhead;Symbol;IPC\n\
            1.61%  ;[k] __d_lookup_rcu   ;-  -\n 12.30%;[k] do_wp_page\n4.42%;[.] handle_amd;-\n\nnothing\n;;\n";
        let of = |share: f64, name: &str| (share, name.to_owned());
        assert_eq!(
            shares(report),
            [of(12.3, "do_wp_page"), of(4.42, "handle_amd (user)"), of(1.61, "__d_lookup_rcu")]
        );
        assert_eq!(short(&"é".repeat(60)), "é".repeat(48) + "…");
    }

    #[test]
    fn a_program_spends_its_time_in_functions() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done"]);
        match of(&command, dir.path(), Duration::from_secs(60)) {
            Ok(shares) => {
                let sum: f64 = shares.iter().map(|(share, _)| share).sum();
                assert!(!shares.is_empty() && (90.0..110.0).contains(&sum), "{shares:?}");
            }
            // No package of the distribution's that the tests install, and not everywhere allowed.
            Err(why) => faultless_testkit::skip_optional(why),
        }
    }
}
