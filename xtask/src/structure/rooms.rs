//! Rooms of a crate, which are its folders and files below `src`: no circle among them.
//!
//! Where the head of a crate's `lib.rs` has a table of rooms, each of them uses only those above it.

use std::collections::{BTreeMap, BTreeSet};

use super::{Source, code};

/// Uses of one room by another: where the first of them stands.
type Uses = BTreeMap<(String, String), String>;

/// Circles among the rooms of a crate, and uses of rooms that stand further down in its table.
pub fn violations(sources: &[Source]) -> Vec<String> {
    let mut crates: BTreeMap<&str, Vec<&Source>> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.path.ends_with(".rs")) {
        if let Some((krate, _)) = source.path.split_once("/src/") {
            crates.entry(krate).or_default().push(source);
        }
    }
    crates.into_iter().flat_map(|(krate, sources)| check(krate, &sources)).collect()
}

fn check(krate: &str, sources: &[&Source]) -> Vec<String> {
    let inside = |source: &Source| source.path[krate.len() + "/src/".len()..].to_owned();
    let room = |path: &str| path.split('/').next().unwrap_or(path).trim_end_matches(".rs").to_owned();
    let rooms: BTreeSet<_> = sources.iter().map(|source| room(&inside(source))).collect();
    let mut uses = Uses::new();
    for source in sources {
        let path = inside(source);
        let from = room(&path);
        if ["lib", "main", "bin"].contains(&from.as_str()) {
            continue;
        }
        for (number, line) in own_lines(&source.text) {
            for to in used(&code(line), &path).into_iter().filter(|to| *to != from && rooms.contains(to)) {
                let at = || format!("{}:{number}", source.path);
                uses.entry((from.clone(), to)).or_insert_with(at);
            }
        }
    }
    let table = sources.iter().find(|source| inside(source) == "lib.rs").map(|lib| table(&lib.text));
    let mut found = match table.filter(|table| !table.is_empty()) {
        Some(table) => disorder(krate, &rooms, &table, &uses),
        None => Vec::new(),
    };
    found.extend(circle(&uses).map(|rooms| {
        let at = |pair: &[String]| {
            format!("{} uses {} ({})", pair[0], pair[1], uses[&(pair[0].clone(), pair[1].clone())])
        };
        format!("{krate}: a circle: {}", rooms.windows(2).map(at).collect::<Vec<_>>().join(", "))
    }));
    found
}

/// The lines of a file with their numbers, but those of its tests.
fn own_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines()).take_while(|(_, line)| *line != "#[cfg(test)]")
}

/// The rooms that a line uses, by `crate::` or, in a room's first file, by `super::`.
fn used(code: &str, path: &str) -> Vec<String> {
    let up = match (path.matches('/').count(), path.ends_with("/mod.rs")) {
        (0, _) | (1, true) => "super::",
        (1, false) | (2, true) => "super::super::",
        _ => "super::super::super::",
    };
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let name = |text: &str| text.trim().chars().take_while(|c| is_name(*c)).collect::<String>();
    let mut used = Vec::new();
    for start in ["crate::", up] {
        for rest in code.split(start).skip(1) {
            match rest.strip_prefix('{') {
                Some(list) => used.extend(list.split(',').map(name)),
                None => used.push(name(rest)),
            }
        }
    }
    used
}

/// The rooms in the table of a crate's head whose first column is "room", from the first row on.
fn table(text: &str) -> Vec<String> {
    let cell = |line: &str| line.strip_prefix("//! | [`").or(line.strip_prefix("//! | `")).map(str::to_owned);
    let row = |line: &str| Some(cell(line)?.split('`').next()?.to_owned());
    text.lines().skip_while(|line| !line.starts_with("//! | room |")).filter_map(row).collect()
}

fn disorder(krate: &str, rooms: &BTreeSet<String>, table: &[String], uses: &Uses) -> Vec<String> {
    let place = |room: &str| table.iter().position(|other| other == room);
    let missing = rooms.iter().filter(|room| *room != "lib" && place(room).is_none());
    let missing = missing.map(|room| format!("{krate}: the table in lib.rs does not name the room {room}"));
    let up = uses.iter().filter(|((from, to), _)| place(from) < place(to));
    missing
        .chain(up.map(|((from, to), at)| {
            format!("{at}: {from} must not use {to}, which is not above it in the table of {krate}")
        }))
        .collect()
}

/// Rooms that use one another in a row, the first of them once more at the end.
fn circle(uses: &Uses) -> Option<Vec<String>> {
    fn walk(uses: &Uses, way: &mut Vec<String>, done: &mut BTreeSet<String>) -> bool {
        let last = way.last().cloned().unwrap_or_default();
        for ((_, to), _) in uses.iter().filter(|((from, _), _)| *from == last) {
            if let Some(first) = way.iter().position(|room| room == to) {
                way.drain(..first);
                way.push(to.clone());
                return true;
            }
            if !done.contains(to) {
                way.push(to.clone());
                if walk(uses, way, done) {
                    return true;
                }
                way.pop();
            }
        }
        done.insert(last);
        false
    }
    let mut done = BTreeSet::new();
    uses.keys().find_map(|(from, _)| {
        let mut way = vec![from.clone()];
        (!done.contains(from) && walk(uses, &mut way, &mut done)).then_some(way)
    })
}

#[cfg(test)]
mod tests {
    use super::super::source;
    use super::*;

    const HEAD: &str = "//! | room | holds |\n//! | [`low`] | x |\n//! | `high` | y |\n";

    #[test]
    fn a_use_of_a_room_further_down_is_found() {
        let check = |path, text| {
            violations(&[
                source("crates/mm/src/lib.rs", HEAD),
                source("crates/mm/src/low/a.rs", ""),
                source("crates/mm/src/high/b.rs", ""),
                source(path, text),
            ])
        };
        assert!(check("crates/mm/src/high/c.rs", "use crate::low::a::B;\n").is_empty());
        let found = check("crates/mm/src/low/c.rs", "//! crate::high\nuse crate::high::B;\n");
        assert_eq!(
            found,
            ["crates/mm/src/low/c.rs:2: low must not use high, which is not above it in the table of crates/mm"]
        );
        assert_eq!(check("crates/mm/src/low/mod.rs", "use super::{low, high::B};").len(), 1);
        assert_eq!(check("crates/mm/src/low/c.rs", "fn f() -> super::super::high::B {}").len(), 1);
        assert!(check("crates/mm/src/low/c.rs", "#[cfg(test)]\nmod tests {\n    use crate::high;\n}").is_empty());
        assert_eq!(check("crates/mm/src/other.rs", "").len(), 1, "the table does not name it");
    }

    #[test]
    fn a_circle_is_found() {
        let check = |third| {
            violations(&[
                source("crates/sim/src/a.rs", "use crate::b;"),
                source("crates/sim/src/b/mod.rs", "use crate::c;"),
                source("crates/sim/src/c.rs", third),
            ])
        };
        assert!(check("").is_empty());
        let found = check("use crate::a;");
        assert_eq!(found.len(), 1);
        assert!(
            found[0].contains("a uses b (crates/sim/src/a.rs:1), b uses c (crates/sim/src/b/mod.rs:1), c uses a"),
            "{found:?}"
        );
    }
}
