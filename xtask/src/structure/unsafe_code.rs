//! Unsafe code stays in the lowest crate and at the edges.

use super::{Source, code, words};

/// Where it may be, and why.
const ALLOWED: &[(&str, &str)] = &[
    ("crates/base/", "system calls, raw memory"),
    ("crates/preload/", "the C library's functions, replaced"),
    ("crates/faultless/", "blocks and regions become slices, signal handlers"),
    ("crates/capi/src/", "the C API"),
    ("python/src/", "the buffer protocol"),
    ("crates/measure/src/", "calls of the C library"),
    ("crates/record/src/sys/", "events of the kernel and their rings"),
    ("crates/bench/src/", "loops over raw memory"),
    ("crates/cli/src/", "calls of the C library"),
    ("crates/cli/tests/handed.rs", "what a process has before its exec"),
    ("crates/testkit/", "the calls under test, made directly"),
    ("crates/models/tests/device.rs", "a driver is given memory"),
    ("crates/models/tests/moments.rs", "bytes of a simulated memory go to buffers"),
];

/// The engine's crate root, which has to forbid it.
const ENGINE: &str = "crates/mm/src/lib.rs";

/// Unsafe code elsewhere.
pub fn violations(sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources.iter().filter(|source| source.path.ends_with(".rs")) {
        if source.path == ENGINE && !source.text.lines().any(|line| line == "#![deny(unsafe_code)]") {
            found.push(format!("{ENGINE}: no #![deny(unsafe_code)]"));
        }
        if ALLOWED.iter().any(|(folder, _)| source.path.starts_with(folder)) {
            continue;
        }
        for (number, line) in source.text.lines().enumerate() {
            let line = code(line);
            if words(&line).any(|word| word == "unsafe") {
                found.push(format!("{}:{}: unsafe code does not belong here", source.path, number + 1));
            }
            if line.contains("allow(unsafe_code)") {
                found.push(format!("{}:{}: the ban on unsafe code is lifted", source.path, number + 1));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::source;
    use super::*;

    #[test]
    fn unsafe_code_in_the_wrong_crate_is_found() {
        let check = |path, text| violations(&[source(path, text)]);
        let block = "fn f() { unsafe { g() } }";
        assert_eq!(check("crates/mm/src/frame/slot.rs", block).len(), 1);
        assert_eq!(check("crates/mm/src/frame/slot.rs", "#[allow(unsafe_code)]").len(), 1);
        assert!(check("crates/base/src/table.rs", block).is_empty());
        assert!(check("crates/mm/src/frame/slot.rs", "let not_unsafe = 1; // no unsafe here").is_empty());
    }

    #[test]
    fn an_engine_without_the_ban_is_found() {
        assert_eq!(violations(&[source(ENGINE, "//! Engine.\n")]).len(), 1);
        assert!(violations(&[source(ENGINE, "#![deny(unsafe_code)]\n")]).is_empty());
    }
}
