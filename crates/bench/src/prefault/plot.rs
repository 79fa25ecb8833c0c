//! The plot: pages touched in a second over processors, both by powers of two.

use anyhow::{Result, ensure};

use super::simulated::{Many, Results};
use crate::plot::{self, Chart};

/// One chart for each machine, one below the other; circles are the rows of 2004 that are of one address space.
pub fn svg(results: &Results) -> Result<String> {
    ensure!(!results.many.is_empty(), "there is nothing to draw: --svg is for the part many");
    let mut machines: Vec<&str> = results.many.iter().map(|many| many.machine).collect();
    machines.dedup();
    let chart = |(i, machine): (usize, &&'static str)| {
        let many: Vec<&Many> = results.many.iter().filter(|many| many.machine == *machine).collect();
        let mut names: Vec<&str> = many.iter().map(|many| many.name).collect();
        names.dedup();
        let line = |name: &str| {
            let named = many.iter().filter(|many| many.name == name);
            (name.to_owned(), named.map(|many| (many.threads as f64, many.rate)).collect())
        };
        Chart {
            title: machine,
            x: "processors",
            y: "pages touched in a second",
            across: 1.0..512.0,
            lines: names.into_iter().map(line).collect(),
            circles: (i == 0).then(|| ("rows of 2004", points(results))),
        }
    };
    plot::svg(&machines.iter().enumerate().map(chart).collect::<Vec<_>>())
}

/// Threads and rates of 2004, of the tables with little memory.
fn points(results: &Results) -> Vec<(f64, f64)> {
    let rows = results.tables.iter().filter(|row| row.threads <= 128);
    rows.map(|row| (row.threads as f64, row.then)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_point_there_is_no_plot() {
        assert!(svg(&Results::default()).unwrap_err().to_string().contains("the part many"));
    }
}
