//! The structure of the code, checked: arrows only go down, unsafe code stays where it belongs, and files stay
//! small. The library of regions bears forks, and tests that cannot run say so where it counts.
//!
//! Each check is a function from texts to a list of violations, so that its tests can show it a bad example.

mod files;
mod forks;
mod layers;
mod rooms;
mod skips;
mod unsafe_code;

use anyhow::{Context, Result, bail};

use crate::shell::{cargo, command, output, root};

/// A text file of the repository.
pub struct Source {
    /// Its path below the root.
    pub path: String,
    /// What is in it.
    pub text: String,
}

/// Checks everything and prints each violation.
pub fn run() -> Result<()> {
    let sources = sources()?;
    let metadata = output(&mut cargo("metadata --no-deps --format-version 1 --offline"))?;
    let metadata = serde_json::from_str(&metadata)?;
    let violations = [
        layers::violations(&metadata),
        rooms::violations(&sources),
        unsafe_code::violations(&sources),
        files::violations(&sources),
        forks::violations(&sources),
        skips::violations(&sources),
    ]
    .concat();
    for warning in files::warnings(&sources) {
        eprintln!("warning: {warning}");
    }
    for violation in &violations {
        eprintln!("structure: {violation}");
    }
    if !violations.is_empty() {
        bail!("{} violations", violations.len());
    }
    println!("structure: {} files, no violation", sources.len());
    Ok(())
}

/// All text files that are tracked or could be.
pub fn sources() -> Result<Vec<Source>> {
    // The repository may belong to another user than the one who runs the checks.
    let args = ["-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard"];
    let list = output(command("git").args(args)).context("git ls-files")?;
    let read = |path: &str| {
        let bytes = std::fs::read(root().join(path)).ok()?;
        Some(Source { path: path.to_owned(), text: String::from_utf8(bytes).ok()? })
    };
    Ok(list.lines().filter_map(read).collect())
}

/// The code of a line of Rust: without its comment and the contents of its strings.
fn code(line: &str) -> String {
    let mut out = String::new();
    let mut chars = line.chars().peekable();
    let mut quoted = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' if quoted => drop(chars.next()),
            '"' => {
                quoted = !quoted;
                out.push(c);
            }
            '/' if !quoted && chars.peek() == Some(&'/') => break,
            _ if quoted => {}
            _ => out.push(c),
        }
    }
    out
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

#[cfg(test)]
fn source(path: &str, text: &str) -> Source {
    Source { path: path.to_owned(), text: text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_no_code() {
        assert_eq!(code(r#"let a = "x // y \" z"; // unsafe"#).trim(), r#"let a = "";"#);
        assert_eq!(words("pub unsafe fn a_b()").collect::<Vec<_>>(), ["pub", "unsafe", "fn", "a_b"]);
    }
}
