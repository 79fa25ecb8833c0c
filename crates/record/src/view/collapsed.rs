//! Collapsed stacks: a line for each, functions separated by semicolons, then a space and how many faults. Flame graphs
//! are made from it by many tools.

use std::fmt::Write;

use crate::summary::{Summary, bounded};

/// All stacks, as far as there is room.
pub fn collapsed(summary: &Summary) -> String {
    let mut out = String::new();
    let (given, rest) = bounded(&summary.stacks);
    for by in given.iter().chain(&rest).filter(|by| by.part.faults > 0) {
        let frames: Vec<_> = by.frames.iter().map(|frame| clean(frame)).collect();
        let _ = writeln!(out, "{} {}", frames.join(";"), by.part.faults);
    }
    out
}

/// A name without what separates names and lines.
fn clean(name: &str) -> String {
    name.chars().map(|c| if c == ';' || c.is_control() { ':' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::{ByStack, Part};

    #[test]
    fn a_stack_is_a_line() {
        let stack = |frames: &[&str], faults| ByStack {
            frames: frames.iter().map(|frame| (*frame).into()).collect(),
            part: Part { faults, ..Part::default() },
        };
        let stacks = vec![stack(&["main", "a;b\n<c d>"], 7), stack(&["main"], 2), stack(&["x"], 0)];
        let summary = Summary { stacks, ..Summary::default() };
        assert_eq!(collapsed(&summary), "main;a:b:<c d> 7\nmain 2\n");
    }
}
