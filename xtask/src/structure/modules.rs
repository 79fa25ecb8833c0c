//! Inside the engine, modules use those of lower levels only; so there is no cycle.

use super::{Source, code};

/// The modules of the engine, lowest level first.
const LEVELS: &[&[&str]] = &[
    &["stats", "knobs", "progress", "streak", "warmth", "watched", "pace", "purpose", "credit"],
    &["slot", "runs", "budget", "listing"],
    &["buddy", "sizes", "page"],
    &["arena"],
    &["busy", "later"],
    &["space"],
    &["unused", "transfer", "examine", "account"],
    &[
        "handout", "takeback", "retire", "mapping", "blocks", "fork", "decay", "scrub", "ahead", "advice",
        "movein", "supply",
    ],
    &["stock", "attributes", "expose", "resize"],
    &["step", "recycle"],
    // Regions use the tables of counters and knobs alone.
    &["area", "behind", "entry", "window", "pool", "spread", "tally", "usage"],
    &["stream", "frames"],
    &["streams"],
    &["region"],
    &["install", "choose"],
    &["keep"],
    &["fault"],
    &["change"],
];

const FOLDER: &str = "crates/mm/src/";

/// Uses of a module of the same or a higher level.
pub fn violations(sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources {
        let Some(file) = source.path.strip_prefix(FOLDER).and_then(|file| file.strip_suffix(".rs")) else {
            continue;
        };
        let module = file.split('/').next().unwrap_or(file);
        if module == "lib" {
            continue;
        }
        let Some(level) = level(module) else {
            found.push(format!("{}: module {module} has no level (xtask/src/structure/modules.rs)", source.path));
            continue;
        };
        for (number, line) in source.text.lines().enumerate() {
            for used in used_modules(&code(line)) {
                if used != module && self::level(&used).is_some_and(|used| used >= level) {
                    let at = number + 1;
                    found.push(format!(
                        "{}:{at}: {module} must not use {used}, which is not below it",
                        source.path
                    ));
                }
            }
        }
    }
    found
}

fn level(module: &str) -> Option<usize> {
    LEVELS.iter().position(|level| level.contains(&module))
}

/// The modules named after `crate::` in a line, also as a list in braces.
fn used_modules(code: &str) -> Vec<String> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let name = |text: &str| text.trim().chars().take_while(|c| is_name(*c)).collect::<String>();
    let mut used = Vec::new();
    for rest in code.split("crate::").skip(1) {
        match rest.strip_prefix('{') {
            Some(list) => used.extend(list.split(',').map(name)),
            None => used.push(name(rest)),
        }
    }
    used
}

#[cfg(test)]
mod tests {
    use super::super::source;
    use super::*;

    #[test]
    fn a_use_of_a_higher_module_is_found() {
        let check = |path, text| violations(&[source(path, text)]);
        assert!(
            check("crates/mm/src/arena.rs", "use crate::slot::Slots;\nuse crate::{buddy, stats};\n").is_empty()
        );
        let found = check("crates/mm/src/slot.rs", "//! crate::space\nuse crate::space::Space;\n");
        assert_eq!(found, ["crates/mm/src/slot.rs:2: slot must not use space, which is not below it"]);
        assert_eq!(check("crates/mm/src/slot.rs", "use crate::{stats, arena::Extent};").len(), 1);
        assert_eq!(check("crates/mm/src/runs.rs", "fn f() -> crate::slot::State {}").len(), 1, "same level");
        assert_eq!(
            check("crates/mm/src/space/give.rs", "use crate::ahead::X;").len(),
            1,
            "a folder is one module"
        );
    }

    #[test]
    fn a_module_without_a_level_is_found() {
        assert_eq!(violations(&[source("crates/mm/src/new.rs", "")]).len(), 1);
        assert!(violations(&[source("crates/cli/src/new.rs", "use crate::bench;")]).is_empty());
    }
}
