//! The documentation in Markdown: links lead somewhere, files that are named exist, and lines are not too wide.

use std::collections::BTreeSet;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use crate::shell::root;
use crate::structure::Source;

/// Columns of a line, outside tables and code.
const COLUMNS: usize = 120;

/// What is wrong in the Markdown files among `sources`, which are all files of the repository.
pub fn violations(sources: &[Source]) -> Vec<String> {
    let paths: BTreeSet<_> = sources.iter().map(|source| source.path.as_str()).collect();
    let pages = || sources.iter().filter(|source| source.path.ends_with(".md"));
    let find = |path: &str| pages().find(|page| page.path == path);
    pages()
        .flat_map(|page| {
            links(page, &paths, find).chain(names(page, &paths)).chain(wide(page)).collect::<Vec<_>>()
        })
        .collect()
}

/// Links within the repository that lead nowhere.
fn links<'a>(
    page: &'a Source,
    paths: &'a BTreeSet<&'a str>,
    find: impl Fn(&str) -> Option<&'a Source> + 'a,
) -> impl Iterator<Item = String> + 'a {
    // API documentation is there in the site alone, which is checked when it is made.
    let targets = targets(&page.text).filter(|target| !target.starts_with("../api/"));
    targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:")).filter_map(move |target| {
        let (file, heading) =
            target.split_once('#').map_or((target.as_str(), None), |(file, id)| (file, Some(id)));
        let path = if file.is_empty() { page.path.clone() } else { beside(&page.path, file) };
        let is_folder =
            || paths.iter().any(|other| other.starts_with(&format!("{}/", path.trim_end_matches('/'))));
        let is_there = match (heading, find(&path)) {
            // Pictures are no text, and so not among the sources.
            (None, _) => paths.contains(path.as_str()) || is_folder() || root().join(&path).is_file(),
            (Some(id), Some(other)) => headings(&other.text).contains(id),
            (Some(_), None) => false,
        };
        (!is_there).then(|| format!("{}: the link {target} leads nowhere", page.path))
    })
}

/// Where the links and pictures of a page lead.
pub fn targets(text: &str) -> impl Iterator<Item = String> + '_ {
    Parser::new_ext(text, Options::ENABLE_TABLES).filter_map(|event| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => Some(dest_url.into_string()),
        _ => None,
    })
}

/// The path of `file` as a page names it.
pub fn beside(page: &str, file: &str) -> String {
    let mut parts: Vec<_> = page.split('/').collect();
    parts.pop();
    for part in file.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The names by which headings are linked to.
fn headings(text: &str) -> BTreeSet<String> {
    let (mut inside, mut found) = (None, BTreeSet::new());
    for event in Parser::new(text) {
        match (event, &mut inside) {
            (Event::Start(Tag::Heading { .. }), _) => inside = Some(String::new()),
            (Event::End(TagEnd::Heading(_)), name) => found.extend(name.take()),
            (Event::Text(text) | Event::Code(text), Some(name)) => {
                let words = text.to_lowercase().replace(' ', "-");
                name.extend(words.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')));
            }
            _ => {}
        }
    }
    found
}

/// Files of the code that are named, by a path with `src/` or `tests/` in it, and do not exist.
fn names<'a>(page: &'a Source, paths: &'a BTreeSet<&'a str>) -> impl Iterator<Item = String> + 'a {
    let named = Parser::new_ext(&page.text, Options::ENABLE_TABLES).filter_map(|event| match event {
        Event::Code(code) => Some(code.into_string()),
        _ => None,
    });
    let is_file = |name: &String| {
        let plain = name.chars().all(|c| c.is_alphanumeric() || "/_-.{},".contains(c));
        plain && !name.starts_with('/') && (name.contains("src/") || name.contains("tests/"))
    };
    named.filter(is_file).flat_map(|name| alternatives(&name)).filter_map(move |name| {
        let name = name.trim_end_matches('/');
        let is_so = |path: &str| path == name || path.starts_with(&format!("{name}/"));
        let is_there = |path: &&&str| is_so(path) || path.strip_prefix("crates/").is_some_and(is_so);
        paths.iter().find(is_there).is_none().then(|| format!("{}: there is no {name}", page.path))
    })
}

/// `a/{b,c}.rs` as `a/b.rs` and `a/c.rs`.
fn alternatives(name: &str) -> Vec<String> {
    match (name.find('{'), name.find('}')) {
        (Some(open), Some(close)) if open < close => {
            let one = |part: &str| format!("{}{}{}", &name[..open], part.trim(), &name[close + 1..]);
            name[open + 1..close].split(',').map(one).collect()
        }
        _ => vec![name.to_owned()],
    }
}

fn wide(page: &Source) -> impl Iterator<Item = String> + '_ {
    let mut code = false;
    (1..).zip(page.text.lines()).filter_map(move |(number, line)| {
        code ^= line.trim_start().starts_with("```");
        let width = line.chars().count();
        let free = code || line.trim_start().starts_with('|') || page.path.ends_with("CHANGELOG.md");
        (!free && width > COLUMNS).then(|| format!("{}:{number}: {width} columns", page.path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn links_and_files_that_are_not_there_are_found() {
        let check = |text: &str| {
            let other = source("docs/other.md", "# First part\n\n## What `run` does, and why\n");
            violations(&[source("docs/a.md", text), other, source("crates/mm/src/space/mod.rs", "")])
        };
        let good = "[a](other.md) [b](other.md#first-part) [c](../docs/other.md#what-run-does-and-why) [d](#here)\n\n# Here\n\n`mm/src/space/mod.rs` `mm/src/space` `crates/mm/src/{space}/mod.rs` `/usr/src/x`";
        assert_eq!(check(good), Vec::<String>::new());
        assert_eq!(check("[a](none.md)"), ["docs/a.md: the link none.md leads nowhere"]);
        assert_eq!(check("[a](other.md#none)").len(), 1);
        assert_eq!(check("`mm/src/space.rs`"), ["docs/a.md: there is no mm/src/space.rs"]);
        assert_eq!(check("`mm/src/{space,none}/mod.rs`").len(), 1);
    }

    #[test]
    fn wide_lines_are_found_outside_tables_and_code() {
        let long = "x".repeat(COLUMNS + 1);
        let check = |text: String| violations(&[source("a.md", &text)]).len();
        assert_eq!(check(format!("{long}\n")), 1);
        assert_eq!(check(format!("```\n{long}\n```\n| {long} |\n")), 0);
    }
}
